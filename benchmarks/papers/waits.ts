/**
 * What a budget from a target buys with the capacity that it gives up: beside fixed budgets, at rates that all of them carry, how long
 * the median call waits to begin, and how long calls take in all.
 */

import type { Policy } from "../../scheduler/policy.ts";
import { lengthsOf } from "../../server/cli/simulate/traces.ts";
import { sarathi } from "../../simulation/baselines/sarathi.ts";
import { simulate } from "../../simulation/simulator.ts";
import { chatWorkload, type Lengths } from "../../simulation/workloads/chat.ts";
import { allAnswered, type Bench, devices, mean, seconds } from "./bench.ts";
import { DEVICE, dynamic } from "./sarathi.ts";
import { row } from "./table.ts";

const TBT_MS = 100;
/** The one with the most capacity at this target, and the largest that keeps to it. */
const BUDGETS = [512, 768];
const RATES = [2, 2.5];

interface Run {
  readonly waitP50Ms: number;
  readonly latencyMeanMs: number;
  readonly tbtP99Ms: number;
}

/** Calls wait longer to begin, and end sooner. */
export function whatWaitsBuy(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const lines: string[][] = [];
  for (const callsPerSecond of RATES) {
    const runsOf = (policy: Policy): Run[] =>
      bench.seeds.map((seed) => run(bench, policy, rows, { callsPerSecond, seed }));
    const followed = runsOf(dynamic(TBT_MS));
    lines.push(line(callsPerSecond, `target ${TBT_MS} ms`, followed));
    for (const budget of BUDGETS) {
      const fixed = runsOf(sarathi(budget));
      lines.push(line(callsPerSecond, `static ${budget}`, fixed));
      const ratios = fixed.map(({ latencyMeanMs }, index) => latencyMeanMs / followed[index]!.latencyMeanMs);
      const what = `mean latency at ${callsPerSecond} calls/s, ${TBT_MS} ms: static ${budget} over the target's`;
      bench.row(row("waits", what, ratios, "×"));
    }
  }
  const head = ["calls per second", "budget", "median wait", "mean latency", "P99 TBT"];
  bench.table(`What waits buy, ${TBT_MS} ms`, head, lines);
}

function run(
  bench: Bench,
  policy: Policy,
  rows: readonly Lengths[],
  { callsPerSecond, seed }: { readonly callsPerSecond: number; readonly seed: number },
): Run {
  const calls = bench.isQuick ? 384 : 1024;
  const { queueing, latency, tbt } = allAnswered(
    simulate({
      workload: chatWorkload(rows, { seed, callsPerSecond, calls }),
      policy,
      devices: devices(DEVICE, 1),
      noise: bench.noise,
      seed,
    }),
  );
  bench.note(`${policy.name} at ${callsPerSecond} calls/s, seed ${seed}: ${seconds(latency.mean)}`);
  return { waitP50Ms: queueing.p50, latencyMeanMs: latency.mean, tbtP99Ms: tbt.p99 };
}

function line(callsPerSecond: number, name: string, runs: readonly Run[]): string[] {
  const of = (figure: keyof Run): number => mean(runs.map((one) => one[figure]));
  return [
    `${callsPerSecond}`,
    name,
    seconds(of("waitP50Ms")),
    seconds(of("latencyMeanMs")),
    `${of("tbtP99Ms").toFixed(0)} ms`,
  ];
}
