/**
 * Loads under which a simpler policy once did better than ours: ours beside the best rival of each, in virtual time.
 *
 *   bun benchmarks/losses.ts [--only pressure,hot,…] [--seeds 3] [--traces <folder>] [--all]
 *
 * Prints the figure that each case is about, ours, the best rival's, how many times worse ours is (below 1 it is
 * better), and for 99th percentiles what no policy goes below (adversary/least-p99.ts). --all prints every figure of every policy.
 */

import { parseArgs } from "node:util";
import type { Policy } from "../scheduler/policy.ts";
import { tracesFolder } from "../server/cli/simulate/traces.ts";
import { table } from "../server/cli/table.ts";
import { simulate } from "../simulation/simulator.ts";
import type { Arrival, Workload } from "../simulation/workload.ts";
import { type Case, cases } from "./adversary/cases.ts";
import {
  type Figures,
  figureNames,
  figuresOf,
  meanOf,
  shownFigure,
  timesWorse,
} from "./adversary/figures.ts";
import { type AlikeCalls, leastP99Ms } from "./adversary/least-p99.ts";
import { rivals } from "./adversary/systems.ts";

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    seeds: { type: "string", default: "3" },
    traces: { type: "string" },
    all: { type: "boolean", default: false },
  },
});
const traces = tracesFolder(values.traces ?? null);
const seeds = Array.from({ length: Number(values.seeds) }, (_, index) => index + 1);
const names = values.only?.split(",") ?? cases.map(({ name }) => name);
for (const name of names) {
  if (cases.some((one) => one.name === name)) continue;
  throw new Error(`There is no case ${name}; there are ${cases.map((one) => one.name).join(", ")}.`);
}

/** Seconds that no policy goes below in a 99th percentile, the mean over seeds; nothing for other figures. */
function bound({ devices, figure, make }: Case): string {
  if (figure !== "latencyP99Ms") return "";
  const engines = { engine: devices[0]!.profile, count: devices.length };
  const bounds = seeds.map((seed) => leastP99Ms(alike(make(seed, traces)), engines));
  return shownFigure(figure, bounds.reduce((sum, ms) => sum + ms, 0) / bounds.length);
}

function alike(workload: Workload): AlikeCalls {
  const calls: Arrival[] = [];
  for (let call = workload.next(); call !== null; call = workload.next()) calls.push(call);
  return {
    arrivalsMs: calls.map(({ atMs }) => atMs),
    contextTokens: Math.min(...calls.map(({ promptTokens }) => promptTokens().length)),
    answerTokens: Math.min(...calls.map(({ outputTokens }) => outputTokens)),
  };
}

/** The mean over seeds. */
function figures({ devices, make, isTrace }: Case, policy: Policy): Figures {
  const runs = (isTrace && traces !== null ? [1] : seeds).map((seed) =>
    figuresOf(simulate({ workload: make(seed, traces), policy, devices, seed })),
  );
  return meanOf(runs);
}

const lines = cases
  .filter(({ name }) => names.includes(name))
  .map((one) => {
    const startMs = performance.now();
    const ours = figures(one, one.own);
    const theirs = rivals.map((policy) => ({ policy, figures: figures(one, policy) }));
    const { tbtMs = Number.POSITIVE_INFINITY } = one;
    const best = theirs
      .filter((rival) => rival.figures.tbtP99Ms <= tbtMs)
      .reduce((a, b) => (timesWorse(one.figure, a.figures, b.figures) > 1 ? b : a));
    console.error(`${one.name}: ${one.what}: ${((performance.now() - startMs) / 1000).toFixed(0)} s`);
    if (values.all) {
      const rows = [{ policy: one.own, figures: ours }, ...theirs].map(({ policy, figures }) => [
        policy.name,
        ...figureNames.map((figure) => shownFigure(figure, figures[figure])),
      ]);
      console.log(`${table(["", ...figureNames], rows)}\n`);
    }
    const shown = (all: Figures): string => shownFigure(one.figure, all[one.figure]);
    const ratio = timesWorse(one.figure, ours, best.figures);
    return [
      one.name,
      one.figure,
      shown(ours),
      best.policy.name,
      shown(best.figures),
      ratio.toFixed(2),
      bound(one),
    ];
  });
console.log(
  table(["case", "figure", "ours", "best rival", "theirs", "times worse", "no policy below"], lines),
);
