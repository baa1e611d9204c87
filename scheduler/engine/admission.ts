import type { Objective } from "../core.ts";
import type { WaitReason } from "../explain/lane-waits.ts";
import type { TimeAccounts } from "../explain/time-accounts.ts";
import type { EngineOptions } from "./engine-options.ts";
import { youngestPaused } from "./preemption.ts";
import type { ReportBuilder } from "./report-builder.ts";
import type { Sequence } from "./sequence.ts";
import type { SequenceTable } from "./sequence-table.ts";
import { isStarving } from "./step/prompt-order.ts";
import type { StepBuilder } from "./step/step-builder.ts";
import type { TierLoads } from "./tier-loads.ts";

/** A waiting sequence that may run from the next step on. */
export interface Candidate {
  readonly sequence: Sequence;
  /** Number of prompt tokens that the step has room for, ≥ 1. */
  readonly tokens: number;
  /**
   * True if a part of a cached page may be copied, see `KvCacheManager.allocate`. False: the sequence is
   * alone, and fits only without a copy.
   */
  readonly exact: boolean;
}

/** Sequences parked per search for a candidate at most, to bound planning time. */
const PARKED_MAX = 64;

/**
 * Finds the waiting sequences that may run. A whole prompt needs its uncached pages at admission, as in
 * Sarathi-Serve; admitting by the next chunk only makes long prompts thrash. A page for every running
 * sequence and the watermark must stay available for decodes. With no other resident there is no need to keep
 * room, and everything that `refusal` accepted fits.
 *
 * A sequence without room blocks those behind it (head-of-line blocking, on purpose), or large prompts would
 * starve. With lanes, sequences of other objectives overtake it until it has aged; offline ones overtake none.
 * Sequences that get tokens in this step overtake one that gets none: a chat overtakes a batch request, for example.
 */
export class Admission {
  readonly #options: EngineOptions;
  readonly #table: SequenceTable;
  readonly #loads: TierLoads | null;
  readonly #reports: ReportBuilder;
  readonly #accounts: TimeAccounts;
  #isBlocked = false;
  /** The first online sequence that had no room of late. */
  #lacking: Sequence | null = null;

  constructor(
    options: EngineOptions,
    table: SequenceTable,
    loads: TierLoads | null,
    reports: ReportBuilder,
    accounts: TimeAccounts,
  ) {
    this.#options = options;
    this.#table = table;
    this.#loads = loads;
    this.#reports = reports;
    this.#accounts = accounts;
  }

  /** True if a sequence had no room of late, and a paused one could make some. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** Records that room was made. */
  unblock(): void {
    this.#isBlocked = false;
  }

  /** Takes the waiting online sequence for which offline ones must make room; null: there is none. */
  takeLacking(): Sequence | null {
    const lacking = this.#lacking;
    this.#lacking = null;
    return lacking?.state === "waiting" && !lacking.isPaused ? lacking : null;
  }

  /** True if there is a slot for a waiting sequence, and pages. */
  hasRoomFor(sequence: Sequence): boolean {
    const { running, kvCache } = this.#table;
    return running.length < this.#options.admission.sequencesMax && kvCache.fits(sequence, this.#headroom());
  }

  /**
   * Returns the next sequence that may join the step; null: there is none. The caller admits it before it
   * asks again. `before`: the sequence must be one that may overtake this unfinished prompt; null: any. On
   * the way, sequences that share a prefix with an unfinished prompt are parked until it is computed.
   */
  next(step: StepBuilder, before: Sequence | null): Candidate | null {
    const { running, kvCache, queue } = this.#table;
    const { admission, sharedTokensMin } = this.#options;
    const { budget, prompts, nowMs } = step;
    /** Objectives whose next sequence gets no tokens now, although another's may. */
    const declined = new Set<Objective>();
    for (let parked = 0; parked < PARKED_MAX; ) {
      const sequence = queue.peek(nowMs, this.#stepNumber(), declined);
      if (sequence === null) return this.#none(queue.hasPassed);
      if (this.#makesWay(sequence, declined, nowMs)) {
        this.#accounts.refused(sequence, "other_lane");
        declined.add(sequence.objective.name);
        continue;
      }
      if (running.length >= admission.sequencesMax) {
        this.#accounts.refused(sequence, "slots");
        this.#lacks(sequence);
        return this.#none(true);
      }
      if (before !== null && !this.#mayOvertake(sequence, before, nowMs)) {
        this.#accounts.refused(
          sequence,
          before.objective === sequence.objective ? "other_prompts" : "other_lane",
        );
        if (!queue.separatesObjectives) return this.#none(false);
        declined.add(sequence.objective.name);
        continue;
      }

      const { pageTokens } = kvCache.pool;
      const shared = admission.rule.findInFlightPrefix(sequence, prompts, pageTokens, sharedTokensMin);
      if (shared !== null) {
        queue.park(sequence, shared.owner, shared.tokens, false);
        kvCache.wantCheckpoint(shared.owner, shared.tokens);
        this.#reports.waits(sequence.id, shared.owner.id);
        parked += 1;
        continue;
      }

      // Loads in flight hold pages that they will give back, so a sequence is alone only without them.
      const isAlone = running.length === 0 && this.#loads?.isIdle !== false;
      const hasRoom = (): boolean => kvCache.fits(sequence, isAlone ? 0 : this.#headroom());
      const load = this.#loads?.claim(sequence, hasRoom) ?? null;
      if (load !== null) {
        queue.park(sequence, load.owner, load.tokens, true);
        this.#reports.waits(sequence.id, load.owner.id);
        parked += 1;
        continue;
      }

      const { cachedTokens, objective } = sequence;
      const left = sequence.length - cachedTokens;
      const offered = budget.offer(left, cachedTokens, nowMs - sequence.pacing.lastChunkMs, objective);
      const tokens = step.partOf(sequence, offered);
      if (tokens === 0) {
        this.#accounts.refused(sequence, fullBy(prompts, sequence));
        if (!queue.separatesObjectives || (objective.isOffline && this.#isDue(sequence, nowMs)))
          return this.#none(false);
        declined.add(sequence.objective.name);
        continue;
      }
      const isAged = queue.isAged(sequence, nowMs);
      if (!budget.admits(sequence, isAged)) {
        this.#accounts.refused(sequence, "slots");
        if (queue.pass(sequence)) continue;
        return this.#none(false);
      }

      let fits = hasRoom();
      // Held pages are kept from waiting sequences, unless nothing else runs.
      while (!fits && isAlone && kvCache.releaseOldestHeld()) fits = kvCache.fits(sequence, 0);
      if (!fits && !isAlone) {
        this.#accounts.refused(sequence, "memory");
        this.#lacks(sequence);
        if (!isAged && queue.pass(sequence)) continue;
        return this.#none(true);
      }
      this.#isBlocked = false;
      return { sequence, tokens, exact: fits };
    }
    return null;
  }

  /**
   * True if an offline sequence is admitted in its turn, without being overtaken: it has aged and no other
   * offline one runs. So offline work never stops.
   */
  #isDue(sequence: Sequence, nowMs: number): boolean {
    const { queue, running } = this.#table;
    return queue.isAged(sequence, nowMs) && !running.some(({ objective }) => objective.isOffline);
  }

  /**
   * True if an offline sequence waits for online ones. Otherwise it would hold pages for its whole prompt while
   * steps compute only a token or two of it.
   */
  #makesWay(sequence: Sequence, declined: ReadonlySet<Objective>, nowMs: number): boolean {
    const { queue } = this.#table;
    if (!sequence.objective.isOffline || !queue.separatesObjectives || this.#isDue(sequence, nowMs))
      return false;
    if (this.#lacking !== null) return true;
    return queue.peek(nowMs, this.#stepNumber(), new Set([...declined, sequence.objective.name])) !== null;
  }

  /** Records that there is no room for a sequence; offline ones are preempted for the first online one. */
  #lacks(sequence: Sequence): void {
    if (!sequence.objective.isOffline) this.#lacking ??= sequence;
  }

  /** Returns no candidate. `lacksRoom`: a sequence had no room, which paused ones could make. */
  #none(lacksRoom: boolean): null {
    this.#isBlocked = lacksRoom && youngestPaused(this.#table.running) !== undefined;
    return null;
  }

  /**
   * The number of the planned step. Infinity ends back-off: where no sequence runs, there is none to make way
   * for.
   */
  #stepNumber(): number {
    const isIdle = this.#table.running.every(({ isPaused }) => isPaused);
    return isIdle ? Number.POSITIVE_INFINITY : this.#reports.nextStep;
  }

  /**
   * True if a waiting sequence may be admitted before an unfinished prompt. An earlier objective suffices. A
   * shorter sequence may if its tenant has used no more, and any sequence if its tenant will have used no
   * more even afterwards. So one tenant's crowd overtakes another's long prompt only until both are even.
   */
  #mayOvertake(sequence: Sequence, prompt: Sequence, nowMs: number): boolean {
    const ahead = prompt.objective.precedence - sequence.objective.precedence;
    if (ahead !== 0) return ahead > 0;
    if (isStarving(prompt, nowMs)) return false;
    const left = sequence.length - sequence.cachedTokens;
    const isShorter = left < prompt.behind;
    const own = sequence.queued.counter;
    const other = prompt.queued.counter;
    if (own === null || own === other) return isShorter && !this.#table.queue.isAged(prompt, nowMs);
    return own.used + (isShorter ? 0 : left) <= other!.used;
  }

  /** Pages that an admission leaves available. */
  #headroom(): number {
    const { running, kvCache } = this.#table;
    const { watermark, rule } = this.#options.admission;
    return rule.headroom(running.length) + Math.ceil(watermark * kvCache.pool.pagesTotal);
  }
}

/** Returns why the step has no tokens left for a sequence: prompts of its own lane, or only those of other lanes. */
function fullBy(prompts: readonly Sequence[], { objective }: Sequence): WaitReason {
  const isOthers = prompts.length > 0 && prompts.every((prompt) => prompt.objective !== objective);
  return isOthers ? "other_lane" : "other_prompts";
}
