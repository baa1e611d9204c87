/**
 * Capacity of Sarathi-Serve on one A100 with a model of Mistral-7B's shape. Compares static budgets with
 * prompt-first steps, and a target-driven budget with the best static one.
 */

import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { lengthsOf } from "../../server/cli/simulate/traces.ts";
import { policyOf, sarathi, withChanges } from "../../simulation/baselines/policies.ts";
import { simulate } from "../../simulation/simulator.ts";
import { chatWorkload, type Lengths } from "../../simulation/workloads/chat.ts";
import { allAnswered, type Bench, devices, mean, ratios } from "./bench.ts";
import { capacityOf, type Probe, QUEUEING_P50_MAX_MS, rateAt } from "./capacity.ts";
import { rangeOf, row, shown } from "./table.ts";

/** Runs a policy at one rate, each at most once; every policy gets the same arrivals for a seed. */
type Prober = (policy: Policy, seed: number) => (index: number) => Probe;

/** Aborts a run as soon as it cannot keep a target of `tbtMaxMs` any more. */
function prober(rows: readonly Lengths[], calls: number, tbtMaxMs: number): Prober {
  const known = new Map<string, Probe>();
  const models = devices("a100", 1);
  return (policy, seed) => (index) => {
    const key = JSON.stringify([policy, seed, index]);
    const before = known.get(key);
    if (before !== undefined) return before;
    const report = simulate({
      workload: chatWorkload(rows, { seed, callsPerSecond: rateAt(index), calls }),
      policy,
      devices: models,
      seed,
      until: ({ queueing, tbt }) =>
        queueing.countAbove(QUEUEING_P50_MAX_MS * 1.01) > calls / 2 ||
        tbt.countAbove(tbtMaxMs * 1.01) > gapsOf(rows, calls, seed) / 100,
    });
    if (report.isComplete) allAnswered(report);
    const probe = report.isComplete
      ? { tbtP99Ms: report.tbt.p99, queueingP50Ms: report.queueing.p50 }
      : { tbtP99Ms: Number.POSITIVE_INFINITY, queueingP50Ms: Number.POSITIVE_INFINITY };
    known.set(key, probe);
    return probe;
  };
}

const gaps = new Map<string, number>();

/** Times between tokens in a workload, independent of its rate. */
function gapsOf(rows: readonly Lengths[], calls: number, seed: number): number {
  const key = `${calls} ${seed}`;
  let count = gaps.get(key);
  if (count === undefined) {
    const workload = chatWorkload(rows, { seed, callsPerSecond: 1, calls });
    count = 0;
    for (let call = workload.next(); call !== null; call = workload.next()) count += call.outputTokens - 1;
    gaps.set(key, count);
  }
  return count;
}

/** Capacity of a policy for each seed; each search begins where the last one ended. */
function capacities(bench: Bench, probe: Prober, policy: Policy, tbtMs: number): number[] {
  let start = -16;
  return bench.seeds.map((seed) => {
    const capacity = capacityOf(probe(policy, seed), tbtMs, start);
    if (capacity > 0) start = Math.round(Math.log(capacity / 4) / Math.log(1.025));
    bench.note(`${policy.name} at ${tbtMs} ms, seed ${seed}: ${capacity.toFixed(2)} calls/s`);
    return capacity;
  });
}

const line = (values: readonly number[]): string => shown(rangeOf(values), "");

/**
 * Claim: stall-free batches have a higher capacity than prompt-first steps, the more so the stricter the
 * target.
 */
export function againstVllm(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const lines: string[][] = [];
  for (const { tbtMs, budget, least } of [
    { tbtMs: 100, budget: 512, least: 2.6 },
    { tbtMs: 500, budget: 2048, least: 1.3 },
  ]) {
    const probe = prober(rows, bench.isQuick ? 512 : 2048, tbtMs);
    const [own, vllm, orca] = [sarathi(budget), policyOf("vllm"), policyOf("orca")].map((policy) =>
      capacities(bench, probe, policy, tbtMs),
    ) as [number[], number[], number[]];
    bench.row(row("Sarathi", `capacity over vLLM-like, ${tbtMs} ms`, ratios(own, vllm), "×", { least }));
    lines.push([`${tbtMs} ms`, `${budget}: ${line(own)}`, line(vllm), line(orca)]);
  }
  bench.table("Capacity, calls per second", ["P99 TBT", "Sarathi, budget", "vLLM-like", "Orca-like"], lines);
}

/** Targets: the first is tight, the others are not. */
const TARGETS_MS = [36, 60, 100];
/** Budgets: multiples of the device's tile. */
const BUDGETS = [128, 256, 384, 512, 768];

/** Claim: a budget that follows a target has a higher capacity than the best static one. */
export function againstStatic(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const probe = prober(rows, bench.isQuick ? 384 : 1024, Math.max(...TARGETS_MS));
  const lines = TARGETS_MS.map((tbtMs) => {
    const fixed = BUDGETS.map((budget) => ({
      budget,
      values: capacities(bench, probe, sarathi(budget), tbtMs),
    }));
    const best = fixed.reduce((a, b) => (mean(b.values) > mean(a.values) ? b : a));
    // Sarathi's rules except the budget.
    const policy = withChanges(sarathi(2048), `target ${tbtMs} ms`, { batch: ours(tbtMs).batch });
    const followed = capacities(bench, probe, policy, tbtMs);
    const gain = ratios(followed, best.values);
    const what = `capacity over the best static budget (${best.budget}), ${tbtMs} ms`;
    bench.row(row("target", what, gain, "×", { least: 1.1 }));
    return [`${tbtMs} ms`, line(followed), `${best.budget}: ${line(best.values)}`];
  });
  bench.table(
    "Capacity by target, calls per second",
    ["P99 TBT", "budget from target", "best static"],
    lines,
  );
}
