/**
 * Tensors of a model: their names, the shapes that the configuration demands, and their engine numbers
 * (BUNTING_T_* of engine.h). Names are those of a Hugging Face folder unless a layout defines others.
 */
import type { ModelConfig } from "./config.ts";
import type { Family } from "./families/family.ts";
import { familyNamed } from "./families/index.ts";
import { show } from "./json.ts";
import { latentKinds, latentTensors } from "./latent-tensors.ts";
import { ModelError } from "./model-error.ts";
import { partsOf, type Quantisation, type QuantisedMatrix, type QuantisedSource } from "./quantisation.ts";
import type { StoredTensor, StoredTensors } from "./safetensors.ts";
import { hasExperts, type LayerShape, layerSizes, type ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";
import { inFirstGroup, type Place, placesOf, type WantedTensor } from "./tensor-places.ts";

/** A tensor for the engine to load: the arguments of bunting_model_load. */
export interface ModelTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  /** Layer index; 0 for tensors that belong to no layer. */
  readonly layer: number;
  readonly path: string;
  /** Bytes from the start of the file. */
  readonly offset: number;
  /** Length in the file. */
  readonly bytes: number;
  /** Stored type: BUNTING_F32, BUNTING_Q4_0, … */
  readonly dtype: number;
  /** True if the rotated rows of each head are interleaved in pairs: BUNTING_PAIRED_ROWS. */
  readonly pairedRows: boolean;
  /** True if the file has the weights less 1: BUNTING_ONE_LESS. */
  readonly oneLess: boolean;
  /** Expert index; 0 for tensors that belong to no expert. */
  readonly expert: number;
  /** True if rows (or numbers of a bias) are interleaved with another tensor's: BUNTING_EVERY_SECOND. */
  readonly everySecond: boolean;
  /** True if the file stores the rows of q, k and v together for each key head: BUNTING_GROUPED_HEADS. */
  readonly groupedHeads: boolean;
  /** True if the file has columns where the engine has rows: BUNTING_TRANSPOSED. */
  readonly transposed: boolean;
  /** True if each transposed row of the file is one half of a longer one: BUNTING_HALF_ROWS. */
  readonly halfRows: boolean;
  /**
   * True if the file has the keys and values of latents in one matrix, at `offset`: BUNTING_KEYS_WITH_VALUES.
   */
  readonly keysWithValues: boolean;
  /** True if the file alternates a head's rows of q and of its gate: BUNTING_GATED_HEADS. Absent: false. */
  readonly gatedHeads?: boolean;
  /** True if the file has -exp(A_log): BUNTING_NEGATED_EXP. Absent: false. */
  readonly negatedExp?: boolean;
  /** Row-major [rows, cols]; vectors have one row. */
  readonly rows: number;
  readonly cols: number;
  /** Name in the file. */
  readonly name: string;
  /**
   * Separately stored integers, scales and zeros; `path` and `offset` locate the integers. The engine
   * converts them to blocks of `dtype`. Absent if the tensor is stored as `dtype`.
   */
  readonly quantised?: QuantisedSource;
}

/** Names and storage conventions of a model file format. */
export interface TensorLayout {
  /** Source of the configuration, for messages. */
  readonly describedBy: string;
  /** Values of BUNTING_F32, … by type name in the file. */
  readonly dtypes: Readonly<Record<string, number>>;
  nameOf(want: WantedTensor, family: Family): string;
  /** True if a tensor that the model does not need has no influence on the result. */
  isHarmless(name: string, config: ModelConfig): boolean;
  storesPairedRows(family: Family): boolean;
  storesGroupedHeads(family: Family): boolean;
  storesOneLess(family: Family): boolean;
  transposesExperts(family: Family): Family["transposesExperts"];
  /** Matrices that are stored quantised in tensors of their own; null if there are none. */
  readonly quantisation: Quantisation | null;
}

const huggingFaceLayout: TensorLayout = {
  describedBy: "config.json",
  dtypes: { F32: 0, F16: 1, BF16: 2 },
  nameOf: folderName,
  // Tensors left over from other programs.
  isHarmless: (name, { family, shape, isHeadless }) =>
    name.endsWith(".rotary_emb.inv_freq") ||
    (shape.tiedEmbeddings && name === "lm_head.weight") ||
    isDraftTensor(/(?:^|\.)layers\.(\d+)\./, name, { family, shape }) ||
    (isHeadless === true && name === "score.weight") || // read in score-head.ts
    isUnreadKey(/\.layers\.(\d+)\.self_attn\.(k_proj|v_proj|k_norm)\.weight$/, name, shape),
  storesPairedRows: ({ pairedRows }) => pairedRows?.folder ?? false,
  storesGroupedHeads: ({ groupedHeads }) => groupedHeads ?? false,
  storesOneLess: ({ normsOneLess }) => normsOneLess ?? false,
  transposesExperts: ({ transposesExperts }) => transposesExperts,
  quantisation: null,
};

/** Layout of a Hugging Face folder, whose configuration may describe quantised matrices. */
export function folderLayout(quantisation: Quantisation | null): TensorLayout {
  if (quantisation === null) return huggingFaceLayout;
  return {
    ...huggingFaceLayout,
    isHarmless: (name, config) => quantisation.isHarmless(name) || huggingFaceLayout.isHarmless(name, config),
    quantisation,
  };
}

/**
 * True for a tensor of layers that predict several tokens at once, which only drafting uses: of layers behind
 * the model's last one (`pattern` captures the number), or named so.
 */
export function isDraftTensor(
  pattern: RegExp,
  name: string,
  { family, shape }: Pick<ModelConfig, "family" | "shape">,
): boolean {
  if (/^(model\.)?mtp[._]/.test(name)) return true;
  const layer = pattern.exec(name)?.[1];
  const isBehind = layer !== undefined && Number(layer) >= shape.layers.length;
  return isBehind && familyNamed(family).hasDraftLayers === true;
}

/**
 * True for a key or value tensor of a layer that reads another layer's keys and values; `pattern` captures
 * the layer number.
 */
export function isUnreadKey(pattern: RegExp, name: string, { layers }: ModelConfig["shape"]): boolean {
  const layer = pattern.exec(name)?.[1];
  return layer !== undefined && (layers[Number(layer)]?.kvLayersBack ?? 0) > 0;
}

/** True if a folder's tensor names are those of a model without a vocabulary projection. */
export function isNamedHeadless(stored: Pick<StoredTensors, "tensors">): boolean {
  return prefixOf(stored, huggingFaceLayout) === null;
}

/**
 * Finds and checks all tensors of the model, in the order in which the forward pass needs them. Throws
 * ModelError with file and tensor. Errors about a tensor in no file name `source`.
 */
export function matchTensors(
  config: ModelConfig,
  stored: Pick<StoredTensors, "tensors">,
  source: string,
  layout: TensorLayout = huggingFaceLayout,
): ModelTensor[] {
  const family = familyNamed(config.family);
  const wanted = wantedTensors(config);
  const isPrefixed = family.prefixes !== undefined && layout.nameOf === folderName;
  const prefix = isPrefixed ? ownPrefixOf(family, stored) : prefixOf(stored, layout);
  const transposing = layout.transposesExperts(family);
  const places = placesOf(wanted, transposing, config.shape, (want) => {
    const name = layout.nameOf(want, family);
    const own = isPrefixed ? prefix + name : behind(prefix, name);
    // Old GGUF files have the keys and values of latents in one matrix, as folders do.
    const isOld = latentKinds.includes(want.tensor) && !stored.tensors.has(own);
    return isOld ? own.replace(/attn_[kv]_b\./, "attn_kv_b.") : own;
  });
  const ofModel = new Set(places.map(({ name }) => name));
  const matched = wanted.map((want, index) => {
    const place = places[index]!;
    const own = layout.storesGroupedHeads(family) ? inFirstGroup(want, place, config.shape) : place;
    return withoutFactors(match(want, own, family, stored, source, layout), ofModel);
  });
  const names = new Set(matched.flatMap(({ name, quantised }) => [name, ...namesOf(quantised)]));
  for (const tensor of stored.tensors.values()) {
    if (names.has(tensor.name) || layout.isHarmless(tensor.name, config)) continue;
    if (layout.nameOf === folderName && family.unread?.test(tensor.name)) continue;
    const hasTowers = !isPrefixed && prefix !== null && (prefix !== "" || family.wrappers !== undefined);
    if (hasTowers && towers.test(tensor.name)) continue;
    throw new ModelError(
      tensor.file,
      tensor.name,
      `is no part of a ${config.family} model as ${layout.describedBy} describes it`,
    );
  }
  return matched;
}

/**
 * A quantised matrix without its factor, if the factor is a tensor of the model. Converters then multiply both
 * into one tensor, which the engine applies as the model's.
 */
function withoutFactors(tensor: ModelTensor, ofModel: ReadonlySet<string>): ModelTensor {
  const { quantised } = tensor;
  const factor = quantised?.factor?.name;
  if (quantised === undefined || factor === undefined || !ofModel.has(factor)) return tensor;
  return { ...tensor, quantised: { ...quantised, factor: null } };
}

/**
 * Prefixes of text-model tensors in folders of models of text and images. Null: folders without a vocabulary
 * projection, which lack the usual "model.".
 */
const prefixes = ["", "language_model.", "model.language_model.", null];
const towers =
  /^(model\.)?(vision_tower|vision_model|visual|audio_tower|embed_vision|embed_audio|multi_modal_projector|vision_language_adapter|patch_merger)\./;
const embedName = "model.embed_tokens.weight";

function prefixOf({ tensors }: Pick<StoredTensors, "tensors">, layout: TensorLayout): string | null {
  if (layout.nameOf !== folderName) return "";
  // The last prefix (null) drops "model.".
  const found = prefixes.find((prefix) => tensors.has(behind(prefix, embedName)));
  return found === undefined ? "" : found;
}

/** Prefix of all tensor names of a family that has several: which one depends on the model's class. */
function ownPrefixOf(family: Family, { tensors }: Pick<StoredTensors, "tensors">): string {
  const embed = family.folderNames![TensorKind.embed]!;
  return family.prefixes!.find((prefix) => tensors.has(prefix + embed)) ?? "";
}

/** Name of a text model's tensor behind a prefix. */
function behind(prefix: string | null, name: string): string {
  if (prefix === null) return name.replace(/^model\./, "");
  if (!prefix.startsWith("model.")) return prefix + name;
  return name.startsWith("model.") ? prefix + name.replace("model.", "") : name;
}

/** All tensors of a model of this configuration, in the order in which the forward pass needs them. */
export function wantedTensors({ shape }: Pick<ModelConfig, "shape">): WantedTensor[] {
  const { hidden, vocab } = shape;
  const wanted: WantedTensor[] = [
    { tensor: TensorKind.embed, layer: 0, expert: null, shape: [vocab, hidden] },
  ];
  const { layerInputs } = shape;
  if (layerInputs > 0) {
    const all = shape.layers.length * layerInputs;
    wanted.push(
      { tensor: TensorKind.layerEmbed, layer: 0, expert: null, shape: [vocab, all] },
      { tensor: TensorKind.layerProjection, layer: 0, expert: null, shape: [all, hidden] },
      { tensor: TensorKind.layerInputNorm, layer: 0, expert: null, shape: [layerInputs] },
    );
  }
  for (const [tensor, size] of encoderTensors(shape))
    wanted.push({ tensor, layer: 0, expert: null, shape: size });
  shape.layers.forEach((has, layer) => {
    const hasQueryLatent = has.mixer === "latent" && shape.latent!.queryRank > 0;
    for (const [tensor, size] of layerTensors(has, shape)) {
      const ofQueryLatent = hasQueryLatent && tensor === TensorKind.q;
      wanted.push({ tensor, layer, expert: null, shape: size, ...(ofQueryLatent && { ofQueryLatent }) });
    }
    for (const [tensor, expert, size] of expertTensors(has, shape))
      wanted.push({ tensor, layer, expert, shape: size });
  });
  for (const [tensor, size] of finalNormTensors(shape))
    wanted.push({ tensor, layer: 0, expert: null, shape: size });
  if (!shape.tiedEmbeddings) {
    wanted.push({ tensor: TensorKind.lmHead, layer: 0, expert: null, shape: [vocab, hidden] });
  }
  return wanted;
}

type SizedTensor = [tensor: number, size: number[]];

function finalNormTensors({ encoder, norm, hidden }: ModelShape): SizedTensor[] {
  if (encoder?.finalNorm === false) return [];
  const tensors: SizedTensor[] = [[TensorKind.finalNorm, [hidden]]];
  if (norm === "biasedLayer") tensors.push([TensorKind.finalNormBias, [hidden]]);
  return tensors;
}

/** Tensors that an encoder has between the embedding and the layers. */
function encoderTensors({ encoder, norm, hidden }: ModelShape): SizedTensor[] {
  if (encoder === undefined) return [];
  const { positions, tokenTypes, embeddingNorm } = encoder;
  const tensors: [isThere: boolean, tensor: number, ...size: number[]][] = [
    [positions > 0, TensorKind.positions, positions, hidden],
    [tokenTypes > 0, TensorKind.tokenTypes, tokenTypes, hidden],
    [embeddingNorm, TensorKind.embedNorm, hidden],
    [embeddingNorm && norm === "biasedLayer", TensorKind.embedNormBias, hidden],
  ];
  return tensors.filter(([isThere]) => isThere).map(([, tensor, ...size]) => [tensor, size]);
}

/** Tensors of each expert of a layer, expert after expert. */
function expertTensors(
  layer: LayerShape,
  { hidden, experts }: ModelConfig["shape"],
): [tensor: number, expert: number, size: number[]][] {
  const { biases } = layer;
  if (!hasExperts(layer)) return [];
  const { count, feedForward } = experts!;
  const tensors: [isThere: boolean, tensor: number, ...size: number[]][] = [
    [true, TensorKind.gate, feedForward, hidden],
    [true, TensorKind.up, feedForward, hidden],
    [true, TensorKind.down, hidden, feedForward],
    [biases.gateUp, TensorKind.gateBias, feedForward],
    [biases.gateUp, TensorKind.upBias, feedForward],
    [biases.down, TensorKind.downBias, hidden],
  ];
  const there = tensors.filter(([isThere]) => isThere);
  return Array.from({ length: count }, (_, expert) => expert).flatMap((expert) =>
    there.map(([, tensor, ...size]): [number, number, number[]] => [tensor, expert, size]),
  );
}

const xieluKinds: readonly number[] = [
  TensorKind.xieluAlphaP,
  TensorKind.xieluAlphaN,
  TensorKind.xieluBeta,
  TensorKind.xieluEps,
];

/** Tensors of a layer beside its experts, with shapes as in engine.h. */
function layerTensors(has: LayerShape, shape: ModelConfig["shape"]): [tensor: number, size: number[]][] {
  const { hidden, layerInputs } = shape;
  const { headSize, kvHeads, feedForward } = layerSizes(has, shape);
  const latent = has.mixer === "latent" ? shape.latent! : null;
  const queryWidth = shape.queryHeads * headSize;
  const keyWidth = kvHeads * headSize;
  const hasKeys = has.kvLayersBack === 0;
  const hasBoth = has.mlp === "both";
  const hasShared = has.mlp === "shared" || has.mlp === "sharedGated";
  const hasInputs = layerInputs > 0;
  const isWide = has.qkNorm === "wide";
  const hasNorms = has.qkNorm !== "none" && has.qkNorm !== "unit";
  const hasPostNorms = ["after", "around", "sums"].includes(has.norms);
  const hasAttentionNorm = has.norms === "before" || has.norms === "around";
  const hasMlpNorm = !has.parallel && (hasAttentionNorm || has.norms === "beforeMlp");
  const areBiased = shape.norm === "biasedLayer";
  const isDense = !hasExperts(has);
  const hasGate = has.mlp === "gated";
  const tensors: [isThere: boolean, tensor: number, ...size: number[]][] = [
    [hasAttentionNorm, TensorKind.attentionNorm, hidden],
    [hasAttentionNorm && areBiased, TensorKind.attentionNormBias, hidden],
    ...(latent === null
      ? ([
          [true, TensorKind.q, queryWidth, hidden],
          [hasKeys, TensorKind.k, keyWidth, hidden],
          [hasKeys && !has.valuesAreKeys, TensorKind.v, keyWidth, hidden],
          [true, TensorKind.o, hidden, queryWidth],
        ] satisfies [boolean, number, number, number][])
      : latentTensors(latent, shape)),
    [has.biases.qkv, TensorKind.qBias, queryWidth],
    [has.biases.qkv, TensorKind.kBias, keyWidth],
    [has.biases.qkv, TensorKind.vBias, keyWidth],
    [has.biases.o, TensorKind.oBias, hidden],
    [hasNorms, TensorKind.qNorm, isWide ? queryWidth : headSize],
    [hasKeys && hasNorms, TensorKind.kNorm, isWide ? keyWidth : headSize],
    [has.sinks, TensorKind.sinks, shape.queryHeads],
    [hasPostNorms, TensorKind.attentionPostNorm, hidden],
    [hasPostNorms && areBiased, TensorKind.attentionPostNormBias, hidden],
    [hasMlpNorm, TensorKind.mlpNorm, hidden],
    [hasMlpNorm && areBiased, TensorKind.mlpNormBias, hidden],
    [!isDense, TensorKind.router, shape.experts?.count ?? 0, hidden],
    [has.biases.router, TensorKind.routerBias, shape.experts?.count ?? 0],
    [!isDense && shape.experts!.biased, TensorKind.choiceBias, shape.experts?.count ?? 0],
    [hasGate, TensorKind.gate, feedForward, hidden],
    [isDense, TensorKind.up, feedForward, hidden],
    [isDense, TensorKind.down, hidden, feedForward],
    [hasGate && has.biases.gateUp, TensorKind.gateBias, feedForward],
    [isDense && has.biases.gateUp, TensorKind.upBias, feedForward],
    [isDense && has.biases.down, TensorKind.downBias, hidden],
    [hasPostNorms, TensorKind.mlpPostNorm, hidden],
    [hasPostNorms && areBiased, TensorKind.mlpPostNormBias, hidden],
    [hasBoth, TensorKind.routerNorm, hidden],
    [hasBoth, TensorKind.expertScales, shape.experts?.count ?? 0],
    [hasBoth || hasShared, TensorKind.besideGate, feedForward, hidden],
    [hasBoth || hasShared, TensorKind.besideUp, feedForward, hidden],
    [hasBoth || hasShared, TensorKind.besideDown, hidden, feedForward],
    [has.mlp === "sharedGated", TensorKind.sharedGate, 1, hidden],
    [hasBoth, TensorKind.besidePostNorm, hidden],
    [hasBoth, TensorKind.expertsNorm, hidden],
    [hasBoth, TensorKind.expertsPostNorm, hidden],
    [hasInputs, TensorKind.inputGate, layerInputs, hidden],
    [hasInputs, TensorKind.inputOut, hidden, layerInputs],
    [hasInputs, TensorKind.inputPostNorm, hidden],
    [has.scaled, TensorKind.layerScale, 1],
    ...xieluKinds.map((kind): [boolean, number, number] => [shape.activation === "xielu", kind, 1]),
  ];
  return tensors.filter(([isThere]) => isThere).map(([, tensor, ...size]) => [tensor, size]);
}

/** Names of tensors in folders, without the layer. */
const folderNames: Readonly<Record<number, string>> = {
  [TensorKind.embed]: embedName,
  [TensorKind.finalNorm]: "model.norm.weight",
  [TensorKind.lmHead]: "lm_head.weight",
  [TensorKind.attentionNorm]: "input_layernorm.weight",
  [TensorKind.q]: "self_attn.q_proj.weight",
  [TensorKind.k]: "self_attn.k_proj.weight",
  [TensorKind.v]: "self_attn.v_proj.weight",
  [TensorKind.o]: "self_attn.o_proj.weight",
  [TensorKind.qBias]: "self_attn.q_proj.bias",
  [TensorKind.kBias]: "self_attn.k_proj.bias",
  [TensorKind.vBias]: "self_attn.v_proj.bias",
  [TensorKind.oBias]: "self_attn.o_proj.bias",
  [TensorKind.qNorm]: "self_attn.q_norm.weight",
  [TensorKind.kNorm]: "self_attn.k_norm.weight",
  [TensorKind.sinks]: "self_attn.sinks",
  [TensorKind.mlpNorm]: "post_attention_layernorm.weight",
  [TensorKind.gate]: "mlp.gate_proj.weight",
  [TensorKind.up]: "mlp.up_proj.weight",
  [TensorKind.down]: "mlp.down_proj.weight",
  [TensorKind.gateBias]: "mlp.gate_proj.bias",
  [TensorKind.upBias]: "mlp.up_proj.bias",
  [TensorKind.downBias]: "mlp.down_proj.bias",
  [TensorKind.router]: "mlp.gate.weight",
  [TensorKind.choiceBias]: "mlp.gate.e_score_correction_bias",
  [TensorKind.besideGate]: "mlp.shared_experts.gate_proj.weight",
  [TensorKind.besideUp]: "mlp.shared_experts.up_proj.weight",
  [TensorKind.besideDown]: "mlp.shared_experts.down_proj.weight",
  [TensorKind.finalNormBias]: "model.norm.bias",
  [TensorKind.attentionNormBias]: "input_layernorm.bias",
  [TensorKind.mlpNormBias]: "post_attention_layernorm.bias",
  [TensorKind.queryLatent]: "self_attn.q_a_proj.weight",
  [TensorKind.latentKeys]: "self_attn.kv_b_proj.weight",
  [TensorKind.latentValues]: "self_attn.kv_b_proj.weight",
  [TensorKind.xieluAlphaP]: "mlp.act_fn.alpha_p",
  [TensorKind.xieluAlphaN]: "mlp.act_fn.alpha_n",
  [TensorKind.xieluBeta]: "mlp.act_fn.beta",
  [TensorKind.xieluEps]: "mlp.act_fn.eps",
};

/** Names of an expert's tensors; {} stands for its number. */
const expertNames: Readonly<Record<number, string>> = {
  [TensorKind.gate]: "mlp.experts.{}.gate_proj.weight",
  [TensorKind.up]: "mlp.experts.{}.up_proj.weight",
  [TensorKind.down]: "mlp.experts.{}.down_proj.weight",
};

function folderName({ tensor, layer, expert, ofQueryLatent }: WantedTensor, family: Family): string {
  const ofExpert = (): string =>
    (family.expertNames?.[tensor] ?? expertNames[tensor]!).replace("{}", String(expert));
  const ofLayer = (): string =>
    ofQueryLatent === true
      ? "self_attn.q_b_proj.weight"
      : (family.folderNames?.[tensor] ?? folderNames[tensor]!);
  const name = expert === null ? ofLayer() : ofExpert();
  return tensor >= TensorKind.attentionNorm
    ? `${family.layerNames ?? "model.layers"}.${layer}.${name}`
    : name;
}

/** Tensors that a folder of this model stores, with their names. */
export function folderTensors({
  family,
  shape,
  isHeadless,
}: Pick<ModelConfig, "family" | "shape" | "isHeadless">): NamedTensor[] {
  const wanted = wantedTensors({ shape });
  const { normsOneLess, transposesExperts } = familyNamed(family);
  const places = placesOf(wanted, transposesExperts, shape, (want) =>
    behind(isHeadless === true ? null : "", folderName(want, familyNamed(family))),
  );
  return wanted.flatMap((want, index) => {
    const { name, first, shape } = places[index]!;
    const isNorm = normKinds.includes(want.tensor);
    const untrained = isNorm && normsOneLess ? 0 : isNorm || scaleKinds.includes(want.tensor) ? 1 : null;
    // Its keys come first in a matrix of latents' keys and values.
    const isIn = want.tensor === TensorKind.latentValues && places[index]!.keysWithValues;
    return first > 0 || isIn ? [] : [{ name, shape, untrained }];
  });
}

export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Untrained value of norms and scales; null for a random tensor. */
  readonly untrained: 0 | 1 | null;
}

const normKinds: readonly number[] = [
  TensorKind.finalNorm,
  TensorKind.attentionNorm,
  TensorKind.qNorm,
  TensorKind.kNorm,
  TensorKind.mlpNorm,
  TensorKind.attentionPostNorm,
  TensorKind.mlpPostNorm,
  TensorKind.layerInputNorm,
  TensorKind.routerNorm,
  TensorKind.besidePostNorm,
  TensorKind.expertsNorm,
  TensorKind.expertsPostNorm,
  TensorKind.inputPostNorm,
  TensorKind.embedNorm,
];
const scaleKinds: readonly number[] = [TensorKind.expertScales, TensorKind.layerScale];
const pairedKinds: readonly number[] = [TensorKind.q, TensorKind.k, TensorKind.qBias, TensorKind.kBias];

function match(
  want: WantedTensor,
  { name, first, shape, everySecond, transposed, halfRows, groupedHeads, keysWithValues }: Place,
  family: Family,
  stored: Pick<StoredTensors, "tensors">,
  source: string,
  layout: TensorLayout,
): ModelTensor {
  const ofKind = {
    tensor: want.tensor,
    layer: want.layer,
    expert: want.expert ?? 0,
    everySecond,
    groupedHeads,
    keysWithValues,
    transposed,
    halfRows,
    pairedRows: pairedKinds.includes(want.tensor) && layout.storesPairedRows(family),
    oneLess: normKinds.includes(want.tensor) && layout.storesOneLess(family),
    rows: want.shape.length === 2 ? want.shape[0]! : 1,
    cols: want.shape.at(-1)!,
  };
  const isUp =
    (everySecond || halfRows) && (want.tensor === TensorKind.up || want.tensor === TensorKind.upBias);
  if (shape.length === 3) {
    const [experts, ...matrix] = shape as [number, number, number];
    const [rows, cols] = transposed ? [matrix[1], matrix[0]] : matrix;
    const whole = layout.quantisation?.experts(name, [experts, rows, cols], stored.tensors);
    const firstRow = isUp ? first - want.shape[0]! + 1 : first;
    if (whole)
      return {
        ...ofKind,
        ...partOf(whole, experts * rows, firstRow, want.shape[0]!, rows),
        transposed: false,
      };
  }
  const quantised =
    shape.length === 2 ? layout.quantisation?.matrix(name, shape[0]!, shape[1]!, stored.tensors) : null;
  if (quantised) {
    const { integers, dtype, source: parts } = quantised;
    if (parts.scales === null && !keysWithValues)
      return { ...ofKind, ...partOf(quantised, shape[0]!, first, want.shape[0]!) };
    if ((shape[0] !== want.shape[0] && !keysWithValues) || transposed) {
      throw new ModelError(
        integers.file,
        integers.name,
        "is several matrices in one, which are not read quantised",
      );
    }
    const { file: path, offset, bytes } = integers;
    return { ...ofKind, path, offset, bytes, dtype, name: integers.name, quantised: parts };
  }
  const tensor: StoredTensor | undefined = stored.tensors.get(name);
  if (tensor === undefined) throw new ModelError(source, name, "the tensor is missing");
  if (!isSameShape(want.tensor, tensor.shape, shape)) {
    throw new ModelError(tensor.file, name, `has shape ${show(tensor.shape)}, wanted ${show(shape)}`);
  }
  const dtype = layout.dtypes[tensor.dtype];
  if (dtype === undefined) {
    const supported = Object.keys(layout.dtypes).join(", ");
    throw new ModelError(tensor.file, name, `has dtype ${tensor.dtype}; supported: ${supported}`);
  }
  if (keysWithValues) {
    const { file: path, offset, bytes } = tensor;
    return { ...ofKind, path, offset, bytes, dtype, name };
  }
  const cols = want.shape[1] ?? 1;
  const rowBytes = tensor.bytes / (shape.reduce((product, size) => product * size, 1) / cols);
  // With interleaved rows, up begins one row after gate, and with half rows in the middle of the first one;
  // `first` counts as if all rows of gate came first.
  const numberBytes = rowBytes / cols;
  const upBytes = halfRows ? want.shape[0]! * numberBytes : transposed ? numberBytes : rowBytes;
  const startBytes = isUp ? (first - want.shape[0]!) * rowBytes + upBytes : first * rowBytes;
  return {
    ...ofKind,
    path: tensor.file,
    offset: tensor.offset + startBytes,
    bytes: want.shape[0]! * rowBytes,
    dtype,
    name,
  };
}

/** Kinds whose vectors may be stored as matrices of one row, and the reverse. */
const eitherShape: readonly number[] = [TensorKind.choiceBias, TensorKind.sharedGate];

function isSameShape(tensor: number, stored: readonly number[], wanted: readonly number[]): boolean {
  // A single number may have no dimension.
  if (stored.length === 0 && xieluKinds.includes(tensor)) return true;
  const [own, other] = [stored, wanted].map((sizes) =>
    eitherShape.includes(tensor) && sizes.length === 2 && sizes[0] === 1 ? sizes.slice(1) : sizes,
  ) as [readonly number[], readonly number[]];
  return own.length === other.length && own.every((size, at) => size === other[at]);
}

/** Rows [first, first + count) of a quantised matrix whose groups are parts of a row, of experts of `rowsEach`. */
function partOf(
  { integers, source, dtype }: QuantisedMatrix,
  rows: number,
  first: number,
  count: number,
  rowsEach: number = rows,
): Pick<ModelTensor, "path" | "offset" | "bytes" | "dtype" | "name" | "quantised"> {
  const from = (tensor: StoredTensor): number => tensor.offset + (tensor.bytes / rows) * first;
  const { scales, factor } = source;
  const expert = Math.floor(first / rowsEach);
  return {
    path: integers.file,
    offset: from(integers),
    bytes: (integers.bytes / rows) * count,
    dtype,
    name: integers.name,
    quantised: {
      ...source,
      scales: scales && { ...scales, offset: from(scales) },
      factor: factor && { ...factor, offset: factor.offset + 4 * expert },
    },
  };
}

function namesOf(quantised: QuantisedSource | undefined): string[] {
  if (quantised === undefined) return [];
  return partsOf(quantised).flatMap((part) => (part === null ? [] : [part.name]));
}
