/** In which format each matrix of a model is kept and multiplied: from how the file stores it, and from what was asked. */
import { matrixFormats } from "../native.ts";
import { TensorKind } from "./weights.ts";

/** auto: Q8_0 and Q4_0 blocks of a GGUF file stay what they are, all else is plain. none: all is plain. int8, int4, fp8:
 *  plain matrices are rounded; the embedding and the vocabulary projection, of which everything hangs, int4 keeps in int8
 *  and fp8 as they are. */
export const quantNames = ["auto", "none", "int8", "int4", "fp8"] as const;
export type Quant = (typeof quantNames)[number];

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
  20: matrixFormats.int8,
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
    const [first, ...rest] = kinds.map((kind) => byPlace.get(placeOf(kind, layer)));
    const isUniform = rest.every((dtype) => dtype === first);
    const stored = isUniform && first !== undefined ? storedFormats[first] : undefined;
    if (quant === "auto") return stored ?? matrixFormats.plain;
    const isVocabulary = kinds[0] === TensorKind.embed || kinds[0] === TensorKind.lmHead;
    if (quant === "fp8") return isVocabulary ? matrixFormats.plain : matrixFormats.fp8;
    if (quant === "int8" || isVocabulary) return stored ?? matrixFormats.int8;
    return matrixFormats.int4;
  };
  const formats = [formatOf([TensorKind.embed], 0), formatOf([TensorKind.lmHead], 0)];
  for (let layer = 0; layer < layers; layer += 1) {
    formats.push(...layerMatrices.map((kinds) => formatOf(kinds, layer)));
  }
  return formats;
}

function placeOf(tensor: number, layer: number): string {
  return `${layer} ${tensor}`;
}
