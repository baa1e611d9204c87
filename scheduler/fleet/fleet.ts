import type { Clock } from "../clock.ts";
import {
  assert,
  type EngineId,
  type Finish,
  type SequenceId,
  type SequenceSpec,
  type TokenId,
  type TokenLogprobs,
} from "../core.ts";
import { BelievedCosts } from "../cost/believed.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import { unknownCost } from "../cost/linear.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { DeviceSpec } from "../device.ts";
import { engineDefaults } from "../engine/engine-options.ts";
import { type EngineLoad, type EngineMessage, type EngineReport, idleLoad } from "../messages.ts";
import { Dispatcher, type DispatchPolicy } from "./dispatcher.ts";
import type { Placement, PlacementRequest } from "./placement.ts";

/** The way to one engine: a call, a thread, a process. Messages arrive in order, or the engine is reported
 *  lost. */
export interface EngineLink {
  send(message: EngineMessage): void;
}

/** Whoever wants a sequence's tokens. `onFinish` is the last call and comes exactly once; it may come from
 *  within `submit`. */
export interface SequenceListener {
  /** Admitted: computing begins. `cachedTokens` of the prompt need not be computed. */
  onStarted(cachedTokens: number): void;
  onToken(token: TokenId, logprobs: TokenLogprobs | null): void;
  onFinish(finish: Finish): void;
}

/** What a fleet is asked to run. */
export type Unplaced = Omit<SequenceSpec, "id" | "drawnTokens">;

/** How a fleet places. */
export interface FleetOptions {
  readonly policy: DispatchPolicy;
  /** What is believed of each engine at first, by EngineId. */
  readonly costs: readonly EngineCosts[];
  /** Needed where there are several engines. */
  readonly clock: Pick<Clock, "nowMs">;
  /** Most sequences that wait for an engine to come back; one more is rejected with `queueFull`. */
  readonly queueMax: number;
  /** Told every placement, also of sequences that go on elsewhere, before the engine is. */
  readonly onPlacement: (sequence: SequenceId, placement: Placement) => void;
}

const fleetDefaults: FleetOptions = {
  policy: { placement: { kind: "e2" }, queue: engineDefaults.queue, batch: engineDefaults.batch },
  costs: [],
  clock: { nowMs: () => 0 },
  queueMax: 4096,
  onPlacement: () => {},
};

/** Milliseconds between two looks for sequences that wait in the wrong place, and how often one is moved at most. */
const MOVE_EVERY_MS = 200;
const MOVES_MAX = 2;

/** How often a sequence goes on elsewhere at most. */
const REPLAYS_MAX = 2;

/** A sequence that has not ended. */
interface Call {
  readonly id: SequenceId;
  readonly spec: Unplaced;
  readonly listener: SequenceListener;
  /** Where it is; null: it waits for an engine that is coming. */
  engine: EngineId | null;
  /** What its listener was told: an engine that takes it over goes on from there. */
  readonly drawn: TokenId[];
  isAnnounced: boolean;
  /** Admitted where it is. */
  isStarted: boolean;
  /** Engines lost with it. */
  losses: number;
  /** It was running where an engine was lost, and has drawn nothing since: it may be what the engine was lost by. */
  isSuspect: boolean;
  /** How often it was taken back from an engine before it began. */
  moves: number;
  isPaused: boolean;
  isAborted: boolean;
}

interface Member {
  link: EngineLink;
  load: EngineLoad;
  lostReason: string | null;
  /** Lost, and another one is on its way. */
  isComing: boolean;
}

/**
 * All engines of this machine: gives out sequence ids, has sequences placed, hands their tokens to whoever listens.
 * Knows no threads: links carry messages one way, `report` and `lost` are called with what comes back.
 *
 * When an engine is lost, its sequences go on elsewhere: their prompt and the tokens told so far are computed again,
 * and what is drawn is a function of those, the seed and the position, so that listeners notice a pause and nothing
 * else.
 *
 * One of those that were running may be what the engine was lost by. They go on one at a time, the next one when the one
 * before has drawn a token, and everybody else after them: so whoever kills another engine is the only suspect there, and
 * fails. A sequence that was on three lost engines fails in any case.
 */
export class Fleet {
  readonly #members: readonly Member[];
  readonly #dispatcher: Dispatcher;
  readonly #options: FleetOptions;
  /** By engine. */
  readonly #believed: readonly BelievedCosts[];
  /** In order of id. */
  readonly #calls = new Map<SequenceId, Call>();
  #waiting = 0;
  /** Why the last engine was lost. */
  #lostReason = "";
  /** The suspect whose turn it is. */
  #trial: Call | null = null;
  #nextId = 0;
  #movedMs = 0;

  constructor(
    engines: readonly { readonly link: EngineLink; readonly spec: DeviceSpec }[],
    options: Partial<FleetOptions> = {},
  ) {
    assert(engines.length > 0, "a fleet has an engine");
    assert(engines.length === 1 || options.clock !== undefined, "a choice of engines needs a clock");
    this.#options = { ...fleetDefaults, ...options };
    const { policy, costs } = this.#options;
    this.#believed = engines.map((_, index) => new BelievedCosts(steady(costs[index] ?? unknownCost)));
    this.#dispatcher = new Dispatcher(
      policy,
      engines.map(({ spec }, index) => ({ spec, costs: this.#believed[index]! })),
    );
    this.#members = engines.map(({ link, spec }) => ({
      link,
      load: idleLoad(spec),
      lostReason: null,
      isComing: false,
    }));
  }

  /** What is believed of each engine's costs, by EngineId. */
  get believed(): readonly EngineCosts[] {
    return this.#believed;
  }

  /** Sequences that have not ended. */
  get active(): number {
    return this.#calls.size;
  }

  /** Where sequences go, and what is known for it. */
  get dispatcher(): Dispatcher {
    return this.#dispatcher;
  }

  submit(spec: Unplaced, listener: SequenceListener): SequenceId {
    const call = this.#open(spec, listener);
    this.#place(call);
    return call.id;
  }

  /** Submits sequences that belong together, at least one: they are placed as the policy places gangs. */
  submitGang(specs: readonly Unplaced[], listeners: readonly SequenceListener[]): SequenceId[] {
    const calls = specs.map((spec, index) => this.#open(spec, listeners[index]!));
    const ids = calls.map(({ id }) => id);
    const placements = this.#dispatcher.placeGang(ids, calls.map(requestOf), this.#nowMs());
    calls.forEach((call, index) => {
      this.#begin(call, placements[index]!);
    });
    return ids;
  }

  /** The sequence is no longer wanted; does nothing if it has ended. Tokens on their way still arrive, then
   *  `aborted`. */
  abort(id: SequenceId): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    call.isAborted = true;
    if (call.engine === null) this.#finish(id, { kind: "aborted" });
    else this.#send(call.engine, { kind: "abort", sequence: id });
  }

  /** Holds a sequence back whose reader is slow; does nothing if it has ended. */
  pause(id: SequenceId): void {
    this.#setPaused(id, true);
  }

  resume(id: SequenceId): void {
    this.#setPaused(id, false);
  }

  /** Takes what an engine has to tell and passes it on, in order. */
  report(engine: EngineId, report: EngineReport): void {
    const nowMs = this.#nowMs();
    this.#members[engine]!.load = report.load;
    const answer = this.#dispatcher.reported(engine, report.load, report.notices);
    if (answer !== null) this.#send(engine, { kind: answer });
    // Before any listener hears of it: what listeners do comes after what the report itself leads to, also when it is repeated.
    const trial = this.#trial?.id;
    if (
      trial !== undefined &&
      (report.sequences.includes(trial) || report.finished.some((end) => end.sequence === trial))
    ) {
      this.#endTrial();
    }
    for (const { sequence, cachedTokens } of report.started) {
      const call = this.#calls.get(sequence);
      if (call === undefined) continue;
      this.#dispatcher.started(sequence, cachedTokens, nowMs);
      call.isStarted = true;
      if (!call.isAnnounced) call.listener.onStarted(cachedTokens);
      call.isAnnounced = true;
    }
    for (let i = 0; i < report.tokens.length; i++) {
      const call = this.#calls.get(report.sequences[i]!);
      if (call === undefined) continue;
      const token = report.tokens[i]!;
      this.#dispatcher.drew(call.id);
      call.drawn.push(token);
      call.isSuspect = false;
      call.listener.onToken(token, report.logprobs?.[i] ?? null);
    }
    for (const { sequence, finish } of report.finished) this.#finish(sequence, finish);
    for (const sequence of report.returned) this.#move(sequence);
    this.#recall(nowMs);
  }

  /** Takes what an engine has learnt of its costs; placements go by a copy of it. */
  believe(engine: EngineId, learnt: EngineCosts): void {
    this.#believed[engine]!.take(steady(learnt));
  }

  /**
   * The engine is gone. What was there goes on on the others; where there are none, it waits if one `isComing`, and
   * fails otherwise. Told again of the same engine, `isComing` is news of its replacement.
   */
  lost(engine: EngineId, reason: string, isComing = false): void {
    const member = this.#members[engine]!;
    member.isComing = isComing;
    const wasThere = member.lostReason === null;
    member.lostReason = reason;
    this.#lostReason = reason;
    if (!wasThere) {
      if (!this.#members.some(isHereOrComing)) {
        for (const call of [...this.#calls.values()]) if (call.engine === null) this.#fail(call, reason);
      }
      return;
    }
    this.#dispatcher.lost(engine);
    for (const call of [...this.#calls.values()]) if (call.engine === engine) this.#takeBack(call, reason);
    if (this.#trial === null || this.#trial.engine === null) this.#endTrial();
  }

  /** Another engine has taken the place of a lost one, in life number `epoch` of that place. */
  replaced(engine: EngineId, link: EngineLink, spec: DeviceSpec, epoch: number): void {
    const member = this.#members[engine]!;
    assert(member.lostReason !== null, "only a lost engine is replaced");
    member.link = link;
    member.load = idleLoad(spec);
    member.lostReason = null;
    member.isComing = false;
    this.#dispatcher.joined(engine, spec, epoch, this.#nowMs());
    if (this.#trial === null) this.#goOn();
  }

  /** What each engine told last, by EngineId. */
  loads(): readonly EngineLoad[] {
    return this.#members.map((member) => member.load);
  }

  #open(spec: Unplaced, listener: SequenceListener): Call {
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    const call: Call = {
      id,
      spec,
      listener,
      engine: null,
      drawn: [],
      isAnnounced: false,
      isStarted: false,
      losses: 0,
      isSuspect: false,
      moves: 0,
      isPaused: false,
      isAborted: false,
    };
    this.#calls.set(id, call);
    return call;
  }

  #place(call: Call): void {
    this.#begin(call, this.#dispatcher.place(call.id, requestOf(call), this.#nowMs()));
  }

  /** Sends a sequence where it was placed; without a place it waits, or ends. */
  #begin(call: Call, placement: Placement | null): void {
    const { id, spec, drawn } = call;
    if (placement === null) {
      this.#waitOrEnd(call);
      return;
    }
    this.#options.onPlacement(id, placement);
    call.engine = placement.engine;
    call.isStarted = false;
    this.#send(placement.engine, { kind: "submit", sequence: { ...spec, id, drawnTokens: drawn.slice() } });
    if (call.isPaused) this.#send(placement.engine, { kind: "pause", sequence: id });
  }

  #waitOrEnd(call: Call): void {
    const { queueMax } = this.#options;
    call.engine = null;
    this.#waiting += 1;
    if (!this.#members.some(isHereOrComing)) this.#fail(call, this.#lostReason);
    else if (this.#waiting > queueMax) {
      const needed = this.#waiting;
      this.#finish(call.id, { kind: "rejected", reason: "queueFull", needed, limit: queueMax });
    }
  }

  /** The engine where the sequence was is lost: it waits to go on, or ends. */
  #takeBack(call: Call, reason: string): void {
    if (!this.#calls.has(call.id)) return;
    const { isStarted, isSuspect } = call;
    call.losses += 1;
    call.isSuspect ||= isStarted;
    if (call.isAborted) this.#finish(call.id, { kind: "aborted" });
    else if ((isStarted && isSuspect) || call.losses > REPLAYS_MAX) this.#fail(call, reason);
    else {
      call.engine = null;
      this.#waiting += 1;
    }
  }

  #endTrial(): void {
    this.#trial = null;
    this.#goOn();
  }

  /** Places who waits. Of those that have lost an engine that is the next suspect, or everybody where there is none; a
   *  paused one would hold the others up. */
  #goOn(): void {
    const waiting = [...this.#calls.values()].filter(({ engine }) => engine === null);
    const next = waiting.find(({ isSuspect, isPaused }) => isSuspect && !isPaused);
    for (const call of waiting) {
      if (next !== undefined && call !== next && call.losses > 0) continue;
      if (!this.#calls.has(call.id) || call.engine !== null) continue; // a listener's doing
      if (call === next) this.#trial = call;
      this.#waiting -= 1;
      this.#place(call);
      if (call === this.#trial && call.engine === null) this.#trial = null;
    }
  }

  /** Asks engines for what they have not begun, and others would begin sooner. */
  #recall(nowMs: number): void {
    if (nowMs - this.#movedMs < MOVE_EVERY_MS) return;
    this.#movedMs = nowMs;
    const ids = this.#dispatcher.surplus((id) => requestOf(this.#calls.get(id)!), nowMs);
    for (const sequence of ids) {
      const call = this.#calls.get(sequence)!;
      call.moves += 1;
      if (call.moves <= MOVES_MAX) this.#send(call.engine!, { kind: "recall", sequence });
    }
  }

  /** An engine has given a sequence back. */
  #move(sequence: SequenceId): void {
    const call = this.#calls.get(sequence);
    if (call === undefined) return;
    this.#dispatcher.ended(sequence, false);
    if (call.isAborted) this.#finish(sequence, { kind: "aborted" });
    else this.#begin(call, this.#dispatcher.placeAgain(sequence, requestOf(call), this.#nowMs()));
  }

  #setPaused(id: SequenceId, isPaused: boolean): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    call.isPaused = isPaused;
    if (isPaused && call === this.#trial) this.#endTrial();
    if (call.engine !== null) this.#send(call.engine, { kind: isPaused ? "pause" : "resume", sequence: id });
  }

  #fail(call: Call, reason: string): void {
    this.#finish(call.id, { kind: "failed", reason });
  }

  #finish(sequence: SequenceId, finish: Finish): void {
    const call = this.#calls.get(sequence);
    if (call === undefined) return;
    if (call.engine === null) this.#waiting -= 1;
    this.#calls.delete(sequence);
    this.#dispatcher.ended(sequence, finish.kind === "stop" || finish.kind === "length");
    call.listener.onFinish(finish);
    if (call === this.#trial) this.#endTrial();
  }

  #send(engine: EngineId, message: EngineMessage): void {
    this.#members[engine]!.link.send(message);
  }

  #nowMs(): number {
    return this.#options.clock.nowMs();
  }
}

/** What placements go by. */
function steady(learnt: EngineCosts): EngineCosts {
  return learnt instanceof OnlineCostModel ? learnt.steady() : learnt;
}

function isHereOrComing({ lostReason, isComing }: Member): boolean {
  return lostReason === null || isComing;
}

function requestOf({ spec, drawn }: Call): PlacementRequest {
  const { promptTokens, cacheSalt, adapter, service, stop } = spec;
  return { promptTokens, drawnTokens: drawn, cacheSalt, adapter, service, stop };
}
