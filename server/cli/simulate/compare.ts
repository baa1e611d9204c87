/** Comparison table of simulations, for people. */

import type { SimulationReport } from "../../../simulation/report.ts";
import { type Cell, table } from "../table.ts";

/** Report and its display name. */
export interface NamedReport {
  readonly name: string;
  readonly report: SimulationReport;
}

/** Table with a row per simulation. Times are milliseconds, as seen by clients. */
export function comparisonTable(rows: readonly NamedReport[]): string {
  return table(comparisonHead, rows.map(comparisonRow));
}

export const comparisonHead = [
  "times in ms",
  "calls",
  "seconds",
  "first token p50",
  "p99",
  "gap p50",
  "p99",
  "max",
  "end to end mean",
  "p99",
  "queueing p99",
  "tokens/s",
  "cached",
  "preempted",
];

export function comparisonRow({ name, report }: NamedReport): readonly Cell[] {
  const { ttft, tbt, latency, queueing, engines, durationMs } = report;
  const tokens = engines.reduce((sum, engine) => sum + engine.tokensGenerated, 0);
  const preemptions = engines.reduce((sum, engine) => sum + engine.preemptions, 0);
  return [
    name,
    callsText(report),
    (durationMs / 1000).toFixed(1),
    ms(ttft.p50),
    ms(ttft.p99),
    ms(tbt.p50),
    ms(tbt.p99),
    ms(tbt.max),
    ms(latency.mean),
    ms(latency.p99),
    ms(queueing.p99),
    durationMs === 0 ? "0" : ((tokens / durationMs) * 1000).toFixed(0),
    `${(report.hitRate * 100).toFixed(1)} %`,
    preemptions,
  ];
}

/** Number of answered calls and the outcomes of the others: "200", "81, 119 rejected". */
function callsText({ calls }: SimulationReport): string {
  const counts = new Map<string, number>();
  let answered = 0;
  for (const { finish } of calls) {
    if (finish === "stop" || finish === "length") answered += 1;
    else counts.set(finish, (counts.get(finish) ?? 0) + 1);
  }
  return [answered, ...[...counts].map(([finish, count]) => `${count} ${finish}`)].join(", ");
}

function ms(value: number): string {
  return value < 100 ? value.toFixed(1) : value.toFixed(0);
}
