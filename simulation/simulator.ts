import { assert } from "../base/assert.ts";
import { SeededRandom } from "../base/random.ts";
import type { TokenId } from "../base/token.ts";
import type { EngineId, SampleRow, SequenceId, SequenceSpec, Step } from "../scheduler/core.ts";
import type { EngineCosts, PartedCostModel } from "../scheduler/cost/cost-model.ts";
import { OnlineCostModel } from "../scheduler/cost/online.ts";
import type { DeviceSpec } from "../scheduler/device.ts";
import { settingsOf } from "../scheduler/engine/engine-options.ts";
import type { Estimate } from "../scheduler/explain/outlook.ts";
import { type EngineLink, Fleet } from "../scheduler/fleet/fleet.ts";
import type { Placement, PlacementReason } from "../scheduler/fleet/placement.ts";
import type { EngineReport } from "../scheduler/messages.ts";
import type { Policy } from "../scheduler/policy.ts";
import { RecordedFleet, type RecordingSink } from "../scheduler/recording/recorder.ts";
import { answerToken } from "./answer-token.ts";
import { Checks } from "./checks.ts";
import { type ClientObserver, isSameTaskGroup, SimulatedClient, sequenceOf } from "./client.ts";
import { EventClock } from "./event-clock.ts";
import { Histogram } from "./histogram.ts";
import { History } from "./history.ts";
import { DeviceNoise, type Noise } from "./noise.ts";
import { type RequestRecord, type SimulationReport, summarize } from "./report.ts";
import { type HostObserver, SimulatedHost } from "./simulated-host.ts";
import type { HostSetup } from "./simulated-places.ts";
import { SimulatedSessions } from "./simulated-sessions.ts";
import type { TierSetup } from "./simulated-tier.ts";
import type { Arrival, Workload } from "./workload.ts";

/** Fault of one engine at a given time. */
export type Fault = { readonly atMs: number; readonly engine: EngineId } & (
  | /** Loss of the engine with everything on it, if it lives. Another replaces it after `backAfterMs`; null: never. */ {
      readonly kind: "lost";
      readonly backAfterMs: number | null;
    }
  /** Slowdown: its steps take `factor` times as long from now on; 1 ends it. */
  | { readonly kind: "slow"; readonly factor: number }
  /** Loss of the KV events of its next `count` reports. */
  | { readonly kind: "dropNotices"; readonly count: number }
);

/** Device of a simulation. */
export interface TimedDeviceSetup {
  readonly profile: PartedCostModel;
  readonly spec: DeviceSpec;
  /**
   * True if its decodes read a shared page once. By default each decode reads its own context, as `profile`
   * assumes.
   */
  readonly sharesReads?: boolean;
  /** Lower tier of its engine, on disk; absent: none. */
  readonly tier?: TierSetup;
  /** Lower tier in the host's memory, above that on disk if there is one; absent: none. */
  readonly host?: HostSetup;
}

/** All inputs of a simulation. */
export interface SimulationSetup {
  readonly workload: Workload;
  readonly policy: Policy;
  /**
   * Devices, one per engine; `profile` gives the step times. The vocabulary is the workload's, not that of
   * `spec`.
   */
  readonly devices: readonly TimedDeviceSetup[];
  /**
   * Cost models of the scheduler, by engine. By default each starts with the profile, learns from measured
   * steps, and reports to the fleet once a second.
   */
  readonly estimated?: readonly EngineCosts[];
  /** Seed of the drawn tokens and the noise. */
  readonly seed: number;
  /** Public texts of the fleet; by default none. */
  readonly publicTexts?: readonly (readonly TokenId[])[];
  /** Delay of the link between fleet and engines in one direction; by default 0.2 ms. */
  readonly linkDelayMs?: number;
  /**
   * Enables the checks of checks.ts, which break an invariant when the scheduler breaks a promise. Slows the
   * run down several times.
   */
  readonly checks?: boolean;
  readonly faults?: readonly Fault[];
  /** Noise of the step times; null (default): none. Uses the same seed as the draws. */
  readonly noise?: Noise | null;
  /** Kind of the calls whose times are reported; by default all. */
  readonly watched?: string;
  /** Virtual time at which the simulation ends, whatever is unfinished; by default never. */
  readonly limitMs?: number;
  /** Called when a call ends; true ends the simulation. */
  readonly until?: (progress: Progress) => boolean;
  /**
   * Called with each call's estimate at its arrival, and the time of its first token. Absent: no estimates
   * are made.
   */
  readonly onEstimate?: (estimate: Estimate, firstMs: number) => void;
  /** Sink of a recording of the run, the head first; for policies that are data. Not with `estimated`. */
  readonly record?: RecordingSink;
}

/** Progress of a simulation. The histograms cover watched calls, and continue to grow. */
export interface Progress {
  readonly nowMs: number;
  readonly arrived: number;
  readonly ended: number;
  readonly tbt: Histogram;
  readonly queueing: Histogram;
}

/**
 * Runs the serving scheduler (fleet, engines, policies) in virtual time, on devices that only take time. The
 * same setup gives the same report on every machine.
 */
export function simulate(setup: SimulationSetup): SimulationReport {
  return new Simulation(setup).run();
}

const LINK_DELAY_MS = 0.2;
/** Queue limit: a simulation refuses no client. */
const QUEUE_MAX = Number.MAX_SAFE_INTEGER;

/** Event kinds of the history. */
const ARRIVED = 1;
const PLACED = 2;
const REPORTED = 3;
const DREW = 4;
const ENDED = 5;
const BROKE = 6;

class Simulation implements ClientObserver, HostObserver {
  readonly #setup: SimulationSetup;
  readonly #clock = new EventClock();
  readonly #history = new History();
  readonly #tbt = new Histogram();
  readonly #queueing = new Histogram();
  readonly #specs: readonly DeviceSpec[];
  readonly #checks: Checks | null;
  readonly #hosts: readonly SimulatedHost[];
  readonly #fleet: Fleet;
  /** Calls by index, which is also the seed of their sequence; null after the end. */
  readonly #calls: (SimulatedClient | null)[] = [];
  /** Null: the policy keeps none. */
  readonly #sessions: SimulatedSessions | null;
  /** Prefix hints by the workload's keys. */
  readonly #hints = new Map<string, SequenceId>();
  /** Records of ended calls, whose entries in `#calls` are null: a long run keeps few calls in memory. */
  readonly #records: RequestRecord[] = [];
  /** Stop token, which ends completions and is in no workload's vocabulary. */
  readonly #stopToken: TokenId;
  /** Reason of the placement whose sequence is sent next. */
  #reason: PlacementReason = "only";
  #ended = 0;
  #isStopped = false;

  constructor(setup: SimulationSetup) {
    const { workload, policy, devices, record } = setup;
    this.#setup = setup;
    this.#stopToken = workload.vocabSize;
    this.#specs = devices.map(({ spec }) => ({ ...spec, vocabSize: this.#stopToken + 1 }));
    this.#hosts = devices.map((_, index) => this.#host(index as EngineId));
    const members = this.#hosts.map((host) => ({ link: this.#link(host), spec: host.spec }));
    const options = {
      policy,
      costs: this.#hosts.map(({ costs }) => costs),
      clock: this.#clock,
      queueMax: QUEUE_MAX,
      publicTexts: setup.publicTexts ?? [],
      learns: setup.onEstimate !== undefined,
      onPlacement: (_: unknown, { reason }: Placement) => {
        this.#reason = reason;
      },
    };
    this.#fleet =
      record === undefined ? new Fleet(members, options) : new RecordedFleet(members, options, record);
    const { sessions } = policy;
    const parts = { fleet: this.#fleet, specs: this.#specs, clock: this.#clock };
    this.#sessions = sessions === undefined ? null : new SimulatedSessions({ ...parts, policy: sessions });
    const isChecked = setup.checks === true;
    this.#checks = isChecked
      ? new Checks(policy, this.#hosts, this.#fleet, setup.linkDelayMs ?? LINK_DELAY_MS)
      : null;
  }

  run(): SimulationReport {
    const limitMs = this.#setup.limitMs ?? Number.POSITIVE_INFINITY;
    for (const fault of this.#setup.faults ?? []) this.#clock.at(fault.atMs, () => this.#break(fault));
    this.#expect(this.#setup.workload.next());
    while (!this.#isStopped && this.#clock.nowMs() <= limitMs && this.#clock.runNext()) {
      this.#checks?.event(this.#clock.nowMs());
    }
    const isComplete = !this.#isStopped && this.#ended === this.#calls.length;
    if (isComplete) this.#checks?.end();
    return summarize({
      policy: this.#setup.policy.name,
      workload: this.#setup.workload.name,
      seed: this.#setup.seed,
      isComplete,
      calls: this.#calls.map((call, index) => call?.record() ?? this.#records[index]!),
      watched: this.#setup.watched,
      engines: this.#hosts.map((host) => host.record()),
      tbt: this.#tbt,
      historyHash: this.#history.hash,
    });
  }

  /* ---- clients ---- */

  /** Schedules the next arrivals; neighbours of one task group arrive in one event. */
  #expect(first: Arrival | null): void {
    if (first === null) return;
    const together = [first];
    let next = this.#setup.workload.next();
    while (next !== null && isSameTaskGroup(first, next)) {
      together.push(next);
      next = this.#setup.workload.next();
    }
    this.#clock.at(first.atMs, () => {
      this.#arrive(together);
      this.#expect(next);
    });
    this.#tellHints();
  }

  /**
   * Passes hint changes to the fleet after arrivals of the same time: a call's hint is forgotten once the
   * call is sent.
   */
  #tellHints(): void {
    for (const { atMs, key, hint } of this.#setup.workload.takeHintChanges?.() ?? []) {
      this.#clock.at(atMs, () => {
        const id = this.#hints.get(key);
        if (hint === null) {
          if (id !== undefined) this.#fleet.forget(id);
          this.#hints.delete(key);
        } else if (id === undefined) this.#hints.set(key, this.#fleet.expect(hint));
        else this.#fleet.extend(id, hint.tokens);
      });
    }
  }

  #arrive(arrivals: readonly Arrival[]): void {
    const calls = arrivals.map((arrival) => {
      const prompt = arrival.promptTokens();
      const call = new SimulatedClient(this.#calls.length, arrival, prompt.length, this.#clock, this);
      this.#calls.push(call);
      this.#history.note(this.#clock.nowMs(), ARRIVED, call.index, prompt.length);
      const spec = sequenceOf(call, prompt, this.#stopToken);
      const session = this.#sessions?.begin(call, prompt) ?? null;
      const service = { ...spec.service, session: spec.service.session ?? session };
      return { call, spec: { ...spec, service } };
    });
    const specs = calls.map(({ spec }) => spec);
    const listeners = calls.map(({ call }) => call);
    const ids =
      calls.length === 1
        ? [this.#fleet.submit(specs[0]!, listeners[0]!)]
        : this.#fleet.submitTaskGroup(specs, listeners);
    if (this.#setup.onEstimate === undefined) return;
    for (const [index, { call }] of calls.entries())
      call.estimate = this.#fleet.outlook.estimateOf(ids[index]!);
    for (const call of listeners) this.#sessions?.submitted(call);
  }

  onStarted(call: SimulatedClient): void {
    this.#checks?.started(call);
    this.#sessions?.started(call);
    if (this.#isWatched(call)) this.#queueing.add(this.#clock.nowMs() - call.arrivedMs);
  }

  onToken(call: SimulatedClient, token: TokenId, gapMs: number | null): void {
    this.#history.note(call.lastMs, DREW, call.index, token);
    if (gapMs === null && call.estimate !== null)
      this.#setup.onEstimate?.(call.estimate, call.lastMs - call.arrivedMs);
    if (gapMs !== null && this.#isWatched(call)) this.#tbt.add(gapMs);
  }

  onFinish(call: SimulatedClient): void {
    const { arrival, index, tokens, finishedMs } = call;
    this.#ended += 1;
    this.#checks?.ended(call);
    this.#sessions?.ended(call);
    this.#history.note(finishedMs, ENDED, index, tokens.length);
    for (const together of byTaskGroup(this.#setup.workload.after(arrival, { finishedMs, tokens }))) {
      const { atMs } = together[0]!;
      assert(atMs >= finishedMs, "no client goes on before an answer");
      this.#clock.at(atMs, () => this.#arrive(together));
    }
    this.#tellHints();
    this.#records[index] = call.record();
    this.#calls[index] = null;
    if (this.#setup.until?.(this.#progress()) === true) this.#isStopped = true;
  }

  #isWatched({ arrival }: SimulatedClient): boolean {
    const { watched } = this.#setup;
    return watched === undefined || arrival.kind === watched;
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

  #host(engine: EngineId): SimulatedHost {
    const { devices, estimated, policy, linkDelayMs, noise, seed, record } = this.#setup;
    const { profile, sharesReads = false, tier = null, host = null } = devices[engine]!;
    const spec = this.#specs[engine]!;
    const setup = {
      engine,
      spec,
      profile,
      believe: () => estimated?.[engine] ?? new OnlineCostModel(profile),
      noise: noise == null ? null : new DeviceNoise(noise, noiseSeed(seed, engine)),
      settings: { ...settingsOf(policy, devices.length), queueMax: QUEUE_MAX },
      delayMs: linkDelayMs ?? LINK_DELAY_MS,
      sharesReads,
      tier,
      host,
      nextToken: (row: SampleRow) => this.#nextToken(row),
      record: record ?? null,
    };
    return new SimulatedHost(setup, this.#clock, this);
  }

  #link(host: SimulatedHost): EngineLink {
    return {
      send: (message) => {
        if (message.kind === "submit") this.#place(message.sequence, host.id);
        host.send(message);
      },
    };
  }

  #place({ id, sampling }: SequenceSpec, engine: EngineId): void {
    const call = this.#calls[sampling.seed[0]]!;
    call.engine = engine;
    call.reason = this.#reason;
    call.placements += 1;
    this.#checks?.sent(call);
    this.#history.note(this.#clock.nowMs(), PLACED, id, engine);
  }

  /** Returns the token at a position of a call's answer; at its end the stop token, never before. */
  #nextToken({ sampling, position }: SampleRow): TokenId {
    const index = sampling.seed[0];
    if (position + 1 >= this.#calls[index]!.arrival.outputTokens) return this.#stopToken;
    return answerToken(this.#setup.seed, index, position, this.#stopToken);
  }

  onStep(engine: EngineId, step: Step): void {
    this.#checks?.step(engine, step);
  }

  onReport(engine: EngineId, report: EngineReport, learnt: EngineCosts | null): void {
    this.#history.note(this.#clock.nowMs(), REPORTED, engine, report.load.stepsTotal);
    this.#fleet.report(engine, report, learnt);
  }

  #break(fault: Fault): void {
    const { engine } = fault;
    const host = this.#hosts[engine]!;
    this.#history.note(this.#clock.nowMs(), BROKE, engine, fault.atMs);
    if (fault.kind === "slow") host.slowDown(fault.factor);
    else if (fault.kind === "dropNotices") host.dropKvEvents(fault.count);
    else if (host.engine !== null) {
      const { backAfterMs } = fault;
      const reason = "The device was lost.";
      host.lose();
      this.#fleet.lost(engine, reason, backAfterMs !== null);
      if (backAfterMs !== null) this.#clock.after(backAfterMs, () => this.#replace(host));
    }
  }

  #replace(host: SimulatedHost): void {
    const epoch = host.open();
    this.#fleet.updateCosts(host.id, host.costs);
    this.#fleet.replaced(host.id, this.#link(host), host.spec, epoch);
  }
}

/** Groups neighbouring arrivals by task group. */
function byTaskGroup(arrivals: readonly Arrival[]): Arrival[][] {
  const groups: Arrival[][] = [];
  for (const arrival of arrivals) {
    const group = groups.at(-1);
    if (group !== undefined && isSameTaskGroup(group[0]!, arrival)) group.push(arrival);
    else groups.push([arrival]);
  }
  return groups;
}

/** Returns the seed of an engine's noise; each engine has its own. */
function noiseSeed(seed: number, engine: EngineId): number {
  return new SeededRandom(seed).child(`noise of engine ${engine}`).uint32();
}
