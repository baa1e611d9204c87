/**
 * Which tensors a model is made of: their names, the shapes that the configuration demands, and the numbers
 * (BUNTING_T_* of engine.h) under which the engine takes them. Names are those of a Hugging Face folder unless
 * a layout says otherwise.
 */
import type { ModelConfig } from "./config.ts";
import { show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { StoredTensor, StoredTensors } from "./safetensors.ts";

/** The values of BUNTING_T_*. */
export const TensorKind = {
  embed: 0,
  finalNorm: 1,
  lmHead: 2,
  attentionNorm: 16,
  q: 17,
  k: 18,
  v: 19,
  o: 20,
  qBias: 21,
  kBias: 22,
  vBias: 23,
  qNorm: 24,
  kNorm: 25,
  mlpNorm: 26,
  gate: 27,
  up: 28,
  down: 29,
} as const;

/** A tensor for the engine to load: the arguments of bunting_model_load. */
export interface ModelTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  /** 0 for the tensors that belong to no layer. */
  readonly layer: number;
  readonly path: string;
  /** Bytes from the start of the file. */
  readonly offset: number;
  /** In the file. */
  readonly bytes: number;
  /** How the file stores it: BUNTING_F32, BUNTING_Q4_0, … */
  readonly dtype: number;
  /** The rows of each head come in pairs: BUNTING_PAIRED_ROWS. */
  readonly pairedRows: boolean;
  /** Row-major [rows, cols]; vectors have one row. */
  readonly rows: number;
  readonly cols: number;
  /** In the file. */
  readonly name: string;
}

/** How a kind of file names and stores the tensors of a model. */
export interface TensorLayout {
  /** What the configuration was read from, for messages. */
  readonly describedBy: string;
  /** Values of BUNTING_F32, … by the file's word for them. */
  readonly dtypes: Readonly<Record<string, number>>;
  nameOf(want: WantedTensor): string;
  /** Whether a tensor that the model does not want has no influence on the result. */
  isHarmless(name: string, config: ModelConfig): boolean;
  hasPairedRows(want: WantedTensor, config: ModelConfig): boolean;
}

const huggingFaceLayout: TensorLayout = {
  describedBy: "config.json",
  dtypes: { F32: 0, F16: 1, BF16: 2 },
  nameOf: (want) => want.name,
  // Left over from other programs.
  isHarmless: (name, { shape }) =>
    name.endsWith(".rotary_emb.inv_freq") || (shape.tiedEmbeddings && name === "lm_head.weight"),
  hasPairedRows: () => false,
};

/** A tensor that a model must have. */
export interface WantedTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  readonly layer: number;
  readonly name: string;
  readonly shape: readonly number[];
}

/** Finds and checks all tensors of the model, in the order in which the forward pass needs them. Every
 *  problem is a ModelError with file and tensor. `source` is named when a tensor is in no file. */
export function matchTensors(
  config: ModelConfig,
  stored: Pick<StoredTensors, "tensors">,
  source: string,
  layout: TensorLayout = huggingFaceLayout,
): ModelTensor[] {
  const wanted = wantedTensors(config);
  const matched = wanted.map((want) => match(want, config, stored, source, layout));
  const names = new Set(matched.map((tensor) => tensor.name));
  for (const tensor of stored.tensors.values()) {
    if (names.has(tensor.name) || layout.isHarmless(tensor.name, config)) continue;
    throw new ModelError(
      tensor.file,
      tensor.name,
      `is no part of a ${config.family} model as ${layout.describedBy} describes it`,
    );
  }
  return matched;
}

/** All tensors of a model of this configuration, in the order in which the forward pass needs them. */
export function wantedTensors({ shape }: Pick<ModelConfig, "shape">): WantedTensor[] {
  const { hidden, feedForward, headSize, vocab } = shape;
  const queryWidth = shape.queryHeads * headSize;
  const keyWidth = shape.kvHeads * headSize;
  const whole = (tensor: number, name: string, ...size: number[]): WantedTensor => ({
    tensor,
    layer: 0,
    name,
    shape: size,
  });

  const wanted = [whole(TensorKind.embed, "model.embed_tokens.weight", vocab, hidden)];
  for (let layer = 0; layer < shape.layers; layer += 1) {
    const add = (tensor: number, name: string, ...size: number[]): void => {
      wanted.push({ tensor, layer, name: `model.layers.${layer}.${name}`, shape: size });
    };
    add(TensorKind.attentionNorm, "input_layernorm.weight", hidden);
    add(TensorKind.q, "self_attn.q_proj.weight", queryWidth, hidden);
    add(TensorKind.k, "self_attn.k_proj.weight", keyWidth, hidden);
    add(TensorKind.v, "self_attn.v_proj.weight", keyWidth, hidden);
    add(TensorKind.o, "self_attn.o_proj.weight", hidden, queryWidth);
    if (shape.qkvBias) {
      add(TensorKind.qBias, "self_attn.q_proj.bias", queryWidth);
      add(TensorKind.kBias, "self_attn.k_proj.bias", keyWidth);
      add(TensorKind.vBias, "self_attn.v_proj.bias", keyWidth);
    }
    if (shape.qkNorm) {
      add(TensorKind.qNorm, "self_attn.q_norm.weight", headSize);
      add(TensorKind.kNorm, "self_attn.k_norm.weight", headSize);
    }
    add(TensorKind.mlpNorm, "post_attention_layernorm.weight", hidden);
    add(TensorKind.gate, "mlp.gate_proj.weight", feedForward, hidden);
    add(TensorKind.up, "mlp.up_proj.weight", feedForward, hidden);
    add(TensorKind.down, "mlp.down_proj.weight", hidden, feedForward);
  }
  wanted.push(whole(TensorKind.finalNorm, "model.norm.weight", hidden));
  if (!shape.tiedEmbeddings) wanted.push(whole(TensorKind.lmHead, "lm_head.weight", vocab, hidden));
  return wanted;
}

function match(
  want: WantedTensor,
  config: ModelConfig,
  stored: Pick<StoredTensors, "tensors">,
  source: string,
  layout: TensorLayout,
): ModelTensor {
  const name = layout.nameOf(want);
  const tensor: StoredTensor | undefined = stored.tensors.get(name);
  if (tensor === undefined) throw new ModelError(source, name, "the tensor is missing");
  if (tensor.shape.length !== want.shape.length || tensor.shape.some((size, at) => size !== want.shape[at])) {
    throw new ModelError(tensor.file, name, `has shape ${show(tensor.shape)}, wanted ${show(want.shape)}`);
  }
  const dtype = layout.dtypes[tensor.dtype];
  if (dtype === undefined) {
    const supported = Object.keys(layout.dtypes).join(", ");
    throw new ModelError(tensor.file, name, `has dtype ${tensor.dtype}; supported: ${supported}`);
  }
  return {
    tensor: want.tensor,
    layer: want.layer,
    path: tensor.file,
    offset: tensor.offset,
    bytes: tensor.bytes,
    dtype,
    pairedRows: layout.hasPairedRows(want, config),
    rows: want.shape.length === 2 ? want.shape[0]! : 1,
    cols: want.shape.at(-1)!,
    name,
  };
}
