import {
  type PromptDemand,
  QUIET,
  type SizeChoice,
  type SizeRule,
  type StepLimits,
  type StepWork,
  sizesWithin,
} from "./size-rule.ts";
import type { StepLoad } from "./step-load.ts";
import type { StepPrediction } from "./step-prediction.ts";
import { leastDelay, type SizeOption, takesTail } from "./step-size.ts";

/**
 * Streams: of the sizes in which they keep their targets and their pace, the one with the least total delay.
 */
export class StreamSize implements SizeRule {
  readonly #step: StepPrediction;
  readonly #load: StepLoad;
  readonly #work: StepWork;

  constructor(step: StepPrediction, load: StepLoad, work: StepWork) {
    this.#step = step;
    this.#load = load;
    this.#work = work;
  }

  choose(demand: PromptDemand, limits: StepLimits): SizeChoice {
    const options = sizesWithin(this.#step, demand, limits);
    const [smallest] = options;
    if (smallest === undefined) return { size: this.#step.tokens, limitMs: limits.targetMs };
    const limitMs = Math.min(limits.targetMs, Math.max(limits.untargetedMs, smallest.tookMs));
    const chosen = this.#leastDelay(options, demand);
    const all = options.at(-1)!;
    return { size: (this.#takesAll(chosen, all, demand) ? all : chosen).size, limitMs };
  }

  #leastDelay(options: readonly SizeOption[], { left }: PromptDemand): SizeOption {
    const { backlog } = this.#work;
    const { tokens: decodes } = this.#step;
    const aloneMs = decodes === 0 ? 0 : this.#step.ms;
    const size = leastDelay(options, {
      decodes,
      streams: this.#streams,
      aloneMs,
      contextMs: this.#step.contextMs(aloneMs),
      prompts: this.#prompts,
      promptTokens: Math.max(left, backlog.likelyTokens),
      answerTokens: backlog.answerTokens,
      patienceMs: this.#patienceMs,
    });
    return options.find((option) => option.size === size)!;
  }

  /**
   * True if the step also computes the short rest that `chosen` leaves of all prompts; `all`: the largest
   * size.
   */
  #takesAll(chosen: SizeOption, all: SizeOption, { context, promptTokens }: PromptDemand): boolean {
    const rest = this.#step.tokens + promptTokens - chosen.size;
    if (rest === 0 || all.size !== chosen.size + rest) return false;
    const isAlone = this.#streams === 0 && this.#load.prompts <= 1 && all.tookMs <= this.#patienceMs;
    if (rest > this.#step.quantum && !isAlone) return false;
    const restMs = this.#step.msWith(rest, context + chosen.size);
    return takesTail(all.tookMs - chosen.tookMs, restMs, { prompts: this.#prompts, streams: this.#streams });
  }

  /**
   * Decodes whose delay counts. Offline prompts beside an online one are no reason to cut that: it is
   * computed as it would be without.
   */
  get #streams(): number {
    return this.#work.backlog.countsOffline ? this.#step.tokens : this.#load.onlineDecodes.count;
  }

  get #prompts(): number {
    return Math.max(1, this.#load.prompts);
  }

  get #patienceMs(): number {
    return QUIET * this.#work.stepMs;
  }
}
