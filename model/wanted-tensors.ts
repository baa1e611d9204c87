/** Tensors that a model of a shape must have, with their shapes. */
import type { ModelConfig } from "./config.ts";
import { latentTensors } from "./latent-tensors.ts";
import {
  hasAttention,
  hasExperts,
  type LayerShape,
  layerSizes,
  layersWithHead,
  type ModelShape,
} from "./shape.ts";
import { type SizedTensor, stateTensors } from "./state-tensors.ts";
import { TensorKind } from "./tensor-kinds.ts";

/** Tensor that a model must have. */
export interface WantedTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  readonly layer: number;
  /** Null if it belongs to no expert. */
  readonly expert: number | null;
  /** [rows, cols], or the length of a vector. */
  readonly shape: readonly number[];
  /** True for the projection of q from a latent of queries. */
  readonly ofQueryLatent?: boolean;
  /** True for tensors of the head that drafts, whose layer follows the model's. */
  readonly ofHead?: boolean;
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
  // For residual streams after the first, the layer index is the stream's number minus 1.
  for (const tensor of [TensorKind.streamIn, TensorKind.streamOut])
    for (let layer = 0; layer + 1 < (shape.streams ?? 1); layer += 1)
      wanted.push({ tensor, layer, expert: null, shape: [hidden, hidden] });
  layersWithHead(shape).forEach((has, layer) => {
    const ofHead = layer === shape.layers.length ? { ofHead: true } : {};
    const hasQueryLatent = has.mixer === "latent" && shape.latent!.queryRank > 0;
    for (const [tensor, size] of layerTensors(has, shape)) {
      const ofQueryLatent = hasQueryLatent && tensor === TensorKind.q;
      wanted.push({
        tensor,
        layer,
        expert: null,
        shape: size,
        ...(ofQueryLatent && { ofQueryLatent }),
        ...ofHead,
      });
    }
    for (const [tensor, expert, size] of expertTensors(has, shape))
      wanted.push({ tensor, layer, expert, shape: size, ...ofHead });
    if (layer < shape.layers.length) return;
    for (const [tensor, size] of headTensors(shape))
      wanted.push({ tensor, layer, expert: null, shape: size, ...ofHead });
  });
  for (const [tensor, size] of finalNormTensors(shape))
    wanted.push({ tensor, layer: 0, expert: null, shape: size });
  if (!shape.tiedEmbeddings) {
    wanted.push({ tensor: TensorKind.lmHead, layer: 0, expert: null, shape: [vocab, hidden] });
  }
  return wanted;
}

/** Tensors that a head has beside its layer. */
function headTensors({ hidden }: ModelShape): SizedTensor[] {
  return [
    [TensorKind.headEmbedNorm, [hidden]],
    [TensorKind.headHiddenNorm, [hidden]],
    [TensorKind.headProjection, [hidden, 2 * hidden]],
    [TensorKind.headNorm, [hidden]],
  ];
}

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
    [layer.mlp !== "sharedPlain", TensorKind.gate, feedForward, hidden],
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

export const xieluKinds: readonly number[] = [
  TensorKind.xieluAlphaP,
  TensorKind.xieluAlphaN,
  TensorKind.xieluBeta,
  TensorKind.xieluEps,
];

export const streamKinds: readonly number[] = [TensorKind.streamIn, TensorKind.streamOut];

/** Tensors of a layer beside its experts, with shapes as in engine.h. */
function layerTensors(has: LayerShape, shape: ModelConfig["shape"]): [tensor: number, size: number[]][] {
  const { hidden, layerInputs, streams = 1 } = shape;
  const { headSize, kvHeads, feedForward } = layerSizes(has, shape);
  const latent = has.mixer === "latent" ? shape.latent! : null;
  const queryWidth = shape.queryHeads * headSize;
  const keyWidth = kvHeads * headSize;
  const attends = hasAttention(has);
  const hasMixer = has.mixer !== "none";
  const hasMlp = has.mlp !== "none";
  const hasKeys = attends && has.kvLayersBack === 0;
  const hasBoth = has.mlp === "both";
  const hasShared = ["shared", "sharedGated", "sharedPlain"].includes(has.mlp);
  const hasInputs = layerInputs > 0;
  const hasStreams = streams > 1;
  const isWide = has.qkNorm === "wide";
  const hasNorms = attends && has.qkNorm !== "none" && has.qkNorm !== "unit";
  const hasPostNorms = ["after", "around", "sums"].includes(has.norms);
  const hasPreNorms = has.norms === "before" || has.norms === "around";
  const hasAttentionNorm = hasMixer && hasPreNorms;
  const hasMlpNorm = hasMlp && !has.parallel && (hasPreNorms || has.norms === "beforeMlp");
  const areBiased = shape.norm === "biasedLayer";
  const isMixed = hasExperts(has);
  const isDense = hasMlp && !isMixed;
  const hasGate = has.mlp === "gated";
  const tensors: [isThere: boolean, tensor: number, ...size: number[]][] = [
    [hasAttentionNorm, TensorKind.attentionNorm, hidden],
    [hasAttentionNorm && areBiased, TensorKind.attentionNormBias, hidden],
    ...(latent === null
      ? ([
          [attends, TensorKind.q, queryWidth, hidden],
          [attends && has.gatedOutput, TensorKind.qGate, queryWidth, hidden],
          [hasKeys, TensorKind.k, keyWidth, hidden],
          [hasKeys && !has.valuesAreKeys, TensorKind.v, keyWidth, hidden],
          [attends, TensorKind.o, hidden, queryWidth],
        ] satisfies [boolean, number, number, number][])
      : latentTensors(latent, shape)),
    [attends && has.biases.qkv, TensorKind.qBias, queryWidth],
    [attends && has.biases.qkv, TensorKind.kBias, keyWidth],
    [attends && has.biases.qkv, TensorKind.vBias, keyWidth],
    [attends && has.biases.o, TensorKind.oBias, hidden],
    [hasNorms, TensorKind.qNorm, isWide ? queryWidth : headSize],
    [hasKeys && hasNorms, TensorKind.kNorm, isWide ? keyWidth : headSize],
    [has.sinks, TensorKind.sinks, shape.queryHeads],
    [hasPostNorms, TensorKind.attentionPostNorm, hidden],
    [hasPostNorms && areBiased, TensorKind.attentionPostNormBias, hidden],
    [hasMlpNorm, TensorKind.mlpNorm, hidden],
    [hasMlpNorm && areBiased, TensorKind.mlpNormBias, hidden],
    [isMixed, TensorKind.router, shape.experts?.count ?? 0, hidden],
    [has.biases.router, TensorKind.routerBias, shape.experts?.count ?? 0],
    [isMixed && shape.experts!.biased, TensorKind.choiceBias, shape.experts?.count ?? 0],
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
    [(hasBoth || hasShared) && has.mlp !== "sharedPlain", TensorKind.besideGate, feedForward, hidden],
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
    [hasStreams, TensorKind.streamRouter, streams, hidden],
    [hasStreams, TensorKind.streamNorm, hidden],
    [hasStreams, TensorKind.streamPredict, streams * streams, streams],
    [hasStreams, TensorKind.streamCorrect, streams, streams],
    [hasStreams, TensorKind.streamScale, hidden],
    [has.laurelRank > 0, TensorKind.laurelIn, has.laurelRank, hidden],
    [has.laurelRank > 0, TensorKind.laurelOut, hidden, has.laurelRank],
    [has.laurelRank > 0, TensorKind.laurelNorm, hidden],
  ];
  const there = tensors.filter(([isThere]) => isThere);
  return [...there.map(([, tensor, ...size]): SizedTensor => [tensor, size]), ...stateTensors(has, shape)];
}
