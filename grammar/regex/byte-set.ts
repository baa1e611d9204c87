/** Sets of bytes, and partitions of all bytes into classes that a regular expression cannot distinguish. */

/**
 * Set of bytes as 256 bits in eight words, bit b % 32 of word b / 32 for byte b. Never changed after it is
 * made.
 */
export type ByteSet = Uint32Array;

/** Set of the bytes in inclusive ranges. */
export function byteSet(...ranges: readonly (readonly [number, number])[]): ByteSet {
  const set = new Uint32Array(8);
  for (const [low, high] of ranges) for (let byte = low; byte <= high; byte++) set[byte >>> 5]! |= 1 << byte;
  return set;
}

/** True if the byte is in the set. */
export function hasByte(set: ByteSet, byte: number): boolean {
  return ((set[byte >>> 5]! >>> (byte & 31)) & 1) === 1;
}

/** Bytes in either set. */
export function unionOf(a: ByteSet, b: ByteSet): ByteSet {
  return a.map((word, index) => word | b[index]!);
}

/** Bytes in both sets. */
export function intersectionOf(a: ByteSet, b: ByteSet): ByteSet {
  return a.map((word, index) => word & b[index]!);
}

/**
 * Partition of all bytes into `representatives.length` byte classes; `classOf` holds the class of each byte.
 */
export interface Partition {
  readonly id: number;
  readonly classOf: Uint8Array;
  /** Representative byte of each class. */
  readonly representatives: readonly number[];
}

/** Interned partitions. */
export class Partitions {
  /** Partition with a single class. */
  readonly whole: Partition;
  /** Partitions by id. */
  readonly all: Partition[] = [];
  readonly #byKey = new Map<string, Partition>();
  /** Results of `refine` by the ids of both partitions. */
  readonly #refined = new Map<number, Partition>();

  constructor() {
    this.whole = this.#intern(new Uint8Array(256));
  }

  /** Partition into the set and all other bytes. */
  ofSet(set: ByteSet): Partition {
    const classOf = new Uint8Array(256);
    for (let byte = 0; byte < 256; byte++) if (hasByte(set, byte)) classOf[byte] = 1;
    return this.#intern(classOf);
  }

  /** Partition with the given classes, renumbered. */
  ofClasses(classOf: Uint8Array): Partition {
    return this.#intern(classOf);
  }

  /** Coarsest partition that refines both. */
  refine(a: Partition, b: Partition): Partition {
    if (a === b || b === this.whole) return a;
    if (a === this.whole) return b;
    const key = Math.min(a.id, b.id) * 2 ** 26 + Math.max(a.id, b.id);
    let refined = this.#refined.get(key);
    if (refined === undefined) {
      const classes = b.representatives.length;
      const numbers = new Int16Array(a.representatives.length * classes).fill(-1);
      let count = 0;
      const classOf = new Uint8Array(256);
      for (let byte = 0; byte < 256; byte++) {
        const pair = a.classOf[byte]! * classes + b.classOf[byte]!;
        if (numbers[pair] === -1) numbers[pair] = count++;
        classOf[byte] = numbers[pair]!;
      }
      refined = this.#intern(classOf);
      this.#refined.set(key, refined);
    }
    return refined;
  }

  /** Interns a partition; its classes are numbered in the order of their first bytes. */
  #intern(given: Uint8Array): Partition {
    const numbers = new Int16Array(256).fill(-1);
    const representatives: number[] = [];
    const classOf = new Uint8Array(256);
    /** Each byte at which the class changes, and the new class. */
    let key = "";
    for (let byte = 0; byte < 256; byte++) {
      const old = given[byte]!;
      if (numbers[old] === -1) {
        numbers[old] = representatives.length;
        representatives.push(byte);
      }
      const number = numbers[old]!;
      classOf[byte] = number;
      if (byte === 0 || number !== classOf[byte - 1]) key += String.fromCharCode(byte, number);
    }
    let partition = this.#byKey.get(key);
    if (partition === undefined) {
      partition = { id: this.all.length, classOf, representatives };
      this.all.push(partition);
      this.#byKey.set(key, partition);
    }
    return partition;
  }
}
