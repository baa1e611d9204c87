/** Comparison of this project's GGUF reader and block formats with the Python package `gguf`. */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readGgufFile } from "../../model/gguf-file.ts";
import { decodeStored, encodeStored, type StoredName, storedTypes } from "./gguf-blocks.ts";

const folder = join(import.meta.dir, "../reference/gguf");
const file = join(folder, "second-opinion.gguf");
const numbers = JSON.parse(readFileSync(join(folder, "numbers.json"), "utf8")) as Record<StoredName, string>;
const names = Object.keys(storedTypes) as StoredName[];

test("values of the metadata", () => {
  const { metadata } = readGgufFile(file);
  const values = [...metadata].map(([key, { type, value }]) => [
    key,
    type === "array" ? Array.from(value as ArrayLike<unknown>) : value,
  ]);
  expect(Object.fromEntries(values)).toMatchObject({
    "general.architecture": "qwen3",
    "general.name": "Second opinion",
    "a.u8": 200,
    "a.i8": -100,
    "a.u16": 60_000,
    "a.i16": -30_000,
    "a.u32": 4_000_000_000,
    "a.i32": -2_000_000_000,
    "a.u64": 2 ** 40,
    "a.i64": -(2 ** 40),
    "a.f32": 0.25,
    "a.f64": 1e100,
    "a.bool": true,
    "a.text": "żółć 小鳥",
    "a.texts": ["one", "", "três"],
    "a.numbers": [1, -2, 3],
    "a.reals": [0.5, -1.5],
    "a.bytes": [1, 255],
  });
});

describe.each(names.map((name) => [name]))("%s", (name) => {
  const { tensors } = readGgufFile(file);

  test("blocks mean the same numbers", () => {
    const tensor = tensors.find((candidate) => candidate.name === `${name}.weight`)!;
    const { dtype, shape, offset, bytes } = tensor;
    const expected = Buffer.from(numbers[name], "base64");
    expect({ dtype, shape }).toEqual({ dtype: name, shape: [2, expected.length / 8] });
    const decoded = decodeStored(name, readFileSync(file).subarray(offset, offset + bytes));
    expect(Buffer.from(decoded.buffer).equals(expected)).toBeTrue();
  });

  if (/^IQ[123]/.test(name)) return; // any bits are valid blocks of these types
  test("numbers come back from blocks about as they were", () => {
    const values = Float32Array.from({ length: 512 }, (_, index) => Math.sin(index * index));
    const back = decodeStored(name, encodeStored(name, values));
    // For a range of 2: one level or less, plus the rounding of scales.
    const bits = { F: 12, B: 8 }[name[0]!] ?? Number(/\d/.exec(name)![0]);
    const tolerance = 2.5 / 2 ** bits;
    for (const [index, value] of values.entries()) {
      expect(Math.abs(back[index]! - value)).toBeLessThanOrEqual(tolerance);
    }
  });
});
