/**
 * What workloads are made of: prompts of named parts, times between arrivals, and draws from published quantiles.
 *
 * Texts do not matter to a scheduler, only which prompts begin alike. So a prompt is a list of parts, and a part is a
 * name and a length: two prompts begin with the same tokens as far as their parts are the same.
 */

import type { Random } from "../../base/random.ts";
import type { TokenId } from "../../base/token.ts";
import type { Answer, Arrival, Workload } from "../workload.ts";
import { ln } from "./elementary.ts";

/** Vocabulary of workloads that have no tokens of their own. */
export const VOCABULARY = 32_768;

/** Tokens [0, tokens) of an endless text with this name. */
export interface PromptPiece {
  readonly name: number;
  readonly tokens: number;
}

/** A name of a part from numbers: equal for equal numbers, in 32 bits. */
export function nameOf(...numbers: readonly number[]): number {
  let hash = 0x2545f491;
  for (const number of numbers) hash = scramble(hash ^ scramble(number));
  return hash >>> 0;
}

/** The prompt of these parts, made when it is asked for. The vocabulary's last token is never in it: a device that
 *  only takes time ends answers with that. */
export function promptOf(parts: readonly PromptPiece[], vocabSize = VOCABULARY): () => Int32Array {
  return () => {
    let length = 0;
    for (const part of parts) length += part.tokens;
    const prompt = new Int32Array(length);
    let at = 0;
    for (const { name, tokens } of parts) {
      for (let i = 0; i < tokens; i++) {
        prompt[at] = (scramble(name + Math.imul(i, 0x9e3779b9)) >>> 0) % (vocabSize - 1);
        at += 1;
      }
    }
    return prompt;
  };
}

/** A piece of text as tokens: one for every four characters, equal for equal characters. Shares prefixes as the texts
 *  do, without a tokenizer. */
export function tokensOfText(text: string, vocabSize = VOCABULARY): TokenId[] {
  const tokens: TokenId[] = [];
  for (let start = 0; start < text.length; start += 4) {
    let hash = 0;
    for (let i = start; i < Math.min(start + 4, text.length); i++) hash = scramble(hash ^ text.charCodeAt(i));
    tokens.push((hash >>> 0) % (vocabSize - 1));
  }
  return tokens;
}

/** Milliseconds to the next arrival of a Poisson process. */
export function exponentialGapMs(random: Random, meanMs: number): number {
  return -ln((random.uint32() + 1) / 2 ** 32) * meanMs;
}

/**
 * Milliseconds to the next arrival of a process with pauses: most gaps are exponential around `dense` × mean, a few are
 * long, so that their mean is `meanMs` and their coefficient of variation `variation` > 1.
 */
export function burstyGapMs(random: Random, meanMs: number, variation: number, dense = 0.2): number {
  const square = (variation * variation + 1) / 2;
  const long = (square - dense * dense) / (1 - dense) - dense;
  const share = (1 - dense) / (long - dense);
  const isLong = random.uint32() < share * 2 ** 32;
  return exponentialGapMs(random, meanMs * (isLong ? long : dense));
}

/** Points (share, value) of a distribution function, both increasing, from share 0 to 1. */
export type Distribution = readonly (readonly [share: number, value: number])[];

/** A draw from a distribution that is linear between its points, rounded. */
export function drawFrom(distribution: Distribution, random: Random): number {
  const share = random.uint32() / 2 ** 32;
  let index = 1;
  while (distribution[index]![0] < share) index += 1;
  const [belowShare, below] = distribution[index - 1]!;
  const [aboveShare, above] = distribution[index]!;
  return Math.round(below + ((above - below) * (share - belowShare)) / (aboveShare - belowShare));
}

/** About normal (the sum of twelve uniform draws), rounded, cut to [least, most]. */
export function drawNormal(
  random: Random,
  { mean, deviation, least, most }: { mean: number; deviation: number; least: number; most: number },
): number {
  let sum = -6;
  for (let i = 0; i < 12; i++) sum += random.uint32() / 2 ** 32;
  return Math.round(Math.min(most, Math.max(least, mean + sum * deviation)));
}

/** A new order of `items`, every order as likely as any other. */
export function shuffled<Item>(items: readonly Item[], random: { below(below: number): number }): Item[] {
  const order = [...items];
  for (let i = order.length - 1; i > 0; i--) {
    const other = random.below(i + 1);
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  return order;
}

/** Calls in order of time, of which each is asked for when it is needed, so that a long workload need not be in memory. */
export function workloadOf(
  name: string,
  arrivals: Iterable<Arrival>,
  after: (arrival: Arrival, answer: Answer) => readonly Arrival[] = () => [],
  vocabSize = VOCABULARY,
): Workload {
  const iterator = arrivals[Symbol.iterator]();
  return {
    name,
    vocabSize,
    next: () => iterator.next().value ?? null,
    after,
  };
}

/** A bijection of 32 bits in which every input bit moves about half of the output bits. */
function scramble(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return x ^ (x >>> 15);
}
