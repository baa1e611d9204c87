/**
 * Log of a real engine (vLLM 0.19 on an RTX 4090, LLMServingSim), if its trace is present: the simulated
 * engine takes as long.
 */

import { expect, test } from "bun:test";
import { openProfile } from "../scheduler/cost/profiles.ts";
import { readTrace, tracesFolder } from "../server/cli/simulate/traces.ts";
import { policyOf } from "./baselines/policies.ts";
import { simulate } from "./simulator.ts";
import { parseVllmLog, vllmLogWorkload } from "./workloads/vllm-log.ts";

const folder = tracesFolder(null);
const [run, asked] = [readTrace(folder, "vllmRun"), readTrace(folder, "vllmAsked")];

/** Milliseconds that vLLM's own code adds to a step, fitted to the log's first hundred calls. */
const OVERHEAD_MS = 1;

test.skipIf(run === null || asked === null)(
  "vllm_log_replay_within_10pct: of mean TTFT and TPOT, and 20 % of the 99th percentiles",
  () => {
    const calls = parseVllmLog(run!, asked!);
    const report = simulate({
      workload: vllmLogWorkload(calls),
      policy: policyOf("vllm-chunked"),
      devices: [openProfile("rtx4090", { overheadMs: OVERHEAD_MS, spec: { contextMax: 32_768 } })],
      seed: 1,
    });
    const ttft = calls.map(({ queuedMs, firstTokenMs }) => firstTokenMs - queuedMs);
    const tpot = calls
      .filter(({ outputTokens }) => outputTokens > 1)
      .map(
        ({ firstTokenMs, lastTokenMs, outputTokens }) => (lastTokenMs - firstTokenMs) / (outputTokens - 1),
      );
    expect(Math.abs(report.ttft.mean / mean(ttft) - 1)).toBeLessThan(0.1);
    expect(Math.abs(report.tpot.mean / mean(tpot) - 1)).toBeLessThan(0.1);
    expect(Math.abs(report.ttft.p99 / p99(ttft) - 1)).toBeLessThan(0.2);
    expect(Math.abs(report.tpot.p99 / p99(tpot) - 1)).toBeLessThan(0.2);
  },
);

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function p99(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(0.99 * values.length) - 1]!;
}
