/** Search for the rate at which a server stops keeping its target: the knee of latency over rate. Pure. */

/** A rate that was tried. */
export interface Tried {
  /** Requests per second that were sent. */
  readonly rate: number;
  /** Good answers over requests, 0 … 1. */
  readonly share: number;
}

/** Least share of good answers at a rate that counts as served. */
export const SHARE_MIN = 0.9;

/** Ratio of two neighbouring rates between which the search ends. */
const CLOSE = 1.15;

/** Factor below the first rate at which the search gives up. */
const GIVE_UP = 64;

/** The next rate to try; null: the knee is known well enough. It doubles, then halves the interval in ratio. */
export function nextRate(tried: readonly Tried[], first: number): number | null {
  if (tried.length === 0) return first;
  const good = kneeOf(tried);
  const bad = Math.min(...tried.filter(({ share }) => share < SHARE_MIN).map(({ rate }) => rate));
  if (good === null) return bad / 2 < first / GIVE_UP ? null : bad / 2;
  if (bad === Number.POSITIVE_INFINITY) return good * 2;
  return bad / good <= CLOSE ? null : Math.sqrt(good * bad);
}

/** Highest rate that was served, with none below it that was not; null if there is none. */
export function kneeOf(tried: readonly Tried[]): number | null {
  const sorted = tried.toSorted((a, b) => a.rate - b.rate);
  const firstBad = sorted.findIndex(({ share }) => share < SHARE_MIN);
  const served = firstBad === -1 ? sorted : sorted.slice(0, firstBad);
  return served.at(-1)?.rate ?? null;
}
