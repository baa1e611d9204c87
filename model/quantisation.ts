/**
 * Folders that other programs quantised. Reads `quantization_config` and finds the tensors that store each
 * matrix. Names the block type in which the engine loads it. A matrix without such tensors is plain, as the
 * embedding mostly is.
 *
 *   gptq                 qweight, scales, qzeros, g_idx
 *   awq                  qweight, scales, qzeros
 *   fp8                  weight in e4m3, weight_scale or weight_scale_inv
 *   auto-round           as gptq or awq
 *   compressed-tensors   weight_packed or weight, weight_scale, weight_zero_point, weight_g_idx,
 *                        weight_global_scale
 *   modelopt             weight, weight_scale, weight_scale_2
 *   bitsandbytes         weight, weight.absmax, weight.quant_map and others, or weight and SCB
 *   mxfp4                all experts of a layer together: …_blocks, …_scales
 *
 * A number always means (q - zero) * scale * factor; csrc/model/quantised_matrix.cpp defines the bit orders.
 */
import { isObject, type JsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { type Scheme, schemes } from "./quantisation-schemes.ts";
import type { StoredTensor } from "./safetensors.ts";
import { storedTypes } from "./stored-types.ts";

/**
 * Arguments of bunting_model_load_quantised: the values of bunting_quantised, and the places of the parts.
 */
export interface QuantisedSource {
  readonly layout: number;
  readonly number: number;
  readonly bits: number;
  readonly zeroAdded: number;
  readonly groupRows: number;
  readonly groupCols: number;
  readonly scaleType: number;
  /** Null if the blocks of the integers have them. */
  readonly scales: StoredTensor | null;
  /** Null means a zero of 2^(bits - 1). */
  readonly zeros: StoredTensor | null;
  /** Group index of each column; null for consecutive groups. */
  readonly order: StoredTensor | null;
  /** An f32 that multiplies all numbers, or divides them; null: 1. */
  readonly factor: StoredTensor | null;
  readonly isDivided: boolean;
  /** Numbers that integers stand for if they are not evenly spaced. */
  readonly levels: StoredTensor | null;
  /** Scales and levels of scales that are quantised themselves; a JSON text has their offset. */
  readonly nested: Readonly<Record<"scales" | "levels" | "state", StoredTensor>> | null;
}

/** Tensors of a source beside its integers, in the order of bunting_model_load_quantised. */
export function partsOf(source: QuantisedSource): readonly (StoredTensor | null)[] {
  const { scales, zeros, order, factor, levels, nested } = source;
  const ofScales = [nested?.scales ?? null, nested?.levels ?? null, nested?.state ?? null];
  return [scales, zeros, order, factor, levels, ...ofScales];
}

/** Parts that most sources lack. */
const plainParts = { zeros: null, order: null, factor: null, isDivided: false, levels: null, nested: null };

export interface QuantisedMatrix {
  readonly integers: StoredTensor;
  readonly source: QuantisedSource;
  /** Block type that holds these numbers: BUNTING_Q4_0, …. */
  readonly dtype: number;
}

/** Quantisation that a folder's configuration describes. */
export interface Quantisation {
  /** Title for people: "GPTQ, 4 bits in groups of 128". */
  readonly title: string;
  /**
   * Finds the quantised parts of a matrix "….weight" of this shape; null if it is stored plain. Throws
   * ModelError.
   */
  matrix(
    name: string,
    rows: number,
    cols: number,
    tensors: ReadonlyMap<string, StoredTensor>,
  ): QuantisedMatrix | null;
  /**
   * Finds the quantised parts of the matrices [rows, cols] of all experts of a layer, stored as one tensor of
   * this name. Integers and scales are those of the first expert; the others follow. Null if stored plain.
   * Throws ModelError.
   */
  experts(
    name: string,
    shape: readonly [experts: number, rows: number, cols: number],
    tensors: ReadonlyMap<string, StoredTensor>,
  ): QuantisedMatrix | null;
  /** True if a tensor that belongs to no matrix can be ignored. */
  isHarmless(name: string): boolean;
}

const layouts = { rows: 0, gptq: 1, awq: 2, nvfp4: 3 } as const;
const numbers = { unsigned: 0, signed: 1, e4m3: 2, e2m1: 3, of127: 4, levels: 5 } as const;
const scaleTypes: Readonly<Record<string, number>> = { F32: 0, F16: 1, BF16: 2, F8_E8M0: 3, U8: 3 };
const e4m3Scales: Readonly<Record<string, number>> = { F8_E4M3: 4 };
/**
 * Scale types of layouts with levels. If the scales are nested, they are stored as bytes, which are indices
 * of levels.
 */
const levelScales: Readonly<Record<string, number>> = { F32: 0, U8: 5 };
/** Scales that share a nested scale. */
const nestedGroup = 256;

/** Quantisation of a parsed config.json; null if it has no quantised matrices. Throws ModelError. */
export function quantisationOf(file: string, config: JsonObject): Quantisation | null {
  const fields = config.quantization_config;
  if (fields === undefined || fields === null) return null;
  const refuse = (field: string, reason: string): never => {
    throw new ModelError(file, `quantization_config${field}`, reason);
  };
  if (!isObject(fields)) return refuse("", `is ${show(fields)}, not an object`);
  const method = fields.quant_method;
  if (method === "mxfp4") return mxfp4Experts;
  const schemeOf = typeof method === "string" && Object.hasOwn(schemes, method) ? schemes[method]! : null;
  if (schemeOf === null) {
    const read = [...Object.keys(schemes), "mxfp4"].join(", ");
    return refuse(".quant_method", `is ${show(method)}, which is not read; wanted: ${read}`);
  }
  return quantisation(file, String(method), schemeOf({ fields, refuse }));
}

function quantisation(file: string, method: string, scheme: Scheme): Quantisation {
  const { layout, number, bits, group, groupRows, zeroAdded } = scheme;
  const perWord = 32 / bits;
  /** Shape of the integers in the file, per layout. */
  const stored: Readonly<Record<Scheme["layout"], (rows: number, cols: number) => readonly number[]>> = {
    rows: (rows, cols) =>
      number === "levels"
        ? [(rows * cols) / 2, 1]
        : [rows, number === "unsigned" ? cols / perWord : number === "e2m1" ? cols / 2 : cols],
    gptq: (rows, cols) => [cols / perWord, rows],
    awq: (rows, cols) => [cols, rows / perWord],
  };
  const dtypes = { unsigned: "I32", signed: "I8", e4m3: "F8_E4M3", e2m1: "U8", of127: "I8", levels: "U8" };
  const typesOfScales =
    number === "levels" ? levelScales : scheme.factor === undefined ? scaleTypes : e4m3Scales;

  const matrix: Quantisation["matrix"] = (name, rows, cols, tensors) => {
    const base = name.slice(0, name.length - "weight".length);
    const find = (suffixes: readonly string[]): StoredTensor | undefined =>
      suffixes.map((suffix) => tensors.get(base + suffix)).find((tensor) => tensor !== undefined);
    const integers = find(scheme.integers);
    if (integers === undefined || (integers.name === name && integers.dtype !== dtypes[number])) return null;
    const need = (suffixes: readonly string[]): StoredTensor =>
      find(suffixes) ??
      refuseTensor(file, base + suffixes[0]!, `the tensor is missing beside ${integers.name}`);
    const scales = need(scheme.scales);
    const zeros = scheme.zeros === null ? null : need([scheme.zeros]);
    const order = scheme.order === null ? null : need([scheme.order]);
    const factor = scheme.factor === undefined ? null : need([scheme.factor]);
    if (factor !== null) expectTensor(factor, ["F32"], [1], true);

    const scaleCount = scales.shape.reduce((product, size) => product * size, 1);
    const groupCols = number === "levels" ? (rows * cols) / scaleCount : (group ?? cols);
    if (cols % groupCols !== 0 && number === "levels")
      refuseTensor(file, scales.name, `has ${scaleCount} scales, no whole number for each row of ${cols}`);
    // A single scale for the whole matrix has the same shape as the scale of a single row.
    const sharedRows = scaleCount === 1 ? rows : groupRows;
    const groups = Math.ceil(cols / groupCols);
    const scaleRows = Math.ceil(rows / sharedRows);
    expectTensor(integers, [dtypes[number]], stored[layout](rows, cols));
    const scaleShape = layout === "rows" ? [scaleRows, groups] : [groups, rows];
    expectTensor(
      scales,
      Object.keys(typesOfScales),
      scaleShape,
      scaleCount === scaleRows * groups && (groups === 1 || number === "levels"),
    );
    const levels = number === "levels" ? need(["weight.quant_map"]) : null;
    if (levels !== null) expectTensor(levels, ["F32"], [16]);
    const isNested = number === "levels" && scales.dtype === "U8";
    const nested = isNested
      ? {
          scales: need(["weight.nested_absmax"]),
          levels: need(["weight.nested_quant_map"]),
          state: need(scheme.state ?? []),
        }
      : null;
    if (nested !== null) {
      expectTensor(nested.scales, ["F32"], [Math.ceil(scaleCount / nestedGroup)]);
      expectTensor(nested.levels, ["F32"], [nestedGroup]);
      expectTensor(nested.state, ["U8"], [nested.state.bytes]);
    }
    if (zeros !== null)
      expectTensor(zeros, ["I32"], layout === "rows" ? [rows / perWord, groups] : [groups, rows / perWord]);
    if (order !== null) expectTensor(order, ["I32"], [cols]);

    const isFour = number === "unsigned" && bits === 4 && order === null && groupCols % 32 === 0;
    const four = zeros === null ? storedTypes.Q4_0.number : storedTypes.Q4_1.number;
    return {
      integers,
      dtype: isFour ? four : number === "e2m1" ? floatBlocks(factor !== null, cols) : storedTypes.Q8_0.number,
      source: {
        ...{
          layout: layouts[layout],
          number: numbers[number],
          bits,
          zeroAdded,
          groupRows: sharedRows,
          groupCols,
        },
        ...{ scaleType: typesOfScales[scales.dtype]!, scales, zeros, order },
        ...{ factor, isDivided: scheme.isDivided ?? false, levels, nested },
      },
    };
  };
  const names = { e4m3: "e4m3", e2m1: "e2m1", levels: "4-bit levels" } as const;
  const unit =
    number === "levels"
      ? "blocks"
      : group === null
        ? "rows"
        : groupRows > 1
          ? `blocks of ${groupRows} × ${group}`
          : `groups of ${group}`;
  const kind = number in names ? names[number as keyof typeof names] : `${bits} bits`;
  const order = scheme.order === null ? "" : ", groups in the order of activations";
  return { title: `${method}, ${kind} in ${unit}${order}`, matrix, experts: () => null, isHarmless };
}

/**
 * Scheme of gpt-oss: experts are e2m1 blocks with the first number of a pair in the low bits; the rest is
 * plain.
 */
const mxfp4Experts: Quantisation = {
  title: "mxfp4, experts in groups of 32",
  matrix: () => null,
  experts(name, [experts, rows, cols], tensors) {
    const [integers, scales] = [tensors.get(`${name}_blocks`), tensors.get(`${name}_scales`)];
    if (integers === undefined) return null;
    if (scales === undefined) {
      return refuseTensor(integers.file, `${name}_scales`, `the tensor is missing beside ${integers.name}`);
    }
    if (cols % 32 !== 0)
      refuseTensor(integers.file, integers.name, `has rows of ${cols}, no whole groups of 32`);
    expectTensor(integers, ["U8"], [experts, rows, cols / 32, 16]);
    expectTensor(scales, ["U8", "F8_E8M0"], [experts, rows, cols / 32]);
    const how = {
      layout: layouts.rows,
      number: numbers.e2m1,
      bits: 4,
      zeroAdded: 0,
      groupRows: 1,
      groupCols: 32,
    };
    const source = { ...how, ...plainParts, scaleType: scaleTypes.U8!, scales };
    return { integers, dtype: storedTypes.MXFP4.number, source };
  },
  isHarmless: () => false,
};

/** Block type of numbers in e2m1. Blocks of 256 have NVFP4's scales as integers; rows of other widths are rounded. */
function floatBlocks(isNvfp4: boolean, cols: number): number {
  if (!isNvfp4) return storedTypes.MXFP4.number;
  return cols % 256 === 0 ? storedTypes.NVFP4.number : storedTypes.Q8_0.number;
}

/** NVFP4 tensors of GGUF files: blocks with scales in e4m3, and a factor for each matrix in a tensor of its own. */
export const ggufNvfp4: Quantisation = {
  title: "NVFP4",
  matrix: (name, _rows, cols, tensors) => nvfp4Of(name, 1, cols, tensors),
  experts: (name, [experts, , cols], tensors) => nvfp4Of(name, experts, cols, tensors),
  isHarmless: (name) => name.endsWith(".input_scale"),
};

function nvfp4Of(
  name: string,
  experts: number,
  cols: number,
  tensors: ReadonlyMap<string, StoredTensor>,
): QuantisedMatrix | null {
  const integers = tensors.get(name);
  if (integers?.dtype !== "NVFP4") return null;
  const factor = tensors.get(name.replace(/weight$/, "scale")) ?? null;
  if (factor !== null) expectTensor(factor, ["F32"], [experts]);
  const how = {
    layout: layouts.nvfp4,
    number: numbers.e2m1,
    bits: 4,
    zeroAdded: 0,
    groupRows: 1,
    groupCols: 16,
  };
  const source = { ...how, ...plainParts, scaleType: e4m3Scales.F8_E4M3!, scales: null, factor };
  return { integers, dtype: floatBlocks(true, cols), source };
}

/**
 * True for tensors without effect here. These are scales of activations, keys and values (the engines do not
 * round those to fp8), shapes of packed matrices, and zeros and group indices that symmetric or ordered
 * matrices do not need.
 */
function isHarmless(name: string): boolean {
  return /\.(input_scale|input_global_scale|k_scale|v_scale|output_scale|weight_shape|weight_format|qzeros|g_idx|weight_g_idx|weight_zero_point|weight\.quant_state\.bitsandbytes__(nf4|fp4))$/.test(
    name,
  );
}

function expectTensor(
  { file, name, dtype, shape }: StoredTensor,
  dtypes: readonly string[],
  wanted: readonly number[],
  isVectorToo = false,
): void {
  if (!dtypes.includes(dtype)) refuseTensor(file, name, `has dtype ${dtype}; wanted: ${dtypes.join(", ")}`);
  const isWanted = shape.length === wanted.length && shape.every((size, at) => size === wanted[at]);
  const count = wanted.reduce((product, size) => product * size, 1);
  const isVector = isVectorToo && shape.length <= 1 && (shape[0] ?? 1) === count;
  if (!isWanted && !isVector) refuseTensor(file, name, `has shape ${show(shape)}, wanted ${show(wanted)}`);
}

function refuseTensor(file: string, name: string, reason: string): never {
  throw new ModelError(file, name, reason);
}
