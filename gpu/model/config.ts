/**
 * config.json and generation_config.json of a Hugging Face folder, read as transformers reads them, for the
 * four families the engines compute: Llama 2/3.x, Mistral, Qwen2/2.5 and Qwen3.
 *
 * Whatever would change the mathematics and is not supported is refused here, by name, so that a model either
 * computes what its authors meant or does not start. Fields that only matter for training are not looked at.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isObject, type JsonObject, readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";

export type Family = "llama" | "mistral" | "qwen2" | "qwen3";

/** How positions turn into rotation angles. `linear` and `llama3` lengthen the context of a trained model. */
export type Rope =
  | { readonly kind: "plain"; readonly theta: number }
  | { readonly kind: "linear"; readonly theta: number; readonly factor: number }
  | {
      readonly kind: "llama3";
      readonly theta: number;
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalContext: number;
    };

/** What the model is; the model part of `bunting_model_shape` in engine.h, where each field is explained. */
export interface ModelShape {
  readonly layers: number;
  readonly hidden: number;
  readonly feedForward: number;
  readonly queryHeads: number;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly vocab: number;
  readonly contextMax: number;
  /** 0: none. W: a token sees itself and the W-1 before it. */
  readonly slidingWindow: number;
  readonly qkvBias: boolean;
  readonly qkNorm: boolean;
  readonly tiedEmbeddings: boolean;
  readonly normEpsilon: number;
  readonly rope: Rope;
}

/** Sampling that the model's authors recommend; null where they say nothing. Whether `do_sample` is set is
 *  not asked. */
export interface GenerationDefaults {
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly minP: number | null;
  readonly repetitionPenalty: number | null;
}

export interface ModelConfig {
  readonly family: Family;
  readonly shape: ModelShape;
  /** Tokens that end a text: generation_config.json's, else config.json's. May be empty. */
  readonly eosTokens: readonly number[];
  readonly generationDefaults: GenerationDefaults;
}

const families: Readonly<Record<string, Family>> = {
  LlamaForCausalLM: "llama",
  MistralForCausalLM: "mistral",
  Qwen2ForCausalLM: "qwen2",
  Qwen3ForCausalLM: "qwen3",
};
const supported = `supported: ${Object.keys(families).join(", ")}`;
const configBytesMax = 4 << 20;

/** Limits of what is believable. Far above any released model, far below where products leave 2^53. */
export const shapeLimits = {
  layers: 4096,
  hidden: 1 << 18,
  feedForward: 1 << 20,
  heads: 4096,
  headSize: 1024,
  vocab: 1 << 24,
  contextMax: 1 << 26,
} as const;

/** Reads config.json and, if it is there, generation_config.json of a folder. Throws ModelError. */
export function readModelConfig(dir: string): ModelConfig {
  const configFile = join(dir, "config.json");
  const generationFile = join(dir, "generation_config.json");
  const generation = existsSync(generationFile) ? readJsonObject(generationFile, configBytesMax) : {};
  return parseModelConfig(
    { file: configFile, json: readJsonObject(configFile, configBytesMax) },
    { file: generationFile, json: generation },
  );
}

interface Source {
  readonly file: string;
  readonly json: JsonObject;
}

/** The same from parsed files. Pure. */
export function parseModelConfig(config: Source, generation: Source): ModelConfig {
  const fields = new Fields(config.file, config.json);
  refuseForeign(fields);
  const family = familyOf(fields);
  const shape = shapeOf(family, fields);
  const generationFields = new Fields(generation.file, generation.json);
  const eosTokens = generationFields.has("eos_token_id")
    ? tokenList(generationFields, "eos_token_id", shape.vocab)
    : tokenList(fields, "eos_token_id", shape.vocab);
  return { family, shape, eosTokens, generationDefaults: generationDefaultsOf(generationFields) };
}

/** Things that no family here may have, whatever its other fields say. */
function refuseForeign(fields: Fields): void {
  if (fields.has("auto_map")) {
    fields.refuse("auto_map", "asks to run code from the model folder, which is never done");
  }
  if (fields.has("quantization_config")) {
    fields.refuse(
      "quantization_config",
      "quantised weights are not supported: use the bf16, f16 or f32 original",
    );
  }
}

function familyOf(fields: Fields): Family {
  const architectures = fields.get("architectures");
  const modelType = fields.get("model_type");
  let family: Family | undefined;
  if (architectures !== undefined) {
    const name = Array.isArray(architectures) && architectures.length === 1 ? architectures[0] : undefined;
    family = typeof name === "string" && Object.hasOwn(families, name) ? families[name] : undefined;
    if (family === undefined) fields.refuse("architectures", supported);
  } else {
    family = Object.values(families).find((known) => known === modelType);
    if (family === undefined) fields.refuse("model_type", supported);
  }
  if (modelType !== undefined && modelType !== family) {
    fields.refuse("model_type", `contradicts architectures ${show(architectures)}`);
  }
  return family!;
}

function shapeOf(family: Family, fields: Fields): ModelShape {
  const layers = fields.integer("num_hidden_layers", 1, shapeLimits.layers);
  const hidden = fields.integer("hidden_size", 1, shapeLimits.hidden);
  const queryHeads = fields.integer("num_attention_heads", 1, shapeLimits.heads);
  // Only Llama's files may leave this out; for the others transformers would fill in another model's number.
  const kvHeads = fields.integer(
    "num_key_value_heads",
    1,
    shapeLimits.heads,
    family === "llama" ? queryHeads : undefined,
  );
  if (queryHeads % kvHeads !== 0) {
    fields.refuse("num_key_value_heads", `does not divide num_attention_heads ${queryHeads}`);
  }
  const contextMax = fields.integer("max_position_embeddings", 1, shapeLimits.contextMax);
  fields.only("hidden_act", "silu");
  fields.only("attention_bias", false);
  fields.only("mlp_bias", false);
  return {
    layers,
    hidden,
    feedForward: fields.integer("intermediate_size", 1, shapeLimits.feedForward),
    queryHeads,
    kvHeads,
    headSize: headSizeOf(family, fields, hidden, queryHeads),
    vocab: fields.integer("vocab_size", 1, shapeLimits.vocab),
    contextMax,
    slidingWindow: slidingWindowOf(family, fields, layers),
    qkvBias: family === "qwen2",
    qkNorm: family === "qwen3",
    tiedEmbeddings: fields.boolean("tie_word_embeddings", false),
    normEpsilon: fields.number("rms_norm_eps", 1e-12, 1, 1e-6),
    rope: ropeOf(fields, contextMax),
  };
}

function headSizeOf(family: Family, fields: Fields, hidden: number, queryHeads: number): number {
  let headSize: number;
  if (fields.has("head_dim")) headSize = fields.integer("head_dim", 1, shapeLimits.headSize);
  else if (family === "qwen3") headSize = 128;
  else if (hidden % queryHeads === 0) headSize = hidden / queryHeads;
  else
    return fields.refuse(
      "num_attention_heads",
      `does not divide hidden_size ${hidden}, and there is no head_dim`,
    );
  if (headSize % 16 !== 0 || headSize > shapeLimits.headSize) {
    const field = fields.has("head_dim") ? "head_dim" : "hidden_size";
    fields.refuse(
      field,
      `a head size of ${headSize} is not supported: multiples of 16 up to ${shapeLimits.headSize} are`,
    );
  }
  return headSize;
}

/** One window for all layers, or none: models that mix are refused. */
function slidingWindowOf(family: Family, fields: Fields, layers: number): number {
  const windowMax = shapeLimits.contextMax;
  let sliding = 0; // layers with a window
  if (family === "mistral") {
    sliding = fields.get("sliding_window") === null ? 0 : layers;
  } else if (
    family !== "llama" &&
    fields.boolean("use_sliding_window", false) &&
    fields.has("sliding_window")
  ) {
    sliding = Math.max(0, layers - fields.integer("max_window_layers", 0, windowMax));
  }
  const layerTypes = fields.get("layer_types");
  if (layerTypes !== undefined && layerTypes !== null) {
    const kinds = Array.isArray(layerTypes) ? layerTypes : [];
    const known = kinds.every((kind) => kind === "full_attention" || kind === "sliding_attention");
    if (kinds.length !== layers || !known) {
      fields.refuse(
        "layer_types",
        `wanted: "full_attention" or "sliding_attention" for each of ${layers} layers`,
      );
    }
    const listed = kinds.filter((kind) => kind === "sliding_attention").length;
    if (family === "qwen2" || family === "qwen3") {
      if (listed > 0 && sliding === 0)
        fields.refuse("layer_types", "lists sliding layers but no window is in use");
      sliding = listed;
    } else if (listed !== sliding) {
      fields.refuse("layer_types", `a ${family} model has the same attention in all layers`);
    }
  }
  if (sliding === 0) return 0;
  if (sliding !== layers) {
    const field = fields.has("layer_types") ? "layer_types" : "max_window_layers";
    fields.refuse(field, `${sliding} of ${layers} layers have a sliding window; all or none is supported`);
  }
  return fields.integer("sliding_window", 1, windowMax, family === "mistral" ? 4096 : undefined);
}

/** Both spellings: `rope_theta` beside `rope_scaling`, and the newer `rope_parameters` with everything
 *  inside. */
function ropeOf(fields: Fields, contextMax: number): Rope {
  const field = fields.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const rope = fields.has(field) ? fields.object(field) : new Fields(fields.file, {});
  for (const name of rope.names()) {
    if (isObject(rope.get(name))) rope.refuse(name, "positions that differ between layers are not supported");
  }
  const theta = rope.has("rope_theta")
    ? rope.number("rope_theta", 1, 1e15)
    : fields.number("rope_theta", 1, 1e15, 10_000);
  for (const place of [rope, fields]) place.only("partial_rotary_factor", 1);
  const typeField = rope.has("rope_type") ? "rope_type" : "type";
  const type = rope.get(typeField) ?? "default";
  switch (type) {
    case "default":
      return { kind: "plain", theta };
    case "linear":
      return { kind: "linear", theta, factor: rope.number("factor", 1, 1e6) };
    case "llama3": {
      const lowFreqFactor = rope.number("low_freq_factor", 1e-3, 1e6);
      const highFreqFactor = rope.number("high_freq_factor", 1e-3, 1e6);
      if (highFreqFactor <= lowFreqFactor) {
        rope.refuse("high_freq_factor", `must be greater than low_freq_factor ${lowFreqFactor}`);
      }
      const original = "original_max_position_embeddings";
      const source = fields.has(original) ? fields : rope;
      return {
        kind: "llama3",
        theta,
        factor: rope.number("factor", 1, 1e6),
        lowFreqFactor,
        highFreqFactor,
        originalContext: source.integer(original, 1, shapeLimits.contextMax, contextMax),
      };
    }
    default:
      return rope.refuse(typeField, "supported rope types: default, linear, llama3");
  }
}

function tokenList(fields: Fields, name: string, vocab: number): readonly number[] {
  const value = fields.get(name);
  if (value === undefined || value === null) return [];
  const tokens: readonly unknown[] = Array.isArray(value) ? value : [value];
  const good = (token: unknown): token is number =>
    Number.isInteger(token) && (token as number) >= 0 && (token as number) < vocab;
  if (!tokens.every(good)) fields.refuse(name, `wanted: token ids from 0 to ${vocab - 1}`);
  return [...new Set(tokens as readonly number[])];
}

function generationDefaultsOf(fields: Fields): GenerationDefaults {
  const optional = (name: string, min: number, max: number): number | null =>
    fields.has(name) ? fields.number(name, min, max) : null;
  const topK = fields.has("top_k") ? fields.integer("top_k", -1, 2 ** 31 - 1) : null;
  return {
    temperature: optional("temperature", 0, 100),
    topP: optional("top_p", 1e-9, 1),
    topK: topK === -1 ? 0 : topK,
    minP: optional("min_p", 0, 1),
    repetitionPenalty: optional("repetition_penalty", 1e-3, 1e3),
  };
}

/** The fields of one JSON object, read with type and range; `null` counts as absent, as in transformers. */
class Fields {
  readonly file: string;
  readonly #json: JsonObject;
  readonly #path: string;

  constructor(file: string, json: JsonObject, path = "") {
    this.file = file;
    this.#json = json;
    this.#path = path;
  }

  get(name: string): unknown {
    return Object.hasOwn(this.#json, name) ? this.#json[name] : undefined;
  }

  has(name: string): boolean {
    const value = this.get(name);
    return value !== undefined && value !== null;
  }

  refuse(name: string, reason: string): never {
    throw new ModelError(this.file, this.#path + name, `${show(this.get(name))}: ${reason}`);
  }

  number(name: string, min: number, max: number, fallback?: number): number {
    if (!this.has(name) && fallback !== undefined) return fallback;
    const value = this.get(name);
    if (typeof value !== "number" || !(value >= min && value <= max)) {
      return this.refuse(name, `wanted: a number from ${min} to ${max}`);
    }
    return value;
  }

  integer(name: string, min: number, max: number, fallback?: number): number {
    if (!this.has(name) && fallback !== undefined) return fallback;
    const value = this.get(name);
    if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
      return this.refuse(name, `wanted: a whole number from ${min} to ${max}`);
    }
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    if (!this.has(name)) return fallback;
    const value = this.get(name);
    return typeof value === "boolean" ? value : this.refuse(name, "wanted: true or false");
  }

  /** Refuses any value but this one, which is also what an absent field means. */
  only(name: string, wanted: unknown): void {
    if (this.has(name) && this.get(name) !== wanted) this.refuse(name, `supported: ${show(wanted)}`);
  }

  names(): readonly string[] {
    return Object.keys(this.#json);
  }

  object(name: string): Fields {
    const value = this.get(name);
    return isObject(value)
      ? new Fields(this.file, value, `${this.#path}${name}.`)
      : this.refuse(name, "wanted: an object");
  }
}
