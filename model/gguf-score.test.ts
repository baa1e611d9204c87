import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encoderFile } from "../tests/reference/encoders.ts";
import { openModelFolder } from "./folder.ts";
import type { GgufValue } from "./gguf-file.ts";
import { Metadata } from "./gguf-metadata.ts";
import { ggufScore } from "./gguf-score.ts";
import type { StoredTensor } from "./safetensors.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-gguf-score-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const file = join(scratch, "tensors");
/** Blocks of 32 bytes behind a scale: rows of 1 … 32 by a half, and of ones by two. */
const block = (scale: number, value: (at: number) => number): Buffer => {
  const bytes = Buffer.alloc(34);
  new DataView(bytes.buffer, bytes.byteOffset).setFloat16(0, scale, true);
  for (let at = 0; at < 32; at++) bytes.writeInt8(value(at), 2 + at);
  return bytes;
};
writeFileSync(file, Buffer.concat([block(0.5, (at) => at + 1), block(2, () => -1)]));
const rows = (dtype: string, shape = [2, 32]): StoredTensor => ({
  ...{ name: "cls.output.weight", file, dtype, shape, offset: 0, bytes: 68 },
});

const { shape: encoder } = openModelFolder(encoderFile("xlm-roberta-score")!).config;
const decoder = { ...encoder, encoder: undefined };

function scoreOf(shape: object, tensors: readonly StoredTensor[], labels: readonly string[] = ["yes", "no"]) {
  const metadata = new Metadata({
    file: "a.gguf",
    metadata: new Map<string, GgufValue>([
      ["general.architecture", { type: "string", value: "qwen3" }],
      ["qwen3.classifier.output_labels", { type: "array", of: "string", value: [...labels] } as GgufValue],
    ]),
  });
  const named = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return ggufScore(metadata, named, { shape: shape as typeof encoder });
}

test("a row of Q8_0 for yes, less that for no", () => {
  const weights = Float32Array.from({ length: 32 }, (_, at) => 0.5 * (at + 1) + 2);
  expect(scoreOf(decoder, [rows("Q8_0")])).toEqual({ weights });
});

test.each([
  ["no head", decoder, [], undefined, "its file has no cls.output.weight"],
  [
    "another type",
    decoder,
    [rows("Q4_K")],
    undefined,
    "cls.output.weight is in Q4_K, and scores need one of F32, F16, BF16, Q8_0",
  ],
  [
    "other labels",
    decoder,
    [rows("Q8_0")],
    ["good", "bad"],
    "cls.output has the labels good, bad, and a score is of yes and no",
  ],
  ["several labels", encoder, [rows("Q8_0")], undefined, "cls.output has 2 labels, and a score is of one"],
] as const)("%s is refused by name", (_, shape, tensors, labels, refusal) => {
  expect(scoreOf(shape, tensors, labels)).toEqual({ refusal });
});
