/** Random weights as safetensors, written in pieces: memory does not grow with the model. */
import { closeSync, openSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { WantedTensor } from "../../gpu/model/weights.ts";
import { SeededRandom } from "../../scheduler/random.ts";

export interface WeightOptions {
  readonly seed: number;
  /** Standard deviation of everything but norms, which are 1. */
  readonly sigma: number;
  /** Weights of more bytes than this are cut into files of at most so many, each with at least one tensor. */
  readonly shardBytesMax: number;
  readonly onProgress: (doneBytes: number, totalBytes: number) => void;
}

const bytesPerWeight = 2;
/** Weights made and written at once; even, since they are drawn in pairs. */
const pieceWeights = 1 << 21;

/** Writes model.safetensors, or shards and their index. Each tensor has a random stream of its own, by its name. */
export function writeWeights(folder: string, tensors: readonly WantedTensor[], options: WeightOptions): void {
  const totalBytes = tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
  const shards = shardsOf(tensors, options.shardBytesMax);
  const random = new SeededRandom(options.seed);
  const table = normalTable(random.child("normals"), options.sigma);
  const weightMap: Record<string, string> = {};
  let doneBytes = 0;
  shards.forEach((shard, index) => {
    const name = shards.length === 1 ? "model.safetensors" : shardName(index + 1, shards.length);
    const file = openSync(join(folder, name), "wx");
    try {
      writeAll(file, headerOf(shard));
      for (const tensor of shard) {
        weightMap[tensor.name] = name;
        for (const piece of piecesOf(tensor, random.child(tensor.name), table)) {
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

export function parametersOf(tensors: readonly WantedTensor[]): number {
  return tensors.reduce((sum, tensor) => sum + tensorBytes(tensor), 0) / bytesPerWeight;
}

function tensorBytes({ shape }: WantedTensor): number {
  return shape.reduce((product, size) => product * size, bytesPerWeight);
}

function shardsOf(tensors: readonly WantedTensor[], bytesMax: number): WantedTensor[][] {
  const shards: WantedTensor[][] = [];
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

/** Length and JSON, padded with spaces so that the data begins at a multiple of 8 bytes. */
function headerOf(tensors: readonly WantedTensor[]): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let offset = 0;
  for (const tensor of tensors) {
    const end = offset + tensorBytes(tensor);
    header[tensor.name] = { dtype: "BF16", shape: tensor.shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = JSON.stringify(header);
  const text = new TextEncoder().encode(json.padEnd(Math.ceil(json.length / 8) * 8));
  const bytes = new Uint8Array(8 + text.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

/** The tensor's bytes, one piece after the other in the same memory. */
function* piecesOf(tensor: WantedTensor, random: SeededRandom, table: Uint16Array): Generator<Uint8Array> {
  const bytes = tensorBytes(tensor);
  const weights = new Uint16Array(Math.min(pieceWeights, bytes / bytesPerWeight + 1));
  const isNorm = tensor.name.endsWith("norm.weight");
  for (let done = 0; done < bytes; done += weights.byteLength) {
    const piece = new Uint8Array(weights.buffer, 0, Math.min(weights.byteLength, bytes - done));
    if (isNorm) weights.fill(bfloat16(1));
    else fillRandom(weights, random, table);
    yield piece;
  }
}

function fillRandom(weights: Uint16Array, random: SeededRandom, table: Uint16Array): void {
  for (let i = 0; i < weights.length; i += 2) {
    const bits = random.uint32();
    weights[i] = table[bits & 0xffff]!;
    weights[i + 1] = table[bits >>> 16]!;
  }
}

/** 65 536 normal numbers of mean exactly 0 as bf16, to draw from with 16 random bits: much cheaper than a logarithm per
 *  weight. Box and Muller's method, each number also negated. */
function normalTable(random: SeededRandom, sigma: number): Uint16Array {
  const table = new Uint16Array(1 << 16);
  for (let i = 0; i < table.length; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - random.unit()));
    const normal = sigma * radius * Math.cos(2 * Math.PI * random.unit());
    table[i] = bfloat16(normal);
    table[i + 1] = bfloat16(-normal);
  }
  return table;
}

/** The upper half of the float32, rounded half up in magnitude. */
function bfloat16(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  return (bits + 0x8000) >>> 16;
}

function writeAll(file: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done, bytes.length - done);
}
