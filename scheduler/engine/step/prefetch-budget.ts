import type { CostModel, StepShape } from "../../cost/cost-model.ts";

/** A step, and a piece of a prefix hint that it might also compute. */
export interface PrefetchStep {
  /** The step's shape: decodes and no prompts, beside which nothing is computed ahead. */
  readonly shape: StepShape;
  /** True if every decode belongs to the program that waits for the piece. */
  readonly isOwn: boolean;
  /** Number of steps with such decodes, this one included, ≥ 1, as far as is known. */
  readonly steps: number;
  /** Most tokens that may be added to the step. */
  readonly tokensMax: number;
  /** Missing tokens of the prefix hint, after `context` cached ones. */
  readonly left: number;
  readonly context: number;
}

/** Limit of a step with nothing else in it: a sequence that comes meanwhile waits for its end. */
const IDLE_MS = 25;
/** Limit of a step beside decodes of its own program alone, in times of the step without the piece. */
const OWN_TIMES = 2;
/** Tokens of a step with such a piece: the first few multiples are compared, then sizes that grow by half. */
const TOKENS_MIN = 8;
/** Fewest tokens of the prompt in which a token's usual cost is measured. */
const PROMPT_TOKENS = 256;
/** Time to plan and report a prefetch chunk and to insert it in the cache, which step predictions leave out. */
const PIECE_MS = 0.1;
/** Most that a prefetched token may cost, as a share of its cost in the prompt: a margin for prediction errors. */
const WORTH = 0.85;
/** Largest relative difference of predictions that count as equal. */
const EQUAL = 1e-9;

/**
 * Tokens of a prefix hint that fit into a step; 0: none. By prediction:
 *
 *   nothing else runs                       as many as fit `IDLE_MS`
 *   decodes of others                       as many as leave the step's time unchanged
 *   decodes of the same program, no target  the size with the largest gain for the program until they end
 *
 * The gain is the difference to the tokens' cost in the call's own prompt. It counts in as many of the next
 * steps as the prefix hint lasts for. Costs about 16 predictions.
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

/**
 * Chooses the size of a piece beside decodes: a device that reads its weights once per step computes some
 * tokens beside a decode for little. Where more decodes are to come than pieces, the cost of each token
 * counts; where fewer, the gain of a step.
 */
function cheapest(costs: CostModel, { shape, steps, left, context }: PrefetchStep, most: number): number {
  const aloneMs = costs.stepMs(shape);
  // The rest belongs to a longer prompt: there it is not among a step's first tokens, and has the same
  // context.
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
    // The largest of equally good sizes is done soonest.
    if (gainedMs > 0 && gainedMs >= mostMs * (1 - EQUAL)) [mostMs, best] = [gainedMs, tokens];
    if (tokens === most) break;
  }
  return best;
}
