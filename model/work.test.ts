import { expect, test } from "bun:test";
import { join } from "node:path";
import { openModelFolder } from "./folder.ts";
import { formatsOf } from "./formats.ts";
import { matrixFormats } from "./matrix-formats.ts";
import { type LayerShape, type ModelShape, plainLayer } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";
import type { ModelTensor } from "./weights.ts";
import { workOf } from "./work.ts";

test("a dense model's work is its matrices, with the vocabulary for drawn tokens", () => {
  const folder = openModelFolder(join(import.meta.dir, "../models/demo"));
  const { shape } = folder.config;
  const formats = formatsOf(folder.tensors, shape.layers.length, "int8", "bf16");
  const { matrices, ...attention } = workOf(folder, formats);
  const { hidden, feedForward, queryHeads, kvHeads, headSize, vocab } = shape;
  const layer = hidden * headSize * (2 * queryHeads + 2 * kvHeads) + 3 * hidden * feedForward;
  const layers = shape.layers.length;
  expect(matrices).toHaveLength(2);
  expect(matrices).toContainEqual({
    ...{ format: matrixFormats.int8, numbers: layers * layer, share: 1, tokens: "all" },
  });
  expect(matrices).toContainEqual({
    ...{ format: matrixFormats.int8, numbers: hidden * vocab, share: 1, tokens: "drawn" },
  });
  expect(attention).toEqual({
    positionBytes: layers * 2 * kvHeads * headSize * 2,
    positionOperations: layers * 4 * queryHeads * headSize,
  });
});

test("experts count with the share that a token uses, and an embedding table not at all", () => {
  const layer: LayerShape = { ...plainLayer, mlp: "experts" };
  const sizes = { queryHeads: 1, kvHeads: 1, headSize: 4, feedForward: 2, tiedEmbeddings: false };
  const experts = { count: 4, used: 1 };
  const shape = { ...sizes, layers: [layer], experts } as unknown as ModelShape;
  const tensor = (kind: number, rows: number, expert = 0): ModelTensor =>
    ({ tensor: kind, layer: 0, expert, rows, cols: 8, dtype: 2 }) as ModelTensor;
  const tensors = [
    ...[tensor(TensorKind.embed, 100), tensor(TensorKind.lmHead, 100), tensor(TensorKind.q, 4)],
    ...[0, 1, 2, 3].flatMap((expert) => [
      tensor(TensorKind.up, 2, expert),
      tensor(TensorKind.down, 2, expert),
    ]),
  ];
  const config = { shape } as Parameters<typeof workOf>[0]["config"];
  const { matrices } = workOf({ tensors, config }, formatsOf(tensors, 1, "auto", "bf16"));
  expect(matrices).toEqual([
    { format: matrixFormats.plain, numbers: 800, share: 1, tokens: "drawn" },
    { format: matrixFormats.plain, numbers: 32, share: 1, tokens: "all" },
    { format: matrixFormats.plain, numbers: 128, share: 1 / 4, tokens: "all" },
  ]);
});
