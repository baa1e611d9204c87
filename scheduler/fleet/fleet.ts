import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { TokenId } from "../../base/token.ts";
import type {
  EngineId,
  Finish,
  PrefixHint,
  SequenceId,
  SequenceSpec,
  Service,
  TokenLogprobs,
} from "../core.ts";
import { type EngineCosts, EstimatedCosts } from "../cost/cost-model.ts";
import { unknownCost } from "../cost/linear.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { DeviceSpec } from "../device.ts";
import { engineDefaults } from "../engine/engine-options.ts";
import { Outlook } from "../explain/outlook.ts";
import { SequenceStory, type Story } from "../explain/sequence-story.ts";
import {
  type CheckedDraft,
  type EngineLoad,
  type EngineMessage,
  type EngineReport,
  idleLoad,
  withTotalsOf,
} from "../messages.ts";
import { raised } from "../objective.ts";
import { ours } from "../policies.ts";
import { Dispatcher, type DispatchPolicy } from "./dispatcher.ts";
import type { Placement } from "./placement.ts";
import { adaptersOf, type PresentAdapters, type QueueRow, queueOf } from "./present-sequences.ts";
import { publicLength } from "./public-texts.ts";

/**
 * The link to one engine: a call, a thread, a process. Messages arrive in order, or the engine is reported
 * lost.
 */
export interface EngineLink {
  send(message: EngineMessage): void;
}

/**
 * Receives a sequence's tokens. `onFinish` is called last and exactly once; it may be called from within
 * `submit`. A listener may call the fleet, whose state is complete by then.
 */
export interface SequenceListener {
  /** Called when the sequence is admitted. `cachedTokens` of the prompt need not be computed. */
  onStarted(cachedTokens: number, at: StartedAt): void;
  /**
   * Called with log probabilities of prompt tokens from `start` ≥ 1 on, if the sequence asks for them: before
   * its first token, some perhaps twice.
   */
  onPromptLogprobs?(start: number, logprobs: readonly TokenLogprobs[]): void;
  /** Called with the number of computed prompt tokens, if the sequence asks for it; it may fall. */
  onProgress?(tokens: number): void;
  /** Called with a verified draft, before its accepted tokens. */
  onDraft?(draft: CheckedDraft): void;
  onToken(token: TokenId, logprobs: TokenLogprobs | null): void;
  /** `drawn`: all tokens that the sequence drew, some perhaps after its abort. `story`: its time by cause. */
  onFinish(finish: Finish, drawn: readonly TokenId[], story: Story): void;
}

/** Place of a sequence's admission. */
export interface StartedAt {
  readonly engine: EngineId;
  /** Prompt tokens whose pages are cached there, also those that cannot be read; see `StartedSequence`. */
  readonly matchedTokens: number;
  /** Cached tokens that were loaded from the lower tier, and those of them from the host's memory. */
  readonly tierTokens: number;
  readonly hostTokens: number;
}

/** A sequence without an id, as submitted to a fleet. */
export type Unplaced = Omit<SequenceSpec, "id" | "drawnTokens" | "publicTokens">;

/** A prefix hint without an id, as given to a fleet. */
export type Expected = Omit<PrefixHint, "id" | "publicTokens">;

/** Options of a fleet. */
export interface FleetOptions {
  readonly policy: DispatchPolicy;
  /** First cost models, by EngineId. */
  readonly costs: readonly EngineCosts[];
  /** Needed where there are several engines. */
  readonly clock: Pick<Clock, "nowMs">;
  /** Most sequences that wait for an engine to come back; one more is rejected with `queueFull`. */
  readonly queueMax: number;
  /** True if estimates are calibrated by their outcomes, which takes a forecast now and then. */
  readonly learns: boolean;
  /** Public texts: prompts that begin alike share their pages under all cache salts. */
  readonly publicTexts: readonly (readonly TokenId[])[];
  /**
   * Called with every placement, also of sequences that continue elsewhere, before the engine gets the
   * message.
   */
  readonly onPlacement: (sequence: SequenceId, placement: Placement) => void;
}

const fleetDefaults: FleetOptions = {
  policy: ours(),
  costs: [],
  clock: { nowMs: () => 0 },
  queueMax: engineDefaults.queueMax,
  learns: false,
  publicTexts: [],
  onPlacement: () => {},
};

/** Milliseconds between two searches for waiting sequences to migrate. */
const MOVE_EVERY_MS = 200;
/** Migrations of one sequence at most. */
const MOVES_MAX = 2;

/** Lost engines after which a sequence continues on another one at most. */
const REPLAYS_MAX = 2;

/** A sequence that has not ended, wherever it is. */
interface ActiveSequence {
  readonly id: SequenceId;
  /** Its service may be raised. */
  spec: Omit<SequenceSpec, "id" | "drawnTokens">;
  readonly listener: SequenceListener;
  readonly story: SequenceStory;
  /** Its engine; null: it waits for one that is coming. */
  engine: EngineId | null;
  /** Tokens that its listener has: another engine continues after these. */
  readonly drawn: TokenId[];
  isAnnounced: boolean;
  /** True after its engine has admitted it. */
  isStarted: boolean;
  /** Number of engines that were lost with it. */
  losses: number;
  /** True if it was running on a lost engine and has drawn nothing since: it may have crashed the engine. */
  isSuspect: boolean;
  /** Number of moves before it began. */
  moves: number;
  isPaused: boolean;
  isAborted: boolean;
}

/** A prefix hint that was not forgotten. */
interface Expectation {
  hint: PrefixHint;
  /** Its engine; null: there was none. */
  engine: EngineId | null;
  readonly onWarmed: (tokens: number) => void;
}

/** An engine's state by its last report. */
interface EngineState {
  link: EngineLink;
  load: EngineLoad;
  /** Load of the last engine that was lost here; null: none was. */
  loadBefore: EngineLoad | null;
  lostReason: string | null;
  /** True if it is lost and its replacement is coming. */
  isComing: boolean;
  /** Its incarnation: 0, and that of each replacement. */
  epoch: number;
}

/**
 * Router over all engines of this machine: assigns sequence ids, places sequences by the dispatcher, and passes their
 * tokens to listeners. It knows no threads: links carry its messages to engines, and their owner calls `report` and
 * `lost` with the answers.
 *
 * When an engine is lost, its sequences continue elsewhere: another engine recomputes their prompt and the tokens so
 * far. Draws are a function of these tokens, the seed and the position, so that a listener sees only a pause.
 *
 * One of the running sequences may have crashed the engine. These suspects continue one at a time, each after
 * the one before has drawn a token, and all others after them. So a sequence that crashes another engine is
 * the only suspect there, and fails. A sequence that was on three lost engines fails in any case.
 */
export class Fleet {
  readonly #engines: readonly EngineState[];
  readonly #dispatcher: Dispatcher;
  readonly #options: FleetOptions;
  /** Cost models by engine. */
  readonly #estimated: readonly EstimatedCosts[];
  /** In order of id. */
  readonly #active = new Map<SequenceId, ActiveSequence>();
  /** Engines of held sequences that have ended. */
  readonly #held = new Map<SequenceId, EngineId>();
  /** In order of id. */
  readonly #expectations = new Map<SequenceId, Expectation>();
  /** Predicts when sequences begin and end. */
  readonly outlook: Outlook;
  #waiting = 0;
  /** The reason for which the last engine was lost. */
  #lostReason = "";
  /** The suspect that runs now. */
  #trial: ActiveSequence | null = null;
  #nextId = 0;
  #movedMs = 0;
  /** Pending calls of listeners, in order. */
  readonly #calls: (() => void)[] = [];
  #isCalling = false;

  constructor(
    engines: readonly { readonly link: EngineLink; readonly spec: DeviceSpec }[],
    options: Partial<FleetOptions> = {},
  ) {
    assert(engines.length > 0, "a fleet has an engine");
    assert(engines.length === 1 || options.clock !== undefined, "a choice of engines needs a clock");
    this.#options = { ...fleetDefaults, ...options };
    const { policy, costs, clock, learns } = this.#options;
    this.#estimated = engines.map((_, index) => new EstimatedCosts(steady(costs[index] ?? unknownCost)));
    const placeable = engines.map(({ spec }, index) => ({ spec, costs: this.#estimated[index]! }));
    this.#dispatcher = new Dispatcher(policy, placeable);
    this.outlook = new Outlook({ clock, learns, batch: policy.batch, engines: placeable });
    this.#engines = engines.map(({ link, spec }) => ({
      link,
      load: idleLoad(spec),
      loadBefore: null,
      lostReason: null,
      isComing: false,
      epoch: 0,
    }));
  }

  /** Cost models, by EngineId. */
  get estimated(): readonly EngineCosts[] {
    return this.#estimated;
  }

  /** Number of sequences that have not ended. */
  get active(): number {
    return this.#active.size;
  }

  /** Sequences that wait, by objective and tenant. */
  queue(): readonly QueueRow[] {
    return queueOf(this.#active.values());
  }

  adapters(): PresentAdapters {
    return adaptersOf(this.#active.values());
  }

  /** The dispatcher, which places sequences. */
  get dispatcher(): Dispatcher {
    return this.#dispatcher;
  }

  submit(spec: Unplaced, listener: SequenceListener): SequenceId {
    const active = this.#open(spec, listener);
    this.#place(active);
    this.callListeners();
    return active.id;
  }

  /** Submits a task group of at least one sequence. */
  submitTaskGroup(specs: readonly Unplaced[], listeners: readonly SequenceListener[]): SequenceId[] {
    const taskGroup = specs.map((spec, index) => this.#open(spec, listeners[index]!));
    const placements = this.#dispatcher.placeTaskGroup(taskGroup.map(specOf), this.#nowMs());
    taskGroup.forEach((active, index) => {
      this.#begin(active, placements[index]!);
    });
    this.callListeners();
    return taskGroup.map(({ id }) => id);
  }

  /**
   * Adds a prefix hint: its engine keeps the cached pages if there is room, and computes the rest ahead if there
   * is time. `onWarmed` is called with the number of tokens computed ahead. Returns the id for `extend` and `forget`.
   */
  expect(expected: Expected, onWarmed: (tokens: number) => void = () => {}): SequenceId {
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    const hint = { ...this.#withPublic(expected, expected.tokens), id };
    const expectation: Expectation = { hint, engine: null, onWarmed };
    this.#expectations.set(id, expectation);
    this.#expectAt(expectation);
    return id;
  }

  /**
   * Extends a prefix hint to `tokens`, which begin with the former ones. Does nothing if it was forgotten.
   */
  extend(id: SequenceId, tokens: ArrayLike<TokenId>): void {
    const expectation = this.#expectations.get(id);
    if (expectation === undefined) return;
    expectation.hint = this.#withPublic({ ...expectation.hint, tokens }, tokens);
    const { engine, hint } = expectation;
    if (engine === null) return;
    this.#dispatcher.extended(hint, this.#nowMs());
    this.#send(engine, { kind: "expect", hint });
  }

  /**
   * Removes a prefix hint, whose sequence was submitted or never will be. `givesUp`: no other is known to
   * begin like this.
   */
  forget(id: SequenceId, givesUp = false): void {
    const expectation = this.#expectations.get(id);
    if (expectation === undefined) return;
    this.#expectations.delete(id);
    this.#dispatcher.forgot(id);
    if (expectation.engine !== null) {
      this.#send(expectation.engine, { kind: "forget", hint: id, givesUp });
    }
  }

  /** Aborts a sequence; does nothing if it has ended. Tokens on their way still arrive, then `aborted`. */
  abort(id: SequenceId): void {
    const active = this.#active.get(id);
    if (active === undefined) return;
    active.isAborted = true;
    if (active.engine === null) this.#finish(id, { kind: "aborted" });
    else this.#send(active.engine, { kind: "abort", sequence: id });
    this.callListeners();
  }

  /** Pauses a sequence whose reader is slow; does nothing if it has ended. */
  pause(id: SequenceId): void {
    this.#setPaused(id, true);
  }

  resume(id: SequenceId): void {
    this.#setPaused(id, false);
  }

  /**
   * Raises the service of a sequence, and never lowers it. Does nothing if the sequence has ended, or has a service
   * as good already.
   */
  raise(id: SequenceId, wanted: Service): void {
    const active = this.#active.get(id);
    if (active === undefined) return;
    const service = raised(active.spec.service, wanted);
    if (service === active.spec.service) return;
    active.spec = { ...active.spec, service };
    if (active.engine === null) return;
    this.#dispatcher.raised(id, service);
    this.#send(active.engine, { kind: "raise", sequence: id, service });
  }

  /**
   * Releases a held sequence, whether it has ended or not: no other continues it. Called once, unless one
   * does.
   */
  release(id: SequenceId): void {
    const engine = this.#takeHeld(id);
    if (engine !== undefined) this.#send(engine, { kind: "release", sequence: id });
  }

  /** Passes an engine's report on, in order. `learnt`: its cost model; null: it has not changed. */
  report(engine: EngineId, report: EngineReport, learnt: EngineCosts | null = null): void {
    const nowMs = this.#nowMs();
    const state = this.#engines[engine]!;
    state.load = withTotalsOf(report.load, state.loadBefore);
    this.outlook.reported(engine, report.load);
    const answer = this.#dispatcher.reported(engine, report.load, report.kvEvents);
    if (answer !== null) this.#send(engine, { kind: answer });
    const trial = this.#trial?.id;
    if (
      trial !== undefined &&
      (report.sequences.includes(trial) || report.finished.some((end) => end.sequence === trial))
    ) {
      this.#endTrial();
    }
    for (const { sequence, cachedTokens, matchedTokens = cachedTokens, ...loaded } of report.started) {
      const active = this.#active.get(sequence);
      if (active === undefined) continue;
      this.#dispatcher.started(sequence, cachedTokens, nowMs);
      this.outlook.started(sequence, cachedTokens);
      active.isStarted = true;
      const at = { engine, matchedTokens, tierTokens: 0, hostTokens: 0, ...loaded };
      if (!active.isAnnounced) this.#calls.push(() => active.listener.onStarted(cachedTokens, at));
      active.isAnnounced = true;
    }
    for (const { sequence, start, logprobs } of report.prompts) {
      const active = this.#active.get(sequence);
      if (active !== undefined) this.#calls.push(() => active.listener.onPromptLogprobs?.(start, logprobs));
    }
    for (const { sequence, tokens } of report.progress) {
      const active = this.#active.get(sequence);
      if (active !== undefined) this.#calls.push(() => active.listener.onProgress?.(tokens));
    }
    for (const draft of report.checked) {
      const active = this.#active.get(draft.sequence);
      if (active !== undefined) this.#calls.push(() => active.listener.onDraft?.(draft));
    }
    for (const { sequence, at, account } of report.accounts)
      this.#active.get(sequence)?.story.took(account, at === "first", nowMs);
    for (let i = 0; i < report.tokens.length; i++) {
      const active = this.#active.get(report.sequences[i]!);
      if (active === undefined) continue;
      const token = report.tokens[i]!;
      this.#dispatcher.drew(active.id);
      this.outlook.drew(active.id);
      active.drawn.push(token);
      active.isSuspect = false;
      this.#calls.push(() => active.listener.onToken(token, report.logprobs?.[i] ?? null));
    }
    for (const { hint, tokens } of report.warmed) {
      const expectation = this.#expectations.get(hint);
      if (expectation !== undefined) this.#calls.push(() => expectation.onWarmed(tokens));
    }
    for (const { sequence, finish } of report.finished) this.#finish(sequence, finish);
    for (const sequence of report.returned) this.#move(sequence);
    this.#recall(nowMs);
    if (learnt !== null) this.updateCosts(engine, learnt);
    this.callListeners();
  }

  /** Replaces the cost model of an engine for placement by a copy of `learnt`. */
  updateCosts(engine: EngineId, learnt: EngineCosts): void {
    this.#estimated[engine]!.take(steady(learnt));
  }

  /**
   * Removes a lost engine. Its sequences continue on the others; where there are none, they wait if a
   * replacement `isComing`, and fail otherwise. Called again for the same engine, it says whether the
   * replacement is still coming.
   */
  lost(engine: EngineId, reason: string, isComing = false): void {
    const state = this.#engines[engine]!;
    state.isComing = isComing;
    const wasThere = state.lostReason === null;
    state.lostReason = reason;
    this.#lostReason = reason;
    if (!wasThere) {
      if (!this.#engines.some(isHereOrComing)) {
        for (const active of this.#active.values()) if (active.engine === null) this.#fail(active, reason);
      }
      this.callListeners();
      return;
    }
    for (const [id, at] of this.#held) if (at === engine) this.#held.delete(id);
    const expected = [...this.#expectations.values()].filter((one) => one.engine === engine);
    for (const { hint } of expected) this.#dispatcher.forgot(hint.id);
    this.#dispatcher.lost(engine);
    for (const one of expected) this.#expectAt(one);
    for (const active of this.#active.values()) if (active.engine === engine) this.#requeue(active, reason);
    if (this.#trial === null || this.#trial.engine === null) this.#endTrial();
    this.callListeners();
  }

  /** Adds an engine that replaces a lost one, in incarnation `epoch`. */
  replaced(engine: EngineId, link: EngineLink, spec: DeviceSpec, epoch: number): void {
    const state = this.#engines[engine]!;
    assert(state.lostReason !== null, "only a lost engine is replaced");
    state.link = link;
    state.loadBefore = state.load;
    state.load = withTotalsOf(idleLoad(spec), state.loadBefore);
    state.lostReason = null;
    state.isComing = false;
    state.epoch = epoch;
    this.#dispatcher.joined(engine, spec, epoch, this.#nowMs());
    if (this.#trial === null) this.#placeWaiting();
    for (const one of this.#expectations.values()) if (one.engine === null) this.#expectAt(one);
    this.callListeners();
  }

  /** Time of a sequence by cause, up to now; null: it has ended. */
  storyOf(id: SequenceId): Story | null {
    return this.#active.get(id)?.story.now(this.#nowMs(), false) ?? null;
  }

  /** Last loads, by EngineId. Totals continue when a lost engine is replaced. */
  loads(): readonly EngineLoad[] {
    return this.#engines.map(({ load }) => load);
  }

  /** Incarnation of an engine, which changes when a replacement comes with an empty cache. */
  epochOf(engine: EngineId): number {
    return this.#engines[engine]!.epoch;
  }

  /** Finds an engine for a prefix hint, if there is one. */
  #expectAt(expectation: Expectation): void {
    const { hint } = expectation;
    expectation.engine = this.#dispatcher.expect(hint, this.#nowMs());
    if (expectation.engine !== null) this.#send(expectation.engine, { kind: "expect", hint });
  }

  /**
   * Adds the length of its public prefix. A sequence that reports on its whole prompt must compute all of it,
   * and has none.
   */
  #withPublic<Spec extends object>(
    spec: Spec & { readonly promptLogprobs?: number },
    tokens: ArrayLike<TokenId>,
  ): Spec & Pick<SequenceSpec, "publicTokens"> {
    const { publicTexts } = this.#options;
    if (publicTexts.length === 0 || spec.promptLogprobs !== undefined) return spec;
    return { ...spec, publicTokens: publicLength(tokens, publicTexts) };
  }

  #open(given: Unplaced, listener: SequenceListener): ActiveSequence {
    const spec = this.#withPublic(given, given.promptTokens);
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    const active: ActiveSequence = {
      id,
      spec,
      listener,
      story: new SequenceStory(this.#nowMs()),
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
    this.#active.set(id, active);
    return active;
  }

  #place(active: ActiveSequence): void {
    const spec = specOf(active);
    const held = spec.continues === undefined ? undefined : this.#takeHeld(spec.continues);
    const nowMs = this.#nowMs();
    this.#begin(
      active,
      held === undefined ? this.#dispatcher.place(spec, nowMs) : this.#dispatcher.placeAt(held, spec, nowMs),
    );
  }

  /**
   * Returns the engine on which a sequence is or will be held, and forgets it: from now on only the engine
   * knows it.
   */
  #takeHeld(id: SequenceId): EngineId | undefined {
    const active = this.#active.get(id);
    const engine = active === undefined ? this.#held.get(id) : (active.engine ?? undefined);
    if (active !== undefined) active.spec = { ...active.spec, isHeld: false };
    this.#held.delete(id);
    return engine;
  }

  /** Sends a sequence to its engine; without one it waits, or ends. */
  #begin(active: ActiveSequence, placement: Placement | null): void {
    const { id } = active;
    if (placement === null) {
      this.#waitOrEnd(active);
      return;
    }
    this.#options.onPlacement(id, placement);
    active.engine = placement.engine;
    active.isStarted = false;
    active.story.placed(placement.engine, this.#nowMs());
    this.#send(placement.engine, { kind: "submit", sequence: specOf(active) });
    if (active.isPaused) this.#send(placement.engine, { kind: "pause", sequence: id });
    this.outlook.placed(id, placement.engine, active.spec, active.drawn.length);
  }

  #waitOrEnd(active: ActiveSequence): void {
    const { queueMax } = this.#options;
    active.engine = null;
    active.story.waits();
    this.#waiting += 1;
    if (!this.#engines.some(isHereOrComing)) this.#fail(active, this.#lostReason);
    else if (this.#waiting > queueMax) {
      const needed = this.#waiting;
      this.#finish(active.id, { kind: "rejected", reason: "queueFull", needed, limit: queueMax });
    }
  }

  /** Returns a sequence of a lost engine to the fleet's waiting ones, or ends it. */
  #requeue(active: ActiveSequence, reason: string): void {
    const { isStarted, isSuspect } = active;
    active.engine = null;
    active.story.left("lost", this.#nowMs());
    this.#waiting += 1;
    active.losses += 1;
    active.isSuspect ||= isStarted;
    if (active.isAborted) this.#finish(active.id, { kind: "aborted" });
    else if ((isStarted && isSuspect) || active.losses > REPLAYS_MAX) this.#fail(active, reason);
  }

  #endTrial(): void {
    this.#trial = null;
    this.#placeWaiting();
  }

  /**
   * Places the waiting sequences. Of those that have lost an engine only the next suspect is placed, or all
   * if there is none; a paused suspect is left out, as it would delay the others.
   */
  #placeWaiting(): void {
    const waiting = [...this.#active.values()].filter(({ engine }) => engine === null);
    const next = waiting.find(({ isSuspect, isPaused }) => isSuspect && !isPaused);
    for (const active of waiting) {
      if (next !== undefined && active !== next && active.losses > 0) continue;
      if (active === next) this.#trial = active;
      this.#waiting -= 1;
      this.#place(active);
      if (active === this.#trial && active.engine === null) this.#trial = null;
    }
  }

  /** Recalls waiting sequences that other engines would begin sooner. */
  #recall(nowMs: number): void {
    if (nowMs - this.#movedMs < MOVE_EVERY_MS) return;
    this.#movedMs = nowMs;
    const ids = this.#dispatcher.surplus((id) => specOf(this.#active.get(id)!), nowMs);
    for (const sequence of ids) {
      const active = this.#active.get(sequence)!;
      active.moves += 1;
      if (active.moves <= MOVES_MAX) this.#send(active.engine!, { kind: "recall", sequence });
    }
  }

  /** Places a sequence again that its engine has returned. */
  #move(sequence: SequenceId): void {
    const active = this.#active.get(sequence);
    if (active === undefined) return;
    this.#dispatcher.ended(sequence, false);
    active.story.left("returned", this.#nowMs());
    if (active.isAborted) this.#finish(sequence, { kind: "aborted" });
    else this.#begin(active, this.#dispatcher.placeAgain(specOf(active), this.#nowMs()));
  }

  #setPaused(id: SequenceId, isPaused: boolean): void {
    const active = this.#active.get(id);
    if (active === undefined) return;
    active.isPaused = isPaused;
    if (isPaused && active === this.#trial) this.#endTrial();
    if (active.engine !== null)
      this.#send(active.engine, { kind: isPaused ? "pause" : "resume", sequence: id });
    this.callListeners();
  }

  #fail(active: ActiveSequence, reason: string): void {
    this.#finish(active.id, { kind: "failed", reason });
  }

  #finish(sequence: SequenceId, finish: Finish): void {
    const active = this.#active.get(sequence);
    if (active === undefined) return;
    if (active.engine === null) this.#waiting -= 1;
    this.#active.delete(sequence);
    const { engine, spec } = active;
    if (spec.isHeld === true && engine !== null && finish.kind !== "failed") this.#held.set(sequence, engine);
    const isWhole = finish.kind === "stop" || finish.kind === "length";
    this.#dispatcher.ended(sequence, isWhole);
    this.outlook.ended(sequence, isWhole);
    const story = active.story.now(this.#nowMs(), true);
    this.#calls.push(() => active.listener.onFinish(finish, active.drawn, story));
    if (active === this.#trial) this.#endTrial();
  }

  /**
   * Calls the listeners at the end of an event, since they may call the fleet. So a recording has their calls after
   * the event, and a replay repeats them there.
   */
  protected callListeners(): void {
    if (this.#isCalling) return; // the listener's caller continues with the rest
    this.#isCalling = true;
    try {
      for (let call = this.#calls.shift(); call !== undefined; call = this.#calls.shift()) call();
    } finally {
      this.#isCalling = false;
    }
  }

  #send(engine: EngineId, message: EngineMessage): void {
    this.#engines[engine]!.link.send(message);
  }

  #nowMs(): number {
    return this.#options.clock.nowMs();
  }
}

/** Cost model for placements: the steady copy of a model that learns. */
function steady(learnt: EngineCosts): EngineCosts {
  return learnt instanceof OnlineCostModel ? learnt.steady() : learnt;
}

function isHereOrComing({ lostReason, isComing }: EngineState): boolean {
  return lostReason === null || isComing;
}

/** The spec for an engine, which continues after the tokens drawn so far. */
function specOf({ spec, id, drawn }: ActiveSequence): SequenceSpec {
  return { ...spec, id, drawnTokens: drawn.slice() };
}
