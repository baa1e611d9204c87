/** Buckets per doubling. A bucket is at most 1/128 wide; its middle is within 0.4 % of its contents. */
const SPLITS = 128;
const SPLIT_BITS = 7;
/** Number of buckets: durations up to 2⁵² µs. */
const BUCKETS = SPLITS * 47;

/** Histogram of durations in constant memory: quantiles within 0.4 % (or 1 µs), mean and maximum exact. */
export class Histogram {
  readonly #counts = new Uint32Array(BUCKETS);
  #count = 0;
  #sum = 0;
  #max = 0;

  get count(): number {
    return this.#count;
  }

  /** Adds a duration of `ms` ≥ 0. */
  add(ms: number): void {
    this.#counts[bucketOf(ms)]! += 1;
    this.#count += 1;
    this.#sum += ms;
    if (ms > this.#max) this.#max = ms;
  }

  /** Counts the durations longer than `ms`, to the precision of a bucket. */
  countAbove(ms: number): number {
    let count = 0;
    for (let bucket = bucketOf(ms) + 1; bucket < BUCKETS; bucket++) count += this.#counts[bucket]!;
    return count;
  }

  /** Smallest duration that a share `share` of all durations do not exceed; 0 for an empty histogram. */
  quantile(share: number): number {
    const rank = Math.ceil(share * this.#count);
    let seen = 0;
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      seen += this.#counts[bucket]!;
      if (seen >= rank && seen > 0) return Math.min(this.#max, middleMs(bucket));
    }
    return 0;
  }

  quantiles(): Quantiles {
    return {
      count: this.#count,
      mean: this.#count === 0 ? 0 : this.#sum / this.#count,
      p50: this.quantile(0.5),
      p90: this.quantile(0.9),
      p99: this.quantile(0.99),
      max: this.#max,
    };
  }
}

/** Maps a duration to its bucket. Microseconds below 128 have a bucket each; above, a doubling has 128. */
function bucketOf(ms: number): number {
  let us = Math.round(ms * 1000);
  let shift = 0;
  while (us >= 0x4000_0000) {
    us /= 2;
    shift += 1;
  }
  us = Math.floor(us);
  const excess = Math.max(0, 31 - SPLIT_BITS - Math.clz32(us));
  return (shift + excess) * SPLITS + (us >>> excess);
}

function middleMs(bucket: number): number {
  if (bucket < 2 * SPLITS) return bucket / 1000;
  const excess = Math.floor(bucket / SPLITS) - 1;
  return ((bucket - excess * SPLITS + 0.5) * 2 ** excess) / 1000;
}

/** Quantiles of a distribution, within 0.5 %. */
export interface Quantiles {
  readonly count: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}
