/** In which format each matrix of a model is kept and multiplied: from how the file stores it, and from what was asked. */
import { matrixFormats } from "../native.ts";
import { ggufLayout } from "./gguf.ts";
import { TensorKind } from "./weights.ts";

/** auto: Q8_0 and Q4_0 blocks of a GGUF file stay what they are (both in one matrix: q8_0), all else is plain. none: all
 *  is plain. int8, q8_0, int6, int4, fp8: plain matrices are rounded; the embedding and the vocabulary projection, which matter
 *  most, int4 keeps in int6 and fp8 as they are. int8 and q8_0 keep blocks of a GGUF file in any case, int6 and int4 those of
 *  Q4_0. */
export const quantNames = ["auto", "none", "int8", "q8_0", "int6", "int4", "fp8"] as const;
export type Quant = (typeof quantNames)[number];

/** What the embedding and the vocabulary projection are in, where matrices of layers are rounded. */
const vocabularyFormats = { int8: "int8", q8_0: "q8_0", int6: "int6", int4: "int6", fp8: "plain" } as const;

type MatrixFormat = (typeof matrixFormats)[keyof typeof matrixFormats];

/** What is looked at of a tensor. */
export interface FormatTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  readonly layer: number;
  /** BUNTING_F32, BUNTING_Q4_0, … */
  readonly dtype: number;
}

/** Values of BUNTING_Q4_0 and BUNTING_Q8_0: the stored types that are computed with as they are. */
const storedFormats: Readonly<Record<number, MatrixFormat>> = {
  16: matrixFormats.int4,
  20: matrixFormats.q8_0,
};

/** The tensors that are one matrix in memory, of each layer. */
const layerMatrices: readonly (readonly number[])[] = [
  [TensorKind.q, TensorKind.k, TensorKind.v],
  [TensorKind.o],
  [TensorKind.gate, TensorKind.up],
  [TensorKind.down],
];

/** `ComputeOptions.formats` of a model with these tensors. In f32, `auto` keeps nothing in blocks. */
export function formatsOf(
  tensors: readonly FormatTensor[],
  layers: number,
  quant: Quant,
  compute: "bf16" | "f32",
): readonly number[] {
  const byPlace = new Map(tensors.map((tensor) => [placeOf(tensor.tensor, tensor.layer), tensor.dtype]));
  const formatOf = (kinds: readonly number[], layer: number): MatrixFormat => {
    if (quant === "none" || (quant === "auto" && compute === "f32")) return matrixFormats.plain;
    const stored = keptFormat(kinds.map((kind) => byPlace.get(placeOf(kind, layer))));
    if (quant === "auto") return stored ?? matrixFormats.plain;
    const isVocabulary = kinds[0] === TensorKind.embed || kinds[0] === TensorKind.lmHead;
    const name = isVocabulary ? vocabularyFormats[quant] : quant;
    const isKept = name === "int8" || name === "q8_0" || (name === "int6" && stored === matrixFormats.int4);
    return (isKept ? stored : undefined) ?? matrixFormats[name];
  };
  const formats = [formatOf([TensorKind.embed], 0), formatOf([TensorKind.lmHead], 0)];
  for (let layer = 0; layer < layers; layer += 1) {
    formats.push(...layerMatrices.map((kinds) => formatOf(kinds, layer)));
  }
  return formats;
}

/** How a matrix keeps the blocks of all of its tensors; undefined: it cannot. In q8_0 those of Q4_0 are the same numbers. */
function keptFormat(dtypes: readonly (number | undefined)[]): MatrixFormat | undefined {
  const formats = dtypes.map((dtype) => (dtype === undefined ? undefined : storedFormats[dtype]));
  if (formats.includes(undefined)) return undefined;
  return formats.every((format) => format === formats[0]) ? formats[0] : matrixFormats.q8_0;
}

/** Which tensors in blocks become plain numbers, as a part of a sentence: "24 matrices in Q6_K and Q4_K become bf16, …"; null:
 *  none do. */
export function widenedNote(
  tensors: readonly FormatTensor[],
  formats: readonly number[],
  compute: "bf16" | "f32",
): string | null {
  const formatOf = ({ tensor, layer }: FormatTensor): number | undefined => {
    if (tensor === TensorKind.embed) return formats[0];
    if (tensor === TensorKind.lmHead) return formats[1];
    const matrix = layerMatrices.findIndex((kinds) => kinds.includes(tensor));
    return matrix < 0 ? undefined : formats[2 + layer * layerMatrices.length + matrix];
  };
  const widened = tensors.filter((tensor) => tensor.dtype >= 16 && formatOf(tensor) === matrixFormats.plain);
  if (widened.length === 0) return null;
  const nameOf = (dtype: number): string | undefined =>
    Object.entries(ggufLayout.dtypes).find(([, value]) => value === dtype)?.[0];
  const names = [...new Set(widened.map(({ dtype }) => nameOf(dtype)))].join(" and ");
  const count = `${widened.length} ${widened.length === 1 ? "matrix" : "matrices"}`;
  return `${count} in ${names} become ${compute}, for only Q8_0 and Q4_0 are computed with as they are`;
}

function placeOf(tensor: number, layer: number): string {
  return `${layer} ${tensor}`;
}
