/** Tensors of recurrent layers, with shapes as in engine.h. */
import { hasState, type LayerShape, type ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";

export type SizedTensor = [tensor: number, size: number[]];

/**
 * Tensors of a recurrent mixer. Those that lie in one stored tensor come in their order there: q, k, v in
 * DeltaNets and convolutions; z, x, B, C (which are z, v, k, q) and dt in Mamba-2.
 */
export function stateTensors(layer: LayerShape, { states, hidden }: ModelShape): SizedTensor[] {
  if (states === undefined || !hasState(layer)) return [];
  const { mixer } = layer;
  const { conv, convBias } = states;
  const isConv = mixer === "conv";
  const keyWidth = isConv ? hidden : states.keyHeads * states.keySize;
  const valueWidth = isConv ? hidden : states.heads * states.valueSize;
  const kind = TensorKind;
  const keys = [kind.stateK, kind.stateConvK, kind.stateConvKBias, keyWidth] as const;
  const queries = [kind.stateQ, kind.stateConvQ, kind.stateConvQBias, keyWidth] as const;
  const values = [kind.stateV, kind.stateConvV, kind.stateConvVBias, valueWidth] as const;
  const parts = mixer === "delta" || isConv ? [queries, keys, values] : [values, keys, queries];
  const convolved = isConv ? [queries] : parts;
  const projections = parts.map(([tensor, , , width]): SizedTensor => [tensor, [width, hidden]]);
  const gate: SizedTensor = [kind.stateZ, [valueWidth, hidden]];
  const ofHeads = (...tensors: number[]): SizedTensor[] =>
    tensors.map((tensor) => [tensor, [states.heads, hidden]]);
  const numbers = (tensor: number): SizedTensor => [tensor, [states.heads]];
  const normWidth = states.norm === "heads" ? states.valueSize : valueWidth;
  return [
    ...(isConv ? projections : mixer === "delta" ? [...projections, gate] : [gate, ...projections]),
    ...(isConv ? [] : mixer === "delta" ? ofHeads(kind.stateB, kind.stateA) : ofHeads(kind.stateA)),
    ...convolved.map(([, tensor, , width]): SizedTensor => [tensor, [width, conv]]),
    ...(convBias ? convolved.map(([, , tensor, width]): SizedTensor => [tensor, [width]]) : []),
    ...(isConv ? [] : [numbers(kind.stateDtBias), numbers(kind.stateALog)]),
    ...(isConv || !states.skip ? [] : [numbers(kind.stateD)]),
    ...(isConv || states.norm === "none" ? [] : [[kind.stateNorm, [normWidth]] satisfies SizedTensor]),
    [kind.stateO, [hidden, valueWidth]],
  ];
}
