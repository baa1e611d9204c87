import type { TokenId } from "../../base/token.ts";
import type { Sharing } from "../core.ts";

const HIGH = 2 ** 21;

/** The first hash of a cache key: equal tokens under different keys have different hashes. */
export function keyHash(key: string): number {
  let low = 0x9e3779b9;
  let high = 0x85ebca6b;
  for (let i = 0; i < key.length; i++) {
    low = Math.imul(low ^ key.charCodeAt(i), 0x21f0aaad);
    low ^= low >>> 15;
    high = Math.imul(high ^ key.charCodeAt(i), 0x735a2d97);
    high ^= high >>> 13;
  }
  return (finish(low) >>> 0) * HIGH + (finish(high) >>> 11);
}

/** The first hash of private pages that follow a public page of this hash. */
export function privateHash(publicHash: number, key: string): number {
  return keyHash(`${publicHash}:${key}`);
}

/** Hashes of pages [0, end) of a prompt, as in a cache that keeps it. */
export function hashPrompt(
  tokens: ArrayLike<TokenId>,
  end: number,
  pageTokens: number,
  { key, publicKey, publicTokens }: Sharing,
): Float64Array {
  const publicPages = Math.min(end, publicTokens / pageTokens);
  if (publicPages === 0) return hashPages(tokens, 0, end, pageTokens, keyHash(key));
  const hashes = new Float64Array(end);
  hashes.set(hashPages(tokens, 0, publicPages, pageTokens, keyHash(publicKey)));
  const before = privateHash(hashes[publicPages - 1]!, key);
  hashes.set(hashPages(tokens, publicPages, end, pageTokens, before), publicPages);
  return hashes;
}

/**
 * Hashes of pages [first, end) of `tokens`, each of everything up to the page's end, so that equal hashes
 * mean equal prefixes. `before` is the hash of page first - 1, or the key's. Positions are absolute: page p
 * is tokens [p × pageTokens, (p + 1) × pageTokens), all of them there.
 *
 * A hash is an integer below 2^53, the largest range that a number holds exactly. A collision only places a
 * sequence worse: the engine compares tokens before it reuses a page.
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
    // Mixes every token into two words, and tokens at even positions into other words than tokens at odd ones.
    // The four independent products run in parallel.
    let evenLow = low;
    let evenHigh = high;
    let oddLow = low ^ 0x68e31da4;
    let oddHigh = high ^ 0x3549297a;
    const pageEnd = position + pageTokens;
    const last = pageEnd - 1;
    for (; position < last; position += 2) {
      const even = (tokens[position]! + 0x1b873593) | 0;
      const odd = (tokens[position + 1]! + 0x1b873593) | 0;
      evenLow = Math.imul(evenLow ^ even, 0x2c1b3c6d);
      evenLow ^= evenLow >>> 15;
      evenHigh = Math.imul(evenHigh ^ even, 0x297a2d39);
      evenHigh ^= evenHigh >>> 13;
      oddLow = Math.imul(oddLow ^ odd, 0x2c1b3c6d);
      oddLow ^= oddLow >>> 15;
      oddHigh = Math.imul(oddHigh ^ odd, 0x297a2d39);
      oddHigh ^= oddHigh >>> 13;
    }
    if (position === last) {
      const even = (tokens[position]! + 0x1b873593) | 0;
      evenLow = Math.imul(evenLow ^ even, 0x2c1b3c6d);
      evenHigh = Math.imul(evenHigh ^ even, 0x297a2d39);
      position += 1;
    }
    low = finish(evenLow ^ finish(oddLow));
    high = finish(evenHigh ^ finish(oddHigh) ^ low) >>> 11;
    hashes[page] = (low >>> 0) * HIGH + high;
  }
  return hashes;
}

/** A bijection of signed 32-bit integers in which every input bit moves about half of the output bits. */
function finish(value: number): number {
  let x = value;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return x ^ (x >>> 15);
}
