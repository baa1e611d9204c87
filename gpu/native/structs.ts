/**
 * Encodes the structs and flags of csrc/include/engine.h and adapters.h, at the byte offsets that
 * csrc/boundary/engine.cpp asserts.
 */
import type { QuantisedSource } from "../../model/quantisation.ts";
import { rotationOf } from "../../model/rope.ts";
import { type LayerShape, layersWithHead, type ModelShape, type Router } from "../../model/shape.ts";
import type { ModelTensor } from "../../model/weights.ts";
import { NativeError } from "./native-error.ts";
import { type Isa, isaNames } from "./probes.ts";

/** Computation settings of a model; with a ModelShape they make a bunting_model_shape. */
export interface ComputeOptions {
  /** bf16: weights, operands and KV in bf16 with f32 sums; f32: everything in f32. */
  readonly compute: "bf16" | "f32";
  readonly isa: Isa | "auto";
  /** Number of threads that pack weights during loading, ≥ 1. */
  readonly threads: number;
  /**
   * Formats of matrices, values of `matrixFormats` in the order of engine.h: embedding, vocabulary
   * projection, seven per layer (a head's last), the table of layer inputs, then three per layer if any is recurrent. Absent: all
   * plain.
   */
  readonly formats?: readonly number[];
  /**
   * KV cache type: plain (as `compute`), or with bf16 also int8 and int4 (CPU engines) or fp8 (GPUs). Absent: plain.
   */
  readonly kv?: KvFormat;
}

/** BUNTING_KV_* names in order. */
export const kvFormats = ["plain", "int8", "fp8", "int4"] as const;
export type KvFormat = (typeof kvFormats)[number];

/** BUNTING_GEMM_* names in order. */
export const gemmNames = ["own", "cublaslt"] as const;
export type GemmChoice = (typeof gemmNames)[number];

/** Fields of bunting_engine_limits; engine.h explains them. */
export interface EngineLimits {
  readonly threads: number;
  readonly pages: number;
  readonly pageTokens: number;
  readonly stepTokensMax: number;
  readonly stepChunksMax: number;
  /** Absent: one for each chunk. */
  readonly stepDrawsMax?: number;
  /** Absent: one for each chunk. */
  readonly stepHiddenMax?: number;
  readonly topLogprobsMax: number;
  /** Slots for recurrent states; absent: none. */
  readonly states?: number;
  /** Maximum draft tokens after a chunk, from the model's own head or a draft model; ≤ 8. Absent: none. */
  readonly draftsMax?: number;
  /** Slots for LoRA adapters, and their highest rank. Absent: none. */
  readonly adaptersMax?: number;
  readonly adapterRankMax?: number;
  /** GPUs that compute one step together: exactly one today. Absent for CPU engines. */
  readonly devices?: readonly number[];
  /** Library for unquantized matrix products on a GPU; absent: own. */
  readonly gemm?: GemmChoice;
}

/** Flags BUNTING_PAIRED_ROWS and BUNTING_ONE_LESS. */
const pairedRows = 256;
const oneLess = 512;
/** Flags BUNTING_EVERY_SECOND, BUNTING_GROUPED_HEADS, BUNTING_TRANSPOSED and BUNTING_HALF_ROWS. */
const everySecond = 1024;
const groupedHeads = 4096;
const transposed = 2048;
const halfRows = 8192;
/** Flag BUNTING_KEYS_WITH_VALUES. */
const keysWithValues = 16384;
/** Flags BUNTING_GATED_HEADS, BUNTING_NEGATED_EXP and BUNTING_ROW_PER_HEAD. */
const gatedHeads = 32_768;
const negatedExp = 65_536;
const rowPerHead = 131_072;
/** Flags of a tensor's type for the order of its rows. */
export function rowFlags(
  stored: Omit<ModelTensor, "tensor" | "layer" | "path" | "offset" | "dtype" | "rows" | "cols">,
): number {
  return (
    (stored.pairedRows ? pairedRows : 0) +
    (stored.oneLess ? oneLess : 0) +
    (stored.everySecond ? everySecond : 0) +
    (stored.transposed ? transposed : 0) +
    (stored.halfRows ? halfRows : 0) +
    (stored.keysWithValues ? keysWithValues : 0) +
    (stored.groupedHeads ? groupedHeads : 0) +
    (stored.gatedHeads ? gatedHeads : 0) +
    (stored.negatedExp ? negatedExp : 0) +
    (stored.rowPerHead ? rowPerHead : 0)
  );
}

/** BUNTING_ISA_* value. */
export function isaNumber(isa: Isa | "auto"): number {
  return isa === "auto" ? -1 : isaNames.indexOf(isa);
}

/** Encodes NUL-terminated UTF-8, as the operating system expects. */
export function encodePath(path: string): Uint8Array {
  if (path.includes("\0"))
    throw new NativeError("io", `a path must not contain NUL: ${JSON.stringify(path)}`);
  const text = new TextEncoder().encode(path);
  const bytes = new Uint8Array(new ArrayBuffer(text.length + 1));
  bytes.set(text);
  return bytes;
}

/** Address of an array's storage. */
export type AddressOf = (bytes: Uint8Array) => number;

/** Encodes a bunting_factor; `path` must stay referenced while it is used. */
export function encodeFactor(
  path: Uint8Array,
  offset: number,
  dtype: number,
  addressOf: AddressOf,
): Uint8Array {
  const bytes = new Uint8Array(new ArrayBuffer(24));
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(addressOf(path)), true);
  view.setBigUint64(8, BigInt(offset), true);
  view.setInt32(16, dtype, true);
  return bytes;
}

const shapeBytes = 240;
/** BUNTING_ROUTER_* names of scores in order. */
const scores: readonly Router["score"][] = ["chosen", "all", "sigmoid"];
/** BUNTING_MLP_* names in order. */
const mlps: readonly LayerShape["mlp"][] = [
  ...(["gated", "experts", "both", "plain", "shared", "sharedGated", "none", "sharedPlain"] as const),
];
/** BUNTING_MIXER_* values. */
const mixers = { attention: 0, latent: 1, delta: 2, ssm: 3, conv: 4, attentionAndSsm: 5, none: 6 } as const;
/** BUNTING_STATE_NORM_* values. */
const stateNorms = { none: 0, heads: 2, groups: 4, wide: 8 } as const;
/** BUNTING_QK_NORM_* names in order. */
const qkNorms: readonly LayerShape["qkNorm"][] = ["none", "head", "wide", "rotated", "unit"];
/** BUNTING_ACTIVATION_* names in order. */
const activations: readonly ModelShape["activation"][] = [
  ...(["silu", "geluTanh", "clampedSwiglu", "gelu", "xielu", "reluSquared"] as const),
];
const layerBytes = 80;
const ropeBytes = 32;

/** Encodes a bunting_quantised. */
export function encodeQuantised(source: QuantisedSource): Uint8Array {
  const bytes = new Uint8Array(new ArrayBuffer(48));
  const view = new DataView(bytes.buffer);
  const { layout, number, bits, zeroAdded, groupRows, groupCols, scaleType, isDivided, nested } = source;
  for (const [index, value] of [layout, number, bits, zeroAdded].entries())
    view.setInt32(index * 4, value, true);
  view.setBigInt64(16, BigInt(groupRows), true);
  view.setBigInt64(24, BigInt(groupCols), true);
  view.setInt32(32, scaleType, true);
  view.setInt32(36, isDivided ? 1 : 0, true);
  view.setBigInt64(40, BigInt(nested?.state.bytes ?? 0), true);
  return bytes;
}

/**
 * Encodes a bunting_model_shape: 16 int32, 7 float, 15 int32, a float, an int32, then the addresses of
 * layers, ropes and formats, 6 int32 and 2 float of recurrent layers, 4 int32 and a float of latent
 * attention, and an int32 of the draft head. Layers, ropes, the ropes' frequencies and formats follow it in
 * the same storage.
 */
export function encodeShape(shape: ModelShape, options: ComputeOptions, addressOf: AddressOf): Uint8Array {
  const { compute, isa, threads, formats = [], kv = "plain" } = options;
  const rotations = shape.ropes.map((rope) => rotationOf(rope, shape.contextMax));
  const layersAt = shapeBytes;
  const layers = layersWithHead(shape);
  const ropesAt = layersAt + layers.length * layerBytes;
  const frequenciesAt = ropesAt + rotations.length * ropeBytes;
  const formatsAt = rotations.reduce((at, { frequencies }) => at + frequencies.byteLength, frequenciesAt);
  const struct = new Uint8Array(new ArrayBuffer(formatsAt + formats.length));
  const view = new DataView(struct.buffer);
  const writeIntegers = (at: number, values: readonly number[]): void =>
    values.forEach((value, index) => {
      view.setInt32(at + index * 4, value, true);
    });
  const writeAddress = (at: number, target: number): void =>
    view.setBigUint64(at, BigInt(addressOf(struct)) + BigInt(target), true);

  writeIntegers(0, [
    ...[layers.length, shape.hidden, shape.feedForward],
    ...[shape.queryHeads, shape.kvHeads, shape.headSize, shape.vocab, shape.contextMax],
    ...[Number(shape.tiedEmbeddings), shape.norm === "rms" ? 0 : 1, activations.indexOf(shape.activation)],
    ...[rotations.length, compute === "f32" ? 0 : 2, isaNumber(isa), threads],
    kvFormats.indexOf(kv),
  ]);
  const reals = [
    ...[shape.normEpsilon, shape.attentionScale, shape.attentionCap],
    ...[shape.embeddingScale, shape.residualScale, shape.logitScale, shape.logitCap],
  ];
  reals.forEach((value, index) => {
    view.setFloat32(64 + index * 4, value, true);
  });
  view.setInt32(92, shape.layerInputs, true);
  const { experts } = shape;
  if (experts !== null) {
    writeIntegers(96, [experts.count, experts.used, experts.feedForward, scores.indexOf(experts.score)]);
    writeIntegers(140, [
      Number(experts.biased) | (Number(experts.normalised) << 1) | (Number(experts.scalesInput) << 2),
      experts.groups,
      experts.groupsUsed,
    ]);
    view.setFloat32(152, experts.scale, true);
  }
  const { encoder } = shape;
  writeIntegers(112, [
    ...[Number(encoder !== undefined), Number(shape.norm === "biasedLayer")],
    ...[Number(encoder?.finalNorm === false), Number(encoder?.embeddingNorm ?? false)],
    ...[encoder?.positions ?? 0, encoder?.positionOffset ?? 0, encoder?.tokenTypes ?? 0],
  ]);
  const { states } = shape;
  if (states !== undefined) {
    const { convBias, norm, gateFirst, skip, tiledHeads } = states;
    writeIntegers(184, [
      ...[states.keyHeads, states.heads, states.keySize, states.valueSize, states.conv],
      Number(convBias) |
        stateNorms[norm] |
        (Number(gateFirst) << 4) |
        (Number(skip) << 5) |
        (Number(tiledHeads) << 6),
    ]);
    view.setFloat32(208, states.dtMin, true);
    view.setFloat32(212, states.dtMax, true);
  }
  const { latent } = shape;
  if (latent !== undefined) {
    writeIntegers(216, [latent.rank, latent.queryRank, latent.keySize, latent.valueSize]);
    view.setFloat32(232, latent.normEpsilon, true);
  }
  const { head } = shape;
  if (head !== undefined)
    view.setInt32(236, 1 | (Number(head.isNormed) << 1) | (Number(head.isHiddenFirst) << 2), true);
  writeAddress(160, layersAt);
  view.setInt32(156, shape.streams ?? 1, true);
  for (const [index, layer] of layers.entries()) {
    const at = layersAt + index * layerBytes;
    writeIntegers(at, layerWords(layer));
    view.setFloat32(at + 76, layer.gateCutoff ?? 0, true);
  }
  if (rotations.length > 0) writeAddress(168, ropesAt);
  let next = frequenciesAt;
  rotations.forEach(({ frequencies, magnitude }, index) => {
    const at = ropesAt + index * ropeBytes;
    const { queries } = shape.ropes[index]!;
    view.setInt32(at, 2 * frequencies.length, true);
    view.setFloat32(at + 4, magnitude, true);
    writeAddress(at + 8, next);
    view.setFloat32(at + 16, queries?.growth ?? 0, true);
    view.setInt32(at + 20, queries?.span ?? 0, true);
    view.setInt32(at + 24, queries?.offset ?? 0, true);
    for (const frequency of frequencies) {
      view.setFloat64(next, frequency, true);
      next += Float64Array.BYTES_PER_ELEMENT;
    }
  });
  if (formats.length > 0) {
    struct.set(formats, formatsAt);
    writeAddress(176, formatsAt);
  }
  return struct;
}

/** Words of a bunting_layer_shape. */
function layerWords(layer: LayerShape): number[] {
  const { biases } = layer;
  const before = layer.parallel ? 1 : 1 | 4;
  const parts = (layer.mixer === "none" ? 0 : 1 | 2 | 16) | (layer.mlp === "none" ? 0 : 4 | 8 | 32);
  const norms = { before, after: 2 | 8, around: 15, sums: 16 | 32, beforeMlp: 4 }[layer.norms] & parts;
  return [
    ...[mixers[layer.mixer], mlps.indexOf(layer.mlp), norms],
    [biases.qkv, biases.o, biases.gateUp, biases.down, biases.router].reduce(
      (set, has, bit) => set | (Number(has) << bit),
      0,
    ),
    qkNorms.indexOf(layer.qkNorm),
    layer.rope ?? -1,
    layer.slidingWindow,
    Number(layer.sinks),
    Number(layer.parallel),
    ...[layer.ownSizes.headSize ?? 0, layer.ownSizes.kvHeads ?? 0, layer.ownSizes.feedForward ?? 0],
    Number(layer.valuesAreKeys) | (Number(layer.valueNorm) << 1),
    layer.kvLayersBack,
    Number(layer.scaled),
    Number(layer.chunked),
    Number(layer.gatedOutput),
    ...[layer.laurelRank, Number(layer.gateCutoff !== null)],
  ];
}

/** BUNTING_DEVICES_MAX. */
const devicesMax = 8;

/** Encodes a bunting_engine_limits: 10 int32, the devices, then 4 int32. */
export function encodeLimits(limits: EngineLimits): Uint8Array {
  const { threads, pages, pageTokens, stepTokensMax, stepChunksMax, topLogprobsMax } = limits;
  const { stepDrawsMax = stepChunksMax, stepHiddenMax = stepChunksMax } = limits;
  const { devices = [], gemm = "own", states = 0, draftsMax = 0 } = limits;
  const { adaptersMax = 0, adapterRankMax = 0 } = limits;
  if (devices.length > devicesMax) {
    throw new NativeError("invalid", `${devices.length} devices for one engine; at most ${devicesMax}`);
  }
  const struct = new Int32Array(new ArrayBuffer((14 + devicesMax) * 4));
  struct.set([threads, pages, pageTokens, stepTokensMax, stepChunksMax]);
  struct.set([stepDrawsMax, stepHiddenMax, topLogprobsMax], 5);
  struct.set([gemmNames.indexOf(gemm), devices.length, ...devices], 8);
  struct.set([states, draftsMax, adaptersMax, adapterRankMax], 10 + devicesMax);
  return new Uint8Array(struct.buffer);
}
