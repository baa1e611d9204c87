import type { Sequence } from "../sequence.ts";

/** What the order of unfinished prompts goes by. */
export interface PromptRules {
  readonly hasLanes: boolean;
  /** Whether shorter prompts go before longer ones. */
  readonly overtakes: boolean;
  isAged(sequence: Sequence): boolean;
  readonly nowMs: number;
}

/** A prompt that has had no chunk for so long is not overtaken any more. */
const PATIENCE_MS = 2000;

/** Whether a prompt has had no chunk for so long that none of its objective overtakes it. */
export function isStarving({ pacing }: Sequence, nowMs: number): boolean {
  return nowMs - pacing.lastChunkMs >= PATIENCE_MS;
}

/**
 * Unfinished prompts in the order in which they get tokens: `prompts` by arrival; with lanes by objective first. With
 * `overtakes` the one that has least left is first, so that a long prompt, which takes many steps, does not delay all
 * others by that much; prompts that are starving or aged go before the rest, by arrival.
 */
export function promptOrder(prompts: readonly Sequence[], rules: PromptRules): Sequence[] {
  const ordered = prompts.slice();
  const leftOf = (sequence: Sequence): number =>
    isStarving(sequence, rules.nowMs) || rules.isAged(sequence) ? 0 : sequence.behind;
  // Stable sorts: what they leave open stays in order of arrival.
  if (rules.overtakes) ordered.sort((a, b) => leftOf(a) - leftOf(b));
  if (rules.hasLanes) ordered.sort((a, b) => a.objective.precedence - b.objective.precedence);
  return ordered;
}
