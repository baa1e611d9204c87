/**
 * Tensors of a model: their names, the shapes that the configuration demands, and their engine numbers
 * (BUNTING_T_* of engine.h). Names are those of a Hugging Face folder unless a layout defines others.
 */
import type { ModelConfig } from "./config.ts";
import type { Family } from "./families/family.ts";
import { familyNamed } from "./families/index.ts";
import { show } from "./json.ts";
import { latentKinds } from "./latent-tensors.ts";
import { ModelError } from "./model-error.ts";
import { partsOf, type Quantisation, type QuantisedMatrix, type QuantisedSource } from "./quantisation.ts";
import type { StoredTensor, StoredTensors } from "./safetensors.ts";
import { layersWithHead, type ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";
import { streamKinds, type WantedTensor, wantedTensors, xieluKinds } from "./wanted-tensors.ts";

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
  /** True if the file stores the rows of several tensors together for each key head: BUNTING_GROUPED_HEADS. */
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
  /** True if the file has one row per query head: BUNTING_ROW_PER_HEAD. Absent: false. */
  readonly rowPerHead?: boolean;
  /** True if the file has -exp(A_log): BUNTING_NEGATED_EXP. Absent: false. */
  readonly negatedExp?: boolean;
  /** Factor of the numbers, applied while loading. Absent: 1. */
  readonly factor?: number;
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
  storesGatesPerHead(family: Family): boolean;
  /** True if the file has -exp(A_log) of recurrent layers, else A_log. */
  readonly storesNegatedExp: boolean;
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
  storesGatesPerHead: ({ gatesPerHead }) => gatesPerHead ?? false,
  storesNegatedExp: false,
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
 * True for a tensor of layers that only drafting uses (multi-token prediction). Its layer comes after the
 * model's last one (`pattern` captures the number), or its name says so.
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
  const family = withExpertsApart(familyNamed(config.family), stored, layout);
  const isPrefixed = family.prefixes !== undefined && layout.nameOf === folderName;
  const prefix = isPrefixed ? ownPrefixOf(family, stored) : prefixOf(stored, layout);
  const placed = placedTensors(config, family, layout, (name) => {
    const own = isPrefixed ? prefix + name : behind(prefix, name);
    // Old GGUF files have the keys and values of latents in one matrix, as folders do.
    return stored.tensors.has(own) ? own : own.replace(/attn_[kv]_b\./, "attn_kv_b.");
  });
  const ofModel = new Set(placed.map(({ place }) => place.name));
  const matched = placed.map(({ want, place }) => {
    const found = match(want, place, family, stored, source, layout);
    const matched = withoutFactors(found, ofModel);
    const factor = config.shape.factors?.[want.tensor] ?? 1;
    return factor === 1 ? matched : { ...matched, factor };
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

/** Wanted tensor with its place in the files of a layout. */
export interface PlacedTensor {
  readonly want: WantedTensor;
  readonly place: Place;
}

/** Places of all tensors of a model. `nameOf` puts a prefix before a name of the layout. */
export function placedTensors(
  config: Pick<ModelConfig, "shape">,
  family: Family,
  layout: TensorLayout,
  nameOf: (name: string) => string,
): PlacedTensor[] {
  const wanted = wantedTensors(config);
  const transposing = layout.transposesExperts(family);
  const order = { transposing, gatesPerHead: layout.storesGatesPerHead(family) };
  const places = placesOf(wanted, order, config.shape, (want) => nameOf(layout.nameOf(want, family)));
  return wanted.map((want, index) => {
    const place = places[index]!;
    const own = layout.storesGroupedHeads(family) ? inFirstGroup(want, place, config.shape) : place;
    return { want, place: inFirstHead(want, own, family, config.shape) };
  });
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

/** Family whose folder has a tensor for each expert, as quantised ones do, where others have one for all. */
function withExpertsApart(
  family: Family,
  { tensors }: Pick<StoredTensors, "tensors">,
  layout: TensorLayout,
): Family {
  const isJoined = layout.nameOf === folderName && family.expertNames !== undefined;
  const first = /\.mlp\.experts\.0\.gate_proj\./;
  if (!isJoined || !tensors.keys().some((name) => first.test(name))) return family;
  const { expertNames: _, transposesExperts: __, ...apart } = family;
  return apart;
}

/**
 * Prefixes of text-model tensors in folders of models of text and images. Null: folders without a vocabulary
 * projection, which lack the usual "model.".
 */
export const prefixes = ["", "language_model.", "model.language_model.", null];
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
export function behind(prefix: string | null, name: string): string {
  if (prefix === null) return name.replace(/^model\./, "");
  if (!prefix.startsWith("model.")) return prefix + name;
  return name.startsWith("model.") ? prefix + name.replace("model.", "") : name;
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
  [TensorKind.qGate]: "self_attn.q_proj.weight",
};

/** Names of an expert's tensors; {} stands for its number. */
const expertNames: Readonly<Record<number, string>> = {
  [TensorKind.gate]: "mlp.experts.{}.gate_proj.weight",
  [TensorKind.up]: "mlp.experts.{}.up_proj.weight",
  [TensorKind.down]: "mlp.experts.{}.down_proj.weight",
};

function folderName(want: WantedTensor, family: Family): string {
  const { tensor, layer, expert, ofQueryLatent, ofHead } = want;
  const ofModel = (name: string): string => name.replace("{}", String(layer));
  const own = ofHead === true ? family.draftHead!.names[tensor] : undefined;
  if (own !== undefined) return ofModel(own);
  const ofExpert = (): string =>
    (family.expertNames?.[tensor] ?? expertNames[tensor]!).replace("{}", String(expert));
  const ofLayer = (): string =>
    ofQueryLatent === true
      ? "self_attn.q_b_proj.weight"
      : (family.folderNames?.[tensor] ?? folderNames[tensor]!);
  const name = expert === null ? ofLayer() : ofExpert();
  if (tensor === TensorKind.streamIn || tensor === TensorKind.streamOut)
    return name.replace("{}", String(layer));
  return tensor >= TensorKind.attentionNorm
    ? `${ofHead === true ? ofModel(family.draftHead!.layer) : `${family.layerNames ?? "model.layers"}.${layer}`}.${name}`
    : name;
}

/**
 * Place of a tensor: rows [first, first + its own) of the stored tensor of this name and shape. In vectors a
 * row is a number.
 */
export interface Place {
  readonly name: string;
  readonly first: number;
  readonly shape: readonly number[];
  readonly everySecond: boolean;
  readonly transposed: boolean;
  readonly halfRows: boolean;
  readonly groupedHeads: boolean;
  readonly keysWithValues: boolean;
  readonly gatedHeads: boolean;
  readonly rowPerHead: boolean;
}

/**
 * Places of wanted tensors. Tensors of one name follow each other in it; several experts have a dimension of
 * their own.
 */
function placesOf(
  wanted: readonly WantedTensor[],
  order: { readonly transposing: Family["transposesExperts"]; readonly gatesPerHead: boolean },
  shape: ModelShape,
  nameOf: (want: WantedTensor) => string,
): Place[] {
  const { transposing, gatesPerHead } = order;
  const stored = new Map<string, { rows: number; count: number; experts: Set<number | null> }>();
  const found = wanted.map((want) => {
    const name = nameOf(want);
    const whole = stored.get(name) ?? { rows: 0, count: 0, experts: new Set() };
    const first = whole.rows;
    whole.count += 1;
    whole.rows += want.shape[0]!;
    whole.experts.add(want.expert);
    stored.set(name, whole);
    return { want, name, first };
  });
  return found.map(({ want, name, first }) => {
    const { rows, count, experts } = stored.get(name)!;
    if (latentKinds.includes(want.tensor)) return latentPlace(want, name, count > 1, shape);
    const rowPerHead = gatesPerHead && want.tensor === TensorKind.qGate;
    const isStacked = experts.size > 1;
    const rowsEach = isStacked ? rows / experts.size : rows;
    const matrix = [rowPerHead ? shape.queryHeads : rowsEach, ...want.shape.slice(1)];
    const transposed = isStacked && transposing !== undefined && want.shape.length === 2;
    const isJoined = isStacked && matrix[0] === 2 * want.shape[0]!;
    return {
      name,
      first,
      shape: [...(isStacked ? [experts.size] : []), ...(transposed ? matrix.toReversed() : matrix)],
      everySecond: isJoined && transposing === "interleaved",
      halfRows: isJoined && transposing === "halves",
      transposed,
      groupedHeads: false,
      keysWithValues: false,
      gatedHeads: false,
      rowPerHead,
    };
  });
}

/** Place of the keys or values of latents: a matrix per head, or, joined, both in one matrix. */
function latentPlace(
  { shape: [rows, cols] }: WantedTensor,
  name: string,
  isJoined: boolean,
  { latent, queryHeads }: ModelShape,
): Place {
  const { rank, keySize, valueSize } = latent!;
  return {
    name,
    first: 0,
    shape: isJoined ? [queryHeads * (keySize + valueSize), rank] : [queryHeads, rows! / queryHeads, cols!],
    everySecond: false,
    transposed: false,
    halfRows: false,
    groupedHeads: false,
    keysWithValues: isJoined,
    gatedHeads: false,
    rowPerHead: false,
  };
}

/**
 * Place of a tensor whose rows alternate with those of others: q and its gate in each query head, and in
 * tensors that match the family's `stateGroups` the parts of each key head.
 */
function inFirstHead(want: WantedTensor, place: Place, family: Family, shape: ModelShape): Place {
  const { headSize, states } = shape;
  const isGated = layersWithHead(shape)[want.layer]?.gatedOutput === true;
  const isJoined = isGated && place.shape[0] === 2 * want.shape[0]!;
  if (isJoined && want.tensor === TensorKind.q) return { ...place, first: 0, gatedHeads: true };
  if (isJoined && want.tensor === TensorKind.qGate) return { ...place, first: headSize, gatedHeads: true };
  if (states === undefined || !family.stateGroups?.test(place.name)) return place;
  const { keyHeads, heads, keySize, valueSize } = states;
  const values = heads / keyHeads;
  const rowsBefore: Readonly<Record<number, number>> = {
    [TensorKind.stateQ]: 0,
    [TensorKind.stateK]: keySize,
    [TensorKind.stateV]: 2 * keySize,
    [TensorKind.stateZ]: 2 * keySize + values * valueSize,
    [TensorKind.stateB]: 0,
    [TensorKind.stateA]: values,
  };
  return { ...place, first: rowsBefore[want.tensor]!, groupedHeads: true };
}

/**
 * Place of q, k or v when each key head stores its rows of all three together: it begins in the first head's
 * group.
 */
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

/** Tensors that a folder of this model stores, with their names. */
export function folderTensors({
  family,
  shape,
  isHeadless,
}: Pick<ModelConfig, "family" | "shape" | "isHeadless">): NamedTensor[] {
  const wanted = wantedTensors({ shape });
  const { normsOneLess, transposesExperts: transposing, gatesPerHead = false } = familyNamed(family);
  const places = placesOf(wanted, { transposing, gatesPerHead }, shape, (want) =>
    behind(isHeadless === true ? null : "", folderName(want, familyNamed(family))),
  );
  return wanted.flatMap((want, index) => {
    const { name, first, shape } = places[index]!;
    const isNorm = normKinds.includes(want.tensor);
    const isZero = (isNorm && normsOneLess) || want.tensor === TensorKind.stateALog;
    const untrained = isZero ? 0 : isNorm || scaleKinds.includes(want.tensor) ? 1 : null;
    const stored = convKinds.includes(want.tensor) ? [shape[0]!, 1, shape[1]!] : shape;
    // Its keys come first in a matrix of latents' keys and values.
    const isIn = want.tensor === TensorKind.latentValues && places[index]!.keysWithValues;
    return first > 0 || isIn ? [] : [{ name, shape: stored, untrained }];
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
  TensorKind.streamNorm,
  TensorKind.laurelNorm,
  TensorKind.headEmbedNorm,
  TensorKind.headHiddenNorm,
  TensorKind.headNorm,
];
const scaleKinds: readonly number[] = [
  TensorKind.expertScales,
  TensorKind.layerScale,
  TensorKind.streamScale,
  TensorKind.stateD,
  TensorKind.stateNorm,
];
/** Weights of convolutions: folders store them as [channels, 1, width]. */
const convKinds: readonly number[] = [TensorKind.stateConvQ, TensorKind.stateConvK, TensorKind.stateConvV];
const pairedKinds: readonly number[] = [TensorKind.q, TensorKind.k, TensorKind.qBias, TensorKind.kBias];

/** Finds and checks a stored tensor. Throws ModelError, which names `source` if the tensor is in no file. */
export function match(
  want: WantedTensor,
  place: Place,
  family: Family,
  stored: Pick<StoredTensors, "tensors">,
  source: string,
  layout: TensorLayout,
): ModelTensor {
  const { name, first, shape, everySecond, transposed, halfRows, groupedHeads } = place;
  const { keysWithValues, gatedHeads, rowPerHead } = place;
  const storedRows = rowPerHead ? shape[0]! : want.shape[0]!;
  const ofKind = {
    tensor: want.tensor,
    layer: want.layer,
    expert: want.expert ?? 0,
    everySecond,
    groupedHeads,
    keysWithValues,
    ...(gatedHeads ? { gatedHeads } : {}),
    ...(rowPerHead ? { rowPerHead } : {}),
    ...(want.tensor === TensorKind.stateALog && layout.storesNegatedExp ? { negatedExp: true } : {}),
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
      return { ...ofKind, ...partOf(quantised, shape[0]!, first, storedRows) };
    if ((shape[0] !== storedRows && !keysWithValues) || transposed) {
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
  const hasMore = family.hasMoreRows === true && want.tensor === TensorKind.embed;
  const [rows = 0, ...others] = tensor.shape;
  const read = hasMore && rows > shape[0]! ? [shape[0]!, ...others] : tensor.shape;
  if (!isSameShape(want.tensor, read, shape)) {
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
  const rowBytes = tensor.bytes / (tensor.shape.reduce((product, size) => product * size, 1) / cols);
  // With interleaved rows, up begins one row after gate, and with half rows in the middle of the first one;
  // `first` counts as if all rows of gate came first.
  const numberBytes = rowBytes / cols;
  const upBytes = halfRows ? want.shape[0]! * numberBytes : transposed ? numberBytes : rowBytes;
  const startBytes = isUp ? (first - want.shape[0]!) * rowBytes + upBytes : first * rowBytes;
  return {
    ...ofKind,
    path: tensor.file,
    offset: tensor.offset + startBytes,
    bytes: storedRows * rowBytes,
    dtype,
    name,
  };
}

/** Kinds that files may store with further dimensions of 1. */
const eitherShape: readonly number[] = [
  TensorKind.choiceBias,
  TensorKind.sharedGate,
  TensorKind.stateALog,
  TensorKind.stateD,
  ...convKinds,
];

function isSameShape(tensor: number, stored: readonly number[], wanted: readonly number[]): boolean {
  // Files of all streams have a dimension for them.
  if (streamKinds.includes(tensor) && stored.length === 3)
    return stored[0]! * stored[1]! === wanted[0] && stored[2] === wanted[1];
  // A single number may have no dimension.
  if (stored.length === 0 && xieluKinds.includes(tensor)) return true;
  const product = (sizes: readonly number[]): number => sizes.reduce((all, size) => all * size, 1);
  if (tensor === TensorKind.stateNorm) return product(stored) === product(wanted);
  const [own, other] = [stored, wanted].map((sizes) =>
    eitherShape.includes(tensor) ? sizes.filter((size) => size !== 1) : sizes,
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
