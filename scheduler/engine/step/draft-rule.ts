import type { DraftOffer } from "./step-rule.ts";

/** Prices of a step's rows of drafts. */
export interface DraftPrices {
  /** Number of the step's decodes. */
  readonly decodes: number;
  /** Tokens that the slowest stream without an offer drew per step of late; Infinity: there is none. */
  readonly others: number;
  /** Time of the step's decodes alone. */
  readonly aloneMs: number;
  /** Time by which rows lengthen the step whose contexts have `context` tokens together. */
  addedMs(rows: number, context: number): number;
  /** Most milliseconds that rows may add. */
  readonly addedMax: number;
}

/** Least gain of drafts, as a share of the pace without any. */
const GAIN = 0.01;
/** Most by which a step may become longer, as a share, beside a stream that draws one token in it. */
export const NOTICED = 0.25;
/** Most rows of a step that are weighed one by one. */
const ROWS_MAX = 128;

/**
 * Chooses how many tokens of each draft a step checks. The rows with the best chances are taken, up to the
 * number with the most expected tokens per millisecond (goodput, SmartSpec, arXiv:2406.14066):
 *
 *   pace = (decodes + Σ chance of each row) / (time of the decodes alone + time that the rows add)
 *
 * So a won token is worth a step of decodes divided by the tokens of the step, and rows pay less the more
 * decodes share it: under load there are no drafts. Prompts do not count. Rows delay those of this step, but at
 * a higher pace all decodes take less time together, which prompts then have. The added time is that of the
 * step with its prompts.
 *
 * A stream that draws one token a step waits for the rows of others, and those end sooner. Beside it a step
 * becomes longer by `NOTICED` at most; a stream with more tokens a step bears as much more. Returns a number
 * per offer.
 */
export function chooseDrafts(offers: readonly DraftOffer[], prices: DraftPrices, rowsMax: number): number[] {
  const { decodes, others, aloneMs, addedMax } = prices;
  const counts = offers.map(() => 0);
  let best = { rows: 0, pace: ((1 + GAIN) * decodes) / aloneMs };
  const ordered = inOrder(offers).slice(0, Math.min(rowsMax, ROWS_MAX));
  const expected = offers.map(({ sequence }) => ({ sequence, tokens: 1 }));
  const paid = new PaidRows(offers);
  let tokens = decodes;
  let context = 0;
  for (const [index, { offer, chance }] of ordered.entries()) {
    tokens += chance;
    expected[offer]!.tokens += chance;
    context += offers[offer]!.sequence.length;
    const addedMs = prices.addedMs(paid.add(offer, chance), context);
    if (addedMs > addedMax) break;
    const pace = tokens / (aloneMs + addedMs);
    if (pace <= best.pace) continue;
    const slowest = expected.reduce((least, one) => Math.min(least, advanceOf(one)), others);
    if (aloneMs + addedMs <= (1 + NOTICED) * slowest * aloneMs) best = { rows: index + 1, pace };
  }
  for (const { offer } of ordered.slice(0, best.rows)) counts[offer]! += 1;
  return counts;
}

/**
 * Rows that drafts cost. A state is copied before a draft, which takes about as long as a row. If the draft is
 * not all right, its right tokens are computed again.
 */
class PaidRows {
  readonly #offers: readonly DraftOffer[];
  /** Rows of each draft, and its expected number of right tokens. */
  readonly #rows: number[];
  readonly #right: number[];
  /** Rows that each draft adds beside its own. */
  readonly #more: number[];
  #total = 0;

  constructor(offers: readonly DraftOffer[]) {
    this.#offers = offers;
    this.#rows = offers.map(() => 0);
    this.#right = offers.map(() => 0);
    this.#more = offers.map(() => 0);
  }

  /** Adds a row that is right with this chance; returns the expected rows of all. */
  add(offer: number, chance: number): number {
    this.#total += 1;
    if (this.#offers[offer]!.goesBack !== true) return this.#total;
    this.#rows[offer]! += 1;
    this.#right[offer]! += chance;
    const more = 1 + this.#right[offer]! - this.#rows[offer]! * chance;
    this.#total += more - this.#more[offer]!;
    this.#more[offer] = more;
    return this.#total;
  }
}

/** True if some number of rows would be worth its time although nothing is known of the drafts. */
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

/** All rows, the best chances first; those of a draft in its order. */
function inOrder(offers: readonly DraftOffer[]): { readonly offer: number; readonly chance: number }[] {
  const rows = offers.flatMap(({ chances }, offer) => chances.map((chance) => ({ offer, chance })));
  return rows.sort((a, b) => b.chance - a.chance);
}

/** Tokens that a stream draws in a step: as expected of this one, or of late. Infinity: no stream. */
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
