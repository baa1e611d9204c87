import { assert } from "../../base/assert.ts";

const BUCKETS = 24;
const FIRST = 0.0025;
const RATIO = 1.3;
/**
 * Upper bounds of the buckets, 0.25 % to 104 %. The first bucket holds everything below, the last everything
 * above. Built by multiplication: the last bits of powers differ between machines.
 */
const bounds: readonly number[] = boundsOf();

/** Prior belief: `count` errors of one size. */
export interface ErrorBelief {
  readonly error: number;
  readonly count: number;
}

/**
 * Error quantile of predictions: an exponentially weighted histogram of relative errors. The last `1 / (1 -
 * forget)` errors decide, so a few large ones count at once and are soon forgotten. It returns a bucket's
 * upper bound, at most 1.3 times the error itself. O(buckets) per error.
 */
export class ErrorQuantile {
  readonly #weights = new Float64Array(BUCKETS);
  readonly #forget: number;
  readonly #belief: ErrorBelief;

  /** `belief`: errors that count as observed before the first. */
  constructor(forget: number, belief: ErrorBelief) {
    assert(forget > 0 && forget < 1, "shares are between 0 and 1");
    this.#forget = forget;
    this.#belief = belief;
    this.reset();
  }

  /** Returns the bound that a share `covered` (0 to 1) of the errors stay below: 0.0025 … 1.04. */
  below(covered: number): number {
    let total = 0;
    for (const weight of this.#weights) total += weight;
    let above = 0;
    for (let index = BUCKETS - 1; index > 0; index--) {
      above += this.#weights[index]!;
      if (above > total * (1 - covered)) return bounds[index]!;
    }
    return FIRST;
  }

  /** Plain data that restores this histogram. */
  get state(): readonly number[] {
    return [...this.#weights];
  }

  set state(weights: readonly number[]) {
    this.#weights.set(weights);
  }

  /** Forgets all observed errors; only the belief remains. */
  reset(): void {
    this.#weights.fill(0);
    this.#weights[bucketOf(this.#belief.error)] = this.#belief.count;
  }

  /** Adds an error: actual / predicted - 1; negative if the prediction was too high. */
  add(error: number): void {
    const weights = this.#weights;
    for (let index = 0; index < BUCKETS; index++) weights[index]! *= this.#forget;
    weights[bucketOf(error)]! += 1;
  }
}

function bucketOf(error: number): number {
  let index = 0;
  while (index < BUCKETS - 1 && error > bounds[index]!) index += 1;
  return index;
}

function boundsOf(): readonly number[] {
  const all = [FIRST];
  while (all.length < BUCKETS) all.push(all.at(-1)! * RATIO);
  return all;
}
