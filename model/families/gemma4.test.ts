import { expect, test } from "bun:test";
import { publishedShapes } from "../../tools/random-model/shapes.ts";
import { parseModelConfig } from "../config.ts";
import type { JsonObject } from "../json.ts";
import { layerSizes, plainRouter } from "../shape.ts";

const shapeOf = (changes: JsonObject = {}) =>
  parseModelConfig(
    { file: "config.json", json: { ...publishedShapes["Gemma-4-26B-A4B"]!.config, ...changes } },
    { file: "", json: {} },
  ).shape;

test("layers with a window and without have their own heads and ropes, and the largest are the model's", () => {
  const shape = shapeOf();
  const ofLayer = (index: number) => layerSizes(shape.layers[index]!, shape);
  expect(ofLayer(0)).toEqual({ headSize: 256, kvHeads: 8, feedForward: 2112 });
  expect(ofLayer(5)).toEqual({ headSize: 512, kvHeads: 2, feedForward: 2112 });
  expect([shape.headSize, shape.kvHeads]).toEqual([512, 8]);
  expect(shape.layers.slice(0, 6).map(({ slidingWindow }) => slidingWindow)).toEqual([
    ...[1024, 1024, 1024, 1024, 1024],
    0,
  ]);
  expect(shape.layers.slice(4, 6).map(({ valuesAreKeys }) => valuesAreKeys)).toEqual([false, true]);
  expect(shape.ropes).toEqual([
    { kind: "proportional", turned: 64, factor: 1, theta: 1e6, dimensions: 512 },
    { kind: "plain", theta: 10_000, dimensions: 256 },
  ]);
  expect(shape.experts).toEqual({ ...plainRouter, count: 128, used: 8, feedForward: 704 });
});

test("the last layer sees all, and layers that share read the last one of their kind that does not", () => {
  const { layers } = shapeOf({
    num_hidden_layers: 7,
    layer_types: [..."sfsfsss"].map((kind) => (kind === "s" ? "sliding_attention" : "full_attention")),
    num_kv_shared_layers: 3,
    attention_k_eq_v: false,
  });
  expect(layers.map(({ slidingWindow }) => slidingWindow > 0)).toEqual([
    ...[true, false, true, false, true],
    ...[true, false],
  ]);
  expect(layers.map(({ kvLayersBack }) => kvLayersBack)).toEqual([0, 0, 0, 0, 2, 3, 3]);
});

test.each<[string, JsonObject, string]>([
  [
    "sharing with no layer of the kind before",
    { num_hidden_layers: 3, num_kv_shared_layers: 2 },
    "num_kv_shared_layers: 2: no layer before has the keys that layer 2 reads",
  ],
  [
    "sizes of layers in another spelling",
    { global_head_dim: null, per_layer_config: { 5: { head_dim: 512 } } },
    "sizes of layers are read from global_head_dim",
  ],
  ["another table of layers' inputs", { vocab_size_per_layer_input: 100 }, "vocab_size_per_layer_input: 100"],
  ["heads of an odd size", { global_head_dim: 24 }, "global_head_dim: 24: wanted: a multiple of 16"],
  ["sight of all tokens", { use_bidirectional_attention: "all" }, "use_bidirectional_attention"],
])("refused: %s", (_, changes, sentence) => {
  expect(() => shapeOf(changes)).toThrow(sentence);
});

test("sight of an image's tokens alone is of no concern to text", () => {
  expect(shapeOf({ use_bidirectional_attention: "vision" }).layers.length).toBe(30);
});
