import { assert } from "../../../base/assert.ts";
import type { Sequence } from "../sequence.ts";
import { ArrivalList } from "./arrival-list.ts";
import type { QueueOrder } from "./queue-order.ts";

/** First come, first served. */
export class FirstCome implements QueueOrder {
  readonly #waiting = new ArrivalList<Sequence>();

  get size(): number {
    return this.#waiting.size;
  }

  add(sequence: Sequence): void {
    this.#waiting.add(sequence);
  }

  remove(sequence: Sequence): boolean {
    return this.#waiting.remove(sequence);
  }

  peek(): Sequence | null {
    return this.#waiting.first ?? null;
  }

  take(sequence: Sequence): void {
    assert(this.#waiting.remove(sequence), "the next sequence is taken");
  }
}
