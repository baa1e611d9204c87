import { assert } from "../../base/assert.ts";

const BUCKETS = 24;
const FIRST = 0.0025;
const RATIO = 1.3;
/** Upper bounds of the buckets, 0.25 % to 104 %; the first holds everything below, the last everything above. Products,
 *  since powers have other last bits on other machines. */
const bounds: readonly number[] = boundsOf();

/** So many errors of one size. */
export interface ErrorBelief {
  readonly error: number;
  readonly count: number;
}

/**
 * Below which error most predictions stay: a histogram of relative errors in which the oldest count ever less. The last
 * `1 / (1 - forget)` errors decide, so a few that are large are heeded at once, and forgotten as soon. What it tells is a
 * bucket's upper bound, at most 1.3 times the error itself. One error costs O(buckets).
 */
export class ErrorQuantile {
  readonly #weights = new Float64Array(BUCKETS);
  readonly #forget: number;
  readonly #belief: ErrorBelief;

  /** `belief`: what counts as seen before the first. */
  constructor(forget: number, belief: ErrorBelief) {
    assert(forget > 0 && forget < 1, "shares are between 0 and 1");
    this.#forget = forget;
    this.#belief = belief;
    this.reset();
  }

  /** The bound that `covered`, 0 to 1, of the errors keep: 0.0025 … 1.04. */
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

  /** What makes another of the same, as plain data. */
  get state(): readonly number[] {
    return [...this.#weights];
  }

  set state(weights: readonly number[]) {
    this.#weights.set(weights);
  }

  /** Forgets all errors: only what was believed at first is left. */
  reset(): void {
    this.#weights.fill(0);
    this.#weights[bucketOf(this.#belief.error)] = this.#belief.count;
  }

  /** Takes note of an error: by which share of what was predicted more was needed; below 0, less was. */
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
