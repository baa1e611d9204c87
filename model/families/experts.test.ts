import { describe, expect, test } from "bun:test";
import { publishedShapes } from "../../tools/random-model/shapes.ts";
import { parseModelConfig } from "../config.ts";
import type { JsonObject } from "../json.ts";
import { plainRouter } from "../shape.ts";

const shapeOf = (name: string, changes: JsonObject = {}) =>
  parseModelConfig(
    { file: "config.json", json: { ...publishedShapes[name]!.config, ...changes } },
    { file: "", json: {} },
  ).shape;
const qwen = (changes: JsonObject = {}) => shapeOf("Qwen3-30B-A3B", changes);

describe("a mixture of experts", () => {
  test("has the experts that its configuration says, in all layers", () => {
    const { experts, layers } = qwen();
    expect(experts).toEqual({ ...plainRouter, count: 128, used: 8, feedForward: 768 });
    expect(new Set(layers.map(({ mlp }) => mlp))).toEqual(new Set(["experts"]));
  });

  test("weighs by the softmax of all logits unless it is told to normalise", () => {
    expect(qwen({ norm_topk_prob: false }).experts?.score).toBe("all");
  });

  test("has dense layers where they are listed, and between every so many", () => {
    const { layers } = qwen({ num_hidden_layers: 6, decoder_sparse_step: 2, mlp_only_layers: [3] });
    expect(layers.map(({ mlp }) => mlp)).toEqual(["gated", "experts", "gated", "gated", "gated", "experts"]);
  });

  test("of gpt-oss has sinks, biases and a window in every other layer", () => {
    const { activation, layers } = shapeOf("gpt-oss-20b");
    expect(activation).toBe("clampedSwiglu");
    expect(layers.slice(0, 4).map(({ slidingWindow, sinks }) => [slidingWindow, sinks])).toEqual([
      [128, true],
      [0, true],
      [128, true],
      [0, true],
    ]);
    expect(layers[0]!.biases).toEqual({ qkv: true, o: true, gateUp: true, down: true, router: true });
  });

  test.each([
    ["num_experts_per_tok", { num_experts_per_tok: 129 }, "129: wanted: a whole number from 1 to 128"],
    ["num_experts", { num_experts: 0 }, "0: wanted: a whole number from 1 to 4096"],
    ["mlp_only_layers", { mlp_only_layers: [48] }, "[48]: wanted: numbers of layers from 0 to 47"],
    ["use_sliding_window", { use_sliding_window: true }, "true: windows are not supported"],
  ] as const)("with an impossible %s is refused", (field, changes, reason) => {
    expect(() => qwen(changes as unknown as JsonObject)).toThrow(`config.json: ${field}: ${reason}`);
  });

  test.each([
    ["swiglu_limit", { swiglu_limit: 8 }],
    ["rope_scaling", { rope_scaling: null }],
  ] as const)("of gpt-oss with another %s is refused", (field, changes) => {
    expect(() => shapeOf("gpt-oss-20b", changes as unknown as JsonObject)).toThrow(`config.json: ${field}: `);
  });
});

describe("a router with sigmoids", () => {
  const sizes: JsonObject = {
    ...{ hidden_size: 256, intermediate_size: 512, num_hidden_layers: 4, num_attention_heads: 8 },
    ...{ num_key_value_heads: 2, vocab_size: 1000, max_position_embeddings: 4096 },
  };
  const glm: JsonObject = {
    ...sizes,
    ...{ architectures: ["Glm4MoeForCausalLM"], model_type: "glm4_moe" },
    ...{ n_routed_experts: 16, num_experts_per_tok: 4, moe_intermediate_size: 64, n_shared_experts: 2 },
    ...{ n_group: 4, topk_group: 2, routed_scaling_factor: 2.5, first_k_dense_replace: 1 },
  };
  const parse = (json: JsonObject) =>
    parseModelConfig({ file: "config.json", json }, { file: "", json: {} }).shape;

  test("of GLM has groups and a factor, and layers behind dense ones have shared experts", () => {
    const { experts, feedForward, layers } = parse(glm);
    expect(experts).toEqual({
      ...{ count: 16, used: 4, feedForward: 64, score: "sigmoid", biased: true, normalised: true },
      ...{ scalesInput: false, groups: 4, groupsUsed: 2, scale: 2.5 },
    });
    expect(feedForward).toBe(512);
    expect(layers.map(({ mlp, ownSizes }) => [mlp, ownSizes.feedForward])).toEqual([
      ["gated", undefined],
      ["shared", 128],
      ["shared", 128],
      ["shared", 128],
    ]);
  });

  test.each([
    ["topk_group", { topk_group: 5 }],
    ["n_routed_experts", { n_routed_experts: 0 }],
    ["n_shared_experts", { n_shared_experts: -1 }],
  ])("with an impossible %s is refused", (field, changes) => {
    expect(() => parse({ ...glm, ...changes })).toThrow(`config.json: ${field}: `);
  });

  test.each([
    ["scoring_func", { scoring_func: "softmax" }],
    ["qk_norm_type", { qk_norm_type: "per_head" }],
    ["shared_intermediate_size", { shared_intermediate_size: 64 }],
    ["rotary_dim", { rotary_dim: 33 }],
  ])("of MiniMax with another %s is refused", (field, changes) => {
    const minimax = {
      ...sizes,
      ...{ architectures: ["MiniMaxM2ForCausalLM"], model_type: "minimax_m2" },
      ...{ num_local_experts: 8, num_experts_per_tok: 2, head_dim: 64, rotary_dim: 32 },
    };
    expect(parse(minimax).ropes[0]!.dimensions).toBe(32);
    expect(() => parse({ ...minimax, ...changes })).toThrow(`config.json: ${field}: `);
  });
});

describe("Llama 4", () => {
  const llama4: JsonObject = {
    ...{ architectures: ["Llama4ForCausalLM"], model_type: "llama4_text", num_hidden_layers: 4 },
    ...{ hidden_size: 256, intermediate_size: 64, intermediate_size_mlp: 512, num_attention_heads: 8 },
    ...{ num_key_value_heads: 2, vocab_size: 1000, max_position_embeddings: 65_536 },
    ...{ num_local_experts: 16, num_experts_per_tok: 1, interleave_moe_layer_step: 2 },
  };
  const parse = (changes: JsonObject = {}) =>
    parseModelConfig({ file: "config.json", json: { ...llama4, ...changes } }, { file: "", json: {} }).shape;

  test("sees chunks where it rotates, all elsewhere, and has experts in every second layer", () => {
    const { layers, ropes } = parse();
    expect(
      layers.map(({ rope, chunked, slidingWindow, qkNorm, mlp }) => [
        rope,
        chunked,
        slidingWindow,
        qkNorm,
        mlp,
      ]),
    ).toEqual([
      [0, true, 8192, "unit", "gated"],
      [0, true, 8192, "unit", "shared"],
      [0, true, 8192, "unit", "gated"],
      [1, false, 0, "none", "shared"],
    ]);
    expect(ropes[1]).toMatchObject({ turned: 0, queries: { growth: 0.1, span: 8192, offset: 1 } });
  });

  test("with two experts per token, whose inputs the router scales, is refused", () => {
    expect(() => parse({ num_experts_per_tok: 2 })).toThrow("config.json: num_experts_per_tok: 2: ");
  });
});
