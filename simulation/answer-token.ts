import type { TokenId } from "../base/token.ts";

/** Token at a position of the completion of call `index`, before its end. A hash of the arguments. */
export function answerToken(seed: number, index: number, position: number, vocabSize: number): TokenId {
  let x = Math.imul(index ^ seed, 0x21f0aaad) ^ Math.imul(position + 1, 0x735a2d97);
  x = Math.imul(x ^ (x >>> 15), 0x21f0aaad);
  return ((x ^ (x >>> 15)) >>> 0) % vocabSize;
}
