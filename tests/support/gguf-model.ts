/** Turns a model folder into what a GGUF file of it would hold, for tests: metadata, tensors in any storage type, and the
 *  tokenizer. Written from the format's side, so that it shares no table with the reader. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ModelConfig, ModelShape } from "../../gpu/model/config.ts";
import { openModelFolder } from "../../gpu/model/folder.ts";
import type { ModelTensor } from "../../gpu/model/weights.ts";
import { decodeStored, encodeStored, type StoredName, storedTypes } from "./gguf-blocks.ts";
import type { Entry, GgufInput, TensorInput } from "./gguf-writer.ts";

type Json = Record<string, unknown>;

export interface Conversion {
  /** How matrices are stored; those whose rows are no whole number of blocks become F16. */
  readonly type: StoredName;
  /** `tokenizer.ggml.pre` of a byte-level tokenizer. */
  readonly pre?: string;
  /** general.name; none: absent. */
  readonly name?: string;
}

/** File formats' own types by the engine's numbers for the plain ones. */
const plainTypes: readonly StoredName[] = ["F32", "F16", "BF16"];

export function convertModel(dir: string, conversion: Conversion): GgufInput {
  const { config, tensors } = openModelFolder(dir);
  return {
    entries: [...modelEntries(config, conversion), ...tokenizerEntries(dir, conversion.pre ?? "qwen2")],
    tensors: [...tensors.map((tensor) => converted(tensor, config, conversion.type)), ...ropeTensors(config)],
  };
}

/** The numbers of a folder's tensor. */
export function valuesOf({ path, offset, bytes, dtype }: ModelTensor): Float32Array {
  return decodeStored(plainTypes[dtype]!, readFileSync(path).subarray(offset, offset + bytes));
}

function architectureOf({ family }: ModelConfig): string {
  return family === "mistral" ? "llama" : family;
}

export function modelEntries(config: ModelConfig, { name }: Conversion): Entry[] {
  const { shape, eosTokens, generationDefaults: sampling } = config;
  const architecture = architectureOf(config);
  const own = (key: string, type: string, value: unknown): Entry => [`${architecture}.${key}`, type, value];
  const entries: Entry[] = [
    ["general.architecture", "string", architecture],
    ...(name === undefined ? [] : ([["general.name", "string", name]] as const)),
    own("block_count", "u32", shape.layers),
    own("context_length", "u32", shape.contextMax),
    own("embedding_length", "u32", shape.hidden),
    own("feed_forward_length", "u32", shape.feedForward),
    own("attention.head_count", "u32", shape.queryHeads),
    own("attention.head_count_kv", "u32", shape.kvHeads),
    own("attention.key_length", "u32", shape.headSize),
    own("attention.value_length", "u32", shape.headSize),
    own("attention.layer_norm_rms_epsilon", "f32", shape.normEpsilon),
    own("rope.dimension_count", "u32", shape.headSize),
    own("rope.freq_base", "f32", shape.rope.theta),
    own("vocab_size", "u32", shape.vocab),
  ];
  if (shape.rope.kind === "linear") {
    entries.push(own("rope.scaling.type", "string", "linear"));
    entries.push(own("rope.scaling.factor", "f32", shape.rope.factor));
  }
  if (shape.slidingWindow > 0) entries.push(own("attention.sliding_window", "u32", shape.slidingWindow));
  if (sampling.temperature !== null) entries.push(["general.sampling.temp", "f32", sampling.temperature]);
  if (sampling.topK !== null) entries.push(["general.sampling.top_k", "i32", sampling.topK]);
  if (sampling.topP !== null) entries.push(["general.sampling.top_p", "f32", sampling.topP]);
  if (eosTokens[0] !== undefined) entries.push(["tokenizer.ggml.eos_token_id", "u32", eosTokens[0]]);
  if (eosTokens[1] !== undefined) entries.push(["tokenizer.ggml.eot_token_id", "u32", eosTokens[1]]);
  return entries;
}

/** Llama 3 writes its rescaled frequencies as a tensor of divisors. */
export function ropeTensors({ shape: { rope, headSize } }: ModelConfig): TensorInput[] {
  if (rope.kind !== "llama3") return [];
  const { theta, factor, lowFreqFactor: low, highFreqFactor: high, originalContext } = rope;
  const factors = Float32Array.from({ length: headSize / 2 }, (_, index) => {
    const wavelength = (2 * Math.PI) / theta ** ((-2 * index) / headSize);
    if (wavelength < originalContext / high) return 1;
    if (wavelength > originalContext / low) return factor;
    const smooth = (originalContext / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
  return [tensorInput("rope_freqs.weight", [factors.length], "F32", factors)];
}

const renamed: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens\./, "token_embd."],
  [/^model\.norm\./, "output_norm."],
  [/^lm_head\./, "output."],
  [/^model\.layers\.(\d+)\./, "blk.$1."],
  [/\.self_attn\.(q|k)_norm\./, ".attn_$1_norm."],
  [/\.self_attn\.(q|k|v)_proj\./, ".attn_$1."],
  [/\.self_attn\.o_proj\./, ".attn_output."],
  [/\.mlp\.(gate|up|down)_proj\./, ".ffn_$1."],
  [/\.input_layernorm\./, ".attn_norm."],
  [/\.post_attention_layernorm\./, ".ffn_norm."],
];

/** The file's name of a folder's tensor. */
export function ggufName(name: string): string {
  return renamed.reduce((text, [pattern, to]) => text.replace(pattern, to), name);
}

/** How a tensor is stored when matrices are stored as `type`. */
export function storageOf({ rows, cols }: Pick<ModelTensor, "rows" | "cols">, type: StoredName): StoredName {
  if (rows === 1) return "F32";
  return cols % storedTypes[type].block === 0 ? type : "F16";
}

function converted(tensor: ModelTensor, config: ModelConfig, type: StoredName): TensorInput {
  const { rows, cols } = tensor;
  const name = ggufName(tensor.name);
  const isPaired = architectureOf(config) === "llama" && /\.attn_[qk]\.weight$/.test(name);
  const values = isPaired ? paired(valuesOf(tensor), tensor, config.shape) : valuesOf(tensor);
  return tensorInput(name, rows === 1 ? [cols] : [rows, cols], storageOf(tensor, type), values);
}

/** Rows j and j + headSize / 2 of each head side by side. */
function paired(values: Float32Array, { rows, cols }: ModelTensor, { headSize }: ModelShape): Float32Array {
  const out = new Float32Array(values.length);
  const half = headSize / 2;
  for (let head = 0; head < rows; head += headSize) {
    for (let j = 0; j < half; j += 1) {
      for (const side of [0, 1]) {
        const from = (head + side * half + j) * cols;
        out.set(values.subarray(from, from + cols), (head + 2 * j + side) * cols);
      }
    }
  }
  return out;
}

export function tensorInput(
  name: string,
  shape: readonly number[],
  type: StoredName,
  values: Float32Array,
): TensorInput {
  return { name, shape, type: storedTypes[type].type, data: encodeStored(type, values) };
}

/** What a folder's tokenizer.json says, if it has one; byte-level merges only. */
export function tokenizerEntries(dir: string, pre: string): Entry[] {
  const read = (name: string): Json => JSON.parse(readFileSync(join(dir, name), "utf8")) as Json;
  if (!existsSync(join(dir, "tokenizer.json"))) return [];
  const tokenizer = read("tokenizer.json");
  const config = read("tokenizer_config.json");
  const model = tokenizer.model as { vocab: Record<string, number>; merges: (string | [string, string])[] };
  const { tokens, types } = vocabularyOf(model.vocab, tokenizer.added_tokens as AddedToken[]);
  const entries: Entry[] = [
    ["tokenizer.ggml.model", "string", "gpt2"],
    ["tokenizer.ggml.pre", "string", pre],
    ["tokenizer.ggml.tokens", "string[]", tokens],
    ["tokenizer.ggml.token_type", "i32[]", types],
    [
      "tokenizer.ggml.merges",
      "string[]",
      model.merges.map((merge) => (typeof merge === "string" ? merge : merge.join(" "))),
    ],
  ];
  const bos = tokens.indexOf(String(config.bos_token));
  if (bos >= 0) entries.push(["tokenizer.ggml.bos_token_id", "u32", bos]);
  if (typeof config.chat_template === "string") {
    entries.push(["tokenizer.chat_template", "string", config.chat_template]);
  }
  return entries;
}

interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
}

/** Token types: 1 normal, 3 control, 4 added by the model's authors, 5 not used. */
export function vocabularyOf(
  vocab: Readonly<Record<string, number>>,
  added: readonly AddedToken[],
): { readonly tokens: string[]; readonly types: number[] } {
  const count = Math.max(...Object.values(vocab), ...added.map(({ id }) => id)) + 1;
  const tokens = Array.from({ length: count }, (_, id) => `[PAD${id}]`);
  const types = tokens.map(() => 5);
  for (const [text, id] of Object.entries(vocab)) {
    tokens[id] = text;
    types[id] = 1;
  }
  for (const { id, content, special } of added) {
    tokens[id] = content;
    types[id] = special ? 3 : 4;
  }
  return { tokens, types };
}
