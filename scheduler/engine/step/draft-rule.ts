import type { DraftOffer } from "./step-rule.ts";

/** Prices of a step's rows of drafts. */
export interface DraftPrices {
  /** Sequences that the step's time delays: its decodes, and the prompts that are unfinished or wait. */
  readonly delayed: number;
  /** Decodes of the step whose clients read along. */
  readonly streams: number;
  /** Time of the step's decodes alone. */
  readonly aloneMs: number;
  /** Time by which rows lengthen the step whose contexts have `context` tokens together. */
  addedMs(rows: number, context: number): number;
  /** Most milliseconds that rows may add, and that rows of offline sequences may. */
  readonly addedMax: number;
  readonly offlineAddedMax: number;
}

/** Fewest rows by which a step must advance more in its time than without drafts, as a share: costs are estimates. */
const GAIN = 0.03;
/** Most by which drafts may slow a stream down that expects too few right ones itself. */
const NOTICED = 0.02;
/** Most rows of a step that are weighed one by one. */
const ROWS_MAX = 128;

/**
 * Chooses how many tokens of each draft a step checks. A step advances each sequence that it delays by one:
 * decodes by a token, prompts by a part. Right drafts advance their sequences further, and rows take time:
 *
 *   advance per millisecond = (delayed + Σ chance of each row) / (alone + added)
 *
 * The rows with the best chances are taken up to the number with the highest advance (goodput, SmartSpec,
 * arXiv:2406.14066). A won token therefore counts as one step of decodes saved. The more sequences the step
 * delays, the less that is against a row's time, so that under load there are no drafts. No stream becomes
 * slower by the drafts of others, but for `NOTICED`. Returns a number per offer.
 */
export function chooseDrafts(offers: readonly DraftOffer[], prices: DraftPrices, rowsMax: number): number[] {
  const { delayed, streams, aloneMs, addedMax, offlineAddedMax } = prices;
  const counts = offers.map(() => 0);
  let best = { rows: 0, pace: ((1 + GAIN) * delayed) / aloneMs };
  const ordered = inOrder(offers).slice(0, Math.min(rowsMax, ROWS_MAX));
  const expected = offers.map(() => 1);
  const drafting = new Set<number>();
  let advance = delayed;
  let context = 0;
  let hasOffline = false;
  for (const [index, { offer, chance }] of ordered.entries()) {
    const { objective, length } = offers[offer]!.sequence;
    advance += chance;
    expected[offer]! += chance;
    context += length;
    hasOffline ||= objective.isOffline;
    if (objective.isInteractive) drafting.add(offer);
    const addedMs = prices.addedMs(index + 1, context);
    if (addedMs > (hasOffline ? offlineAddedMax : addedMax)) break;
    const least = drafting.size < streams ? 1 : leastOf(drafting, expected);
    if (aloneMs + addedMs > (1 + NOTICED) * least * aloneMs && streams > 0) continue;
    const pace = advance / (aloneMs + addedMs);
    if (pace > best.pace) best = { rows: index + 1, pace };
  }
  for (const { offer } of ordered.slice(0, best.rows)) counts[offer]! += 1;
  return counts;
}

/** True if some number of rows would be worth its time although nothing is known of the drafts. */
export function isWorthDrafting(prices: DraftPrices, context: number, rowsMax: number): boolean {
  const { delayed, aloneMs, addedMax } = prices;
  for (let rows = 1; rows <= Math.min(rowsMax, ROWS_MAX); rows *= 2) {
    const addedMs = prices.addedMs(rows, context * rows);
    if (addedMs > addedMax) return false;
    if ((delayed + rows) / (aloneMs + addedMs) > ((1 + GAIN) * delayed) / aloneMs) return true;
  }
  return false;
}

/** All rows, the best chances first; those of a draft in its order. */
function inOrder(offers: readonly DraftOffer[]): { readonly offer: number; readonly chance: number }[] {
  const rows = offers.flatMap(({ chances }, offer) => chances.map((chance) => ({ offer, chance })));
  return rows.sort((a, b) => b.chance - a.chance);
}

function leastOf(drafting: ReadonlySet<number>, expected: readonly number[]): number {
  let least = Number.POSITIVE_INFINITY;
  for (const offer of drafting) least = Math.min(least, expected[offer]!);
  return least;
}
