/**
 * Capacity as Sarathi-Serve measures it: the highest rate of calls that meets two conditions. The 99th
 * percentile of the time between tokens keeps a target, and the median call waits at most two seconds to
 * begin. Searches over rates that are 2.5 % apart.
 */

/** Result of a run at one rate, whatever the target. */
export interface Probe {
  readonly tbtP99Ms: number;
  readonly queueingP50Ms: number;
}

export const QUEUEING_P50_MAX_MS = 2000;

const RATIO = 1.025;
const PROBES_MAX = 20;
/**
 * Lowest rate of the search, about one call in a hundred seconds: a system that misses the target there
 * always does.
 */
const INDEX_LEAST = -240;

/**
 * Returns the rate with this number. Rates are a geometric series, so that searches for different targets
 * meet at the same rates.
 */
export function rateAt(index: number): number {
  return 4 * RATIO ** index;
}

export function keeps(probe: Probe, tbtMs: number): boolean {
  return probe.tbtP99Ms <= tbtMs && probe.queueingP50Ms <= QUEUEING_P50_MAX_MS;
}

/**
 * Returns the highest rate per second at which `probe` keeps the target; 0 if none is found. Assumes that the
 * target holds at every lower rate, too. Searches outwards from rate number `start`, then by bisection.
 */
export function capacityOf(probe: (index: number) => Probe, tbtMs: number, start = 0): number {
  let probes = 0;
  const passes = (index: number): boolean => {
    probes += 1;
    return keeps(probe(index), tbtMs);
  };
  let step = 8;
  let [good, bad]: [number | null, number | null] = passes(start) ? [start, null] : [null, start];
  while (probes < PROBES_MAX && (good === null || bad === null)) {
    if (bad === INDEX_LEAST) return 0;
    const index: number = good === null ? Math.max(INDEX_LEAST, bad! - step) : good + step;
    if (passes(index)) good = index;
    else bad = index;
    step *= 2;
  }
  if (good === null) return 0;
  while (probes < PROBES_MAX && bad !== null && bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    if (passes(middle)) good = middle;
    else bad = middle;
  }
  return rateAt(good);
}
