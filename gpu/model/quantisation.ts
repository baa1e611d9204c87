/**
 * Folders whose matrices were quantised by others' programs: what `quantization_config` says of them, which tensors each matrix
 * is stored as, and in which blocks of ours it is loaded. A matrix without such tensors is plain, as the embedding mostly is.
 *
 *   gptq                 qweight, scales, qzeros, g_idx
 *   awq                  qweight, scales, qzeros
 *   fp8                  weight in e4m3, weight_scale or weight_scale_inv
 *   compressed-tensors   weight_packed or weight, weight_scale, weight_zero_point, weight_g_idx
 *
 * The meaning of a number is always (q - zero) * scale; csrc/model/quantised_matrix.cpp has the orders of bits.
 */
import { isObject, type JsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { StoredTensor } from "./safetensors.ts";

/** The arguments of bunting_model_load_quantised: the values of bunting_quantised, and where the parts are. */
export interface QuantisedSource {
  readonly layout: number;
  readonly number: number;
  readonly bits: number;
  readonly zeroAdded: number;
  readonly groupRows: number;
  readonly groupCols: number;
  readonly scaleType: number;
  readonly scales: StoredTensor;
  /** Null: 2^(bits - 1). */
  readonly zeros: StoredTensor | null;
  /** Which group each column is of; null: in order. */
  readonly order: StoredTensor | null;
}

export interface QuantisedMatrix {
  readonly integers: StoredTensor;
  readonly source: QuantisedSource;
  /** BUNTING_Q4_0, …: blocks that have these numbers. */
  readonly dtype: number;
}

/** What a folder's configuration says of its matrices. */
export interface Quantisation {
  /** For people: "GPTQ, 4 bits in groups of 128". */
  readonly title: string;
  /** The matrix "….weight" of this shape; null: it is stored plain. Throws ModelError. */
  matrix(
    name: string,
    rows: number,
    cols: number,
    tensors: ReadonlyMap<string, StoredTensor>,
  ): QuantisedMatrix | null;
  /** Whether a tensor that no matrix is stored as changes nothing here. */
  isHarmless(name: string): boolean;
}

const layouts = { rows: 0, gptq: 1, awq: 2 } as const;
const numbers = { unsigned: 0, signed: 1, e4m3: 2, e2m1: 3 } as const;
const scaleTypes: Readonly<Record<string, number>> = { F32: 0, F16: 1, BF16: 2, F8_E8M0: 3, U8: 3 };
const blockTypes = { Q4_0: 16, Q4_1: 17, Q8_0: 20, MXFP4: 29 } as const;

/** What all matrices of a folder have in common. */
interface Scheme {
  readonly layout: keyof typeof layouts;
  readonly number: keyof typeof numbers;
  readonly bits: 4 | 8;
  /** k that share a scale; null: a whole row does, or all rows. */
  readonly group: number | null;
  /** Rows that share one, beside `group`. */
  readonly groupRows: number;
  readonly zeroAdded: number;
  /** Names after the matrix's own, without ".weight". The first integers that are there count. */
  readonly integers: readonly string[];
  readonly scales: readonly string[];
  readonly zeros: string | null;
  readonly order: string | null;
}

/** From the JSON of config.json; null: it has no quantised matrices. Throws ModelError. */
export function quantisationOf(file: string, config: JsonObject): Quantisation | null {
  const fields = config.quantization_config;
  if (fields === undefined || fields === null) return null;
  const refuse = (field: string, reason: string): never => {
    throw new ModelError(file, `quantization_config${field}`, reason);
  };
  if (!isObject(fields)) return refuse("", `is ${show(fields)}, not an object`);
  const read: Reader = { fields, refuse };
  const method = fields.quant_method;
  const schemeOf = typeof method === "string" && Object.hasOwn(methods, method) ? methods[method]! : null;
  if (schemeOf === null) {
    return refuse(
      ".quant_method",
      `is ${show(method)}, which is not read; wanted: ${Object.keys(methods).join(", ")}`,
    );
  }
  return quantisation(file, String(method), schemeOf(read));
}

interface Reader {
  readonly fields: JsonObject;
  refuse(field: string, reason: string): never;
}

const methods: Readonly<Record<string, (read: Reader) => Scheme>> = {
  gptq: gptqScheme,
  awq: awqScheme,
  fp8: fp8Scheme,
  "compressed-tensors": compressedScheme,
};

function oneOf<T>({ fields, refuse }: Reader, name: string, allowed: readonly T[], fallback?: T): T {
  const value = fields[name] ?? fallback;
  if (allowed.includes(value as T)) return value as T;
  return refuse(`.${name}`, `is ${show(value)}; read are ${allowed.map(show).join(", ")}`);
}

/** k that share a scale: -1 is a whole row. */
function groupOf({ fields, refuse }: Reader, fallback?: number): number | null {
  const value = fields.group_size ?? fallback;
  if (value === -1) return null;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 16) return value;
  return refuse(".group_size", `is ${show(value)}; wanted: -1, or a whole number from 16 on`);
}

function gptqScheme(read: Reader): Scheme {
  const isSymmetric = oneOf(read, "sym", [true, false], true);
  return {
    ...{ layout: "gptq", number: "unsigned", bits: oneOf(read, "bits", [4, 8] as const), groupRows: 1 },
    group: groupOf(read),
    zeroAdded: oneOf(read, "checkpoint_format", ["gptq", "gptq_v2"], "gptq") === "gptq" ? 1 : 0,
    ...{ integers: ["qweight"], scales: ["scales"], zeros: isSymmetric ? null : "qzeros" },
    order: oneOf(read, "desc_act", [true, false], false) ? "g_idx" : null,
  };
}

function awqScheme(read: Reader): Scheme {
  oneOf(read, "version", ["gemm", "GEMM"], "gemm");
  return {
    ...{ layout: "awq", number: "unsigned", bits: oneOf(read, "bits", [4] as const), groupRows: 1 },
    ...{ group: groupOf(read, 128), zeroAdded: 0, integers: ["qweight"], scales: ["scales"] },
    ...{ zeros: oneOf(read, "zero_point", [true, false], true) ? "qzeros" : null, order: null },
  };
}

const bytesByRows = {
  layout: "rows",
  bits: 8,
  zeroAdded: 0,
  integers: ["weight"],
  zeros: null,
  order: null,
} as const;

function fp8Scheme({ fields, refuse }: Reader): Scheme {
  const block = fields.weight_block_size ?? null;
  const isPair =
    Array.isArray(block) &&
    block.length === 2 &&
    block.every((size) => Number.isSafeInteger(size) && size > 0);
  if (block !== null && !isPair) {
    refuse(".weight_block_size", `is ${show(block)}, not two whole numbers`);
  }
  const [groupRows, group] = (block ?? [1, null]) as [number, number | null];
  return { ...bytesByRows, number: "e4m3", group, groupRows, scales: ["weight_scale_inv", "weight_scale"] };
}

function compressedScheme({ fields, refuse }: Reader): Scheme {
  const groups = isObject(fields.config_groups) ? Object.values(fields.config_groups) : [];
  const weights = groups.map((group) => (isObject(group) ? group.weights : undefined));
  const [first] = weights;
  const areEqual = weights.every((other) => JSON.stringify(other) === JSON.stringify(first));
  if (!isObject(first) || !areEqual) {
    return refuse(".config_groups", "must have groups with the same weights, which this program reads");
  }
  const read: Reader = {
    fields: { ...first, format: fields.format },
    refuse: (field, reason) => refuse(field === ".format" ? field : `.config_groups.weights${field}`, reason),
  };
  const format = oneOf(read, "format", compressedFormats);
  const isFloat = oneOf(read, "type", ["int", "float"]) === "float";
  const bits = oneOf(read, "num_bits", [4, 8] as const);
  const strategy = oneOf(read, "strategy", ["tensor", "channel", "group", "block", "tensor_group"]);
  const scales = ["weight_scale"];
  if (format === "pack-quantized" || format === "mxfp4-pack-quantized") {
    if (isFloat !== (format === "mxfp4-pack-quantized"))
      read.refuse(".type", `is ${show(first.type)} beside ${format}`);
    const isSymmetric = isFloat || oneOf(read, "symmetric", [true, false], true);
    return {
      ...{
        layout: "rows",
        number: isFloat ? "e2m1" : "unsigned",
        bits: isFloat ? 4 : bits,
        zeroAdded: 0,
        groupRows: 1,
      },
      ...{ group: strategy === "channel" ? null : groupOf(read), integers: ["weight_packed"], scales },
      zeros: isSymmetric ? null : "weight_zero_point",
      order: first.actorder === "group" ? "weight_g_idx" : null,
    };
  }
  if (bits !== 8) read.refuse(".num_bits", `is ${bits} beside ${format}; read is 8`);
  if (first.symmetric === false) read.refuse(".symmetric", `is false beside ${format}; read is true`);
  const [groupRows, group] =
    strategy === "block"
      ? (first.block_structure as [number, number])
      : [1, strategy === "group" ? groupOf(read) : null];
  return { ...bytesByRows, number: isFloat ? "e4m3" : "signed", group, groupRows, scales };
}

const compressedFormats = [
  ...(["pack-quantized", "mxfp4-pack-quantized"] as const),
  ...(["int-quantized", "float-quantized", "naive-quantized"] as const),
];

function quantisation(file: string, method: string, scheme: Scheme): Quantisation {
  const { layout, number, bits, group, groupRows, zeroAdded } = scheme;
  const perWord = 32 / bits;
  /** Of the integers in the file. */
  const stored: Readonly<Record<Scheme["layout"], (rows: number, cols: number) => readonly number[]>> = {
    rows: (rows, cols) => [
      rows,
      number === "unsigned" ? cols / perWord : number === "e2m1" ? cols / 2 : cols,
    ],
    gptq: (rows, cols) => [cols / perWord, rows],
    awq: (rows, cols) => [cols, rows / perWord],
  };
  const dtypes = { unsigned: "I32", signed: "I8", e4m3: "F8_E4M3", e2m1: "U8" };

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

    const scaleCount = scales.shape.reduce((product, size) => product * size, 1);
    const groupCols = group ?? cols;
    // A scale for the whole matrix is of no other shape than one of a single row.
    const sharedRows = scaleCount === 1 ? rows : groupRows;
    const groups = Math.ceil(cols / groupCols);
    const scaleRows = Math.ceil(rows / sharedRows);
    expectTensor(integers, [dtypes[number]], stored[layout](rows, cols));
    const scaleShape = layout === "rows" ? [scaleRows, groups] : [groups, rows];
    expectTensor(
      scales,
      Object.keys(scaleTypes),
      scaleShape,
      scaleCount === scaleRows * groups && groups === 1,
    );
    if (zeros !== null)
      expectTensor(zeros, ["I32"], layout === "rows" ? [rows / perWord, groups] : [groups, rows / perWord]);
    if (order !== null) expectTensor(order, ["I32"], [cols]);

    const isFour = number === "unsigned" && bits === 4 && order === null && groupCols % 32 === 0;
    const four = zeros === null ? blockTypes.Q4_0 : blockTypes.Q4_1;
    return {
      integers,
      dtype: isFour ? four : number === "e2m1" ? blockTypes.MXFP4 : blockTypes.Q8_0,
      source: {
        ...{
          layout: layouts[layout],
          number: numbers[number],
          bits,
          zeroAdded,
          groupRows: sharedRows,
          groupCols,
        },
        ...{ scaleType: scaleTypes[scales.dtype]!, scales, zeros, order },
      },
    };
  };
  const unit =
    group === null ? "rows" : groupRows > 1 ? `blocks of ${groupRows} × ${group}` : `groups of ${group}`;
  const kind = number === "e4m3" ? "e4m3" : number === "e2m1" ? "e2m1" : `${bits} bits`;
  const order = scheme.order === null ? "" : ", groups in the order of activations";
  return { title: `${method}, ${kind} in ${unit}${order}`, matrix, isHarmless };
}

/** Scales of activations and of keys and values, which are not rounded to 8-bit floats here; the shape of what is packed; what
 *  symmetric and ordered matrices have without need. */
function isHarmless(name: string): boolean {
  return /\.(input_scale|k_scale|v_scale|output_scale|weight_shape|qzeros|g_idx|weight_g_idx|weight_zero_point)$/.test(
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
