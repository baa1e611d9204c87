/**
 * Single calls of chat lengths without a common prefix: the workload of Sarathi-Serve's capacity figures
 * (arXiv:2403.02310, Table 2, openchat_sharegpt4).
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService, type Service } from "../../scheduler/core.ts";
import type { Workload } from "../workload.ts";
import {
  type Distribution,
  drawFrom,
  exponentialGapMs,
  nameOf,
  promptOf,
  shuffled,
  workloadOf,
} from "./parts.ts";

/** Lengths of prompt and answer of one call, in tokens, both ≥ 1. */
export interface Lengths {
  readonly promptTokens: number;
  readonly outputTokens: number;
}

/**
 * Parses a table with the columns num_prefill_tokens and num_decode_tokens. Skips lines without such a pair.
 */
export function parseLengths(csv: string): readonly Lengths[] {
  const [head = "", ...lines] = csv.split("\n");
  const columns = head.trim().split(",");
  const prompt = columns.indexOf("num_prefill_tokens");
  const output = columns.indexOf("num_decode_tokens");
  const rows: Lengths[] = [];
  for (const line of lines) {
    const cells = line.split(",");
    const [promptTokens, outputTokens] = [Number(cells[prompt]), Number(cells[output])];
    if (promptTokens >= 1 && outputTokens >= 1) rows.push({ promptTokens, outputTokens });
  }
  return rows;
}

// Medians and 90th percentiles as published; the rest of the curve is fitted so that the means agree.
const promptDistribution: Distribution = [
  [0, 10],
  [0.1, 74],
  [0.25, 580],
  [0.5, 1730],
  [0.75, 3735],
  [0.9, 5696],
  [1, 7000],
];
const outputDistribution: Distribution = [
  [0, 6],
  [0.25, 228],
  [0.5, 415],
  [0.9, 834],
  [1, 1024],
];

/** Draws lengths from the published statistics, for use without the table. */
export function chatLengths(count: number, seed: number): readonly Lengths[] {
  const random = new SeededRandom(seed).child("chat lengths");
  return Array.from({ length: count }, () => ({
    promptTokens: drawFrom(promptDistribution, random),
    outputTokens: drawFrom(outputDistribution, random),
  }));
}

/** Longest answer that chat clients request. */
export const CHAT_TOKENS_MAX = 1024;

/**
 * Makes a workload of `calls` calls by a Poisson process, with lengths in a seeded order. Only the times
 * scale with `callsPerSecond`, so that a search over rates compares like with like.
 */
export function chatWorkload(
  lengths: readonly Lengths[],
  options: {
    readonly seed: number;
    readonly callsPerSecond: number;
    readonly calls: number;
    readonly service?: Service;
  },
): Workload {
  const random = new SeededRandom(options.seed);
  const order = shuffled(lengths, random.child("lengths"));
  const gaps = random.child("arrivals");
  let atMs = 0;
  const arrivals = Array.from({ length: options.calls }, (_, index) => {
    const { promptTokens, outputTokens } = order[index % order.length]!;
    atMs += exponentialGapMs(gaps, 1000 / options.callsPerSecond);
    return {
      atMs,
      promptTokens: promptOf([{ name: nameOf(options.seed, index), tokens: promptTokens }]),
      outputTokens,
      tokensMax: Math.max(outputTokens, CHAT_TOKENS_MAX),
      cacheSalt: "",
      service: options.service ?? chatService,
      kind: "chat",
    };
  });
  return workloadOf("chat", arrivals);
}
