/**
 * Sarathi-Serve's capacity on one A100 with a model of Mistral-7B's shape: static budgets against whole prompts first,
 * and a budget from a target against the best static ones.
 */

import { ours, policyOf, sarathi, withChanges } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { simulate } from "../../scheduler/sim/simulator.ts";
import type { Workload } from "../../scheduler/sim/workload.ts";
import { chatWorkload } from "../../scheduler/sim/workloads/chat.ts";
import { mixedWorkload } from "../../scheduler/sim/workloads/mixed.ts";
import { lengthsOf } from "../../server/simulate/traces.ts";
import { type Bench, devices, mean } from "./bench.ts";
import { capacityOf, type Probe, QUEUEING_P50_MAX_MS, rateAt } from "./capacity.ts";
import { rangeOf, row, shown } from "./table.ts";

const DEVICE = "a100";

/** Runs at one rate, each at most once; the same arrivals for every policy of a seed. */
type Prober = (policy: Policy, seed: number) => (index: number) => Probe;

function prober(make: (seed: number, callsPerSecond: number) => Workload, calls: number): Prober {
  const known = new Map<string, Probe>();
  const [device] = devices(DEVICE, 1);
  return (policy, seed) => (index) => {
    const key = JSON.stringify([policy, seed, index]);
    const before = known.get(key);
    if (before !== undefined) return before;
    const report = simulate({
      workload: make(seed, rateAt(index)),
      policy,
      devices: [device!],
      seed,
      until: ({ queueing }) => queueing.countAbove(QUEUEING_P50_MAX_MS * 1.01) > calls / 2,
    });
    const probe = {
      tbtP99Ms: report.tbt.p99,
      queueingP50Ms: report.isComplete ? report.queueing.p50 : Number.POSITIVE_INFINITY,
    };
    known.set(key, probe);
    return probe;
  };
}

/** Capacity of a policy for each seed; each search begins where the one before ended. */
function capacities(bench: Bench, probe: Prober, policy: Policy, tbtMs: number): number[] {
  let start = -16;
  return bench.seeds.map((seed) => {
    const capacity = capacityOf(probe(policy, seed), tbtMs, start);
    if (capacity > 0) start = Math.round(Math.log(capacity / 4) / Math.log(1.025));
    bench.note(`${policy.name} at ${tbtMs} ms, seed ${seed}: ${capacity.toFixed(2)} calls/s`);
    return capacity;
  });
}

function ratios(above: readonly number[], below: readonly number[]): number[] {
  return above.map((value, index) => value / below[index]!);
}

/** Claim: stall-free batches carry more than whole prompts first, the more so the stricter the target. */
export function againstVllm(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const calls = bench.isQuick ? 512 : 2048;
  const probe = prober((seed, callsPerSecond) => chatWorkload(rows, { seed, callsPerSecond, calls }), calls);
  const [vllm, orca] = [policyOf("vllm"), policyOf("orca")];
  const lines: string[][] = [];
  for (const { tbtMs, budget, least } of [
    { tbtMs: 100, budget: 512, least: 2.6 },
    { tbtMs: 500, budget: 2048, least: 1.3 },
  ]) {
    const ours = capacities(bench, probe, sarathi(budget), tbtMs);
    const theirs = capacities(bench, probe, vllm, tbtMs);
    const iterations = capacities(bench, probe, orca, tbtMs);
    bench.row(row("Sarathi", `capacity over vLLM-like, ${tbtMs} ms`, ratios(ours, theirs), "×", { least }));
    const line = (values: readonly number[]): string => shown(rangeOf(values), "");
    lines.push([`${tbtMs} ms`, `${budget}: ${line(ours)}`, line(theirs), line(iterations)]);
  }
  bench.table("Capacity, calls per second", ["P99 TBT", "Sarathi, budget", "vLLM-like", "Orca-like"], lines);
  const rates = bench.isQuick ? [-60, -30, -10] : [-80, -64, -52, -40, -32, -24, -16, -10, -5];
  const curve = (policy: Policy, name: string) => ({
    name,
    points: rates.flatMap((index) => {
      const all = bench.seeds.slice(0, 3).map((seed) => probe(policy, seed)(index));
      const isServed = all.every((one) => one.queueingP50Ms <= QUEUEING_P50_MAX_MS);
      return isServed ? [[rateAt(index), mean(all.map((one) => one.tbtP99Ms))] as const] : [];
    }),
  });
  bench.chart("tbt", {
    title: "Chat on one A100: P99 time between tokens",
    xLabel: "calls per second",
    yLabel: "ms",
    yLogarithmic: true,
    mark: { y: 100, name: "100 ms" },
    series: [
      curve(vllm, "vLLM-like"),
      curve(orca, "Orca-like"),
      curve(sarathi(2048), "Sarathi, 2048"),
      curve(sarathi(512), "Sarathi, 512"),
      curve(dynamic(100, 128), "target 100 ms"),
    ],
  });
}

const STATIC_BUDGETS = [256, 512, 768, 1024, 1536, 2048];
/** Chosen once, for 100 ms. */
const CHOSEN_BUDGET = 768;
/** The target at which the claim is judged: there it binds, and the device is not yet saturated whatever the budget. */
const HEADLINE_MS = 60;

/** Sarathi's rules, but for the budget. */
function dynamic(tbtMs: number, sequencesMax: number): Policy {
  const base = sarathi(2048);
  const { batch } = ours(tbtMs);
  return withChanges(base, `target ${tbtMs} ms`, { batch, admission: { ...base.admission, sequencesMax } });
}

/** Claim: a budget that follows a target carries more than the best budget that does not. */
export function againstStatic(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const calls = bench.isQuick ? 384 : 1024;
  const probe = prober((seed, callsPerSecond) => chatWorkload(rows, { seed, callsPerSecond, calls }), calls);
  const targets = bench.isQuick ? [60, 100] : [50, 60, 75, 100, 150, 250];
  const sizes = bench.isQuick ? [128] : [128, 256];
  for (const sequencesMax of sizes) {
    const lines: string[][] = [];
    const curves = new Map<string, [number, number][]>();
    for (const tbtMs of targets) {
      const fixed = STATIC_BUDGETS.map((budget) => {
        const base = sarathi(budget);
        const policy = withChanges(base, base.name, { admission: { ...base.admission, sequencesMax } });
        return { budget, values: capacities(bench, probe, policy, tbtMs) };
      });
      const followed = capacities(bench, probe, dynamic(tbtMs, sequencesMax), tbtMs);
      const best = fixed.reduce((a, b) => (mean(b.values) > mean(a.values) ? b : a));
      const chosen = fixed.find(({ budget }) => budget === CHOSEN_BUDGET)!;
      const gain = ratios(followed, best.values);
      lines.push([
        `${tbtMs} ms`,
        shown(rangeOf(followed), ""),
        `${best.budget}: ${shown(rangeOf(best.values), "")}`,
        shown(rangeOf(chosen.values), ""),
        shown(rangeOf(gain), "×"),
      ]);
      for (const [name, values] of [
        ["target", followed],
        ["best static", best.values],
        [`static ${CHOSEN_BUDGET}`, chosen.values],
        ["static 512", fixed.find(({ budget }) => budget === 512)!.values],
      ] as const) {
        curves.set(name, [...(curves.get(name) ?? []), [tbtMs, mean(values)]]);
      }
      if (sequencesMax === 128 && (tbtMs === HEADLINE_MS || tbtMs === 100)) {
        const what = `capacity over the best static budget, ${tbtMs} ms`;
        bench.row(row("target", what, gain, "×", { least: 1.1 }));
      }
    }
    bench.table(
      `Capacity by target, at most ${sequencesMax} sequences, calls per second`,
      ["P99 TBT", "budget from target", "best static", `static ${CHOSEN_BUDGET}`, "over best"],
      lines,
    );
    if (sequencesMax === 128) {
      bench.chart("capacity", {
        title: "Chat on one A100: capacity by target",
        xLabel: "P99 time between tokens, ms",
        yLabel: "calls per second",
        series: [...curves].map(([name, points]) => ({ name, points })),
      });
    }
  }
}

/** Beside the claim: contexts that vary, where no single budget fits. Capacity of the chats of a mixed workload. */
export function mixedContexts(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const calls = bench.isQuick ? 256 : 768;
  const make = (seed: number, callsPerSecond: number): Workload =>
    mixedWorkload(rows, { seed, callsPerSecond, calls });
  const probe = prober(make, calls);
  const budgets = bench.isQuick ? [512, 768] : STATIC_BUDGETS;
  const fixed = budgets.map((budget) => ({ budget, values: capacities(bench, probe, sarathi(budget), 100) }));
  const followed = capacities(bench, probe, dynamic(100, 128), 100);
  const best = fixed.reduce((a, b) => (mean(b.values) > mean(a.values) ? b : a));
  const what = `mixed workload, 100 ms: over the best static budget (${best.budget})`;
  bench.row(row("target", what, ratios(followed, best.values), "×"));
}
