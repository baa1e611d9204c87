/** Port: seeded randomness. The same seed gives the same numbers on every machine. */
export interface Random {
  /** Uniform in 0 … 2^32-1. */
  uint32(): number;
}

/**
 * Generator xoshiro128** (Blackman and Vigna, 2018), with 128 bits of state hashed from the seed. Each
 * purpose has a named child stream, whose numbers do not depend on the draws of other streams.
 */
export class SeededRandom implements Random {
  readonly #seed: number;
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** `seed` is used modulo 2^32. */
  constructor(seed: number) {
    this.#seed = seed >>> 0;
    this.#a = mix(this.#seed ^ 0x9e3779b9);
    this.#b = mix(this.#a ^ 0x243f6a88);
    this.#c = mix(this.#b ^ 0xb7e15162);
    this.#d = mix(this.#c ^ 0xdeadbeef) | 1; // the state must not be all zeros
  }

  /** Stream of that name under this seed, independent of earlier draws. */
  child(name: string): SeededRandom {
    let hash = mix(this.#seed ^ 0x85ebca6b);
    for (let i = 0; i < name.length; i++) hash = mix(hash ^ name.charCodeAt(i));
    return new SeededRandom(hash);
  }

  uint32(): number {
    const result = Math.imul(rotateLeft(Math.imul(this.#b, 5), 7), 9) >>> 0;
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = rotateLeft(this.#d, 11);
    return result;
  }

  /** Uniform in 0 … below-1, below ≤ 2^32, without bias. */
  below(below: number): number {
    const usable = 2 ** 32 - (2 ** 32 % below);
    for (;;) {
      const value = this.uint32();
      if (value < usable) return value % below;
    }
  }

  /** Uniform in [0, 1), 32 bits. */
  unit(): number {
    return this.uint32() / 2 ** 32;
  }
}

function rotateLeft(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

/** Bijection of 32 bits in which every input bit flips about half of the output bits. */
function mix(value: number): number {
  let x = (value + 0x6d2b79f5) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}
