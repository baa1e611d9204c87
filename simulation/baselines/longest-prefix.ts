import { assert } from "../../base/assert.ts";
import { ArrivalList } from "../../scheduler/engine/queue/arrival-list.ts";
import type { QueueOrder } from "../../scheduler/engine/queue/queue-order.ts";
import type { Sequence } from "../../scheduler/engine/sequence.ts";

/** Maximum waiting sequences that LongestPrefix compares, the first to arrive. */
const COMPARED_MAX = 512;

/**
 * Longest cached prefix first, ties by arrival (SGLang, arXiv:2312.07104 §3). As there, sequences are
 * compared once per step; in long queues the first 512 (SGLang gives the comparison up above 128).
 */
export class LongestPrefix implements QueueOrder {
  readonly #waiting = new ArrivalList<Sequence>();
  readonly #lookUp: (sequence: Sequence) => number;
  /** Compared sequences, best last; empty: to be compared again. */
  #compared: Sequence[] = [];

  constructor(lookUp: (sequence: Sequence) => number) {
    this.#lookUp = lookUp;
  }

  get size(): number {
    return this.#waiting.size;
  }

  beginStep(): void {
    this.#compared = [];
  }

  add(sequence: Sequence): void {
    this.#waiting.add(sequence);
  }

  remove(sequence: Sequence): boolean {
    this.#compared = this.#compared.filter((other) => other !== sequence);
    return this.#waiting.remove(sequence);
  }

  peek(): Sequence | null {
    if (this.#compared.length === 0) this.#compare();
    return this.#compared.at(-1) ?? null;
  }

  take(sequence: Sequence): void {
    assert(this.#compared.pop() === sequence, "the next sequence is taken");
    this.#waiting.remove(sequence);
  }

  #compare(): void {
    const count = Math.min(this.#waiting.size, COMPARED_MAX);
    for (let i = 0; i < count; i++) {
      const sequence = this.#waiting.at(i);
      this.#lookUp(sequence);
      this.#compared.push(sequence);
    }
    this.#compared.sort((a, b) => a.cachedTokens - b.cachedTokens || b.arrival - a.arrival);
  }
}
