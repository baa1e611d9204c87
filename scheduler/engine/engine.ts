import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { TokenId } from "../../base/token.ts";
import { type CacheSnapshot, type SnapshotRequest, snapshotOf } from "../cache/cache-snapshot.ts";
import { KvCacheManager } from "../cache/kv-cache-manager.ts";
import type { LowerTier } from "../cache/lower-tier.ts";
import type { Chunk, Finish, Sampled, SequenceId, SequenceSpec, StepResult, TokenLogprobs } from "../core.ts";
import { type EngineCosts, promptMs, type StepShape, shapeOf } from "../cost/cost-model.ts";
import { unknownCost } from "../cost/linear.ts";
import type { Device } from "../device.ts";
import { DraftTimes } from "../draft/draft-times.ts";
import { TimeAccounts, type TimedChunk } from "../explain/time-accounts.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";
import { openDrafts } from "./draft-planner.ts";
import { type EngineOptions, type EngineSettings, resolveOptions } from "./engine-options.ts";
import { checkCounts } from "./integrity.ts";
import { type PlannedStep, Planner } from "./planner.ts";
import { PrefixHints } from "./prefix-hints.ts";
import { ColdGate } from "./queue/cold-gate.ts";
import { orderOf, WaitQueue } from "./queue/wait-queue.ts";
import { lengthLimit, refusal } from "./refusal.ts";
import { ReportBuilder } from "./report-builder.ts";
import type { Sequence } from "./sequence.ts";
import { SequenceTable } from "./sequence-table.ts";
import type { PlannedChunk } from "./step/step-builder.ts";
import { TierLoads } from "./tier-loads.ts";

/**
 * An idle engine checks all its records this often at most: a request that arrives meanwhile waits for the
 * check.
 */
const CHECK_EVERY_MS = 10_000;
/** Time between two reports of the accounts of running sequences. */
const ACCOUNTS_EVERY_MS = 1000;

/**
 * The loop of one device: plan, start; apply, report, and again. The sequence table (sequence-table.ts) has
 * the sequences and their states, the planner (planner.ts) decides what the next step does.
 *
 * Its inputs are messages, the results of its device and the time of its clock; its output is reports. One
 * step is in flight at a time, and nothing that the step reads changes meanwhile. A message only sets marks;
 * pages are freed or published when the step is done. So an aborted sequence frees its pages within one step.
 */
export class Engine {
  readonly #device: Device;
  readonly #clock: Clock;
  readonly #options: EngineOptions;
  readonly #emit: (report: EngineReport) => void;
  readonly #costs: EngineCosts;
  readonly #reports: ReportBuilder;
  readonly #table: SequenceTable;
  readonly #hints: PrefixHints;
  /** Null: there is no lower tier. */
  readonly #loads: TierLoads | null;
  readonly #planner: Planner;
  readonly #accounts: TimeAccounts;
  readonly #draftTimes: DraftTimes;

  /** The step in flight; null: there is none. */
  #current: PlannedStep | null = null;
  /** Restarts of this step, after results of kind `retry`. */
  #retries = 0;
  #lostReason: string | null = null;
  /** True if no step has run since the records were checked. */
  #isChecked = true;
  #nextCheckMs = Number.NEGATIVE_INFINITY;
  /** Time of the last report of accounts. */
  #accountsMs = Number.NEGATIVE_INFINITY;

  constructor(
    device: Device,
    clock: Clock,
    settings: EngineSettings,
    emit: (report: EngineReport) => void,
    costs: EngineCosts = unknownCost,
    tier: LowerTier | null = null,
  ) {
    const { spec } = device;
    const options = resolveOptions(settings, spec);
    const { queue: order, admission, cache, batch } = options;
    const epoch = options.kvEvents ? options.epoch : null;
    // Recurrent models need a tier that stores states as well; baselines have caches of their own.
    const keepsAll = spec.states === undefined || (tier !== null && tier.costs.statePages > 0);
    const used = keepsAll && cache === null ? tier : null;
    const kvCache = cache?.open(spec, epoch, costs) ?? new KvCacheManager(spec, epoch, costs, {}, used);
    const gate = new ColdGate({
      computeMs: (tokens, context) => promptMs(costs, tokens, context),
      displaces: (sequence) => kvCache.displaces(sequence),
    });
    const accounts = new TimeAccounts(clock, costs, batch.kind === "time" ? batch.tbtMs : null);
    const queue = new WaitQueue(orderOf(order, gate), kvCache, accounts);
    const reports = new ReportBuilder(options.trace);
    const onDone = (): void => this.#loaded();
    const loads = used === null ? null : new TierLoads({ tier: used, clock, costs, kvCache, queue, onDone });
    const drafts = openDrafts(spec, options.drafts);
    const table = new SequenceTable({
      clock,
      kvCache,
      queue,
      loads,
      reports,
      accounts,
      rule: admission.rule,
      drafts,
    });
    this.#device = device;
    this.#clock = clock;
    this.#options = options;
    this.#emit = emit;
    this.#costs = costs;
    this.#reports = reports;
    this.#table = table;
    this.#accounts = accounts;
    const hints = new PrefixHints(kvCache, spec, costs, loads);
    this.#hints = hints;
    this.#loads = loads;
    const draftTimes = new DraftTimes(spec);
    this.#draftTimes = draftTimes;
    this.#planner = new Planner({
      spec,
      clock,
      options,
      costs,
      table,
      hints,
      loads,
      reports,
      accounts,
      drafts,
      draftTimes,
    });
  }

  /** True if a step is in flight, or sequences are there that are not paused. */
  get busy(): boolean {
    return this.#current !== null || this.#table.isBusy;
  }

  /** Time at which the host must call `run` although no message has come and no load has ended; null: never. */
  get wakeMs(): number | null {
    if (this.#current !== null) return null;
    const stores = this.#table.kvCache.stores?.wakeMs;
    const times = [this.#planner.wakeMs, stores ?? null, this.#loads?.lateMs ?? null];
    const known = times.filter((timeMs) => timeMs !== null);
    return known.length === 0 ? null : Math.min(...known);
  }

  /** Returns nodes of the prefix cache, for people. Changes nothing. */
  snapshotCache(request: SnapshotRequest): CacheSnapshot {
    return snapshotOf(this.#table.kvCache.cache, request, this.#costs);
  }

  /** Accepts a message. Never starts a step and never reports: `run` does. */
  receive(message: EngineMessage): void {
    if (message.kind === "submit") this.#submit(message.sequence);
    else if (message.kind === "expect") this.#hints.expect(message.hint);
    else if (message.kind === "forget") this.#hints.forget(message.hint, message.givesUp);
    else if (message.kind === "release") this.#table.release(message.sequence);
    else if (message.kind === "resync") {
      this.#table.kvCache.kvEvents?.resync();
      this.#reports.loadChanged();
    } else {
      // The sequence may have ended while the message was on its way.
      const sequence = this.#table.find(message.sequence);
      if (sequence === undefined) return;
      if (message.kind === "abort") this.#abort(sequence);
      else if (message.kind === "raise") this.#table.raise(sequence, message.service);
      else if (message.kind === "recall") this.#table.recall(sequence);
      else if (message.kind === "pause") this.#table.pause(sequence);
      else this.#table.resume(sequence);
    }
    if (this.#options.integrity === "always") this.checkIntegrity();
  }

  /**
   * Reports what messages have changed and starts a step, unless one is in flight or there is nothing to do.
   * From then on the engine continues by itself for as long as there is work; calling again does no harm.
   */
  run(): void {
    if (!this.#reports.isEmpty) this.#emitReport();
    if (this.#current !== null) return;
    this.#loads?.giveUp();
    const { stores } = this.#table.kvCache;
    stores?.store(this.#clock.nowMs(), false, this.#table.queue.size);
    const planned = this.#planner.plan();
    if (planned !== null) {
      this.#isChecked = false;
      this.#current = planned;
      this.#retries = 0;
      // A sequence that starts is reported before its step: the step may crash the device.
      if (this.#reports.hasStarted) this.#emit(this.#reports.report(this.#table.load(), null));
      this.#device.start(planned.step, this.#done);
      return;
    }
    stores?.store(this.#clock.nowMs(), true, 0);
    if (stores?.takeNews() === true) this.#reports.loadChanged();
    if (this.#reports.hasLoadChanged) this.#emitReport();
    if (!this.#isChecked) this.#checkIdle();
  }

  /** Throws InvariantError if the engine's records contradict each other. */
  checkIntegrity(): void {
    const warm = this.#hints.inFlight?.sequence ?? null;
    this.#table.checkIntegrity([...(warm === null ? [] : [warm]), ...(this.#loads?.owners ?? [])]);
  }

  #checkIdle(): void {
    this.#isChecked = true;
    checkCounts(this.#table.kvCache, this.#table.running, this.#loads?.owners ?? []);
    const nowMs = this.#clock.nowMs();
    if (nowMs < this.#nextCheckMs) return;
    this.#nextCheckMs = nowMs + CHECK_EVERY_MS;
    this.checkIntegrity();
  }

  #submit(spec: SequenceSpec): void {
    const refused: Finish | null =
      this.#lostReason === null
        ? refusal(spec, this.#device.spec, this.#table.queue.size, this.#options.queueMax)
        : { kind: "failed", reason: this.#lostReason };
    if (refused === null) {
      this.#table.add(spec);
      return;
    }
    if (spec.continues !== undefined) this.#table.release(spec.continues);
    this.#reports.ended(spec.id, refused);
  }

  #abort(sequence: Sequence): void {
    const inStep = this.#current?.planned.some((chunk) => chunk.sequence === sequence) ?? false;
    this.#table.abort(sequence, inStep);
  }

  /** Goes on after a load has ended, unless a step is in flight. */
  #loaded(): void {
    this.#isChecked = false;
    this.#reports.loadChanged();
    if (this.#options.integrity === "always") this.checkIntegrity();
    this.run();
  }

  /* ---- apply ---- */

  readonly #done = (result: StepResult): void => {
    const current = this.#current;
    assert(current !== null, "a device answers each step once");
    if (result.kind === "retry" && this.#retries < this.#options.retriesMax) {
      this.#retries += 1;
      this.#device.start(current.step, this.#done);
      return;
    }
    this.#current = null;
    this.#table.kvCache.endCopies();
    const shape = shapeOf(current.step);
    this.#accounts.stepEnded(current.startMs, shape, result.kind, largestPrompt(current));
    const warmed = this.#hints.done(result.kind === "done");
    if (warmed !== null) this.#reports.warmed(warmed.hint, warmed.tokens);
    if (result.kind === "done") this.#apply(current, result.sampled);
    else if (result.kind === "aborted") this.#discard(current);
    else if (result.kind === "lost") this.#lose(result.reason);
    else
      this.#fail(
        current.planned.map((chunk) => chunk.sequence),
        result.reason,
      );
    this.#record(current, result, shape);
    if (this.#options.integrity === "always") this.checkIntegrity();
    this.#emitReport();
    this.run();
  };

  #apply({ planned, step }: PlannedStep, sampled: readonly Sampled[]): void {
    let row = 0;
    for (let i = 0; i < planned.length; i++) {
      const chunk = step.chunks[i]!;
      const drawn = sampled.slice(row, row + chunk.samples.length);
      row += drawn.length;
      assert(drawn.length === chunk.samples.length, "a device answers every row");
      assert(
        drawn.every((one) => one.sequence === chunk.sequence),
        "a device answers in the order of the chunks",
      );
      this.#applyChunk(planned[i]!, chunk, drawn);
    }
    assert(row === sampled.length, "a device answers no more than was asked");
  }

  #applyChunk(
    { sequence, count: most, draft = [], isPredicted = false }: PlannedChunk,
    chunk: Chunk,
    all: readonly Sampled[],
  ): void {
    const drawn = all.slice(0, all.length - draft.length);
    // The device cuts off drafts whose rows are deferred.
    const verified = all.slice(drawn.length).filter(({ kind }) => kind !== "deferred");
    const accepted = sequence.isAborted ? 0 : acceptedOf(draft, [...drawn.slice(-1), ...verified]);
    const { kvCache } = this.#table;
    // The device did not compute the last token; the next step computes it and draws.
    const isDeferred = drawn.some(({ kind }) => kind === "deferred");
    const count = isDeferred ? most - 1 : most;
    this.#accounts.chunkEnded(sequence, timed(chunk), isDeferred);
    kvCache.computed(sequence, count);
    const computedDrafts = kvCache.verifiedDraft(sequence, verified.length, accepted);
    const isReadByDraftModel = chunk.unread !== null && count > 0;
    const failed = drawn.find((one) => one.kind === "failed");
    if (sequence.isAborted) this.#table.end(sequence, { kind: "aborted" }, failed === undefined);
    else if (failed === undefined)
      this.#advance(sequence, count, this.#reportPromptLogprobs(sequence, chunk, drawn));
    else this.#table.end(sequence, { kind: "failed", reason: failed.reason }, false);
    if (accepted > 0) this.#appendAccepted(sequence, verified.slice(0, accepted), computedDrafts);
    if (isReadByDraftModel) sequence.draftRead = sequence.computed;
    if (verified.length > 0) {
      const entry = { sequence: sequence.id, tokens: verified.length, accepted };
      this.#reports.checked(isPredicted ? { ...entry, isPredicted } : entry);
      this.#accounts.checked(sequence, verified.length, accepted);
    }
    this.#table.dropDrafts(sequence);
    keepDeviceDraft(sequence, all);
    this.#table.advanced(sequence, 1 + accepted);
  }

  /** Appends the draws behind accepted drafts. `computedDrafts`: accepted drafts whose KV and state are valid. */
  #appendAccepted(sequence: Sequence, drawn: readonly Sampled[], computedDrafts: number): void {
    assert(sequence.state === "running", "a draft ends before its sequence does");
    this.#table.kvCache.computed(sequence, computedDrafts);
    for (const one of drawn) {
      if (one.kind === "failed") this.#table.end(sequence, { kind: "failed", reason: one.reason }, false);
      else this.#appendAll(sequence, one);
    }
  }

  /** Discards an aborted step: the planner plans its chunks again, after the work that it was aborted for. */
  #discard({ planned, step }: PlannedStep): void {
    for (const [index, { sequence }] of planned.entries()) {
      this.#accounts.chunkEnded(sequence, timed(step.chunks[index]!), false);
      if (sequence.isAborted) this.#table.end(sequence, { kind: "aborted" }, true);
      else this.#table.dropDrafts(sequence);
    }
  }

  /** Reports a chunk's prompt logprobs, and returns the remaining rows: the draw after the prompt, if any. */
  #reportPromptLogprobs(
    sequence: Sequence,
    { start, tokens }: Chunk,
    drawn: readonly Sampled[],
  ): readonly Sampled[] {
    if (sequence.spec.promptLogprobs === undefined) return drawn;
    const isLast = start + tokens.length === sequence.length;
    const ofPrompt = isLast ? drawn.slice(0, -1) : drawn;
    const logprobs = ofPrompt.map((one) => {
      assert(
        one.kind === "token" && one.logprobs !== null,
        "rows of a prompt are drawn with log probabilities",
      );
      return one.logprobs;
    });
    if (logprobs.length > 0) this.#reports.promptLogprobs(sequence.id, start + 1, logprobs);
    return drawn.slice(ofPrompt.length);
  }

  #advance(sequence: Sequence, count: number, drawn: readonly Sampled[]): void {
    if (sequence.computed - count < sequence.kv.promptEnd) {
      this.#table.publish(sequence);
      const { tellsProgress, promptTokens } = sequence.spec;
      if (tellsProgress === true)
        this.#reports.progressed(sequence.id, Math.min(sequence.computed, promptTokens.length));
    }
    for (const one of drawn) {
      if (one.kind === "deferred") return;
      if (one.kind === "hidden") {
        const hidden = sequence.pool!.add(one.hidden);
        if (hidden !== null) this.#table.end(sequence, { kind: "pooled", hidden }, true);
        continue;
      }
      if (!this.#appendAll(sequence, one)) return;
    }
  }

  /** Appends a drawn token and its jump-forward tokens. False: the sequence has ended with one of them. */
  #appendAll(sequence: Sequence, one: Sampled): boolean {
    assert(one.kind === "token", "a row that failed ends its sequence");
    if (!this.#append(sequence, one.token, one.logprobs)) return false;
    return (one.forced ?? []).every((token) => this.#append(sequence, token, null));
  }

  /** Appends one token to a sequence's output. False: the sequence has ended with it. */
  #append(sequence: Sequence, token: TokenId, logprobs: TokenLogprobs | null): boolean {
    this.#reports.drew(sequence, token, logprobs, this.#clock.nowMs());
    this.#table.drew(sequence, token);
    const finish = this.#finish(sequence, token);
    if (finish !== null) this.#table.end(sequence, finish, true);
    return finish === null;
  }

  #finish(sequence: Sequence, token: number): Finish | null {
    const { stop } = sequence.spec;
    if (stop.stopTokens.includes(token)) return { kind: "stop", token };
    if (sequence.generated >= stop.tokensMax) return { kind: "length" };
    return sequence.length >= lengthLimit(this.#device.spec) ? { kind: "length" } : null;
  }

  #lose(reason: string): void {
    this.#lostReason = reason;
    this.#fail(this.#table.all(), reason);
  }

  #fail(sequences: readonly Sequence[], reason: string): void {
    for (const sequence of sequences) {
      const finish: Finish = sequence.isAborted ? { kind: "aborted" } : { kind: "failed", reason };
      this.#table.end(sequence, finish, false);
    }
  }

  #record(
    { step, startMs, planned, pagesUsed, deadlineMs }: PlannedStep,
    result: StepResult,
    shape: StepShape,
  ): void {
    const { pagesTotal } = this.#table.kvCache.pool;
    const endMs = this.#clock.nowMs();
    if (endMs > deadlineMs) this.#reports.missedTarget();
    const { deviceMs, draftsMs = 0 } = result.kind === "done" ? result : { deviceMs: 0 };
    const drafts = step.chunks.reduce((most, chunk) => Math.max(most, chunk.drafts ?? 0), 0);
    if (drafts > 0 && shape.prompts.length === 0 && !step.chunks.some(prefillsDraftModel))
      this.#draftTimes.learn(drafts, draftsMs, deviceMs);
    // The token before a deferred row is not computed, so the shape would overstate the step.
    const isComplete = result.kind === "done" && !result.sampled.some(({ kind }) => kind === "deferred");
    if (isComplete && deviceMs > 0 && this.#retries === 0)
      this.#costs.observe?.(shape, endMs - startMs - draftsMs);
    if (endMs >= this.#accountsMs + ACCOUNTS_EVERY_MS) {
      this.#accountsMs = endMs;
      this.#table.reportAccounts();
    }
    const times = { startMs, endMs, deviceMs, pagesUsed, pagesTotal };
    this.#reports.stepDone(step, times, (index) => {
      const { start, tokens, drafted = 0 } = step.chunks[index]!;
      if (index === planned.length) return false; // the chunk of a prefix hint
      return tokens.length - drafted === 1 && start >= planned[index]!.sequence.spec.promptTokens.length;
    });
  }

  #emitReport(): void {
    const { kvEvents, cache } = this.#table.kvCache;
    this.#emit(this.#reports.report(this.#table.load(), kvEvents?.take(cache) ?? null));
  }
}

/** Keeps the device's draft behind a draw, if that draw is still the sequence's last token. */
function keepDeviceDraft(sequence: Sequence, drawn: readonly Sampled[]): void {
  for (const one of drawn) {
    if (one.kind !== "token" || one.drafts === undefined || one.forced !== undefined) continue;
    const { tokens, length } = sequence;
    if (tokens[length - 1] === one.token) sequence.deviceDraft = { length, draft: one.drafts };
  }
}

/** True if the draft model also prefills tokens before the chunk, so that its time is not that of drafting alone. */
function prefillsDraftModel({ unread }: Chunk): boolean {
  return unread !== undefined && unread !== null && unread.length > 0;
}

function timed({ start, tokens, drafted = 0 }: Chunk): TimedChunk {
  return { start, tokens: tokens.length - drafted, drafted };
}

/** The sequence with the most prompt tokens in a step; null: the step has no prompts. */
function largestPrompt({ planned }: PlannedStep): SequenceId | null {
  let largest: PlannedChunk | null = null;
  for (const chunk of planned) {
    const { sequence, count } = chunk;
    if (sequence.generated > 0 && sequence.isDecoding) continue;
    if (count > (largest?.count ?? 0)) largest = chunk;
  }
  return largest?.sequence.id ?? null;
}

/**
 * Returns the number of accepted tokens: the longest prefix of the draft that the rows drew themselves.
 * `drawn[i]` is the draw at the position of `draft[i]`; the last draw follows the whole draft.
 */
function acceptedOf(draft: readonly TokenId[], drawn: readonly Sampled[]): number {
  let accepted = 0;
  for (const one of drawn.slice(0, -1)) {
    if (one.kind !== "token" || one.token !== draft[accepted]) break;
    accepted += 1;
  }
  return accepted;
}
