import {
  type PromptDemand,
  QUIET,
  QUIET_AFTER_MS,
  type SizeChoice,
  type SizeRule,
  type StepLimits,
  type StepWork,
} from "./size-rule.ts";
import type { StepPrediction } from "./step-prediction.ts";
import { nextTile } from "./tile.ts";

/** Where a stream has run of late, the next one waits no longer for an offline step than this part of the time that its prompt usually takes,
 *  and half as long on average. */
const NOTICED = 0.2;

/**
 * Offline work that is alone: of the sizes that what comes next can wait for, the one in which a token takes least. What tokens look at is
 * the same in steps of any size, and left out.
 *
 * A step of p tokens of prompts takes T, and T0 without them. Where prompts find room only as answers end, that is as many steps as answers take,
 * with prompts in them or not: r tokens in each (`refillTokens`).
 *
 *   p ≤ r   memory is not full: every step has p, and decodes in proportion. A token takes T / size, decodes included.
 *   p > r   one step of p / r has prompts, and the others have decodes alone: a token of prompts takes (T - T0) / p + T0 / r.
 *
 * Where T grows evenly, the second is the same for every p. But no step takes less than reading the weights does, and up to there tokens of prompts
 * cost nearly nothing beside decodes: then steps of r are better than ones of many tokens between ones of few.
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

  /** How long a step may take. A stream that comes meanwhile waits for its end, or for the next place in which it can be aborted; what it has
   *  computed is lost then, so that it takes no longer than a step beside streams. */
  get #waitMs(): number {
    const { history, backlog, stepMs } = this.#work;
    if (history.quietMs >= QUIET_AFTER_MS) return QUIET * stepMs;
    return Math.min(stepMs, history.abortPoints * NOTICED * this.#step.promptMs(backlog.streamTokens));
  }

  /** How long each token of prompts takes in steps of this size; without prompts a step takes `aloneMs`. */
  #tokenMs(size: number, aloneMs: number): number {
    const { refillTokens } = this.#work.backlog;
    const before = this.#step.tokens;
    const tokens = size - before;
    const tookMs = this.#step.bareMs(size);
    if (tokens <= refillTokens) return (tookMs / size) * (1 + before / refillTokens);
    return (tookMs - aloneMs) / tokens + aloneMs / refillTokens;
  }
}
