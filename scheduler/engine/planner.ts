import type { Clock } from "../../base/clock.ts";
import type { Chunk, Step } from "../core.ts";
import { type EngineCosts, shapeOf } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { DraftTimes } from "../draft/draft-times.ts";
import type { EngineDrafts } from "../draft/sequence-drafts.ts";
import type { TimeAccounts } from "../explain/time-accounts.ts";
import { Admission } from "./admission.ts";
import { DraftPlanner } from "./draft-planner.ts";
import type { EngineOptions } from "./engine-options.ts";
import { securePages, yieldingOffline, youngestPaused } from "./preemption.ts";
import type { PrefixHints, WarmStep } from "./prefix-hints.ts";
import type { ReportBuilder } from "./report-builder.ts";
import type { Sequence } from "./sequence.ts";
import type { SequenceTable } from "./sequence-table.ts";
import { byObjective } from "./step/prompt-order.ts";
import { type PlannedChunk, StepBuilder } from "./step/step-builder.ts";
import type { Backlog, StepPass, StepRule } from "./step/step-rule.ts";
import { openStepRule } from "./step/time-budget.ts";
import type { TierLoads } from "./tier-loads.ts";

/** A planned step. */
export interface PlannedStep {
  readonly step: Step;
  /** The chunks of sequences; the step may have one more, of a prefix hint. */
  readonly planned: readonly PlannedChunk[];
  readonly startMs: number;
  readonly pagesUsed: number;
  /** The time at which the first stream misses its target. */
  readonly deadlineMs: number;
}

/** The parts of an engine that its planner uses. */
export interface PlannerParts {
  readonly spec: DeviceSpec;
  readonly clock: Clock;
  readonly options: EngineOptions;
  readonly costs: EngineCosts;
  readonly table: SequenceTable;
  readonly hints: PrefixHints;
  /** Null: there is no lower tier. */
  readonly loads: TierLoads | null;
  /** Null: there are none. */
  readonly drafts: EngineDrafts | null;
  readonly draftTimes: DraftTimes;
  readonly reports: ReportBuilder;
  readonly accounts: TimeAccounts;
}

/**
 * Most tokens of an engine's first step; later steps grow to `GROWTH` times the largest one so far. The cost
 * model can only guess how long steps take that are larger than any it has seen.
 */
const FIRST_TOKENS = 64;
const GROWTH = 4;
/**
 * Time that an idle device waits before a step of a prefix hint: the call that continues an answer comes a
 * moment after its end, and must not wait for such a step.
 */
const PAUSE_MS = 5;
/** Rounding tolerance of time sums: a pause with less than this left is over. */
const SOON_MS = 1e-3;

/**
 * Decides an engine's steps. Decodes get their pages first, if need be by preemption (preemption.ts), and the
 * policy's rule opens a budget (step/step-rule.ts). Then decodes join the step with their forced tokens. As
 * far as the budget allows, unfinished prompts follow (step/prompt-order.ts), then waiting sequences that
 * admission accepts (admission.ts). Drafts of decodes come last (draft-planner.ts).
 *
 * This is stall-free batching (Sarathi-Serve, arXiv:2403.02310 §4.2, Algorithm 3). Every decode is in every
 * step, except those that the budget leaves out, and prompts get the rest. Unlike in the paper's code a chunk
 * is never empty or negative. Several prompts may be partly computed at once.
 */
export class Planner {
  readonly #parts: PlannerParts;
  readonly #rule: StepRule;
  readonly #admission: Admission;
  readonly #drafts: DraftPlanner;
  /** Tokens of the largest step so far. */
  #tokensLargest = FIRST_TOKENS / GROWTH;
  /** True if the last planned step had a chunk of a sequence. */
  #hasComputed = false;
  /** Time of the first plan after the latest such step. */
  #computedMs = Number.NEGATIVE_INFINITY;
  #wakeMs: number | null = null;

  constructor(parts: PlannerParts) {
    this.#parts = parts;
    this.#rule = openStepRule(parts.options.batch, parts.spec, parts.costs);
    this.#admission = new Admission(parts.options, parts.table, parts.loads, parts.reports, parts.accounts);
    const { spec, drafts, table, costs, draftTimes } = parts;
    this.#drafts = new DraftPlanner(spec, drafts, table.kvCache, costs, draftTimes);
  }

  /**
   * The time at which a step can be planned although no message comes, after a plan that found nothing. Null:
   * never.
   */
  get wakeMs(): number | null {
    return this.#wakeMs;
  }

  /** Decides the next step; null if there is nothing to compute now. */
  plan(): PlannedStep | null {
    const { accounts } = this.#parts;
    accounts.beginPlan();
    const planned = this.#plan();
    accounts.endPlan();
    return planned;
  }

  #plan(): PlannedStep | null {
    const { clock, table, loads, accounts } = this.#parts;
    const { kvCache, queue } = table;
    // A sequence that waits may need all pages there are if no other runs.
    if (table.running.length > 0 || queue.size === 0) loads?.begin(this.#headroom());
    if (this.#hasComputed) this.#computedMs = clock.nowMs();
    this.#hasComputed = false;
    this.#wakeMs = null;
    for (;;) {
      if (this.#admission.isBlocked) this.#reclaimPaused();
      this.#reclaimOffline();
      const nowMs = clock.nowMs();
      queue.beginStep();
      let mayAdmit = true;
      for (const pass of this.#rule.passes(kvCache.pagesAvailable, kvCache.pool.pagesTotal)) {
        // A sequence that was just preempted for lack of pages must not come back in the same step.
        if (pass.hasDecodes) mayAdmit = !securePages(table);
        if (!mayAdmit) accounts.admitsNone();
        const builder = this.#fill(pass, nowMs, mayAdmit);
        const warm = pass.hasDecodes && pass.hasPrompts ? this.#planWarm(builder) : null;
        if (warm === null) this.#drafts.add(builder);
        if (builder.chunks.length > 0 || warm !== null) return this.#close(builder, warm);
      }
      if (mayAdmit && !this.#admission.isBlocked) return null;
    }
  }

  /** Most tokens of a step whose size the cost model decides. */
  get #tokensMax(): number {
    return Math.min(GROWTH * this.#tokensLargest, this.#parts.spec.stepTokensMax);
  }

  /**
   * Preempts as many paused sequences as wait, after one could not be admitted for want of a slot or of
   * pages.
   */
  #reclaimPaused(): void {
    const { table } = this.#parts;
    this.#admission.unblock();
    for (let waiting = table.queue.size; waiting > 0; waiting--) {
      const victim = youngestPaused(table.running);
      if (victim === undefined) return;
      table.preempt(victim);
    }
  }

  /**
   * Preempts offline sequences until an online one fits that lacked a slot or pages; false if none could be
   * preempted.
   */
  #reclaimOffline(): boolean {
    const lacking = this.#admission.takeLacking();
    if (lacking === null) return false;
    const { clock, table } = this.#parts;
    const before = table.running.length;
    while (!this.#admission.hasRoomFor(lacking)) {
      const victim = yieldingOffline(table, clock.nowMs());
      if (victim === undefined) break;
      table.preempt(victim);
    }
    return table.running.length < before;
  }

  /** Fills a step within its budget, with decodes and prompts if the pass has any. */
  #fill(pass: StepPass, nowMs: number, mayAdmit: boolean): StepBuilder {
    const { table } = this.#parts;
    const fillFor = (backlog: Backlog): StepBuilder => {
      const { running } = table;
      const budget = pass.open({ running, backlog, nowMs, tokensMax: this.#tokensMax });
      const builder = new StepBuilder(budget, running, pass.hasDecodes, nowMs);
      this.#addForced(builder);
      if (pass.hasPrompts) this.#addPrompts(builder, mayAdmit);
      return builder;
    };
    let { backlog } = table;
    let builder = fillFor(backlog);
    // Pages of preempted offline sequences are used in the same step, unless a sequence was admitted, which
    // cannot be undone.
    while (!builder.hasAdmitted && this.#reclaimOffline()) {
      table.queue.beginStep();
      backlog = table.backlog;
      builder = fillFor(backlog);
    }
    if (builder.chunks.length > 0 || backlog.countsOffline) return builder;
    // No online sequence can run now, so offline ones need not make way.
    return fillFor({ ...backlog, countsOffline: true });
  }

  /** Adds forced (jump-forward) tokens to the decodes, as far as the budget allows and pages last without preemption. */
  #addForced(builder: StepBuilder): void {
    const { kvCache } = this.#parts.table;
    builder.chunks.forEach(({ sequence }, index) => {
      const { behind, computed, objective } = sequence;
      if (behind === 1) return;
      const room = kvCache.roomFor(sequence, behind) - 1;
      if (room > 0) builder.lengthen(index, builder.budget.takeForced(room, computed + 1, objective));
    });
  }

  /**
   * Adds waiting sequences that may overtake all unfinished prompts, then these prompts, and then more
   * waiting sequences, while the step has room.
   */
  #addPrompts(builder: StepBuilder, mayAdmit: boolean): void {
    const { options, table } = this.#parts;
    const { budget, nowMs } = builder;
    const { queue } = table;
    const { rule } = options.admission;
    const isAged = (sequence: Sequence): boolean => queue.isAged(sequence, nowMs);
    const ordered = rule.promptOrder(builder.prompts, { isAged, nowMs });
    const unfinished = queue.separatesObjectives ? byObjective(ordered) : ordered;
    const first = rule.overtakable(unfinished);
    if (mayAdmit && first !== null) this.#admit(builder, first);
    for (const sequence of unfinished) {
      const { behind, computed, pacing, objective } = sequence;
      const offered = budget.offer(behind, computed, nowMs - pacing.lastChunkMs, objective);
      const count = builder.partOf(sequence, offered);
      if (count === 0) return;
      builder.addPrompt(sequence, count);
    }
    if (mayAdmit) this.#admit(builder, null);
  }

  /**
   * Admits waiting sequences, each with a chunk; with `before` only those that may overtake this unfinished
   * prompt.
   */
  #admit(builder: StepBuilder, before: Sequence | null): void {
    for (;;) {
      const candidate = this.#admission.next(builder, before);
      if (candidate === null) return;
      const { sequence, tokens, exact } = candidate;
      const move = this.#parts.table.admit(sequence, exact);
      builder.admit(sequence, tokens, move);
    }
  }

  /** Plans a prefetch chunk of a prefix hint, if no sequence waits, lacks prompt tokens, or is left out of the step. */
  #planWarm({ chunks, prompts, budget, nowMs }: StepBuilder): WarmStep | null {
    const { table, hints, spec } = this.#parts;
    const { queue } = table;
    if (hints.isEmpty || queue.size > 0 || prompts.length > 0 || budget.skipped.size > 0) return null;
    if (chunks.length >= spec.stepChunksMax) return null;
    const wakeMs = this.#computedMs + PAUSE_MS;
    if (chunks.length === 0 && wakeMs - nowMs > SOON_MS) {
      this.#wakeMs = wakeMs;
      return null;
    }
    const decodeContext = chunks.reduce((sum, { sequence }) => sum + sequence.computed, 0);
    return hints.plan({
      shape: { prompts: [], decodes: chunks.length, decodeContext },
      steps: chunks.reduce((most, { sequence }) => Math.max(most, sequence.tokensLeft), 1),
      isOwn: (program) =>
        budget.deadlineMs === Number.POSITIVE_INFINITY &&
        chunks.every(({ sequence }) => sequence.program?.id === program),
      tokensMax: this.#tokensMax - chunks.length,
      headroom: this.#headroom(),
    });
  }

  /** Pages that prefetching (prefix hints, loads of the lower tier) leaves available. */
  #headroom(): number {
    const { options, table } = this.#parts;
    const { running, kvCache } = table;
    return running.length + Math.ceil(options.admission.watermark * kvCache.pool.pagesTotal);
  }

  /** Fields of chunk [start, end) for a device that drafts; `drafts`: number of tokens to draft behind it. */
  #forDrafts(sequence: Sequence, start: number, end: number, drafts: number): DraftFields {
    const asked = drafts === 0 ? {} : { drafts };
    if (this.#parts.spec.draftModel !== undefined)
      return { ...asked, ...unreadOf(sequence, start, end, drafts > 0, this.#parts.spec.pageTokens) };
    return end < sequence.length ? { next: sequence.tokens[end]! } : asked;
  }

  /** Predicted time of a step in milliseconds, plus the cost model's error margin. */
  #expectedMs(planned: readonly PlannedChunk[]): number {
    const { costs } = this.#parts;
    const chunks = planned.map(({ sequence, count, draft }) => ({
      start: sequence.computed,
      tokens: { length: count + (draft?.length ?? 0) },
      drafted: draft?.length ?? 0,
    }));
    return (1 + (costs.margin ?? 0)) * costs.stepMs(shapeOf({ chunks }));
  }

  /** Makes the step for the device. */
  #close({ chunks: drafted, moves, budget }: StepBuilder, warm: WarmStep | null): PlannedStep {
    const { clock, reports, table, spec } = this.#parts;
    const { pool, pagesAvailable } = table.kvCache;
    const { skipped, deadlineMs } = budget;
    const startMs = clock.nowMs();
    const planned = withinRows(drafted, spec.stepChunksMax);
    const wanted =
      spec.draftsMax === undefined
        ? null
        : this.#drafts.deviceDrafts(planned, deadlineMs - startMs - this.#expectedMs(planned));
    const chunks = planned.map(({ sequence, count, draft }, index): Chunk => {
      const start = sequence.computed;
      if (draft !== undefined) sequence.draft(draft);
      const end = start + count + (draft?.length ?? 0);
      table.gotChunk(sequence, startMs);
      const state = table.kvCache.planState(sequence, start + count);
      return {
        sequence: sequence.id,
        start,
        tokens: sequence.tokensOf(start, end),
        pages: sequence.kv.pageTable(Math.ceil(end / pool.pageTokens)),
        samples: sequence.rows(start, end),
        adapter: sequence.spec.adapter,
        ...(draft === undefined ? {} : { drafted: draft.length }),
        ...(wanted === null ? {} : this.#forDrafts(sequence, start, end, wanted[index]!)),
        ...(state === null ? {} : { state }),
        ...(sequence.spec.secondAt === undefined ? {} : { secondAt: sequence.spec.secondAt - start }),
      };
    });
    this.#hasComputed = planned.length > 0;
    if (warm !== null) chunks.push(warm.chunk);
    if (warm !== null && warm.move !== null) moves.push(warm.move);
    const tokens = chunks.reduce((sum, chunk) => sum + chunk.tokens.length, 0);
    this.#tokensLargest = Math.max(this.#tokensLargest, tokens);
    table.leftOut(skipped);
    reports.skipped(skipped.size);
    const isAbortable =
      warm === null &&
      spec.states === undefined &&
      planned.every(({ sequence }) => sequence.objective.isOffline);
    const step = { number: reports.nextStep, moves, chunks, isAbortable };
    return { step, planned, startMs, deadlineMs, pagesUsed: pool.pagesTotal - pagesAvailable };
  }
}

type DraftFields = Pick<Chunk, "next" | "drafts" | "unread">;

/**
 * `Chunk.unread` of a chunk [start, end). The draft model computes prompts, chunks behind which it drafts, and a page
 * once it is full. It skips other decodes: one token would take it about as long as a whole page.
 */
function unreadOf(
  sequence: Sequence,
  start: number,
  end: number,
  drafts: boolean,
  pageTokens: number,
): Pick<Chunk, "unread"> {
  const fillsPage = Math.floor(end / pageTokens) > Math.floor(start / pageTokens);
  if (!drafts && !fillsPage && sequence.isDecoding) return { unread: null };
  return { unread: sequence.unreadBefore(start, pageTokens) };
}

/**
 * Cuts chunks with prompt log probabilities: a device samples at most `rowsMax` rows in a step, and each
 * chunk needs one.
 */
function withinRows(planned: readonly PlannedChunk[], rowsMax: number): readonly PlannedChunk[] {
  if (planned.every(({ sequence }) => sequence.spec.promptLogprobs === undefined)) return planned;
  let left = rowsMax - planned.length;
  return planned.map((chunk) => {
    if (chunk.sequence.spec.promptLogprobs === undefined) return chunk;
    const count = Math.min(chunk.count, 1 + left);
    left -= count - 1;
    return { ...chunk, count };
  });
}
