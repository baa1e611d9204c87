/**
 * Price of LoRA adapters in the engine's steps: rows without adapters, with one, and with one for each row.
 *
 *   npx bun benchmarks/adapters.ts <folder> [--rank 16] [--quant int8] [--rounds 15] [--library <path>]
 *
 * Adapters are random and change all projections. Each round times every row once, in turn. A cell is the
 * median of the rounds and, behind it, its ratio to the row without adapters.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../gpu/native/open.ts";
import { openLibrary } from "../gpu/native.ts";
import { openAdapter } from "../model/adapter.ts";
import { openModelFolder } from "../model/folder.ts";
import { formatsOf, type Quant } from "../model/formats.ts";
import { type AdapterId, type Chunk, greedySampling, type SequenceId } from "../scheduler/core.ts";
import { writeAdapter } from "../tests/support/adapter-folder.ts";

const pageTokens = 16;
const contextTokens = 256;
const promptTokens = 512;
const streamsMax = 16;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rank: { type: "string", default: "16" },
    quant: { type: "string", default: "int8" },
    rounds: { type: "string", default: "15" },
    library: { type: "string", default: "build/native/libbunting_cpu.so" },
  },
});
const [path] = positionals;
if (path === undefined) throw new Error("wanted: the folder of a model");

const scratch = mkdtempSync(join(tmpdir(), "bunting-adapter-benchmark-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
const folder = openModelFolder(path);
const rank = Number(values.rank);
const adapters = Array.from({ length: streamsMax }, (_, seed) => {
  const dir = join(scratch, String(seed));
  writeAdapter(path, dir, { seed, rank, alpha: rank });
  return openAdapter(dir, folder);
});

const threads = availableParallelism();
const compute = "bf16";
const library = openLibrary(values.library);
const formats = formatsOf(folder.tensors, folder.config.shape.layers.length, values.quant as Quant, compute);
const model = openNativeModel(
  library,
  folder,
  { compute, isa: "auto", threads, formats, contextMax: null, adapters },
  () => {},
);
const device = openCpuDevice(library, model, {
  threads,
  pages: (streamsMax + 1) * ((contextTokens + promptTokens) / pageTokens),
  pageTokens,
  stepTokensMax: promptTokens,
  stepChunksMax: streamsMax,
  topLogprobsMax: 0,
});

let steps = 0;
/** Runs one step of chunks `count` tokens long behind `start`, and returns its milliseconds. */
function timed(ids: readonly AdapterId[], start: number, count: number): number {
  const perStream = (contextTokens + promptTokens) / pageTokens;
  const chunks = ids.map((adapter, stream): Chunk => {
    const row = { afterIndex: count - 1, sampling: greedySampling, position: 0, banned: [], seen: null };
    return {
      sequence: stream as SequenceId,
      start,
      tokens: Int32Array.from({ length: count }, (_, i) => ((start + i) * 7919 + stream) % model.vocabSize),
      pages: Int32Array.from(
        { length: Math.ceil((start + count) / pageTokens) },
        (_, page) => stream * perStream + page,
      ),
      samples: [{ ...row, allowed: null }],
      adapter,
    };
  });
  steps += 1;
  const beganMs = performance.now();
  device.start({ number: steps, moves: [], chunks }, (result) => {
    if (result.kind !== "done") throw new Error(JSON.stringify(result));
  });
  device.wait();
  device.deliver();
  return performance.now() - beganMs;
}

const ids = adapters.map(({ id }) => id);
const none = (count: number): AdapterId[] => Array(count).fill(0);
const one = (count: number): AdapterId[] => Array(count).fill(ids[0]!);
const rows = [1, 4, 16].map((count) => ({
  title: `${count} ${count === 1 ? "stream" : "streams"}, a token each`,
  ways: { none: none(count), one: one(count), "one each": ids.slice(0, count) },
  start: contextTokens,
  count: 1,
}));
const prompt = {
  title: `a prompt of ${promptTokens} tokens`,
  ways: { none: none(1), one: one(1), "one each": one(1) },
  start: 0,
  count: promptTokens,
};

for (const stream of ids.keys()) timed(none(stream + 1), 0, contextTokens / streamsMax);
const all = [...rows, prompt].map((row) => ({
  ...row,
  times: Object.entries(row.ways).map((): number[] => []),
}));
for (let round = 0; round < Number(values.rounds); round += 1)
  for (const { ways, start, count, times } of all)
    for (const [index, way] of Object.values(ways).entries()) times[index]!.push(timed(way, start, count));

const median = (times: readonly number[]): number => times.toSorted((a, b) => a - b)[times.length >> 1]!;
console.log(`${folder.name}, ${values.quant}, rank ${rank}, ${threads} threads, ms a step`);
console.log("| Step | no adapter | one adapter | one for each stream |\n|---|---|---|---|");
for (const { title, times } of all) {
  const [base, ...others] = times.map(median) as [number, ...number[]];
  const cells = others.map((ms) => `${ms.toFixed(1)} (${(ms / base).toFixed(2)})`);
  console.log(`| ${title} | ${base.toFixed(1)} | ${cells.join(" | ")} |`);
}
device.close();
closeNativeModel(library, model);
