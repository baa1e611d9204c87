/**
 * Architecture of a model in the terms that engines compute: the model part of engine.h, which explains each
 * field. Each family (families/) describes itself in these terms; engines know nothing else of it.
 */

/**
 * Rope parameters: rotation angles of the first `dimensions` numbers of each head by position. All kinds
 * except `plain` lengthen the context of a trained model; rope.ts has their formulas.
 */
export type Rope = RopeScaling & {
  readonly dimensions: number;
  readonly theta: number;
  /** Multiplies queries at position p by 1 + growth ln(1 + floor((p + offset) / span)); `offset`: 0 if absent. */
  readonly queries?: { readonly growth: number; readonly span: number; readonly offset?: 0 | 1 };
};

export type RopeScaling =
  | { readonly kind: "plain" }
  | { readonly kind: "linear"; readonly factor: number }
  | {
      readonly kind: "llama3";
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalContext: number;
    }
  | {
      readonly kind: "yarn";
      readonly factor: number;
      readonly originalContext: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      /** True if the range of blended frequencies begins and ends at whole pairs. */
      readonly truncate: boolean;
      /** Factor of cosines and sines. */
      readonly magnitude: number;
    }
  | {
      /**
       * The first `turned` pairs of a head rotate by plain frequencies over the factor; the others do not
       * rotate.
       */
      readonly kind: "proportional";
      readonly factor: number;
      readonly turned: number;
    }
  | {
      /** A divisor for each frequency: one set for contexts up to the original, one for longer ones. */
      readonly kind: "longrope";
      readonly shortFactors: readonly number[];
      readonly longFactors: readonly number[];
      readonly originalContext: number;
      readonly magnitude: number;
    };

export interface LayerShape {
  /**
   * `latent`: attention over one latent per token, which all heads share (`Traits.latent`). `delta` (Gated
   * DeltaNet), `ssm` (Mamba-2) and `conv` (short convolution) are recurrent: `Traits.states` has their sizes.
   * `attentionAndSsm` adds up both; `none`: the layer has an MLP only.
   */
  readonly mixer: "attention" | "latent" | "delta" | "ssm" | "conv" | "attentionAndSsm" | "none";
  /**
   * `experts`: for each token a router chooses some of the model's experts, each a gated MLP. `both`: a gated
   * MLP and experts in parallel, each with norms of its own. `shared`: a gated MLP and experts of the same
   * input, whose sum counts; `sharedGated`: the MLP is multiplied by the sigmoid of one more projection.
   * `plain`: an MLP without a gate; `sharedPlain`: as `shared`, without gates. `none`: the layer has a mixer only.
   */
  readonly mlp: "gated" | "experts" | "both" | "shared" | "sharedGated" | "sharedPlain" | "plain" | "none";
  /**
   * Norms of mixer and MLP: `before` norms their inputs, `after` their outputs, `around` both. `sums` norms
   * the residual stream after each of the two, `beforeMlp` only the MLP's input. A part that a layer lacks
   * has no norms.
   */
  readonly norms: "before" | "after" | "around" | "sums" | "beforeMlp";
  readonly biases: {
    readonly qkv: boolean;
    readonly o: boolean;
    readonly gateUp: boolean;
    readonly down: boolean;
    readonly router: boolean;
  };
  /**
   * Norms of each head of q and k, or over all heads together, before the rotation; `rotated`: of each head,
   * after it; `unit`: of each head, without weights.
   */
  readonly qkNorm: "none" | "head" | "wide" | "rotated" | "unit";
  /** Index into the model's ropes; null if q and k are not rotated. */
  readonly rope: number | null;
  /**
   * Sliding window; 0: none. W: a token attends to itself and the W-1 tokens before it; in an encoder also to
   * the W-1 after it.
   */
  readonly slidingWindow: number;
  /**
   * True if the window is a chunk: a token attends only within its chunk of this many positions, up to
   * itself.
   */
  readonly chunked: boolean;
  /** True if each query head has a sink: a score that absorbs a share of its softmax. */
  readonly sinks: boolean;
  /** True if the MLP reads the same normed input as the attention (one norm for both). */
  readonly parallel: boolean;
  /** Sizes that are smaller than the model's, which are the largest of all layers. */
  readonly ownSizes: Partial<LayerSizes>;
  /** True if the values are the output of the key projection before its norm. */
  readonly valuesAreKeys: boolean;
  /** True if each value head is divided by its root mean square. */
  readonly valueNorm: boolean;
  /**
   * Above 0: the layer has no keys and values of its own and reads those of the layer this many before it.
   */
  readonly kvLayersBack: number;
  /** True if a scalar of the layer multiplies the residual stream at the end of the layer. */
  readonly scaled: boolean;
  /** True if a sigmoid of one more projection, as wide as q, multiplies the attention's output before o. */
  readonly gatedOutput: boolean;
  /** Rank of the projections that augment the residual (LAuReL, engine.h); 0: none. */
  readonly laurelRank: number;
  /**
   * Set for sparse gates: the cutoff is this many standard deviations above the gates' mean. Gates below it
   * become 0; it is subtracted from the others.
   */
  readonly gateCutoff: number | null;
}

export type LayerSizes = Pick<Sizes, "headSize" | "kvHeads" | "feedForward">;

/** The most common layer; a family overrides the differences. */
export const plainLayer: LayerShape = {
  mixer: "attention",
  mlp: "gated",
  norms: "before",
  biases: { qkv: false, o: false, gateUp: false, down: false, router: false },
  qkNorm: "none",
  rope: 0,
  slidingWindow: 0,
  chunked: false,
  sinks: false,
  parallel: false,
  ownSizes: {},
  valuesAreKeys: false,
  valueNorm: false,
  kvLayersBack: 0,
  scaled: false,
  gatedOutput: false,
  laurelRank: 0,
  gateCutoff: null,
};

/** Sizes that every configuration has. */
export interface Sizes {
  readonly hidden: number;
  readonly feedForward: number;
  readonly queryHeads: number;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly vocab: number;
  readonly contextMax: number;
  readonly tiedEmbeddings: boolean;
  readonly normEpsilon: number;
}

/** Experts of a layer: `used` of `count` compute each token. */
export interface Experts extends Router {
  readonly count: number;
  readonly used: number;
  /** MLP width of each expert. */
  readonly feedForward: number;
}

/** Rule by which a layer's experts are chosen and weighted. */
export interface Router {
  /** Score of an expert: its share of the softmax over the chosen logits or over all, or a sigmoid. */
  readonly score: "chosen" | "all" | "sigmoid";
  /** True if a bias of each expert is added to its score for the choice. */
  readonly biased: boolean;
  /** True if the chosen scores are divided by their sum. */
  readonly normalised: boolean;
  /** True if the score multiplies the expert's input instead of its output. */
  readonly scalesInput: boolean;
  /** Groups of experts of equal size, and how many of them a token's experts come from. */
  readonly groups: number;
  readonly groupsUsed: number;
  /** Factor of the weights. */
  readonly scale: number;
}

/** The most common router; a family overrides the differences. */
export const plainRouter: Router = {
  score: "chosen",
  biased: false,
  normalised: false,
  scalesInput: false,
  groups: 1,
  groupsUsed: 1,
  scale: 1,
};

/** True for the kinds of MLPs with experts. */
export function hasExperts({ mlp }: Pick<LayerShape, "mlp">): boolean {
  return mlp !== "gated" && mlp !== "plain" && mlp !== "none";
}

/** True for the kinds of mixers with attention. */
export function hasAttention({ mixer }: Pick<LayerShape, "mixer">): boolean {
  return mixer === "attention" || mixer === "attentionAndSsm";
}

/** True for the kinds of mixers with a recurrent state. */
export function hasState({ mixer }: Pick<LayerShape, "mixer">): boolean {
  return mixer !== "attention" && mixer !== "latent" && mixer !== "none";
}

/** Sizes and options of recurrent layers; a model has one kind. Short convolutions have `conv` and `convBias` only. */
export interface States {
  /** Heads of q and k; each serves heads / keyHeads value heads. */
  readonly keyHeads: number;
  readonly heads: number;
  readonly keySize: number;
  readonly valueSize: number;
  /** Width of the convolution, in tokens. */
  readonly conv: number;
  readonly convBias: boolean;
  /** RMS norm of the output: of each value head, of all numbers of a key head's value heads, or of all. */
  readonly norm: "none" | "heads" | "groups" | "wide";
  /** True if the gate multiplies before the norm. */
  readonly gateFirst: boolean;
  /** True if a factor per head times v is added to the output. */
  readonly skip: boolean;
  /** True if value head h has key head h % keyHeads, instead of consecutive value heads sharing one. */
  readonly tiledHeads: boolean;
  /** Range of time steps of `ssm`. */
  readonly dtMin: number;
  readonly dtMax: number;
}

/** Recurrent layers with only a convolution; others override the rest. */
export const plainStates: States = {
  keyHeads: 0,
  heads: 0,
  keySize: 0,
  valueSize: 0,
  conv: 4,
  convBias: false,
  norm: "none",
  gateFirst: false,
  skip: false,
  tiledHeads: false,
  dtMin: 0,
  dtMax: Number.POSITIVE_INFINITY,
};

/** Traits of a family beside the sizes. */
export interface Traits {
  readonly layers: readonly LayerShape[];
  readonly ropes: readonly Rope[];
  /**
   * Kind of norm; `layer` subtracts the mean, and `biasedLayer` also adds biases. Norms of q and k are always
   * rms.
   */
  readonly norm: "rms" | "layer" | "biasedLayer";
  /**
   * Activation of the gate; `clampedSwiglu` combines gate and up; `xielu` of plain MLPs has four numbers in
   * each layer (engine.h).
   */
  readonly activation: "silu" | "geluTanh" | "clampedSwiglu" | "gelu" | "xielu" | "reluSquared";
  /** Null if no layer has experts. */
  readonly experts: Experts | null;
  /** Factor of attention scores. */
  readonly attentionScale: number;
  /** 0: none. C: a score s becomes C tanh(s / C). */
  readonly attentionCap: number;
  readonly embeddingScale: number;
  /**
   * Width of the extra input per token that each layer receives beside the residual stream (engine.h); 0:
   * none.
   */
  readonly layerInputs: number;
  /** Residual streams of a token, of which layers compute the first (AltUp, engine.h); absent: one. */
  readonly streams?: number;
  /** Factor of each layer's contribution to the residual stream. */
  readonly residualScale: number;
  readonly logitScale: number;
  readonly logitCap: number;
  /** Absent: no layer is recurrent. */
  readonly states?: States;
  /** Absent: tokens see only those before them. */
  readonly encoder?: Encoder;
  /** Factors of the weights of a TensorKind, which multiply them while they are loaded; absent: all 1. */
  readonly factors?: Readonly<Record<number, number>>;
  /** Sizes of latent layers; absent: the model has none. */
  readonly latent?: Latent;
  /** Head that drafts tokens; absent: the model has none, or it is not loaded. */
  readonly head?: DraftHead;
}

/** Head that drafts the tokens behind the next one (multi-token prediction, engine.h). */
export interface DraftHead {
  /** Its layer, which has keys and values of its own. */
  readonly layer: LayerShape;
  /** True if it reads hidden states behind the norm that precedes the vocabulary projection. */
  readonly isNormed: boolean;
  /** True if its projection reads the hidden state before the embedding. */
  readonly isHiddenFirst: boolean;
}

/** Layers with weights and keys: those of the model, then a head's. */
export function layersWithHead({ layers, head }: Pick<ModelShape, "layers" | "head">): readonly LayerShape[] {
  return head === undefined ? layers : [...layers, head.layer];
}

/**
 * Sizes of multi-head latent attention. Such a model has one key head, of the latent and of the numbers that
 * rotate; these are a head's last ones.
 */
export interface Latent {
  /** Width of the latent of keys and values. */
  readonly rank: number;
  /** Width of the latent of queries; 0: queries are projected at once. */
  readonly queryRank: number;
  /** Numbers of a query head that do not rotate. */
  readonly keySize: number;
  /** Numbers of a head's output. */
  readonly valueSize: number;
  /** Epsilon of the norms of both latents. */
  readonly normEpsilon: number;
}

/** Traits of an encoder: tokens attend in both directions, so that a text is computed as a whole. */
export interface Encoder {
  /** True if the residual stream begins as a norm of the embedding. */
  readonly embeddingNorm: boolean;
  readonly finalNorm: boolean;
  /** Rows of learned positions, and the row of position 0; no rows: none are learned. */
  readonly positions: number;
  readonly positionOffset: number;
  /** Rows of token types: the tokens of a pair's second text have type 1. 0: none. */
  readonly tokenTypes: number;
}

export interface ModelShape extends Sizes, Traits {}

/** Sizes of one layer. */
export function layerSizes(layer: LayerShape, model: LayerSizes): LayerSizes {
  const { headSize, kvHeads, feedForward } = model;
  return { headSize, kvHeads, feedForward, ...layer.ownSizes };
}

/** Plausibility limits: far above any released model, far below the range where products exceed 2^53. */
export const shapeLimits = {
  layers: 4096,
  hidden: 1 << 18,
  feedForward: 1 << 20,
  heads: 4096,
  experts: 4096,
  headSize: 1024,
  layerInputs: 1 << 16,
  stateSize: 256,
  stateConv: 8,
  streams: 8,
  vocab: 1 << 24,
  contextMax: 1 << 26,
} as const;
