/** Work of a model's matrices and attention per token, for estimates of its speed. */

import { formatsIn } from "./formats.ts";
import { matrixFormats } from "./matrix-formats.ts";
import type { ModelFolder } from "./model-folder.ts";
import { hasAttention, hasExperts, layerSizes, type ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";

/** Matrices of one format that the same tokens are multiplied with. */
export interface MatrixWork {
  /** Value of `matrixFormats`, or a stored type. */
  readonly format: number;
  /** Number of weights in all of these matrices. */
  readonly numbers: number;
  /** Share of the weights that a token is multiplied with: less than 1 for experts. */
  readonly share: number;
  /** `drawn`: only tokens after which one is sampled are multiplied with them. */
  readonly tokens: "all" | "drawn";
}

export interface ModelWork {
  readonly matrices: readonly MatrixWork[];
  /** Bytes of keys and values per position, in bf16. */
  readonly positionBytes: number;
  /** Attention operations per token and context position. */
  readonly positionOperations: number;
}

/** Kinds whose tensors belong to experts in layers that have them. */
const ofExperts: readonly number[] = [TensorKind.gate, TensorKind.up, TensorKind.down];

/** Work of a model with these tensors, in formats that `formatsOf` chose. Leaves out a draft head. */
export function workOf(
  { tensors, config: { shape } }: Pick<ModelFolder, "tensors" | "config">,
  formats: readonly number[],
): ModelWork {
  const formatOf = formatsIn(tensors, formats);
  const groups = new Map<string, MatrixWork>();
  for (const tensor of tensors) {
    const { tensor: kind, layer, rows, cols } = tensor;
    const isTied = kind === TensorKind.embed && shape.tiedEmbeddings;
    const isTable = (kind === TensorKind.embed && !isTied) || kind === TensorKind.layerEmbed;
    const ofLayer = shape.layers[layer];
    if (rows === 1 || isTable || ofLayer === undefined) continue;
    const format = formatOf(tensor) ?? matrixFormats.plain;
    const isExpert = hasExperts(ofLayer) && ofExperts.includes(kind);
    const share = isExpert ? shape.experts!.used / shape.experts!.count : 1;
    const tokens = isTied || kind === TensorKind.lmHead ? "drawn" : "all";
    const key = `${format} ${share} ${tokens}`;
    const numbers = (groups.get(key)?.numbers ?? 0) + rows * cols;
    groups.set(key, { format, numbers, share, tokens });
  }
  return { matrices: [...groups.values()], ...attentionWork(shape) };
}

function attentionWork(shape: ModelShape): Pick<ModelWork, "positionBytes" | "positionOperations"> {
  let positionBytes = 0;
  let positionOperations = 0;
  for (const layer of shape.layers.filter(hasAttention)) {
    const { kvHeads, headSize } = layerSizes(layer, shape);
    positionBytes += 2 * 2 * kvHeads * headSize;
    positionOperations += 4 * shape.queryHeads * headSize;
  }
  return { positionBytes, positionOperations };
}
