import { assert } from "../../../base/assert.ts";

/** An item with its place in the order of arrival. */
export interface Arrived {
  readonly arrival: number;
}

/**
 * List in order of arrival. A lookup, and an insertion at the end, cost O(log n). An insertion or removal
 * elsewhere moves all later elements.
 */
export class ArrivalList<T extends Arrived> implements Iterable<T> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The item that arrived first; undefined if there is none. */
  get first(): T | undefined {
    return this.#items[0];
  }

  /** The item at `index` < size. */
  at(index: number): T {
    const item = this.#items[index];
    assert(item !== undefined, "the index is inside of the list");
    return item;
  }

  add(item: T): void {
    const last = this.#items.at(-1);
    if (last === undefined || last.arrival < item.arrival) this.#items.push(item);
    else this.#items.splice(this.#indexOf(item.arrival), 0, item);
  }

  /** Removes an item; false if it is not in the list. */
  remove(item: T): boolean {
    const index = this.#indexOf(item.arrival);
    if (this.#items[index] !== item) return false;
    if (index === 0) this.#items.shift();
    else this.#items.splice(index, 1);
    return true;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#items[Symbol.iterator]();
  }

  /** Index of the first item that arrived no sooner. */
  #indexOf(arrival: number): number {
    let low = 0;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#items[middle]!.arrival < arrival) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Inserts into a list that is in order of arrival; most belong at its end. */
export function insertByArrival<T extends Arrived>(list: T[], item: T): void {
  let index = list.length;
  while (index > 0 && list[index - 1]!.arrival > item.arrival) index -= 1;
  list.splice(index, 0, item);
}
