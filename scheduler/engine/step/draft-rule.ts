import type { DraftOffer } from "./step-rule.ts";

/** Predicted cost of verifying drafts in a step. A row verifies one draft token. */
export interface DraftPrices {
  /** Number of the step's decodes. */
  readonly decodes: number;
  /** Recent tokens per step of the slowest stream without a draft (`Pacing.advance`); Infinity: there is none. */
  readonly others: number;
  /** Time of the step's decodes alone. */
  readonly aloneMs: number;
  /** Milliseconds that `rows` rows add to the step. `context`: context lengths of the rows, summed. */
  addedMs(rows: number, context: number): number;
  /** Most milliseconds that rows may add. */
  readonly addedMax: number;
}

/** Least relative gain in goodput for which drafts are verified at all. */
const GAIN = 0.01;
/** Largest relative increase of the time per output token of a stream that has no drafts itself. */
export const NOTICED = 0.25;
/** Rows that the search considers at most. */
const ROWS_MAX = 128;

/**
 * Chooses how many tokens of each draft a step verifies: the rows most likely to be accepted, in the number with
 * the highest goodput, the expected tokens per millisecond (SmartSpec, arXiv:2406.14066):
 *
 *   goodput = (decodes + Σ acceptance probability of each row) / (time of the decodes alone + time that the rows add)
 *
 * The more decodes share a step, the less a row adds to its goodput: under load no drafts are verified. Prompt
 * tokens do not count towards goodput. Rows delay the prompts of this step, but decodes that need fewer steps leave
 * more time to prompts. The added time is that of the step with its prompts.
 *
 * A stream without accepted drafts gets one token per step, and waits for the rows of others. Beside it a step
 * becomes longer by `NOTICED` at most; a stream with k tokens per step allows k times the time. Returns the number
 * of verified tokens per offer.
 */
export function chooseDrafts(offers: readonly DraftOffer[], prices: DraftPrices, rowsMax: number): number[] {
  const { decodes, others, aloneMs, addedMax } = prices;
  const counts = offers.map(() => 0);
  let best = { rows: 0, goodput: ((1 + GAIN) * decodes) / aloneMs };
  const ordered = inOrder(offers).slice(0, Math.min(rowsMax, ROWS_MAX));
  const expected = offers.map(({ sequence }) => ({ sequence, tokens: 1 }));
  const paid = new RowCost(offers);
  let tokens = decodes;
  let context = 0;
  for (const [index, { offer, chance }] of ordered.entries()) {
    tokens += chance;
    expected[offer]!.tokens += chance;
    context += offers[offer]!.sequence.length;
    const addedMs = prices.addedMs(paid.add(offer, chance), context);
    if (addedMs > addedMax) break;
    const goodput = tokens / (aloneMs + addedMs);
    if (goodput <= best.goodput) continue;
    const slowest = expected.reduce((least, one) => Math.min(least, advanceOf(one)), others);
    if (aloneMs + addedMs <= (1 + NOTICED) * slowest * aloneMs) best = { rows: index + 1, goodput };
  }
  for (const { offer } of ordered.slice(0, best.rows)) counts[offer]! += 1;
  return counts;
}

/**
 * Cost of drafts in rows. With recurrent layers a draft costs more than its own rows. The device copies the state
 * before it, which takes about as long as a row. If any of its tokens is rejected, the accepted ones are recomputed.
 */
class RowCost {
  readonly #offers: readonly DraftOffer[];
  /** Rows of each draft, and its expected number of accepted tokens. */
  readonly #rows: number[];
  readonly #accepted: number[];
  /** Rows that each draft costs besides its own: the copy, and the expected recomputation. */
  readonly #more: number[];
  #total = 0;

  constructor(offers: readonly DraftOffer[]) {
    this.#offers = offers;
    this.#rows = offers.map(() => 0);
    this.#accepted = offers.map(() => 0);
    this.#more = offers.map(() => 0);
  }

  /**
   * Adds a draft's next row. `chance`: probability that it and all rows before it are accepted. Returns the
   * expected rows of all drafts.
   */
  add(offer: number, chance: number): number {
    this.#total += 1;
    if (this.#offers[offer]!.rollsBack !== true) return this.#total;
    this.#rows[offer]! += 1;
    this.#accepted[offer]! += chance;
    const more = 1 + this.#accepted[offer]! - this.#rows[offer]! * chance;
    this.#total += more - this.#more[offer]!;
    this.#more[offer] = more;
    return this.#total;
  }
}

/** True if some number of rows would pay if all were accepted: the upper bound before any drafter is asked. */
export function isWorthDrafting(
  prices: Omit<DraftPrices, "others">,
  context: number,
  rowsMax: number,
): boolean {
  const { decodes, aloneMs, addedMax } = prices;
  for (let rows = 1; rows <= Math.min(rowsMax, ROWS_MAX); rows *= 2) {
    const addedMs = prices.addedMs(rows, context * rows);
    if (addedMs > addedMax) return false;
    if ((decodes + rows) / (aloneMs + addedMs) > ((1 + GAIN) * decodes) / aloneMs) return true;
  }
  return false;
}

/** All rows, the most likely to be accepted first. Rows of one draft stay in order, as their probabilities never rise. */
function inOrder(offers: readonly DraftOffer[]): { readonly offer: number; readonly chance: number }[] {
  const rows = offers.flatMap(({ chances }, offer) => chances.map((chance) => ({ offer, chance })));
  return rows.sort((a, b) => b.chance - a.chance);
}

/** Tokens per step of a stream: the expected number in this step, or its recent average if larger. Infinity: no stream. */
function advanceOf({
  sequence,
  tokens,
}: {
  readonly sequence: DraftOffer["sequence"];
  readonly tokens: number;
}): number {
  const { objective, pacing } = sequence;
  return objective.isInteractive ? Math.max(tokens, pacing.advance) : Number.POSITIVE_INFINITY;
}
