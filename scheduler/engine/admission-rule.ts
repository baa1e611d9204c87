import { findInFlightPrefix, type InFlightPrefix } from "./queue/in-flight-prefixes.ts";
import type { Sequence } from "./sequence.ts";
import { type PromptRules, shortestFirst } from "./step/prompt-order.ts";

/** Port: how waiting sequences share memory and steps with those that run. */
export interface AdmissionRule {
  /** Pages that an admission leaves available, besides the watermark, while `running` sequences run. */
  headroom(running: number): number;
  /**
   * The running sequence whose prefix a waiting one waits for; null: it computes the prefix itself.
   * `sharedTokensMin`: tokens that waiting must save.
   */
  findInFlightPrefix(
    waiting: Sequence,
    prompts: readonly Sequence[],
    pageTokens: number,
    sharedTokensMin: number,
  ): InFlightPrefix | null;
  /** Orders unfinished prompts, given by arrival, by who gets tokens first. */
  promptOrder(prompts: readonly Sequence[], rules: PromptRules): Sequence[];
  /**
   * The unfinished prompt that a waiting sequence may overtake, if anything speaks for it; null: it comes
   * after all of them. `prompts`: as ordered.
   */
  overtakable(prompts: readonly Sequence[]): Sequence | null;
  /** Steps that a sequence stays out after so many preemptions, before it may come back. */
  backOffSteps(preemptions: number): number;
}

/** The rule that serves. */
export const servedAdmission: AdmissionRule = {
  // Each running sequence may begin another page at any step.
  headroom: (running) => running,
  findInFlightPrefix,
  promptOrder: shortestFirst,
  overtakable: ([first]) => first ?? null,
  backOffSteps,
};

/**
 * Steps a victim stays out before it may come back: 0 the first time, then 2, 4, 8 … 64. Without it, two
 * sequences that do not fit together would preempt each other in turn.
 */
export function backOffSteps(preemptions: number): number {
  return preemptions < 2 ? 0 : Math.min(64, 2 ** (preemptions - 1));
}
