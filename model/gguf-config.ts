/**
 * Converts GGUF metadata to the configuration that a Hugging Face folder would give. An unsupported key that
 * would change the mathematics is refused by name. Keys that no reader of these architectures uses are
 * ignored.
 */
import { type GenerationDefaults, headless, type ModelConfig, shapeOf } from "./config.ts";
import { ggufEndTokens } from "./ends.ts";
import { type Family, type LayerType, layersOf, type Names, type Source } from "./families/family.ts";
import { families, familyNamed } from "./families/index.ts";
import { windowOf } from "./families/windows.ts";
import type { Metadata } from "./gguf-metadata.ts";
import { isOfRanker } from "./gguf-score.ts";
import { ModelError } from "./model-error.ts";
import { longropeMagnitude, yarnMagnitude } from "./rope.ts";
import {
  type LayerShape,
  shapeLimits as limits,
  type Rope,
  type RopeScaling,
  type Sizes,
  type Traits,
} from "./shape.ts";

/** Facts of the configuration that only the tensors reveal. */
export interface TensorFacts {
  /** Number of rows of the embedding. */
  readonly vocab: number;
  /** True if the file has no vocabulary projection of its own. */
  readonly tiedEmbeddings: boolean;
  has(name: string): boolean;
  /** Values of a small tensor; null if it is absent. */
  floats(name: string): Float32Array | null;
  /** Number of a matrix's rows; null if it is absent. */
  rows(name: string): number | null;
}

/** Configuration of the model in a file. Throws ModelError. */
export function ggufConfig(metadata: Metadata, facts: TensorFacts): ModelConfig {
  const key = "general.architecture";
  const architecture = metadata.text(key);
  const named = families.find((family) => family.metadata.includes(architecture));
  if (named === undefined) {
    metadata.refuse(key, `supported: ${families.flatMap((family) => family.metadata).join(", ")}`);
  }
  const windowKey = `${architecture}.attention.sliding_window`;
  const isWindowed = metadata.integer(windowKey, 0, limits.contextMax, 0) > 0;
  // Files of Mistral's models also name the architecture llama.
  const hasExperts = metadata.integer(`${architecture}.expert_count`, 0, limits.experts, 0) > 0;
  const ofLlama = hasExperts ? "mixtral" : isWindowed ? "mistral" : "llama";
  // Dense Granite 4 may have the architecture of the mixtures.
  const ofGranite = hasExperts ? "granitemoe" : "granite";
  const ofSwash = hasExperts ? "granitemoe_swa" : "granite_swa";
  const own = { llama: ofLlama, granitemoe: ofGranite, granite_swa: ofSwash }[named!.name];
  const family = own === undefined ? named! : familyNamed(own);
  const source = new MetadataSource(metadata, architecture, family, facts);
  const shape = shapeOf(family, source);
  // A family that does not support windows would silently ignore this one.
  if (
    windowOf(source) > 0 &&
    source.slidingLayers(() => true).includes(true) &&
    !shape.layers.some(hasWindow)
  ) {
    metadata.refuse(windowKey, `no layer of a ${family.name} model has a window`);
  }
  // llama.cpp's converter drops a reranker's vocabulary projection, except for two of its rows.
  const isRanker = facts.tiedEmbeddings && isOfRanker(metadata);
  return {
    family: family.name,
    ...(shape.encoder !== undefined || isRanker ? headless(shape) : { shape }),
    eosTokens: ggufEndTokens(metadata, shape.vocab),
    generationDefaults: generationDefaultsOf(metadata, shape.vocab),
  };
}

const hasWindow = ({ slidingWindow }: LayerShape): boolean => slidingWindow > 0;

/** Scales that some families support; other families would ignore them. */
const scales: readonly string[] = ["residual_scale", "embedding_scale", "logit_scale", "attention.scale"];

/** Source of a description backed by metadata whose keys begin with the architecture's name. */
class MetadataSource implements Source {
  readonly kind = "metadata";
  readonly layers: number;
  readonly sizes: Sizes;
  readonly #metadata: Metadata;
  readonly #architecture: string;
  readonly #facts: TensorFacts;
  /** Layers of the file, those that predict several tokens at once included. */
  readonly #blocks: number;

  constructor(metadata: Metadata, architecture: string, family: Family, facts: TensorFacts) {
    this.#metadata = metadata;
    this.#architecture = architecture;
    this.#facts = facts;
    this.#refuseForeign(family);
    // Layers that predict several tokens at once come last, and are skipped.
    const drafting = this.#integer("nextn_predict_layers", 0, limits.layers, 0);
    this.#blocks = this.#integer("block_count", 1 + drafting, limits.layers);
    this.layers = this.#blocks - drafting;
    this.sizes = this.#sizes(family);
  }

  /** Key of a name, which may be that of a tokenizer's key. */
  #key(name: string): string {
    if (name.startsWith("tokenizer.")) return name;
    return `${this.#architecture}.${name}`;
  }

  #has(name: string): boolean {
    return this.#metadata.has(this.#key(name));
  }

  #integer(name: string, min: number, max: number, fallback?: number): number {
    return this.#metadata.integer(this.#key(name), min, max, fallback);
  }

  #number(name: string, min: number, max: number, fallback?: number): number {
    return this.#metadata.number(this.#key(name), min, max, fallback);
  }

  #refuse(name: string, reason: string): never {
    return this.#metadata.refuse(this.#key(name), reason);
  }

  /** Refuses keys that llama.cpp honours for these architectures and the engines do not support. */
  #refuseForeign(family: Family): void {
    if (!family.hasExperts) this.#integer("expert_count", 0, 0, 0);
    if (!family.readsRouter) this.#refuseRouters();
    for (const name of scales) {
      if (this.#has(name) && !family.ggufScales?.includes(name)) {
        this.#refuse(name, `a scale of its own is not supported in a ${family.name} model`);
      }
    }
    if (!family.isEncoder && !this.#metadata.boolean(this.#key("attention.causal"), true)) {
      this.#refuse("attention.causal", "attention to later tokens is not supported");
    }
    if (this.#has("rope.scale_linear")) {
      this.#refuse("rope.scale_linear", "is an old spelling: convert the model again");
    }
  }

  /** Refuses keys of routers and shared experts, for families without them. */
  #refuseRouters(): void {
    if (this.#integer("expert_gating_func", 0, 3, 0) === 2) {
      this.#refuse("expert_gating_func", "experts that are chosen by sigmoids are not supported");
    }
    if (this.#number("expert_weights_scale", 0, 1e6, 0) > 0) this.#number("expert_weights_scale", 1, 1);
    this.#integer("expert_shared_count", 0, 0, 0);
    this.#integer("expert_shared_feed_forward_length", 0, 0, 0);
    this.#integer("expert_group_count", 0, 1, 0);
  }

  #sizes(family: Family): Sizes {
    const { vocab, tiedEmbeddings } = this.#facts;
    const hidden = this.#integer("embedding_length", 1, limits.hidden);
    const queryHeads = this.#integer("attention.head_count", 1, limits.heads);
    const kvHeads = this.#largest(family, "attention.head_count_kv", limits.heads, queryHeads);
    if (queryHeads % kvHeads !== 0) {
      this.#refuse("attention.head_count_kv", `does not divide attention.head_count ${queryHeads}`);
    }
    const heads = family.isLatent
      ? { kvHeads: 1, headSize: this.#latentSize() }
      : { kvHeads, headSize: this.#headSize(hidden, queryHeads) };
    const contextMax = this.#integer("context_length", 1, limits.contextMax);
    if (vocab > limits.vocab) {
      this.#refuse("vocab_size", `the embedding has ${vocab} rows; at most ${limits.vocab} are possible`);
    }
    this.#integer("vocab_size", vocab, vocab, vocab);
    const usual = "attention.layer_norm_rms_epsilon";
    const [, named] = family.epsilon ?? ["", usual];
    const epsilon = this.#has(named) ? named : usual;
    return {
      hidden,
      // A model with experts in every layer may lack it, and no layer uses it.
      feedForward: this.#largest(
        family,
        "feed_forward_length",
        limits.feedForward,
        family.hasExperts ? 1 : undefined,
      ),
      queryHeads,
      ...heads,
      vocab,
      contextMax,
      tiedEmbeddings,
      normEpsilon: this.#number(epsilon, 1e-13, 1),
    };
  }

  /**
   * Reads a number for all layers, or the largest of an array per layer, whose numbers differ only if the
   * family's layers may.
   */
  #largest(family: Family, name: string, max: number, fallback?: number): number {
    const key = this.#key(name);
    if (!this.#metadata.isArray(key)) return this.#integer(name, 1, max, fallback);
    const values = Array.from(this.#metadata.integers(key, this.#blocks)!).slice(0, this.layers);
    const largest = Math.max(...values);
    // Layers without attention, or without an MLP, have 0.
    const min = this.#has("ssm.state_size") || this.#has("shortconv.l_cache") ? 0 : 1;
    if (!values.every((value) => value >= min && value <= max) || largest < 1) {
      this.#refuse(name, `wanted: whole numbers from ${min} to ${max}`);
    }
    if (!family.layersDiffer && values.some((value) => value !== values[0]))
      this.#refuse(name, `layers of a ${family.name} model do not differ`);
    return largest;
  }

  /** Size of a latent and its rotated part: the numbers per token in a KV page. */
  #latentSize(): number {
    const rank = this.#integer("attention.kv_lora_rank", 32, limits.headSize);
    return rank + this.#integer("rope.dimension_count", 2, limits.headSize);
  }

  #headSize(hidden: number, queryHeads: number): number {
    const hasLength = this.#has("attention.key_length");
    if (!hasLength && hidden % queryHeads !== 0) {
      const reason = `does not divide embedding_length ${hidden}, and there is no attention.key_length`;
      this.#refuse("attention.head_count", reason);
    }
    const headSize = this.#integer("attention.key_length", 1, limits.headSize, hidden / queryHeads);
    if (headSize % 16 !== 0 || headSize > limits.headSize) {
      this.#refuse(
        hasLength ? "attention.key_length" : "attention.head_count",
        `a head size of ${headSize} is not supported: multiples of 16 up to ${limits.headSize} are`,
      );
    }
    this.#integer("attention.value_length", headSize, headSize, headSize);
    return headSize;
  }

  integer([, name]: Names, min: number, max: number, fallback?: number): number {
    return name === null ? fallback! : this.#integer(name, min, max, fallback);
  }

  number([, name]: Names, min: number, max: number, fallback?: number): number {
    return name === null ? fallback! : this.#number(name, min, max, fallback);
  }

  flag([, name]: Names, fallback: boolean): boolean {
    return name === null ? fallback : this.#metadata.boolean(this.#key(name), fallback);
  }

  text([, name]: Names, fallback: string): string {
    return name === null ? fallback : this.#metadata.text(this.#key(name), fallback);
  }

  texts(): null {
    return null; // no key of these architectures
  }

  refuse([, name]: Names, reason: string): never {
    return this.#refuse(name ?? "block_count", reason);
  }

  activation(usual: Traits["activation"]): Traits["activation"] {
    return usual; // no key for it
  }

  bias(_: string, tensor: string): boolean {
    return this.#facts.has(`blk.0.${tensor}`);
  }

  lacks(_: string, layer: number, tensor: string): boolean {
    return !this.#facts.has(`blk.${layer}.${tensor}`);
  }

  isList([, name]: Names): boolean {
    return name !== null && this.#metadata.isArray(this.#key(name));
  }

  rows(tensor: string): number | null {
    for (let layer = 0; layer < this.layers; layer += 1) {
      const rows = this.#facts.rows(`blk.${layer}.${tensor}`);
      if (rows !== null) return rows;
    }
    return null;
  }

  has([, name]: Names): boolean {
    return name !== null && this.#has(name);
  }

  numbers(): null {
    return null; // no key of these architectures
  }

  indices(): readonly number[] {
    return []; // no key lists layers
  }

  perLayer([, name]: Names): readonly number[] | null {
    if (name === null || !this.#metadata.isArray(this.#key(name))) return null;
    return Array.from(this.#metadata.integers(this.#key(name), this.#blocks)!).slice(0, this.layers);
  }

  flags([, name]: Names): readonly boolean[] | null {
    if (name === null || !this.#has(name)) return null;
    return this.#metadata.flags(this.#key(name), this.#blocks).slice(0, this.layers);
  }

  realsPerLayer([, name]: Names): readonly number[] | null {
    const values = name === null ? null : this.#metadata.numbers(this.#key(name), this.layers);
    return values === null ? null : Array.from(values);
  }

  /**
   * Sliding-window flags. The pattern is one boolean per layer, or a number n: every nth layer has full
   * attention.
   */
  slidingLayers(usual: (layer: number) => boolean): readonly boolean[] {
    const key = this.#key("attention.sliding_window_pattern");
    if (!this.#metadata.has(key)) return layersOf(this.layers, usual);
    if (this.#metadata.isArray(key)) return this.#metadata.flags(key, this.layers);
    const period = this.#metadata.integer(key, 0, limits.layers);
    return layersOf(this.layers, (layer) => period === 0 || (layer + 1) % period !== 0);
  }

  rope(type?: LayerType, theta?: Names, headSize = this.sizes.headSize): Rope {
    const isOwn = type === "sliding_attention" && this.#has("rope.dimension_count_swa");
    const name = isOwn ? "rope.dimension_count_swa" : "rope.dimension_count";
    const dimensions = this.#integer(name, 2, headSize, headSize);
    if (dimensions % 2 !== 0) this.#refuse(name, "wanted: an even number");
    const ownTheta = theta?.[1] ?? null;
    if (type === "sliding_attention" && ownTheta !== null) {
      return { kind: "plain", theta: this.#number(ownTheta, 1, 1e15, 10_000), dimensions };
    }
    const base = this.#number("rope.freq_base", 1, 1e15, 10_000);
    return { ...this.#scaling(base, dimensions), theta: base, dimensions };
  }

  #scaling(theta: number, dimensions: number): RopeScaling {
    const factors = this.#facts.floats(factorsName);
    const name = "rope.scaling.type";
    const type = this.#metadata.text(this.#key(name), "none");
    const attentionFactor = this.#number("rope.scaling.attn_factor", 1e-3, 1e3, 1);
    const longFactors = this.#facts.floats("rope_factors_long.weight");
    const shortFactors = this.#facts.floats("rope_factors_short.weight");
    if (longFactors !== null && shortFactors !== null) {
      return this.#longrope(Array.from(shortFactors), Array.from(longFactors), dimensions / 2);
    }
    if (type === "none" && factors !== null) {
      const turned = turnedPairs(factors, dimensions);
      if (turned !== null) return { kind: "proportional", factor: 1, turned };
      return ropeOfFactors(factors, theta, dimensions) ?? this.#divided(Array.from(factors), dimensions / 2);
    }
    if (factors !== null) this.#refuse(name, `not together with the tensor ${factorsName}`);
    if (type !== "yarn" && attentionFactor !== 1) {
      this.#refuse("rope.scaling.attn_factor", "only together with yarn or longrope");
    }
    if (type === "none") return { kind: "plain" };
    if (type === "linear") return { kind: "linear", factor: this.#number("rope.scaling.factor", 1, 1e6) };
    if (type !== "yarn") return this.#refuse(name, "supported: none, linear, yarn, longrope");
    const factor = this.#number("rope.scaling.factor", 1, 1e6);
    const multiplier = this.#number("rope.scaling.yarn_log_multiplier", 0, 100, 0);
    return {
      kind: "yarn",
      factor,
      originalContext: this.#integer(
        "rope.scaling.original_context_length",
        1,
        limits.contextMax,
        this.sizes.contextMax,
      ),
      betaFast: this.#number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32),
      betaSlow: this.#number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1),
      truncate: true,
      magnitude:
        (attentionFactor * yarnMagnitude(factor, 1)) /
        (multiplier > 0 ? yarnMagnitude(factor, multiplier) : 1),
    };
  }

  /** Frequencies divided by the file's own factors, whatever rule gave them. */
  #divided(factors: readonly number[], pairs: number): RopeScaling {
    const isGood = factors.length === pairs && factors.every((factor) => factor > 0 && factor < Infinity);
    if (!isGood) {
      const { file } = this.#metadata;
      throw new ModelError(file, factorsName, `wanted: ${pairs} factors greater than 0`);
    }
    const originalContext = this.sizes.contextMax;
    return { kind: "longrope", shortFactors: factors, longFactors: factors, originalContext, magnitude: 1 };
  }

  #longrope(shortFactors: readonly number[], longFactors: readonly number[], pairs: number): RopeScaling {
    const isGood = [shortFactors, longFactors].every(
      (factors) => factors.length === pairs && factors.every((factor) => factor > 0 && factor < 1e9),
    );
    if (!isGood) {
      throw new ModelError(
        this.#metadata.file,
        "rope_factors_long.weight",
        `wanted: ${pairs} factors greater than 0`,
      );
    }
    const { contextMax } = this.sizes;
    const originalContext = this.#integer(
      "rope.scaling.original_context_length",
      1,
      limits.contextMax,
      contextMax,
    );
    const magnitude = longropeMagnitude(contextMax / originalContext, originalContext);
    return {
      kind: "longrope",
      shortFactors,
      longFactors,
      originalContext,
      magnitude: this.#number("rope.scaling.attn_factor", 1e-3, 1e3, magnitude),
    };
  }
}

/** Name of the tensor of rope factors. */
export const factorsName = "rope_freqs.weight";

/**
 * Number of leading factors of 1 if all others are so large that their pairs do not rotate; null for other
 * factors.
 */
function turnedPairs(factors: Float32Array, dimensions: number): number | null {
  const turned = factors.findIndex((factor) => factor !== 1);
  const isEndless = turned >= 0 && factors.subarray(turned).every((factor) => factor >= 1e29);
  return isEndless && factors.length === dimensions / 2 ? turned : null;
}

/** Relative tolerance when factors are compared with those computed from the parameters. */
const factorTolerance = 1e-4;
/** Value in every released Llama 3 model; the factors depend only on the ratio of the two. */
const lowFreqFactor = 1;
const highFreqFactor = 4;

/**
 * Recovers the parameters of Llama 3's rope scaling from its factors [headSize / 2], one per frequency. A
 * factor is 1 for short wavelengths and the whole factor for long ones. In between it is a blend that depends
 * on wavelength / original context. Null if no parameters give these factors.
 */
export function ropeOfFactors(factors: Float32Array, theta: number, headSize: number): RopeScaling | null {
  if (factors.length !== headSize / 2) return null;
  const wavelength = (index: number): number => 2 * Math.PI * theta ** ((2 * index) / headSize);
  const factor = nearestWhole(factors.reduce((max, value) => Math.max(max, value), 1));
  if (factors.every((value) => value === 1)) return { kind: "plain" };
  if (!Number.isFinite(factor)) return null;

  // Waves per original context, from a frequency in the blended range.
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
  return agrees ? { kind: "llama3", factor, lowFreqFactor, highFreqFactor, originalContext } : null;
}

function nearestWhole(value: number): number {
  const whole = Math.round(value);
  return Math.abs(value / whole - 1) < factorTolerance ? whole : value;
}

function generationDefaultsOf(metadata: Metadata, vocab: number): GenerationDefaults {
  const real = (name: string, min: number, max: number): number | null => {
    const key = `general.sampling.${name}`;
    return metadata.has(key) ? metadata.number(key, min, max) : null;
  };
  const topK = metadata.integer("general.sampling.top_k", -1, 2 ** 31 - 1, -2);
  const suppressed = metadata.listed("tokenizer.ggml.suppress_tokens").filter((token) => token < vocab);
  return {
    temperature: real("temp", 0, 100),
    topP: real("top_p", 0, 1),
    topK: topK === -2 ? null : Math.max(0, topK),
    minP: real("min_p", 0, 1),
    repetitionPenalty: real("penalty_repeat", 1e-3, 1e3),
    ...(suppressed.length === 0 ? {} : { badWords: suppressed.map((token) => [token]) }),
  };
}
