/**
 * The CPU engine against this machine's measured ceilings and, when it is there, against llama.cpp in the same run, at the
 * same weight width and with as many threads, llama.cpp in the faster of its configurations. Random weights. The machine
 * should be idle; models and GGUF files are made once and kept in --place.
 *
 *   npx bun benchmarks/cpu.ts [--place folder] [--models 0.5B,1B] [--formats bf16,int8,int4] [--rows prefill,decode,server,start]
 *     [--threads 2] [--isa avx2] [--library build/native/libbunting_cpu.so] [--llama-bench path] [--llama-server path] [--json]
 *
 * `--isa` forces a lower instruction set for the rows of the engine. Kernels one by one, on every instruction set:
 *
 *   cmake --build build/native --target bunting_bench_gemm bunting_bench_attention
 *   build/native/bunting_bench_gemm [--level avx2]; build/native/bunting_bench_attention [avx2]
 */

import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type Isa, isaNames, openLibrary } from "../gpu/native.ts";
import { streamChat } from "../server/cli/client.ts";
import { type Cell, table } from "../server/cli/table.ts";
import { EngineBench, type Format, promptOperations, type Streams } from "./cpu/engine.ts";
import { type Best, llamaBatched, llamaBench } from "./cpu/llama.ts";
import { ggufFile, type ModelName, modelFolder, modelNames } from "./cpu/models.ts";
import { runProgram, startProgram } from "./cpu/runs.ts";
import { type Crowd, loadLlama, loadServer, startOurs } from "./cpu/serving.ts";

const root = resolve(import.meta.dir, "..");
const { values } = parseArgs({
  options: {
    place: { type: "string", default: join(tmpdir(), "bunting-cpu-benchmark") },
    models: { type: "string", default: "0.5B,1B" },
    formats: { type: "string", default: "bf16,int8,int4" },
    rows: { type: "string", default: "prefill,decode,server,start" },
    threads: { type: "string", default: String(Math.min(2, navigator.hardwareConcurrency)) },
    isa: { type: "string", default: "auto" },
    library: { type: "string", default: join(root, "build/native/libbunting_cpu.so") },
    "llama-bench": { type: "string" },
    "llama-server": { type: "string" },
    json: { type: "boolean", default: false },
  },
});

interface Row {
  readonly what: string;
  readonly ours: number;
  readonly unit: string;
  /** Of what the machine can do, 0 … 1; null where no ceiling is known. */
  readonly share: number | null;
  readonly llama: number | null;
  readonly llamaWith: string;
  /** Ours / llama.cpp, or the other way round where less is better; null: there is nothing to compare with. */
  readonly ratio: number | null;
  readonly aim: string;
}

/** Of all threads together, per second. */
interface Ceilings {
  readonly readBytes: number;
  readonly bf16: number;
  readonly int8: number;
}

const threads = Number(values.threads);
const isa = pick([...isaNames, "auto"], values.isa, "--isa");
const models = values.models
  .split(",")
  .map((name) => pick(Object.keys(modelNames), name, "--models") as ModelName);
const formats = values.formats
  .split(",")
  .map((name) => pick(["bf16", "int8", "int4"], name, "--formats") as Format);
const kinds = new Set(
  values.rows.split(",").map((name) => pick(["prefill", "decode", "server", "start"], name, "--rows")),
);

function pick(choices: readonly string[], value: string, option: string): string {
  if (choices.includes(value)) return value;
  throw new Error(`${option} ${value}: wanted ${choices.join(", ")}`);
}

async function measureCeilings(): Promise<Ceilings> {
  const build = resolve(values.library, "..");
  await runProgram(["cmake", "--build", build, "--target", "bunting_bench_ceilings"]);
  const out = await runProgram([join(build, "bunting_bench_ceilings"), String(threads)]);
  return JSON.parse(out) as Ceilings;
}

const decodeRows: readonly (Streams & { readonly what: string; readonly aim: (format: Format) => string })[] =
  [
    {
      what: "decode, 1 stream",
      ...{ streams: 1, contextTokens: 128, sharedTokens: 0 },
      aim: (format) => (format === "bf16" ? "≥ 1.4×, ≥ 85 %" : "≥ 1.2×"),
    },
    { what: "decode, 8 streams", streams: 8, contextTokens: 128, sharedTokens: 0, aim: () => "≥ 2.5×" },
    { what: "decode, 32 streams", streams: 32, contextTokens: 128, sharedTokens: 0, aim: () => "≥ 4×" },
    {
      what: "decode, 32 streams sharing 512 tokens",
      ...{ streams: 32, contextTokens: 512, sharedTokens: 512 },
      aim: () => "≥ 3×",
    },
  ];

async function engineRows(ceilings: Ceilings, name: ModelName, format: Format): Promise<Row[]> {
  const llama = values["llama-bench"];
  const gguf = llama === undefined ? null : await ggufFile(values.place, name, format, llama);
  const rows: Row[] = [];
  const library = openLibrary(values.library);
  const bench = new EngineBench(
    library,
    modelFolder(values.place, name),
    format,
    threads,
    isa as Isa | "auto",
  );
  const add = (what: string, ours: number, share: number | null, best: Best | null, aim: string): void => {
    const ratio = best === null ? null : ours / best.perSecond;
    const compared = { llama: best?.perSecond ?? null, llamaWith: best?.with ?? "", ratio };
    rows.push({ what: `${name} ${format}: ${what}`, ours, unit: "tok/s", share, ...compared, aim });
    print(rows.slice(-1));
  };
  if (kinds.has("prefill")) {
    for (const tokens of format === "bf16" ? [512, 2048] : [512]) {
      const ours = bench.prefill(tokens, tokens > 512 ? 2 : 3);
      const operations = (promptOperations(bench.shape, tokens) / tokens) * ours;
      const share = operations / (format === "bf16" ? ceilings.bf16 : ceilings.int8);
      const work = { prompt: tokens, generate: 0 };
      const best = llama === undefined || gguf === null ? null : await llamaBench(llama, gguf, threads, work);
      const aim = format === "bf16" ? "≥ 8×" : "≥ 2.5×";
      add(`prefill ${tokens}`, ours, share, best, aim);
    }
  }
  for (const row of kinds.has("decode") ? decodeRows : []) {
    const ours = bench.decode(row);
    const share = row.streams === 1 ? (ours * bench.weightBytes) / ceilings.readBytes : null;
    let best: Best | null = null;
    if (llama !== undefined && gguf !== null) {
      best =
        row.streams === 1
          ? await llamaBench(llama, gguf, threads, { prompt: 0, generate: 32 })
          : await llamaBatched(llama, gguf, threads, row);
    }
    add(row.what, ours, share, best, row.aim(format));
  }
  bench.close();
  return rows;
}

const crowds: readonly (Crowd & { readonly what: string; readonly aims: readonly [string, string] })[] = [
  {
    what: "8 clients, 512 own tokens, 64 out",
    ...{ clients: 8, requests: 16, sharedTokens: 0, ownTokens: 512, outputTokens: 64 },
    aims: ["≥ 3×", "TBT p99 ≤ 1/4"],
  },
  {
    what: "16 clients, 1,500 shared + 50 own tokens, 32 out",
    ...{ clients: 16, requests: 16, sharedTokens: 1500, ownTokens: 50, outputTokens: 32 },
    aims: ["≥ 15×", "TTFT p99 ≤ 1/10"],
  },
];

async function serverRows(name: ModelName, format: Format): Promise<Row[]> {
  const rows: Row[] = [];
  const program = values["llama-server"];
  const quantizer = values["llama-bench"] ?? program;
  for (const crowd of crowds) {
    const server = await startOurs(modelFolder(values.place, name), format, threads);
    const ours = await loadServer(server.url, crowd).finally(server.stop);
    const theirs =
      program === undefined
        ? null
        : await loadLlama(program, await ggufFile(values.place, name, format, quantizer!), threads, crowd);
    const what = `${name} ${format}: ${crowd.what}`;
    const llamaWith = theirs?.with ?? "";
    const rate = theirs?.report.outputTokensPerSecond ?? null;
    const first = {
      ...{ what, ours: ours.outputTokensPerSecond, unit: "tok/s", share: null, llama: rate, llamaWith },
      ...{ ratio: rate === null ? null : ours.outputTokensPerSecond / rate, aim: crowd.aims[0] },
    };
    const isShared = crowd.sharedTokens > 0;
    const msOf = (report: typeof ours): number =>
      (isShared ? report.ttftMs : report.tbtMs)?.p99 ?? Number.NaN;
    const ms = theirs === null ? null : msOf(theirs.report);
    const second = {
      ...{
        what: `… ${isShared ? "TTFT" : "TBT"} p99`,
        ours: msOf(ours),
        unit: "ms",
        share: null,
        llama: ms,
        llamaWith,
      },
      ...{ ratio: ms === null ? null : ms / msOf(ours), aim: crowd.aims[1] },
    };
    rows.push(first, second);
    print([first, second]);
  }
  return rows;
}

async function startRows(): Promise<Row[]> {
  const plain = { share: null, llama: null, llamaWith: "", ratio: null, unit: "ms" };
  const rows: Row[] = [];
  const executable = join(root, "dist/bunting");
  if (await Bun.file(executable).exists()) {
    const firstTokenMs = async (): Promise<number> => {
      const startMs = performance.now();
      const server = await startProgram(
        (port) => [executable, "serve", "--port", String(port)],
        "/health/ready",
      );
      const body = { model: "demo", messages: [{ role: "user", content: "Who are you?" }], max_tokens: 4 };
      for await (const event of streamChat(
        { url: server.url, apiKey: null },
        body,
        new AbortController().signal,
      )) {
        if (event.kind === "text") break;
      }
      const tookMs = performance.now() - startMs;
      await server.stop();
      return tookMs;
    };
    await firstTokenMs(); // Extracts the library and the model.
    const ours = Math.min(await firstTokenMs(), await firstTokenMs(), await firstTokenMs());
    rows.push({ ...plain, what: "embedded model: executable start to first token", ours, aim: "≤ 300 ms" });
  }
  for (const name of models) {
    for (const format of formats) {
      const folder = modelFolder(values.place, name);
      const readyMs = async (): Promise<number> => {
        const server = await startOurs(folder, format, threads);
        await server.stop();
        return server.readyMs;
      };
      await readyMs(); // Packs the weights and keeps them.
      rows.push({
        ...plain,
        what: `${name} ${format}: second start to ready`,
        ours: await readyMs(),
        aim: name === "1B" && format === "bf16" ? "≤ 3,000 ms" : "",
      });
    }
  }
  print(rows);
  return rows;
}

const head = ["what", "ours", "unit", "of the ceiling", "llama.cpp", "with", "ratio", "aim"];

function cells({ what, ours, unit, share, llama, llamaWith, ratio, aim }: Row): Cell[] {
  const rounded = (value: number): string => (value < 100 ? value.toFixed(1) : value.toFixed(0));
  const percent = share === null ? null : `${(share * 100).toFixed(0)} %`;
  const times = ratio === null ? null : `${ratio.toFixed(2)}×`;
  return [what, rounded(ours), unit, percent, llama === null ? null : rounded(llama), llamaWith, times, aim];
}

/** Rows as they come, for the impatient. */
function print(rows: readonly Row[]): void {
  if (!values.json)
    for (const row of rows)
      console.error(
        cells(row)
          .filter((cell) => cell !== null)
          .join("  "),
      );
}

const ceilings = await measureCeilings();
const rows: Row[] = [];
for (const name of models) {
  for (const format of formats) {
    if (kinds.has("prefill") || kinds.has("decode")) rows.push(...(await engineRows(ceilings, name, format)));
    if (kinds.has("server") && format === "int8") rows.push(...(await serverRows(name, format)));
  }
}
if (kinds.has("start")) rows.push(...(await startRows()));
if (values.json) {
  console.log(JSON.stringify({ threads, isa, ceilings, rows }, null, 2));
} else {
  const giga = (value: number): string => (value / 1e9).toFixed(0);
  console.log(
    `${threads} threads read ${giga(ceilings.readBytes)} GB/s and do ${giga(ceilings.bf16)} GFLOP/s in bf16, ${giga(ceilings.int8)} GOP/s in int8.\n`,
  );
  console.log(table(head, rows.map(cells)));
}
process.exit(0);
