import {
  type PromptDemand,
  QUIET,
  QUIET_AFTER_MS,
  type SizeChoice,
  type SizeRule,
  type StepLimits,
  type StepWork,
  sizesWithin,
} from "./size-rule.ts";
import type { StepPrediction } from "./step-prediction.ts";

/**
 * Task groups without a stream beside them. The last request of a group decides its end, so steps are as large
 * as the next stream can wait for.
 */
export class TaskGroupSize implements SizeRule {
  readonly #step: StepPrediction;
  readonly #work: StepWork;

  constructor(step: StepPrediction, work: StepWork) {
    this.#step = step;
    this.#work = work;
  }

  choose(demand: PromptDemand, limits: StepLimits): SizeChoice {
    const options = sizesWithin(this.#step, demand, limits);
    const largest = options.findLast(({ tookMs }) => this.#isTolerable(tookMs)) ?? options[0];
    return { size: largest?.size ?? this.#step.tokens, limitMs: limits.targetMs };
  }

  /**
   * True if a step may take this long. Each additional step costs the group a step's fixed time. A stream
   * that arrives meanwhile waits for half a step on average. If one arrives every `quietMs`, the sum of both
   * is least with steps of √(2 · fixed · quietMs). If none has ever arrived, there is no estimate for the
   * next one.
   */
  #isTolerable(ms: number): boolean {
    const { history, stepMs } = this.#work;
    if (ms <= QUIET * stepMs) return true;
    if (history.quietMs === Number.POSITIVE_INFINITY) return false;
    return ms * ms <= 2 * this.#step.promptMs(1) * Math.min(history.quietMs, QUIET_AFTER_MS);
  }
}
