/**
 * Searches the highest request rate at which a server still meets its latency target: the knee of latency
 * over rate. Pure.
 */

/** A rate that was tried. */
export interface Tried {
  /** Requests per second that were sent. */
  readonly rate: number;
  /** Good requests over all requests, 0 … 1. */
  readonly share: number;
}

/** Minimum share of good requests at a rate that counts as served. */
export const SHARE_MIN = 0.9;

/** The search ends when the lowest failed rate is at most this multiple of the highest served one. */
const CLOSE = 1.15;

/** The search gives up at this fraction (1/n) of the first rate. */
const GIVE_UP = 64;

/**
 * Next rate to try; null once the knee is known well enough. Doubles the rate until one fails, then bisects
 * in ratio.
 */
export function nextRate(tried: readonly Tried[], first: number): number | null {
  if (tried.length === 0) return first;
  const good = kneeOf(tried);
  const bad = Math.min(...tried.filter(({ share }) => share < SHARE_MIN).map(({ rate }) => rate));
  if (good === null) return bad / 2 < first / GIVE_UP ? null : bad / 2;
  if (bad === Number.POSITIVE_INFINITY) return good * 2;
  return bad / good <= CLOSE ? null : Math.sqrt(good * bad);
}

/** Highest rate that was served, below all rates that failed; null if there is none. */
export function kneeOf(tried: readonly Tried[]): number | null {
  const sorted = tried.toSorted((a, b) => a.rate - b.rate);
  const firstBad = sorted.findIndex(({ share }) => share < SHARE_MIN);
  const served = firstBad === -1 ? sorted : sorted.slice(0, firstBad);
  return served.at(-1)?.rate ?? null;
}
