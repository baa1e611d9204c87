/**
 * What a model is, in the words that engines compute by: the model part of engine.h, where each field is explained. A family
 * of models (families/) describes itself in these words, and engines know nothing else of it.
 */

/** How positions turn into rotation angles of the first `dimensions` numbers of each head. All but `plain` lengthen the
 *  context of a trained model; rope.ts has their formulas. */
export type Rope = RopeScaling & {
  readonly dimensions: number;
  readonly theta: number;
  /** At position p queries are also multiplied by 1 + growth ln(1 + floor(p / span)). */
  readonly queries?: { readonly growth: number; readonly span: number };
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
      /** Whether the range of blended frequencies begins and ends at whole ones. */
      readonly truncate: boolean;
      /** Of cosines and sines. */
      readonly magnitude: number;
    }
  | {
      /** The first `turned` pairs of a head by plain frequencies over the factor, the others not. */
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
  readonly mixer: "attention";
  /** `experts`: a router chooses for each token which of the model's experts compute it, each a gated MLP; `both`: a gated MLP
   *  and experts beside each other, each with norms of its own. */
  readonly mlp: "gated" | "experts" | "both";
  /** Of what the attention and the MLP read, of what they add, or of both. */
  readonly norms: "before" | "after" | "around";
  readonly biases: {
    readonly qkv: boolean;
    readonly o: boolean;
    readonly gateUp: boolean;
    readonly down: boolean;
    readonly router: boolean;
  };
  /** Norms of each head of q and k, or of all heads together. */
  readonly qkNorm: "none" | "head" | "wide";
  /** Which of the model's ropes; null: q and k are not rotated. */
  readonly rope: number | null;
  /** 0: none. W: a token sees itself and the W-1 before it. */
  readonly slidingWindow: number;
  /** Each query head has a score that takes a share of its softmax. */
  readonly sinks: boolean;
  /** The MLP reads what the attention reads, by the one norm that there is. */
  readonly parallel: boolean;
  /** Where they are smaller than the model's, which are the largest of all layers. */
  readonly ownSizes: Partial<LayerSizes>;
  /** Values are what the projection makes keys of, before their norm. */
  readonly valuesAreKeys: boolean;
  /** Each head of values is divided by the root of its mean square. */
  readonly valueNorm: boolean;
  /** Above 0: the layer has no keys and values, and reads those of the layer so many before it. */
  readonly kvLayersBack: number;
  /** In the end all is multiplied by a number of the layer. */
  readonly scaled: boolean;
}

export type LayerSizes = Pick<Sizes, "headSize" | "kvHeads" | "feedForward">;

/** What most layers are; a family names the differences. */
export const plainLayer: LayerShape = {
  mixer: "attention",
  mlp: "gated",
  norms: "before",
  biases: { qkv: false, o: false, gateUp: false, down: false, router: false },
  qkNorm: "none",
  rope: 0,
  slidingWindow: 0,
  sinks: false,
  parallel: false,
  ownSizes: {},
  valuesAreKeys: false,
  valueNorm: false,
  kvLayersBack: 0,
  scaled: false,
};

/** What every configuration says. */
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

/** The experts of a layer: of `count`, `used` compute a token. */
export interface Experts {
  readonly count: number;
  readonly used: number;
  /** Of each of them. */
  readonly feedForward: number;
  /** What weights are the softmax of: the logits of the chosen ones, or of all. */
  readonly softmaxOf: "chosen" | "all";
}

/** What families differ in, beside their sizes. */
export interface Traits {
  readonly layers: readonly LayerShape[];
  readonly ropes: readonly Rope[];
  /** `layer` subtracts the mean. Of q and k they are always rms. */
  readonly norm: "rms" | "layer";
  /** Of the gate; `clampedSwiglu` of gate and up together (engine.h). */
  readonly activation: "silu" | "geluTanh" | "clampedSwiglu";
  /** Null: no layer has any. */
  readonly experts: Experts | null;
  /** Of scores. */
  readonly attentionScale: number;
  /** 0: none. C: a score s becomes C tanh(s / C). */
  readonly attentionCap: number;
  readonly embeddingScale: number;
  /** Numbers of a token that each layer is given beside the residual stream (engine.h); 0: none. */
  readonly layerInputs: number;
  /** Of what each layer adds. */
  readonly residualScale: number;
  readonly logitScale: number;
  readonly logitCap: number;
}

export interface ModelShape extends Sizes, Traits {}

/** Of a layer. */
export function layerSizes(layer: LayerShape, model: LayerSizes): LayerSizes {
  const { headSize, kvHeads, feedForward } = model;
  return { headSize, kvHeads, feedForward, ...layer.ownSizes };
}

/** Limits of what is believable. Far above any released model, far below where products leave 2^53. */
export const shapeLimits = {
  layers: 4096,
  hidden: 1 << 18,
  feedForward: 1 << 20,
  heads: 4096,
  experts: 4096,
  headSize: 1024,
  layerInputs: 1 << 16,
  vocab: 1 << 24,
  contextMax: 1 << 26,
} as const;
