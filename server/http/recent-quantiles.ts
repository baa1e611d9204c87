import type { BucketCounts } from "./answer-histogram.ts";

/** Number and quantiles of the observations in a period. */
export interface Quantiles {
  readonly count: number;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
}

/** Quantiles over the last `looks` calls of `look`, from histograms whose bounds are in seconds. */
export class RecentQuantiles {
  readonly #looks: number;
  readonly #past: Float64Array[] = [];

  constructor(looks: number) {
    this.#looks = looks;
  }

  /** Reads histograms with equal bounds, and adds up their counts. Returns null if nothing was observed. */
  look(histograms: readonly BucketCounts[]): Quantiles | null {
    const [first] = histograms;
    if (first === undefined) return null;
    const now = first.counts.map((_, bucket) =>
      histograms.reduce((sum, { counts }) => sum + counts[bucket]!, 0),
    );
    this.#past.push(now);
    const before = this.#past.length > this.#looks ? this.#past.shift()! : this.#past[0]!;
    // Counts fall when a model is unloaded.
    const recent = now.map((count, bucket) => Math.max(0, count - before[bucket]!));
    const count = recent.reduce((sum, one) => sum + one, 0);
    if (count === 0) return null;
    const quantile = (share: number) =>
      Math.round(10_000 * quantileOf(recent, first.bounds, share * count)) / 10;
    return { count, p50Ms: quantile(0.5), p90Ms: quantile(0.9), p99Ms: quantile(0.99) };
  }
}

/** Value below which `wanted` observations lie, linear within its bucket. */
function quantileOf(counts: Float64Array, bounds: readonly number[], wanted: number): number {
  let below = 0;
  for (const [bucket, count] of counts.entries()) {
    if (below + count >= wanted && count > 0) {
      const low = bounds[bucket - 1] ?? 0;
      const high = bounds[bucket] ?? low;
      return low + ((wanted - below) / count) * (high - low);
    }
    below += count;
  }
  return bounds.at(-1)!;
}
