import { describe, expect, test } from "bun:test";
import { publishedShapes } from "../../tools/random-model/shapes.ts";
import { parseModelConfig } from "../config.ts";
import type { JsonObject } from "../json.ts";

const shapeOf = (name: string, changes: JsonObject = {}) =>
  parseModelConfig(
    { file: "config.json", json: { ...publishedShapes[name]!.config, ...changes } },
    { file: "", json: {} },
  ).shape;
const qwen = (changes: JsonObject = {}) => shapeOf("Qwen3-30B-A3B", changes);

describe("a mixture of experts", () => {
  test("has the experts that its configuration says, in all layers", () => {
    const { experts, layers } = qwen();
    expect(experts).toEqual({ count: 128, used: 8, feedForward: 768, softmaxOf: "chosen" });
    expect(new Set(layers.map(({ mlp }) => mlp))).toEqual(new Set(["experts"]));
  });

  test("weighs by the softmax of all logits unless it is told to normalise", () => {
    expect(qwen({ norm_topk_prob: false }).experts?.softmaxOf).toBe("all");
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
