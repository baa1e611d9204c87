/**
 * Effect of rounding on a model: weights to int8, int6, int4 or fp8, keys and values to int8, int4 or fp8.
 * `npx bun benchmarks/quality.ts [model …] [--tokens N] [--text file] [--against model] [--outliers F]
 * [--library path]`. The library decides whether a CPU or a GPU computes. F, a power of two, is the factor of
 * outliers planted in each model first. With --against each model is a file as the server reads it, and the
 * model named there in f32 is the one to compare with.
 *
 * Without a model: the embedded one, and small random ones of the three families. The model in bf16 writes
 * texts at temperature 1: answers to questions if it has a chat template, else continuations of random
 * tokens. Then each rounded model reads the same texts. With --text all read runs of N tokens of that file
 * instead. The table shows means over all their positions:
 *
 * perplexity:   e^(mean of -ln p of the text's next token); since bf16 drew the text, its own is the floor.
 * KL:           sum p ln(p / q) in nats, p in bf16.
 * same best:    share of positions with the same likeliest token.
 * logit error:  RMS of the difference of logits over RMS of the logits around their mean.
 *
 * The last column is the memory of weights and tables on the computing device.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { formatBytes } from "../gpu/memory.ts";
import type { NativeDevice } from "../gpu/native/device.ts";
import { closeNativeModel, openCpuDevice, openGpuDevice, openNativeModel } from "../gpu/native/open.ts";
import { type KvFormat, NativeError, type NativeLibrary, openLibrary } from "../gpu/native.ts";
import { openModelFolder } from "../model/folder.ts";
import { formatsOf, type Quant } from "../model/formats.ts";
import type { ModelFolder } from "../model/model-folder.ts";
import type { Chunk, SequenceId } from "../scheduler/core.ts";
import { table } from "../server/cli/table.ts";
import { sampling } from "../simulation/factories.ts";
import { openTemplate, openTokenizer } from "../text/model-text.ts";
import { plantOutliers } from "../tools/plant-outliers.ts";
import { writeRandomModel } from "../tools/random-model.ts";

const STREAMS = 16;
const PAGE_TOKENS = 16;
interface Way {
  readonly name: string;
  readonly quant: Quant;
  readonly kv: KvFormat;
  readonly compute: "bf16" | "f32";
}
function wayOf(name: string, quant: Quant, kv: KvFormat = "plain", compute: "bf16" | "f32" = "bf16"): Way {
  return { name, quant, kv, compute };
}
const plainWay = wayOf("bf16", "none");
const integerWays = (["int8", "q8_0", "int6", "int4"] as const).map((quant) => wayOf(quant, quant));
const cpuWays: readonly Way[] = [
  wayOf("f32", "none", "plain", "f32"),
  wayOf("auto", "auto"),
  ...integerWays,
  wayOf("bf16, KV int8", "none", "int8"),
  wayOf("bf16, KV int4", "none", "int4"),
];
const gpuWays: readonly Way[] = [...integerWays, wayOf("fp8", "fp8"), wayOf("bf16, KV fp8", "none", "fp8")];

const questions = [
  "What is a lighthouse?",
  "Who are you?",
  "What is prefix caching?",
  "What is 47 plus 38?",
  "Tell me a story about a dragon.",
  "List five fruits.",
  "Define brave.",
  "Count from 3 to 9.",
  "Make a short list about the sea.",
  "Hello!",
  "Mia has a red kite. Tom has a blue ball. What colour is Mia's kite?",
  "Pick the longest item: pear, banana, fig.",
  "What is a river?",
  "Join these items with commas: tea, milk, sugar.",
  "Tell me a story about a boat.",
  "What is 90 minus 27?",
];

/** Model in one format, with a stream of tokens per text. */
class Reader {
  readonly weightBytes: number;
  readonly #library: NativeLibrary;
  readonly #model: ReturnType<typeof openNativeModel>;
  readonly #device: NativeDevice;
  readonly #pagesEach: number;
  #steps = 0;

  constructor(library: NativeLibrary, folder: ModelFolder, { quant, kv, compute }: Way, tokens: number) {
    const threads = library.machineProbe().cores;
    const formats = formatsOf(folder.tensors, folder.config.shape.layers.length, quant, compute);
    const options = { compute, isa: "auto", threads, formats, kv, contextMax: tokens } as const;
    this.#library = library;
    this.#model = openNativeModel(library, folder, options, () => {});
    this.#pagesEach = Math.ceil(tokens / PAGE_TOKENS);
    const pages = this.#pagesEach * STREAMS;
    const limits = {
      ...{ threads, pages, pageTokens: PAGE_TOKENS, topLogprobsMax: 0 },
      ...{ stepTokensMax: STREAMS * tokens, stepChunksMax: STREAMS },
    };
    const devices = hasGpu(library) ? [0] : [];
    this.#device = hasGpu(library)
      ? openGpuDevice(library, this.#model, limits, 0, () => {})
      : openCpuDevice(library, this.#model, limits);
    const shape = { ...folder.config.shape, contextMax: tokens };
    const { copyBytes } = library.enginePlan(shape, options, { ...limits, devices });
    this.weightBytes = copyBytes > 0 ? copyBytes : this.#model.weightBytes;
  }

  /** Returns the logits after the last token of each stream; tokens from `starts` on are new. */
  read(streams: readonly (readonly number[])[], starts: readonly number[]): Float32Array[] {
    const chunks = streams.map((tokens, index): Chunk => {
      const pages = Math.ceil(tokens.length / PAGE_TOKENS);
      const afterIndex = tokens.length - starts[index]! - 1;
      return {
        sequence: index as SequenceId,
        start: starts[index]!,
        tokens: Int32Array.from(tokens.slice(starts[index]!)),
        pages: Int32Array.from({ length: pages }, (_, page) => index * this.#pagesEach + page),
        samples: [{ afterIndex, sampling: sampling(), position: 0, banned: [], seen: null, allowed: null }],
        adapter: 0,
      };
    });
    this.#steps += 1;
    this.#device.start({ number: this.#steps, moves: [], chunks }, (result) => {
      if (result.kind !== "done") throw new Error(`a step ended with ${result.kind}`);
    });
    this.#device.wait();
    this.#device.deliver();
    const logits = this.#device.logits();
    const vocab = this.#device.spec.vocabSize;
    return streams.map((_, row) => logits.subarray(row * vocab, (row + 1) * vocab));
  }

  close(): void {
    this.#device.close();
    closeNativeModel(this.#library, this.#model);
  }
}

function hasGpu(library: NativeLibrary): boolean {
  try {
    library.deviceProbe(0);
    return true;
  } catch (error) {
    if (error instanceof NativeError) return false;
    throw error;
  }
}

/** Log probabilities of logits. */
function logProbabilities(logits: Float32Array): Float64Array {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  let sum = 0;
  for (const value of logits) sum += Math.exp(value - largest);
  const scale = largest + Math.log(sum);
  return Float64Array.from(logits, (value) => value - scale);
}

function indexOfBest(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i += 1) if (values[i]! > values[best]!) best = i;
  return best;
}

/** Draws a token from the probabilities. */
function draw(logs: Float64Array, random: SeededRandom): number {
  let left = random.unit();
  const last = logs.length - 1;
  for (let token = 0; token < last; token += 1) {
    left -= Math.exp(logs[token]!);
    if (left < 0) return token;
  }
  return last;
}

/** Sums over positions. */
class Tally {
  positions = 0;
  #surprise = 0;
  #divergence = 0;
  #same = 0;
  #error = 0;
  #spread = 0;

  add(want: Float32Array, wantLogs: Float64Array, got: Float32Array, next: number): void {
    const gotLogs = logProbabilities(got);
    const wantMean = want.reduce((a, b) => a + b, 0) / want.length;
    const shift = got.reduce((a, b) => a + b, 0) / got.length - wantMean;
    let error = 0;
    let spread = 0;
    for (let i = 0; i < want.length; i += 1) {
      error += (got[i]! - shift - want[i]!) ** 2;
      spread += (want[i]! - wantMean) ** 2;
      this.#divergence += Math.exp(wantLogs[i]!) * (wantLogs[i]! - gotLogs[i]!);
    }
    this.#error += error / want.length;
    this.#spread += spread / want.length;
    this.#surprise -= gotLogs[next]!;
    if (indexOfBest(want) === indexOfBest(got)) this.#same += 1;
    this.positions += 1;
  }

  columns(): string[] {
    const { positions } = this;
    return [
      Math.exp(this.#surprise / positions).toFixed(3),
      (this.#divergence / positions).toFixed(5),
      `${((100 * this.#same) / positions).toFixed(1)} %`,
      Math.sqrt(this.#error / this.#spread).toFixed(4),
    ];
  }
}

/** Makes the beginnings of the texts. */
function beginnings(path: string, vocab: number, random: SeededRandom): number[][] {
  const tokenizer = openTokenizer(path);
  const template = openTemplate(path, tokenizer);
  if (template === null) {
    return Array.from({ length: STREAMS }, () => Array.from({ length: 8 }, () => random.below(vocab)));
  }
  return questions.map((content) => [
    ...tokenizer.encodeRendered(template.render([{ role: "user", content }], { addGenerationPrompt: true })),
  ]);
}

/** Runs of tokens of a file, one for each stream. */
function runsOf(path: string, file: string, count: number): number[][] {
  const tokens = openTokenizer(path).encode(readFileSync(file, "utf8"), {
    addSpecialTokens: false,
    parseControlText: false,
  });
  return Array.from({ length: STREAMS }, (_, stream) => [
    ...tokens.slice(stream * count, (stream + 1) * count),
  ]);
}

/** Measures one model; returns the rows of its table. */
function measure(library: NativeLibrary, path: string, drawn: number, file?: string): string[][] {
  const folder = openModelFolder(path);
  const random = new SeededRandom(1);
  const given = file === undefined ? null : runsOf(path, file, drawn);
  const texts = given?.map(([first]) => [first!]) ?? beginnings(path, folder.config.shape.vocab, random);
  const tokens = Math.min(folder.contextMax, Math.max(...texts.map(({ length }) => length)) + drawn);
  const plain = new Reader(library, folder, plainWay, tokens);
  const ways = hasGpu(library) ? gpuWays : cpuWays;
  const readers = ways.map((way) => new Reader(library, folder, way, tokens));
  const tallies = [plain, ...readers].map(() => new Tally());
  let starts = texts.map(() => 0);
  for (let position = 0; position < drawn - 1; position += 1) {
    const want = plain.read(texts, starts);
    const got = readers.map((reader) => reader.read(texts, starts));
    starts = texts.map(({ length }) => length);
    for (const [index, text] of texts.entries()) {
      const logs = logProbabilities(want[index]!);
      const next = given?.[index]?.[position + 1] ?? draw(logs, random);
      text.push(next);
      [want, ...got].forEach((rows, way) => {
        tallies[way]!.add(want[index]!, logs, rows[index]!, next);
      });
    }
  }
  const name = basename(path);
  const rows = [plain, ...readers].map((reader, way) => {
    const { name: format } = [plainWay, ...ways][way]!;
    return [name, format, ...tallies[way]!.columns(), formatBytes(reader.weightBytes)];
  });
  for (const reader of [plain, ...readers]) reader.close();
  return rows;
}

/** Measures files of one model beside that model in f32; returns a row for each. */
function measureFiles(
  library: NativeLibrary,
  against: string,
  files: readonly string[],
  count: number,
  text: string,
): string[][] {
  const runs = runsOf(against, text, count);
  const read = (path: string, way: Way, each: (position: number, logits: Float32Array[]) => void): number => {
    const reader = new Reader(library, openModelFolder(path), way, count);
    for (let position = 0; position < count - 1; position += 1) {
      const known = runs.map((run) => run.slice(0, position + 1));
      each(
        position,
        reader.read(
          known,
          runs.map(() => position),
        ),
      );
    }
    reader.close();
    return reader.weightBytes;
  };
  const wanted: { readonly logits: Float32Array[]; readonly logs: Float64Array[] }[] = [];
  const exact = wayOf("f32", "none", "plain", "f32");
  read(against, exact, (_, logits) => {
    wanted.push({ logits: logits.map((row) => row.slice()), logs: logits.map(logProbabilities) });
  });
  return files.flatMap((file) =>
    [exact, wayOf("auto", "auto")].map((way) => {
      const tally = new Tally();
      const bytes = read(file, way, (position, logits) => {
        const { logits: want, logs } = wanted[position]!;
        for (const [index, run] of runs.entries())
          tally.add(want[index]!, logs[index]!, logits[index]!, run[position + 1]!);
      });
      return [basename(file), way.name, ...tally.columns(), formatBytes(bytes)];
    }),
  );
}

/** Writes small models of each family. Random weights spread logits unlike trained ones: the hard case. */
function writeFamilies(into: string): string[] {
  const shape = {
    ...{ hidden_size: 512, intermediate_size: 1536, num_hidden_layers: 6, vocab_size: 2048 },
    ...{ num_attention_heads: 8, num_key_value_heads: 4, head_dim: 64, max_position_embeddings: 512 },
    ...{ tie_word_embeddings: false, initializer_range: 0.04 },
  };
  return ["Llama", "Qwen2", "Qwen3"].map((family) => {
    const dir = join(into, `random-${family}`);
    const json = { ...shape, architectures: [`${family}ForCausalLM`] };
    writeRandomModel({ file: "config.json", json }, dir, { seed: 3 });
    return dir;
  });
}

/** Copies the model with outliers. */
function withOutliers(model: string, factor: number): string {
  const copy = join(scratch, `${basename(model)} × ${factor}`);
  plantOutliers(model, copy, factor);
  return copy;
}

const root = resolve(import.meta.dir, "..");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ...{ tokens: { type: "string", default: "128" }, library: { type: "string" } },
    ...{ outliers: { type: "string" }, text: { type: "string" }, against: { type: "string" } },
  } as const,
});
const library = openLibrary(values.library ?? join(root, "build/native/libbunting_cpu.so"));
const scratch = mkdtempSync(join(tmpdir(), "bunting-quality-"));
try {
  const models =
    positionals.length > 0 ? positionals : [join(root, "models/demo"), ...writeFamilies(scratch)];
  const measured =
    values.outliers === undefined
      ? models
      : models.map((model) => withOutliers(model, Number(values.outliers)));
  const { against, text } = values;
  const count = Number(values.tokens);
  if (against !== undefined && text === undefined) throw new Error("--against needs --text");
  const rows =
    against === undefined
      ? measured.flatMap((model) => measure(library, model, count, text))
      : measureFiles(library, against, measured, count, text!);
  const heads = ["model", "format", "perplexity", "KL", "same best", "logit error", "memory"];
  console.log(table(heads, rows));
} finally {
  rmSync(scratch, { recursive: true });
}
