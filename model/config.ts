/**
 * Reads config.json and generation_config.json of a Hugging Face folder with the meaning that transformers
 * gives them. This file reads the fields that families share; each file of families/ reads the fields of its
 * own family.
 *
 * An unsupported field that would change the mathematics is refused by name. A model therefore either
 * computes the function its authors meant or does not start. Fields that only matter for training are
 * ignored.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Family, type LayerType, layersOf, type Names, type Source } from "./families/family.ts";
import { families } from "./families/index.ts";
import { isObject, type JsonObject, readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { longropeMagnitude, yarnMagnitude } from "./rope.ts";
import {
  type ModelShape,
  type Rope,
  type RopeScaling,
  type Sizes,
  shapeLimits,
  type Traits,
} from "./shape.ts";

/**
 * Sampling defaults that the model's authors recommend; null for a field they do not set. `do_sample` is
 * ignored.
 */
export interface GenerationDefaults {
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly minP: number | null;
  readonly repetitionPenalty: number | null;
  /** Token sequences that are never generated: the last token is banned after the others. Absent: none. */
  readonly badWords?: readonly (readonly number[])[];
  /** Fields that would change sampling and are not supported; absent: none. */
  readonly unheeded?: readonly string[];
}

export interface ModelConfig {
  /** Name of a family (families/). */
  readonly family: string;
  readonly shape: ModelShape;
  /**
   * True for a model without a vocabulary projection (for embeddings or scores), which generates no text;
   * absent otherwise.
   */
  readonly isHeadless?: true;
  /** End-of-text tokens from generation_config.json, else from config.json. May be empty. */
  readonly eosTokens: readonly number[];
  readonly generationDefaults: GenerationDefaults;
}

const configBytesMax = 4 << 20;

/** Reads config.json of a folder and, if present, generation_config.json. Throws ModelError. */
export function readModelConfig(dir: string): ModelConfig {
  const configFile = join(dir, "config.json");
  const generationFile = join(dir, "generation_config.json");
  const generation = existsSync(generationFile) ? readJsonObject(generationFile, configBytesMax) : {};
  return parseModelConfig(
    { file: configFile, json: readJsonObject(configFile, configBytesMax) },
    { file: generationFile, json: generation },
  );
}

interface JsonFile {
  readonly file: string;
  readonly json: JsonObject;
}

/** Parses the configuration from JSON that is already read. Pure. */
export function parseModelConfig(config: JsonFile, generation: JsonFile): ModelConfig {
  const { family, file, isHeadless } = familyOf(config);
  const fields = new Fields(file.file, { ...family.defaults, ...renamed(file.json, family) }, file.path);
  if (fields.has("auto_map") && !family.ignoresAutoMap) {
    fields.refuse("auto_map", "asks to run code from the model folder, which is never done");
  }
  for (const field of ["use_bidirectional_attention", "is_causal"]) {
    const causal = field === "is_causal";
    if (!causal && family.mayBeEncoder) continue;
    // "vision" makes only image tokens bidirectional, and the server accepts no images.
    if (fields.get(field) === "vision") continue;
    if (fields.boolean(field, causal) !== causal) {
      fields.refuse(field, "tokens that see those behind them are not supported");
    }
  }
  const shape = shapeOf(family, new ConfigSource(family, fields));
  const generationFields = new Fields(generation.file, generation.json);
  const whole = new Fields(config.file, config.json);
  const eosFields = generationFields.has("eos_token_id")
    ? generationFields
    : whole.has("eos_token_id")
      ? whole
      : fields;
  return {
    family: family.name,
    ...(isHeadless || shape.encoder !== undefined ? headless(shape) : { shape }),
    eosTokens: tokenList(eosFields, "eos_token_id", shape.vocab),
    generationDefaults: generationDefaultsOf(generationFields, shape.vocab),
  };
}

/**
 * Shape of a model without a vocabulary projection. An engine must have one, so the shape ties it to the
 * embedding; the server never samples from it.
 */
export function headless(shape: ModelShape): Pick<ModelConfig, "shape" | "isHeadless"> {
  return { shape: { ...shape, tiedEmbeddings: true }, isHeadless: true };
}

/**
 * Builds a shape from the sizes and the family's description; traits the family omits get the usual values.
 */
export function shapeOf(family: Family, source: Source): ModelShape {
  const { sizes } = source;
  const described = family.describe(source);
  const usual: Omit<Traits, "layers" | "ropes"> = {
    norm: "rms",
    activation: described.activation ?? source.activation("silu"),
    experts: null,
    attentionScale: sizes.headSize ** -0.5,
    attentionCap: 0,
    embeddingScale: 1,
    layerInputs: 0,
    residualScale: 1,
    logitScale: 1,
    logitCap: 0,
  };
  return { ...sizes, ...usual, ...described };
}

/** Fields under their usual names. */
function renamed(json: JsonObject, { renamedFields = {} }: Family): JsonObject {
  return Object.fromEntries(
    Object.entries(json).map(([name, value]) => [renamedFields[name] ?? name, value]),
  );
}

const headlessClass = /(TextModel|Model|ForSequenceClassification)$/;

/**
 * Finds the family and the fields of the text model. A model of text and images nests those fields in an
 * object of their own.
 */
function familyOf(config: JsonFile): {
  readonly family: Family;
  readonly file: JsonFile & { readonly path: string };
  readonly isHeadless: boolean;
} {
  const fields = new Fields(config.file, config.json);
  const classes = new Set(families.flatMap(({ classes, wrappers = [] }) => [...classes, ...wrappers]));
  const supported = `supported: ${[...classes].join(", ")}`;
  const architectures = fields.get("architectures");
  const modelType = fields.get("model_type");
  const name = Array.isArray(architectures) && architectures.length === 1 ? architectures[0] : undefined;
  const typesOf = (family: Family): readonly unknown[] => family.modelTypes ?? [family.name];
  const wrapped = families.filter(({ wrappers = [] }) => wrappers.includes(name as string));
  // Early models of text and images have the fields of the text model in the outer object.
  const flat = fields.has("text_config")
    ? undefined
    : wrapped.find((family) => typesOf(family).includes(modelType));
  if (flat !== undefined) return { family: flat, file: { ...config, path: "" }, isHeadless: false };
  if (wrapped.length > 0) {
    const text = fields.object("text_config");
    const type = text.get("model_type");
    const known =
      wrapped.find((family) => typesOf(family).includes(type)) ??
      (type === undefined ? wrapped[0] : undefined);
    if (known === undefined)
      return text.refuse("model_type", `supported: ${wrapped.flatMap(typesOf).join(", ")}`);
    const tied = fields.has("tie_word_embeddings")
      ? { tie_word_embeddings: fields.get("tie_word_embeddings") }
      : {};
    const json = { ...tied, ...(config.json.text_config as JsonObject) };
    return { family: known, file: { file: config.file, json, path: "text_config." }, isHeadless: false };
  }
  // Qwen3Model is Qwen3ForCausalLM without a vocabulary projection. Qwen3ForSequenceClassification has labels
  // in its place.
  const isBare = typeof name === "string" && headlessClass.test(name);
  const generating = isBare ? name.replace(headlessClass, "ForCausalLM") : name;
  const family =
    architectures === undefined
      ? families.find((known) => typesOf(known).includes(modelType))
      : families.find((known) => known.classes.includes((known.isEncoder ? name : generating) as string));
  if (family === undefined) {
    return fields.refuse(architectures === undefined ? "model_type" : "architectures", supported);
  }
  if (modelType !== undefined && !typesOf(family).includes(modelType)) {
    fields.refuse("model_type", `contradicts architectures ${show(architectures)}`);
  }
  return { family, file: { ...config, path: "" }, isHeadless: isBare || family.isEncoder === true };
}

const activations: Readonly<Record<string, ModelShape["activation"]>> = {
  silu: "silu",
  swish: "silu",
  gelu_pytorch_tanh: "geluTanh",
  gelu_new: "geluTanh",
  gelu: "gelu",
  xielu: "xielu",
};

/** Source of a family's description backed by config.json. */
class ConfigSource implements Source {
  readonly kind = "config";
  readonly layers: number;
  readonly sizes: Sizes;
  readonly #fields: Fields;

  constructor(family: Family, fields: Fields) {
    this.#fields = fields;
    this.layers = fields.integer("num_hidden_layers", 1, shapeLimits.layers, listedLayers(fields, family));
    this.sizes = this.#sizes(family);
  }

  #sizes(family: Family): Sizes {
    const fields = this.#fields;
    const hidden = fields.integer("hidden_size", 1, shapeLimits.hidden);
    const queryHeads = fields.integer("num_attention_heads", 1, shapeLimits.heads);
    // If the family requires this field, the default of transformers would belong to another model.
    const kvHeads = fields.integer(
      "num_key_value_heads",
      1,
      shapeLimits.heads,
      family.kvHeadsOptional ? queryHeads : undefined,
    );
    if (queryHeads % kvHeads !== 0) {
      fields.refuse("num_key_value_heads", `does not divide num_attention_heads ${queryHeads}`);
    }
    const contextMax = fields.integer("max_position_embeddings", 1, shapeLimits.contextMax);
    const latent = family.isLatent
      ? fields.integer("kv_lora_rank", 32, shapeLimits.headSize) +
        fields.integer("qk_rope_head_dim", 2, shapeLimits.headSize)
      : 0;
    const [epsilon] = family.epsilon ?? ["rms_norm_eps"];
    return {
      hidden,
      feedForward: fields.same(
        family.feedForwardField ?? "intermediate_size",
        this.layers,
        1,
        shapeLimits.feedForward,
      ),
      queryHeads,
      ...(latent > 0
        ? { kvHeads: 1, headSize: latent }
        : { kvHeads, headSize: headSizeOf(fields, hidden, queryHeads) }),
      vocab: fields.integer("vocab_size", 1, shapeLimits.vocab),
      contextMax,
      tiedEmbeddings: fields.boolean("tie_word_embeddings", false),
      normEpsilon: fields.number(epsilon, 1e-12, 1, 1e-6),
    };
  }

  activation(usual: ModelShape["activation"]): ModelShape["activation"] {
    const field = this.#fields.has("hidden_activation") ? "hidden_activation" : "hidden_act";
    if (!this.#fields.has(field)) return usual;
    const name = this.#fields.get(field);
    const known =
      typeof name === "string" && Object.hasOwn(activations, name) ? activations[name] : undefined;
    // xIELU has numbers in each layer, which other families' files lack.
    if (known !== undefined && (known !== "xielu" || usual === "xielu")) return known;
    const supported = Object.keys(activations).filter((other) => other !== "xielu" || usual === "xielu");
    return this.#fields.refuse(field, `supported: ${supported.join(", ")}`);
  }

  /**
   * Rope fields of a layer type, or of all layers. With `layer_types`, sliding layers may have an object of
   * their own.
   */
  #ropeFields(type: LayerType | undefined): { readonly rope: Fields; readonly isOwn: boolean } {
    const field = this.#fields.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
    const rope = this.#fields.has(field) ? this.#fields.object(field) : new Fields(this.#fields.file, {});
    if (type !== undefined && isObject(rope.get(type))) return { rope: rope.object(type), isOwn: true };
    for (const name of rope.names()) {
      if (isObject(rope.get(name)))
        rope.refuse(name, "positions that differ between layers are not supported");
    }
    return { rope, isOwn: false };
  }

  integer([name]: Names, min: number, max: number, fallback?: number): number {
    if (name === null) return fallback!;
    return this.#place(name).integer(name, min, max, fallback);
  }

  number([name]: Names, min: number, max: number, fallback?: number): number {
    if (name === null) return fallback!;
    return this.#place(name).number(name, min, max, fallback);
  }

  flag([name]: Names, fallback: boolean): boolean {
    return name === null ? fallback : this.#fields.boolean(name, fallback);
  }

  text([name]: Names, fallback: string): string {
    if (name === null || !this.#fields.has(name)) return fallback;
    const value = this.#fields.get(name);
    return typeof value === "string" ? value : this.#fields.refuse(name, "wanted: a string");
  }

  texts([name]: Names): readonly string[] | null {
    if (name === null || !this.#fields.has(name)) return null;
    const value = this.#fields.get(name);
    const isGood = Array.isArray(value) && value.every((entry) => typeof entry === "string");
    return isGood ? value : this.#fields.refuse(name, "wanted: a list of strings");
  }

  /** Object that holds a field: the rope's, or the whole configuration. */
  #place(name: string): Fields {
    if (this.#fields.has(name)) return this.#fields;
    for (const field of ["rope_scaling", "rope_parameters"]) {
      const value = this.#fields.get(field);
      if (isObject(value) && value[name] !== undefined) return this.#fields.object(field);
    }
    return this.#fields;
  }

  refuse([name]: Names, reason: string): never {
    return this.#fields.refuse(name ?? "architectures", reason);
  }

  bias(field: string): boolean {
    return this.#fields.boolean(field, false);
  }

  lacks(field: string): boolean {
    return this.#fields.boolean(field, false);
  }

  isList([name]: Names): boolean {
    return name !== null && Array.isArray(this.#fields.get(name));
  }

  rows(): null {
    return null; // no tensors are known
  }

  has([name]: Names): boolean {
    return name !== null && this.#fields.has(name);
  }

  indices([name]: Names): readonly number[] {
    if (name === null || !this.#fields.has(name)) return [];
    const value = this.#fields.get(name);
    const isGood =
      Array.isArray(value) &&
      value.every((entry) => Number.isInteger(entry) && entry >= 0 && entry < this.layers);
    return isGood
      ? value
      : this.#fields.refuse(name, `wanted: numbers of layers from 0 to ${this.layers - 1}`);
  }

  numbers([name]: Names): readonly number[] | null {
    if (name === null || !this.#fields.has(name)) return null;
    const value = this.#fields.get(name);
    const isGood = Array.isArray(value) && value.every((entry) => typeof entry === "number");
    return isGood ? value : this.#fields.refuse(name, "wanted: a list of numbers");
  }

  perLayer([name]: Names): readonly number[] | null {
    if (name === null || !this.#fields.has(name)) return null;
    const value = this.#fields.get(name);
    const isGood =
      Array.isArray(value) &&
      value.length >= this.layers &&
      value.every((entry) => typeof entry === "number");
    return isGood ? value.slice(0, this.layers) : this.#fields.refuse(name, `wanted: ${this.layers} numbers`);
  }

  realsPerLayer(names: Names): readonly number[] | null {
    return this.perLayer(names);
  }

  flags(): null {
    return null; // no configuration has such a list
  }

  slidingLayers(usual: (layer: number) => boolean): readonly boolean[] {
    const kinds = this.#fields.get("layer_types");
    if (kinds === undefined || kinds === null) return layersOf(this.layers, usual);
    const known: readonly unknown[] = ["full_attention", "sliding_attention"];
    if (
      !Array.isArray(kinds) ||
      kinds.length !== this.layers ||
      !kinds.every((kind) => known.includes(kind))
    ) {
      this.#fields.refuse(
        "layer_types",
        `wanted: "full_attention" or "sliding_attention" for each of ${this.layers} layers`,
      );
    }
    return (kinds as unknown[]).map((kind) => kind === "sliding_attention");
  }

  rope(type?: LayerType, theta?: Names, headSize = this.sizes.headSize): Rope {
    const fields = this.#fields;
    const { rope, isOwn } = this.#ropeFields(type);
    const ownTheta = theta?.[0] ?? null;
    // A layer type with a theta of its own has a plain rope; the one rescaling applies to the other layers.
    if (!isOwn && ownTheta !== null) {
      return {
        kind: "plain",
        theta: fields.number(ownTheta, 1, 1e15, 10_000),
        dimensions: this.#rotated(rope, headSize),
      };
    }
    if (rope.get("rope_type") === "proportional") {
      const share = rope.number("partial_rotary_factor", 1e-3, 1, 1);
      return {
        kind: "proportional",
        turned: Math.floor((share * headSize) / 2),
        factor: rope.number("factor", 1, 1e6, 1),
        theta: rope.number("rope_theta", 1, 1e15),
        dimensions: headSize,
      };
    }
    const dimensions = this.#rotated(rope, headSize);
    return {
      ...scalingOf(rope, fields, this.sizes, dimensions / 2),
      theta: rope.has("rope_theta")
        ? rope.number("rope_theta", 1, 1e15)
        : fields.number("rope_theta", 1, 1e15, 10_000),
      dimensions,
    };
  }

  #rotated(rope: Fields, headSize: number): number {
    const place = rope.has("partial_rotary_factor") ? rope : this.#fields;
    const factor = place.number("partial_rotary_factor", 1e-3, 1, 1);
    const dimensions = Math.floor(headSize * factor);
    if (dimensions < 2 || dimensions % 2 !== 0) {
      place.refuse("partial_rotary_factor", `rotates ${dimensions} of ${headSize}: wanted an even number`);
    }
    return dimensions;
  }
}

/** Number of layers that a list has, or a string of a letter for each; undefined without one. */
function listedLayers(fields: Fields, { layerLists = [] }: Family): number | undefined {
  const list = layerLists.map((name) => fields.get(name)).find((value) => value != null);
  return Array.isArray(list) || typeof list === "string" ? list.length : undefined;
}

function headSizeOf(fields: Fields, hidden: number, queryHeads: number): number {
  if (!fields.has("head_dim") && hidden % queryHeads !== 0) {
    fields.refuse("num_attention_heads", `does not divide hidden_size ${hidden}, and there is no head_dim`);
  }
  const headSize = fields.integer("head_dim", 1, shapeLimits.headSize, hidden / queryHeads);
  if (headSize % 16 !== 0 || headSize > shapeLimits.headSize) {
    const field = fields.has("head_dim") ? "head_dim" : "hidden_size";
    fields.refuse(
      field,
      `a head size of ${headSize} is not supported: multiples of 16 up to ${shapeLimits.headSize} are`,
    );
  }
  return headSize;
}

/**
 * Reads either spelling: `rope_theta` beside `rope_scaling`, or the newer `rope_parameters` that holds all
 * fields.
 */
function scalingOf(rope: Fields, fields: Fields, sizes: Sizes, pairs: number): RopeScaling {
  const typeField = rope.has("rope_type") ? "rope_type" : "type";
  const type = rope.get(typeField) ?? "default";
  const originalContext = (): number => {
    const name = "original_max_position_embeddings";
    return (fields.has(name) ? fields : rope).integer(name, 1, shapeLimits.contextMax, sizes.contextMax);
  };
  switch (type) {
    case "default":
    // "mrope" gives each token three positions, which are equal in text.
    case "mrope":
    // "dynamic" rescales by sequence length, and only beyond max_position_embeddings, which the server does
    // not serve.
    case "dynamic":
      return { kind: "plain" };
    case "linear":
      return { kind: "linear", factor: rope.number("factor", 1, 1e6) };
    case "llama3": {
      const lowFreqFactor = rope.number("low_freq_factor", 1e-3, 1e6);
      const highFreqFactor = rope.number("high_freq_factor", 1e-3, 1e6);
      if (highFreqFactor < lowFreqFactor) {
        rope.refuse("high_freq_factor", `must be at least low_freq_factor ${lowFreqFactor}`);
      }
      const factor = rope.number("factor", 1, 1e6);
      return { kind: "llama3", factor, lowFreqFactor, highFreqFactor, originalContext: originalContext() };
    }
    case "yarn": {
      const original = originalContext();
      const factor = rope.number("factor", 1, 1e6, Math.max(1, sizes.contextMax / original));
      const [mscale, mscaleAll] = ["mscale", "mscale_all_dim"].map((name) => rope.number(name, 0, 100, 0));
      const implied =
        mscale && mscaleAll ? yarnMagnitude(factor, mscale) / yarnMagnitude(factor, mscaleAll) : 0;
      return {
        kind: "yarn",
        factor,
        originalContext: original,
        betaFast: rope.number("beta_fast", 1e-3, 1e6, 32),
        betaSlow: rope.number("beta_slow", 1e-3, 1e6, 1),
        truncate: rope.boolean("truncate", true),
        magnitude: rope.number("attention_factor", 1e-3, 1e3, implied || yarnMagnitude(factor, 1)),
      };
    }
    case "longrope":
    case "su": {
      const original = originalContext();
      const factor = rope.number("factor", 1, 1e6, Math.max(1, sizes.contextMax / original));
      return {
        kind: "longrope",
        shortFactors: rope.numbers("short_factor", pairs),
        longFactors: rope.numbers("long_factor", pairs),
        originalContext: original,
        magnitude: rope.number("attention_factor", 1e-3, 1e3, longropeMagnitude(factor, original)),
      };
    }
    default:
      return rope.refuse(
        typeField,
        "supported rope types: default, dynamic, linear, llama3, longrope, mrope, yarn",
      );
  }
}

/** Scaling in an object like config.json's `rope_scaling`. Throws ModelError. */
export function scalingOfJson({ file, json }: JsonFile, sizes: Sizes, pairs: number): RopeScaling {
  const rope = new Fields(file, json);
  if (!rope.has("rope_type") && !rope.has("type")) rope.refuse("rope_type", "wanted: the kind of scaling");
  return scalingOf(rope, new Fields(file, {}), sizes, pairs);
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

function generationDefaultsOf(fields: Fields, vocab: number): GenerationDefaults {
  const optional = (name: string, min: number, max: number): number | null =>
    fields.has(name) ? fields.number(name, min, max) : null;
  const topK = fields.has("top_k") ? fields.integer("top_k", -1, 2 ** 31 - 1) : null;
  return {
    temperature: optional("temperature", 0, 100),
    topP: optional("top_p", 0, 1),
    topK: topK === -1 ? 0 : topK,
    minP: optional("min_p", 0, 1),
    repetitionPenalty: optional("repetition_penalty", 1e-3, 1e3),
    ...badWordsOf(fields, vocab),
    ...unheededOf(fields),
  };
}

/** Values of generation_config.json fields that change nothing in transformers. */
const neutral: Readonly<Record<string, readonly unknown[]>> = {
  begin_suppress_tokens: [],
  forced_bos_token_id: [],
  forced_eos_token_id: [],
  sequence_bias: [],
  stop_strings: [],
  watermarking_config: [],
  exponential_decay_length_penalty: [],
  no_repeat_ngram_size: [0],
  min_length: [0],
  min_new_tokens: [0],
  typical_p: [1],
  top_h: [1],
  epsilon_cutoff: [0],
  eta_cutoff: [0],
  num_beams: [1],
  guidance_scale: [1],
  penalty_alpha: [0],
};

function unheededOf(fields: Fields): Pick<GenerationDefaults, "unheeded"> {
  const unheeded = Object.entries(neutral).flatMap(([name, values]) => {
    const value = fields.get(name) ?? null;
    const isNeutral =
      value === null || values.includes(value) || (Array.isArray(value) && value.length === 0);
    return isNeutral ? [] : [name];
  });
  return unheeded.length === 0 ? {} : { unheeded };
}

/**
 * Token sequences that transformers would not generate either; ignores those with tokens beyond the
 * vocabulary.
 */
function badWordsOf(fields: Fields, vocab: number): Pick<GenerationDefaults, "badWords"> {
  const listOf = (name: string): readonly unknown[] => {
    const value = fields.get(name) ?? [];
    return Array.isArray(value) ? value : fields.refuse(name, "wanted: a list");
  };
  const words = [...listOf("suppress_tokens").map((token) => [token]), ...listOf("bad_words_ids")];
  const isWord = (word: unknown): word is number[] =>
    Array.isArray(word) &&
    word.length > 0 &&
    word.every((token) => Number.isInteger(token) && token >= 0 && token < vocab);
  const badWords = words.filter(isWord);
  return badWords.length === 0 ? {} : { badWords };
}

/** Fields of one JSON object, checked for type and range; `null` counts as absent, as in transformers. */
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

  /** Reads a whole number, or an array that has the same one for each of `count` layers. */
  same(name: string, count: number, min: number, max: number): number {
    const value = this.get(name);
    const isSame =
      Array.isArray(value) && value.length === count && value.every((entry) => entry === value[0]);
    const fields = isSame ? new Fields(this.file, { [name]: value[0] }, this.#path) : this;
    return fields.integer(name, min, max);
  }

  boolean(name: string, fallback: boolean): boolean {
    if (!this.has(name)) return fallback;
    const value = this.get(name);
    return typeof value === "boolean" ? value : this.refuse(name, "wanted: true or false");
  }

  /** Reads an array of `count` numbers greater than 0. */
  numbers(name: string, count: number): readonly number[] {
    const value = this.get(name);
    const isGood =
      Array.isArray(value) && value.length === count && value.every((entry) => entry > 0 && entry < 1e9);
    return isGood ? (value as number[]) : this.refuse(name, `wanted: ${count} numbers greater than 0`);
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
