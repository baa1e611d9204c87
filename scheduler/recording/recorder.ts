import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { TokenId } from "../../base/token.ts";
import type { TierCosts } from "../cache/lower-tier.ts";
import type { EngineId, SequenceId, Service, StepResult } from "../core.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { DeviceSpec } from "../device.ts";
import {
  type EngineLink,
  type Expected,
  Fleet,
  type FleetOptions,
  type SequenceListener,
  type Unplaced,
} from "../fleet/fleet.ts";
import type { Placement } from "../fleet/placement.ts";
import type { HostRecorder } from "../host/engine-host.ts";
import type { EngineReport } from "../messages.ts";
import { isServed, type Policy } from "../policy.ts";
import {
  type EntryOf,
  planHash,
  RECORDING_VERSION,
  type RecordingEntry,
  type RecordingHead,
} from "./recording.ts";

/**
 * Decorators that record the inputs and decisions of a fleet and its engines. A server, where each thread has
 * its own, and a simulation use the same ones.
 */

/** Sink of a recording; the head comes first. */
export type RecordingSink = (entry: RecordingHead | RecordingEntry) => void;

/**
 * Records the inputs of an engine before the engine sees them: messages, turns, its device's results, and the
 * answers of its lower tier.
 */
export function engineRecorder(
  id: EngineId,
  clock: Pick<Clock, "nowMs">,
  write: (entry: RecordingEntry) => void,
): HostRecorder {
  const here = () => ({ atMs: clock.nowMs(), engine: id });
  let costs: TierCosts | null = null;
  let measured: () => TierCosts | null = () => null;
  /** Writes an input, after the tier's costs if these have changed: the engine sees new costs only with an input. */
  const input = (entry: RecordingEntry): void => {
    const now = measured();
    if (now !== null && (costs === null || !areSame(now, costs))) {
      costs = { ...now };
      write({ kind: "tierCosts", ...here(), costs });
    }
    write(entry);
  };
  return {
    engine: (engine) => ({
      receive: (message) => {
        input({ kind: "message", ...here(), message });
        engine.receive(message);
      },
      run: () => {
        input({ kind: "run", ...here() });
        engine.run();
      },
    }),
    device: (device) => ({
      spec: device.spec,
      start: (step, done) => {
        device.start(step, (result) => {
          input({ kind: "step", ...here(), ...answerOf(result), plan: planHash(step) });
          done(result);
        });
      },
      close: () => device.close(),
    }),
    tier: (tier) => {
      measured = () => tier.costs;
      let loads = 0;
      const answered = (answer: number): number => {
        write({ kind: "tierAnswer", ...here(), answer });
        return answer;
      };
      return {
        get costs() {
          return costs ?? tier.costs;
        },
        find: (prompt, first) => answered(tier.find(prompt, first)),
        loadPageMs: (prompt, first, end) => answered(tier.loadPageMs(prompt, first, end)),
        store: (prompt, first, pages) => answered(tier.store(prompt, first, pages)),
        findState: (prompt, first, end) => answered(tier.findState(prompt, first, end)),
        storeState: (prompt, end, slot, first, count) =>
          answered(tier.storeState(prompt, end, slot, first, count)),
        load: (prompt, first, pages, slot, done) => {
          const load = loads;
          loads += 1;
          tier.load(prompt, first, pages, slot, (right, fromHost) => {
            input({ kind: "loaded", ...here(), load, right, fromHost });
            done(right, fromHost);
          });
        },
      };
    },
  };
}

function areSame(one: TierCosts, other: TierCosts): boolean {
  return (
    one.pageBytes === other.pageBytes &&
    one.statePages === other.statePages &&
    one.latencyMs === other.latencyMs &&
    one.loadPageMs === other.loadPageMs &&
    one.storePageMs === other.storePageMs
  );
}

const noNumbers = new Float32Array(0);

/** Drops the values of hidden states, which are large: no decision depends on them. */
function answerOf(result: StepResult) {
  if (result.kind === "done") {
    const sampled = result.sampled.map((one) =>
      one.kind === "hidden" ? { ...one, hidden: noNumbers } : one,
    );
    const { deviceMs, draftsMs } = result;
    return { result: result.kind, deviceMs, ...(draftsMs === undefined ? {} : { draftsMs }), sampled };
  }
  return { result: result.kind, deviceMs: 0, sampled: [] };
}

/** Clock whose time stands still within a turn. */
export interface TurnClock extends Pick<Clock, "nowMs"> {
  /** Begins a turn. Absent where time stands still by itself, as in a simulation. */
  turn?(): void;
}

/**
 * Fleet that records its inputs. Each call is a turn of its clock. Calls that a listener makes in response
 * are part of that turn, and recorded after it.
 */
export class RecordedFleet extends Fleet {
  readonly #clock: TurnClock;
  readonly #write: RecordingSink;
  readonly #placed: Map<SequenceId, Placement>;
  /** Epochs by engine. */
  readonly #epochs: number[];
  /** True while a call is on the stack: calls from within belong to its turn. */
  #isInTurn = false;
  /** True while a call is placed and not yet recorded. */
  #isWriting = false;

  /** Records a fleet of a policy that is data, so that a replay can read it. */
  constructor(
    engines: readonly { readonly link: EngineLink; readonly spec: DeviceSpec }[],
    options: FleetOptions & { readonly policy: Policy; readonly clock: TurnClock },
    write: RecordingSink,
  ) {
    const { policy, queueMax, publicTexts, clock, costs } = options;
    assert(isServed(policy), "only a policy of plain data is recorded");
    const placed = new Map<SequenceId, Placement>();
    const onPlacement = (sequence: SequenceId, placement: Placement): void => {
      placed.set(sequence, placement);
      options.onPlacement(sequence, placement);
    };
    super(engines, { ...options, onPlacement });
    this.#clock = clock;
    this.#write = write;
    this.#placed = placed;
    this.#epochs = engines.map(() => 0);
    const specs = engines.map(({ spec }) => spec);
    write({ kind: "head", version: RECORDING_VERSION, policy, queueMax, specs, publicTexts });
    const atMs = clock.nowMs();
    for (const [engine, learnt] of costs.entries()) write({ ...costsOf(engine as EngineId, learnt), atMs });
  }

  override submit(spec: Unplaced, listener: SequenceListener): SequenceId {
    return this.#call([spec], () => [super.submit(spec, listener)])[0]!;
  }

  override submitTaskGroup(specs: readonly Unplaced[], listeners: readonly SequenceListener[]): SequenceId[] {
    return this.#call(specs, () => super.submitTaskGroup(specs, listeners));
  }

  override expect(expected: Expected, onWarmed?: (tokens: number) => void): SequenceId {
    const id = this.#turn(() => super.expect(expected, onWarmed));
    this.#write({ kind: "expect", atMs: this.#clock.nowMs(), hint: { ...expected, id } });
    return id;
  }

  override extend(hint: SequenceId, tokens: ArrayLike<TokenId>): void {
    this.#recordInput({ kind: "extend", hint, tokens }, () => super.extend(hint, tokens));
  }

  override forget(hint: SequenceId, givesUp = false): void {
    this.#recordInput({ kind: "forget", hint, givesUp }, () => super.forget(hint, givesUp));
  }

  override abort(sequence: SequenceId): void {
    this.#recordInput({ kind: "abort", sequence }, () => super.abort(sequence));
  }

  override pause(sequence: SequenceId): void {
    this.#recordInput({ kind: "pause", sequence }, () => super.pause(sequence));
  }

  override resume(sequence: SequenceId): void {
    this.#recordInput({ kind: "resume", sequence }, () => super.resume(sequence));
  }

  override release(sequence: SequenceId): void {
    this.#recordInput({ kind: "release", sequence }, () => super.release(sequence));
  }

  override raise(sequence: SequenceId, service: Service): void {
    this.#recordInput({ kind: "raise", sequence, service }, () => super.raise(sequence, service));
  }

  override report(engine: EngineId, report: EngineReport, learnt: EngineCosts | null = null): void {
    const [epoch, { number }] = [this.#epochs[engine]!, report];
    this.#recordInput({ kind: "reported", engine, epoch, report: number }, () =>
      super.report(engine, report, learnt),
    );
  }

  override updateCosts(engine: EngineId, learnt: EngineCosts): void {
    this.#recordInput(costsOf(engine, learnt), () => super.updateCosts(engine, learnt));
  }

  override lost(engine: EngineId, reason: string, isComing = false): void {
    this.#recordInput({ kind: "lost", engine, reason, isComing }, () => super.lost(engine, reason, isComing));
  }

  override replaced(engine: EngineId, link: EngineLink, spec: DeviceSpec, epoch: number): void {
    this.#epochs[engine] = epoch;
    this.#recordInput({ kind: "replaced", engine, epoch }, () => super.replaced(engine, link, spec, epoch));
  }

  #recordInput(entry: Undated<RecordingEntry>, act: () => void): void {
    this.#turn(() => {
      this.#write({ ...entry, atMs: this.#clock.nowMs() });
      act();
    });
  }

  #turn<Result>(act: () => Result): Result {
    if (this.#isInTurn) return act();
    this.#clock.turn?.();
    this.#isInTurn = true;
    this.#placed.clear(); // of re-placed sequences; a replay decides these again and does not compare them
    try {
      return act();
    } finally {
      this.#isInTurn = false;
    }
  }

  /** Records the call after its placement and before listeners are called, so that their calls come after it. */
  #call(specs: readonly Unplaced[], submit: () => SequenceId[]): SequenceId[] {
    return this.#turn(() => {
      this.#isWriting = true;
      try {
        const ids = submit();
        for (const [index, id] of ids.entries()) this.#noteCall(id, ids[0]!, specs[index]!);
        return ids;
      } finally {
        this.#isWriting = false;
        this.callListeners();
      }
    });
  }

  protected override callListeners(): void {
    if (!this.#isWriting) super.callListeners();
  }

  #noteCall(id: SequenceId, first: SequenceId, spec: Unplaced): void {
    const { engine, reason } = this.#placed.get(id) ?? { engine: null, reason: "only" };
    const atMs = this.#clock.nowMs();
    this.#write({ kind: "call", atMs, sequence: { ...spec, id, drawnTokens: [] }, first, engine, reason });
  }
}

type Undated<Entry> = Entry extends unknown ? Omit<Entry, "atMs"> : never;

function costsOf(engine: EngineId, learnt: EngineCosts): Undated<EntryOf<"costs">> {
  assert(learnt instanceof OnlineCostModel, "a recorded cost model is one that learns");
  return { kind: "costs", engine, state: learnt.state() };
}
