import { describe, expect, test } from "bun:test";
import { ModelError } from "./model-error.ts";
import { quantisationOf } from "./quantisation.ts";
import type { StoredTensor } from "./safetensors.ts";

const titleOf = (config: unknown): string | undefined =>
  quantisationOf("config.json", { quantization_config: config })?.title;
const errorOf = (config: unknown): string => {
  try {
    quantisationOf("config.json", { quantization_config: config });
  } catch (error) {
    if (error instanceof ModelError) return error.message;
    throw error;
  }
  throw new Error("was read");
};
const compressed = (format: string, weights: unknown): unknown => ({
  quant_method: "compressed-tensors",
  format,
  config_groups: { group_0: { weights } },
});

test("a folder that says nothing has none", () => {
  expect(quantisationOf("config.json", {})).toBeNull();
  expect(quantisationOf("config.json", { quantization_config: null })).toBeNull();
});

test.each([
  [
    { quant_method: "gptq", bits: 4, group_size: 128, desc_act: true },
    "gptq, 4 bits in groups of 128, groups in the order of activations",
  ],
  [{ quant_method: "awq", bits: 4, group_size: 64 }, "awq, 4 bits in groups of 64"],
  [{ quant_method: "fp8", activation_scheme: "dynamic" }, "fp8, e4m3 in rows"],
  [{ quant_method: "fp8", weight_block_size: [128, 64] }, "fp8, e4m3 in blocks of 128 × 64"],
  [
    compressed("int-quantized", { type: "int", num_bits: 8, strategy: "channel" }),
    "compressed-tensors, 8 bits in rows",
  ],
] as const)("is described: %j", (config, title) => {
  expect(titleOf(config)).toBe(title);
});

test.each([
  [7, "quantization_config: is 7, not an object"],
  [
    { quant_method: "hqq" },
    '.quant_method: is "hqq", which is not read; wanted: gptq, awq, auto-round, fp8, compressed-tensors',
  ],
  [{ quant_method: "gptq", bits: 3, group_size: 128 }, ".bits: is 3; read are 4, 8"],
  [
    { quant_method: "gptq", bits: 4, group_size: 0 },
    ".group_size: is 0; wanted: -1, or a whole number from 16 on",
  ],
  [{ quant_method: "awq", bits: 4, version: "gemv" }, '.version: is "gemv"; read are "gemm", "GEMM"'],
  [{ quant_method: "fp8", weight_block_size: [128] }, ".weight_block_size: is [128], not two whole numbers"],
  [
    compressed("marlin-24", { type: "int", num_bits: 4, strategy: "group" }),
    '.format: is "marlin-24"; read are "pack-quantized"',
  ],
  [
    compressed("pack-quantized", { type: "int", num_bits: 2, strategy: "group" }),
    ".config_groups.weights.num_bits: is 2; read are 4, 8",
  ],
  [
    compressed("int-quantized", { type: "int", num_bits: 4, strategy: "channel" }),
    ".num_bits: is 4 beside int-quantized; read is 8",
  ],
  [
    { quant_method: "compressed-tensors", format: "pack-quantized" },
    ".config_groups: must have groups with the same weights",
  ],
] as const)("is refused by name: %j", (config, message) => {
  expect(errorOf(config)).toContain(message);
});

describe("the tensors of a matrix", () => {
  const { matrix, isHarmless } = quantisationOf("config.json", {
    quantization_config: { quant_method: "gptq", bits: 4, group_size: 32, sym: false },
  })!;
  const tensor = (name: string, dtype: string, ...shape: number[]): StoredTensor => {
    return { name, file: "model.safetensors", dtype, shape, offset: 0, bytes: 0 };
  };
  const good = [
    tensor("a.qweight", "I32", 8, 16),
    tensor("a.scales", "F16", 2, 16),
    tensor("a.qzeros", "I32", 2, 2),
  ];
  const read = (tensors: readonly StoredTensor[]): ReturnType<typeof matrix> =>
    matrix("a.weight", 16, 64, new Map(tensors.map((each) => [each.name, each])));
  const refusalOf = (tensors: readonly StoredTensor[]): string => {
    try {
      read(tensors);
    } catch (error) {
      if (error instanceof ModelError) return error.message;
      throw error;
    }
    throw new Error("was read");
  };

  test("are found by their names", () => {
    expect(read(good)).toEqual({
      integers: good[0]!,
      dtype: 17,
      source: {
        ...{ layout: 1, number: 0, bits: 4, zeroAdded: 1, groupRows: 1, groupCols: 32, scaleType: 1 },
        ...{ scales: good[1]!, zeros: good[2]!, order: null },
        ...{ factor: null, isDivided: false, levels: null, nested: null },
      },
    });
    expect(read([tensor("a.weight", "BF16", 16, 64)])).toBeNull();
  });

  test("must be there and have their shapes", () => {
    expect(refusalOf(good.slice(0, 2))).toBe("config.json: a.qzeros: the tensor is missing beside a.qweight");
    expect(refusalOf([tensor("a.qweight", "I32", 16, 8), ...good.slice(1)])).toBe(
      "model.safetensors: a.qweight: has shape [16,8], wanted [8,16]",
    );
    expect(refusalOf([good[0]!, tensor("a.scales", "I8", 2, 16), good[2]!])).toContain(
      "a.scales: has dtype I8; wanted: F32",
    );
  });

  test("beside others that change nothing", () => {
    expect(["a.g_idx", "a.input_scale", "a.bias"].map(isHarmless)).toEqual([true, true, false]);
  });
});

describe("experts in mxfp4", () => {
  const { matrix, experts } = quantisationOf("config.json", {
    quantization_config: { quant_method: "mxfp4", modules_to_not_convert: ["lm_head"] },
  })!;
  const tensor = (name: string, dtype: string, ...shape: number[]): StoredTensor => {
    return { name, file: "model.safetensors", dtype, shape, offset: 0, bytes: 0 };
  };
  const blocks = tensor("a_blocks", "U8", 3, 8, 2, 16);
  const scales = tensor("a_scales", "U8", 3, 8, 2);
  const read = (...tensors: StoredTensor[]): ReturnType<typeof experts> =>
    experts("a", [3, 8, 64], new Map(tensors.map((each) => [each.name, each])));

  test("are all of a layer in one tensor", () => {
    const how = { layout: 0, number: 3, bits: 4, zeroAdded: 0, groupRows: 1, groupCols: 32, scaleType: 3 };
    const none = { zeros: null, order: null, factor: null, isDivided: false, levels: null, nested: null };
    const source = { ...how, ...none, scales };
    expect(read(blocks, scales)).toEqual({ integers: blocks, dtype: 29, source });
    expect(read(tensor("a", "BF16", 3, 64, 8))).toBeNull();
    expect(matrix("a.weight", 8, 64, new Map([["a.weight", tensor("a.weight", "BF16", 8, 64)]]))).toBeNull();
  });

  test("must be there and have their shapes", () => {
    expect(() => read(blocks)).toThrow("a_scales: the tensor is missing beside a_blocks");
    expect(() => read(tensor("a_blocks", "U8", 3, 8, 4, 8), scales)).toThrow(
      "has shape [3,8,4,8], wanted [3,8,2,16]",
    );
    expect(() => read(blocks, tensor("a_scales", "F32", 3, 8, 2))).toThrow(
      "has dtype F32; wanted: U8, F8_E8M0",
    );
  });
});
