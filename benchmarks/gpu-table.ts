/**
 * Table of the GPU kernels' times, "measured" or "estimated": `bun benchmarks/gpu-table.ts [folder]`. The folder is that of
 * benchmarks/gpu.sh; without it everything is estimated for an H200. With it the table has every measurement.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { estimate, type Gpu, h200, type KernelRun } from "./gpu/cost-model.ts";
import { listedRuns } from "./gpu/shapes.ts";

interface ResultLine extends Partial<KernelRun> {
  readonly ceiling?: string;
  readonly per_second?: number;
  readonly gpu?: string;
  readonly multiprocessors?: number;
}

/** Fields of a measurement that are results, not part of its shape. */
const NOT_SHAPE = new Set([
  "kernel",
  "us",
  "bytes",
  "flops",
  "n",
  "k",
  "count",
  "head",
  "start",
  "sequences",
]);

function shapeOf(run: KernelRun): string {
  return Object.entries(run)
    .filter(([name, value]) => !NOT_SHAPE.has(name) && value !== undefined)
    .filter(([name]) => !/^(query_heads|kv_heads|cap|shared_once)$/.test(name) || run.shared_once === true)
    .map(([name, value]) =>
      name === "tokens"
        ? `${value} token${value === 1 ? "" : "s"}`
        : name === "shared_once"
          ? "read once"
          : `${value}`,
    )
    .join(", ");
}

/** Identity of a measurement, which finds it in a list. */
function key(run: KernelRun): string {
  return [
    run.kernel,
    run.product ?? run.batch ?? run.drawn ?? "",
    run.format,
    run.tokens,
    run.pages,
    run.shared_once,
  ].join("|");
}

/** Markdown table of the runs on a GPU; a run without a measured time is "estimated". */
export function table(runs: readonly KernelRun[], gpu: Gpu): string {
  const rows = runs.map((run) => {
    const expected = estimate(run, gpu);
    const seconds = (run.us ?? expected?.us ?? Number.NaN) * 1e-6;
    const ofCopy = run.bytes / seconds / gpu.copyBytesPerSecond;
    const ofFlops = run.flops / seconds / gpu.bf16FlopsPerSecond;
    const percent = (share: number): string => (share > 0 ? `${Math.round(100 * share)} %` : "–");
    const micros = (us: number | undefined): string =>
      us === undefined ? "–" : us >= 100 ? us.toFixed(0) : us.toPrecision(3);
    return `| \`${run.kernel}\` | ${shapeOf(run)} | ${micros(expected?.us)} | ${expected?.bound ?? "–"} | ${micros(run.us)} | ${percent(ofCopy)} | ${percent(ofFlops)} | ${run.us === undefined ? "estimated" : "measured"} |`;
  });
  return [
    "| Kernel | Launch | Estimated µs | Bound by | Measured µs | Of copying | Of bf16 | |",
    "|---|---|---|---|---|---|---|---|",
    ...rows,
  ].join("\n");
}

/** Reads results.jsonl: the measured runs and then the listed ones that are missing, and the GPU by its measured ceilings. */
export function readResults(text: string): {
  readonly name: string;
  readonly gpu: Gpu;
  readonly runs: readonly KernelRun[];
} {
  const lines = text
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as ResultLine);
  const ceiling = (name: string): number | undefined =>
    lines.findLast((line) => line.ceiling === name)?.per_second;
  const found = lines.findLast((line) => line.gpu !== undefined);
  const measured = new Map<string, KernelRun>();
  for (const line of lines) {
    if (line.kernel !== undefined && line.us !== undefined)
      measured.set(key(line as KernelRun), line as KernelRun);
  }
  return {
    name: found?.gpu ?? "an H200",
    gpu: {
      copyBytesPerSecond: ceiling("copy") ?? h200.copyBytesPerSecond,
      bf16FlopsPerSecond: ceiling("bf16") ?? h200.bf16FlopsPerSecond,
      multiprocessors: found?.multiprocessors ?? h200.multiprocessors,
      clockHz: h200.clockHz,
    },
    runs: [...measured.values(), ...listedRuns.filter((run) => !measured.has(key(run)))],
  };
}

/** The table that docs/gpu.md has while nothing is measured. */
export function estimatedTable(): string {
  return table(listedRuns, h200);
}

if (import.meta.main) {
  const folder = process.argv[2];
  if (folder === undefined) console.log(estimatedTable());
  else {
    const { name, gpu, runs } = readResults(readFileSync(join(folder, "results.jsonl"), "utf8"));
    console.log(`Kernels on ${name}.\n\n${table(runs, gpu)}`);
  }
}
