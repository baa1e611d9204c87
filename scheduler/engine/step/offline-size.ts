import {
  type PromptDemand,
  QUIET,
  QUIET_AFTER_MS,
  type SizeChoice,
  type SizeRule,
  type StepLimits,
  type StepWork,
} from "./size-rule.ts";
import { nextTile, type StepPrediction } from "./step-prediction.ts";

/**
 * Largest delay of the next stream by an offline step, as a part of its prompt's usual time; the average
 * delay is half of that. It applies if a stream has run of late.
 */
const NOTICED = 0.2;

/**
 * Offline work alone: takes the size with the least time per token, among the sizes that the next stream can wait
 * for. Attention costs the same in steps of any size, so the rule leaves it out.
 *
 * A step with p prompt tokens takes T, and T0 without them. Where prompts find room only as answers end, memory
 * refills by r tokens a step (`refillTokens`), with prompts in it or not.
 *
 *   p ≤ r   memory is not full: every step has p, and decodes in proportion. A token takes T / size, decodes included.
 *   p > r   one step of p / r has prompts, and the others have decodes alone: a token of prompts takes (T - T0) / p + T0 / r.
 *
 * The second cost is the same for every p if T grows evenly. A step takes at least the time to read the weights.
 * Below that, prompt tokens beside decodes are nearly free, and steps of r tokens beat a few large ones.
 */
export class OfflineSize implements SizeRule {
  readonly #step: StepPrediction;
  readonly #work: StepWork;

  constructor(step: StepPrediction, work: StepWork) {
    this.#step = step;
    this.#work = work;
  }

  choose({ left, context, sizeMax }: PromptDemand, { targetMs }: StepLimits): SizeChoice {
    const { tokens: before, fineQuantum } = this.#step;
    const waitMs = this.#waitMs;
    const aloneMs = this.#step.bareMs(before);
    let best = Math.min(nextTile(before, fineQuantum), sizeMax);
    let leastMs = Number.POSITIVE_INFINITY;
    for (let size = best; ; size = Math.min(size + fineQuantum, sizeMax)) {
      const tokens = Math.min(left, size - before);
      if (this.#step.msWith(tokens, context, size - before - tokens) > waitMs) break;
      const ms = this.#tokenMs(size, aloneMs);
      if (ms <= leastMs) [best, leastMs] = [size, ms];
      if (size === sizeMax) break;
    }
    return { size: best, limitMs: targetMs };
  }

  /**
   * The limit of a step. A stream that comes meanwhile waits for the step's end or its next abort point. An
   * aborted step's work is lost, so it takes no longer than a step beside streams.
   */
  get #waitMs(): number {
    const { history, backlog, stepMs } = this.#work;
    if (history.quietMs >= QUIET_AFTER_MS) return QUIET * stepMs;
    return Math.min(stepMs, history.abortPoints * NOTICED * this.#step.promptMs(backlog.streamTokens));
  }

  /** Time per prompt token in steps of this size; without prompts a step takes `aloneMs`. */
  #tokenMs(size: number, aloneMs: number): number {
    const { refillTokens } = this.#work.backlog;
    const before = this.#step.tokens;
    const tokens = size - before;
    const tookMs = this.#step.bareMs(size);
    if (tokens <= refillTokens) return (tookMs / size) * (1 + before / refillTokens);
    return (tookMs - aloneMs) / tokens + aloneMs / refillTokens;
  }
}
