/**
 * Chooses the format in which each matrix is kept and multiplied, from its stored type and the `--quant`
 * setting.
 */
import { latentKinds } from "./latent-tensors.ts";
import { matrixFormats } from "./matrix-formats.ts";
import { type StoredType, storedTypes } from "./stored-types.ts";
import { TensorKind } from "./tensor-kinds.ts";

/**
 * Quantisation settings.
 * - auto: keeps GGUF blocks in a format that kernels support; code books become int6 or int4, other blocks
 *   int8, the rest is plain.
 * - none: everything is plain.
 * - int8, q8_0, int6, int4, fp8: rounds plain matrices, and keeps blocks of no more bits. The embedding and
 *   the vocabulary projection matter most: int4 keeps them in int6, and fp8 keeps them plain. If one matrix
 *   is both, int4 and int6 keep it in eight bits.
 */
export const quantNames = ["auto", "none", "int8", "q8_0", "int6", "int4", "fp8"] as const;
export type Quant = (typeof quantNames)[number];

/** Formats of the embedding and the vocabulary projection, per format of layer matrices. */
const vocabularyFormats = { int8: "int8", q8_0: "q8_0", int6: "int6", int4: "int6", fp8: "plain" } as const;
/** Formats of an embedding that is the vocabulary projection too. */
const tiedFormats = { ...vocabularyFormats, int6: "int8", int4: "int8" } as const;

/** Tensor fields that the choice depends on. */
export interface FormatTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  readonly layer: number;
  /** BUNTING_F32, BUNTING_Q4_0, … */
  readonly dtype: number;
}

/** Formats whose number differs from that of their stored type. */
const namedFormats: Readonly<Record<string, number>> = {
  Q4_0: matrixFormats.int4,
  Q8_0: matrixFormats.q8_0,
};
/**
 * Replacement format of code-book rows: the most exact one of at most twice their bits; for IQ1 and IQ2_XXS
 * the smallest.
 */
const codebookFormat = (dtype: number | undefined): number | undefined => {
  const type = storedType(dtype);
  if (type?.kind !== "codebook") return undefined;
  return type.bits > 2 ? matrixFormats.int6 : matrixFormats.int4;
};
const isBlocks = (dtype: number | undefined): boolean => {
  const kind = storedType(dtype)?.kind;
  return kind === "blocks" || kind === "codebook";
};

/** Block types that GPU kernels support. */
const keptOnGpus: readonly string[] = ["Q4_0", "Q8_0", "MXFP4"];

const quantBits = { int8: 8, q8_0: 8, int6: 6, int4: 4, fp8: 0, plain: 0 } as const;

/**
 * Tensors that share one matrix in memory, per layer. V joins Q and K if all have the same format, and always
 * on a GPU.
 */
const layerMatrices: readonly (readonly number[])[] = [
  [TensorKind.q, TensorKind.k, TensorKind.qGate],
  [TensorKind.v],
  [TensorKind.o],
  [TensorKind.gate, TensorKind.up],
  [TensorKind.down],
  [TensorKind.besideGate, TensorKind.besideUp],
  [TensorKind.besideDown],
];
/** Further matrices, per layer of a model with recurrent layers. */
const stateMatrices: readonly (readonly number[])[] = [
  [TensorKind.stateQ, TensorKind.stateK, TensorKind.stateV],
  [TensorKind.stateZ],
  [TensorKind.stateO],
];
/** Same for a layer with latent attention; the keys and values of latents are plain. */
const latentMatrices: typeof layerMatrices = [
  [TensorKind.q],
  [TensorKind.queryLatent, TensorKind.k],
  ...layerMatrices.slice(2),
];
/** Tensors that are embedding tables, or project to the vocabulary. */
const vocabularyKinds: readonly number[] = [TensorKind.embed, TensorKind.lmHead, TensorKind.layerEmbed];
const queriesKeysValues: readonly number[] = [TensorKind.q, TensorKind.k, TensorKind.v];

/** `ComputeOptions.formats` of a model with these tensors. In f32, `auto` keeps nothing in blocks. */
export function formatsOf(
  tensors: readonly FormatTensor[],
  layers: number,
  quant: Quant,
  compute: "bf16" | "f32",
  device: "cpu" | "gpu" = "cpu",
): readonly number[] {
  // The experts of a layer share one matrix.
  const byPlace = Map.groupBy(tensors, ({ tensor, layer }) => placeOf(tensor, layer));
  const formatOf = (kinds: readonly number[], layer: number): number => {
    if (quant === "none" || (quant === "auto" && compute === "f32")) return matrixFormats.plain;
    // Considers only the kinds that the layer has.
    const dtypes = kinds.flatMap(
      (kind): number[] => byPlace.get(placeOf(kind, layer))?.map(({ dtype }) => dtype) ?? [],
    );
    if (dtypes.length === 0) return matrixFormats.plain;
    const stored = keptType(dtypes, device);
    if (quant === "auto") {
      return stored?.format ?? (dtypes.every(isBlocks) ? nearestFormat(dtypes) : matrixFormats.plain);
    }
    const isTied = kinds[0] === TensorKind.embed && !byPlace.has(placeOf(TensorKind.lmHead, 0));
    const isVocabulary = vocabularyKinds.includes(kinds[0]!);
    const name = isTied ? tiedFormats[quant] : isVocabulary ? vocabularyFormats[quant] : quant;
    return stored !== undefined && stored.bits <= quantBits[name] ? stored.format : matrixFormats[name];
  };
  const formats = [formatOf([TensorKind.embed], 0), formatOf([TensorKind.lmHead], 0)];
  for (let layer = 0; layer < layers; layer += 1) {
    const isLatent = byPlace.has(placeOf(TensorKind.latentKeys, layer));
    for (const kinds of isLatent ? latentMatrices : layerMatrices) {
      const isJoined = device === "gpu" && !isLatent && queriesKeysValues.includes(kinds[0]!);
      formats.push(formatOf(isJoined ? queriesKeysValues : kinds, layer));
    }
  }
  formats.push(formatOf([TensorKind.layerEmbed], 0));
  if (tensors.some(({ tensor }) => tensor === TensorKind.stateO)) {
    for (let layer = 0; layer < layers; layer += 1)
      formats.push(...stateMatrices.map((kinds) => formatOf(kinds, layer)));
  }
  return formats;
}

/** Format of a matrix whose tensors are in blocks that it cannot keep. */
function nearestFormat(dtypes: readonly (number | undefined)[]): number {
  const formats = dtypes.map((dtype) => codebookFormat(dtype) ?? matrixFormats.int8);
  return formats.includes(matrixFormats.int8)
    ? matrixFormats.int8
    : formats.includes(matrixFormats.int6)
      ? matrixFormats.int6
      : matrixFormats.int4;
}

/**
 * Format that keeps the blocks of all tensors of a matrix; undefined if there is none. Q8_0 represents Q4_0
 * exactly.
 */
function keptType(
  dtypes: readonly number[],
  device: "cpu" | "gpu",
): { readonly format: number; readonly bits: number } | undefined {
  const types = new Set(dtypes.map(storedType));
  const areSimple = [...types].every((type) => type?.name === "Q4_0" || type?.name === "Q8_0");
  const type =
    types.size === 1 ? [...types][0] : areSimple ? { name: "Q8_0", ...storedTypes.Q8_0 } : undefined;
  if (type?.kind !== "blocks" || (device === "gpu" && !keptOnGpus.includes(type.name))) return undefined;
  return { format: namedFormats[type.name] ?? type.number, bits: type.bits };
}

/**
 * Lists block tensors whose format changes, as a part of a sentence: "24 matrices in Q6_K and Q4_K become
 * int8, …". Null if all are kept. Leaves out rounding to fewer bits, which the operator asked for.
 */
export function widenedNote(
  tensors: readonly FormatTensor[],
  formats: readonly number[],
  compute: "bf16" | "f32",
): string | null {
  const formatOf = formatsIn(tensors, formats);
  const widenedTo = (format: number, name: string): string[] => {
    const isWidened = ({ dtype }: FormatTensor): boolean =>
      format === matrixFormats.plain || format === matrixFormats.int8
        ? isBlocks(dtype)
        : codebookFormat(dtype) !== undefined;
    const widened = tensors.filter((tensor) => isWidened(tensor) && formatOf(tensor) === format);
    if (widened.length === 0) return [];
    const names = [...new Set(widened.map(({ dtype }) => storedType(dtype)!.name))].join(" and ");
    return [`${widened.length} ${widened.length === 1 ? "matrix" : "matrices"} in ${names} become ${name}`];
  };
  const notes = [
    ...widenedTo(matrixFormats.plain, compute),
    ...widenedTo(matrixFormats.int8, "int8"),
    ...widenedTo(matrixFormats.int6, "int6"),
    ...widenedTo(matrixFormats.int4, "int4"),
  ];
  return notes.length === 0 ? null : `${notes.join(", ")}: they are not computed with as they are here`;
}

/** Format of a tensor's matrix; undefined for vectors and matrices without a choice. */
type FormatOf = (tensor: FormatTensor) => number | undefined;

/** Formats of the tensors of a model. */
export function formatsIn(tensors: readonly FormatTensor[], formats: readonly number[]): FormatOf {
  const ofLatents = tensors.filter(({ tensor }) => tensor === TensorKind.latentKeys);
  const latentLayers = new Set(ofLatents.map(({ layer }) => layer));
  const layers = layersOf(tensors);
  return ({ tensor, layer }) => {
    if (tensor === TensorKind.embed) return formats[0];
    if (tensor === TensorKind.lmHead) return formats[1];
    const tableAt = 2 + layers * layerMatrices.length;
    if (tensor === TensorKind.layerEmbed) return formats[tableAt];
    if (latentKinds.includes(tensor)) return matrixFormats.plain;
    const isOf = (kinds: readonly number[]): boolean => kinds.includes(tensor);
    const ofState = stateMatrices.findIndex(isOf);
    if (ofState >= 0) return formats[tableAt + 1 + layer * stateMatrices.length + ofState];
    const matrices = latentLayers.has(layer) ? latentMatrices : layerMatrices;
    const matrix = matrices.findIndex(isOf);
    return matrix < 0 ? undefined : formats[2 + layer * matrices.length + matrix];
  };
}

/** Number of layers of a model, from its tensors. */
function layersOf(tensors: readonly FormatTensor[]): number {
  return tensors.reduce((most, { layer }) => Math.max(most, layer + 1), 0);
}

/**
 * True if loading computes the numbers of a matrix, instead of only moving them: it rounds plain numbers,
 * changes blocks to another format, or reads a quantised folder.
 */
export function isRounded(
  tensors: readonly (FormatTensor & { readonly quantised?: unknown })[],
  formats: readonly number[],
): boolean {
  const formatOf = formatsIn(tensors, formats);
  return tensors.some((tensor) => {
    const format = formatOf(tensor);
    if (format === undefined) return false;
    if (tensor.quantised != null) return true;
    const type = storedType(tensor.dtype);
    const isMoved =
      format === matrixFormats.plain || format === matrixFormats.fp8
        ? !isBlocks(tensor.dtype)
        : type?.kind === "blocks" && (namedFormats[type.name] ?? type.number) === format;
    return !isMoved;
  });
}

/** Display name of a matrix format: "int8", "Q4_K". */
export function formatName(format: number): string {
  const named = Object.entries(matrixFormats).find(([, value]) => value === format)?.[0];
  return named ?? storedType(format)?.name ?? `format ${format}`;
}

/** Name of a storage type in files: "BF16", "Q4_K". */
export function storedTypeName(dtype: number): string {
  return storedType(dtype)?.name ?? "";
}

const byNumber = new Map<number, StoredType & { readonly name: string }>(
  Object.entries(storedTypes).map(([name, type]) => [type.number, { name, ...type }]),
);
/** Stored type of this number; undefined if there is none. */
function storedType(dtype: number | undefined): (StoredType & { readonly name: string }) | undefined {
  return dtype === undefined ? undefined : byNumber.get(dtype);
}

function placeOf(tensor: number, layer: number): string {
  return `${layer} ${tensor}`;
}
