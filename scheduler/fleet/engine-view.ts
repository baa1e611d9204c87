import type { Objective } from "../core.ts";
import { decodeStepMs, type EngineCosts, promptMs } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { BatchPolicy, TimePolicy } from "../policy.ts";

/**
 * Probe steps of the cost model: a full step of prompt tokens without context, and one after a long context.
 */
const FULL_STEP = 2048;
const LONG_CONTEXT = 16_384;
/** Reports after which the cost model, which learns, is probed again. */
const PACE_REPORTS = 16;
/** Fewest decodes that a step is assumed to have. */
const DECODES_MIN = 8;

/** Load that a new sequence of one objective meets on an engine. */
export class Standing {
  objective: Objective | null = null;
  /** Version of the engine's work that this was computed from; -1: none. */
  changes = -1;
  /** Number of sequences beside it, and their mean context in tokens. */
  running = 0;
  context = 0;
  /** Milliseconds of work per token of its answer. */
  tokenMs = 0;
  /** Milliseconds of all offline work. */
  offlineMs = 0;
  /** Factor by which its prefill takes longer beside decodes (`EngineView.stretch`). */
  stretch = 1;
  /** Number of pages for which offline sequences are preempted. */
  offlinePages = 0;
}

/**
 * Dispatcher's view of one engine, besides its work and its cache: its size, its load, and its token costs.
 */
export class EngineView {
  readonly spec: DeviceSpec;
  readonly costs: EngineCosts;
  readonly #batch: BatchPolicy;
  #load: EngineLoad | null = null;
  #isWarm = false;
  /** Fewest tokens of a prompt that is too long. */
  readonly #tooLong: number;
  /** Number of placements in the window. */
  readonly hits: WindowSum;
  #reportsLeft = 0;
  #tokenMs = 0;
  #attentionMs = 0;
  /** Cached results: placements repeat the same query until the engine's work changes. */
  readonly standing = new Standing();
  /** Token times by number of decodes, since the cost model was last asked. */
  readonly #stretches = new Map<number, number>();

  /** `windowMs`: how long a placement counts. */
  constructor(spec: DeviceSpec, costs: EngineCosts, batch: BatchPolicy, windowMs: number) {
    this.#batch = batch;
    this.spec = spec;
    this.costs = costs;
    this.hits = new WindowSum(windowMs);
    this.#tooLong = Math.min(spec.contextMax, spec.pages * spec.pageTokens);
  }

  /** True if it has computed a step in this incarnation. */
  get isWarm(): boolean {
    return this.#isWarm;
  }

  get pagesFree(): number {
    return this.#load?.pagesFree ?? this.spec.pages;
  }

  /** Pages of its prefix cache that no sequence reads. */
  get pagesCached(): number {
    return this.#load?.pagesCached ?? 0;
  }

  /** True if a prompt of `tokens` can ever run there. */
  fits(tokens: number): boolean {
    return tokens < this.#tooLong;
  }

  /** Records its last report. */
  reported(load: EngineLoad): void {
    this.#load = load;
    this.#isWarm = load.stepsTotal > 0;
    this.standing.changes = -1;
    this.#reportsLeft = Math.max(0, this.#reportsLeft - 1);
  }

  /** Records a placement. */
  placed(nowMs: number): void {
    this.hits.add(1, nowMs);
  }

  /**
   * Milliseconds that `tokens` of a prompt after `context` others add to a busy engine's work: their part of full
   * steps, and their attention. A short prompt alone in a step costs more, as the device reads all weights for few
   * tokens; but under load prompts share their steps.
   */
  promptWorkMs(tokens: number, context: number): number {
    if (this.#reportsLeft === 0) this.#learnPace();
    const meanContext = context + Math.max(0, tokens - FULL_STEP) / 2;
    return tokens * (this.#tokenMs + this.#attentionMs * meanContext);
  }

  /** Milliseconds of work per output token, with `running` sequences in the step. */
  decodeMs(running: number, context: number): number {
    const decodes = Math.max(DECODES_MIN, running);
    return decodeStepMs(this.costs, decodes, context) / decodes;
  }

  /**
   * The part of a full step that is left for prompts where `running` decodes keep to `tbtMs`, 0 … 1, roughly.
   */
  promptShare(tbtMs: number, running: number, context: number): number {
    const decodesMs = running === 0 ? 0 : decodeStepMs(this.costs, running, context);
    return Math.max(0, Math.min(1, (tbtMs - decodesMs) / promptMs(this.costs, FULL_STEP, 0)));
  }

  /**
   * Factor ≥ 1 by which prefill takes longer beside `decodes` decodes of `context` tokens each than in full steps,
   * because steps must keep the TBT target. An engine that is too slow for its target, or full of decodes, has
   * hardly any time for prompts, however few wait there.
   */
  stretch(decodes: number, context: number): number {
    if (decodes === 0 || this.#batch.kind !== "time" || this.#batch.tbtMs === null) return 1;
    if (this.#reportsLeft === 0) this.#learnPace();
    let stretch = this.#stretches.get(decodes);
    if (stretch === undefined) {
      stretch = this.#stretch(this.#batch, this.#batch.tbtMs, { decodes, decodeContext: decodes * context });
      this.#stretches.set(decodes, stretch);
    }
    return stretch;
  }

  #stretch(
    { margin, starvationMs }: TimePolicy,
    tbtMs: number,
    beside: { readonly decodes: number; readonly decodeContext: number },
  ): number {
    const takesMs = (tokens: number): number =>
      this.costs.stepMs({ ...beside, prompts: [{ tokens, context: 0 }] });
    const limitMs = tbtMs / (1 + margin + (this.costs.margin ?? 0));
    const fullMs = takesMs(FULL_STEP) / FULL_STEP;
    // The most that fits, in tiles; with no room, a tile now and then (engine/step/time-budget.ts).
    const tile = this.costs.tileTokens;
    let fits = 0;
    let tooMuch = Math.ceil(FULL_STEP / tile) + 1;
    while (tooMuch - fits > 1) {
      const middle = (fits + tooMuch) >> 1;
      if (takesMs(middle * tile) <= limitMs) fits = middle;
      else tooMuch = middle;
    }
    const tokenMs = fits === 0 ? starvationMs / tile : takesMs(fits * tile) / (fits * tile);
    return Math.max(1, tokenMs / fullMs);
  }

  #learnPace(): void {
    this.#stretches.clear();
    this.#reportsLeft = PACE_REPORTS;
    const fullMs = promptMs(this.costs, FULL_STEP, 0);
    this.#tokenMs = fullMs / FULL_STEP;
    const longMs = promptMs(this.costs, FULL_STEP, LONG_CONTEXT);
    this.#attentionMs = Math.max(0, longMs - fullMs) / (FULL_STEP * LONG_CONTEXT);
  }
}

/**
 * A sum over about the last `windowMs` (sliding window counter). It adds up the current interval of that length and
 * the interval before, weighted by its share that the window still covers.
 */
export class WindowSum {
  readonly #windowMs: number;
  #sinceMs = 0;
  #current = 0;
  #previous = 0;

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  add(value: number, nowMs: number): void {
    this.#roll(nowMs);
    this.#current += value;
  }

  at(nowMs: number): number {
    this.#roll(nowMs);
    return this.#current + this.#previous * (1 - (nowMs - this.#sinceMs) / this.#windowMs);
  }

  #roll(nowMs: number): void {
    const elapsed = nowMs - this.#sinceMs;
    if (elapsed < this.#windowMs) return;
    this.#previous = elapsed < 2 * this.#windowMs ? this.#current : 0;
    this.#current = 0;
    this.#sinceMs = nowMs - (elapsed % this.#windowMs);
  }
}
