/**
 * Which tensors a model is made of: their names, the shapes that the configuration demands, and the numbers
 * (BUNTING_T_* of engine.h) under which the engine takes them. Names are those of a Hugging Face folder unless
 * a layout says otherwise.
 */
import type { ModelConfig } from "./config.ts";
import type { Family } from "./families/family.ts";
import { familyNamed } from "./families/index.ts";
import { show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { Quantisation, QuantisedMatrix, QuantisedSource } from "./quantisation.ts";
import type { StoredTensor, StoredTensors } from "./safetensors.ts";
import { type LayerShape, layerSizes, type ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";

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
  /** The rotated rows of each head come in pairs: BUNTING_PAIRED_ROWS. */
  readonly pairedRows: boolean;
  /** The file has the weights less 1: BUNTING_ONE_LESS. */
  readonly oneLess: boolean;
  /** 0 for the tensors that are of no expert. */
  readonly expert: number;
  /** Rows, or numbers of a bias, take turns with another tensor's: BUNTING_EVERY_SECOND. */
  readonly everySecond: boolean;
  /** Of each key head the file has the rows of q, k and v together: BUNTING_GROUPED_HEADS. */
  readonly groupedHeads: boolean;
  /** The file has columns where the engine has rows: BUNTING_TRANSPOSED. */
  readonly transposed: boolean;
  /** Row-major [rows, cols]; vectors have one row. */
  readonly rows: number;
  readonly cols: number;
  /** In the file. */
  readonly name: string;
  /** How integers, scales and zeros are stored apart, of which path and offset have the integers; left out: as `dtype` says.
   *  They become blocks of `dtype`. */
  readonly quantised?: QuantisedSource;
}

/** How a kind of file names and stores the tensors of a model. */
export interface TensorLayout {
  /** What the configuration was read from, for messages. */
  readonly describedBy: string;
  /** Values of BUNTING_F32, … by the file's word for them. */
  readonly dtypes: Readonly<Record<string, number>>;
  nameOf(want: WantedTensor, family: Family): string;
  /** Whether a tensor that the model does not want has no influence on the result. */
  isHarmless(name: string, config: ModelConfig): boolean;
  storesPairedRows(family: Family): boolean;
  storesGroupedHeads(family: Family): boolean;
  storesOneLess(family: Family): boolean;
  transposesExperts(family: Family): boolean;
  /** Of matrices that are stored quantised in tensors of their own; null: none is. */
  readonly quantisation: Quantisation | null;
}

const huggingFaceLayout: TensorLayout = {
  describedBy: "config.json",
  dtypes: { F32: 0, F16: 1, BF16: 2 },
  nameOf: folderName,
  // Left over from other programs.
  isHarmless: (name, { shape, isHeadless }) =>
    name.endsWith(".rotary_emb.inv_freq") ||
    (shape.tiedEmbeddings && name === "lm_head.weight") ||
    (isHeadless === true && name === "score.weight") || // read in score-head.ts
    isUnreadKey(/\.layers\.(\d+)\.self_attn\.(k_proj|v_proj|k_norm)\.weight$/, name, shape),
  storesPairedRows: ({ pairedRows }) => pairedRows?.folder ?? false,
  storesGroupedHeads: ({ groupedHeads }) => groupedHeads ?? false,
  storesOneLess: ({ normsOneLess }) => normsOneLess ?? false,
  transposesExperts: ({ transposesExperts }) => transposesExperts ?? false,
  quantisation: null,
};

/** Of a Hugging Face folder, whose configuration may say that matrices are quantised. */
export function folderLayout(quantisation: Quantisation | null): TensorLayout {
  if (quantisation === null) return huggingFaceLayout;
  return {
    ...huggingFaceLayout,
    isHarmless: (name, config) => quantisation.isHarmless(name) || huggingFaceLayout.isHarmless(name, config),
    quantisation,
  };
}

/** Whether a tensor is of keys or values of a layer that reads another one's; `pattern` finds its number. */
export function isUnreadKey(pattern: RegExp, name: string, { layers }: ModelConfig["shape"]): boolean {
  const layer = pattern.exec(name)?.[1];
  return layer !== undefined && (layers[Number(layer)]?.kvLayersBack ?? 0) > 0;
}

/** A tensor that a model must have. */
export interface WantedTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  readonly layer: number;
  /** Null: it is of no expert. */
  readonly expert: number | null;
  /** [rows, cols], or the length of a vector. */
  readonly shape: readonly number[];
}

/** Whether a folder's tensors are named as those of models without a vocabulary projection. */
export function isNamedHeadless(stored: Pick<StoredTensors, "tensors">): boolean {
  return prefixOf(stored, huggingFaceLayout) === null;
}

/** Finds and checks all tensors of the model, in the order in which the forward pass needs them. Every
 *  problem is a ModelError with file and tensor. `source` is named when a tensor is in no file. */
export function matchTensors(
  config: ModelConfig,
  stored: Pick<StoredTensors, "tensors">,
  source: string,
  layout: TensorLayout = huggingFaceLayout,
): ModelTensor[] {
  const family = familyNamed(config.family);
  const wanted = wantedTensors(config);
  const prefix = prefixOf(stored, layout);
  const isTransposed = layout.transposesExperts(family);
  const places = placesOf(wanted, isTransposed, (want) => behind(prefix, layout.nameOf(want, family)));
  const matched = wanted.map((want, index) => {
    const place = places[index]!;
    const own = layout.storesGroupedHeads(family) ? inFirstGroup(want, place, config.shape) : place;
    return match(want, own, family, stored, source, layout);
  });
  const names = new Set(matched.flatMap(({ name, quantised }) => [name, ...namesOf(quantised)]));
  for (const tensor of stored.tensors.values()) {
    if (names.has(tensor.name) || layout.isHarmless(tensor.name, config)) continue;
    if (prefix !== "" && prefix !== null && towers.test(tensor.name)) continue;
    throw new ModelError(
      tensor.file,
      tensor.name,
      `is no part of a ${config.family} model as ${layout.describedBy} describes it`,
    );
  }
  return matched;
}

/** Folders of models of text and images have the text model's tensors behind a prefix, those without a vocabulary projection
 *  lack the usual "model." (null). */
const prefixes = ["", "language_model.", "model.language_model.", null];
const towers =
  /^(model\.)?(vision_tower|vision_model|audio_tower|embed_vision|embed_audio|multi_modal_projector|vision_language_adapter|patch_merger)\./;
const embedName = "model.embed_tokens.weight";

function prefixOf({ tensors }: Pick<StoredTensors, "tensors">, layout: TensorLayout): string | null {
  if (layout.nameOf !== folderName) return "";
  // Behind the last of them there is no "model.".
  const found = prefixes.find((prefix) => tensors.has(behind(prefix, embedName)));
  return found === undefined ? "" : found;
}

/** A name of a text model's tensor behind a prefix. */
function behind(prefix: string | null, name: string): string {
  if (prefix === null) return name.replace(/^model\./, "");
  return prefix.startsWith("model.") ? prefix + name.replace(/^model\./, "") : prefix + name;
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
  shape.layers.forEach((has, layer) => {
    for (const [tensor, size] of layerTensors(has, shape))
      wanted.push({ tensor, layer, expert: null, shape: size });
    for (const [tensor, expert, size] of expertTensors(has, shape))
      wanted.push({ tensor, layer, expert, shape: size });
  });
  wanted.push({ tensor: TensorKind.finalNorm, layer: 0, expert: null, shape: [hidden] });
  if (!shape.tiedEmbeddings) {
    wanted.push({ tensor: TensorKind.lmHead, layer: 0, expert: null, shape: [vocab, hidden] });
  }
  return wanted;
}

/** What each expert of a layer has, expert after expert. */
function expertTensors(
  { mlp, biases }: LayerShape,
  { hidden, experts }: ModelConfig["shape"],
): [tensor: number, expert: number, size: number[]][] {
  if (mlp === "gated") return [];
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

/** What a layer has beside its experts, with shapes as in engine.h. */
function layerTensors(has: LayerShape, shape: ModelConfig["shape"]): [tensor: number, size: number[]][] {
  const { hidden, layerInputs } = shape;
  const { headSize, kvHeads, feedForward } = layerSizes(has, shape);
  const queryWidth = shape.queryHeads * headSize;
  const keyWidth = kvHeads * headSize;
  const hasKeys = has.kvLayersBack === 0;
  const hasBoth = has.mlp === "both";
  const hasInputs = layerInputs > 0;
  const isWide = has.qkNorm === "wide";
  const hasPostNorms = has.norms !== "before";
  const isDense = has.mlp === "gated";
  const tensors: [isThere: boolean, tensor: number, ...size: number[]][] = [
    [has.norms !== "after", TensorKind.attentionNorm, hidden],
    [true, TensorKind.q, queryWidth, hidden],
    [hasKeys, TensorKind.k, keyWidth, hidden],
    [hasKeys && !has.valuesAreKeys, TensorKind.v, keyWidth, hidden],
    [true, TensorKind.o, hidden, queryWidth],
    [has.biases.qkv, TensorKind.qBias, queryWidth],
    [has.biases.qkv, TensorKind.kBias, keyWidth],
    [has.biases.qkv, TensorKind.vBias, keyWidth],
    [has.biases.o, TensorKind.oBias, hidden],
    [has.qkNorm !== "none", TensorKind.qNorm, isWide ? queryWidth : headSize],
    [hasKeys && has.qkNorm !== "none", TensorKind.kNorm, isWide ? keyWidth : headSize],
    [has.sinks, TensorKind.sinks, shape.queryHeads],
    [hasPostNorms, TensorKind.attentionPostNorm, hidden],
    [has.norms !== "after" && !has.parallel, TensorKind.mlpNorm, hidden],
    [!isDense, TensorKind.router, shape.experts?.count ?? 0, hidden],
    [has.biases.router, TensorKind.routerBias, shape.experts?.count ?? 0],
    [isDense, TensorKind.gate, feedForward, hidden],
    [isDense, TensorKind.up, feedForward, hidden],
    [isDense, TensorKind.down, hidden, feedForward],
    [isDense && has.biases.gateUp, TensorKind.gateBias, feedForward],
    [isDense && has.biases.gateUp, TensorKind.upBias, feedForward],
    [isDense && has.biases.down, TensorKind.downBias, hidden],
    [hasPostNorms, TensorKind.mlpPostNorm, hidden],
    [hasBoth, TensorKind.routerNorm, hidden],
    [hasBoth, TensorKind.expertScales, shape.experts?.count ?? 0],
    [hasBoth, TensorKind.besideGate, feedForward, hidden],
    [hasBoth, TensorKind.besideUp, feedForward, hidden],
    [hasBoth, TensorKind.besideDown, hidden, feedForward],
    [hasBoth, TensorKind.besidePostNorm, hidden],
    [hasBoth, TensorKind.expertsNorm, hidden],
    [hasBoth, TensorKind.expertsPostNorm, hidden],
    [hasInputs, TensorKind.inputGate, layerInputs, hidden],
    [hasInputs, TensorKind.inputOut, hidden, layerInputs],
    [hasInputs, TensorKind.inputPostNorm, hidden],
    [has.scaled, TensorKind.layerScale, 1],
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
};

/** Of an expert, whose number is at {}. */
const expertNames: Readonly<Record<number, string>> = {
  [TensorKind.gate]: "mlp.experts.{}.gate_proj.weight",
  [TensorKind.up]: "mlp.experts.{}.up_proj.weight",
  [TensorKind.down]: "mlp.experts.{}.down_proj.weight",
};

function folderName({ tensor, layer, expert }: WantedTensor, family: Family): string {
  const ofExpert = (): string =>
    (family.expertNames?.[tensor] ?? expertNames[tensor]!).replace("{}", String(expert));
  const name = expert === null ? (family.folderNames?.[tensor] ?? folderNames[tensor]!) : ofExpert();
  return tensor >= TensorKind.attentionNorm ? `model.layers.${layer}.${name}` : name;
}

/** Where a tensor is: rows [first, first + its own) of the stored tensor of this name and shape. In vectors a row is a number. */
interface Place {
  readonly name: string;
  readonly first: number;
  readonly shape: readonly number[];
  readonly everySecond: boolean;
  readonly transposed: boolean;
  readonly groupedHeads: boolean;
}

/** Tensors of the same name lie in it one after the other; those of experts, if it has several, along a dimension of their own. */
function placesOf(
  wanted: readonly WantedTensor[],
  transposesExperts: boolean,
  nameOf: (want: WantedTensor) => string,
): Place[] {
  const stored = new Map<string, { rows: number; experts: Set<number | null> }>();
  const found = wanted.map((want) => {
    const name = nameOf(want);
    const whole = stored.get(name) ?? { rows: 0, experts: new Set() };
    const first = whole.rows;
    whole.rows += want.shape[0]!;
    whole.experts.add(want.expert);
    stored.set(name, whole);
    return { want, name, first };
  });
  return found.map(({ want, name, first }) => {
    const { rows, experts } = stored.get(name)!;
    const isStacked = experts.size > 1;
    const matrix = [isStacked ? rows / experts.size : rows, ...want.shape.slice(1)];
    const transposed = isStacked && transposesExperts && want.shape.length === 2;
    return {
      name,
      first,
      shape: [...(isStacked ? [experts.size] : []), ...(transposed ? matrix.toReversed() : matrix)],
      everySecond: isStacked && transposesExperts && matrix[0] === 2 * want.shape[0]!,
      transposed,
      groupedHeads: false,
    };
  });
}

/** The place of q, k or v where each key head has its rows of all three together: it begins in the first one's. */
function inFirstGroup(
  want: WantedTensor,
  place: Place,
  { queryHeads, kvHeads, headSize }: ModelShape,
): Place {
  const queries = queryHeads / kvHeads;
  const headsBefore: Readonly<Record<number, number>> = {
    [TensorKind.q]: 0,
    [TensorKind.qBias]: 0,
    [TensorKind.k]: queries,
    [TensorKind.kBias]: queries,
    [TensorKind.v]: queries + 1,
    [TensorKind.vBias]: queries + 1,
  };
  const heads = headsBefore[want.tensor];
  return heads === undefined ? place : { ...place, first: heads * headSize, groupedHeads: true };
}

/** The tensors that a folder of this model stores, with their names. */
export function folderTensors({
  family,
  shape,
  isHeadless,
}: Pick<ModelConfig, "family" | "shape" | "isHeadless">): NamedTensor[] {
  const wanted = wantedTensors({ shape });
  const { normsOneLess, transposesExperts } = familyNamed(family);
  const places = placesOf(wanted, transposesExperts ?? false, (want) =>
    behind(isHeadless === true ? null : "", folderName(want, familyNamed(family))),
  );
  return wanted.flatMap((want, index) => {
    const { name, first, shape } = places[index]!;
    const isNorm = normKinds.includes(want.tensor);
    const untrained = isNorm && normsOneLess ? 0 : isNorm || scaleKinds.includes(want.tensor) ? 1 : null;
    return first > 0 ? [] : [{ name, shape, untrained }];
  });
}

export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** What all of it is before any training, in norms and scales; null: random. */
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
];
const scaleKinds: readonly number[] = [TensorKind.expertScales, TensorKind.layerScale];
const pairedKinds: readonly number[] = [TensorKind.q, TensorKind.k, TensorKind.qBias, TensorKind.kBias];

function match(
  want: WantedTensor,
  { name, first, shape, everySecond, transposed, groupedHeads }: Place,
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
    transposed,
    pairedRows: pairedKinds.includes(want.tensor) && layout.storesPairedRows(family),
    oneLess: normKinds.includes(want.tensor) && layout.storesOneLess(family),
    rows: want.shape.length === 2 ? want.shape[0]! : 1,
    cols: want.shape.at(-1)!,
  };
  const isUp = everySecond && (want.tensor === TensorKind.up || want.tensor === TensorKind.upBias);
  if (shape.length === 3) {
    const [experts, ...matrix] = shape as [number, number, number];
    const [rows, cols] = transposed ? [matrix[1], matrix[0]] : matrix;
    const whole = layout.quantisation?.experts(name, [experts, rows, cols], stored.tensors);
    const firstRow = isUp ? first - want.shape[0]! + 1 : first;
    if (whole)
      return { ...ofKind, ...partOf(whole, experts * rows, firstRow, want.shape[0]!), transposed: false };
  }
  const quantised =
    shape.length === 2 ? layout.quantisation?.matrix(name, shape[0]!, shape[1]!, stored.tensors) : null;
  if (quantised) {
    const { integers, dtype, source: parts } = quantised;
    if (shape[0] !== want.shape[0] || transposed) {
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
  if (tensor.shape.length !== shape.length || tensor.shape.some((size, at) => size !== shape[at])) {
    throw new ModelError(tensor.file, name, `has shape ${show(tensor.shape)}, wanted ${show(shape)}`);
  }
  const dtype = layout.dtypes[tensor.dtype];
  if (dtype === undefined) {
    const supported = Object.keys(layout.dtypes).join(", ");
    throw new ModelError(tensor.file, name, `has dtype ${tensor.dtype}; supported: ${supported}`);
  }
  const cols = want.shape[1] ?? 1;
  const rowBytes = tensor.bytes / (shape.reduce((product, size) => product * size, 1) / cols);
  // Where rows take turns, up begins one behind gate, which is as far as its first row would be one after the other.
  const startBytes = isUp
    ? (first - want.shape[0]!) * rowBytes + (transposed ? rowBytes / cols : rowBytes)
    : first * rowBytes;
  return {
    ...ofKind,
    path: tensor.file,
    offset: tensor.offset + startBytes,
    bytes: want.shape[0]! * rowBytes,
    dtype,
    name,
  };
}

/** The matrix of `count` rows from row `first` on, of one whose groups are parts of a row. */
function partOf(
  { integers, source, dtype }: QuantisedMatrix,
  rows: number,
  first: number,
  count: number,
): Pick<ModelTensor, "path" | "offset" | "bytes" | "dtype" | "name" | "quantised"> {
  const from = (tensor: StoredTensor): number => tensor.offset + (tensor.bytes / rows) * first;
  return {
    path: integers.file,
    offset: from(integers),
    bytes: (integers.bytes / rows) * count,
    dtype,
    name: integers.name,
    quantised: { ...source, scales: { ...source.scales, offset: from(source.scales) } },
  };
}

function namesOf(quantised: QuantisedSource | undefined): string[] {
  if (quantised === undefined) return [];
  return [quantised.scales, quantised.zeros, quantised.order].flatMap((part) =>
    part === null ? [] : [part.name],
  );
}
