/**
 * What a GGUF file's metadata says of the model, as the configuration that a Hugging Face folder would give. As there,
 * whatever would change the mathematics and is not supported is refused by name; keys that no reader of these
 * architectures looks at are not looked at.
 */
import {
  type Family,
  type GenerationDefaults,
  shapeLimits as limits,
  type ModelConfig,
  type ModelShape,
  type Rope,
} from "./config.ts";
import type { Metadata } from "./gguf-metadata.ts";
import { ModelError } from "./model-error.ts";

/** What the tensors say of the configuration. */
export interface TensorFacts {
  /** Rows of the embedding. */
  readonly vocab: number;
  /** There is no vocabulary projection of its own. */
  readonly tiedEmbeddings: boolean;
  /** Each frequency is divided by its factor; null without such a tensor. */
  readonly ropeFactors: Float32Array | null;
}

/** Architectures that are read. "llama" also stands for Mistral's models. */
const architectures = ["llama", "qwen2", "qwen3"] as const;
type Architecture = (typeof architectures)[number];

/** Control tokens that end a turn or a text in the families here, whatever the metadata names as the end. */
const endTexts = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>"];

/** Type of a control token in `tokenizer.ggml.token_type`. */
const controlType = 3;

/** Of the file's model. Throws ModelError. */
export function ggufConfig(metadata: Metadata, facts: TensorFacts): ModelConfig {
  const architecture = architectureOf(metadata);
  const fields = new ArchitectureFields(metadata, architecture);
  fields.refuseForeign();
  const shape = shapeOf(fields, facts);
  const family: Family = architecture === "llama" && shape.slidingWindow > 0 ? "mistral" : architecture;
  const generationDefaults = generationDefaultsOf(metadata);
  return { family, shape, eosTokens: eosTokensOf(metadata, shape.vocab), generationDefaults };
}

function architectureOf(metadata: Metadata): Architecture {
  const key = "general.architecture";
  const name = metadata.text(key);
  const known = architectures.find((architecture) => architecture === name);
  return known ?? metadata.refuse(key, `supported: ${architectures.join(", ")}`);
}

/** Entries whose keys begin with the architecture's name. */
class ArchitectureFields {
  readonly metadata: Metadata;
  readonly architecture: Architecture;

  constructor(metadata: Metadata, architecture: Architecture) {
    this.metadata = metadata;
    this.architecture = architecture;
  }

  key(name: string): string {
    return `${this.architecture}.${name}`;
  }

  has(name: string): boolean {
    return this.metadata.has(this.key(name));
  }

  integer(name: string, min: number, max: number, fallback?: number): number {
    return this.metadata.integer(this.key(name), min, max, fallback);
  }

  number(name: string, min: number, max: number, fallback?: number): number {
    return this.metadata.number(this.key(name), min, max, fallback);
  }

  refuse(name: string, reason: string): never {
    return this.metadata.refuse(this.key(name), reason);
  }

  /** What readers of these architectures take account of and the engines do not compute. */
  refuseForeign(): void {
    this.integer("expert_count", 0, 0, 0);
    this.integer("pooling_type", 0, 0, 0);
    for (const name of ["residual_scale", "embedding_scale", "logit_scale", "attention.scale"]) {
      if (this.has(name)) this.refuse(name, "a scale of its own is not supported");
    }
    if (!this.metadata.boolean(this.key("attention.causal"), true)) {
      this.refuse("attention.causal", "attention to later tokens is not supported");
    }
    this.number("rope.scaling.attn_factor", 1, 1, 1);
    if (this.has("rope.scale_linear")) {
      this.refuse("rope.scale_linear", "is an old spelling: convert the model again");
    }
  }
}

function shapeOf(fields: ArchitectureFields, facts: TensorFacts): ModelShape {
  const hidden = fields.integer("embedding_length", 1, limits.hidden);
  const queryHeads = fields.integer("attention.head_count", 1, limits.heads);
  const kvHeads = fields.integer("attention.head_count_kv", 1, limits.heads, queryHeads);
  if (queryHeads % kvHeads !== 0) {
    fields.refuse("attention.head_count_kv", `does not divide attention.head_count ${queryHeads}`);
  }
  const headSize = headSizeOf(fields, hidden, queryHeads);
  const contextMax = fields.integer("context_length", 1, limits.contextMax);
  if (facts.vocab > limits.vocab) {
    fields.refuse(
      "vocab_size",
      `the embedding has ${facts.vocab} rows; at most ${limits.vocab} are possible`,
    );
  }
  fields.integer("vocab_size", facts.vocab, facts.vocab, facts.vocab);
  return {
    layers: fields.integer("block_count", 1, limits.layers),
    hidden,
    feedForward: fields.integer("feed_forward_length", 1, limits.feedForward),
    queryHeads,
    kvHeads,
    headSize,
    vocab: facts.vocab,
    contextMax,
    slidingWindow: slidingWindowOf(fields, contextMax),
    qkvBias: fields.architecture === "qwen2",
    qkNorm: fields.architecture === "qwen3",
    tiedEmbeddings: facts.tiedEmbeddings,
    normEpsilon: fields.number("attention.layer_norm_rms_epsilon", 1e-12, 1),
    rope: ropeOf(fields, headSize, facts.ropeFactors),
  };
}

function headSizeOf(fields: ArchitectureFields, hidden: number, queryHeads: number): number {
  if (!fields.has("attention.key_length") && hidden % queryHeads !== 0) {
    const reason = `does not divide embedding_length ${hidden}, and there is no attention.key_length`;
    fields.refuse("attention.head_count", reason);
  }
  const headSize = fields.integer("attention.key_length", 1, limits.headSize, hidden / queryHeads);
  if (headSize % 16 !== 0 || headSize > limits.headSize) {
    const name = fields.has("attention.key_length") ? "attention.key_length" : "attention.head_count";
    fields.refuse(
      name,
      `a head size of ${headSize} is not supported: multiples of 16 up to ${limits.headSize} are`,
    );
  }
  fields.integer("attention.value_length", headSize, headSize, headSize);
  fields.integer("rope.dimension_count", headSize, headSize, headSize);
  return headSize;
}

/** Of all layers. Only Mistral's models have one here; for the others it would be for some layers. */
function slidingWindowOf(fields: ArchitectureFields, contextMax: number): number {
  const name = "attention.sliding_window";
  const window = fields.integer(name, 0, limits.contextMax, 0);
  if (window === 0 || window >= contextMax) return 0;
  return fields.architecture === "llama"
    ? window
    : fields.refuse(name, `a window in a ${fields.architecture} model is not supported`);
}

function ropeOf(fields: ArchitectureFields, headSize: number, factors: Float32Array | null): Rope {
  const theta = fields.number("rope.freq_base", 1, 1e15, 10_000);
  const name = "rope.scaling.type";
  const type = fields.metadata.text(fields.key(name), "none");
  if (type === "none" && factors !== null) {
    const rope = ropeOfFactors(factors, theta, headSize);
    if (rope !== null) return rope;
    throw new ModelError(fields.metadata.file, factorsName, "its factors are not those of a Llama 3 model");
  }
  if (factors !== null) fields.refuse(name, `not together with the tensor ${factorsName}`);
  if (type === "none") return { kind: "plain", theta };
  if (type === "linear")
    return { kind: "linear", theta, factor: fields.number("rope.scaling.factor", 1, 1e6) };
  return fields.refuse(name, "supported: none, linear");
}

/** The tensor of rope factors. */
export const factorsName = "rope_freqs.weight";

/** How exactly factors must follow from the parameters that were found. */
const factorTolerance = 1e-4;
/** Of every released Llama 3 model; only their ratio shows in the factors. */
const lowFreqFactor = 1;
const highFreqFactor = 4;

/**
 * The parameters of Llama 3's rescaling behind its factors [headSize / 2], one per frequency: 1 for short waves, the
 * whole factor for long ones, and between them a blend that depends on wavelength / original context. Null when no
 * parameters give these factors.
 */
export function ropeOfFactors(factors: Float32Array, theta: number, headSize: number): Rope | null {
  if (factors.length !== headSize / 2) return null;
  const wavelength = (index: number): number => 2 * Math.PI * theta ** ((2 * index) / headSize);
  const factor = nearestWhole(factors.reduce((max, value) => Math.max(max, value), 1));
  if (factors.every((value) => value === 1)) return { kind: "plain", theta };
  if (!Number.isFinite(factor)) return null;

  // Waves per original context, from a frequency that is neither left alone nor divided by the whole factor.
  const blended = factors.findIndex((value) => value > 1.001 && value < factor * 0.999);
  const smooth = (1 / factors[blended]! - 1 / factor) / (1 - 1 / factor);
  const waves = lowFreqFactor + smooth * (highFreqFactor - lowFreqFactor);
  const originalContext = blended < 0 ? 8192 : Math.round(waves * wavelength(blended));
  if (!(originalContext >= 1 && originalContext <= limits.contextMax)) return null;

  const expected = (index: number): number => {
    const share = (originalContext / wavelength(index) - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
    const blend = Math.min(1, Math.max(0, share));
    return 1 / ((1 - blend) / factor + blend);
  };
  const agrees = factors.every((value, index) => Math.abs(value / expected(index) - 1) < factorTolerance);
  return agrees ? { kind: "llama3", theta, factor, lowFreqFactor, highFreqFactor, originalContext } : null;
}

function nearestWhole(value: number): number {
  const whole = Math.round(value);
  return Math.abs(value / whole - 1) < factorTolerance ? whole : value;
}

/** The ends that the metadata names, and other control tokens that end a turn or a text. */
function eosTokensOf(metadata: Metadata, vocab: number): number[] {
  const ends = new Set<number>();
  for (const name of ["eos", "eot", "eom"]) {
    const key = `tokenizer.ggml.${name}_token_id`;
    if (metadata.has(key)) ends.add(metadata.integer(key, 0, vocab - 1));
  }
  const key = "tokenizer.ggml.tokens";
  if (!metadata.has(key)) return [...ends];
  const tokens = metadata.texts(key);
  if (tokens.length > vocab) metadata.refuse(key, `the model's vocabulary has ${vocab}`);
  const types = metadata.integers("tokenizer.ggml.token_type", tokens.length);
  tokens.forEach((text, token) => {
    if (types?.[token] === controlType && endTexts.includes(text)) ends.add(token);
  });
  return [...ends];
}

function generationDefaultsOf(metadata: Metadata): GenerationDefaults {
  const real = (name: string, min: number, max: number): number | null => {
    const key = `general.sampling.${name}`;
    return metadata.has(key) ? metadata.number(key, min, max) : null;
  };
  const topK = metadata.integer("general.sampling.top_k", -1, 2 ** 31 - 1, -2);
  return {
    temperature: real("temp", 0, 100),
    topP: real("top_p", 1e-9, 1),
    topK: topK === -2 ? null : Math.max(0, topK),
    minP: real("min_p", 0, 1),
    repetitionPenalty: real("penalty_repeat", 1e-3, 1e3),
  };
}
