import { expect, test } from "bun:test";
import { parseGguf } from "../model/gguf-file.ts";
import { type GgufInput, ggufBytes, memorySource } from "../tests/support/gguf-writer.ts";
import { deepened } from "./deepen-model.ts";

const F32 = 0;
const numbers = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);

test("a deepened model has its layers again, which add zero", () => {
  const input: GgufInput = {
    entries: [
      ["general.architecture", "string", "llama"],
      ["llama.block_count", "u32", 2],
      ["tokenizer.ggml.tokens", "string[]", ["a", "b"]],
    ],
    tensors: [
      { name: "token_embd.weight", shape: [1, 2], type: F32, data: numbers(9, 9) },
      ...[0, 1].flatMap((layer) =>
        ["attn_q", "attn_output", "ffn_down"].map((part, i) => ({
          name: `blk.${layer}.${part}.weight`,
          ...{ shape: [1, 2], type: F32, data: numbers(layer + 1, i + 1) },
        })),
      ),
    ],
  };
  const bytes = ggufBytes(input);
  const deep = deepened(parseGguf("small.gguf", memorySource(bytes)), bytes, 2);
  const { metadata, tensors } = parseGguf("deep.gguf", memorySource(deep));
  expect([...metadata].map(([key, { value }]) => [key, value])).toEqual([
    ["general.architecture", "llama"],
    ["llama.block_count", 4],
    ["tokenizer.ggml.tokens", ["a", "b"]],
  ]);
  const contents = tensors.map(({ name, offset, bytes: count }) => {
    return [name, ...new Float32Array(deep.slice(offset, offset + count).buffer)];
  });
  const layer = (index: number, q: number[], added: number[][]) => [
    [`blk.${index}.attn_q.weight`, ...q],
    [`blk.${index}.attn_output.weight`, ...added[0]!],
    [`blk.${index}.ffn_down.weight`, ...added[1]!],
  ];
  const zeros = [
    [0, 0],
    [0, 0],
  ];
  const expected = [
    ["token_embd.weight", 9, 9],
    ...layer(
      0,
      [1, 1],
      [
        [1, 2],
        [1, 3],
      ],
    ),
    ...layer(
      1,
      [2, 1],
      [
        [2, 2],
        [2, 3],
      ],
    ),
    ...layer(2, [1, 1], zeros),
    ...layer(3, [2, 1], zeros),
  ];
  expect(contents.toSorted()).toEqual(expected.toSorted());
});

test("a number of times that is none, and layers that add by other matrices, are refused", () => {
  const bytes = ggufBytes({
    entries: [
      ["general.architecture", "string", "qwen3moe"],
      ["qwen3moe.block_count", "u32", 1],
    ],
    tensors: [
      { name: "blk.0.attn_output.weight", shape: [1, 2], type: F32, data: numbers(1, 1) },
      { name: "blk.0.ffn_down_exps.weight", shape: [1, 2], type: F32, data: numbers(1, 1) },
    ],
  });
  const file = parseGguf("small.gguf", memorySource(bytes));
  expect(() => deepened(file, bytes, 2)).toThrow("layer 0 has no ffn_down");
  for (const times of [0, 1.5, Number.NaN])
    expect(() => deepened(file, bytes, times)).toThrow(`--times is a whole number from 1, not ${times}`);
});
