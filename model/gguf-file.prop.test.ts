/** Properties: a damaged head gives either a ModelError or another readable file. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { tensorInput } from "../tests/support/gguf-model.ts";
import { ggufBytes, memorySource } from "../tests/support/gguf-writer.ts";
import { runs } from "../tests/support/property.ts";
import { ggufTokenizer } from "../text/gguf-tokenizer.ts";
import { ggufConfig } from "./gguf-config.ts";
import { parseGguf } from "./gguf-file.ts";
import { Metadata } from "./gguf-metadata.ts";
import { ModelError } from "./model-error.ts";

const file = ggufBytes({
  entries: [
    ["general.architecture", "string", "qwen2"],
    ["general.name", "string", "Damaged"],
    ["general.alignment", "u32", 16],
    ["qwen2.block_count", "u32", 1],
    ["qwen2.context_length", "u32", 64],
    ["qwen2.embedding_length", "u32", 64],
    ["qwen2.feed_forward_length", "u32", 64],
    ["qwen2.attention.head_count", "u32", 4],
    ["qwen2.attention.head_count_kv", "u32", 2],
    ["qwen2.attention.layer_norm_rms_epsilon", "f32", 1e-6],
    ["qwen2.rope.freq_base", "f32", 10000],
    ["tokenizer.ggml.model", "string", "llama"],
    ["tokenizer.ggml.tokens", "string[]", ["<unk>", "<s>", "a", "b", "ab", "▁", "▁ab"]],
    ["tokenizer.ggml.scores", "f32[]", [0, 0, -1, -2, -3, -4, -5]],
    ["tokenizer.ggml.token_type", "i32[]", [2, 3, 1, 1, 1, 1, 1]],
    ["tokenizer.ggml.bos_token_id", "u32", 1],
    ["tokenizer.ggml.add_bos_token", "bool", true],
    ["general.sampling.temp", "f32", 0.5],
  ],
  alignment: 16,
  tensors: [
    tensorInput("token_embd.weight", [7, 64], "Q8_0", new Float32Array(7 * 64)),
    tensorInput("output_norm.weight", [64], "F32", new Float32Array(64)),
  ],
});
const headBytes = Buffer.from(file).lastIndexOf("output_norm.weight") + 18 + 4 + 8 + 4 + 8;

/** True if the whole head is usable, false on a ModelError; rethrows other errors. */
function isReadable(bytes: Uint8Array): boolean {
  try {
    const { metadata, tensors } = parseGguf("m.gguf", memorySource(bytes));
    for (const { offset, bytes: count } of tensors) {
      if (!(offset >= 0 && offset + count <= bytes.length)) throw new Error("a tensor outside the file");
    }
    const facts = {
      vocab: tensors[0]?.shape[0] ?? 1,
      tiedEmbeddings: true,
      has: () => false,
      floats: () => null,
      rows: () => null,
    };
    ggufConfig(new Metadata({ file: "m.gguf", metadata }), facts);
    ggufTokenizer({ file: "m.gguf", metadata });
    return true;
  } catch (error) {
    if (error instanceof ModelError) return false;
    throw error;
  }
}

test("the file is good", () => {
  expect(isReadable(file)).toBeTrue();
});

test("every file that ends early is refused", () => {
  const readable = Array.from({ length: file.length }, (_, length) => length).filter((length) =>
    isReadable(file.slice(0, length)),
  );
  // All tensors are present; only padding is missing.
  expect(readable.every((length) => length > file.length - 16)).toBeTrue();
});

test("bytes changed anywhere in the head", () => {
  const change = fc.record({
    at: fc.nat(headBytes - 1),
    // Small and extreme values break counts and types most often.
    value: fc.oneof(fc.constantFrom(0, 1, 0x7f, 0x80, 0xff), fc.nat(255)),
  });
  let readable = 0;
  let all = 0;
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), (changes) => {
      const damaged = file.slice();
      for (const { at, value } of changes) damaged[at] = value;
      all += 1;
      readable += Number(isReadable(damaged));
    }),
    runs(4000),
  );
  // Letters of names may change without harm; most other bytes may not.
  expect(readable).toBeLessThan(all / 2);
});

test("runs of bytes cut out of, doubled in or shuffled into the head", () => {
  const place = fc.nat(headBytes - 1);
  fc.assert(
    fc.property(place, fc.nat(40), place, fc.boolean(), (from, count, to, isMove) => {
      const bytes = Buffer.from(file);
      const run = bytes.subarray(from, from + count);
      const rest = isMove ? Buffer.concat([bytes.subarray(0, from), bytes.subarray(from + count)]) : bytes;
      isReadable(Buffer.concat([rest.subarray(0, to), run, rest.subarray(to)]));
      isReadable(Buffer.concat([bytes.subarray(0, from), bytes.subarray(from + count)]));
    }),
    runs(1000),
  );
});
