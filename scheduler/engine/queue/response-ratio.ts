import { assert } from "../../core.ts";
import type { Sequence } from "../sequence.ts";
import { ArrivalList } from "./arrival-list.ts";
import { type ColdGate, isWarm } from "./cold-gate.ts";
import type { QueueOrder } from "./queue-order.ts";

/** Tokens that a sequence costs besides those that it has to compute: a sequence that is all cached is not free. */
export const COST_MIN = 256;
/** In one bucket a cost is less than so many times another: there are two buckets to each doubling. */
export const BUCKET = 1.5;
const BUCKETS = 64;
/** What it takes to serve a sequence, in tokens. */
function costOf({ length, cachedTokens }: Sequence): number {
  return COST_MIN + length - cachedTokens;
}

/**
 * The waiting sequence with the highest response ratio is next (Brinch Hansen, 1971): wait over cost, where the cost is the part of
 * the prompt that is not cached. Sequences that find much in the cache go first, and of equal waits short ones before long ones; but a
 * long wait makes up for any cost. A sequence is never passed by one that has waited less than `COST_MIN / cost` of its own wait.
 *
 * A cold sequence, most of whose prompt is not cached, goes before a warm one only through the gate (cold-gate.ts), which bounds what
 * that may cost: if it has the highest ratio, it is taken as soon as the gate is open, and pages allow.
 *
 * Sequences are in buckets by cost, warm and cold ones apart. A bucket is first come, first served, so that only the heads are
 * compared. A sequence moves when what is cached of it changes (`matched`).
 */
export class ResponseRatio implements QueueOrder {
  readonly #warm: Bucket[] = Array.from({ length: BUCKETS }, () => new ArrivalList());
  readonly #cold: Bucket[] = Array.from({ length: BUCKETS }, () => new ArrivalList());
  readonly #gate: ColdGate;
  #size = 0;

  constructor(gate: ColdGate) {
    this.#gate = gate;
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence): void {
    this.#bucketOf(sequence).add(sequence);
    this.#size += 1;
  }

  remove(sequence: Sequence): boolean {
    if (!(sequence.queued.bucket?.remove(sequence) ?? false)) return false;
    sequence.queued.bucket = null;
    this.#size -= 1;
    return true;
  }

  matched(sequence: Sequence): void {
    const before = sequence.queued.bucket;
    if (before === null) return;
    const bucket = this.#bucketOf(sequence);
    if (bucket === before) return;
    before.remove(sequence);
    bucket.add(sequence);
  }

  peek(nowMs: number): Sequence | null {
    const warm = highest(this.#warm, nowMs);
    const cold = highest(this.#cold, nowMs);
    if (warm === null || cold === null) return warm ?? cold;
    return this.#gate.isOpen(nowMs) && ratio(cold, nowMs) > ratio(warm, nowMs) ? cold : warm;
  }

  take(sequence: Sequence): void {
    assert(this.remove(sequence), "the sequence waits");
  }

  #bucketOf(sequence: Sequence): Bucket {
    const cost = costOf(sequence);
    const doublings = 31 - Math.clz32(cost);
    const index = 2 * doublings + ((cost >> (doublings - 1)) & 1);
    const bucket = (isWarm(sequence) ? this.#warm : this.#cold)[index]!;
    sequence.queued.bucket = bucket;
    return bucket;
  }
}

/** Sequences of about the same cost. */
export type Bucket = ArrivalList<Sequence>;

/** Whether one of two sequences of different orders goes first, as it would in one. */
export function goesBefore(gate: ColdGate, one: Sequence, other: Sequence, nowMs: number): boolean {
  const isOneWarm = isWarm(one);
  if (isOneWarm !== isWarm(other) && !gate.isOpen(nowMs)) return isOneWarm;
  return ratio(one, nowMs) > ratio(other, nowMs);
}

/** Whether a program's first call goes before the first of the others, which it does by the same rules. */
export function hasHigherRatio(gate: ColdGate, call: Sequence, other: Sequence, nowMs: number): boolean {
  if (!isWarm(call) && isWarm(other) && !gate.isOpen(nowMs)) return false;
  return ratio(call, nowMs) >= ratio(other, nowMs);
}

/** How long it has waited, a millisecond more so that cost decides at first, for what it costs. */
function ratio(sequence: Sequence, nowMs: number): number {
  return (nowMs - sequence.awaitedSinceMs + 1) / costOf(sequence);
}

/** Of the buckets' first ones the one with the highest ratio, ties to the cheaper one; null: they are empty. */
function highest(buckets: readonly Bucket[], nowMs: number): Sequence | null {
  let best: Sequence | null = null;
  let most = 0;
  for (const { first } of buckets) {
    if (first === undefined) continue;
    const its = ratio(first, nowMs);
    if (best !== null && its <= most) continue;
    best = first;
    most = its;
  }
  return best;
}
