import type { TokenId } from "../core.ts";

/** Where the hashes of a salt begin: what stands for "no page yet". */
export interface HashSeed {
  readonly low: number;
  readonly high: number;
}

/** The seed of a salt: equal tokens under different salts have different hashes. */
export function hashSeed(salt: string): HashSeed {
  let low = 0x9e3779b9;
  let high = 0x85ebca6b;
  for (let i = 0; i < salt.length; i++) {
    low = Math.imul(low ^ salt.charCodeAt(i), 0x21f0aaad);
    low ^= low >>> 15;
    high = Math.imul(high ^ salt.charCodeAt(i), 0x735a2d97);
    high ^= high >>> 13;
  }
  return { low: finish(low), high: finish(high) };
}

/**
 * Hashes of pages [first, end) of `tokens`, each of everything up to the page's end: words 2i and 2i + 1 of the
 * answer belong to page first + i. `before` is the hash of page first - 1, or the salt's seed. Positions are
 * absolute: page p is tokens [p × pageTokens, (p + 1) × pageTokens), all of them there.
 *
 * 64 bits in two lanes: of a million pages, two are the same by chance once in 37 million such trees, and then
 * a sequence is placed worse than it could be; what is reused is decided by comparing tokens.
 */
export function hashPages(
  tokens: ArrayLike<TokenId>,
  first: number,
  end: number,
  pageTokens: number,
  before: HashSeed,
): Uint32Array {
  const hashes = new Uint32Array(2 * Math.max(0, end - first));
  let low = before.low | 0;
  let high = before.high | 0;
  let position = first * pageTokens;
  for (let word = 0; word < hashes.length; word += 2) {
    for (const pageEnd = position + pageTokens; position < pageEnd; position++) {
      const token = tokens[position]! + 0x1b873593;
      low = Math.imul(low ^ token, 0x2c1b3c6d);
      low ^= low >>> 15;
      high = Math.imul(high ^ token, 0x297a2d39);
      high ^= high >>> 13;
    }
    low = finish(low) | 0;
    high = finish(high ^ low) | 0;
    hashes[word] = low;
    hashes[word + 1] = high;
  }
  return hashes;
}

/** The hash of the last of at least one page, to go on from. */
export function lastHash(hashes: Uint32Array): HashSeed {
  return { low: hashes[hashes.length - 2]!, high: hashes[hashes.length - 1]! };
}

/** A bijection of 32 bits in which every input bit moves about half of the output bits. */
function finish(value: number): number {
  let x = value;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}
