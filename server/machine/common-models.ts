/** Sizes of common models, for estimates of their speed. */

import { matrixFormats } from "../../model/matrix-formats.ts";
import { storedTypes } from "../../model/stored-types.ts";
import type { MatrixWork, ModelWork } from "../../model/work.ts";

export interface CommonModel {
  readonly name: string;
  readonly layers: number;
  readonly hidden: number;
  readonly feedForward: number;
  readonly queryHeads: number;
  readonly kvHeads: number;
  readonly headSize: number;
  readonly vocab: number;
  readonly experts?: { readonly count: number; readonly used: number };
}

/** Quantisations of files, as llama-quantize names them. */
export const commonQuants = ["Q4_K_M", "Q8_0"] as const;
export type CommonQuant = (typeof commonQuants)[number];

export const commonModels: readonly CommonModel[] = [
  dense("0.5B", 24, 896, 4864, [14, 2, 64], 151_936),
  dense("1B", 16, 2048, 8192, [32, 8, 64], 128_256),
  dense("3B", 28, 3072, 8192, [24, 8, 128], 128_256),
  dense("8B", 32, 4096, 14_336, [32, 8, 128], 128_256),
  dense("14B", 40, 5120, 17_408, [40, 8, 128], 151_936),
  { ...dense("30B-A3B", 48, 2048, 768, [32, 4, 128], 151_936), experts: { count: 128, used: 8 } },
];

function dense(
  name: string,
  layers: number,
  hidden: number,
  feedForward: number,
  [queryHeads, kvHeads, headSize]: readonly [number, number, number],
  vocab: number,
): CommonModel {
  return { name, layers, hidden, feedForward, queryHeads, kvHeads, headSize, vocab };
}

/**
 * Weights and operations of a model in a quantization. Q4_K_M stores some value and down projections in Q6_K.
 */
export function commonWork(model: CommonModel, quant: CommonQuant): ModelWork {
  const { layers, hidden, queryHeads, kvHeads, headSize, experts = { count: 1, used: 1 } } = model;
  const few = quant === "Q8_0" ? matrixFormats.q8_0 : storedTypes.Q4_K.number;
  const more = quant === "Q8_0" ? few : storedTypes.Q6_K.number;
  const better = Array.from({ length: layers }, (_, layer) => hasMoreBits(layer, layers)).filter(
    Boolean,
  ).length;
  const values = hidden * kvHeads * headSize;
  const others = hidden * (2 * queryHeads + kvHeads) * headSize;
  const projection = experts.count * hidden * model.feedForward;
  const share = experts.used / experts.count;
  const all = { tokens: "all" as const };
  const matrices: MatrixWork[] = [
    { ...all, format: few, numbers: layers * others + (layers - better) * values, share: 1 },
    { ...all, format: more, numbers: better * values, share: 1 },
    { ...all, format: few, numbers: (3 * layers - better) * projection, share },
    { ...all, format: more, numbers: better * projection, share },
    { tokens: "drawn", format: more, numbers: hidden * model.vocab, share: 1 },
  ];
  return {
    matrices,
    positionBytes: layers * 4 * kvHeads * headSize,
    positionOperations: layers * 4 * queryHeads * headSize,
  };
}

/** True for the layers that get more bits: the first and last eighth, and a third of the others. */
function hasMoreBits(layer: number, layers: number): boolean {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}
