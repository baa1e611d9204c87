/** PEFT folders with random LoRA adapters for tests, and models whose weights have them merged. */
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SeededRandom } from "../../base/random.ts";
import { openModelFolder } from "../../model/folder.ts";
import { numbersOf } from "../../model/numbers.ts";
import { readStoredTensors, type StoredTensor } from "../../model/safetensors.ts";
import { hasExperts } from "../../model/shape.ts";
import { TensorKind } from "../../model/tensor-kinds.ts";
import type { ModelTensor } from "../../model/weights.ts";
import { ggufName } from "./gguf-names.ts";
import type { GgufInput } from "./gguf-writer.ts";
import { editTensors } from "./headless-folder.ts";

export interface AdapterOptions {
  readonly seed: number;
  readonly rank: number;
  readonly alpha: number;
  /** Matrices to change, by their names in the model's folder. Default: all that may be. */
  readonly changes?: RegExp;
}

/** Numbers of a matrix, row by row. */
interface Matrix {
  readonly name: string;
  readonly shape: readonly [number, number];
  readonly values: Float32Array;
}

/** Factors of one matrix of the model. */
export interface Factors {
  /** Name of the matrix in the model's folder. */
  readonly name: string;
  readonly a: Matrix;
  readonly b: Matrix;
}

const kinds: readonly number[] = [
  ...[TensorKind.q, TensorKind.k, TensorKind.v, TensorKind.o, TensorKind.queryLatent],
  ...[TensorKind.gate, TensorKind.up, TensorKind.down],
  ...[TensorKind.besideGate, TensorKind.besideUp, TensorKind.besideDown],
  ...[TensorKind.stateQ, TensorKind.stateK, TensorKind.stateV, TensorKind.stateZ, TensorKind.stateO],
  ...[TensorKind.stateA, TensorKind.stateB],
];

/** Names of the matrices that adapters may change, in the model's folder. */
export function adaptable(model: string): ReadonlySet<string> {
  const { config, tensors } = openModelFolder(model);
  const isOfExpert = ({ tensor, layer }: ModelTensor): boolean =>
    [TensorKind.gate, TensorKind.up, TensorKind.down].includes(tensor as 27) &&
    hasExperts(config.shape.layers[layer]!);
  const isSparse = ({ tensor, layer }: ModelTensor): boolean =>
    [TensorKind.gate, TensorKind.up].includes(tensor as 27) &&
    config.shape.layers[layer]!.gateCutoff !== null;
  return new Set(
    tensors
      .filter((one) => kinds.includes(one.tensor) && !isOfExpert(one) && !isSparse(one))
      .map(({ name }) => name),
  );
}

/** Draws factors for the matrices of a model's folder. */
export function drawFactors(model: string, { seed, rank, changes }: AdapterOptions): Factors[] {
  const random = new SeededRandom(seed);
  const names = adaptable(model);
  return [...readStoredTensors(model).tensors.values()]
    .filter(({ name }) => names.has(name) && (changes?.test(name) ?? true))
    .map(({ name, shape }) => {
      const [rows, columns] = shape as [number, number];
      const matrix = (half: "A" | "B", size: readonly [number, number], sigma: number): Matrix => ({
        name: `base_model.model.${name.replace(/\.weight$/, "")}.lora_${half}.weight`,
        shape: size,
        values: normals(random.child(`${name} ${half}`), size[0] * size[1], sigma),
      });
      const b = matrix("B", [rows, rank], 0.7 / Math.sqrt(rank));
      return { name, a: matrix("A", [rank, columns], 1 / Math.sqrt(columns)), b };
    });
}

/** Writes a PEFT folder, and returns its factors. */
export function writeAdapter(model: string, dir: string, options: AdapterOptions): Factors[] {
  const factors = drawFactors(model, options);
  mkdirSync(dir, { recursive: true });
  const config = { peft_type: "LORA", r: options.rank, lora_alpha: options.alpha, bias: "none" };
  writeFileSync(join(dir, "adapter_config.json"), JSON.stringify(config));
  const tensors = factors.flatMap(({ a, b }) => [a, b]);
  writeFileSync(join(dir, "adapter_model.safetensors"), safetensors(tensors));
  return factors;
}

/** An adapter of a Llama as llama.cpp's converter writes it: rows of q and k are in pairs. */
export function adapterGguf(
  factors: readonly Factors[],
  architecture: string,
  alpha: number,
  heads: { readonly queryHeads: number; readonly kvHeads: number; readonly headSize: number },
): GgufInput {
  const countOf = (name: string): number =>
    /q_proj/.test(name) ? heads.queryHeads : /k_proj/.test(name) ? heads.kvHeads : 0;
  const tensors = factors.flatMap(({ name, a, b }) => {
    const own = ggufName(name, architecture);
    const rows = countOf(name) > 0 ? inPairs(b, heads.headSize) : b.values;
    return [
      { name: `${own}.lora_a`, shape: a.shape, type: 0, data: new Uint8Array(a.values.buffer) },
      { name: `${own}.lora_b`, shape: b.shape, type: 0, data: new Uint8Array(rows.buffer) },
    ];
  });
  return {
    entries: [
      ["general.type", "string", "adapter"],
      ["general.architecture", "string", architecture],
      ["adapter.type", "string", "lora"],
      ["adapter.lora.alpha", "f32", alpha],
    ],
    tensors,
  };
}

/** Rows of each head in the order 0, half, 1, half + 1, …. */
function inPairs({ shape: [rows, columns], values }: Matrix, headSize: number): Float32Array {
  const half = headSize / 2;
  return Float32Array.from({ length: rows * columns }, (_, at) => {
    const row = Math.floor(at / columns);
    const inHead = row % headSize;
    const from = row - inHead + (inHead % 2) * half + Math.floor(inHead / 2);
    return values[from * columns + (at % columns)]!;
  });
}

/** Writes the model with the adapter's products added to its weights, in f32. */
export function writeMerged(model: string, factors: readonly Factors[], scale: number, dir: string): void {
  cpSync(model, dir, { recursive: true });
  const byName = new Map(factors.map((of) => [of.name, of]));
  editTensors(dir, (tensors) => {
    for (const stored of readStoredTensors(model).tensors.values()) {
      const values = merged(stored, byName.get(stored.name), scale);
      tensors.set(stored.name, { dtype: "F32", shape: stored.shape, data: Buffer.from(values.buffer) });
    }
  });
}

function merged(stored: StoredTensor, factors: Factors | undefined, scale: number): Float32Array {
  const values = numbersOf(stored);
  if (factors === undefined) return values;
  const { a, b } = factors;
  const [rank, columns] = a.shape;
  for (let row = 0; row < b.shape[0]; row += 1)
    for (let column = 0; column < columns; column += 1) {
      let sum = 0;
      for (let r = 0; r < rank; r += 1) sum += b.values[row * rank + r]! * a.values[r * columns + column]!;
      values[row * columns + column]! += scale * sum;
    }
  return values;
}

/** A file of tensors in f32. */
function safetensors(
  tensors: readonly {
    readonly name: string;
    readonly shape: readonly number[];
    readonly values: Float32Array;
  }[],
): Uint8Array {
  let at = 0;
  const header = tensors.map(({ name, shape, values }) => {
    const begin = at;
    at += values.byteLength;
    return [name, { dtype: "F32", shape, data_offsets: [begin, at] }] as const;
  });
  const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true);
  return Buffer.concat([length, text, ...tensors.map(({ values }) => Buffer.from(values.buffer))]);
}

function normals(random: SeededRandom, count: number, sigma: number): Float32Array {
  return Float32Array.from({ length: count }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - random.unit()));
    return sigma * radius * Math.cos(2 * Math.PI * random.unit());
  });
}
