/** Odd multiplier with well-spread bits (2 ** 32 by the golden ratio). */
const HASH_FACTOR = 0x9e3779b1;

/**
 * Interned lists of numbers, numbered 0, 1, 2 … in the order of their first use. Three flat arrays hold them,
 * so garbage collection need not trace them. Lists are never removed: the owner replaces the whole table.
 */
export class Lists {
  #numbers: Float64Array;
  /** Offset of each list in `#numbers`; one entry more than lists. */
  #starts: Int32Array;
  /**
   * Hash table with open addressing: list numbers plus 1, or 0 if free. Its length is a power of two, at
   * least twice the number of lists.
   */
  #slots: Int32Array;
  #size = 0;

  /** Reserves memory for `room` lists of four numbers. Beyond that, all lists are copied to larger arrays. */
  constructor(room = 16) {
    this.#numbers = new Float64Array(4 * room);
    this.#starts = new Int32Array(room + 1);
    this.#slots = new Int32Array(2 ** Math.ceil(Math.log2(2 * room)));
  }

  /** Number of lists so far. */
  get size(): number {
    return this.#size;
  }

  /** Number of the list of the first `length` elements. A new list gets the previous `size` as its number. */
  numberOf(list: ArrayLike<number>, length: number = list.length): number {
    const last = this.#slots.length - 1;
    let slot = hashOf(list, 0, length) & last;
    for (; this.#slots[slot] !== 0; slot = (slot + 1) & last) {
      const known = this.#slots[slot]! - 1;
      if (this.#isEqual(known, list, length)) return known;
    }
    return this.#add(list, length, slot);
  }

  lengthOf(list: number): number {
    return this.#starts[list + 1]! - this.#starts[list]!;
  }

  /** Element of the list at `index`. */
  at(list: number, index: number): number {
    return this.#numbers[this.#starts[list]! + index]!;
  }

  /** Elements of the list from `from` on, as a new array. */
  listOf(list: number, from = 0): number[] {
    return Array.from(this.#numbers.subarray(this.#starts[list]! + from, this.#starts[list + 1]));
  }

  #isEqual(known: number, list: ArrayLike<number>, length: number): boolean {
    const start = this.#starts[known]!;
    if (this.#starts[known + 1]! - start !== length) return false;
    for (let index = 0; index < length; index++)
      if (this.#numbers[start + index] !== list[index]) return false;
    return true;
  }

  #add(list: ArrayLike<number>, length: number, slot: number): number {
    const number = this.#size++;
    const start = this.#starts[number]!;
    this.#numbers = withRoom(this.#numbers, start + length);
    for (let index = 0; index < length; index++) this.#numbers[start + index] = list[index]!;
    this.#starts = withRoom(this.#starts, number + 2);
    this.#starts[number + 1] = start + length;
    this.#slots[slot] = number + 1;
    if (2 * this.#size > this.#slots.length) this.#makeSlots(2 * this.#slots.length);
    return number;
  }

  #makeSlots(count: number): void {
    this.#slots = new Int32Array(count);
    for (let list = 0; list < this.#size; list++) {
      let slot = hashOf(this.#numbers, this.#starts[list]!, this.#starts[list + 1]!) & (count - 1);
      while (this.#slots[slot] !== 0) slot = (slot + 1) & (count - 1);
      this.#slots[slot] = list + 1;
    }
  }
}

function hashOf(numbers: ArrayLike<number>, from: number, to: number): number {
  let hash = to - from;
  for (let index = from; index < to; index++) {
    const number = numbers[index]!;
    hash = Math.imul(hash ^ number ^ (number / 2 ** 32), HASH_FACTOR);
    hash ^= hash >>> 15;
  }
  return hash;
}

/** Array with room for `count` numbers: the same one, or a larger copy that is filled up with zeros. */
export function withRoom<Numbers extends Uint8Array | Int32Array | Float64Array>(
  numbers: Numbers,
  count: number,
): Numbers {
  if (count <= numbers.length) return numbers;
  const larger = new (numbers.constructor as new (length: number) => Numbers)(
    Math.max(count, 2 * numbers.length),
  );
  larger.set(numbers);
  return larger;
}
