/** One configuration under ours and every rival. */

import type { Policy } from "../../scheduler/policy.ts";
import { noises } from "../../scheduler/sim/noise.ts";
import { simulate } from "../../scheduler/sim/simulator.ts";
import { documentWorkload } from "../../scheduler/sim/workloads/documents.ts";
import { devices } from "../papers/bench.ts";
import { CONTEXT_MAX, type Configuration } from "./configuration.ts";
import { type Figures, figuresOf, timesWorse } from "./figures.ts";
import { own, rivals } from "./systems.ts";

export interface Trial {
  readonly configuration: Configuration;
  readonly ours: Figures;
  /** By name. */
  readonly rivals: Readonly<Record<string, Figures>>;
}

export function runPolicy(
  { device, engines, pages, load, noise, seed }: Configuration,
  policy: Policy,
): Figures {
  return figuresOf(
    simulate({
      workload: documentWorkload(load, seed),
      policy,
      devices: devices(device, engines, { spec: { pages, contextMax: CONTEXT_MAX } }),
      seed,
      noise: noise === null ? null : noises[noise],
    }),
  );
}

export function runTrial(configuration: Configuration): Trial {
  return {
    configuration,
    ours: runPolicy(configuration, own),
    rivals: Object.fromEntries(rivals.map((policy) => [policy.name, runPolicy(configuration, policy)])),
  };
}

/** Of the rivals that count the one that does best in one figure, and how many times worse ours is; null: none counts. */
export function bestRival(
  { ours, rivals }: Trial,
  figure: keyof Figures,
  counts: (rival: Figures) => boolean = () => true,
): { readonly name: string; readonly figures: Figures; readonly ratio: number } | null {
  let best: ReturnType<typeof bestRival> = null;
  for (const [name, figures] of Object.entries(rivals)) {
    if (!counts(figures)) continue;
    const ratio = timesWorse(figure, ours, figures);
    if (best === null || ratio > best.ratio) best = { name, figures, ratio };
  }
  return best;
}

/** How many times worse ours is than the best rival. */
export function ratioOf(trial: Trial, figure: keyof Figures): number {
  return bestRival(trial, figure)!.ratio;
}
