import type { Sequence } from "../sequence.ts";

/** The state of the queue by which unfinished prompts are ordered. */
export interface PromptRules {
  isAged(sequence: Sequence): boolean;
  readonly nowMs: number;
}

/** Time without a chunk after which a prompt is not overtaken any more. */
const PATIENCE_MS = 2000;

/** True if a prompt has had no chunk for so long that none of its objective overtakes it. */
export function isStarving({ pacing }: Sequence, nowMs: number): boolean {
  return nowMs - pacing.lastChunkMs >= PATIENCE_MS;
}

/**
 * Orders unfinished prompts, given by arrival: the one that has least left is first, so that a long prompt,
 * which takes many steps, does not delay all others by that much. Prompts that are starving or aged go before
 * the rest, by arrival.
 */
export function shortestFirst(prompts: readonly Sequence[], { isAged, nowMs }: PromptRules): Sequence[] {
  const leftOf = (sequence: Sequence): number =>
    isStarving(sequence, nowMs) || isAged(sequence) ? 0 : sequence.behind;
  // The sort is stable: equal ones stay in order of arrival.
  return prompts.toSorted((a, b) => leftOf(a) - leftOf(b));
}

/** Orders prompts by objective, and keeps the given order within one. */
export function byObjective(prompts: readonly Sequence[]): Sequence[] {
  return prompts.toSorted((a, b) => a.objective.precedence - b.objective.precedence);
}
