/** Tensors of latent attention. */
import type { Latent, ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";

/** Tensors that a file may have in one matrix, per head. */
export const latentKinds: readonly number[] = [TensorKind.latentKeys, TensorKind.latentValues];

/** Tensors of a layer, with shapes as in engine.h. */
export function latentTensors(
  { rank, queryRank, keySize, valueSize }: Latent,
  { hidden, headSize, queryHeads }: ModelShape,
): [isThere: boolean, tensor: number, ...size: number[]][] {
  const queryWidth = queryHeads * (keySize + headSize - rank);
  return [
    [queryRank > 0, TensorKind.queryLatent, queryRank, hidden],
    [queryRank > 0, TensorKind.qNorm, queryRank],
    [true, TensorKind.q, queryWidth, queryRank > 0 ? queryRank : hidden],
    [true, TensorKind.k, headSize, hidden],
    [true, TensorKind.kNorm, rank],
    [true, TensorKind.latentKeys, queryHeads * rank, keySize],
    [true, TensorKind.latentValues, queryHeads * valueSize, rank],
    [true, TensorKind.o, hidden, queryHeads * valueSize],
  ];
}
