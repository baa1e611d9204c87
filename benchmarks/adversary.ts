/**
 * Random search for losses. Draws machines and loads, and runs our policy and every rival on each in virtual
 * time. Lists the cases where ours loses to the best rival.
 *
 *   npx bun benchmarks/adversary.ts [--seed 1] [--configurations 100] [--settings]
 *   npx bun benchmarks/adversary.ts --repeat 1-42
 *
 * A seed always draws the same configurations in the same order. --settings also runs other settings of ours;
 * --repeat prints one configuration with every policy.
 */

import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { describe, drawConfiguration, idOf, parseId } from "./adversary/configuration.ts";
import { summaryOf } from "./adversary/summary.ts";
import { figureNames, figures, own, runTrial, shownFigure } from "./adversary/trial.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    configurations: { type: "string", default: "100" },
    settings: { type: "boolean", default: false },
    repeat: { type: "string" },
  },
});

if (values.repeat !== undefined) repeat(values.repeat);
else search();

function repeat(id: string): void {
  const { seed, index } = parseId(id);
  const configuration = drawConfiguration(seed, index);
  const { ours, rivals, settings } = runTrial(configuration, values.settings);
  const rows = Object.entries({ [own.name]: ours, ...settings, ...rivals }).map(([name, all]) => [
    name,
    ...figureNames.map((figure) => shownFigure(figure, all[figure])),
  ]);
  console.log(`${describe(configuration)}\n\n${table(["", ...Object.values(figures)], rows)}`);
}

function search(): void {
  const seed = Number(values.seed);
  const startMs = performance.now();
  const trials = Array.from({ length: Number(values.configurations) }, (_, index) => {
    const trial = runTrial(drawConfiguration(seed, index), values.settings);
    const seconds = ((performance.now() - startMs) / 1000).toFixed(0);
    console.error(`${seconds.padStart(5)} s  ${idOf(trial.configuration)}`);
    return trial;
  });
  console.log(`${trials.length} configurations of seed ${seed}.\n\n${summaryOf(trials)}`);
}
