import { assert } from "../../../base/assert.ts";
import type { Sequence } from "../sequence.ts";
import { ArrivalList } from "./arrival-list.ts";
import { type ColdGate, isWarm } from "./cold-gate.ts";
import type { QueueOrder } from "./queue-order.ts";

/** Tokens that a sequence costs besides those that it computes: a sequence that is all cached is not free. */
export const COST_MIN = 256;
/** Ratio of the costs at a bucket's ends: there are two buckets to each doubling. */
export const BUCKET = 1.5;
/** Cost of serving a sequence, in tokens. */
function costOf({ length, cachedTokens }: Sequence): number {
  return COST_MIN + length - cachedTokens;
}

/**
 * Order in which the waiting sequence with the highest response ratio is next (HRRN, Brinch Hansen, 1971). The
 * ratio is wait over cost, where the cost is the uncached part of the prompt. Sequences with much in the
 * cache go first, and of equal waits short ones before long ones. A long wait makes up for any cost. A
 * sequence is never overtaken by one that has waited less than `COST_MIN / cost` of its own wait. So at full
 * load it waits for `BUCKET × cost / COST_MIN` times the work that it met and a burst, at most.
 *
 * A cold sequence has most of its prompt uncached. It goes before a warm one only through the gate
 * (cold-gate.ts), which limits the cost of that. If it has the highest ratio, it runs as soon as the gate is
 * open, and pages allow.
 *
 * Sequences are in buckets by cost, warm and cold ones apart. A bucket is first come, first served, so that
 * only the heads are compared. A sequence moves when its cached length changes (`matched`). Each tenant has
 * an order of its own with few buckets in use, so only those with a sequence are kept.
 */
export class ResponseRatio implements QueueOrder {
  readonly #warm = new Buckets();
  readonly #cold = new Buckets();
  readonly #gate: ColdGate;
  #size = 0;

  constructor(gate: ColdGate) {
    this.#gate = gate;
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence): void {
    this.#bucketsFor(sequence).add(sequence);
    this.#size += 1;
  }

  remove(sequence: Sequence): boolean {
    if (!this.#takeOut(sequence)) return false;
    this.#size -= 1;
    return true;
  }

  matched(sequence: Sequence): void {
    const buckets = this.#bucketsFor(sequence);
    if (!buckets.isRight(sequence) && this.#takeOut(sequence)) buckets.add(sequence);
  }

  peek(nowMs: number): Sequence | null {
    const warm = this.#warm.highest(nowMs);
    const cold = this.#cold.highest(nowMs);
    if (warm === null || cold === null) return warm ?? cold;
    return this.#gate.isOpen(nowMs) && ratio(cold, nowMs) > ratio(warm, nowMs) ? cold : warm;
  }

  take(sequence: Sequence): void {
    assert(this.remove(sequence), "the sequence waits");
  }

  #bucketsFor(sequence: Sequence): Buckets {
    return isWarm(sequence) ? this.#warm : this.#cold;
  }

  #takeOut(sequence: Sequence): boolean {
    return this.#warm.remove(sequence) || this.#cold.remove(sequence);
  }
}

/** Sequences of about the same cost. */
class Bucket extends ArrivalList<Sequence> {
  readonly index: number;

  constructor(index: number) {
    super();
    this.index = index;
  }
}

/** Sequences by cost. */
class Buckets {
  /** Buckets, the cheapest first; none is empty. */
  readonly #buckets: Bucket[] = [];

  add(sequence: Sequence): void {
    const index = bucketOf(sequence);
    let at = 0;
    while (at < this.#buckets.length && this.#buckets[at]!.index < index) at += 1;
    if (this.#buckets[at]?.index !== index) this.#buckets.splice(at, 0, new Bucket(index));
    const bucket = this.#buckets[at]!;
    bucket.add(sequence);
    sequence.queued.bucket = bucket;
  }

  /** Removes a sequence; false if it is in no bucket here. */
  remove(sequence: Sequence): boolean {
    const { bucket } = sequence.queued;
    const at = this.#buckets.indexOf(bucket as Bucket);
    if (at < 0 || !this.#buckets[at]!.remove(sequence)) return false;
    if (this.#buckets[at]!.size === 0) this.#buckets.splice(at, 1);
    sequence.queued.bucket = null;
    return true;
  }

  /** True if a sequence is already in the bucket in which `add` would put it now. */
  isRight(sequence: Sequence): boolean {
    const { bucket } = sequence.queued;
    const index = bucketOf(sequence);
    return this.#buckets.some((one) => one === bucket && one.index === index);
  }

  /** The bucket head with the highest ratio, ties to the cheaper one; null: there is none. */
  highest(nowMs: number): Sequence | null {
    let best: Sequence | null = null;
    let most = 0;
    for (const { first } of this.#buckets) {
      if (first === undefined) continue;
      const its = ratio(first, nowMs);
      if (best !== null && its <= most) continue;
      best = first;
      most = its;
    }
    return best;
  }
}

/** Number of the bucket for a sequence's cost. */
function bucketOf(sequence: Sequence): number {
  const cost = costOf(sequence);
  const doublings = 31 - Math.clz32(cost);
  return 2 * doublings + ((cost >> (doublings - 1)) & 1);
}

/** True if the first of two sequences of different orders goes before the other, as it would in one order. */
export function goesBefore(gate: ColdGate, one: Sequence, other: Sequence, nowMs: number): boolean {
  const isOneWarm = isWarm(one);
  if (isOneWarm !== isWarm(other) && !gate.isOpen(nowMs)) return isOneWarm;
  return ratio(one, nowMs) > ratio(other, nowMs);
}

/** True if a program's first call goes before the first of the other sequences, by the same rules. */
export function hasHigherRatio(gate: ColdGate, call: Sequence, other: Sequence, nowMs: number): boolean {
  if (!isWarm(call) && isWarm(other) && !gate.isOpen(nowMs)) return false;
  return ratio(call, nowMs) >= ratio(other, nowMs);
}

/** Wait over cost; a millisecond more, so that cost decides at first. */
function ratio(sequence: Sequence, nowMs: number): number {
  return (nowMs - sequence.awaitedSinceMs + 1) / costOf(sequence);
}
