/**
 * Tool calls: Preble's Toolbench with Zipf popularity (arXiv:2407.00023, Table 1, A.1 and §4.4). Every prompt
 * is one system prompt, one tool's description and a question: 9 %, 76 % and 15 % of 1,835 tokens on average.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { Arrival, Workload } from "../workload.ts";
import { exp, ln } from "./elementary.ts";
import { drawNormal, exponentialGapMs, nameOf, promptOf, shuffled, workloadOf } from "./parts.ts";

const SYSTEM_TOKENS = 165;
const TOOL_TOKENS = { mean: 1395, deviation: 700, least: 100, most: 3400 };
const QUESTION_TOKENS = { mean: 275, deviation: 120, least: 30, most: 600 };
const ANSWER_TOKENS = { mean: 43, deviation: 16, least: 4, most: 120 };

/**
 * Estimates the tokens of each tool set's descriptions as a fourth of their characters. Input:
 * StableToolBench's JSON, a list of queries with their permitted APIs.
 */
export function parseToolBench(json: string): readonly number[] {
  const queries = JSON.parse(json) as { api_list: readonly unknown[] }[];
  const texts = new Set(queries.map((query) => JSON.stringify(query.api_list)));
  return [...texts].map((text) => Math.ceil(text.length / 4));
}

/** Draws tools, as lengths of their descriptions, from the published statistics. */
export function tools(count: number, seed: number): readonly number[] {
  const random = new SeededRandom(seed).child("tools");
  return Array.from({ length: count }, () => drawNormal(random, TOOL_TOKENS));
}

/** Makes `count` tools with the proportions of real descriptions and the published mean. */
export function toolsLike(real: readonly number[], count: number, seed: number): readonly number[] {
  const random = new SeededRandom(seed).child("tools");
  const order = shuffled(real, random);
  const drawn = Array.from({ length: count }, (_, index) => order[index % order.length]!);
  const cut = (tokens: number, scale: number): number =>
    Math.round(Math.min(TOOL_TOKENS.most, Math.max(TOOL_TOKENS.least, tokens * scale)));
  let scale = 1;
  for (let round = 0; round < 20; round++) {
    const mean = drawn.reduce((sum, tokens) => sum + cut(tokens, scale), 0) / count;
    scale *= TOOL_TOKENS.mean / mean;
  }
  return drawn.map((tokens) => cut(tokens, scale));
}

/**
 * Makes a workload of `calls` calls by a Poisson process. The i-th most popular tool is requested in
 * proportion to i^-exponent. Answer lengths are known in advance, as in Preble's runs.
 */
export function toolWorkload(
  toolTokens: readonly number[],
  options: {
    readonly seed: number;
    readonly callsPerSecond: number;
    readonly calls: number;
    readonly exponent: number;
  },
): Workload {
  return workloadOf("tools", toolCalls(toolTokens, options));
}

function* toolCalls(
  toolTokens: readonly number[],
  options: Parameters<typeof toolWorkload>[1],
): Generator<Arrival> {
  const random = new SeededRandom(options.seed);
  const ends: number[] = [];
  let total = 0;
  for (let rank = 1; rank <= toolTokens.length; rank++) {
    total += exp(-options.exponent * ln(rank));
    ends.push(total);
  }
  const popularity = shuffled(toolTokens, random.child("popularity"));
  const [gaps, draws] = [random.child("arrivals"), random.child("questions")];
  let atMs = 0;
  for (let index = 0; index < options.calls; index++) {
    atMs += exponentialGapMs(gaps, 1000 / options.callsPerSecond);
    const point = (draws.uint32() / 2 ** 32) * total;
    const tool = ends.findIndex((end) => point < end);
    const outputTokens = drawNormal(draws, ANSWER_TOKENS);
    yield {
      atMs,
      promptTokens: promptOf([
        { name: nameOf(options.seed, 0), tokens: SYSTEM_TOKENS },
        { name: nameOf(options.seed, 1, tool), tokens: popularity[tool]! },
        { name: nameOf(options.seed, 2, index), tokens: drawNormal(draws, QUESTION_TOKENS) },
      ]),
      outputTokens,
      tokensMax: outputTokens,
      cacheSalt: "",
      service: chatService,
      kind: "tool",
    };
  }
}
