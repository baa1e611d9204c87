/**
 * Converts a model folder to the contents of a GGUF file, for tests: metadata, tensors in any storage type,
 * and the tokenizer. Written from the format's definition, so that it shares no table with the reader.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ModelConfig } from "../../model/config.ts";
import { openModelFolder } from "../../model/folder.ts";
import { yarnMagnitude } from "../../model/rope.ts";
import {
  hasExperts,
  type Latent,
  type LayerSizes,
  layersWithHead,
  type ModelShape,
  type Rope,
} from "../../model/shape.ts";
import type { ModelTensor } from "../../model/weights.ts";
import { decodeStored, encodeStored, type StoredName, storedTypes } from "./gguf-blocks.ts";
import { ggufName } from "./gguf-names.ts";
import { isStateTensor, stateEntries, stateNumbers } from "./gguf-recurrent.ts";
import type { Entry, GgufInput, TensorInput } from "./gguf-writer.ts";

type Json = Record<string, unknown>;

export interface Conversion {
  /** Storage type of matrices; those with rows of partial blocks become F16. */
  readonly type: StoredName;
  /** Storage type of expert matrices, if different. */
  readonly expertType?: StoredName;
  /** `tokenizer.ggml.pre` of a byte-level tokenizer. */
  readonly pre?: string;
  /** True to keep the keys and values of latents in one matrix, as old files do. */
  readonly joinsLatents?: boolean;
  /** True to keep the folder's head that drafts tokens. */
  readonly hasHead?: boolean;
  /** Value of general.name; undefined: absent. */
  readonly name?: string;
  /** Value of general.architecture; undefined: the family's. */
  readonly architecture?: string;
}

/** File types by the engine's numbers of the plain ones. */
const plainTypes: readonly StoredName[] = ["F32", "F16", "BF16"];

export function convertModel(dir: string, conversion: Conversion): GgufInput {
  const { config, tensors: all } = openModelFolder(dir, null, conversion.hasHead ? "required" : "none");
  const tensors = all.filter(({ name }) => !isStateTensor(name, config)).map((one) => inHead(one, config));
  return {
    entries: [
      ...modelEntries(config, conversion),
      ...listedEntries(tensors),
      ...tokenizerEntries(dir, conversion.pre ?? "qwen2"),
    ],
    tensors: [
      ...storedTensors(
        tensors.filter((tensor) => !isOfExpert(tensor, config) && !isApart(tensor)),
        conversion.joinsLatents,
      ).map((tensor) =>
        tensor.keysWithValues && !conversion.joinsLatents
          ? latentTensor(tensor, config.shape, conversion.type)
          : converted(tensor, config, conversion.type),
      ),
      ...streamTensors(tensors, config, conversion.type),
      ...(["gemma4", "mistral4", "granitemoe_swa"].includes(config.family)
        ? joinedExpertTensors
        : expertTensors)(
        tensors.filter((tensor) => isOfExpert(tensor, config)),
        conversion.expertType ?? conversion.type,
      ),
      ...ropeTensors(config),
      ...(config.shape.states === undefined ? [] : stateNumbers(dir, config)).map(
        ({ name, shape, values }) => {
          const isSmall = shape.length < 2 || /conv|ssm_(a|d|norm|ba|beta|alpha)/.test(name);
          const [rows, cols] = [shape.at(-2) ?? 1, shape.at(-1)!];
          return tensorInput(
            name,
            shape,
            isSmall && !name.includes("_proj.") ? "F32" : storageOf({ rows, cols }, conversion.type),
            values,
          );
        },
      ),
    ],
  };
}

const headNames: Readonly<Record<number, string>> = {
  98: "enorm",
  99: "hnorm",
  100: "eh_proj",
  101: "shared_head_norm",
};

/** A tensor of the head under a name like those of other layers. */
function inHead(tensor: ModelTensor, { shape }: ModelConfig): ModelTensor {
  const { length } = shape.layers;
  const own = headNames[tensor.tensor];
  if (own !== undefined) return { ...tensor, name: `model.layers.${length}.nextn.${own}.weight` };
  return { ...tensor, name: tensor.name.replace(/^mtp\.layers\.0\./, `model.layers.${length}.`) };
}

function isListed({ name }: ModelTensor): boolean {
  return name.includes(".act_fn.");
}

function isOfStream({ name }: ModelTensor): boolean {
  return /^model\.altup_(unembed_)?projections\./.test(name);
}

/** True for tensors that files store otherwise than one by one. */
function isApart(tensor: ModelTensor): boolean {
  return isListed(tensor) || isOfStream(tensor);
}

/** Projections of all streams, which files have in one tensor. */
function streamTensors(
  tensors: readonly ModelTensor[],
  { family }: ModelConfig,
  type: StoredName,
): TensorInput[] {
  const groups = Map.groupBy(tensors.filter(isOfStream), ({ tensor }) => tensor);
  return [...groups.values()].map((streams) => {
    const { name, rows, cols } = streams[0]!;
    const values = Float32Array.from(streams.flatMap((stream) => Array.from(valuesOf(stream))));
    return tensorInput(
      ggufName(name, family),
      [streams.length, rows, cols],
      storageOf({ rows, cols }, type),
      values,
    );
  });
}

/** Entries for the numbers of each layer's activation, in the order of the layers. */
function listedEntries(tensors: readonly ModelTensor[]): Entry[] {
  const groups = Map.groupBy(tensors.filter(isListed), ({ name }) => name.split(".").at(-1)!);
  return [...groups].map(([name, numbers]) => [
    `xielu.${name}`,
    "f32[]",
    numbers.map((tensor) => valuesOf(tensor)[0]!),
  ]);
}

/** Reads the numbers of a folder's tensor. */
export function valuesOf({ path, offset, bytes, dtype }: ModelTensor): Float32Array {
  return decodeStored(plainTypes[dtype]!, readFileSync(path).subarray(offset, offset + bytes));
}

const expertKinds: Readonly<Record<number, string>> = {
  27: "gate_exps.weight",
  28: "up_exps.weight",
  29: "down_exps.weight",
  31: "gate_exps.bias",
  32: "up_exps.bias",
  33: "down_exps.bias",
};

export function isOfExpert({ tensor, layer }: ModelTensor, { shape }: ModelConfig): boolean {
  return tensor in expertKinds && hasExperts(layersWithHead(shape)[layer]!);
}

/**
 * Groups expert tensors by the name of the tensor that holds all experts of a layer, with a dimension for
 * them.
 */
export function expertGroups(tensors: readonly ModelTensor[]): Map<string, ModelTensor[]> {
  return Map.groupBy(tensors, ({ layer, tensor }) => `blk.${layer}.ffn_${expertKinds[tensor]}`);
}

/** Same for families that join an expert's gate and up, such as Gemma 4. */
function joinedExpertTensors(tensors: readonly ModelTensor[], type: StoredName): TensorInput[] {
  const groups = Map.groupBy(
    tensors,
    ({ layer, tensor }) => `blk.${layer}.ffn_${tensor === 29 ? "down" : "gate_up"}_exps.weight`,
  );
  return [...groups].map(([name, parts]) => {
    const experts = Map.groupBy(parts, ({ expert }) => expert);
    const { cols } = parts[0]!;
    const rows = experts.get(0)!.reduce((sum, part) => sum + part.rows, 0);
    const values = Float32Array.from(parts.flatMap((part) => Array.from(expertValues(part))));
    return tensorInput(name, [experts.size, rows, cols], storageOf({ rows, cols }, type), values);
  });
}

function expertTensors(tensors: readonly ModelTensor[], type: StoredName): TensorInput[] {
  return [...expertGroups(tensors)].map(([name, experts]) => {
    const { rows, cols } = experts[0]!;
    const values = Float32Array.from(experts.flatMap((expert) => Array.from(expertValues(expert))));
    const shape = [experts.length, ...(rows === 1 ? [cols] : [rows, cols])];
    return tensorInput(name, shape, storageOf(experts[0]!, type), values);
  });
}

const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/** Reads the numbers of an expert's tensor, row after row, in any folder layout. */
function expertValues({
  path,
  offset,
  dtype,
  rows,
  cols,
  everySecond,
  transposed,
  halfRows,
  quantised,
}: ModelTensor): Float32Array {
  const step = everySecond ? 2 : 1;
  if (quantised !== undefined) {
    const [pairs, scales] = [readFileSync(path), readFileSync(quantised.scales!.file)];
    return Float32Array.from({ length: rows * cols }, (_, at) => {
      const number = Math.floor(at / cols) * step * cols + (at % cols);
      const bits = (pairs[offset + (number >> 1)]! >> (4 * (number % 2))) & 15;
      return (
        e2m1[bits % 8]! * (bits < 8 ? 1 : -1) * 2 ** (scales[quantised.scales!.offset + (number >> 5)]! - 127)
      );
    });
  }
  const place = (row: number, column: number): number => {
    if (transposed) return column * rows * (halfRows ? 2 : step) + row * step;
    return rows === 1 ? column * step : row * step * cols + column;
  };
  const end = offset + (place(rows - 1, cols - 1) + 1) * (dtype === 0 ? 4 : 2);
  const stored = decodeStored(plainTypes[dtype]!, readFileSync(path).subarray(offset, end));
  return Float32Array.from(
    { length: rows * cols },
    (_, at) => stored[place(Math.floor(at / cols), at % cols)]!,
  );
}

/** Architecture names of families that GGUF files name differently. */
const architectures: Readonly<Record<string, string>> = {
  mistral: "llama",
  ministral3: "mistral3",
  olmo3: "olmo2",
  qwen3_moe: "qwen3moe",
  mixtral: "llama",
  gpt_oss: "gpt-oss",
  internlm3: "llama",
  gemma4_unified: "gemma4",
  qwen2_vl: "qwen2vl",
  qwen3_vl: "qwen3vl",
  qwen3_vl_moe: "qwen3vlmoe",
  granitemoehybrid: "granite",
  qwen2_moe: "qwen2moe",
  glm4_moe: "glm4moe",
  bailing_moe: "bailingmoe2",
  minimax_m2: "minimax-m2",
  ernie4_5_moe: "ernie4_5-moe",
  hunyuan_v1_dense: "hunyuan-dense",
  hunyuan_v1_moe: "hunyuan-moe",
  llama4_text: "llama4",
  deepseek_v2: "deepseek2",
  deepseek_v3: "deepseek2",
  glm4_moe_lite: "deepseek2",
  mimo: "qwen2",
  qwen3_next: "qwen3next",
  qwen3_5: "qwen35",
  qwen3_5_moe: "qwen35moe",
  lfm2_moe: "lfm2moe",
  falcon_h1: "falcon-h1",
  cohere: "command-r",
  granitemoe_swa: "granite_swa",
  youtu: "deepseek2",
};

function architectureOf({ family, shape }: ModelConfig): string {
  if (family === "granitemoehybrid" && shape.states !== undefined) return "granitehybrid";
  if (family === "nemotron_h" && shape.experts !== null) return "nemotron_h_moe";
  return architectures[family] ?? family;
}

/** Joins tensors that the folder stores as one, unless files store them apart. */
function storedTensors(tensors: readonly ModelTensor[], joinsLatents = false): ModelTensor[] {
  const whole = new Map<string, ModelTensor>();
  for (const tensor of tensors) {
    if (tensor.keysWithValues) {
      if (!joinsLatents) whole.set(`${tensor.name} ${tensor.tensor}`, tensor);
      else if (!whole.has(tensor.name)) whole.set(tensor.name, joinedLatents(tensor, tensors));
      continue;
    }
    if (tensor.groupedHeads || tensor.name.includes("shared_mlp.input_linear")) {
      whole.set(`${tensor.name} ${tensor.tensor}`, tensor);
      continue;
    }
    const { rows, bytes } = whole.get(tensor.name) ?? { rows: 0, bytes: 0 };
    const first = whole.get(tensor.name) ?? tensor;
    whole.set(tensor.name, { ...first, rows: rows + tensor.rows, bytes: bytes + tensor.bytes });
  }
  return [...whole.values()];
}

export function modelEntries(
  config: ModelConfig,
  { name, architecture = architectureOf(config) }: Conversion,
): Entry[] {
  const { shape, eosTokens, generationDefaults: sampling } = config;
  const own = (key: string, type: string, value: unknown): Entry => [`${architecture}.${key}`, type, value];
  /** Returns one number, or one per layer if they differ. */
  const listed = (name: keyof LayerSizes): [type: string, value: unknown] => {
    const sizes = shape.layers.map((layer) => layer.ownSizes[name] ?? shape[name]);
    return sizes.every((size) => size === sizes[0]) ? ["u32", sizes[0]] : ["i32[]", sizes];
  };
  /** Returns the width of MLPs without experts, which the metadata has for all layers. */
  const denseWidth = (): [type: string, value: unknown] => {
    const dense = shape.layers.find(({ mlp }) => mlp === "gated");
    const isMixed = dense !== undefined && shape.experts !== null;
    return isMixed ? ["u32", dense.ownSizes.feedForward ?? shape.feedForward] : listed("feedForward");
  };
  const entries: Entry[] = [
    ["general.architecture", "string", architecture],
    ...(name === undefined ? [] : ([["general.name", "string", name]] as const)),
    own("block_count", "u32", layersWithHead(shape).length),
    ...(shape.head === undefined ? [] : [own("nextn_predict_layers", "u32", 1)]),
    own("context_length", "u32", shape.contextMax),
    own("embedding_length", "u32", shape.hidden),
    own("feed_forward_length", ...denseWidth()),
    own("attention.head_count", "u32", shape.queryHeads),
    own("attention.head_count_kv", ...listed("kvHeads")),
    own("attention.key_length", "u32", shape.headSize),
    own("attention.value_length", "u32", shape.latent?.rank ?? shape.headSize),
    own(
      shape.norm === "rms" ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
      "f32",
      shape.normEpsilon,
    ),
    own("vocab_size", "u32", shape.vocab),
  ];
  const further = [...ropeEntries(shape.ropes), ...traitEntries(config), ...stateEntries(config)];
  for (const [key, type, value] of further) {
    const name = `${architecture}.${key}`;
    const known = entries.findIndex(([other]) => other === name);
    entries.splice(known < 0 ? entries.length : known, known < 0 ? 0 : 1, [name, type, value]);
  }
  if (sampling.temperature !== null) entries.push(["general.sampling.temp", "f32", sampling.temperature]);
  if (sampling.topK !== null) entries.push(["general.sampling.top_k", "i32", sampling.topK]);
  if (sampling.topP !== null) entries.push(["general.sampling.top_p", "f32", sampling.topP]);
  if (eosTokens[0] !== undefined) entries.push(["tokenizer.ggml.eos_token_id", "u32", eosTokens[0]]);
  if (eosTokens[1] !== undefined) entries.push(["tokenizer.ggml.eot_token_id", "u32", eosTokens[1]]);
  return entries;
}

function ropeEntries([rope, swa]: readonly Rope[]): Entry[] {
  if (rope === undefined) return [];
  const entries: Entry[] = [
    ["rope.dimension_count", "u32", rope!.dimensions],
    ["rope.freq_base", "f32", rope!.theta],
  ];
  if (swa !== undefined && swa.theta !== rope!.theta) entries.push(["rope.freq_base_swa", "f32", swa.theta]);
  if (rope!.queries !== undefined) {
    entries.push(["attention.temperature_scale", "f32", rope!.queries.growth]);
    entries.push(["attention.temperature_length", "u32", rope!.queries.span]);
  }
  switch (rope!.kind) {
    case "linear":
      entries.push(["rope.scaling.type", "string", "linear"], ["rope.scaling.factor", "f32", rope!.factor]);
      break;
    case "yarn":
      entries.push(
        ["rope.scaling.type", "string", "yarn"],
        ["rope.scaling.factor", "f32", rope!.factor],
        ["rope.scaling.original_context_length", "u32", rope!.originalContext],
        ["rope.scaling.yarn_beta_fast", "f32", rope!.betaFast],
        ["rope.scaling.yarn_beta_slow", "f32", rope!.betaSlow],
        ["rope.scaling.attn_factor", "f32", rope!.magnitude / yarnMagnitude(rope!.factor, 1)],
      );
      break;
    case "longrope":
      entries.push(
        ["rope.scaling.original_context_length", "u32", rope!.originalContext],
        ["rope.scaling.attn_factor", "f32", rope!.magnitude],
      );
      break;
  }
  return entries;
}

/** Families without a rule for the layers with windows. */
const patternFamilies: readonly string[] = [
  "mistral",
  "ministral",
  "ministral3",
  "mixtral",
  "qwen2",
  "qwen3",
  "gemma4",
  "gemma4_unified",
  "gemma3n",
  ...["mellum", "granite_swa", "granitemoe_swa"],
];

/** Extra metadata of some architectures. */
function traitEntries({ family, shape }: ModelConfig): Entry[] {
  const entries: Entry[] = [];
  const windows = shape.layers.map(({ slidingWindow }) => slidingWindow);
  const window = Math.max(...windows);
  if (window > 0) entries.push(["attention.sliding_window", "u32", window]);
  if (window > 0 && patternFamilies.includes(family)) {
    entries.push(["attention.sliding_window_pattern", "bool[]", windows.map((own) => (own > 0 ? 1 : 0))]);
  }
  if (family === "gemma2") {
    entries.push(["attn_logit_softcapping", "f32", shape.attentionCap]);
    entries.push(["final_logit_softcapping", "f32", shape.logitCap]);
  }
  if (family.startsWith("gemma4")) {
    const sliding = shape.layers.find(({ slidingWindow }) => slidingWindow > 0)!;
    const { headSize } = sliding.ownSizes;
    entries.push(
      ["attention.key_length_swa", "u32", headSize],
      ["attention.value_length_swa", "u32", headSize],
      ["rope.dimension_count_swa", "u32", headSize],
      [
        "attention.shared_kv_layers",
        "u32",
        shape.layers.filter(({ kvLayersBack }) => kvLayersBack > 0).length,
      ],
      ["embedding_length_per_layer_input", "u32", shape.layerInputs],
      ["final_logit_softcapping", "f32", shape.logitCap],
    );
  }
  if (shape.experts !== null) {
    entries.push(
      ["expert_count", "u32", shape.experts.count],
      ["expert_used_count", "u32", shape.experts.used],
    );
  }
  if (shape.experts !== null && !["mixtral", "olmoe", "granitemoe"].includes(family)) {
    entries.push(["expert_feed_forward_length", "u32", shape.experts.feedForward]);
  }
  if (shape.latent !== undefined) entries.push(...latentEntries(shape, shape.latent));
  if (shape.experts !== null && (shape.experts.score === "sigmoid" || shape.latent !== undefined)) {
    const { score, normalised, scale, groups, groupsUsed } = shape.experts;
    entries.push(
      ["expert_gating_func", "u32", score === "sigmoid" ? 2 : 1],
      ["expert_weights_norm", "bool", normalised],
      ["expert_weights_scale", "f32", scale],
      ["expert_group_count", "u32", groups],
      ["expert_group_used_count", "u32", groupsUsed],
    );
  }
  if (family.endsWith("_swa")) {
    entries.push([
      "attention.rope_pattern",
      "bool[]",
      shape.layers.map(({ rope }) => (rope === null ? 0 : 1)),
    ]);
  }
  if (/^(granite|minicpm)/.test(family)) {
    entries.push(["embedding_scale", "f32", shape.embeddingScale]);
    entries.push(
      ["residual_scale", "f32", shape.residualScale],
      ["logit_scale", "f32", 1 / shape.logitScale],
    );
  }
  if (family.startsWith("granite")) entries.push(["attention.scale", "f32", shape.attentionScale]);
  if (family === "gemma3n") {
    entries.push(
      ["altup.active_idx", "u32", 0],
      ["altup.num_inputs", "u32", shape.streams],
      ["attention.shared_kv_layers", "u32", shape.layers.filter((layer) => layer.kvLayersBack > 0).length],
      ["embedding_length_per_layer_input", "u32", shape.layerInputs],
      ["final_logit_softcapping", "f32", shape.logitCap],
      [
        "activation_sparsity_scale",
        "f32[]",
        shape.layers.map(({ gateCutoff }) => gateCutoff ?? Number.NEGATIVE_INFINITY),
      ],
    );
  }
  if (family.startsWith("cohere")) entries.push(["logit_scale", "f32", shape.logitScale]);
  return entries;
}

function latentEntries(
  { ropes: [rope], attentionScale }: ModelShape,
  { rank, queryRank, keySize, valueSize }: Latent,
): Entry[] {
  const size = keySize + rope!.dimensions;
  const magnitude = Math.sqrt(attentionScale * Math.sqrt(size));
  return [
    ["attention.kv_lora_rank", "u32", rank],
    ...(queryRank > 0 ? ([["attention.q_lora_rank", "u32", queryRank]] as const) : []),
    ["attention.key_length_mla", "u32", size],
    ["attention.value_length_mla", "u32", valueSize],
    ...(rope!.kind === "yarn"
      ? ([["rope.scaling.yarn_log_multiplier", "f32", (magnitude - 1) / Math.log(rope!.factor)]] as const)
      : []),
  ];
}

/**
 * Returns RoPE frequency tensors: Llama 3 writes its rescaled frequencies as one tensor of divisors, longrope
 * as two.
 */
export function ropeTensors({ shape: { ropes } }: ModelConfig): TensorInput[] {
  const rope = ropes[0];
  if (rope === undefined) return [];
  if (rope.kind === "longrope") {
    return [
      tensorInput(
        "rope_factors_long.weight",
        [rope.longFactors.length],
        "F32",
        Float32Array.from(rope.longFactors),
      ),
      tensorInput(
        "rope_factors_short.weight",
        [rope.shortFactors.length],
        "F32",
        Float32Array.from(rope.shortFactors),
      ),
    ];
  }
  if (rope.kind === "proportional") {
    const factors = Float32Array.from({ length: rope.dimensions / 2 }, (_, pair) =>
      pair < rope.turned ? 1 : 1e30,
    );
    return [tensorInput("rope_freqs.weight", [factors.length], "F32", factors)];
  }
  if (rope.kind !== "llama3") return [];
  const { theta, factor, lowFreqFactor: low, highFreqFactor: high, originalContext, dimensions } = rope;
  const factors = Float32Array.from({ length: dimensions / 2 }, (_, index) => {
    const wavelength = (2 * Math.PI) / theta ** ((-2 * index) / dimensions);
    if (wavelength < originalContext / high) return 1;
    if (wavelength > originalContext / low) return factor;
    const smooth = (originalContext / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
  return [tensorInput("rope_freqs.weight", [factors.length], "F32", factors)];
}

/** Storage type of a tensor when matrices are stored as `type`. */
export function storageOf({ rows, cols }: Pick<ModelTensor, "rows" | "cols">, type: StoredName): StoredName {
  if (rows === 1) return "F32";
  return cols % storedTypes[type].block === 0 ? type : "F16";
}

/** Families whose rotated rows the converter interleaves in pairs; others keep their order. */
const pairedFamilies: readonly string[] = [
  "llama",
  "mistral",
  "ministral3",
  "smollm3",
  "granite",
  "granitemoe",
  "granitemoehybrid",
  "mixtral",
  "internlm2",
  "internlm3",
  ...["arcee", "granite_swa", "granitemoe_swa", "minicpm"],
];

function converted(tensor: ModelTensor, { family, shape }: ModelConfig, type: StoredName): TensorInput {
  const { rows, cols } = tensor;
  const isBeside = [44, 45, 46].includes(tensor.tensor);
  const name = ggufName(tensor.name, family)
    .replace("wqkv", partsOfQkv[tensor.tensor] ?? "")
    .replace("gate_or_up", [27, 44].includes(tensor.tensor) ? "gate" : "up")
    .replace(/ffn_(gate|up|down)\./, family === "granitemoehybrid" && isBeside ? "ffn_$1_shexp." : "ffn_$1.");
  let values = tensor.groupedHeads ? groupedValues(tensor, shape) : valuesOf(tensor);
  if (/\.attn_[qk]\.(weight|bias)$/.test(name) && pairedFamilies.includes(family))
    values = paired(values, tensor, shape);
  const isLess = /^(gemma(2|3)?|nemotron)$/.test(family) || /^qwen3_(next|5)/.test(family);
  if (isLess && /norm\.weight$/.test(name)) values = values.map((value) => value + 1);
  if (family === "falcon_h1") {
    const own = { 0: shape.embeddingScale, 2: shape.logitScale }[tensor.tensor] ?? tensor.factor ?? 1;
    values = values.map((value) => value * own);
  }
  const stored = name.includes("ffn_gate_inp") ? "F32" : storageOf(tensor, type);
  return tensorInput(name, rows === 1 ? [cols] : [rows, cols], stored, values);
}

/** The matrix of keys and values of latents in a folder. */
function joinedLatents(keys: ModelTensor, tensors: readonly ModelTensor[]): ModelTensor {
  const values = tensors.find(({ name, tensor }) => name === keys.name && tensor !== keys.tensor)!;
  const numberBytes = keys.dtype === 0 ? 4 : 2;
  return { ...keys, rows: keys.bytes / values.cols / numberBytes, cols: values.cols };
}

/** Extracts the keys of latents, transposed, or their values from the matrix of both: [heads, rows, cols]. */
function latentTensor(
  tensor: ModelTensor,
  { queryHeads, latent }: ModelShape,
  type: StoredName,
): TensorInput {
  const { rows, cols } = tensor;
  const { rank, keySize, valueSize } = latent!;
  const whole = valuesOf(tensor);
  const ofHead = rows / queryHeads;
  const areKeys = tensor.tensor === 58;
  const values = Float32Array.from({ length: rows * cols }, (_, at) => {
    const row = Math.floor(at / cols);
    const first = Math.floor(row / ofHead) * (keySize + valueSize);
    const [from, column] = areKeys ? [at % cols, row % ofHead] : [keySize + (row % ofHead), at % cols];
    return whole[(first + from) * rank + column]!;
  });
  const name = ggufName(tensor.name).replace("kv_b", areKeys ? "k_b" : "v_b");
  return tensorInput(name, [queryHeads, ofHead, cols], storageOf(tensor, type), values);
}

/** Part of the QKV projection (weights and biases), by kind of tensor. */
const partsOfQkv: Readonly<Record<number, string>> = { 17: "q", 18: "k", 19: "v", 21: "q", 22: "k", 23: "v" };

/**
 * Extracts the rows of one tensor from a grouped one, where each key head has some rows beside those of the
 * two others.
 */
function groupedValues(tensor: ModelTensor, { queryHeads, kvHeads, headSize }: ModelShape): Float32Array {
  const group = queryHeads / kvHeads;
  const [rows, cols] = tensor.rows === 1 ? [tensor.cols, 1] : [tensor.rows, tensor.cols];
  const run = rows / kvHeads;
  const stride = (group + 2) * headSize;
  const bytesPerNumber = tensor.dtype === 0 ? 4 : 2;
  const whole = valuesOf({ ...tensor, bytes: ((kvHeads - 1) * stride + run) * cols * bytesPerNumber });
  return Float32Array.from({ length: rows * cols }, (_, at) => {
    const row = Math.floor(at / cols);
    return whole[(Math.floor(row / run) * stride + (row % run)) * cols + (at % cols)]!;
  });
}

/** Interleaves rows j and j + headSize / 2 of each head. */
function paired(values: Float32Array, tensor: ModelTensor, { headSize }: ModelShape): Float32Array {
  const [rows, cols] = tensor.rows === 1 ? [tensor.cols, 1] : [tensor.rows, tensor.cols];
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

/** Metadata entries of a folder's tokenizer.json, if it has one; byte-level merges only. */
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
