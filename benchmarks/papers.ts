/**
 * The papers' results in virtual time: what each claims, and what the same scheduler code that serves shows on measured
 * device models. Prints one table, expected beside measured, nothing left out; then the tables and charts of docs/papers.
 *
 *   bun benchmarks/papers.ts [--quick] [--only sarathi,target,preble,curves,mooncake,log] [--traces <folder>]
 *                            [--seeds 5] [--charts <folder>]
 *
 * Without traces the workloads are drawn from published statistics. --quick takes one seed and fewer calls.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { tracesFolder } from "../server/simulate/traces.ts";
import type { Bench } from "./papers/bench.ts";
import { hitRate } from "./papers/mooncake.ts";
import { againstRoundRobin, latencyByRate } from "./papers/preble.ts";
import { againstStatic, againstVllm, mixedContexts } from "./papers/sarathi.ts";
import { svgOf } from "./papers/svg.ts";
import { type Row, tableOf } from "./papers/table.ts";
import { realRun } from "./papers/vllm-log.ts";

const claims: Readonly<Record<string, readonly ((bench: Bench) => void)[]>> = {
  log: [realRun],
  sarathi: [againstVllm],
  preble: [againstRoundRobin],
  mooncake: [hitRate],
  target: [againstStatic, mixedContexts],
  curves: [latencyByRate],
};

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    traces: { type: "string" },
    seeds: { type: "string" },
    charts: { type: "string" },
  },
});

const startMs = performance.now();
const rows: Row[] = [];
const tables: string[] = [];
const charts = values.charts ?? null;
const bench: Bench = {
  traces: tracesFolder(values.traces ?? null),
  seeds: Array.from({ length: Number(values.seeds ?? (values.quick ? 1 : 5)) }, (_, index) => index + 1),
  isQuick: values.quick,
  row: (row) => {
    rows.push(row);
    bench.note(
      `=> ${row.claim}: ${row.what}: ${row.measured}${row.expected === null ? "" : `, expected ${row.expected}`}`,
    );
  },
  table: (title, head, lines) => {
    const cells = [head, head.map(() => "---"), ...lines];
    tables.push(`**${title}**\n\n${cells.map((line) => `| ${line.join(" | ")} |`).join("\n")}`);
  },
  chart: (name, chart) => {
    if (charts === null) return;
    mkdirSync(charts, { recursive: true });
    writeFileSync(join(charts, `${name}.svg`), svgOf(chart));
  },
  note: (line) =>
    console.error(`${((performance.now() - startMs) / 1000).toFixed(0).padStart(5)} s  ${line}`),
};

const names = values.only?.split(",") ?? Object.keys(claims);
for (const name of names) {
  const runs = claims[name];
  if (runs === undefined)
    throw new Error(`There is no claim ${name}; there are ${Object.keys(claims).join(", ")}.`);
  for (const run of runs) run(bench);
}
console.log(
  `Workloads: ${bench.traces === null ? "drawn from published statistics" : "from traces"}; seeds ${bench.seeds.join(", ")}.\n`,
);
console.log(`${tableOf(rows)}\n`);
for (const table of tables) console.log(`${table}\n`);
