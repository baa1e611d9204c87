/**
 * Quantised folders in vLLM's formats: their logits match a folder in F32 with the documented meaning of the
 * numbers.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import { formatName, formatsOf, type Quant } from "../../model/formats.ts";
import type { JsonObject } from "../../model/json.ts";
import { TensorKind } from "../../model/tensor-kinds.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { writeFamily } from "../reference/families.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { type QuantisedWay, writeQuantised } from "../support/quantised-folder.ts";
import { cosineOf, sameBits } from "./compare.ts";
import { cpuLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-quantised-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const sizes = {
  ...{ hidden_size: 256, intermediate_size: 384, vocab_size: 500, tie_word_embeddings: false },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 2, max_position_embeddings: 128 },
};
/** Mixtures where every expert computes every token, so that rounding cannot change the choice. */
const models: Readonly<Record<string, JsonObject>> = {
  Qwen2: sizes,
  Qwen3Moe: {
    ...sizes,
    num_experts: 4,
    num_experts_per_tok: 4,
    moe_intermediate_size: 192,
    norm_topk_prob: true,
  },
  Mixtral: {
    ...sizes,
    num_local_experts: 3,
    num_experts_per_tok: 3,
    intermediate_size: 192,
    sliding_window: null,
  },
  DeepseekV3: {
    ...sizes,
    ...{ q_lora_rank: 128, kv_lora_rank: 128, qk_nope_head_dim: 64, qk_rope_head_dim: 64, v_head_dim: 64 },
    ...{ n_routed_experts: 3, num_experts_per_tok: 3, moe_intermediate_size: 128, n_shared_experts: 3 },
    ...{ n_group: 1, topk_group: 1, first_k_dense_replace: 1, num_key_value_heads: 4 },
  },
};
for (const [name, fields] of Object.entries(models)) {
  const json = { ...fields, architectures: [`${name}ForCausalLM`] };
  writeRandomModel({ file: "config.json", json }, join(scratch, name), { seed: 7 });
}

const gptq = { integers: "qweight", scales: "scales", zeros: "qzeros", order: "g_idx" };
const four = { number: "unsigned", bits: 4, groupRows: 1, hasOrder: false } as const;
const compressed = (format: string, weights: Record<string, unknown>): Record<string, unknown> => ({
  quant_method: "compressed-tensors",
  format,
  config_groups: { group_0: { targets: ["Linear"], weights } },
});
const bytes = { layout: "rows", bits: 8, hasZeros: false, hasOrder: false } as const;
const packedNames = { integers: "weight_packed", scales: "weight_scale" };
const byteNames = { integers: "weight", scales: "weight_scale" };

/**
 * Block formats that matrices of layers become, with the bound on the logits: conversion only rounds scales
 * to f16.
 */
const ways: readonly (readonly [string, QuantisedWay, number, number])[] = [
  [
    "GPTQ",
    {
      ...four,
      ...{ layout: "gptq", group: 128, hasZeros: false, names: gptq, zeroAdded: 1 },
      config: { quant_method: "gptq", bits: 4, group_size: 128, sym: true, desc_act: false },
    },
    16,
    0.99999,
  ],
  [
    "GPTQ with zeros",
    {
      ...four,
      ...{ layout: "gptq", group: 64, hasZeros: true, names: gptq, zeroAdded: 1 },
      config: { quant_method: "gptq", bits: 4, group_size: 64, sym: false, desc_act: false },
    },
    17,
    0.99999,
  ],
  [
    "GPTQ in the order of activations, second version",
    {
      ...four,
      ...{ layout: "gptq", group: 32, hasZeros: true, hasOrder: true, names: gptq },
      config: {
        quant_method: "gptq",
        bits: 4,
        group_size: 32,
        sym: false,
        desc_act: true,
        checkpoint_format: "gptq_v2",
      },
    },
    20,
    0.9998,
  ],
  [
    "GPTQ of 8 bits",
    {
      ...{
        layout: "gptq",
        number: "unsigned",
        bits: 8,
        group: null,
        groupRows: 1,
        hasZeros: false,
        hasOrder: false,
      },
      ...{ names: gptq, zeroAdded: 1 },
      config: { quant_method: "gptq", bits: 8, group_size: -1, sym: true, desc_act: false },
    },
    20,
    0.99999,
  ],
  [
    "AWQ",
    {
      ...four,
      ...{ layout: "awq", group: 128, hasZeros: true },
      names: { integers: "qweight", scales: "scales", zeros: "qzeros" },
      config: { quant_method: "awq", bits: 4, group_size: 128, zero_point: true, version: "gemm" },
    },
    17,
    0.99999,
  ],
  [
    "FP8 with a scale for each matrix",
    {
      ...bytes,
      number: "e4m3",
      group: null,
      groupRows: null,
      names: byteNames,
      config: { quant_method: "fp8" },
    },
    20,
    0.9999,
  ],
  [
    "FP8 in blocks",
    {
      ...{ ...bytes, number: "e4m3", group: 128, groupRows: 128 },
      names: { integers: "weight", scales: "weight_scale_inv" },
      config: { quant_method: "fp8", weight_block_size: [128, 128] },
    },
    20,
    0.9999,
  ],
  [
    "compressed-tensors, FP8 with a scale for each row",
    {
      ...{ ...bytes, number: "e4m3", group: null, groupRows: 1, names: byteNames },
      config: compressed("float-quantized", {
        type: "float",
        num_bits: 8,
        strategy: "channel",
        symmetric: true,
      }),
    },
    20,
    0.9999,
  ],
  [
    "compressed-tensors, int8 with a scale for each row",
    {
      ...{ ...bytes, number: "signed", group: null, groupRows: 1, names: byteNames },
      config: compressed("int-quantized", { type: "int", num_bits: 8, strategy: "channel", symmetric: true }),
    },
    20,
    0.99999,
  ],
  [
    "compressed-tensors, int4",
    {
      ...{ ...four, layout: "rows", group: 128, hasZeros: false, names: packedNames },
      config: compressed("pack-quantized", {
        type: "int",
        num_bits: 4,
        strategy: "group",
        group_size: 128,
        symmetric: true,
      }),
    },
    16,
    0.99999,
  ],
  [
    "compressed-tensors, int4 with zeros",
    {
      ...{ ...four, layout: "rows", group: 64, hasZeros: true },
      names: { ...packedNames, zeros: "weight_zero_point" },
      config: compressed("pack-quantized", {
        type: "int",
        num_bits: 4,
        strategy: "group",
        group_size: 64,
        symmetric: false,
      }),
    },
    17,
    0.99999,
  ],
  [
    "compressed-tensors, MXFP4",
    {
      ...{
        layout: "rows",
        number: "e2m1",
        bits: 4,
        group: 32,
        groupRows: 1,
        hasZeros: false,
        hasOrder: false,
      },
      names: packedNames,
      config: compressed("mxfp4-pack-quantized", {
        type: "float",
        num_bits: 4,
        strategy: "group",
        group_size: 32,
      }),
    },
    29,
    0.999999,
  ],
];

const { q, k, v, o, gate, up, down } = TensorKind;
const layerMatrices: readonly number[] = [q, k, v, o, gate, up, down];
function logitsOf(path: string, compute: "f32" | "bf16", quant: Quant, vocab = 500): Float32Array[] {
  const tokens = Array.from({ length: 16 }, (_, index) => (index * 37 + 11) % vocab);
  const rig = new Rig(library, openModelFolder(path), { compute, quant });
  const parts = tokens.map((_, position) => ({
    stream: rig.stream(tokens.slice(0, position + 1)),
    count: position + 1,
  }));
  const drawn = rig.step(parts);
  rig.close();
  return drawn.map(({ logits }) => logits);
}

const cases = Object.keys(models).flatMap((model) => ways.map((way) => [model, ...way] as const));

describe.each(cases)("%s, %s", (model, name, way, dtype, cosineMin) => {
  const [quantised, plain] = ["", " meant"].map((kind) => join(scratch, `${model} ${name}${kind}`)) as [
    string,
    string,
  ];
  writeQuantised(join(scratch, model), way, quantised, plain);
  const least = (got: readonly Float32Array[], want: readonly Float32Array[]): number =>
    Math.min(...got.map((row, position) => cosineOf(row, want[position]!)));

  test("means its published numbers", () => {
    const { tensors } = openModelFolder(quantised);
    expect(
      new Set(
        tensors
          .filter(({ rows, tensor }) => rows > 1 && layerMatrices.includes(tensor))
          .map((tensor) => tensor.dtype),
      ),
    ).toEqual(new Set([dtype]));
    expect(least(logitsOf(quantised, "f32", "none"), logitsOf(plain, "f32", "none"))).toBeGreaterThan(
      cosineMin,
    );
  });

  test("is computed in its own bits", () => {
    expect(least(logitsOf(quantised, "bf16", "auto"), logitsOf(plain, "bf16", "none"))).toBeGreaterThan(
      0.998,
    );
  });
});

describe("gpt-oss with experts in MXFP4", () => {
  const folder = join(scratch, "gpt-oss");
  const file = `${folder}.gguf`;
  writeFamily("gpt-oss-mxfp4", folder);
  writeFileSync(file, ggufBytes(convertModel(folder, { type: "BF16", expertType: "MXFP4" })));

  test.each([
    ["f32", "none"],
    ["bf16", "none"],
    ["bf16", "auto"],
  ] as const)("is computed in %s, %s, to the bits of a GGUF file with the same blocks", (compute, quant) => {
    const logits = logitsOf(folder, compute, quant, 300);
    expect(
      logits.every((row, position) => sameBits(row, logitsOf(file, compute, quant, 300)[position]!)),
    ).toBeTrue();
  });

  test("keeps them in memory as they are", () => {
    const { tensors, config } = openModelFolder(folder);
    const formats = formatsOf(tensors, config.shape.layers.length, "auto", "bf16");
    expect(formats.slice(2, 7).map(formatName)).toEqual(["plain", "plain", "plain", "MXFP4", "MXFP4"]);
  });
});
