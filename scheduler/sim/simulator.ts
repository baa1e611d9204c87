import { assert, type EngineId, type SampleRow, type SequenceSpec, type TokenId } from "../core.ts";
import type { CostModel, EngineCosts } from "../cost/cost-model.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { DeviceSpec } from "../device.ts";
import type { PlacementReason } from "../dispatch/placement.ts";
import { optionsOf } from "../engine-options.ts";
import { type EngineLink, Fleet } from "../fleet.ts";
import type { EngineReport } from "../messages.ts";
import type { Policy } from "../policy.ts";
import { type CallObserver, isSameGang, SimulatedCall, sequenceOf } from "./call.ts";
import { EngineSlot } from "./engine-slot.ts";
import { EventClock } from "./event-clock.ts";
import type { Fault } from "./faults.ts";
import { Histogram } from "./histogram.ts";
import { History } from "./history.ts";
import type { SimulationReport } from "./report.ts";
import type { Arrival, Workload } from "./workload.ts";

/** Everything that a simulation depends on. */
export interface SimulationSetup {
  readonly workload: Workload;
  readonly policy: Policy;
  /** `profile` says how long steps take. The vocabulary is the workload's, whatever `spec` says. */
  readonly devices: readonly { readonly profile: CostModel; readonly spec: DeviceSpec }[];
  /** How long the scheduler thinks that steps take, by engine; by default the profile, corrected by what steps took. */
  readonly believed?: readonly EngineCosts[];
  /** Of the tokens that are drawn. */
  readonly seed: number;
  /** One way between fleet and engines; by default 0.2 ms. */
  readonly linkDelayMs?: number;
  readonly faults?: readonly Fault[];
  /** The simulation ends here, whatever is unfinished; by default never. */
  readonly limitMs?: number;
  /** Asked each time that a call ends: true ends the simulation. */
  readonly until?: (progress: Progress) => boolean;
}

/** How far a simulation is. The histograms go on growing. */
export interface Progress {
  readonly nowMs: number;
  readonly arrived: number;
  readonly ended: number;
  readonly tbt: Histogram;
  readonly queueing: Histogram;
}

/** Runs the very scheduler that serves (fleet, engines, policies) in virtual time, on devices that only take time. The
 *  same setup gives the same report on every machine. */
export function simulate(setup: SimulationSetup): SimulationReport {
  return new Simulation(setup).run();
}

const LINK_DELAY_MS = 0.2;

/** What a note of the history is about. */
const ARRIVED = 1;
const PLACED = 2;
const REPORTED = 3;
const DREW = 4;
const ENDED = 5;
const BROKE = 6;

class Simulation implements CallObserver {
  readonly #setup: SimulationSetup;
  readonly #clock = new EventClock();
  readonly #history = new History();
  readonly #tbt = new Histogram();
  readonly #queueing = new Histogram();
  readonly #slots: readonly EngineSlot[];
  readonly #specs: readonly DeviceSpec[];
  readonly #believed: readonly EngineCosts[];
  readonly #fleet: Fleet;
  /** By index, which is also the seed of their sequence. */
  readonly #calls: SimulatedCall[] = [];
  /** A token that no workload has: the end of an answer. */
  readonly #stopToken: TokenId;
  /** Of the placement whose sequence is sent next. */
  #reason: PlacementReason = "only";
  #ended = 0;
  #isStopped = false;

  constructor(setup: SimulationSetup) {
    this.#setup = setup;
    this.#stopToken = setup.workload.vocabSize;
    this.#specs = setup.devices.map(({ spec }) => ({ ...spec, vocabSize: this.#stopToken + 1 }));
    this.#believed = setup.believed ?? setup.devices.map(({ profile }) => new OnlineCostModel(profile));
    this.#slots = setup.devices.map((_, index) => this.#slot(index as EngineId));
    const engines = this.#slots.map((slot, index) => ({ link: this.#link(slot), spec: this.#specs[index]! }));
    this.#fleet = new Fleet(engines, {
      policy: setup.policy.placement,
      costs: this.#believed,
      clock: this.#clock,
      onPlacement: (_, { reason }) => {
        this.#reason = reason;
      },
    });
  }

  run(): SimulationReport {
    const limitMs = this.#setup.limitMs ?? Number.POSITIVE_INFINITY;
    for (const fault of this.#setup.faults ?? []) this.#clock.at(fault.atMs, () => this.#break(fault));
    this.#expect(this.#setup.workload.next());
    while (!this.#isStopped && this.#clock.nowMs() <= limitMs && this.#clock.runNext());
    return this.#summary();
  }

  #slot(engine: EngineId): EngineSlot {
    const spec = this.#specs[engine]!;
    const setup = {
      engine,
      spec,
      profile: this.#setup.devices[engine]!.profile,
      believed: this.#believed[engine]!,
      settings: { ...optionsOf(this.#setup.policy, spec), queueMax: Number.MAX_SAFE_INTEGER },
      delayMs: this.#setup.linkDelayMs ?? LINK_DELAY_MS,
      nextToken: (row: SampleRow) => this.#nextToken(row),
      onReport: (_: EngineId, report: EngineReport) => this.#take(engine, report),
    };
    return new EngineSlot(setup, this.#clock);
  }

  /* ---- clients ---- */

  /** Neighbours of one gang arrive in one event. */
  #expect(first: Arrival | null): void {
    if (first === null) return;
    const together = [first];
    let next = this.#setup.workload.next();
    while (next !== null && isSameGang(first, next)) {
      together.push(next);
      next = this.#setup.workload.next();
    }
    this.#clock.at(first.atMs, () => {
      this.#arrive(together);
      this.#expect(next);
    });
  }

  #arrive(arrivals: readonly Arrival[]): void {
    for (const arrival of arrivals) {
      const promptTokens = arrival.promptTokens();
      const call = new SimulatedCall(this.#calls.length, arrival, promptTokens.length, this.#clock, this);
      this.#calls.push(call);
      this.#history.note(this.#clock.nowMs(), ARRIVED, call.index, promptTokens.length);
      this.#fleet.submit(sequenceOf(call, promptTokens, this.#stopToken), call);
    }
  }

  onStarted({ arrivedMs }: SimulatedCall): void {
    this.#queueing.add(this.#clock.nowMs() - arrivedMs);
  }

  onToken({ index, lastMs }: SimulatedCall, token: TokenId, gapMs: number | null): void {
    this.#history.note(lastMs, DREW, index, token);
    if (gapMs !== null) this.#tbt.add(gapMs);
  }

  onFinish(call: SimulatedCall): void {
    const { arrival, index, tokens, finishedMs } = call;
    this.#ended += 1;
    this.#history.note(finishedMs, ENDED, index, tokens.length);
    for (const next of this.#setup.workload.after(arrival, { finishedMs, tokens })) {
      assert(next.atMs >= finishedMs, "nobody goes on before an answer");
      this.#clock.at(next.atMs, () => this.#arrive([next]));
    }
    if (this.#setup.until?.(this.#progress()) === true) this.#isStopped = true;
  }

  #progress(): Progress {
    return {
      nowMs: this.#clock.nowMs(),
      arrived: this.#calls.length,
      ended: this.#ended,
      tbt: this.#tbt,
      queueing: this.#queueing,
    };
  }

  /* ---- engines ---- */

  #link(slot: EngineSlot): EngineLink {
    return {
      send: (message) => {
        if (message.kind === "submit") this.#place(message.sequence, slot.id);
        slot.send(message);
      },
    };
  }

  #place({ id, sampling }: SequenceSpec, engine: EngineId): void {
    const call = this.#calls[sampling.seed[0]]!;
    call.engine = engine;
    call.reason = this.#reason;
    this.#history.note(this.#clock.nowMs(), PLACED, id, engine);
  }

  /** The token at a position of a call's answer: the stop token at its end, else a hash that is no workload's stop. */
  #nextToken({ sampling, position }: SampleRow): TokenId {
    const index = sampling.seed[0];
    if (position + 1 >= this.#calls[index]!.arrival.outputTokens) return this.#stopToken;
    let x = Math.imul(index ^ this.#setup.seed, 0x21f0aaad) ^ Math.imul(position + 1, 0x735a2d97);
    x = Math.imul(x ^ (x >>> 15), 0x21f0aaad);
    return ((x ^ (x >>> 15)) >>> 0) % this.#stopToken;
  }

  #take(engine: EngineId, report: EngineReport): void {
    const { stepsTotal } = report.load;
    this.#history.note(this.#clock.nowMs(), REPORTED, engine, stepsTotal);
    this.#fleet.report(engine, report);
  }

  #break(fault: Fault): void {
    const slot = this.#slots[fault.engine]!;
    this.#history.note(this.#clock.nowMs(), BROKE, fault.engine, fault.atMs);
    if (fault.kind === "slow") slot.slowDown(fault.factor);
    else if (fault.kind === "dropNotices") slot.dropNotices(fault.count);
    else {
      slot.lose();
      this.#fleet.lost(fault.engine, "The device was lost.");
    }
  }

  /* ---- report ---- */

  #summary(): SimulationReport {
    const { policy, workload, seed } = this.#setup;
    const [ttft, tpot, latency] = [new Histogram(), new Histogram(), new Histogram()];
    let promptTokens = 0;
    let cachedTokens = 0;
    let lastMs = 0;
    for (const call of this.#calls) {
      if (call.startedMs !== null) {
        promptTokens += call.promptTokens;
        cachedTokens += call.cachedTokens;
      }
      if (call.finish === null) continue;
      lastMs = Math.max(lastMs, call.finishedMs);
      if (call.firstMs === null || (call.finish.kind !== "stop" && call.finish.kind !== "length")) continue;
      ttft.add(call.firstMs - call.arrivedMs);
      latency.add(call.finishedMs - call.arrivedMs);
      const after = call.tokens.length - 1;
      if (after > 0) tpot.add((call.lastMs - call.firstMs) / after);
    }
    return {
      policy: policy.name,
      workload: workload.name,
      seed,
      isComplete: this.#ended === this.#calls.length && !this.#isStopped,
      durationMs: lastMs - (this.#calls[0]?.arrivedMs ?? lastMs),
      calls: this.#calls.map((call) => call.record()),
      engines: this.#slots.map((slot) => slot.record()),
      ttft: ttft.quantiles(),
      tbt: this.#tbt.quantiles(),
      tpot: tpot.quantiles(),
      latency: latency.quantiles(),
      queueing: this.#queueing.quantiles(),
      hitRate: promptTokens === 0 ? 0 : cachedTokens / promptTokens,
      historyHash: this.#history.hash,
    };
  }
}
