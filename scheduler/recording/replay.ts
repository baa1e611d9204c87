import type { Clock } from "../clock.ts";
import { assert, type EngineId, type SequenceId, type Step, type StepResult } from "../core.ts";
import { BelievedCosts } from "../cost/believed.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import { unknownCost } from "../cost/linear.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { Device, DeviceSpec } from "../device.ts";
import { Engine } from "../engine/engine.ts";
import { optionsOf } from "../engine/engine-options.ts";
import { Fleet, type SequenceListener } from "../fleet/fleet.ts";
import type { Placement } from "../fleet/placement.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";
import { type Divergence, type FlightEntry, type FlightHead, planHash } from "./flight.ts";

type EntryOf<Kind extends FlightEntry["kind"]> = Extract<FlightEntry, { readonly kind: Kind }>;

/** Where the scheduler broke down while it was run again. */
export interface Breakdown {
  /** Which entry of the recording it was given then. */
  readonly entry: number;
  readonly atMs: number;
  /** Null: the fleet, and with it everything. */
  readonly engine: EngineId | null;
  readonly reason: string;
  /** That engine was lost in the recording, too, or the recording ends there: it broke down in the same way. */
  readonly isRecorded: boolean;
}

/** What became of a recording that was run again. */
export interface Replayed {
  /** Null if every placement, message, step and report is the same; else the first that is not. */
  readonly divergence: Divergence;
  readonly breakdowns: readonly Breakdown[];
}

/**
 * Runs a recorded flight again: the same fleet and engines, given what they were given then, at the times of then. An
 * engine that breaks down takes no more part, until another takes its place in the recording; the others go on.
 * Memory: the reports not yet received.
 */
export function replay(head: FlightHead, entries: readonly FlightEntry[]): Replayed {
  return new Replay(head, entries).run();
}

/** A clock that stands where an entry stands. */
class EntryClock implements Clock {
  now = 0;

  nowMs(): number {
    return this.now;
  }

  after(): never {
    assert(false, "what is replayed sets no timers");
  }
}

/** A device that answers from the record. */
class RecordedDevice implements Device {
  readonly spec: DeviceSpec;
  step: Step | null = null;
  #done: ((result: StepResult) => void) | null = null;

  constructor(spec: DeviceSpec) {
    this.spec = spec;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    this.step = step;
    this.#done = done;
  }

  answer({ result, sampled, deviceMs }: EntryOf<"step">): void {
    const done = this.#done!;
    this.step = null;
    this.#done = null;
    const reason = "The device said so when this was recorded.";
    if (result === "done") done({ kind: "done", sampled, deviceMs });
    else done({ kind: result, reason });
  }

  close(): void {}
}

/** One engine, from its start to its loss. */
interface Life {
  readonly engine: Engine;
  readonly device: RecordedDevice;
  readonly clock: EntryClock;
  /** Emitted, not yet received by the fleet. */
  readonly reports: EngineReport[];
}

interface Slot {
  life: Life | null;
  lives: number;
  /** Broke down, and the recording has not come to its loss yet. */
  isDown: boolean;
  readonly believed: BelievedCosts;
  /** Sent by the fleet, not yet received. */
  readonly sent: EngineMessage[];
}

const silent: SequenceListener = { onStarted: () => {}, onToken: () => {}, onFinish: () => {} };

class Replay {
  readonly #head: FlightHead;
  readonly #entries: readonly FlightEntry[];
  readonly #breakdowns: Breakdown[] = [];
  readonly #clock = new EntryClock();
  readonly #slots: readonly Slot[];
  readonly #fleet: Fleet;
  readonly #placements = new Map<SequenceId, Placement>();
  #entry = 0;
  #atMs = 0;
  #divergence: Divergence = null;

  constructor(head: FlightHead, entries: readonly FlightEntry[]) {
    this.#head = head;
    this.#entries = entries;
    this.#slots = head.specs.map(() => {
      return { life: null, lives: 0, isDown: false, believed: new BelievedCosts(unknownCost), sent: [] };
    });
    const engines = head.specs.map((spec, index) => ({ link: this.#linkTo(this.#slots[index]!), spec }));
    this.#fleet = new Fleet(engines, {
      policy: head.policy,
      costs: this.#slots.map(({ believed }) => believed),
      clock: this.#clock,
      queueMax: head.queueMax,
      onPlacement: (sequence, placement) => this.#placements.set(sequence, placement),
    });
  }

  run(): Replayed {
    for (let index = 0; index < this.#entries.length && this.#divergence === null; ) {
      const entry = this.#entries[index]!;
      const calls = entry.kind === "call" ? callsOfOneGang(this.#entries, index) : [];
      this.#entry = index;
      this.#atMs = entry.atMs;
      index += Math.max(1, calls.length);
      try {
        if (entry.kind === "call") this.#call(calls);
        else this.#replay(entry);
      } catch (error) {
        const isFleet = this.#breakDown(entry, error instanceof Error ? error.message : String(error));
        if (isFleet) break;
      }
    }
    return { divergence: this.#divergence, breakdowns: this.#breakdowns };
  }

  /** Whether it was the fleet that broke down. */
  #breakDown(entry: FlightEntry, reason: string): boolean {
    const isEngine = entry.kind === "message" || entry.kind === "run" || entry.kind === "step";
    const engine = isEngine ? entry.engine : null;
    const later = this.#entries.slice(this.#entry + 1);
    const isRecorded = isEngine ? isLostNext(later, entry.engine) : later.length === 0;
    this.#breakdowns.push({ entry: this.#entry, atMs: this.#atMs, engine, reason, isRecorded });
    if (isEngine) this.#slots[entry.engine]!.isDown = true;
    return !isEngine;
  }

  #replay(entry: Exclude<FlightEntry, { readonly kind: "call" }>): void {
    const isEngine = entry.kind === "message" || entry.kind === "run" || entry.kind === "step";
    if (isEngine && this.#slots[entry.engine]!.isDown) return;
    if (entry.kind === "message") this.#message(entry);
    else if (entry.kind === "run") this.#lifeOf(entry).engine.run();
    else if (entry.kind === "step") this.#step(entry);
    else if (entry.kind === "costs") this.#costs(entry);
    else this.#tellFleet(entry);
  }

  #tellFleet(entry: EntryOf<"abort" | "pause" | "resume" | "reported" | "lost" | "replaced">): void {
    this.#clock.now = entry.atMs;
    if (entry.kind === "reported") this.#reported(entry);
    else if (entry.kind === "lost") this.#lost(entry);
    else if (entry.kind === "replaced") {
      const { engine, epoch } = entry;
      this.#fleet.replaced(engine, this.#linkTo(this.#slots[engine]!), this.#head.specs[engine]!, epoch);
    } else if (entry.kind === "abort") this.#fleet.abort(entry.sequence);
    else if (entry.kind === "pause") this.#fleet.pause(entry.sequence);
    else this.#fleet.resume(entry.sequence);
  }

  /* ---- fleet ---- */

  #call(calls: readonly EntryOf<"call">[]): void {
    this.#clock.now = this.#atMs;
    this.#placements.clear();
    const specs = calls.map(({ sequence }) => sequence);
    const ids =
      specs.length === 1
        ? [this.#fleet.submit(specs[0]!, silent)]
        : this.#fleet.submitGang(
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

  /** Reports arrive in their order, each of them. */
  #reported({ engine, report: number }: EntryOf<"reported">): void {
    const report = this.#slots[engine]!.life?.reports.shift();
    const nameOfReport = (told: number): string => `report ${told} of engine ${engine}`;
    this.#compare(nameOfReport(number), report === undefined ? "no report" : nameOfReport(report.number));
    if (report !== undefined) this.#fleet.report(engine, report);
  }

  #lost({ engine, reason, isComing }: EntryOf<"lost">): void {
    const slot = this.#slots[engine]!;
    slot.life = null;
    slot.isDown = false;
    slot.sent.length = 0;
    this.#fleet.lost(engine, reason, isComing);
  }

  /* ---- engines ---- */

  #linkTo(slot: Slot): { send(message: EngineMessage): void } {
    return { send: (message) => slot.sent.push(message) };
  }

  #message(entry: EntryOf<"message">): void {
    const sent = this.#slots[entry.engine]!.sent.shift();
    this.#compare(nameOf(entry.message), sent === undefined ? "no message" : nameOf(sent));
    this.#lifeOf(entry).engine.receive(entry.message);
  }

  #step(entry: EntryOf<"step">): void {
    const { device } = this.#lifeOf(entry);
    const plan = device.step === null ? null : planHash(device.step);
    const nameOfPlan = (hash: number | null): string =>
      hash === null ? `engine ${entry.engine}: no step` : `engine ${entry.engine}: step with plan ${hash}`;
    this.#compare(nameOfPlan(entry.plan), nameOfPlan(plan));
    if (plan === entry.plan) device.answer(entry);
  }

  #costs({ engine, state, atMs }: EntryOf<"costs">): void {
    const slot = this.#slots[engine]!;
    if (slot.life === null) this.#open(engine, OnlineCostModel.from(state), atMs);
    slot.believed.take(OnlineCostModel.from(state).steady());
  }

  #lifeOf({ engine, atMs }: EntryOf<"message" | "run" | "step">): Life {
    const life = this.#slots[engine]!.life ?? this.#open(engine, unknownCost, atMs);
    life.clock.now = atMs;
    return life;
  }

  #open(engine: EngineId, costs: EngineCosts, atMs: number): Life {
    const { policy, specs, queueMax } = this.#head;
    const slot = this.#slots[engine]!;
    const spec = specs[engine]!;
    const device = new RecordedDevice(spec);
    const clock = new EntryClock();
    clock.now = atMs;
    const reports: EngineReport[] = [];
    const settings = { ...optionsOf(policy, spec, specs.length), queueMax, epoch: slot.lives };
    const take = (report: EngineReport): void => {
      reports.push(report);
    };
    slot.lives += 1;
    slot.life = { engine: new Engine(device, clock, settings, take, costs), device, clock, reports };
    return slot.life;
  }

  #compare(recorded: string, replayed: string, offset = 0): void {
    if (recorded === replayed || this.#divergence !== null) return;
    this.#divergence = { entry: this.#entry + offset, atMs: this.#atMs, recorded, replayed };
  }
}

/** Whether the engine does nothing more before it is lost, or before the recording ends. */
function isLostNext(later: readonly FlightEntry[], engine: EngineId): boolean {
  for (const entry of later) {
    if (!("engine" in entry) || entry.engine !== engine) continue;
    if (entry.kind === "lost") return true;
    if (entry.kind === "run" || entry.kind === "step") return false;
  }
  return true;
}

/** The calls from `index` on that were placed together, at least one. */
function callsOfOneGang(entries: readonly FlightEntry[], index: number): EntryOf<"call">[] {
  const calls: EntryOf<"call">[] = [];
  for (let i = index; i < entries.length; i++) {
    const entry = entries[i]!;
    if (entry.kind !== "call") break;
    const { gang } = entry.sequence.service;
    const [first] = calls;
    if (first !== undefined && (gang === null || first.sequence.service.gang !== gang)) break;
    calls.push(entry);
  }
  return calls;
}

function nameOf(message: EngineMessage): string {
  if (message.kind === "resync") return "resync";
  return `${message.kind} ${message.kind === "submit" ? message.sequence.id : message.sequence}`;
}
