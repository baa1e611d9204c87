/** Reads published measurements of a model on a device from the publishers' file formats. */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Milliseconds by number of tokens or rows. */
export interface Point {
  readonly tokens: number;
  readonly ms: number;
}

/** Time of one layer's attention, with the sizes that determine it. */
export interface Attention {
  readonly prompt: number;
  readonly context: number;
  readonly decodes: number;
  /** Total context of all decodes. */
  readonly decodeContext: number;
  readonly ms: number;
}

/** Times of a model on a device. */
export interface Measured {
  /**
   * Total over all layers of everything that depends only on the number of tokens. A number may occur several
   * times.
   */
  readonly linear: readonly Point[];
  /** Attention of one layer. */
  readonly attention: readonly Attention[];
  /** Output head and sampling, by rows; null if they were not measured. */
  readonly head: readonly Point[] | null;
}

type Row = Readonly<Record<string, string>>;

/**
 * Reads the first complete set of files in `folders`. File names distinguish the three known sets. Throws if
 * none is complete.
 */
export function readMeasured(folders: readonly string[], layers: number): Measured {
  const pathOf = (file: string): string | undefined =>
    folders.map((folder) => join(folder, file)).find((path) => existsSync(path));
  for (const { files, read } of layouts) {
    const paths = files.map(pathOf);
    if (paths.every((path) => path !== undefined)) return read(paths.map(readRows), layers);
  }
  const known = layouts.map(({ files }) => files.join(" and ")).join("; ");
  throw new Error(`${folders.join(" and ")}: no measurements; known are ${known}.`);
}

const layouts: readonly {
  readonly files: readonly string[];
  readonly read: (tables: readonly Row[][], layers: number) => Measured;
}[] = [
  {
    files: ["dense.csv", "attention.csv", "per_sequence.csv"],
    read: ([dense = [], attention = [], heads = []], layers) => ({
      linear: llmServingSimDense(dense, layers),
      attention: attention.map(llmServingSimAttention),
      head: sumBy(
        heads.map((row) => ({ tokens: number(row, "sequences"), ms: number(row, "time_us") / 1000 })),
      ),
    }),
  },
  {
    files: ["layers.csv", "attention.csv"],
    read: ([measured = [], attention = []], layers) => ({
      linear: llmServingSimLayers(measured, layers),
      // Their kv_cache_size includes the chunk.
      attention: attention.map((row) => vidurAttention(row, true)),
      head: measured
        .map((row) => ({ layer: row.layer_name, ...layerPoint(row) }))
        .filter(({ layer, tokens }) => layer === "lm_head" && tokens <= HEAD_ROWS_MAX)
        .map(({ tokens, ms }) => ({ tokens, ms })),
    }),
  },
  {
    files: ["mlp.csv", "attention.csv"],
    read: ([mlp = [], attention = []], layers) => ({
      linear: mlp
        .filter((row) => row.num_tensor_parallel_workers === "1")
        .map((row) => ({ tokens: number(row, "num_tokens"), ms: vidurLinearMs(row, layers) })),
      attention: attention.map((row) => vidurAttention(row, false)),
      head: null,
    }),
  },
];

/** Maximum rows of the output head; more rows come from prompts. */
const HEAD_ROWS_MAX = 256;

/**
 * Overhead of a server's own code per step, by number of sequences: scheduling, preparation, sampling,
 * processing, without communication between processes.
 */
export function readOverhead(path: string): Point[] {
  const parts = ["schedule", "prepare_inputs_e2e", "sampler_e2e", "process_model_outputs"];
  return readRows(path)
    .filter((row) => row.tensor_parallel_degree === "1" && row.model_name === "meta-llama/Llama-2-7b-hf")
    .map((row) => ({
      tokens: number(row, "batch_size"),
      ms: parts.reduce((sum, part) => sum + number(row, `${part}_median`), 0),
    }));
}

function readRows(path: string): Row[] {
  const [head = "", ...lines] = readFileSync(path, "utf8").trim().split("\n");
  const names = head.trim().split(",");
  return lines.map((line) => {
    const values = line.trim().split(",");
    return Object.fromEntries(names.map((name, index) => [name, values[index] ?? ""]));
  });
}

const number = (row: Row, name: string): number => Number(row[name]);
const vidurMs = (row: Row, name: string): number => number(row, `time_stats.${name}.median`);

/** Sums the columns of rows with the same number of tokens. */
function sumBy(rows: readonly Point[]): Point[] {
  const sums = new Map<number, number>();
  for (const { tokens, ms } of rows) sums.set(tokens, (sums.get(tokens) ?? 0) + ms);
  return [...sums].map(([tokens, ms]) => ({ tokens, ms }));
}

/* ---- microsoft/vidur ---- */

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

function vidurLinearMs(row: Row, layers: number): number {
  return vidurMs(row, "emb") + layers * perLayer.reduce((sum, name) => sum + vidurMs(row, name), 0);
}

/** `isChunkCounted`: the context includes the chunk. */
function vidurAttention(row: Row, isChunkCounted: boolean): Attention {
  const isPrompt = row.is_prefill === "True";
  const [batch, context] = [number(row, "batch_size"), number(row, "kv_cache_size")];
  const prompt = isPrompt ? number(row, "prefill_chunk_size") : 0;
  return {
    prompt,
    context: isPrompt ? context - (isChunkCounted ? prompt : 0) : 0,
    decodes: isPrompt ? 0 : batch,
    decodeContext: isPrompt ? 0 : batch * context,
    ms: vidurMs(row, isPrompt ? "attn_prefill" : "attn_decode"),
  };
}

/* ---- casys-kaist/LLMServingSim ---- */

const once = ["embedding", "final_layernorm"];

function layerPoint(row: Row): Point {
  return { tokens: number(row, "input"), ms: number(row, "latency(ns)") / 1e6 };
}

/** Linear layers in the format of the first version. */
function llmServingSimLayers(rows: readonly Row[], layers: number): Point[] {
  const points = rows
    .filter(({ layer_name: layer }) => layer !== "attn" && layer !== "lm_head")
    .map((row) => {
      const { tokens, ms } = layerPoint(row);
      return { tokens, ms: once.includes(row.layer_name ?? "") ? ms : layers * ms };
    });
  return sumBy(points).map(({ tokens, ms }) => ({
    tokens: tokens <= 8 ? tokens : Math.ceil(tokens / 8) * 8,
    ms,
  }));
}

function llmServingSimDense(rows: readonly Row[], layers: number): Point[] {
  const times = (layer: string): number => {
    if (once.includes(layer)) return 1;
    return layer === "layernorm" ? 2 * layers : layers;
  };
  return sumBy(
    rows.map((row) => ({
      tokens: number(row, "tokens"),
      ms: (number(row, "time_us") / 1000) * times(row.layer ?? ""),
    })),
  );
}

function llmServingSimAttention(row: Row): Attention {
  const decodes = number(row, "n_decode");
  return {
    prompt: number(row, "prefill_chunk"),
    context: number(row, "kv_prefill"),
    decodes,
    decodeContext: decodes * number(row, "kv_decode"),
    ms: number(row, "time_us") / 1000,
  };
}
