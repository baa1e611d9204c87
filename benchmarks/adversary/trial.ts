/** One configuration under ours and every rival. */

import type { Policy } from "../../scheduler/policy.ts";
import { noises } from "../../simulation/noise.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Arrival } from "../../simulation/workload.ts";
import { documentArrivals } from "../../simulation/workloads/documents.ts";
import { workloadOf } from "../../simulation/workloads/parts.ts";
import { devices } from "../papers/bench.ts";
import { CONTEXT_MAX, type Configuration } from "./configuration.ts";
import { type Figures, figuresOf, timesWorse } from "./figures.ts";
import { judged, LOSS_RATIO } from "./judged.ts";
import { own, rivals } from "./systems.ts";

export interface Trial {
  readonly configuration: Configuration;
  readonly ours: Figures;
  /** By name. */
  readonly rivals: Readonly<Record<string, Figures>>;
  /** Of other settings of ours, by name (hindsight.ts); absent: they were not run. */
  readonly settings?: Readonly<Record<string, Figures>>;
}

export function runPolicy(
  { device, engines, pages, noise, seed }: Configuration,
  arrivals: readonly Arrival[],
  policy: Policy,
): Figures {
  return figuresOf(
    simulate({
      workload: workloadOf("documents", arrivals),
      policy,
      devices: devices(device, engines, { spec: { pages, contextMax: CONTEXT_MAX } }),
      seed,
      noise: noise === null ? null : noises[noise],
    }),
  );
}

export function runTrial(configuration: Configuration): Trial {
  const { [own.name]: ours, ...others } = runPolicies(configuration, [own, ...rivals]);
  return { configuration, ours: ours!, rivals: others };
}

/** The figures of each policy by its name. */
export function runPolicies(
  configuration: Configuration,
  policies: readonly Policy[],
): Record<string, Figures> {
  const arrivals = arrivalsOf(configuration);
  return Object.fromEntries(
    policies.map((policy) => [policy.name, runPolicy(configuration, arrivals, policy)]),
  );
}

/** The calls of a configuration; each prompt is made once. */
export function arrivalsOf({ load, seed }: Configuration): readonly Arrival[] {
  return documentArrivals(load, seed).map((arrival) => {
    let prompt: Int32Array | null = null;
    const promptTokens = (): Int32Array => {
      prompt ??= arrival.promptTokens();
      return prompt;
    };
    return { ...arrival, promptTokens };
  });
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

/** Of some figures of one trial those that lose to the best rival in the fewest of all that a share is wanted of; of several those whose
 *  ratios are least in sum. */
export function losesLeast(trial: Trial, all: readonly Figures[]): Figures {
  const scored = all.map((figures) => {
    const ratios = judged
      .filter(({ most }) => most !== null)
      .map(({ figure }) => ratioOf({ ...trial, ours: figures }, figure));
    const lost = ratios.filter((ratio) => ratio > LOSS_RATIO).length;
    return { figures, lost, sum: ratios.reduce((sum, ratio) => sum + ratio, 0) };
  });
  return scored.reduce((a, b) => (b.lost < a.lost || (b.lost === a.lost && b.sum < a.sum) ? b : a)).figures;
}

/** Geometric, over trials. */
export function meanRatio(trials: readonly Trial[], of: (trial: Trial) => number): number {
  return Math.exp(trials.reduce((sum, trial) => sum + Math.log(of(trial)), 0) / trials.length);
}

/** How many times worse ours is than the best rival. */
export function ratioOf(trial: Trial, figure: keyof Figures): number {
  return bestRival(trial, figure)!.ratio;
}
