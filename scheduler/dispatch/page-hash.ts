import type { TokenId } from "../core.ts";

const HIGH = 2 ** 21;

/** Where the hashes of a cache key begin: equal tokens under different keys have different hashes. */
export function keyHash(key: string): number {
  let low = 0x9e3779b9;
  let high = 0x85ebca6b;
  for (let i = 0; i < key.length; i++) {
    low = Math.imul(low ^ key.charCodeAt(i), 0x21f0aaad);
    low ^= low >>> 15;
    high = Math.imul(high ^ key.charCodeAt(i), 0x735a2d97);
    high ^= high >>> 13;
  }
  return finish(low) * HIGH + (finish(high) >>> 11);
}

/**
 * Hashes of pages [first, end) of `tokens`, each of everything up to the page's end, so that equal hashes mean
 * equal prefixes. `before` is the hash of page first - 1, or the key's. Positions are absolute: page p is
 * tokens [p × pageTokens, (p + 1) × pageTokens), all of them there.
 *
 * A hash is an integer below 2^53, the most that a number holds exactly. Among a million pages two are the same
 * by chance once in 18,000 times, and then a sequence is placed worse than it could be; what is reused is decided
 * by comparing tokens.
 */
export function hashPages(
  tokens: ArrayLike<TokenId>,
  first: number,
  end: number,
  pageTokens: number,
  before: number,
): Float64Array {
  const hashes = new Float64Array(Math.max(0, end - first));
  let low = Math.floor(before / HIGH) | 0;
  let high = (before % HIGH) | 0;
  let position = first * pageTokens;
  for (let page = 0; page < hashes.length; page++) {
    for (const pageEnd = position + pageTokens; position < pageEnd; position++) {
      const token = (tokens[position]! + 0x1b873593) | 0;
      low = Math.imul(low ^ token, 0x2c1b3c6d);
      low ^= low >>> 15;
      high = Math.imul(high ^ token, 0x297a2d39);
      high ^= high >>> 13;
    }
    low = finish(low);
    high = finish(high ^ low) >>> 11;
    hashes[page] = (low >>> 0) * HIGH + high;
  }
  return hashes;
}

/** A bijection of 32 bits in which every input bit moves about half of the output bits. */
function finish(value: number): number {
  let x = value;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}
