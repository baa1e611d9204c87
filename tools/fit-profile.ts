/**
 * Fits the device models of scheduler/cost/profiles/ to published measurements, and prints how well.
 *
 *   bun tools/fit-profile.ts <folder of traces>
 *
 * The folder holds llmservingsim/, vidur-profiling/ and vidur-profiling-cpu/, copies of the repositories that the fitted
 * files name as their sources. Only fitted tables are kept: no row of a source is.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProfileTable } from "../scheduler/cost/profile.ts";

type Row = Readonly<Record<string, string>>;

/** Time of one layer's attention, and what decides it. */
interface Attention {
  readonly prompt: number;
  readonly context: number;
  readonly decodes: number;
  /** Of all decodes together. */
  readonly decodeContext: number;
  readonly ms: number;
}

const LAYERS = 32;

function readRows(path: string): Row[] {
  const [head = "", ...lines] = readFileSync(path, "utf8").trim().split("\n");
  const names = head.trim().split(",");
  return lines.map((line) => {
    const values = line.trim().split(",");
    return Object.fromEntries(names.map((name, index) => [name, values[index] ?? ""]));
  });
}

/* ---- staircases ---- */

/** The mean of `ms` by `tokens`, never falling; points that the next one covers are left out, since a staircase takes
 *  the value of the next point that is not below. */
function staircase(points: readonly { tokens: number; ms: number }[]): ProfileTable["linear"] {
  const sums = new Map<number, { ms: number; count: number }>();
  for (const { tokens, ms } of points) {
    const sum = sums.get(tokens) ?? { ms: 0, count: 0 };
    sums.set(tokens, { ms: sum.ms + ms, count: sum.count + 1 });
  }
  const grid = [...sums.keys()].sort((a, b) => a - b);
  let highest = 0;
  const rising = grid.map((tokens) => {
    const { ms, count } = sums.get(tokens)!;
    highest = Math.max(highest, ms / count);
    return { tokens, ms: Number(highest.toFixed(3)) };
  });
  const kept = rising.filter(({ ms }, index) => ms !== rising[index + 1]?.ms);
  return { tokens: kept.map(({ tokens }) => tokens), ms: kept.map(({ ms }) => ms) };
}

function staircaseMs({ tokens, ms }: ProfileTable["linear"], count: number): number {
  return ms[tokens.findIndex((step) => step >= count)] ?? ms.at(-1)!;
}

/** Sums the columns of rows that belong to one number of tokens. */
function sumBy(rows: readonly { tokens: number; ms: number }[]): { tokens: number; ms: number }[] {
  const sums = new Map<number, number>();
  for (const { tokens, ms } of rows) sums.set(tokens, (sums.get(tokens) ?? 0) + ms);
  return [...sums].map(([tokens, ms]) => ({ tokens, ms }));
}

/* ---- fits ---- */

/** Non-negative weights that minimise the squares of (features · weights - target) × scale, by coordinate descent. */
function fit(rows: readonly { features: readonly number[]; target: number; scale: number }[]): number[] {
  const size = rows[0]!.features.length;
  const gram = Array.from({ length: size }, () => new Float64Array(size));
  const goal = new Float64Array(size);
  for (const { features, target, scale } of rows) {
    for (let i = 0; i < size; i++) {
      goal[i]! += features[i]! * target * scale * scale;
      for (let j = 0; j < size; j++) gram[i]![j]! += features[i]! * features[j]! * scale * scale;
    }
  }
  const weights = new Array<number>(size).fill(0);
  for (let sweep = 0; sweep < 100_000; sweep++) {
    for (let i = 0; i < size; i++) {
      const diagonal = gram[i]![i]!;
      if (diagonal === 0) continue;
      let residual = goal[i]!;
      for (let j = 0; j < size; j++) residual -= gram[i]![j]! * weights[j]!;
      weights[i] = Math.max(0, weights[i]! + residual / diagonal);
    }
  }
  return weights.map((weight) => Number(weight.toPrecision(5)));
}

const promptFeatures = ({ prompt, context }: Attention): number[] => [
  1,
  prompt,
  prompt * (context + prompt / 2),
  context,
];
const decodeFeatures = ({ decodes, decodeContext }: Attention): number[] => [1, decodes, decodeContext];

/**
 * Fits attention so that the error of a whole step is small: an error in attention counts as much as it is of attention
 * and the linear layers of the same tokens. Each size of a batch or chunk has the same weight, however often it was
 * measured.
 */
function fitAttention(
  rows: readonly Attention[],
  linear: ProfileTable["linear"],
  features: (row: Attention) => number[],
): { weights: number[]; errors: { p50: number; p90: number } } {
  const sizes = new Map<number, number>();
  const sizeOf = ({ prompt, decodes }: Attention): number => prompt + decodes;
  for (const row of rows) sizes.set(sizeOf(row), (sizes.get(sizeOf(row)) ?? 0) + 1);
  const stepMs = (row: Attention): number => row.ms + staircaseMs(linear, sizeOf(row)) / LAYERS;
  const weights = fit(
    rows.map((row) => ({
      features: features(row),
      target: row.ms,
      scale: 1 / stepMs(row) / Math.sqrt(sizes.get(sizeOf(row))!),
    })),
  );
  const errors = rows
    .map((row) => {
      const predicted = features(row).reduce((sum, feature, i) => sum + feature * weights[i]!, 0);
      return Math.abs(predicted - row.ms) / stepMs(row);
    })
    .sort((a, b) => a - b);
  const share = (at: number): number => Number(errors[Math.floor(at * (errors.length - 1))]!.toFixed(4));
  return { weights, errors: { p50: share(0.5), p90: share(0.9) } };
}

function fitLine(points: readonly { at: number; ms: number }[]): { base: number; each: number } {
  const [base = 0, each = 0] = fit(
    points.map(({ at, ms }) => ({ features: [1, at], target: ms, scale: 1 / ms })),
  );
  return { base, each };
}

/** Attention of all layers, from weights of one. `bytes` scales the terms that read keys and values. */
function attentionOf(
  prompt: readonly number[],
  decode: readonly number[],
  bytes: { readonly prompt: number; readonly decode: number },
): Pick<ProfileTable, "prompt" | "decode"> {
  const all = (weight: number | undefined, scale = 1): number =>
    Number(((weight ?? 0) * LAYERS * scale).toPrecision(5));
  return {
    prompt: {
      chunkMs: all(prompt[0]),
      tokenMs: all(prompt[1]),
      pairMs: all(prompt[2]),
      contextMs: all(prompt[3], bytes.prompt),
    },
    decode: {
      stepMs: all(decode[0]),
      sequenceMs: all(decode[1]),
      contextMs: all(decode[2], bytes.decode),
    },
  };
}

/* ---- sources ---- */

const number = (row: Row, name: string): number => Number(row[name]);
const vidurMs = (row: Row, name: string): number => number(row, `time_stats.${name}.median`);

/** What a server's own code adds to a step: schedule, prepare, sample, process, without the way to other processes. */
function cpuOverhead(folder: string): { stepMs: number; sequenceMs: number } {
  const parts = ["schedule", "prepare_inputs_e2e", "sampler_e2e", "process_model_outputs"];
  const points = readRows(join(folder, "vidur-profiling-cpu/a100/cpu_overheads.csv"))
    .filter((row) => row.tensor_parallel_degree === "1" && row.model_name === "meta-llama/Llama-2-7b-hf")
    .map((row) => ({
      at: number(row, "batch_size"),
      ms: parts.reduce((sum, part) => sum + number(row, `${part}_median`), 0),
    }));
  const { base, each } = fitLine(points);
  return { stepMs: base, sequenceMs: each };
}

function a100(folder: string): ProfileTable {
  const perLayer = [
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
    "add",
  ];
  const linear = staircase(
    readRows(join(folder, "vidur-profiling/compute/a100/meta-llama/Meta-Llama-3-8B/mlp.csv"))
      .filter((row) => row.num_tensor_parallel_workers === "1")
      .map((row) => ({
        tokens: number(row, "num_tokens"),
        ms: vidurMs(row, "emb") + LAYERS * perLayer.reduce((sum, name) => sum + vidurMs(row, name), 0),
      })),
  );
  const attention = readRows(join(folder, "vidur-profiling/a100_old/attention.csv")).map((row): Attention => {
    const isPrompt = row.is_prefill === "True";
    const [batch, context] = [number(row, "batch_size"), number(row, "kv_cache_size")];
    return {
      prompt: isPrompt ? number(row, "prefill_chunk_size") : 0,
      context: isPrompt ? context : 0,
      decodes: isPrompt ? 0 : batch,
      decodeContext: isPrompt ? 0 : batch * context,
      ms: vidurMs(row, isPrompt ? "attn_prefill" : "attn_decode"),
    };
  });
  const prompts = fitAttention(
    attention.filter(({ prompt }) => prompt > 0),
    linear,
    promptFeatures,
  );
  const decodes = fitAttention(
    attention.filter(({ prompt }) => prompt === 0),
    linear,
    decodeFeatures,
  );
  // Measured with 32 query heads and 4 key-value heads per device; this shape has 8: twice the bytes, the same products.
  const bytes = { prompt: 2, decode: 2 };
  return {
    name: "A100 80 GB, Mistral-7B shape",
    source:
      "microsoft/vidur 7d47513 (Meta-Llama-3-8B/mlp.csv, one device) and e2d00e9 (attention.csv, 64 query and 8 key-value heads over two devices, key-value bytes doubled); b09e4ff (cpu_overheads.csv, Llama-2-7b). The head is by arithmetic: 262 MB of weights at 1.56 TB/s, and 200 TFLOP/s.",
    licence: "MIT",
    tileTokens: 256,
    pages: 24_560,
    pageTokens: 16,
    contextMax: 8192,
    overhead: cpuOverhead(folder),
    head: { stepMs: 0.168, sequenceMs: 0.00131 },
    linear,
    ...attentionOf(prompts.weights, decodes.weights, bytes),
    error: {
      promptP50: prompts.errors.p50,
      promptP90: prompts.errors.p90,
      decodeP50: decodes.errors.p50,
      decodeP90: decodes.errors.p90,
    },
  };
}

function a6000(folder: string, decodeTable: ProfileTable): ProfileTable {
  const base = join(folder, "llmservingsim/profiler/v0/perf_models/A6000/meta-llama/Llama-3.1-8B/tp1");
  const once = ["embedding", "final_layernorm"];
  const layers = readRows(join(base, "layers.csv")).map((row) => ({
    layer: row.layer_name ?? "",
    tokens: number(row, "input"),
    ms: number(row, "latency(ns)") / 1e6,
  }));
  const linear = staircase(
    sumBy(
      layers
        .filter(({ layer }) => layer !== "attn" && layer !== "lm_head")
        .map(({ layer, tokens, ms }) => ({ tokens, ms: once.includes(layer) ? ms : LAYERS * ms })),
    ).map(({ tokens, ms }) => ({ tokens: tokens <= 8 ? tokens : Math.ceil(tokens / 8) * 8, ms })),
  );
  const rows = readRows(join(base, "attention.csv"))
    .filter((row) => row.is_prefill === "True")
    .map((row): Attention => {
      // Their kv_cache_size counts the chunk too.
      const prompt = number(row, "prefill_chunk_size");
      const context = number(row, "kv_cache_size") - prompt;
      return { prompt, context, decodes: 0, decodeContext: 0, ms: vidurMs(row, "attn_prefill") };
    });
  const prompts = fitAttention(rows, linear, promptFeatures);
  const head = fitLine(
    layers
      .filter(({ layer, tokens }) => layer === "lm_head" && tokens <= 256)
      .map(({ tokens, ms }) => ({ at: tokens, ms })),
  );
  // Memory bandwidth of an RTX 4090 over that of an A6000.
  const slower = 1008 / 768;
  const { stepMs, sequenceMs, contextMs } = decodeTable.decode;
  const scaled = (ms: number): number => Number((ms * slower).toPrecision(5));
  return {
    name: "RTX A6000, Llama-3.1-8B shape",
    source:
      "casys-kaist/LLMServingSim 5daddb2 (profiler/v0, A6000: layers.csv, prefill rows of attention.csv). Its decode rows were measured with a kernel that reads keys and values once per query head, four times what is needed; decode attention is that of the RTX 4090 profile over the memory bandwidths, 1008 and 768 GB/s. Overhead as of the A100 (microsoft/vidur b09e4ff).",
    licence: "MIT",
    tileTokens: 128,
    pages: 12_407,
    pageTokens: 16,
    contextMax: 32_768,
    overhead: cpuOverhead(folder),
    head: { stepMs: head.base, sequenceMs: head.each },
    linear,
    prompt: attentionOf(prompts.weights, [], { prompt: 1, decode: 1 }).prompt,
    decode: { stepMs: scaled(stepMs), sequenceMs: scaled(sequenceMs), contextMs: scaled(contextMs) },
    error: {
      promptP50: prompts.errors.p50,
      promptP90: prompts.errors.p90,
      decodeP50: decodeTable.error.decodeP50,
      decodeP90: decodeTable.error.decodeP90,
    },
  };
}

function rtx4090(folder: string): ProfileTable {
  const base = join(folder, "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1");
  const times = (layer: string): number => {
    if (layer === "embedding" || layer === "final_layernorm") return 1;
    return layer === "layernorm" ? 2 * LAYERS : LAYERS;
  };
  const linear = staircase(
    sumBy(
      readRows(join(base, "dense.csv")).map((row) => ({
        tokens: number(row, "tokens"),
        ms: (number(row, "time_us") / 1000) * times(row.layer ?? ""),
      })),
    ),
  );
  const rows = readRows(join(base, "attention.csv")).map((row): Attention => {
    const decodes = number(row, "n_decode");
    return {
      prompt: number(row, "prefill_chunk"),
      context: number(row, "kv_prefill"),
      decodes,
      decodeContext: decodes * number(row, "kv_decode"),
      ms: number(row, "time_us") / 1000,
    };
  });
  const prompts = fitAttention(
    rows.filter(({ decodes, prompt }) => decodes === 0 && prompt > 0),
    linear,
    promptFeatures,
  );
  const decodes = fitAttention(
    rows.filter(({ prompt, decodes }) => prompt === 0 && decodes > 0),
    linear,
    decodeFeatures,
  );
  const head = fitLine(
    sumBy(
      readRows(join(base, "per_sequence.csv")).map((row) => ({
        tokens: number(row, "sequences"),
        ms: number(row, "time_us") / 1000,
      })),
    ).map(({ tokens, ms }) => ({ at: tokens, ms })),
  );
  return {
    name: "RTX 4090, Llama-3.1-8B shape",
    source:
      "casys-kaist/LLMServingSim 5daddb2 (profiler/perf/RTX4090: dense.csv, per_sequence.csv, attention.csv; vLLM 0.19.0). No overhead of a server's own code.",
    licence: "MIT",
    tileTokens: 128,
    pages: 2588,
    pageTokens: 16,
    contextMax: 32_768,
    overhead: { stepMs: 0, sequenceMs: 0 },
    head: { stepMs: head.base, sequenceMs: head.each },
    linear,
    ...attentionOf(prompts.weights, decodes.weights, { prompt: 1, decode: 1 }),
    error: {
      promptP50: prompts.errors.p50,
      promptP90: prompts.errors.p90,
      decodeP50: decodes.errors.p50,
      decodeP90: decodes.errors.p90,
    },
  };
}

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  console.error("Usage: bun tools/fit-profile.ts <folder of traces>");
  process.exit(2);
}
const consumer = rtx4090(folder);
const tables: Readonly<Record<string, ProfileTable>> = {
  "a100-mistral-7b": a100(folder),
  "a6000-llama-8b": a6000(folder, consumer),
  "rtx4090-llama-8b": consumer,
};
for (const [file, table] of Object.entries(tables)) {
  const path = join(import.meta.dir, "../scheduler/cost/profiles", `${file}.json`);
  writeFileSync(path, `${JSON.stringify(table, null, 2)}\n`);
  const { linear, source: _, ...rest } = table;
  console.log(file, `${linear.tokens.length} points`, JSON.stringify(rest));
}
