/**
 * Estimates of the first token at each call's arrival, beside how it turned out, over simulated loads with noise: the share
 * of outcomes in the range that is meant to hold 80 %, its median width, and the median error of its middle.
 *
 *     npx bun benchmarks/estimates.ts
 */

import { linearCost } from "../scheduler/cost/linear.ts";
import { ours } from "../scheduler/policies.ts";
import { table } from "../server/cli/table.ts";
import { deviceSpec } from "../simulation/factories.ts";
import { noises } from "../simulation/noise.ts";
import { simulate } from "../simulation/simulator.ts";
import type { Workload } from "../simulation/workload.ts";
import { chatLengths, chatWorkload } from "../simulation/workloads/chat.ts";
import { mixedWorkload } from "../simulation/workloads/mixed.ts";
import { tools, toolWorkload } from "../simulation/workloads/tools.ts";

const CALLS = 900;
/** Warm-up calls, from which the estimator learns and which do not count. */
const WARM = 300;

const loads: readonly (readonly [
  string,
  (seed: number, callsPerSecond: number) => Workload,
  readonly number[],
])[] = [
  [
    "chats",
    (seed, callsPerSecond) => chatWorkload(chatLengths(200, seed), { seed, calls: CALLS, callsPerSecond }),
    [0.5, 1, 1.5],
  ],
  [
    "mixed",
    (seed, callsPerSecond) => mixedWorkload(chatLengths(200, seed), { seed, calls: CALLS, callsPerSecond }),
    [0.5, 1],
  ],
  [
    "tools",
    (seed, callsPerSecond) =>
      toolWorkload(tools(12, seed), { seed, calls: CALLS, callsPerSecond, exponent: 1.1 }),
    [0.5, 1],
  ],
];

const rows: (string | number)[][] = [];
for (const [name, workload, rates] of loads) {
  for (const engines of [1, 2]) {
    for (const rate of rates) {
      for (const noise of ["mild", "rough"] as const) {
        const seen: { inside: boolean; width: number; off: number; firstMs: number }[] = [];
        let from = 0;
        simulate({
          workload: workload(7, rate * engines),
          policy: ours(),
          devices: Array.from({ length: engines }, () => ({
            profile: linearCost(12, 0.12),
            spec: deviceSpec({ pages: 4000, contextMax: 16_384, stepTokensMax: 2048, stepChunksMax: 64 }),
          })),
          seed: 7,
          noise: noises[noise],
          onEstimate: ({ first: { lowMs, highMs, expectedMs } }, firstMs) => {
            from += 1;
            if (from <= WARM) return;
            const inside = firstMs >= lowMs && firstMs <= highMs;
            const off = Math.abs(expectedMs - firstMs) / firstMs;
            seen.push({ inside, off, firstMs, width: (highMs - lowMs) / Math.max(1e-3, expectedMs) });
          },
        });
        const median = (values: readonly number[]): number =>
          values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
        rows.push([
          `${name}, ${engines} × ${rate}/s, ${noise}`,
          seen.length,
          `${((100 * seen.filter(({ inside }) => inside).length) / seen.length).toFixed(1)} %`,
          `${median(seen.map(({ firstMs }) => firstMs)).toFixed(0)}`,
          median(seen.map(({ width }) => width)).toFixed(2),
          `${(100 * median(seen.map(({ off }) => off))).toFixed(0)} %`,
        ]);
        console.error(rows.at(-1)!.join("  "));
      }
    }
  }
}
console.log(table(["load", "estimates", "in range", "first ms", "width", "off"], rows));
