import type { TokenId } from "../base/token.ts";

/** Token that the call `index` of a simulation draws at a position before the end of its answer. */
export function answerToken(seed: number, index: number, position: number, vocabSize: number): TokenId {
  let x = Math.imul(index ^ seed, 0x21f0aaad) ^ Math.imul(position + 1, 0x735a2d97);
  x = Math.imul(x ^ (x >>> 15), 0x21f0aaad);
  return ((x ^ (x >>> 15)) >>> 0) % vocabSize;
}
