/**
 * Building blocks of workloads: prompts of named parts, times between arrivals, and draws from published
 * quantiles.
 *
 * A scheduler depends on shared prefixes, not on the texts. So a prompt is a list of parts, each with a name
 * and a length. Two prompts share a prefix as far as their parts are equal.
 */

import type { Random } from "../../base/random.ts";
import type { TokenId } from "../../base/token.ts";
import type { Answer, Arrival, Workload } from "../workload.ts";
import { ln } from "./elementary.ts";

/** Default vocabulary size, for workloads without tokens of their own. */
export const VOCABULARY = 32_768;

/** Part of a prompt: tokens [0, tokens) of an endless text with this name. */
export interface PromptPiece {
  readonly name: number;
  readonly tokens: number;
}

/** Makes a part's name from numbers: a 32-bit hash, equal for equal numbers. */
export function nameOf(...numbers: readonly number[]): number {
  let hash = 0x2545f491;
  for (const number of numbers) hash = scramble(hash ^ scramble(number));
  return hash >>> 0;
}

/**
 * Returns a function that makes the prompt of these parts. The prompt never contains the vocabulary's last
 * token, with which a timed device ends answers.
 */
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

/**
 * Converts a text to tokens, one per four characters, equal for equal characters. Keeps shared prefixes
 * without a tokenizer.
 */
export function tokensOfText(text: string, vocabSize = VOCABULARY): TokenId[] {
  const tokens: TokenId[] = [];
  for (let start = 0; start < text.length; start += 4) {
    let hash = 0;
    for (let i = start; i < Math.min(start + 4, text.length); i++) hash = scramble(hash ^ text.charCodeAt(i));
    tokens.push((hash >>> 0) % (vocabSize - 1));
  }
  return tokens;
}

/** Draws the milliseconds to the next arrival of a Poisson process. */
export function exponentialGapMs(random: Random, meanMs: number): number {
  return -ln((random.uint32() + 1) / 2 ** 32) * meanMs;
}

/**
 * Draws the milliseconds to the next arrival of a process with pauses. Most gaps are exponential around
 * `dense` × mean; a few are long. The mean is `meanMs`, the coefficient of variation `variation` > 1.
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

/** Draws from a distribution that is linear between its points; rounded. */
export function drawFrom(distribution: Distribution, random: Random): number {
  const share = random.uint32() / 2 ** 32;
  let index = 1;
  while (distribution[index]![0] < share) index += 1;
  const [belowShare, below] = distribution[index - 1]!;
  const [aboveShare, above] = distribution[index]!;
  return Math.round(below + ((above - below) * (share - belowShare)) / (aboveShare - belowShare));
}

/** Draws a nearly normal number (the sum of twelve uniform draws), rounded, clamped to [least, most]. */
export function drawNormal(
  random: Random,
  { mean, deviation, least, most }: { mean: number; deviation: number; least: number; most: number },
): number {
  let sum = -6;
  for (let i = 0; i < 12; i++) sum += random.uint32() / 2 ** 32;
  return Math.round(Math.min(most, Math.max(least, mean + sum * deviation)));
}

/** Shuffles `items`; every order is equally likely. */
export function shuffled<Item>(items: readonly Item[], random: { below(below: number): number }): Item[] {
  const order = [...items];
  for (let i = order.length - 1; i > 0; i--) {
    const other = random.below(i + 1);
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  return order;
}

/**
 * Makes a workload of calls in order of time. Each is created when needed, so that a long workload need not
 * be in memory.
 */
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

/** Bijection of 32 bits in which every input bit changes about half of the output bits. */
function scramble(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return x ^ (x >>> 15);
}
