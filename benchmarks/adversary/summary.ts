/** The result of a search, in Markdown. */

import { describe, idOf, traitsOf } from "./configuration.ts";
import {
  bestRival,
  type Figures,
  figureNames,
  figures,
  shownFigure,
  type Trial,
  timesWorse,
} from "./trial.ts";

/** Ratio to the best rival from which a result is a loss. */
const LOSS_RATIO = 1.1;
const WORST_SHOWN = 5;

export function summaryOf(trials: readonly Trial[]): string {
  const policies: readonly (readonly [string, (trial: Trial) => Figures])[] = [
    ["ours", ({ ours }) => ours],
    ...Object.keys(trials[0]!.settings).map(
      (name) => [name, (trial: Trial) => trial.settings[name]!] as const,
    ),
    ...Object.keys(trials[0]!.rivals).map((name) => [name, (trial: Trial) => trial.rivals[name]!] as const),
    ["the policy that loses least", losesLeast],
  ];
  const byTrait = new Map<string, Trial[]>();
  for (const trial of trials) {
    for (const trait of traitsOf(trial.configuration)) {
      byTrait.set(trait, [...(byTrait.get(trait) ?? []), trial]);
    }
  }
  const names = Object.values(figures);
  return [
    "**More than 10 % worse than the best rival of each configuration**",
    markdown(
      ["Policy", ...names],
      policies.map(([name, of]) => [name, ...lossShares(trials, of)]),
    ),
    "**Ours by what configurations have in common**",
    markdown(
      ["Configurations with", "", ...names],
      [...byTrait].map(([trait, some]) => [trait, `${some.length}`, ...lossShares(some, ({ ours }) => ours)]),
    ),
    ...figureNames.map((figure) => worst(trials, figure)),
  ].join("\n\n");
}

function ratioOf(trial: Trial, figure: keyof Figures, of: Figures): number {
  return timesWorse(figure, of, bestRival(trial, figure).figures);
}

function lossShares(trials: readonly Trial[], of: (trial: Trial) => Figures): string[] {
  return figureNames.map((figure) => {
    const lost = trials.filter((trial) => ratioOf(trial, figure, of(trial)) > LOSS_RATIO);
    return `${((100 * lost.length) / trials.length).toFixed(1)} %`;
  });
}

/**
 * Returns the policy of a trial that loses in the fewest figures; among several, the one with the lowest sum
 * of ratios.
 */
function losesLeast(trial: Trial): Figures {
  const scored = [trial.ours, ...Object.values(trial.rivals)].map((figures) => {
    const ratios = figureNames
      .filter((figure) => figure !== "tokensPerSecond")
      .map((figure) => ratioOf(trial, figure, figures));
    const lost = ratios.filter((ratio) => ratio > LOSS_RATIO).length;
    return { figures, lost, sum: ratios.reduce((sum, ratio) => sum + ratio, 0) };
  });
  return scored.reduce((a, b) => (b.lost < a.lost || (b.lost === a.lost && b.sum < a.sum) ? b : a)).figures;
}

function worst(trials: readonly Trial[], figure: keyof Figures): string {
  const lines = trials
    .map((trial) => ({ trial, best: bestRival(trial, figure), ratio: ratioOf(trial, figure, trial.ours) }))
    .filter(({ ratio }) => ratio > LOSS_RATIO)
    .sort((a, b) => b.ratio - a.ratio)
    .slice(0, WORST_SHOWN)
    .map(({ trial: { configuration, ours }, best, ratio }) => [
      idOf(configuration),
      describe(configuration),
      shownFigure(figure, ours[figure]),
      `${best.name}: ${shownFigure(figure, best.figures[figure])}`,
      `${ratio.toFixed(2)}×`,
    ]);
  const head = ["Repeat", "Configuration", "ours", "best rival", ""];
  return `**Worst in ${figures[figure]}**\n\n${lines.length === 0 ? "None." : markdown(head, lines)}`;
}

function markdown(head: readonly string[], lines: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n");
}
