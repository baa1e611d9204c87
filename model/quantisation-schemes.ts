/**
 * Parsers of `quantization_config` for each quantisation program; the result is one scheme for all matrices.
 * Unsupported fields are refused by name and value.
 */
import { isObject, type JsonObject, show } from "./json.ts";

/** Storage scheme of all quantised matrices of a folder. */
export interface Scheme {
  readonly layout: "rows" | "gptq" | "awq";
  readonly number: "unsigned" | "signed" | "e4m3" | "e2m1" | "of127" | "levels";
  readonly bits: 4 | 8;
  /** Consecutive k that share a scale; null if a row, or the whole matrix, has one scale. */
  readonly group: number | null;
  /** Rows that share a scale, beside `group`. */
  readonly groupRows: number;
  readonly zeroAdded: number;
  /** Suffixes after the matrix's name, without ".weight". The first one that exists holds the integers. */
  readonly integers: readonly string[];
  readonly scales: readonly string[];
  readonly zeros: string | null;
  readonly order: string | null;
  /** Factor of all numbers, beside scales in e4m3; `isDivided`: they are divided by it. */
  readonly factor?: string;
  readonly isDivided?: boolean;
  /** JSON text about nested scales. */
  readonly state?: readonly string[];
}

/** Reader of `quantization_config` or of a part of it. */
export interface Reader {
  readonly fields: JsonObject;
  refuse(field: string, reason: string): never;
}

/** Parsers by `quant_method`. */
export const schemes: Readonly<Record<string, (read: Reader) => Scheme>> = {
  gptq: gptqScheme,
  awq: awqScheme,
  "auto-round": autoRoundScheme,
  fp8: fp8Scheme,
  "compressed-tensors": compressedScheme,
  modelopt: modeloptScheme,
  bitsandbytes: bitsandbytesScheme,
};

function oneOf<T>({ fields, refuse }: Reader, name: string, allowed: readonly T[], fallback?: T): T {
  const value = fields[name] ?? fallback;
  if (allowed.includes(value as T)) return value as T;
  return refuse(`.${name}`, `is ${show(value)}; read are ${allowed.map(show).join(", ")}`);
}

/** Consecutive k that share a scale; -1 means a whole row, which is null. */
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

/** Packing formats of AutoRound: the folder's layout, and what a stored zero lacks. */
const autoRoundPackings: Readonly<Record<string, Pick<Scheme, "layout" | "zeroAdded">>> = {
  "auto_round:auto_gptq": { layout: "gptq", zeroAdded: 1 },
  "auto_round:gptq": { layout: "gptq", zeroAdded: 1 },
  "auto_round:gptqmodel": { layout: "gptq", zeroAdded: 0 },
  auto_round: { layout: "gptq", zeroAdded: 0 },
  "auto_round:auto_awq": { layout: "awq", zeroAdded: 0 },
  "auto_round:awq": { layout: "awq", zeroAdded: 0 },
};

function autoRoundScheme(read: Reader): Scheme {
  const { fields, refuse } = read;
  const packing = oneOf(read, "packing_format", Object.keys(autoRoundPackings), "auto_round:auto_gptq");
  const { layout, zeroAdded } = autoRoundPackings[packing]!;
  oneOf(read, "data_type", ["int"], "int");
  const isSymmetric = oneOf(read, "sym", [true, false], true);
  const bits = oneOf(read, "bits", layout === "awq" ? ([4] as const) : ([4, 8] as const));
  const others = isObject(fields.extra_config) ? Object.entries(fields.extra_config) : [];
  for (const [name, other] of others) {
    if (!isObject(other) || Number(other.bits ?? bits) >= 16) continue; // is stored plain
    const same = { bits, group_size: fields.group_size, sym: isSymmetric, data_type: "int" };
    for (const [field, value] of Object.entries(same)) {
      if ((other[field] ?? value) === value) continue;
      refuse(
        `.extra_config.${name}.${field}`,
        `is ${show(other[field])} beside ${show(value)}; read is one way`,
      );
    }
  }
  return {
    ...{ layout, number: "unsigned", bits, groupRows: 1, group: groupOf(read), zeroAdded },
    ...{ integers: ["qweight"], scales: ["scales"], zeros: isSymmetric ? null : "qzeros", order: null },
  };
}

const nvfp4 = {
  layout: "rows",
  number: "e2m1",
  bits: 4,
  group: 16,
  groupRows: 1,
  zeroAdded: 0,
  scales: ["weight_scale"],
  zeros: null,
  order: null,
} as const;

function modeloptScheme(read: Reader): Scheme {
  const algorithm = oneOf(read, "quant_algo", ["NVFP4", "FP8"] as const);
  if (algorithm === "FP8")
    return { ...bytesByRows, number: "e4m3", group: null, groupRows: 1, scales: ["weight_scale"] };
  oneOf(read, "group_size", [16], 16);
  return { ...nvfp4, integers: ["weight"], factor: "weight_scale_2" };
}

function bitsandbytesScheme(read: Reader): Scheme {
  if (oneOf(read, "load_in_8bit", [true, false], false))
    return { ...bytesByRows, number: "of127", group: null, groupRows: 1, scales: ["SCB"] };
  oneOf(read, "load_in_4bit", [true]);
  oneOf(read, "bnb_4bit_quant_storage", ["uint8"], "uint8");
  const type = oneOf(read, "bnb_4bit_quant_type", ["nf4", "fp4"], "fp4");
  return {
    ...{ layout: "rows", number: "levels", bits: 4, group: null, groupRows: 1, zeroAdded: 0 },
    ...{ integers: ["weight"], scales: ["weight.absmax"], zeros: null, order: null },
    state: [`weight.quant_state.bitsandbytes__${type}`],
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
  if (format === "nvfp4-pack-quantized") {
    if (!isFloat || bits !== 4) read.refuse(".num_bits", `is ${bits} beside ${format}; read are floats of 4`);
    oneOf(read, "group_size", [16], 16);
    return { ...nvfp4, integers: ["weight_packed"], factor: "weight_global_scale", isDivided: true };
  }
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
  ...(["pack-quantized", "mxfp4-pack-quantized", "nvfp4-pack-quantized"] as const),
  ...(["int-quantized", "float-quantized", "naive-quantized"] as const),
];
