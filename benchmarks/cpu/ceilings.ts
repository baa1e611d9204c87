/** Ceilings of the machine, and lower bounds of times by them. */
import { openLibrary } from "../../gpu/native.ts";
import { hasAttention, type LayerShape, type ModelShape } from "../../model/shape.ts";
import { ProcessorMeter } from "../../server/machine/measure.ts";
import type { Format, Streams } from "./engine.ts";

/** Rates of all threads together, per second. */
export interface Ceilings {
  readonly readBytes: number;
  readonly f32: number;
  readonly bf16: number;
  readonly int8: number;
}

/** Measures on all threads: the best of nine runs, since other programs can only lower a rate. */
export function measureCeilings(library: string, threads: number): Ceilings {
  return onMeter(library, threads, (meter) => {
    const { read, ...rates } = meter.ceilings(500, 9);
    return { readBytes: read, ...rates };
  });
}

/** Measures the current memory bandwidth, which varies; compute rates are steady. */
export function measureReadBytes(library: string, threads: number): number {
  return onMeter(library, threads, (meter) => meter.ceiling("read", 300, 1));
}

function onMeter<Result>(
  library: string,
  threads: number,
  measure: (meter: ProcessorMeter) => Result,
): Result {
  const meter = new ProcessorMeter(openLibrary(library), "auto", threads);
  try {
    return measure(meter);
  } finally {
    meter.close();
  }
}

/**
 * Lower bound of a prompt's time: matrices, attention scores and outputs. The vocabulary projection counts
 * once, for the last row. Recurrences count for nothing.
 */
export function prefillFloorSeconds(
  shape: ModelShape,
  tokens: number,
  format: Format,
  ceilings: Ceilings,
): number {
  const matrices = 2 * tokens * layerWeights(shape) + 2 * shape.hidden * shape.vocab;
  const attention = 2 * tokens * tokens * queryWidth(shape) * attending(shape);
  return matrices / rateOf(format, ceilings) + attention / ceilings.bf16;
}

/** Lower bound of a decode step: reading weights and pages once, or computing. */
export function decodeFloorSeconds(
  shape: ModelShape,
  weightBytes: number,
  { streams, contextTokens, sharedTokens }: Streams,
  format: Format,
  ceilings: Ceilings,
): number {
  const positions = sharedTokens + streams * (contextTokens - sharedTokens);
  const pageBytes = positions * attending(shape) * 2 * shape.kvHeads * shape.headSize * 2;
  const matrices = 2 * streams * (layerWeights(shape) + shape.hidden * shape.vocab);
  const notRead = weightBytes * unusedShare(shape, streams);
  const attention = 4 * streams * contextTokens * queryWidth(shape) * attending(shape);
  const reading = (weightBytes - notRead + pageBytes) / ceilings.readBytes;
  return Math.max(reading, matrices / rateOf(format, ceilings) + attention / ceilings.bf16);
}

/** Weights of all layers that one token is multiplied with; of experts, those that it uses. */
function layerWeights(shape: ModelShape): number {
  return mixerWeights(shape) + shape.layers.length * (experts(shape)?.used ?? 1) * mlpWeights(shape);
}

/** Number of layers with attention. */
function attending({ layers }: ModelShape): number {
  return layers.filter(hasAttention).length;
}

/** Weights of the attention and the recurrent parts of all layers. */
function mixerWeights(shape: ModelShape): number {
  return shape.layers.reduce((sum, layer) => sum + layerMixerWeights(shape, layer), 0);
}

function layerMixerWeights(shape: ModelShape, layer: LayerShape): number {
  if (hasAttention(layer)) {
    const outputs = layer.gatedOutput ? 3 : 2;
    return shape.hidden * (outputs * queryWidth(shape) + 2 * shape.kvHeads * shape.headSize);
  }
  const { keyHeads, heads, keySize, valueSize } = shape.states!;
  return shape.hidden * (2 * keyHeads * keySize + 3 * heads * valueSize + 2 * heads);
}

/** Weights of a layer's MLP, or of one of its experts. */
function mlpWeights(shape: ModelShape): number {
  return 3 * shape.hidden * (experts(shape)?.feedForward ?? shape.feedForward);
}

/** Experts of the layers; null: none. The measured models have them in all layers or in none. */
function experts({ layers, experts }: ModelShape): ModelShape["experts"] {
  return layers.every(({ mlp }) => mlp === "experts") ? experts : null;
}

/**
 * Share of all weights that a step of `streams` streams does not read: a separate embedding table, and
 * experts that no stream uses, if each uses random ones.
 */
function unusedShare(shape: ModelShape, streams: number): number {
  const { count, used } = experts(shape) ?? { count: 1, used: 1 };
  const vocabulary = shape.hidden * shape.vocab;
  const rest = mixerWeights(shape) + vocabulary;
  const mixtures = shape.layers.length * count * mlpWeights(shape);
  const embedding = shape.tiedEmbeddings ? 0 : vocabulary;
  return (embedding + mixtures * (1 - used / count) ** streams) / (embedding + rest + mixtures);
}

function queryWidth({ queryHeads, headSize }: ModelShape): number {
  return queryHeads * headSize;
}

function rateOf(format: Format, ceilings: Ceilings): number {
  return format === "bf16" ? ceilings.bf16 : ceilings.int8;
}
