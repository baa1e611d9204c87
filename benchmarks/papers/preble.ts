/**
 * Preble's workloads on four A6000 with a model of Mistral-7B's shape: placement by cost and queues by priority groups
 * against round robin; ours against Preble as published; and Preble's ablation, step by step.
 */

import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { openWorkload } from "../../server/cli/simulate/traces.ts";
import { policyOf, withChanges } from "../../simulation/baselines/policies.ts";
import { prebleE2 } from "../../simulation/baselines/preble-placement.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { firstCome } from "../../simulation/baselines/vllm.ts";
import type { SimulationReport } from "../../simulation/report.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Workload } from "../../simulation/workload.ts";
import { allAnswered, type Bench, devices, mean, seconds } from "./bench.ts";
import { rangeOf, row, shown } from "./table.ts";

const DEVICE = "a6000";
const DEVICES = 4;

/** What one policy did over all seeds. */
interface Result {
  readonly policy: Policy;
  readonly reports: readonly SimulationReport[];
}

/** Ours as it serves without `--tbt-ms`, after latency alone as Preble is. */
const oursForLatency: Policy = ours();

/** The same, but for the size of steps, which is Preble's. */
const oursAtItsBudget: Policy = withChanges(ours(), "ours, its budget", { batch: staticBudget(512) });

/** Preble's steps in its own order, between the baseline and ours. */
export function preblePolicies(): readonly Policy[] {
  const [sglang, chunked, preble] = [policyOf("sglang"), policyOf("sglang-chunked"), policyOf("preble")];
  const parts = (adjusts: boolean, balances: boolean) =>
    prebleE2({ adjusts, balances, knowsEvictions: true });
  const queued = withChanges(preble, "", { queue: firstCome });
  return [
    sglang,
    chunked,
    withChanges(queued, "+ E2", { placement: parts(false, false) }),
    withChanges(queued, "+ rebalancing, replicas", { placement: parts(true, false) }),
    withChanges(queued, "+ prompts to decoders", {}),
    withChanges(preble, "+ priority groups = preble", {}),
    policyOf("preble-code"),
    withChanges(preble, "preble + our placement", { placement: oursForLatency.placement }),
    oursAtItsBudget,
    oursForLatency,
    withChanges(ours(100), "ours, 100 ms", {}),
    withChanges(ours(200), "ours, 200 ms", {}),
  ];
}

interface Load {
  readonly name: string;
  readonly make: (seed: number) => Workload;
}

function loadOf(bench: Bench, name: string, callsPerSecond: number, calls: number): Load {
  const make = (seed: number): Workload =>
    openWorkload(name, bench.traces, { seed, callsPerSecond, calls }).make();
  return { name: `${name}, ${Number(callsPerSecond.toFixed(1))} calls/s`, make };
}

const models = devices(DEVICE, DEVICES);

function run(bench: Bench, load: Load, policy: Policy): Result {
  const reports = bench.seeds.map((seed) =>
    allAnswered(simulate({ workload: load.make(seed), policy, devices: models, noise: bench.noise, seed })),
  );
  const latency = mean(reports.map((report) => report.latency.mean));
  bench.note(`${load.name}: ${policy.name}: ${seconds(latency)}`);
  return { policy, reports };
}

/** How many times shorter, by seed. */
function gain(from: Result, to: Result, of: (report: SimulationReport) => number): number[] {
  return from.reports.map((report, index) => of(report) / of(to.reports[index]!));
}

const average = (report: SimulationReport): number => report.latency.mean;
const tail = (report: SimulationReport): number => report.latency.p99;
const toFirst = (report: SimulationReport): number => report.ttft.mean;

/** Claims: Preble over round robin, what of it chunking does, ours over Preble, and the ablation. */
export function againstRoundRobin(bench: Bench): void {
  const full = !bench.isQuick;
  const loads = [
    loadOf(bench, "videos", 3, full ? 900 : 450),
    loadOf(bench, "videos", 5, full ? 1500 : 600),
    loadOf(bench, "tools", 18, full ? 5400 : 1500),
    loadOf(bench, "tools", 36, full ? 10_800 : 2000),
  ];
  for (const load of loads) {
    const results = preblePolicies().map((policy) => run(bench, load, policy));
    const byName = (name: string): Result => results.find((result) => result.policy.name.endsWith(name))!;
    const [baseline, chunked, preble] = [byName("sglang"), byName("sglang-chunked"), byName("= preble")];
    const [own, equal, strict] = [byName("ours"), byName("ours, its budget"), byName("ours, 100 ms")];
    const claim = `Preble, ${load.name}`;
    bench.row(row(claim, "average over round robin", gain(baseline, preble, average), "×", { least: 1.5 }));
    bench.row(row(claim, "p99 over round robin", gain(baseline, preble, tail), "×", { least: 2 }));
    bench.row(row(claim, "average, of which chunking alone", gain(baseline, chunked, average), "×"));
    bench.row(row(claim, "p99, of which chunking alone", gain(baseline, chunked, tail), "×"));
    bench.row(row(claim, "ours over Preble, average", gain(preble, own, average), "×", { least: 1 }));
    bench.row(row(claim, "ours over Preble, p99", gain(preble, own, tail), "×", { least: 1 }));
    bench.row(
      row(claim, "ours with Preble's budget over Preble, average", gain(preble, equal, average), "×"),
    );
    bench.row(row(claim, "ours with Preble's budget over Preble, p99", gain(preble, equal, tail), "×"));
    bench.row(
      row(claim, "ours with a target of 100 ms over Preble, average", gain(preble, strict, average), "×"),
    );
    bench.row(row(claim, "ours with a target of 100 ms over Preble, p99", gain(preble, strict, tail), "×"));
    bench.row(row(claim, "ours over Preble, first token", gain(preble, own, toFirst), "×"));
    bench.table(
      `Ablation: ${load.name}`,
      ["Policy", "average", "p99", "to first token", "P99 TBT", "cached"],
      results.map(({ policy, reports }) => [
        policy.name,
        ...[average, tail, toFirst, (report: SimulationReport) => report.tbt.p99].map((of) =>
          seconds(mean(reports.map(of))),
        ),
        shown(rangeOf(reports.map((report) => 100 * report.hitRate)), " %"),
      ]),
    );
  }
}

/** Curves of latency by rate; the rates reach past what round robin can serve. */
export function latencyByRate(bench: Bench): void {
  const curves: readonly { name: string; rates: readonly number[]; callsFor: (rate: number) => number }[] = [
    { name: "videos", rates: [1, 2, 3, 4, 5, 7, 9], callsFor: (rate) => rate * 150 },
    { name: "tools", rates: [9, 18, 27, 36, 45, 54], callsFor: (rate) => rate * 60 },
  ];
  const policies = [policyOf("sglang"), policyOf("sglang-chunked"), policyOf("preble"), oursForLatency];
  for (const { name, rates, callsFor } of curves) {
    const chosen = bench.isQuick ? rates.filter((_, index) => index % 3 === 0) : rates;
    const series = policies.map((policy) => ({
      name: policy.name,
      points: chosen.map((rate) => {
        const { reports } = run(
          { ...bench, seeds: bench.seeds.slice(0, 2) },
          loadOf(bench, name, rate, callsFor(rate)),
          policy,
        );
        return [rate, mean(reports.map(average)) / 1000] as const;
      }),
    }));
    bench.chart(`latency-${name}`, {
      title: `${name === "videos" ? "Questions about videos" : "Calls of tools"} on four A6000: average latency`,
      xLabel: "calls per second",
      yLabel: "s",
      yLogarithmic: true,
      series,
    });
  }
}
