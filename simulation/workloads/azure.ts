/**
 * Calls with the arrival times and lengths of a public cloud (Azure LLM inference trace 2023, coding): rare
 * long pauses, dense bursts, long prompts, short answers. No shared prefixes are known.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { Workload } from "../workload.ts";
import { burstyGapMs, type Distribution, drawFrom, nameOf, promptOf, workloadOf } from "./parts.ts";

/** Call of the trace. `atMs` counts from the first. */
export interface TimedCall {
  readonly atMs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

/** Parses rows of TIMESTAMP,ContextTokens,GeneratedTokens; a timestamp is "2023-11-16 18:17:03.9799600". */
export function parseAzure(csv: string): readonly TimedCall[] {
  const rows: TimedCall[] = [];
  let firstMs: number | null = null;
  for (const line of csv.split("\n")) {
    const match = /^\d+-\d+-(\d+) (\d+):(\d+):([\d.]+),(\d+),(\d+)/.exec(line);
    if (match === null) continue;
    const [day, hour, minute, second, prompt, output] = match.slice(1).map(Number) as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    const timeMs = (((day * 24 + hour) * 60 + minute) * 60 + second) * 1000;
    firstMs ??= timeMs;
    rows.push({
      atMs: timeMs - firstMs,
      promptTokens: Math.max(1, prompt),
      outputTokens: Math.max(1, output),
    });
  }
  return rows;
}

// Quantiles of the trace, rounded.
const promptDistribution: Distribution = [
  [0, 3],
  [0.25, 580],
  [0.5, 1470],
  [0.75, 2750],
  [0.9, 5200],
  [0.95, 7315],
  [1, 7440],
];
const outputDistribution: Distribution = [
  [0, 6],
  [0.25, 9],
  [0.5, 13],
  [0.75, 24],
  [0.9, 55],
  [0.99, 252],
  [1, 1200],
];

/**
 * Draws calls from the trace's statistics: 390 ms between calls on average, with a coefficient of variation
 * of 13.
 */
export function azureCalls(count: number, seed: number): readonly TimedCall[] {
  const random = new SeededRandom(seed).child("azure");
  let atMs = 0;
  return Array.from({ length: count }, () => {
    atMs += burstyGapMs(random, 390, 13);
    const promptTokens = drawFrom(promptDistribution, random);
    return { atMs, promptTokens, outputTokens: drawFrom(outputDistribution, random) };
  });
}

/** Makes a workload of the calls, `timeScale` times as far apart, at most `calls` of them. */
export function azureWorkload(
  rows: readonly TimedCall[],
  options: { readonly seed: number; readonly calls: number; readonly timeScale: number },
): Workload {
  const arrivals = rows.slice(0, options.calls).map(({ atMs, promptTokens, outputTokens }, index) => ({
    atMs: atMs * options.timeScale,
    promptTokens: promptOf([{ name: nameOf(options.seed, index), tokens: promptTokens }]),
    outputTokens,
    tokensMax: Math.max(outputTokens, 2048),
    cacheSalt: "",
    service: chatService,
    kind: "code",
  }));
  return workloadOf("azure-code", arrivals);
}
