/** Writes random weights as safetensors in pieces, so that memory stays constant for any model size. */
import { closeSync, openSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { SeededRandom } from "../../base/random.ts";
import type { NamedTensor } from "../../model/weights.ts";

/** Tensor of the file: bf16 numbers, or bytes that are parts of another tensor's MXFP4 blocks. */
export interface WrittenTensor extends NamedTensor {
  readonly part?: "blocks" | "scales";
  readonly of?: NamedTensor;
}

export interface WeightOptions {
  readonly seed: number;
  /** Distribution of a tensor's weights. */
  readonly spreadOf: (tensor: NamedTensor) => Spread;
  /** Maximum bytes of a weight file; each file has at least one tensor. */
  readonly shardBytesMax: number;
  readonly onProgress: (doneBytes: number, totalBytes: number) => void;
}

/** Normal distribution. */
export interface Spread {
  readonly mean: number;
  readonly sigma: number;
}

const bytesPerWeight = 2;
/** Root mean square of the e2m1 values: 0, 0.5, 1, 1.5, 2, 3, 4 and 6 of either sign. */
const e2m1Size = 2.926;
/** Number of weights per piece; even, because weights are drawn in pairs. */
const pieceWeights = 1 << 21;

/**
 * Writes model.safetensors, or shards and their index. Each tensor has its own random stream, seeded by its
 * name.
 */
export function writeWeights(
  folder: string,
  tensors: readonly WrittenTensor[],
  options: WeightOptions,
): void {
  const totalBytes = tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
  const shards = shardsOf(tensors, options.shardBytesMax);
  const random = new SeededRandom(options.seed);
  const tables = new Map<string, Uint16Array>();
  const tableOf = ({ mean, sigma }: Spread): Uint16Array => {
    const key = `${mean} ${sigma}`;
    const known = tables.get(key) ?? normalTable(random.child("normals"), mean, sigma);
    tables.set(key, known);
    return known;
  };
  const weightMap: Record<string, string> = {};
  let doneBytes = 0;
  shards.forEach((shard, index) => {
    const name = shards.length === 1 ? "model.safetensors" : shardName(index + 1, shards.length);
    const file = openSync(join(folder, name), "wx");
    try {
      writeAll(file, headerOf(shard));
      for (const tensor of shard) {
        weightMap[tensor.name] = name;
        const own = random.child(tensor.name);
        const spread = options.spreadOf(tensor.of ?? tensor);
        for (const piece of tensor.part
          ? bytesOf(tensor, own, spread)
          : piecesOf(tensor, own, tableOf(spread))) {
          writeAll(file, piece);
          doneBytes += piece.length;
          options.onProgress(doneBytes, totalBytes);
        }
      }
    } finally {
      closeSync(file);
    }
  });
  if (shards.length === 1) return;
  const json = { metadata: { total_size: totalBytes }, weight_map: weightMap };
  writeFileSync(join(folder, "model.safetensors.index.json"), `${JSON.stringify(json, null, 2)}\n`);
}

export function parametersOf(tensors: readonly NamedTensor[]): number {
  return tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0) / bytesPerWeight;
}

/**
 * Tensors of a folder with experts in gpt-oss's format: blocks of 32 numbers along a row, and their
 * exponents.
 */
export function withMxfp4Experts(tensors: readonly NamedTensor[]): WrittenTensor[] {
  return tensors.flatMap((tensor): WrittenTensor[] => {
    const [experts, cols, rows] = tensor.shape;
    if (tensor.shape.length < 3) return [tensor];
    const groups = [experts!, rows!, cols! / 32];
    return [
      { ...tensor, name: `${tensor.name}_blocks`, shape: [...groups, 16], part: "blocks", of: tensor },
      { ...tensor, name: `${tensor.name}_scales`, shape: groups, part: "scales", of: tensor },
    ];
  });
}

function tensorBytes({ shape, part }: WrittenTensor): number {
  return shape.reduce((product, size) => product * size, part ? 1 : bytesPerWeight);
}

function shardsOf(tensors: readonly WrittenTensor[], bytesMax: number): WrittenTensor[][] {
  const shards: WrittenTensor[][] = [];
  let shardBytes = Number.POSITIVE_INFINITY;
  for (const tensor of tensors) {
    const bytes = tensorBytes(tensor);
    if (shardBytes + bytes > bytesMax) {
      shards.push([]);
      shardBytes = 0;
    }
    shards.at(-1)!.push(tensor);
    shardBytes += bytes;
  }
  return shards;
}

function shardName(number: number, count: number): string {
  const digits = (value: number): string => String(value).padStart(5, "0");
  return `model-${digits(number)}-of-${digits(count)}.safetensors`;
}

/** File header: length and JSON, padded with spaces so that the data begins at a multiple of 8 bytes. */
function headerOf(tensors: readonly WrittenTensor[]): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let offset = 0;
  for (const tensor of tensors) {
    const end = offset + tensorBytes(tensor);
    header[tensor.name] = {
      dtype: tensor.part ? "U8" : "BF16",
      shape: tensor.shape,
      data_offsets: [offset, end],
    };
    offset = end;
  }
  const json = JSON.stringify(header);
  const text = new TextEncoder().encode(json.padEnd(Math.ceil(json.length / 8) * 8));
  const bytes = new Uint8Array(8 + text.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

/** Yields the tensor's bytes in pieces that share one buffer. */
function* piecesOf(tensor: NamedTensor, random: SeededRandom, table: Uint16Array): Generator<Uint8Array> {
  const bytes = tensorBytes(tensor);
  const weights = new Uint16Array(Math.min(pieceWeights, bytes / bytesPerWeight + 1));
  for (let done = 0; done < bytes; done += weights.byteLength) {
    const piece = new Uint8Array(weights.buffer, 0, Math.min(weights.byteLength, bytes - done));
    fillRandom(weights, random, table);
    yield piece;
  }
}

/**
 * Yields bytes of MXFP4 parts: random pairs of e2m1, or exponents. About half of the exponents match the
 * spread's size; the others are one lower.
 */
function* bytesOf(tensor: WrittenTensor, random: SeededRandom, { sigma }: Spread): Generator<Uint8Array> {
  const bytes = tensorBytes(tensor);
  const exponent = 127 + Math.round(Math.log2(sigma / e2m1Size));
  for (let done = 0; done < bytes; done += pieceWeights) {
    const piece = new Uint8Array(Math.min(pieceWeights, bytes - done));
    const words = new Uint32Array(Math.ceil(piece.length / 4));
    for (let i = 0; i < words.length; i += 1) words[i] = random.uint32();
    piece.set(new Uint8Array(words.buffer, 0, piece.length));
    yield tensor.part === "blocks" ? piece : piece.map((byte) => exponent - (byte & 1));
  }
}

function fillRandom(weights: Uint16Array, random: SeededRandom, table: Uint16Array): void {
  for (let i = 0; i < weights.length; i += 2) {
    const bits = random.uint32();
    weights[i] = table[bits & 0xffff]!;
    weights[i + 1] = table[bits >>> 16]!;
  }
}

/**
 * Table of 65 536 bf16 normal numbers with exactly this mean, indexed by 16 random bits: much cheaper than a
 * logarithm per weight. Box and Muller's method, with each number also negated.
 */
function normalTable(random: SeededRandom, mean: number, sigma: number): Uint16Array {
  const table = new Uint16Array(1 << 16);
  for (let i = 0; i < table.length; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - random.unit()));
    const normal = sigma * radius * Math.cos(2 * Math.PI * random.unit());
    table[i] = bfloat16(mean + normal);
    table[i + 1] = bfloat16(mean - normal);
  }
  return table;
}

/** Upper half of a float32, rounded half up in magnitude. */
function bfloat16(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  return (bits + 0x8000) >>> 16;
}

function writeAll(file: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done, bytes.length - done);
}
