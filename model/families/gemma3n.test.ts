import { expect, test } from "bun:test";
import { familyConfigs } from "../../tests/reference/family-configs.ts";
import { parseModelConfig } from "../config.ts";
import type { JsonObject } from "../json.ts";
import type { StoredTensor } from "../safetensors.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { folderTensors, matchTensors } from "../weights.ts";

const configOf = (changes: JsonObject = {}) =>
  parseModelConfig(
    { file: "config.json", json: { ...familyConfigs.gemma3n, ...changes } },
    { file: "", json: {} },
  );

test("the last layers read keys of the last one of their kind, and gates are cut off by their share", () => {
  const { layers, streams } = configOf().shape;
  expect(streams).toBe(4);
  expect(layers.map(({ kvLayersBack }) => kvLayersBack)).toEqual([0, 0, 0, 0, 1, 3]);
  expect(layers.map(({ gateCutoff }) => gateCutoff?.toFixed(5) ?? null)).toEqual([
    ...["1.64485", "0.25335"],
    ...[null, null, null, null],
  ]);
});

test("without a pattern, the first ten layers of more have sparse gates, and each fifth layer sees all", () => {
  const { layers } = configOf({
    ...{ num_hidden_layers: 15, num_kv_shared_layers: 5, intermediate_size: 96 },
    ...{ layer_types: null, activation_sparsity_pattern: null },
  }).shape;
  expect(layers.map(({ gateCutoff }) => gateCutoff !== null)).toEqual(
    Array.from({ length: 15 }, (_, layer) => layer < 10),
  );
  expect(layers.flatMap(({ slidingWindow }, layer) => (slidingWindow === 0 ? [layer] : []))).toEqual([
    4, 9, 14,
  ]);
});

test("rows of the embedding for images and sounds, behind those of text, are not read", () => {
  const config = configOf({ vocab_size_per_layer_input: 288 });
  expect(config.shape.vocab).toBe(288);
  const embedding = "model.embed_tokens.weight";
  const tensors = new Map(
    folderTensors(config).map(({ name, shape }): [string, StoredTensor] => {
      const stored = name === embedding ? [300, 64] : shape;
      const bytes = 2 * stored.reduce((product, size) => product * size, 1);
      return [name, { name, file: "model.safetensors", dtype: "BF16", shape: stored, offset: 8, bytes }];
    }),
  );
  const [embed] = matchTensors(config, { tensors }, "model.safetensors");
  expect(embed).toMatchObject({
    tensor: TensorKind.embed,
    rows: 288,
    cols: 64,
    offset: 8,
    bytes: 288 * 64 * 2,
  });
});

test.each<[string, JsonObject, string]>([
  ["another stream that layers compute", { altup_active_idx: 1 }, "altup_active_idx: 1"],
  ["streams without a scale", { altup_correct_scale: false }, "altup_correct_scale: false"],
  ["widths that differ", { intermediate_size: [96, 96, 96, 96, 96, 64] }, "intermediate_size"],
  [
    "a share of all gates",
    { activation_sparsity_pattern: Array(6).fill(1) },
    "wanted: shares from 0 to below 1",
  ],
])("refused: %s", (_, changes, sentence) => {
  expect(() => configOf(changes)).toThrow(sentence);
});
