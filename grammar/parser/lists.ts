/** Odd, with bits all over it (2 ** 32 by the golden ratio). */
const HASH_FACTOR = 0x9e3779b1;

/**
 * Lists of numbers, each kept once and known by its number: 0, 1, 2 … as they are first met. They are in three flat arrays, at
 * which a collection of garbage need not look, however many lists there are. Nothing is ever forgotten: the owner replaces the whole.
 */
export class Lists {
  #numbers: Float64Array;
  /** By list, where it begins in `#numbers`; one entry more than lists. */
  #starts: Int32Array;
  /** Numbers of lists and 1 more, where their hash says or after it; 0: none. A power of two, twice as many as lists at least. */
  #slots: Int32Array;
  #size = 0;

  /** With room for so many lists of four numbers; where there are more, all are copied to larger arrays. */
  constructor(room = 16) {
    this.#numbers = new Float64Array(4 * room);
    this.#starts = new Int32Array(room + 1);
    this.#slots = new Int32Array(2 ** Math.ceil(Math.log2(2 * room)));
  }

  /** Lists so far. */
  get size(): number {
    return this.#size;
  }

  /** The list's number, which is `size` before if it is a new one. Of `list` the first `length` are looked at. */
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

  /** The number at a place of the list. */
  at(list: number, index: number): number {
    return this.#numbers[this.#starts[list]! + index]!;
  }

  /** Its numbers from one on, as a new array. */
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

/** The array, or a larger one with the same numbers and zeros after them, that has room for so many. */
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
