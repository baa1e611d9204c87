/**
 * The papers' results in virtual time: what each claims, and what the same scheduler code that serves shows on measured
 * device models. Prints expected beside measured, nothing left out, and the tables behind it.
 *
 *   bun benchmarks/papers.ts [--quick] [--only log,sarathi,target,waits,preble,parrot,mooncake,batchllm,cards,events,noise,curves]
 *                            [--traces <folder>] [--seeds 5] [--noise mild|rough] [--write docs/papers]
 *
 * Without traces the workloads are drawn from published statistics. --noise lets the steps of all claims but `log` and
 * `noise`, which has its own, differ from what was measured. --quick takes one seed and fewer calls. --write puts
 * what was measured into results.md of that folder, a section for each claim, with charts beside it.
 */

import { parseArgs } from "node:util";
import { tracesFolder } from "../server/cli/simulate/traces.ts";
import { noiseNamed } from "../server/cli/simulate/what-if.ts";
import { offlineJobs, realTrees } from "./papers/batchllm.ts";
import { onCards } from "./papers/batchllm-cards.ts";
import type { Bench } from "./papers/bench.ts";
import { besideChats } from "./papers/beside-chats.ts";
import { hitRate } from "./papers/mooncake.ts";
import { underNoise } from "./papers/noise.ts";
import { agents, chains, gptsUsers, mapReduces, mixed } from "./papers/parrot.ts";
import { pins } from "./papers/pins.ts";
import { againstRoundRobin, latencyByRate } from "./papers/preble.ts";
import { reserves } from "./papers/reserves.ts";
import { Results } from "./papers/results.ts";
import { againstStatic, againstVllm, mixedContexts } from "./papers/sarathi.ts";
import { underEvents } from "./papers/scenarios.ts";
import { realRun } from "./papers/vllm-log.ts";
import { whatWaitsBuy } from "./papers/waits.ts";

const claims: Readonly<Record<string, readonly ((bench: Bench) => void)[]>> = {
  log: [realRun],
  sarathi: [againstVllm],
  target: [againstStatic, mixedContexts],
  waits: [whatWaitsBuy],
  preble: [againstRoundRobin],
  parrot: [chains, mapReduces, agents, gptsUsers, mixed],
  mooncake: [hitRate],
  batchllm: [offlineJobs, realTrees, pins, reserves, besideChats],
  cards: [onCards],
  events: [underEvents],
  noise: [underNoise],
  curves: [latencyByRate],
};

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    traces: { type: "string" },
    seeds: { type: "string" },
    noise: { type: "string" },
    write: { type: "string" },
  },
});

const startMs = performance.now();
const traces = tracesFolder(values.traces ?? null);
const noise = noiseNamed(values.noise ?? null);
const seeds = Array.from({ length: Number(values.seeds ?? (values.quick ? 1 : 5)) }, (_, index) => index + 1);

for (const name of values.only?.split(",") ?? Object.keys(claims)) {
  const runs = claims[name];
  if (runs === undefined) {
    throw new Error(`There is no claim ${name}; there are ${Object.keys(claims).join(", ")}.`);
  }
  const results = new Results();
  const bench: Bench = {
    traces,
    seeds,
    noise,
    isQuick: values.quick,
    row: (row) => {
      results.rows.push(row);
      bench.note(`=> ${row.claim}: ${row.what}: ${row.measured}, expected ${row.expected ?? "nothing"}`);
    },
    table: (title, head, lines) => results.tables.push({ title, head, lines }),
    chart: (name, chart) => results.charts.set(name, chart),
    note: (line) =>
      console.error(`${((performance.now() - startMs) / 1000).toFixed(0).padStart(5)} s  ${line}`),
  };
  for (const run of runs) {
    try {
      run(bench);
    } catch (error) {
      process.exitCode = 1;
      const measured = `failed: ${error instanceof Error ? error.message : error}`;
      bench.row({ claim: name, what: run.name, expected: "a result", measured, isMet: false });
    }
  }
  const how = [
    values.quick ? "a quick run" : "a full run",
    seeds.length === 1 ? "seed 1" : `seeds 1 to ${seeds.length}`,
    traces === null ? "workloads drawn from published statistics" : "workloads from traces",
    ...(noise === null ? [] : [`with ${values.noise} noise`]),
  ].join(", ");
  console.log(`${results.text(name, how)}\n`);
  if (values.write !== undefined) results.write(values.write, name, how, Object.keys(claims));
}
