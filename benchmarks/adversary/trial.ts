/** Trial of a configuration: results of our policy and of every rival. */

import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { policyOf, sarathi, withChanges } from "../../simulation/baselines/policies.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { firstCome } from "../../simulation/baselines/vllm.ts";
import { noises } from "../../simulation/noise.ts";
import type { SimulationReport } from "../../simulation/report.ts";
import { simulate } from "../../simulation/simulator.ts";
import { documentArrivals } from "../../simulation/workloads/documents.ts";
import { workloadOf } from "../../simulation/workloads/parts.ts";
import { allAnswered, devices } from "../papers/bench.ts";
import { CONTEXT_MAX, type Configuration } from "./configuration.ts";

export interface Figures {
  readonly latencyMeanMs: number;
  readonly latencyP99Ms: number;
  readonly ttftMeanMs: number;
  /** Answer tokens from the first arrival to the last end. */
  readonly tokensPerSecond: number;
}

export const figures = {
  latencyMeanMs: "mean latency",
  latencyP99Ms: "P99 latency",
  ttftMeanMs: "mean time to first token",
  tokensPerSecond: "throughput",
} as const satisfies Record<keyof Figures, string>;
export const figureNames = Object.keys(figures) as readonly (keyof Figures)[];

/** Our policy as served without `--tbt-ms`. */
export const own = ours();
const inOrder = { ...own.admission, overtakes: false };

/** Rivals, with the limits that their authors used. */
const rivals: readonly Policy[] = [
  ...["vllm", "vllm-chunked", "orca", "sglang", "sglang-chunked"].map(policyOf),
  // Chunk size of SGLang's first release.
  withChanges(policyOf("sglang-chunked"), "longest-prefix", { batch: staticBudget(2048) }),
  policyOf("sarathi"),
  withChanges(sarathi(256), "sarathi-256", {}),
  withChanges(sarathi(2048), "sarathi-2048", {}),
  ...["preble", "preble-code"].map(policyOf),
];

/** Ours with one setting changed. */
export const settings: readonly Policy[] = [
  withChanges(own, "ours, steps of 50 ms", { batch: { ...own.batch, stepMs: 50 } }),
  withChanges(own, "ours, steps of 250 ms", { batch: { ...own.batch, stepMs: 250 } }),
  withChanges(own, "ours, steps of 512 tokens", { batch: staticBudget(512) }),
  withChanges(own, "ours, begun prompts first", { admission: inOrder }),
  withChanges(own, "ours, in order of arrival", { queue: firstCome, admission: inOrder }),
];

export interface Trial {
  readonly configuration: Configuration;
  readonly ours: Figures;
  /** Figures of rivals by name. */
  readonly rivals: Readonly<Record<string, Figures>>;
  /** Figures of other settings of ours by name; empty if they were not run. */
  readonly settings: Readonly<Record<string, Figures>>;
}

export function runTrial(configuration: Configuration, hasSettings: boolean): Trial {
  const { device, engines, pages, load, seed, noise } = configuration;
  // Every prompt is made once for all policies.
  const arrivals = documentArrivals(load, seed).map((arrival) => {
    let prompt: Int32Array | null = null;
    return { ...arrival, promptTokens: () => (prompt ??= arrival.promptTokens()) };
  });
  const run = (policy: Policy): Figures =>
    figuresOf(
      simulate({
        workload: workloadOf("documents", arrivals),
        policy,
        devices: devices(device, engines, { spec: { pages, contextMax: CONTEXT_MAX } }),
        seed,
        noise: noise === null ? null : noises[noise],
      }),
    );
  const runAll = (policies: readonly Policy[]): Record<string, Figures> =>
    Object.fromEntries(policies.map((policy) => [policy.name, run(policy)]));
  return {
    configuration,
    ours: run(own),
    rivals: runAll(rivals),
    settings: runAll(hasSettings ? settings : []),
  };
}

function figuresOf(report: SimulationReport): Figures {
  const { latency, ttft, engines, durationMs } = allAnswered(report);
  const tokens = engines.reduce((sum, { tokensGenerated }) => sum + tokensGenerated, 0);
  return {
    latencyMeanMs: latency.mean,
    latencyP99Ms: latency.p99,
    ttftMeanMs: ttft.mean,
    tokensPerSecond: (1000 * tokens) / durationMs,
  };
}

/** Divides figures so that more than 1 means that `theirs` is worse than `others`. */
export function timesWorse(figure: keyof Figures, theirs: Figures, others: Figures): number {
  const ratio = theirs[figure] / others[figure];
  return figure === "tokensPerSecond" ? 1 / ratio : ratio;
}

/** The rival that is best in one figure. */
export function bestRival(
  { rivals }: Trial,
  figure: keyof Figures,
): { readonly name: string; readonly figures: Figures } {
  return Object.entries(rivals)
    .map(([name, figures]) => ({ name, figures }))
    .reduce((a, b) => (timesWorse(figure, b.figures, a.figures) < 1 ? b : a));
}

export function shownFigure(figure: keyof Figures, value: number): string {
  if (figure === "tokensPerSecond") return `${value.toFixed(0)} tokens/s`;
  return value < 1000 ? `${value.toFixed(0)} ms` : `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
}
