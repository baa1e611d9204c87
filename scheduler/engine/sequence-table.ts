import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { TokenId } from "../../base/token.ts";
import type { KvCacheManager } from "../cache/kv-cache-manager.ts";
import type { Finish, PageMove, SequenceId, SequenceSpec, Service } from "../core.ts";
import type { EngineDrafts } from "../draft/sequence-drafts.ts";
import type { TimeAccounts } from "../explain/time-accounts.ts";
import { raised } from "../objective.ts";
import type { AdmissionRule } from "./admission-rule.ts";
import { checkEngine } from "./integrity.ts";
import { insertByArrival } from "./queue/arrival-list.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import type { LoadNow, ReportBuilder } from "./report-builder.ts";
import { Sequence } from "./sequence.ts";
import type { Backlog } from "./step/step-rule.ts";
import type { TierLoads } from "./tier-loads.ts";

/** The parts of an engine that a sequence table uses. */
export interface SequenceTableParts {
  readonly clock: Clock;
  readonly kvCache: KvCacheManager;
  readonly queue: WaitQueue;
  /** Null: there is no lower tier. */
  readonly loads: TierLoads | null;
  readonly reports: ReportBuilder;
  readonly accounts: TimeAccounts;
  readonly rule: Pick<AdmissionRule, "backOffSteps">;
  /** Null: there are none. */
  readonly drafts: EngineDrafts | null;
}

/** Weight of the newest prompt, answer or decode in the exponential moving averages. */
const EMA_WEIGHT = 1 / 16;
/** Averages over recent sequences of a kind. */
interface KindAverages {
  /** Share of their prompt tokens that was not cached, 0 … 1. */
  computedShare: number;
  answerTokens: number;
}

/** Most accounts of running and waiting sequences in a report. */
const ACCOUNTS_MAX = 128;
/** Expected tokens of an answer, until one has ended. */
const ANSWER_GUESS = 64;

/**
 * All sequences of one engine, and the only ways from one state to the next:
 *
 *     add ─▶ waiting ──admit──▶ running ─▶ end
 *               ▲ ╰─────────────────│───────▲
 *               ╰──────preempt──────╯
 *
 * A paused sequence keeps its state, but waits outside of the queue, or gets no chunks.
 */
export class SequenceTable {
  readonly kvCache: KvCacheManager;
  readonly queue: WaitQueue;
  readonly #clock: Clock;
  readonly #loads: TierLoads | null;
  readonly #reports: ReportBuilder;
  readonly #accounts: TimeAccounts;
  readonly #rule: SequenceTableParts["rule"];
  readonly #drafts: EngineDrafts | null;
  readonly #sequences = new Map<SequenceId, Sequence>();
  readonly #running: Sequence[] = [];
  /** Known tokens of all waiting sequences, and of the offline ones among them. */
  #tokensWaiting = 0;
  #offlineTokensWaiting = 0;
  #paused = 0;
  #arrivals = 0;
  /** Averages of online and of offline sequences. */
  readonly #online: KindAverages = { computedShare: 1, answerTokens: ANSWER_GUESS };
  readonly #offline: KindAverages = { computedShare: 1, answerTokens: ANSWER_GUESS };
  /** Average uncached tokens of streams' prompts; 0: there was none. */
  #streamTokens = 0;

  constructor({ clock, kvCache, queue, loads, reports, accounts, rule, drafts }: SequenceTableParts) {
    this.#clock = clock;
    this.kvCache = kvCache;
    this.queue = queue;
    this.#loads = loads;
    this.#reports = reports;
    this.#accounts = accounts;
    this.#rule = rule;
    this.#drafts = drafts;
  }

  /** Sequences that hold pages, paused ones included, in order of arrival. */
  get running(): readonly Sequence[] {
    return this.#running;
  }

  /** True if a sequence waits, or runs and is not paused. */
  get isBusy(): boolean {
    return this.queue.size > 0 || this.#running.some((sequence) => !sequence.isPaused);
  }

  /**
   * Estimates the prompt tokens to compute. The cached share of waiting sequences is not looked up, but taken
   * from recent admissions; at most, none of them is cached. Only the part of the queue that would fit
   * counts: a sequence without room waits for answers to end, and not for prompts.
   */
  get backlog(): Backlog {
    const { pagesAvailable, pool } = this.kvCache;
    const unfinished = { tokens: 0, offlineTokens: 0 };
    let answeredTokens = 0;
    for (const { behind, isDecoding, objective, spec } of this.#running) {
      if (isDecoding) {
        answeredTokens += spec.promptTokens.length;
        continue;
      }
      unfinished.tokens += behind;
      if (objective.isOffline) unfinished.offlineTokens += behind;
    }
    const countsOffline =
      this.queue.offlineSize === this.queue.size && unfinished.offlineTokens === unfinished.tokens;
    const waiting = countsOffline ? this.queue.size : this.queue.size - this.queue.offlineSize;
    const tokens = countsOffline ? this.#tokensWaiting : this.#tokensWaiting - this.#offlineTokensWaiting;
    const running = countsOffline ? unfinished.tokens : unfinished.tokens - unfinished.offlineTokens;
    const { computedShare, answerTokens } = countsOffline ? this.#offline : this.#online;
    const likely = tokens * computedShare;
    const room = pagesAvailable * pool.pageTokens;
    const fitting = likely > room ? room / likely : 1;
    // In as many steps as an average answer has tokens, all resident and now admissible sequences end, and
    // others take their pages.
    const replacedTokens = (answeredTokens * computedShare + likely * fitting) / answerTokens;
    return {
      countsOffline,
      promptTokens: Math.ceil(tokens * fitting) + running,
      likelyTokens: likely * fitting + running,
      waiting: Math.ceil(waiting * fitting),
      refillTokens: fitting < 1 ? Math.max(1, replacedTokens / (1 - fitting)) : Number.POSITIVE_INFINITY,
      answerTokens,
      streamTokens: Math.ceil(this.#streamTokens),
    };
  }

  find(id: SequenceId): Sequence | undefined {
    return this.#sequences.get(id);
  }

  all(): readonly Sequence[] {
    return [...this.#sequences.values()];
  }

  add(spec: SequenceSpec): void {
    assert(!this.#sequences.has(spec.id), "a sequence is submitted once");
    const sequence = new Sequence(spec, this.#arrivals, this.#clock.nowMs());
    this.#arrivals += 1;
    this.#sequences.set(spec.id, sequence);
    this.#countWaiting(sequence, sequence.length);
    this.#enqueue(sequence);
  }

  pause(sequence: Sequence): void {
    if (sequence.isPaused) return;
    if (sequence.state === "running") this.queue.wake(sequence, Number.POSITIVE_INFINITY);
    else this.#dequeue(sequence);
    sequence.isPaused = true;
    this.#paused += 1;
    this.#reports.loadChanged();
  }

  resume(sequence: Sequence): void {
    if (!sequence.isPaused) return;
    this.#accounts.resumes(sequence);
    sequence.isPaused = false;
    this.#paused -= 1;
    if (sequence.state === "running") return;
    sequence.arrivedMs = this.#clock.nowMs();
    this.#enqueue(sequence);
  }

  /** Raises the service of a sequence in any state. */
  raise(sequence: Sequence, wanted: Service): void {
    const service = raised(sequence.service, wanted);
    if (service === sequence.service) return;
    const isWaiting = sequence.state === "waiting";
    if (isWaiting) this.#countWaiting(sequence, -sequence.length);
    this.queue.serve(sequence, service);
    if (isWaiting) this.#countWaiting(sequence, sequence.length);
  }

  /**
   * Takes a sequence out of the queue and allocates its pages. `exact`: whether a part of a cached page may
   * be copied, see `KvCacheManager.allocate`. Returns the copy that the next step must make; null: none.
   */
  admit(sequence: Sequence, exact: boolean): PageMove | null {
    this.queue.take(sequence, sequence.length - sequence.cachedTokens);
    const matched = sequence.kv.waiter?.depth ?? 0;
    const move = this.kvCache.allocate(sequence, exact);
    const loaded = this.#loads?.leaves(sequence);
    const tierTokens = Math.min(sequence.computed, loaded?.tokens ?? 0);
    const hostTokens = Math.min(tierTokens, loaded?.hostTokens ?? 0);
    if (!sequence.wasStarted) this.kvCache.stores?.read(sequence.kv.lock!.node);
    this.#releaseContinued(sequence);
    sequence.state = "running";
    sequence.draftRead = 0;
    sequence.admittedMs = this.#clock.nowMs();
    sequence.admittedTokens = sequence.computed;
    this.#countWaiting(sequence, -sequence.length);
    insertByArrival(this.#running, sequence);
    this.#reports.admitted(sequence, matched, tierTokens, hostTokens);
    this.#accounts.admits(sequence);
    if (!sequence.wasStarted) {
      const averages = sequence.objective.isOffline ? this.#offline : this.#online;
      averages.computedShare += (sequence.behind / sequence.length - averages.computedShare) * EMA_WEIGHT;
      if (sequence.objective.isInteractive) {
        const before = this.#streamTokens;
        this.#streamTokens =
          before === 0 ? sequence.behind : before + (sequence.behind - before) * EMA_WEIGHT;
      }
    }
    sequence.wasStarted = true;
    return move;
  }

  /** Records that the next step has a chunk of the sequence. */
  gotChunk({ pacing }: Sequence, nowMs: number): void {
    pacing.lastChunkMs = nowMs;
    pacing.skips = 0;
  }

  /** Records that the next step leaves these decodes out. */
  leftOut(skipped: ReadonlySet<SequenceId>): void {
    for (const id of skipped) this.#sequences.get(id)!.pacing.skips += 1;
  }

  /** Frees the pages of a running sequence, which waits again. */
  preempt(victim: Sequence): void {
    this.#reports.loadChanged();
    this.#reports.preempted(victim.id);
    this.#accounts.preempts(victim);
    victim.preemptions += 1;
    victim.stepsUntil = this.#reports.nextStep + this.#rule.backOffSteps(victim.preemptions);
    this.#free(victim, true, false);
    victim.state = "waiting";
    this.#countWaiting(victim, victim.length);
    if (!victim.isPaused) this.#enqueue(victim);
  }

  /** Appends a sampled token, and charges the sequence's tenant for it. */
  drew(sequence: Sequence, token: TokenId): void {
    this.#accounts.drew(sequence, sequence.pacing.lastTokenMs);
    if (sequence.generated === 0) this.#reports.account(sequence, "first");
    sequence.pacing.lastTokenMs = this.#clock.nowMs();
    sequence.queued.counter?.chargeOutput();
    sequence.append(token);
  }

  /** Records the number of tokens that a decode drew. */
  advanced({ pacing }: Sequence, tokens: number): void {
    pacing.advance += (tokens - pacing.advance) * EMA_WEIGHT;
  }

  /** Frees the pages and the state slot that a running sequence has for drafts. */
  dropDrafts(sequence: Sequence): void {
    if (sequence.state !== "running" || sequence.drafted === 0) return;
    sequence.drafted = 0;
    this.kvCache.dropDrafts(sequence);
  }

  /** Hands the computed part of a prompt over to the cache, and wakes sequences that wait for it. */
  publish(sequence: Sequence): void {
    if (sequence.isWhole) return;
    this.kvCache.publish(sequence);
    this.queue.wake(sequence, sequence.computed);
  }

  /** Returns a sequence that was never admitted to the fleet; one that was admitted stays. */
  recall(sequence: Sequence): void {
    if (sequence.isReturning) return;
    this.#accounts.ends(sequence);
    this.#reports.account(sequence, "ended");
    this.#remove(sequence, true);
    this.#reports.returned(sequence.id);
  }

  /** Releases a held sequence, whether it has ended or not: no other continues it. */
  release(id: SequenceId): void {
    this.#releaseHeld(id);
    this.#reports.loadChanged();
  }

  /** Aborts a sequence. One that is `inStep` ends when that step does. */
  abort(sequence: Sequence, inStep: boolean): void {
    if (inStep) sequence.isAborted = true;
    else this.end(sequence, { kind: "aborted" }, true);
  }

  /** Ends a sequence in any state. `keep`: its computed pages go to the cache. */
  end(sequence: Sequence, finish: Finish, keep: boolean): void {
    this.#accounts.ends(sequence);
    this.#reports.account(sequence, "ended");
    this.#remove(sequence, keep);
    this.#drafts?.ended(sequence.spec, sequence.tokens, sequence.length);
    const isComplete = finish.kind === "stop" || finish.kind === "length";
    const averages = sequence.objective.isOffline ? this.#offline : this.#online;
    if (isComplete) averages.answerTokens += (sequence.generated - averages.answerTokens) * EMA_WEIGHT;
    this.#reports.ended(sequence.id, finish);
  }

  /** Reports the accounts of sequences as of now. */
  reportAccounts(): void {
    let left = ACCOUNTS_MAX;
    for (const sequence of this.#sequences.values()) {
      if (left === 0) return;
      left -= 1;
      this.#accounts.settle(sequence);
      this.#reports.account(sequence, "now");
    }
  }

  #enqueue(sequence: Sequence): void {
    this.queue.add(sequence);
    this.#loads?.waits(sequence);
  }

  #dequeue(sequence: Sequence): void {
    this.queue.remove(sequence);
    this.#loads?.leaves(sequence);
  }

  /** Adds a sequence's tokens to the waiting totals; negative: removes them. */
  #countWaiting({ objective }: Sequence, tokens: number): void {
    this.#tokensWaiting += tokens;
    if (objective.isOffline) this.#offlineTokensWaiting += tokens;
  }

  #remove(sequence: Sequence, keep: boolean): void {
    if (sequence.state === "running") this.#free(sequence, keep, sequence.isHeld);
    else {
      this.#releaseContinued(sequence);
      this.#countWaiting(sequence, -sequence.length);
      if (!sequence.isPaused) this.#dequeue(sequence);
    }
    if (sequence.isPaused) this.#paused -= 1;
    sequence.state = "ended";
    this.#sequences.delete(sequence.id);
  }

  load(): LoadNow {
    let tokensPending = this.#tokensWaiting;
    for (const { kv } of this.#running) {
      if (kv.computed < kv.promptEnd) tokensPending += kv.promptEnd - kv.computed;
    }
    const { pool, cache, stores } = this.kvCache;
    const { checkpoints } = cache;
    const loaded = this.#loads?.totals;
    return {
      waiting: this.queue.size,
      deferred: this.queue.deferred,
      running: this.#running.length,
      paused: this.#paused,
      pagesTotal: pool.pagesTotal,
      pagesFree: pool.pagesFree,
      pagesCached: cache.pagesEvictable,
      statesTotal: checkpoints?.pool.total ?? 0,
      statesFree: checkpoints?.pool.freeCount ?? 0,
      checkpoints: checkpoints?.kept.size ?? 0,
      evictedPagesTotal: cache.pagesEvictedTotal,
      tokensPending,
      tierStoredPagesTotal: stores?.pagesStoredTotal ?? 0,
      tierFoundPagesTotal: loaded?.pagesFound ?? 0,
      tierLoadedPagesTotal: loaded?.pagesLoaded ?? 0,
      tierShortLoadsTotal: loaded?.short ?? 0,
      tierHostPagesTotal: loaded?.pagesFromHost ?? 0,
    };
  }

  /**
   * Throws InvariantError if the records contradict each other. `others`: sequences outside of the table that hold
   * pages, for a prefix hint or a load.
   */
  checkIntegrity(others: readonly Sequence[]): void {
    checkEngine(this.kvCache, this.queue, this.#running, this.#sequences, others);
    let tokensWaiting = 0;
    let offlineTokensWaiting = 0;
    let offlineWaiting = 0;
    let paused = 0;
    for (const { state, length, isPaused, objective } of this.#sequences.values()) {
      if (isPaused) paused += 1;
      if (state === "running") continue;
      tokensWaiting += length;
      if (!objective.isOffline) continue;
      offlineTokensWaiting += length;
      if (!isPaused) offlineWaiting += 1;
    }
    assert(tokensWaiting === this.#tokensWaiting && paused === this.#paused, "running totals are right");
    const isOfflineRight =
      offlineTokensWaiting === this.#offlineTokensWaiting && offlineWaiting === this.queue.offlineSize;
    assert(isOfflineRight, "running totals of offline work are right");
  }

  /** Releases the held sequence that this one continues. */
  #releaseContinued({ spec }: Sequence): void {
    if (spec.continues !== undefined) this.#releaseHeld(spec.continues);
  }

  #releaseHeld(held: SequenceId): void {
    const sequence = this.#sequences.get(held);
    if (sequence !== undefined) sequence.isHeld = false;
    this.kvCache.releaseHeld(held);
  }

  /** Frees a running sequence's pages; sequences that waited for its prefix go back to the queue. */
  #free(sequence: Sequence, keep: boolean, isHeld: boolean): void {
    const { queued, admittedTokens, admittedMs } = sequence;
    queued.counter?.chargeOccupancy(admittedTokens, this.#clock.nowMs() - admittedMs);
    this.kvCache.free(sequence, keep && !sequence.isWhole, isHeld);
    this.#running.splice(this.#running.indexOf(sequence), 1);
    this.queue.wake(sequence, Number.POSITIVE_INFINITY);
  }
}
