/**
 * Claims of papers in virtual time: the serving scheduler on measured device models, compared with each
 * paper's claim.
 *
 *   npx bun benchmarks/papers.ts [--only sarathi,…] [--quick] [--seeds 5] [--traces <folder>]
 *
 * Without traces the workloads are drawn from published statistics. --quick uses one seed and fewer calls.
 */

import { parseArgs } from "node:util";
import { tracesFolder } from "../server/cli/simulate/traces.ts";
import { offlineJobs, onCards, realTrees } from "./papers/batchllm.ts";
import type { Bench } from "./papers/bench.ts";
import { besideChats } from "./papers/beside-chats.ts";
import { underEvents } from "./papers/events.ts";
import { agents, chains, gptsUsers, mapReduces, mixed } from "./papers/parrot.ts";
import { againstRoundRobin } from "./papers/preble.ts";
import { againstStatic, againstVllm } from "./papers/sarathi.ts";
import { type Row, tableOf } from "./papers/table.ts";
import { realRun } from "./papers/vllm-log.ts";

const claims: Readonly<Record<string, readonly ((bench: Bench) => void)[]>> = {
  log: [realRun],
  sarathi: [againstVllm],
  target: [againstStatic],
  preble: [againstRoundRobin],
  events: [underEvents],
  parrot: [chains, mapReduces, agents, gptsUsers, mixed],
  batchllm: [offlineJobs],
  trees: [realTrees],
  cards: [onCards],
  beside: [besideChats],
};

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    traces: { type: "string" },
    seeds: { type: "string" },
  },
});

const startMs = performance.now();
const seeds = Array.from({ length: Number(values.seeds ?? (values.quick ? 1 : 5)) }, (_, index) => index + 1);

for (const name of values.only?.split(",") ?? Object.keys(claims)) {
  const runs = claims[name];
  if (runs === undefined) {
    throw new Error(`There is no claim ${name}; there are ${Object.keys(claims).join(", ")}.`);
  }
  const rows: Row[] = [];
  const tables: string[] = [];
  const bench: Bench = {
    traces: tracesFolder(values.traces ?? null),
    seeds,
    isQuick: values.quick,
    row: (row) => rows.push(row),
    table: (title, head, lines) => {
      const cells = [head, head.map(() => "---"), ...lines];
      tables.push(`**${title}**\n\n${cells.map((line) => `| ${line.join(" | ")} |`).join("\n")}`);
    },
    note: (line) =>
      console.error(`${((performance.now() - startMs) / 1000).toFixed(0).padStart(5)} s  ${line}`),
  };
  for (const run of runs) run(bench);
  console.log([`## ${name}`, tableOf(rows), ...tables].join("\n\n"), "\n");
}
