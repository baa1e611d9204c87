/**
 * Sarathi-Serve's capacity on one A100 with a model of Mistral-7B's shape: static budgets against whole prompts first,
 * and a budget from a target against the best static ones.
 */

import { type EngineCosts, PARTS, type PartedCostModel } from "../../scheduler/cost/cost-model.ts";
import { OnlineCostModel } from "../../scheduler/cost/online.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { lengthsOf } from "../../server/cli/simulate/traces.ts";
import { policyOf, withChanges } from "../../simulation/baselines/policies.ts";
import { sarathi } from "../../simulation/baselines/sarathi.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Workload } from "../../simulation/workload.ts";
import { chatWorkload, type Lengths } from "../../simulation/workloads/chat.ts";
import { mixedWorkload } from "../../simulation/workloads/mixed.ts";
import { allAnswered, type Bench, devices, mean } from "./bench.ts";
import { capacityOf, type Probe, QUEUEING_P50_MAX_MS, rateAt } from "./capacity.ts";
import { rangeOf, row, shown } from "./table.ts";

export const DEVICE = "a100";

/** Runs at one rate, each at most once; the same arrivals for every policy of a seed. `watched`: the kind of calls that a
 *  target is about; by default all. */
type Prober = (policy: Policy, seed: number) => (index: number) => Probe;

/** A run is given up as soon as no target up to `tbtMaxMs` can be kept any more. */
function prober(
  { noise }: Bench,
  make: (seed: number, callsPerSecond: number) => Workload,
  tbtMaxMs: number,
  { believe, watched }: { readonly believe?: () => EngineCosts; readonly watched?: string } = {},
): Prober {
  const known = new Map<string, Probe>();
  const sizes = new Map<number, { readonly calls: number; readonly gaps: number }>();
  const models = devices(DEVICE, 1);
  return (policy, seed) => (index) => {
    const key = JSON.stringify([policy, seed, index]);
    const before = known.get(key);
    if (before !== undefined) return before;
    const size = sizes.get(seed) ?? sizeOf(make(seed, 1), watched);
    sizes.set(seed, size);
    const report = simulate({
      workload: make(seed, rateAt(index)),
      policy,
      devices: models,
      ...(believe === undefined ? {} : { believed: [believe()] }),
      ...(watched === undefined ? {} : { watched }),
      noise,
      seed,
      until: ({ queueing, tbt }) =>
        queueing.countAbove(QUEUEING_P50_MAX_MS * 1.01) > size.calls / 2 ||
        tbt.countAbove(tbtMaxMs * 1.01) > size.gaps / 100,
    });
    if (report.isComplete) allAnswered(report);
    const probe = report.isComplete
      ? { tbtP99Ms: report.tbt.p99, queueingP50Ms: report.queueing.p50 }
      : { tbtP99Ms: Number.POSITIVE_INFINITY, queueingP50Ms: Number.POSITIVE_INFINITY };
    known.set(key, probe);
    return probe;
  };
}

/** Watched calls of a workload, and the times between tokens that there will be. */
function sizeOf(
  workload: Workload,
  watched: string | undefined,
): { readonly calls: number; readonly gaps: number } {
  let calls = 0;
  let gaps = 0;
  for (let arrival = workload.next(); arrival !== null; arrival = workload.next()) {
    if (watched !== undefined && arrival.kind !== watched) continue;
    calls += 1;
    gaps += arrival.outputTokens - 1;
  }
  return { calls, gaps };
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
  const make = (seed: number, callsPerSecond: number): Workload =>
    chatWorkload(rows, { seed, callsPerSecond, calls });
  const [vllm, orca] = [policyOf("vllm"), policyOf("orca")];
  const lines: string[][] = [];
  for (const { tbtMs, budget, least } of [
    { tbtMs: 100, budget: 512, least: 2.6 },
    { tbtMs: 500, budget: 2048, least: 1.3 },
  ]) {
    const probe = prober(bench, make, tbtMs);
    const ours = capacities(bench, probe, sarathi(budget), tbtMs);
    const theirs = capacities(bench, probe, vllm, tbtMs);
    const iterations = capacities(bench, probe, orca, tbtMs);
    bench.row(row("Sarathi", `capacity over vLLM-like, ${tbtMs} ms`, ratios(ours, theirs), "×", { least }));
    const line = (values: readonly number[]): string => shown(rangeOf(values), "");
    lines.push([`${tbtMs} ms`, `${budget}: ${line(ours)}`, line(theirs), line(iterations)]);
  }
  bench.table("Capacity, calls per second", ["P99 TBT", "Sarathi, budget", "vLLM-like", "Orca-like"], lines);
  curves(bench, prober(bench, make, 2000));
}

/** P99 of the time between tokens by rate, up to where calls pile up. */
function curves(bench: Bench, probe: Prober): void {
  const [vllm, orca] = [policyOf("vllm"), policyOf("orca")];
  const rates = bench.isQuick ? [-60, -30, -10] : [-80, -60, -44, -32, -22, -14, -8];
  const curve = (policy: Policy, name: string) => ({
    name,
    points: rates.flatMap((index) => {
      const all = bench.seeds.slice(0, 2).map((seed) => probe(policy, seed)(index));
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
      curve(dynamic(100), "target 100 ms"),
    ],
  });
}

/** Multiples of the device's tile. */
const STATIC_BUDGETS = [128, 256, 384, 512, 640, 768, 1024, 2048];
/** Chosen once, for 100 ms. */
const CHOSEN_BUDGET = 768;
/** The targets at which the claim is judged: one that binds hard, and two that do not. */
const HEADLINES_MS = [36, 60, 100];
/** No target: only queues bound what is carried. */
const ANY_MS = 60_000;
/** At this one a model that is wrong at first is tried as well. */
const HEADLINE_MS = 60;

/** Sarathi's rules, but for the budget. */
export function dynamic(tbtMs: number): Policy {
  return withChanges(sarathi(2048), `target ${tbtMs} ms`, { batch: ours(tbtMs).batch });
}

/** Capacities of all static budgets, and the best of them. */
function bestStatic(bench: Bench, probe: Prober, budgets: readonly number[], tbtMs: number) {
  const all = budgets.map((budget) => ({
    budget,
    values: capacities(bench, probe, sarathi(budget), tbtMs),
  }));
  const best = all.reduce((a, b) => (mean(b.values) > mean(a.values) ? b : a));
  return { all, best };
}

/** Claim: a budget that follows a target carries more than the best budget that does not. */
export function againstStatic(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const calls = bench.isQuick ? 384 : 1024;
  const targets = bench.isQuick ? [36, 60, 100] : [32, 36, 40, 50, 60, 75, 100, 150];
  const budgets = bench.isQuick ? [128, 256, 384, 512, 768] : STATIC_BUDGETS;
  const make = (seed: number, callsPerSecond: number): Workload =>
    chatWorkload(rows, { seed, callsPerSecond, calls });
  const probe = prober(bench, make, targets.at(-1)!);
  const lines: string[][] = [];
  const curves = new Map<string, [number, number][]>();
  let bestAt100: readonly number[] = [];
  for (const tbtMs of targets) {
    const { all, best } = bestStatic(bench, probe, budgets, tbtMs);
    const followed = capacities(bench, probe, dynamic(tbtMs), tbtMs);
    const chosen = all.find(({ budget }) => budget === CHOSEN_BUDGET)!;
    const gain = ratios(followed, best.values);
    if (tbtMs === 100) bestAt100 = best.values;
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
      ...all.map(({ budget, values }) => [`static ${budget}`, values] as const),
    ] as const) {
      const isShown = ["target", "best static", "static 256", "static 512", "static 768"].includes(name);
      if (isShown) curves.set(name, [...(curves.get(name) ?? []), [tbtMs, mean(values)]]);
    }
    if (HEADLINES_MS.includes(tbtMs)) {
      const what = `capacity over the best static budget (${best.budget}), ${tbtMs} ms`;
      bench.row(row("target", what, gain, "×", { least: 1.1 }));
    } else bench.row(row("target", `the same, ${tbtMs} ms (${best.budget})`, gain, "×"));
  }
  inBalance(bench, rows);
  const { profile } = devices(DEVICE, 1)[0]!;
  const wrong: PartedCostModel = {
    name: "10 % too fast",
    tileTokens: profile.tileTokens,
    stepMs: (shape) => 0.9 * profile.stepMs(shape),
    partsMs: (shape, into) => {
      profile.partsMs(shape, into);
      for (let part = 0; part < PARTS; part++) into[part]! *= 0.9;
    },
  };
  const misled = capacities(
    bench,
    prober(bench, make, HEADLINE_MS, { believe: () => new OnlineCostModel(wrong) }),
    dynamic(HEADLINE_MS),
    HEADLINE_MS,
  );
  const exact = capacities(bench, probe, dynamic(HEADLINE_MS), HEADLINE_MS);
  const what = `${HEADLINE_MS} ms, with a model that began 10 % too fast, over one that was right`;
  bench.row(row("target", what, ratios(misled, exact), "×"));
  bench.table(
    "Capacity by target, calls per second",
    ["P99 TBT", "budget from target", "best static", `static ${CHOSEN_BUDGET}`, "over best"],
    lines,
  );
  const anything = bestStatic(bench, prober(bench, make, ANY_MS), [768, 2048], ANY_MS).best;
  bench.row(
    row(
      "target",
      `what any budget carries without a target (${anything.budget}), over the best at 100 ms`,
      ratios(anything.values, bestAt100),
      "×",
    ),
  );
  bench.chart("capacity", {
    title: "Chat on one A100: capacity by target",
    xLabel: "P99 time between tokens, ms",
    yLabel: "calls per second",
    series: [...curves].map(([name, points]) => ({ name, points })),
  });
}

/**
 * What a device carries with steps of one size for ever, with no queue and no chance in it: in balance each P tokens of
 * prompts begin an answer of G tokens, so a step of s tokens holds s G / (P + G) answers with a context each. No budget, however
 * it is chosen, carries more than the best line that fits its target.
 */
function inBalance(bench: Bench, rows: readonly Lengths[]): void {
  const { profile } = devices(DEVICE, 1)[0]!;
  const prompt = mean(rows.map(({ promptTokens }) => promptTokens));
  const answer = mean(rows.map(({ outputTokens }) => outputTokens));
  const lines = [...STATIC_BUDGETS, 1536]
    .toSorted((a, b) => a - b)
    .map((size) => {
      const decodes = Math.round((size * answer) / (prompt + answer));
      const prompts = [{ tokens: size - decodes, context: prompt / 2 }];
      const tookMs = profile.stepMs({ prompts, decodes, decodeContext: decodes * (prompt + answer / 2) });
      const perSecond = (1000 * (size - decodes)) / prompt / tookMs;
      return [`${size}`, `${decodes}`, `${tookMs.toFixed(0)} ms`, perSecond.toFixed(2)];
    });
  bench.table(
    "In balance, without queues and chance",
    ["tokens a step", "of answers", "takes", "calls per second"],
    lines,
  );
}

/** Beside the claim: capacity for the chats of a mixed workload, whose target is theirs alone. */
export function mixedContexts(bench: Bench): void {
  const { rows } = lengthsOf(bench.traces);
  const calls = bench.isQuick ? 256 : 768;
  const make = (seed: number, callsPerSecond: number): Workload =>
    mixedWorkload(rows, { seed, callsPerSecond, calls });
  const probe = prober(bench, make, 100, { watched: "chat" });
  const { best } = bestStatic(bench, probe, bench.isQuick ? [512, 768] : [256, 512, 640, 768], 100);
  const followed = capacities(bench, probe, dynamic(100), 100);
  const what = `chats of the mixed workload, 100 ms: over the best static budget (${best.budget})`;
  bench.row(row("target", what, ratios(followed, best.values), "×"));
}
