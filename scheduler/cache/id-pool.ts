import { assert } from "../../base/assert.ts";

/**
 * Free list of a device's numbered pages or state slots. An id is free or has exactly one holder, and only that
 * holder may release it.
 */
export class IdPool<Id extends number> {
  readonly total: number;
  /** Stack of free ids: its first `#freeCount` entries. */
  readonly #free: Int32Array;
  #freeCount: number;
  readonly #isFree: Uint8Array;

  constructor(total: number) {
    assert(total > 0, "a pool has ids");
    this.total = total;
    this.#free = Int32Array.from({ length: total }, (_, index) => total - 1 - index);
    this.#freeCount = total;
    this.#isFree = new Uint8Array(total).fill(1);
  }

  get freeCount(): number {
    return this.#freeCount;
  }

  /** Allocates a free id; there must be one. The contents of its page or slot are undefined. */
  take(): Id {
    assert(this.#freeCount > 0, "a pool has a free id, for which its caller evicted first");
    this.#freeCount -= 1;
    const id = this.#free[this.#freeCount]! as Id;
    this.#isFree[id] = 0;
    return id;
  }

  release(id: Id): void {
    assert(this.#isFree[id] === 0, "an id is released once, by its holder");
    this.#isFree[id] = 1;
    this.#free[this.#freeCount] = id;
    this.#freeCount += 1;
  }

  isFree(id: Id): boolean {
    return this.#isFree[id] === 1;
  }
}
