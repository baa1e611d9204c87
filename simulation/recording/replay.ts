import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import { OnlineCostModel } from "../../scheduler/cost/online.ts";
import { settingsOf } from "../../scheduler/engine/engine-options.ts";
import { Fleet, type SequenceListener } from "../../scheduler/fleet/fleet.ts";
import type { Placement } from "../../scheduler/fleet/placement.ts";
import type { EngineMessage } from "../../scheduler/messages.ts";
import type {
  Divergence,
  EntryOf,
  RecordingEntry,
  RecordingHead,
} from "../../scheduler/recording/recording.ts";
import { ReplayedHost } from "./replayed-host.ts";

/** Failure of the scheduler during a replay. */
export interface Breakdown {
  /** Index of the recording's entry at which it failed. */
  readonly entry: number;
  readonly atMs: number;
  /** Failed engine; null: the fleet, which ends the replay. */
  readonly engine: EngineId | null;
  readonly reason: string;
  /** True if the recording lost that engine too, or ends there: the failure is the recorded one. */
  readonly isRecorded: boolean;
}

/** Result of a replay. */
export interface Replayed {
  /** First placement, message, step or report that differs; null: none. */
  readonly divergence: Divergence;
  readonly breakdowns: readonly Breakdown[];
}

/**
 * Replays a recording: the same fleet and engines, with the recorded inputs at the recorded times. If an
 * engine fails, the replay skips its entries until the recording replaces it; the others continue. Memory
 * holds only reports that the fleet has not received yet.
 */
export function replay(head: RecordingHead, entries: readonly RecordingEntry[]): Replayed {
  return new Replay(head, entries).run();
}

const silent: SequenceListener = { onStarted: () => {}, onToken: () => {}, onFinish: () => {} };

class Replay {
  readonly #head: RecordingHead;
  readonly #entries: readonly RecordingEntry[];
  readonly #breakdowns: Breakdown[] = [];
  readonly #hosts: readonly ReplayedHost[];
  readonly #fleet: Fleet;
  readonly #placements = new Map<SequenceId, Placement>();
  /** Index of the next entry with a tier's reply, by engine; or of an entry before it. */
  readonly #answers: number[];
  #entry = 0;
  #atMs = 0;
  #divergence: Divergence = null;

  constructor(head: RecordingHead, entries: readonly RecordingEntry[]) {
    this.#head = head;
    this.#entries = entries;
    this.#answers = head.specs.map(() => 0);
    const { policy, specs, queueMax, publicTexts } = head;
    const settings = { ...settingsOf(policy, specs.length), queueMax };
    this.#hosts = specs.map((spec, engine) => {
      return new ReplayedHost(spec, settings, () => this.#nextAnswer(engine as EngineId));
    });
    const engines = specs.map((spec, engine) => ({ link: this.#hosts[engine]!, spec }));
    this.#fleet = new Fleet(engines, {
      policy,
      clock: { nowMs: () => this.#atMs },
      queueMax,
      publicTexts,
      onPlacement: (sequence, placement) => this.#placements.set(sequence, placement),
    });
  }

  run(): Replayed {
    for (let index = 0; index < this.#entries.length && this.#divergence === null; ) {
      const entry = this.#entries[index]!;
      const calls = entry.kind === "call" ? callsOfOneTaskGroup(this.#entries, index) : [];
      this.#entry = index;
      this.#atMs = entry.atMs;
      index += Math.max(1, calls.length);
      try {
        if (entry.kind === "call") this.#call(calls);
        else this.#repeat(entry);
      } catch (error) {
        const isFleet = this.#breakDown(entry, error instanceof Error ? error.message : String(error));
        if (isFleet) break;
      }
    }
    return { divergence: this.#divergence, breakdowns: this.#breakdowns };
  }

  /** Records a failure; true if the fleet failed. */
  #breakDown(entry: RecordingEntry, reason: string): boolean {
    const engine = isOfEngine(entry) ? entry.engine : null;
    const later = this.#entries.slice(this.#entry + 1);
    const isRecorded = engine === null ? later.length === 0 : isLostNext(later, engine);
    this.#breakdowns.push({ entry: this.#entry, atMs: this.#atMs, engine, reason, isRecorded });
    if (engine !== null) this.#hosts[engine]!.isDown = true;
    return engine === null;
  }

  #repeat(entry: Exclude<RecordingEntry, { readonly kind: "call" }>): void {
    const fleet = this.#fleet;
    if (!("engine" in entry)) {
      if (entry.kind === "expect") this.#expect(entry);
      else if (entry.kind === "extend") fleet.extend(entry.hint, entry.tokens);
      else if (entry.kind === "forget") fleet.forget(entry.hint, entry.givesUp);
      else if (entry.kind === "raise") fleet.raise(entry.sequence, entry.service);
      else fleet[entry.kind](entry.sequence);
      return;
    }
    const { engine, kind } = entry;
    const host = this.#hosts[engine]!;
    if (isOfEngine(entry) && host.isDown) return;
    if (kind === "message") this.#message(host, entry);
    else if (kind === "run") host.run(entry);
    else if (kind === "step") this.#step(host, entry);
    else if (kind === "loaded") this.#loaded(host, entry);
    else if (kind === "tierCosts") host.tierCosts(entry);
    else if (kind === "tierAnswer")
      return; // taken by the engine's call
    else if (kind === "reported") this.#reported(host, entry);
    else if (kind === "costs") {
      host.expect({ costs: OnlineCostModel.from(entry.state) }); // an engine that has not begun starts with these costs
      fleet.updateCosts(engine, OnlineCostModel.from(entry.state));
    } else if (kind === "lost") {
      host.lose();
      fleet.lost(engine, entry.reason, entry.isComing);
    } else {
      host.expect({ epoch: entry.epoch });
      fleet.replaced(engine, host, this.#head.specs[engine]!, entry.epoch);
    }
  }

  #call(calls: readonly EntryOf<"call">[]): void {
    this.#placements.clear();
    const specs = calls.map(({ sequence }) => sequence);
    const ids =
      specs.length === 1
        ? [this.#fleet.submit(specs[0]!, silent)]
        : this.#fleet.submitTaskGroup(
            specs,
            specs.map(() => silent),
          );
    for (const [index, { sequence, engine, reason }] of calls.entries()) {
      const placement = this.#placements.get(ids[index]!);
      const recorded = `sequence ${sequence.id} on engine ${engine ?? "none"} (${reason})`;
      const replayed = `sequence ${ids[index]} on engine ${placement?.engine ?? "none"} (${placement?.reason ?? "only"})`;
      this.#compare(recorded, replayed, index);
    }
  }

  #expect({ hint }: EntryOf<"expect">): void {
    const id = this.#fleet.expect(hint);
    this.#compare(`hint ${hint.id}`, `hint ${id}`);
  }

  /** Delivers the engine's next report to the fleet. */
  #reported(host: ReplayedHost, { engine, report: number }: EntryOf<"reported">): void {
    const report = host.nextReport();
    const nameOfReport = (number: number): string => `report ${number} of engine ${engine}`;
    this.#compare(nameOfReport(number), report === null ? "no report" : nameOfReport(report.number));
    if (report !== null) this.#fleet.report(engine, report);
  }

  #message(host: ReplayedHost, entry: EntryOf<"message">): void {
    const sent = host.nextSent();
    this.#compare(nameOf(entry.message), sent === null ? "no message" : nameOf(sent));
    host.message(entry);
  }

  #step(host: ReplayedHost, entry: EntryOf<"step">): void {
    const { plan } = host;
    const nameOfPlan = (hash: number | null): string =>
      hash === null ? `engine ${entry.engine}: no step` : `engine ${entry.engine}: step with plan ${hash}`;
    this.#compare(nameOfPlan(entry.plan), nameOfPlan(plan));
    if (plan === entry.plan) host.answer(entry);
  }

  #loaded(host: ReplayedHost, entry: EntryOf<"loaded">): void {
    const isBegun = host.loaded(entry);
    this.#compare(
      `load ${entry.load} of engine ${entry.engine}`,
      isBegun ? `load ${entry.load} of engine ${entry.engine}` : "no load",
    );
  }

  /** Takes the tier's next recorded reply of this engine. */
  #nextAnswer(engine: EngineId): number {
    for (let index = Math.max(this.#answers[engine]!, this.#entry); index < this.#entries.length; index++) {
      const entry = this.#entries[index]!;
      if (entry.kind !== "tierAnswer" || entry.engine !== engine) continue;
      this.#answers[engine] = index + 1;
      return entry.answer;
    }
    throw new Error("The recording has no answer of the tier to this call.");
  }

  #compare(recorded: string, replayed: string, offset = 0): void {
    if (recorded === replayed || this.#divergence !== null) return;
    this.#divergence = { entry: this.#entry + offset, atMs: this.#atMs, recorded, replayed };
  }
}

/** True if the entry is an input of an engine, false if of the fleet. */
function isOfEngine(entry: RecordingEntry): entry is EntryOf<"message" | "run" | "step" | "loaded"> {
  return ["message", "run", "step", "loaded"].includes(entry.kind);
}

/** True if the engine has no more entries before its loss or the recording's end. */
function isLostNext(later: readonly RecordingEntry[], engine: EngineId): boolean {
  for (const entry of later) {
    if (!("engine" in entry) || entry.engine !== engine) continue;
    if (entry.kind === "lost") return true;
    if (entry.kind === "run" || entry.kind === "step") return false;
  }
  return true;
}

/** Returns the calls from `index` on that were placed together, at least one. */
function callsOfOneTaskGroup(entries: readonly RecordingEntry[], index: number): EntryOf<"call">[] {
  const calls: EntryOf<"call">[] = [];
  for (let i = index; i < entries.length; i++) {
    const entry = entries[i]!;
    if (entry.kind !== "call") break;
    const [before] = calls;
    if (before !== undefined && before.first !== entry.first) break;
    calls.push(entry);
  }
  return calls;
}

function nameOf(message: EngineMessage): string {
  if (message.kind === "resync") return "resync";
  if (message.kind === "expect") return `expect ${message.hint.id}`;
  if (message.kind === "forget") return `forget ${message.hint}`;
  return `${message.kind} ${message.kind === "submit" ? message.sequence.id : message.sequence}`;
}
