/** What a run is judged by. */

import type { SimulationReport } from "../../simulation/report.ts";

export interface Figures {
  readonly latencyMeanMs: number;
  readonly latencyP99Ms: number;
  readonly ttftMeanMs: number;
  /** 99th percentile of the times between tokens. */
  readonly tbtP99Ms: number;
  /** Of answers, from the first arrival to the last end. */
  readonly tokensPerSecond: number;
  /** Share of the prompts' tokens that were found in a cache. */
  readonly hitRate: number;
  readonly preemptions: number;
}

/** All of them. */
export const figureNames = [
  "latencyMeanMs",
  "latencyP99Ms",
  "ttftMeanMs",
  "tbtP99Ms",
  "tokensPerSecond",
  "hitRate",
  "preemptions",
] as const satisfies readonly (keyof Figures)[];

/** Throws unless every call was answered: calls that were refused would flatter those that were not. */
export function figuresOf(report: SimulationReport): Figures {
  const { policy, unanswered, latency, ttft, tbt, engines, durationMs, hitRate } = report;
  if (unanswered > 0) throw new Error(`${policy}: ${unanswered} calls were not answered.`);
  const sum = (of: (engine: SimulationReport["engines"][number]) => number): number =>
    engines.reduce((total, engine) => total + of(engine), 0);
  return {
    latencyMeanMs: latency.mean,
    latencyP99Ms: latency.p99,
    ttftMeanMs: ttft.mean,
    tbtP99Ms: tbt.p99,
    tokensPerSecond: (1000 * sum(({ tokensGenerated }) => tokensGenerated)) / durationMs,
    hitRate,
    preemptions: sum(({ preemptions }) => preemptions),
  };
}

/** The same figures, each the mean over runs. */
export function meanOf(runs: readonly Figures[]): Figures {
  const mean = (figure: keyof Figures): number =>
    runs.reduce((total, run) => total + run[figure], 0) / runs.length;
  return Object.fromEntries(figureNames.map((figure) => [figure, mean(figure)])) as unknown as Figures;
}

/** Of these more is better; of all others less. */
const moreIsBetter: ReadonlySet<keyof Figures> = new Set(["tokensPerSecond", "hitRate"]);

/** How many times worse `ours` is than `theirs`; below 1: better. */
export function timesWorse(figure: keyof Figures, ours: Figures, theirs: Figures): number {
  const ratio = ours[figure] / theirs[figure];
  return moreIsBetter.has(figure) ? 1 / ratio : ratio;
}

/** For people, with its unit. */
export function shownFigure(figure: keyof Figures, value: number): string {
  if (figure === "tokensPerSecond") return `${value.toFixed(0)} tokens/s`;
  if (figure === "hitRate") return `${(100 * value).toFixed(1)} %`;
  if (figure === "preemptions") return value.toFixed(0);
  return value < 1000 ? `${value.toFixed(0)} ms` : `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
}
