/**
 * Folders in published quantised layouts, for tests: random integers, scales and zeros, plus a folder in F32
 * with the numbers that they represent.
 */
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import { TensorKind } from "../../model/tensor-kinds.ts";
import { valuesOf } from "./gguf-model.ts";

export interface QuantisedWay {
  /** Value of `quantization_config`. */
  readonly config: Record<string, unknown>;
  readonly layout: "rows" | "gptq" | "awq";
  readonly number: "unsigned" | "signed" | "e4m3" | "e2m1";
  readonly bits: 4 | 8;
  /** Group size: consecutive k, or rows, that share a scale; null: all. */
  readonly group: number | null;
  readonly groupRows: number | null;
  readonly hasZeros: boolean;
  readonly hasOrder: boolean;
  /** Tensor name suffixes, after the matrix's name without ".weight". */
  readonly names: {
    readonly integers: string;
    readonly scales: string;
    readonly zeros?: string;
    readonly order?: string;
  };
  readonly zeroAdded?: number;
}

interface Entry {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

/** True for projections, experts' included; routers stay plain. */
export function isQuantised(name: string): boolean {
  return /(_proj|_with_mqa|\.experts\.\d+\.w\d)\.weight$/.test(name);
}

/** Writes both folders, from one with plain weights. */
export function writeQuantised(dir: string, way: QuantisedWay, quantised: string, plain: string): void {
  let state = 12345;
  const random = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const [packed, meant]: [Entry[], Entry[]] = [[], []];
  for (const tensor of openModelFolder(dir).tensors) {
    // Its values follow, with the same name.
    if (tensor.keysWithValues && tensor.tensor === TensorKind.latentKeys) continue;
    const { name, cols } = tensor;
    const rows = tensor.keysWithValues ? tensor.bytes / cols / (tensor.dtype === 0 ? 4 : 2) : tensor.rows;
    const shape = name.includes("norm") || name.endsWith(".bias") ? [cols] : [rows, cols];
    if (!isQuantised(name)) {
      const entry = { name, dtype: "F32", shape, data: new Uint8Array(valuesOf(tensor).buffer) };
      packed.push(entry);
      meant.push(entry);
      continue;
    }
    const matrix = randomMatrix(name.slice(0, -"weight".length), rows, cols, way, random);
    packed.push(...matrix.entries);
    meant.push({ name, dtype: "F32", shape, data: new Uint8Array(matrix.numbers.buffer) });
  }
  writeFolder(dir, quantised, packed, { quantization_config: way.config });
  writeFolder(dir, plain, meant, {});
}

function writeFolder(
  from: string,
  to: string,
  entries: readonly Entry[],
  fields: Record<string, unknown>,
): void {
  cpSync(from, to, { recursive: true });
  for (const name of readdirSync(to)) if (name.includes(".safetensors")) rmSync(join(to, name));
  const config = JSON.parse(readFileSync(join(from, "config.json"), "utf8")) as Record<string, unknown>;
  writeFileSync(join(to, "config.json"), JSON.stringify({ ...config, ...fields }));
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const { name, dtype, shape, data } of entries) {
    header[name] = { dtype, shape, data_offsets: [end, end + data.length] };
    end += data.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const start = Buffer.alloc(8);
  start.writeBigUint64LE(BigInt(json.length));
  writeFileSync(
    join(to, "model.safetensors"),
    Buffer.concat([start, json, ...entries.map(({ data }) => data)]),
  );
}

const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6];
const e4m3 = (bits: number): number => {
  const [exponent, mantissa] = [(bits >> 3) & 15, bits & 7];
  const magnitude = exponent === 0 ? mantissa / 512 : (1 + mantissa / 8) * 2 ** (exponent - 7);
  return bits >= 128 ? -magnitude : magnitude;
};
const awqOrder = [0, 2, 4, 6, 1, 3, 5, 7];

/** Makes a random matrix of numbers of about 0.02. */
function randomMatrix(
  base: string,
  rows: number,
  cols: number,
  way: QuantisedWay,
  random: (below: number) => number,
): { readonly entries: Entry[]; readonly numbers: Float32Array } {
  const { layout, number, bits, names } = way;
  const groupCols = way.group ?? cols;
  const groupRows = way.groupRows ?? rows;
  const [groups, scaleRows] = [Math.ceil(cols / groupCols), Math.ceil(rows / groupRows)];
  const size = { unsigned: 2 ** (bits - 1), signed: 128, e4m3: 100, e2m1: 4 }[number];
  const isExponent = number === "e2m1";
  const scale = Float64Array.from({ length: scaleRows * groups }, () => {
    if (isExponent) return 2 ** (random(2) - 8);
    return Math.fround(((1 + random(100) / 100) * 0.03) / size);
  });
  const zero = Array.from({ length: rows * groups }, () =>
    way.hasZeros ? 2 ** (bits - 1) - 2 + random(4) : 2 ** (bits - 1),
  );
  const groupOf = Array.from({ length: cols }, (_, k) =>
    way.hasOrder ? (k * 5 + 1) % groups : Math.floor(k / groupCols),
  );
  const q = Array.from({ length: rows * cols }, () => {
    const value = random(2 ** bits);
    return number === "e4m3" && (value & 127) > 0x60 ? value & 0x9f : value; // keeps magnitudes usual
  });
  const numbers = Float32Array.from(q, (value, index) => {
    const [n, k] = [Math.floor(index / cols), index % cols];
    const group = groupOf[k]!;
    const step = scale[Math.floor(n / groupRows) * groups + group]!;
    if (number === "signed") return ((value << 24) >> 24) * step;
    if (number === "e4m3") return e4m3(value) * step;
    if (number === "e2m1") return e2m1[value]! * step;
    return (value - zero[n * groups + group]!) * step;
  });

  const perWord = 32 / bits;
  /** Packs values of `bits` bits, the first in the lowest. */
  const pack = (values: readonly number[]): Uint8Array => {
    const out = new Uint8Array((values.length * bits) / 8);
    values.forEach((value, index) => {
      const at = (index * bits) >> 3;
      out[at] = out[at]! | (value << ((index * bits) % 8));
    });
    return out;
  };
  const isWords = number === "unsigned";
  const at = (list: readonly number[], width: number, n: number, column: number): number =>
    list[n * width + column]!;
  const awqColumn = (place: number): number => Math.floor(place / 8) * 8 + awqOrder[place % 8]!;
  const integersOf = {
    rows: () => pack(q),
    gptq: () =>
      pack(
        Array.from({ length: q.length }, (_, index) => {
          const [word, inWord] = [Math.floor(index / perWord), index % perWord];
          return at(q, cols, word % rows, Math.floor(word / rows) * perWord + inWord);
        }),
      ),
    awq: () =>
      pack(
        Array.from({ length: q.length }, (_, index) =>
          at(q, cols, awqColumn(index % rows), Math.floor(index / rows)),
        ),
      ),
  };
  const zerosOf = {
    rows: () =>
      pack(
        Array.from({ length: zero.length }, (_, index) => {
          const [word, inWord] = [Math.floor(index / perWord), index % perWord];
          return at(zero, groups, Math.floor(word / groups) * perWord + inWord, word % groups);
        }),
      ),
    gptq: () =>
      pack(
        Array.from(
          { length: zero.length },
          (_, index) => at(zero, groups, index % rows, Math.floor(index / rows)) - (way.zeroAdded ?? 0),
        ),
      ),
    awq: () =>
      pack(
        Array.from({ length: zero.length }, (_, index) =>
          at(zero, groups, awqColumn(index % rows), Math.floor(index / rows)),
        ),
      ),
  };
  const scaleData = isExponent
    ? Uint8Array.from(scale, (value) => Math.log2(value) + 127)
    : new Uint8Array(
        Float32Array.from(scale, (value, index) =>
          layout === "rows" ? value : scale[(index % rows) * groups + Math.floor(index / rows)]!,
        ).buffer,
      );
  const integerShape = {
    rows: [rows, isWords ? cols / perWord : isExponent ? cols / 2 : cols],
    gptq: [cols / perWord, rows],
    awq: [cols, rows / perWord],
  }[layout];
  const entries: Entry[] = [
    {
      name: base + names.integers,
      dtype: { unsigned: "I32", signed: "I8", e4m3: "F8_E4M3", e2m1: "U8" }[number],
      shape: integerShape,
      data: integersOf[layout](),
    },
    {
      name: base + names.scales,
      dtype: isExponent ? "U8" : "F32",
      shape: layout === "rows" ? [scaleRows, groups] : [groups, rows],
      data: scaleData,
    },
  ];
  if (names.zeros !== undefined) {
    const shape = layout === "rows" ? [rows / perWord, groups] : [groups, rows / perWord];
    entries.push({ name: base + names.zeros, dtype: "I32", shape, data: zerosOf[layout]() });
  }
  if (names.order !== undefined) {
    const data = new Uint8Array(Int32Array.from(groupOf).buffer);
    entries.push({ name: base + names.order, dtype: "I32", shape: [cols], data });
  }
  return { entries, numbers };
}
