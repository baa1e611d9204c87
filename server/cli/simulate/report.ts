/** HTML of simulations: the plots of a load, with a line for each policy. */

import type { RequestRecord } from "../../../simulation/report.ts";
import { goodputOf, type Outcome, type Target } from "../bench/figures.ts";
import { latencyPlots, targetText } from "../bench/report.ts";
import type { HtmlReport } from "../report/html.ts";
import { comparisonHead, comparisonRow, type NamedReport } from "./compare.ts";

export function simulationHtml(subject: string, runs: readonly NamedReport[], target: Target): HtmlReport {
  const loads = runs.map(({ name, report }) => ({ label: name, outcomes: report.calls.map(outcomeOf) }));
  const goodputs = runs.map(({ name, report: { durationMs } }, index) => {
    const { share, perSecond } = goodputOf(loads[index]!.outcomes, target, durationMs / 1000);
    return [name, `${(share * 100).toFixed(1)} %`, perSecond.toFixed(2)];
  });
  return {
    title: `Simulation of ${subject}`,
    notes: [
      `Virtual time, seed ${runs[0]!.report.seed}. An answer is good if it keeps the target: ${targetText(target)}.`,
    ],
    tables: [
      { head: comparisonHead, rows: runs.map(comparisonRow) },
      { head: ["policy", "good", "good/s"], rows: goodputs },
    ],
    plots: latencyPlots(
      loads.map(({ label, outcomes }) => ({
        label,
        outcomes: outcomes.filter(({ isAnswered }) => isAnswered),
      })),
    ),
  };
}

function outcomeOf({ arrivedMs, firstMs, finishedMs, outputTokens, finish }: RequestRecord): Outcome {
  return {
    sentMs: arrivedMs,
    endMs: finishedMs,
    ttftMs: firstMs === null ? null : firstMs - arrivedMs,
    tokens: outputTokens,
    isAnswered: finish === "stop" || finish === "length",
  };
}
