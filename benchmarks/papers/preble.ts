/**
 * Preble's workloads on four A6000s with a model of Mistral-7B's shape. Compares placement by cost and queues
 * by priority groups with round robin, ours with Preble as published, and the steps of Preble's ablation.
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
import { allAnswered, type Bench, devices, mean, ratios, seconds } from "./bench.ts";
import { rangeOf, row, shown } from "./table.ts";

const DEVICE = "a6000";
const DEVICES = 4;

/** Reports of one policy over all seeds. */
interface Result {
  readonly policy: Policy;
  readonly reports: readonly SimulationReport[];
}

/** Our policy as served without `--tbt-ms`, for latency alone like Preble. */
const oursForLatency: Policy = ours();

/** Our policy with Preble's step size. */
const oursAtItsBudget: Policy = withChanges(ours(), "ours, its budget", { batch: staticBudget(512) });

/** Preble's ablation steps in its own order, between the baseline and ours. */
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
    allAnswered(simulate({ workload: load.make(seed), policy, devices: models, seed })),
  );
  const latency = mean(reports.map((report) => report.latency.mean));
  bench.note(`${load.name}: ${policy.name}: ${seconds(latency)}`);
  return { policy, reports };
}

const average = (report: SimulationReport): number => report.latency.mean;
const tail = (report: SimulationReport): number => report.latency.p99;
const toFirst = (report: SimulationReport): number => report.ttft.mean;

/** Claims: Preble over round robin, the part due to chunking, ours over Preble, and the ablation. */
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
    const own = byName("ours");
    for (const [what, from, to, of, least] of [
      ["average over round robin", baseline, preble, average, 1.5],
      ["p99 over round robin", baseline, preble, tail, 2],
      ["average, of which chunking alone", baseline, chunked, average, null],
      ["ours over Preble, average", preble, own, average, 1],
      ["ours over Preble, p99", preble, own, tail, 1],
      ["ours over Preble, first token", preble, own, toFirst, null],
    ] as const) {
      const gains = ratios(from.reports.map(of), to.reports.map(of));
      bench.row(row(`Preble, ${load.name}`, what, gains, "×", least === null ? null : { least }));
    }
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
