/** Sets of bytes, and partitions of all bytes into classes that a regular expression cannot tell apart. */

/** 256 bits in eight words, bit b % 32 of word b / 32 for byte b. Never written to once it is made. */
export type ByteSet = Uint32Array;

/** The bytes of inclusive ranges. */
export function byteSet(...ranges: readonly (readonly [number, number])[]): ByteSet {
  const set = new Uint32Array(8);
  for (const [low, high] of ranges) for (let byte = low; byte <= high; byte++) set[byte >>> 5]! |= 1 << byte;
  return set;
}

/** Whether the byte is in the set. */
export function hasByte(set: ByteSet, byte: number): boolean {
  return ((set[byte >>> 5]! >>> (byte & 31)) & 1) === 1;
}

/** Bytes in either. */
export function unionOf(a: ByteSet, b: ByteSet): ByteSet {
  return a.map((word, index) => word | b[index]!);
}

/** Bytes in both. */
export function intersectionOf(a: ByteSet, b: ByteSet): ByteSet {
  return a.map((word, index) => word & b[index]!);
}

/** Every byte is in one of `representatives.length` classes; `classOf` says in which. */
export interface Partition {
  readonly id: number;
  readonly classOf: Uint8Array;
  /** By class, one byte of it. */
  readonly representatives: readonly number[];
}

/** All partitions in use, each kept once. */
export class Partitions {
  /** One class. */
  readonly whole: Partition;
  /** By id. */
  readonly all: Partition[] = [];
  readonly #byKey = new Map<string, Partition>();
  /** Results of `refine`, by id of both. */
  readonly #refined = new Map<number, Partition>();

  constructor() {
    this.whole = this.#intern(new Uint8Array(256));
  }

  /** The set and the rest. */
  ofSet(set: ByteSet): Partition {
    const classOf = new Uint8Array(256);
    for (let byte = 0; byte < 256; byte++) if (hasByte(set, byte)) classOf[byte] = 1;
    return this.#intern(classOf);
  }

  /** As given, numbered anew. */
  ofClasses(classOf: Uint8Array): Partition {
    return this.#intern(classOf);
  }

  /** The coarsest partition that is finer than both. */
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

  /** Classes are numbered in the order of their first bytes. */
  #intern(given: Uint8Array): Partition {
    const numbers = new Int16Array(256).fill(-1);
    const representatives: number[] = [];
    const classOf = new Uint8Array(256);
    /** Where the class is another than before, and which. */
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
