import type { CostModel, StepShape } from "../../cost/cost-model.ts";

/** What a step has, and a piece of a prefix hint that it might have as well. */
export interface PrefetchStep {
  /** Decodes, and no prompts: where these are, nothing is spare. */
  readonly shape: StepShape;
  /** Whether every decode is of the program that waits for the piece. */
  readonly isOwn: boolean;
  /** So many more steps have such decodes, this one counted, ≥ 1; as far as is known. */
  readonly steps: number;
  /** Tokens that the step may have more. */
  readonly tokensMax: number;
  /** Of the piece: tokens that are missing, after so many that are there. */
  readonly left: number;
  readonly context: number;
}

/** A step with nothing else in it takes so long at most: whatever comes meanwhile waits for its end. */
const IDLE_MS = 25;
/** Beside decodes of its own program alone a piece makes a step so many times as long at most. */
const OWN_TIMES = 2;
/** With such pieces the step has so many tokens: the first few multiples are compared, then every one by a half larger than the one
 *  before. */
const TOKENS_MIN = 8;
/** What a token costs in the prompt of the call is seen in one of so many tokens at least. */
const PROMPT_TOKENS = 256;
/** Planning a piece, telling of it and handing it to the cache take so long, which no prediction of a step has. */
const PIECE_MS = 0.1;
/** Its tokens cost this part of what they do in the prompt at most: two predictions are compared, and either may be off. */
const WORTH = 0.85;
/** Predictions that differ by no larger share are equal. */
const EQUAL = 1e-9;

/**
 * Tokens of a prefix hint that a step can have; 0: none. By prediction:
 *
 *   nothing else runs                       as many as fit `IDLE_MS`
 *   decodes of others                       as many as make the step no longer at all
 *   decodes of the same program, no target  the size by which the program gains most until they end: what its tokens cost less than in the call's
 *                                           own prompt, in as many of the steps to come as the prefix hint lasts for
 *
 * About 16 predictions.
 */
export function prefetchTokens(costs: CostModel, step: PrefetchStep): number {
  const { shape, isOwn, tokensMax, left, context } = step;
  if (shape.prompts.length > 0) return 0;
  const most = Math.min(left, tokensMax);
  if (most <= 0) return 0;
  if (shape.decodes > 0 && isOwn) return cheapest(costs, step, most);
  const aloneMs = shape.decodes === 0 ? 0 : costs.stepMs(shape);
  const limitMs = aloneMs === 0 ? IDLE_MS : aloneMs * (1 + EQUAL);
  const fits = (tokens: number): boolean =>
    costs.stepMs({ ...shape, prompts: [{ tokens, context }] }) <= limitMs;
  if (fits(most)) return most;
  let [good, bad] = [0, most];
  while (bad - good > 1) {
    const middle = (good + bad) >>> 1;
    if (fits(middle)) good = middle;
    else bad = middle;
  }
  // An idle device computes one tile at a time at least, however slow it is.
  return good === 0 && aloneMs === 0 ? Math.min(most, Math.max(1, costs.tileTokens)) : good;
}

/** A device that reads its weights once per step computes some tokens beside a decode for little. Where there are more decodes to come than
 *  pieces, it is the cost of each token that counts; where there are fewer, what a step gains. */
function cheapest(costs: CostModel, { shape, steps, left, context }: PrefetchStep, most: number): number {
  const aloneMs = costs.stepMs(shape);
  // What is left over belongs to a longer prompt: there it is not among a step's first tokens, and looks at as many as here.
  const rest = Math.max(left, PROMPT_TOKENS);
  const before = Math.max(0, context + Math.floor((left - rest) / 2));
  const promptMs = (tokens: number, context: number): number =>
    costs.stepMs({ prompts: [{ tokens, context }], decodes: 0, decodeContext: 0 });
  const savedMs = promptMs(rest, before) - promptMs(1, before + rest - 1);
  const worthMs = (savedMs / (rest - 1)) * WORTH;
  let [mostMs, best] = [0, 0];
  let size = TOKENS_MIN;
  while (size <= shape.decodes) size += TOKENS_MIN;
  for (; ; size = size < 8 * TOKENS_MIN ? size + TOKENS_MIN : Math.floor(size * 1.5)) {
    const tokens = Math.min(most, size - shape.decodes);
    const tookMs = costs.stepMs({ ...shape, prompts: [{ tokens, context }] });
    if (tookMs > OWN_TIMES * aloneMs) break;
    const pieces = Math.min(steps, left / tokens);
    const gainedMs = pieces * (tokens * worthMs - (tookMs - aloneMs) - PIECE_MS);
    // Of sizes that are as good the largest is soonest done.
    if (gainedMs > 0 && gainedMs >= mostMs * (1 - EQUAL)) [mostMs, best] = [gainedMs, tokens];
    if (tokens === most) break;
  }
  return best;
}
