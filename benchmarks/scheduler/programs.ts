/**
 * Cost of programs in the scheduler: graphs of 10,000 calls from their arrival to the last end, without
 * computation.
 */

import { call, soon } from "../../scheduler/program/factories.ts";
import { Program } from "../../scheduler/program/program.ts";
import type { CallSpec } from "../../scheduler/program/spec.ts";

/** Microseconds per call of one shape of graph: the best of several runs. */
export interface ProgramRow {
  readonly graph: string;
  readonly calls: number;
  readonly addUs: number;
  readonly deduceUs: number;
  readonly runUs: number;
}

const CALLS = 10_000;
const RUNS = 7;
const LAYER = 100;

/** Graphs: each call reads the one before; one reads all others; each reads three of a layer before. */
const graphs: Readonly<Record<string, () => CallSpec[]>> = {
  chain: () => calls((index) => (index === 0 ? [] : [index - 1])),
  "map and reduce": () => calls((index) => (index === CALLS - 1 ? [...Array(index).keys()] : [])),
  "layers of 100": () =>
    calls((index) => {
      const before = (Math.floor(index / LAYER) - 1) * LAYER;
      return before < 0 ? [] : [0, 13, 26].map((far) => before + ((index * 7 + far) % LAYER));
    }),
};

/** Runs every graph. */
export function measurePrograms(): ProgramRow[] {
  return Object.entries(graphs).map(([graph, make]) => {
    const nodes = make();
    const runs = Array.from({ length: RUNS }, () => measure(nodes));
    const best = runs.reduce((a, b) => (sum(b) < sum(a) ? b : a));
    const [addUs, deduceUs, runUs] = best.map((ms) => (ms * 1000) / CALLS) as [number, number, number];
    return { graph, calls: CALLS, addUs, deduceUs, runUs };
  });
}

/** Writes a Markdown table. */
export function programTable(rows: readonly ProgramRow[]): string {
  const lines = rows.map(({ graph, calls: count, addUs, deduceUs, runUs }) => {
    const all = [addUs, deduceUs, runUs, addUs + deduceUs + runUs].map((us) => us.toFixed(1));
    return `| ${graph} | ${count} | ${all.join(" | ")} |`;
  });
  const head = "| graph | calls | add, µs a call | deduce | run | all |\n|---|---|---|---|---|---|";
  return [head, ...lines].join("\n");
}

function calls(readsOf: (index: number) => readonly number[]): CallSpec[] {
  return Array.from({ length: CALLS }, (_, index) =>
    call(
      `c${index}`,
      readsOf(index).map((other) => `v${other}`),
      [`v${index}`],
    ),
  );
}

function measure(nodes: readonly CallSpec[]): readonly [number, number, number] {
  const ready: string[] = [];
  let taskGroups = 0;
  const listener = {
    onReady: (told: readonly { readonly call: string }[]) => {
      for (const one of told) ready.push(one.call);
    },
    onHead: () => {},
    onDropped: () => {},
    onSettled: () => {},
  };
  const startMs = performance.now();
  const program = new Program(listener, { clock: { nowMs: () => 0 }, nextTaskGroup: () => taskGroups++ });
  program.add({ nodes, variables: [] });
  const addedMs = performance.now();
  program.want(`v${CALLS - 1}`, soon);
  const deducedMs = performance.now();
  for (const name of ready) {
    program.placed(name);
    program.started(name);
    program.drewFirst(name);
    program.wrote(name, 0, "");
    program.ended(name);
  }
  const endedMs = performance.now();
  if (!program.isDone) throw new Error("The program has not ended.");
  return [addedMs - startMs, deducedMs - addedMs, endedMs - deducedMs];
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
