/**
 * Simulator compared with a real engine: vLLM 0.19 on an RTX 4090, 300 chats in half a minute, far more than
 * it can hold. A single number is fitted on the first 100 calls: the time of a step besides its kernels.
 */

import { readTrace } from "../../server/cli/simulate/traces.ts";
import { policyOf } from "../../simulation/baselines/policies.ts";
import { simulate } from "../../simulation/simulator.ts";
import { type LoggedCall, parseVllmLog, vllmLogWorkload } from "../../simulation/workloads/vllm-log.ts";
import { allAnswered, type Bench, devices, mean } from "./bench.ts";
import { row } from "./table.ts";

/** Times of one call in milliseconds. */
interface Times {
  readonly ttftMs: number;
  readonly tpotMs: number;
}

const FITTED_CALLS = 100;

/** Claim: the simulation agrees with the real run. */
export function realRun(bench: Bench): void {
  const [run, asked] = [readTrace(bench.traces, "vllmRun"), readTrace(bench.traces, "vllmAsked")];
  if (run === null || asked === null) {
    bench.note("The log of vLLM is not there: this claim is left out.");
    return;
  }
  const calls = parseVllmLog(run, asked);
  const real = calls.map((call) => ({
    ttftMs: call.firstTokenMs - call.queuedMs,
    tpotMs: (call.lastTokenMs - call.firstTokenMs) / (call.outputTokens - 1),
  }));
  const overheads = bench.isQuick ? [0, 1, 2, 4] : Array.from({ length: 17 }, (_, i) => i / 2);
  const tried = overheads.map((overheadMs) => {
    const simulated = timesOf(calls, overheadMs);
    const [a, b] = [simulated.slice(0, FITTED_CALLS), real.slice(0, FITTED_CALLS)];
    const error = Math.abs(difference(a, b, ttft, mean)) + Math.abs(difference(a, b, tpot, mean));
    bench.note(`${overheadMs} ms beside the kernels: ${error.toFixed(1)} % off in sum`);
    return { overheadMs, simulated, error };
  });
  const best = tried.reduce((a, b) => (b.error < a.error ? b : a));
  const rest = { simulated: best.simulated.slice(FITTED_CALLS), real: real.slice(FITTED_CALLS) };
  const lines: string[][] = [];
  for (const [name, of, summary, most] of [
    ["mean TTFT", ttft, mean, 10],
    ["mean TPOT", tpot, mean, 10],
    ["P99 TTFT", ttft, p99, 20],
    ["P99 TPOT", tpot, p99, 20],
  ] as const) {
    const error = difference(best.simulated, real, of, summary);
    const restError = difference(rest.simulated, rest.real, of, summary);
    bench.row(row("vLLM log", `${name}, error`, [Math.abs(error)], " %", { most }));
    const [simulatedMs, realMs] = [summary(best.simulated.map(of)), summary(real.map(of))];
    lines.push([name, realMs.toFixed(1), simulatedMs.toFixed(1), signed(error), signed(restError)]);
  }
  bench.table(
    `vLLM 0.19 on an RTX 4090, ${best.overheadMs} ms per step beside the kernels`,
    ["ms", "real", "simulated", "error", "error on the calls that were not fitted"],
    lines,
  );
}

const ttft = (times: Times): number => times.ttftMs;
const tpot = (times: Times): number => times.tpotMs;

function timesOf(calls: readonly LoggedCall[], overheadMs: number): Times[] {
  const report = allAnswered(
    simulate({
      workload: vllmLogWorkload(calls),
      policy: policyOf("vllm-chunked"),
      devices: devices("rtx4090", 1, { overheadMs }),
      seed: 1,
      linkDelayMs: 0,
    }),
  );
  return report.calls.map((call) => ({
    ttftMs: call.firstMs! - call.arrivedMs,
    tpotMs: (call.finishedMs - call.firstMs!) / (call.outputTokens - 1),
  }));
}

/** Deviation of the simulated summary from the real one, in percent. */
function difference(
  simulated: readonly Times[],
  real: readonly Times[],
  of: (times: Times) => number,
  summary: (values: readonly number[]) => number,
): number {
  return 100 * (summary(simulated.map(of)) / summary(real.map(of)) - 1);
}

function p99(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.ceil(0.99 * values.length) - 1]!;
}

function signed(percent: number): string {
  return `${percent >= 0 ? "+" : ""}${percent.toFixed(1)} %`;
}
