import { assert } from "../../../base/assert.ts";
import type { Sequence } from "../sequence.ts";
import type { QueueOrder } from "./queue-order.ts";

/**
 * Orders the calls of programs beside all other sequences. Calls of the program that arrived first are next,
 * so that it ends as early as if it were alone with the programs before it. Of one program, the call that starts
 * the longest remaining path is next (critical path first). Between the first call and the first of the other
 * sequences `isBefore` decides.
 */
export class Programs implements QueueOrder {
  /** Waiting calls, the next one first. */
  readonly #calls: Sequence[] = [];
  readonly #others: QueueOrder;
  readonly #isBefore: (call: Sequence, other: Sequence, nowMs: number) => boolean;

  constructor(
    others: QueueOrder,
    isBefore: (call: Sequence, other: Sequence, nowMs: number) => boolean = isEarlier,
  ) {
    this.#others = others;
    this.#isBefore = isBefore;
  }

  get size(): number {
    return this.#calls.length + this.#others.size;
  }

  add(sequence: Sequence): void {
    if (sequence.program === null) this.#others.add(sequence);
    else this.#calls.splice(this.#indexOf(sequence), 0, sequence);
  }

  remove(sequence: Sequence): boolean {
    if (sequence.program === null) return this.#others.remove(sequence);
    const index = this.#indexOf(sequence);
    if (this.#calls[index] !== sequence) return false;
    this.#calls.splice(index, 1);
    return true;
  }

  matched(sequence: Sequence): void {
    if (sequence.program === null) this.#others.matched?.(sequence);
  }

  peek(nowMs: number): Sequence | null {
    const call = this.#calls[0];
    const other = this.#others.peek(nowMs);
    if (call === undefined) return other;
    return other === null || this.#isBefore(call, other, nowMs) ? call : other;
  }

  take(sequence: Sequence, computedTokens: number): void {
    if (sequence.program === null) this.#others.take(sequence, computedTokens);
    else assert(this.remove(sequence), "the call whose turn it is is taken");
  }

  /** Index of a call in the list, or where it belongs. */
  #indexOf(sequence: Sequence): number {
    let low = 0;
    let high = this.#calls.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compare(this.#calls[middle]!, sequence) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function compare(a: Sequence, b: Sequence): number {
  const [one, other] = [a.program!, b.program!];
  return one.id - other.id || other.remainingMs - one.remainingMs || a.arrival - b.arrival;
}

function isEarlier(call: Sequence, other: Sequence): boolean {
  return call.awaitedSinceMs <= other.awaitedSinceMs;
}
