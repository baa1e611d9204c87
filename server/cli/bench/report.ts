/** Reports of load tests, as text for a terminal and as HTML. */

import type { LoadPlan, LoadReport, LoadRun } from "../load.ts";
import { outcomeOf } from "../load.ts";
import type { HtmlReport, Plot, PlotLine } from "../report/html.ts";
import { type Cell, table } from "../table.ts";
import { type Outcome, type Percentiles, perTokenMs, quantileCurve, type Target } from "./figures.ts";
import { SHARE_MIN } from "./sweep.ts";

/** Shares at which percentile curves have points: every percent, 99.9 and 100. */
const SHARES = [...Array.from({ length: 100 }, (_, percent) => percent / 100), 0.999, 1];

/** Formats a report for people. */
export function formatReport(report: LoadReport): string {
  const lines = [
    planText(report.plan),
    "",
    table(latencyHead, latencyRows(report)),
    "",
    table(totalsHead, [totalsRow(report)]),
  ];
  if (report.goodput !== null) lines.push("", goodputText(report.goodput));
  for (const [message, count] of Object.entries(report.errors)) lines.push("", `${count} × ${message}`);
  return lines.join("\n");
}

export function planText({ model, requests, arrivals, seed, ...plan }: LoadPlan): string {
  const how =
    arrivals.kind === "poisson"
      ? `Poisson arrivals at ${arrivals.perSecond}/s`
      : `${arrivals.clients} clients`;
  return `${model}: ${requests} requests, ${how}, ${datasetText(plan)}, seed ${seed}`;
}

function datasetText(plan: Omit<LoadPlan, "model" | "requests" | "arrivals" | "seed">): string {
  const { dataset = "fixed", turns = 1, promptTokens, sharedPrefixTokens, outputTokens } = plan;
  if (dataset === "sharegpt") return "lengths as ShareGPT's";
  const shared = sharedPrefixTokens > 0 ? ` (${sharedPrefixTokens} shared)` : "";
  const sizes = `prompts of ${promptTokens} tokens${shared}, answers of ${outputTokens}`;
  return dataset === "conversations" ? `conversations of ${turns} turns, ${sizes}` : sizes;
}

export const latencyHead = ["milliseconds", "p50", "p90", "p99", "max"];

export function latencyRows(report: LoadReport): readonly (readonly Cell[])[] {
  return [
    row("time to first token", report.ttftMs),
    row("time between tokens", report.tbtMs),
    row("per token of an answer", report.perTokenMs),
    row("end to end", report.endToEndMs),
  ];
}

function row(name: string, values: Percentiles | null): readonly Cell[] {
  if (values === null) return [name, null, null, null, null];
  return [name, ...[values.p50, values.p90, values.p99, values.max].map((value) => value.toFixed(1))];
}

const totalsHead = ["completed", "failed", "seconds", "requests/s", "tokens/s", "prompt tokens", "cached"];

function totalsRow(report: LoadReport): readonly Cell[] {
  return [
    report.completed,
    report.failed,
    report.seconds.toFixed(2),
    (report.completed / report.seconds).toFixed(2),
    report.outputTokensPerSecond.toFixed(1),
    report.promptTokens,
    `${(report.cachedShare * 100).toFixed(1)} %`,
  ];
}

export function targetText({ ttftMs, tbtMs }: Target): string {
  return `first token within ${ttftMs} ms, then ${tbtMs} ms per token`;
}

function goodputText({ target, share, perSecond }: NonNullable<LoadReport["goodput"]>): string {
  return `Good answers (${targetText(target)}): ${(share * 100).toFixed(1)} %, ${perSecond.toFixed(2)} per second`;
}

/** HTML of one load test. */
export function loadHtml({ report, records }: LoadRun): HtmlReport {
  const outcomes = records.filter(({ error }) => error === null).map(outcomeOf);
  const gaps = records.flatMap(({ gapsMs }) => gapsMs);
  return {
    title: `Load of ${report.plan.model}`,
    notes: [planText(report.plan), ...(report.goodput === null ? [] : [goodputText(report.goodput)])],
    tables: [
      { head: latencyHead, rows: latencyRows(report) },
      { head: totalsHead, rows: [totalsRow(report)] },
    ],
    plots: [
      ...latencyPlots([{ label: report.plan.model, outcomes }]),
      curvePlot("Time between tokens", [{ label: report.plan.model, values: quantileCurve(gaps, SHARES) }]),
    ],
  };
}

/** Percentile curves, a line for each load test. */
export function latencyPlots(
  loads: readonly { readonly label: string; readonly outcomes: readonly Outcome[] }[],
): readonly Plot[] {
  const curves: readonly (readonly [string, (outcome: Outcome) => number | null])[] = [
    ["Time to first token", ({ ttftMs }) => ttftMs],
    ["Time per token of an answer", perTokenMs],
    ["End to end", ({ sentMs, endMs }) => endMs - sentMs],
  ];
  return curves.map(([title, of]) =>
    curvePlot(
      title,
      loads.map(({ label, outcomes }) => ({
        label,
        values: quantileCurve(
          outcomes.flatMap((outcome) => of(outcome) ?? []),
          SHARES,
        ),
      })),
    ),
  );
}

function curvePlot(title: string, lines: readonly PlotLine[]): Plot {
  const x = SHARES.map((share) => share * 100);
  return { title, xLabel: "percent of the requests", yLabel: "milliseconds at most", x, lines };
}

const sweepHead = [
  "requests/s",
  "good",
  "good/s",
  "first token p50",
  "p99",
  "per token p50",
  "p99",
  "end to end p50",
  "p99",
  "tokens/s",
  "failed or cut",
];

export function sweepTable(points: readonly LoadReport[]): string {
  return table(sweepHead, sorted(points).map(sweepRow));
}

export function rateOf({ plan: { arrivals } }: LoadReport): number {
  return arrivals.kind === "poisson" ? arrivals.perSecond : 0;
}

function sorted(points: readonly LoadReport[]): readonly LoadReport[] {
  return points.toSorted((a, b) => rateOf(a) - rateOf(b));
}

function sweepRow(report: LoadReport): readonly Cell[] {
  const ms = (values: Percentiles | null, name: keyof Percentiles): Cell => values?.[name].toFixed(1) ?? null;
  const { goodput, ttftMs, perTokenMs: perToken, endToEndMs } = report;
  return [
    rateOf(report).toFixed(2),
    `${((goodput?.share ?? 0) * 100).toFixed(0)} %`,
    (goodput?.perSecond ?? 0).toFixed(2),
    ...[ttftMs, perToken, endToEndMs].flatMap((values) => [ms(values, "p50"), ms(values, "p99")]),
    report.outputTokensPerSecond.toFixed(1),
    report.failed + report.unanswered,
  ];
}

export function kneeText(knee: number | null, target: Target): string {
  const what = `${Math.round(SHARE_MIN * 100)} % of the answers keep the target (${targetText(target)})`;
  return knee === null
    ? `At no rate that was tried, ${what}.`
    : `Up to ${knee.toFixed(2)} requests per second, ${what}.`;
}

/** HTML of a sweep: latency and goodput by request rate. */
export function sweepHtml(points: readonly LoadReport[], knee: number | null, target: Target): HtmlReport {
  const byRate = sorted(points);
  const x = byRate.map(rateOf);
  const mark = knee === null ? {} : { mark: knee };
  const axes = { xLabel: "requests per second", x, ...mark };
  const latency = (title: string, of: (report: LoadReport) => Percentiles | null): Plot => ({
    ...axes,
    title,
    yLabel: "milliseconds",
    lines: (["p50", "p90", "p99"] as const).map((label) => ({
      label,
      values: byRate.map((report) => of(report)?.[label] ?? null),
    })),
  });
  const [first] = byRate;
  return {
    title: `Latency of ${first?.plan.model ?? "a server"} by rate`,
    notes: [
      ...(first === undefined ? [] : [`${datasetText(first.plan)}, seed ${first.plan.seed}`]),
      kneeText(knee, target),
    ],
    tables: [{ head: sweepHead, rows: byRate.map(sweepRow) }],
    plots: [
      latency("Time to first token", ({ ttftMs }) => ttftMs),
      latency("Time between tokens", ({ tbtMs }) => tbtMs),
      latency("End to end", ({ endToEndMs }) => endToEndMs),
      {
        ...axes,
        title: "Goodput",
        yLabel: "good answers per second",
        lines: [
          { label: "good answers", values: byRate.map(({ goodput }) => goodput?.perSecond ?? null) },
          { label: "requests", values: x },
        ],
      },
    ],
  };
}
