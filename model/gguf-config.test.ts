import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { referenceModel, referenceModels } from "../tests/reference/models.ts";
import { convertModel } from "../tests/support/gguf-model.ts";
import { type Entry, type GgufInput, ggufBytes } from "../tests/support/gguf-writer.ts";
import type { ModelConfig } from "./config.ts";
import { openModelFolder } from "./folder.ts";
import { ggufConfig, ropeOfFactors } from "./gguf-config.ts";
import { readGgufFile } from "./gguf-file.ts";
import { Metadata } from "./gguf-metadata.ts";
import { ModelError } from "./model-error.ts";
import { rotationOf } from "./rope.ts";
import type { Rope } from "./shape.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-gguf-config-"));
afterAll(() => rmSync(scratch, { recursive: true }));

let files = 0;
function written(input: GgufInput, name?: string): string {
  files += 1;
  const file = join(scratch, name ?? `model-${files}.gguf`);
  writeFileSync(file, ggufBytes(input));
  return file;
}

function errorOf(file: string): string {
  try {
    openModelFolder(file);
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    return (error as ModelError).message.replaceAll(`${scratch}/`, "");
  }
  throw new Error("opened");
}

/** Rounds real numbers to f32, as the file stores them. */
function inF32({ shape, generationDefaults, ...config }: ModelConfig): ModelConfig {
  const f32 = (value: number | null) => (value === null ? null : Math.fround(value));
  const { temperature, topP } = generationDefaults;
  return {
    ...config,
    shape: { ...shape, normEpsilon: Math.fround(shape.normEpsilon) },
    generationDefaults: { ...generationDefaults, temperature: f32(temperature), topP: f32(topP) },
  };
}

describe("the configuration of a file is that of the folder it was made from", () => {
  test.each(referenceModels().map((model) => [model.name, model.dir] as const))("%s", (_, dir) => {
    const folder = openModelFolder(dir);
    const file = openModelFolder(written(convertModel(dir, { type: "F16" })));
    expect(file.config).toEqual(inF32(folder.config));
    expect(file.tensors.map(({ tensor, layer, rows, cols }) => [tensor, layer, rows, cols])).toEqual(
      folder.tensors.map(({ tensor, layer, rows, cols }) => [tensor, layer, rows, cols]),
    );
  });
});

const { dir } = referenceModel("qwen3");
const good = convertModel(dir, { type: "BF16" });

/** Copy of the valid file with some entries set, and without the entries that are null. */
function withEntries(
  changes: Readonly<Record<string, readonly [type: string, value: unknown] | null>>,
): GgufInput {
  const kept = good.entries.filter(([key]) => !Object.hasOwn(changes, key));
  const set = Object.entries(changes).flatMap(([key, change]): Entry[] =>
    change === null ? [] : [[key, ...change]],
  );
  return { ...good, entries: [...kept, ...set] };
}

describe("names", () => {
  const nameOf = (input: GgufInput, name?: string): string => openModelFolder(written(input, name)).name;

  test("what the file says, without spaces", () => {
    expect(nameOf(withEntries({ "general.name": ["string", "  Tiny Qwen3  0.1B "] }))).toBe(
      "Tiny-Qwen3-0.1B",
    );
  });

  test("else, or if that is no name, the file's own", () => {
    expect(nameOf(good, "tiny-q8.gguf")).toBe("tiny-q8");
    expect(nameOf(withEntries({ "general.name": ["string", ""] }), "tiny-b.gguf")).toBe("tiny-b");
    expect(nameOf(withEntries({ "general.name": ["string", "a\u0000b"] }), "tiny-c.gguf")).toBe("tiny-c");
  });

  test("a file is known by how it begins, whatever it is called", () => {
    expect(openModelFolder(written(good, "blob")).name).toBe("blob");
  });
});

describe("tokens that end a text", () => {
  const tokens = Array.from({ length: 241 }, (_, index) => `t${index}`);
  tokens.splice(7, 4, "<|im_end|>", "<|eot_id|>", "</s>", "<|tool_response>");
  const types = tokens.map(() => 1);
  types[7] = 3;
  types[9] = 3;
  types[10] = 4;
  const vocabulary = {
    "tokenizer.ggml.tokens": ["string[]", tokens],
    "tokenizer.ggml.token_type": ["i32[]", types],
  } as const;

  test("those that are named, those known by their texts, and what waits for a tool", () => {
    const input = withEntries({ ...vocabulary, "tokenizer.ggml.eot_token_id": null });
    expect(openModelFolder(written(input)).eosTokens).toEqual([2, 7, 8, 10]);
  });

  test("none", () => {
    const input = withEntries({ "tokenizer.ggml.eos_token_id": null, "tokenizer.ggml.eot_token_id": null });
    expect(openModelFolder(written(input)).eosTokens).toEqual([]);
  });

  test("an end outside the vocabulary, more tokens than it has, types of other tokens", () => {
    const far = withEntries({ "tokenizer.ggml.eos_token_id": ["u32", 241] });
    expect(errorOf(written(far))).toContain("eos_token_id: 241: wanted: a whole number from 0 to 240");
    const many = withEntries({ "tokenizer.ggml.tokens": ["string[]", [...tokens, "one more"]] });
    expect(errorOf(written(many))).toContain("tokens: array of 242 string: the model's vocabulary has 241");
    const few = withEntries({ ...vocabulary, "tokenizer.ggml.token_type": ["i32[]", [1]] });
    expect(errorOf(written(few))).toContain(
      "token_type: array of 1 i32: wanted: an array of 241 whole numbers",
    );
  });
});

describe("windows of some layers", () => {
  /** GGUF file of one architecture with a window of 100 in the layers that the pattern selects. */
  const fileOf = (architecture: string, pattern: readonly [type: string, value: unknown] | null): string => {
    const own = Object.entries({
      "attention.sliding_window": ["u32", 100],
      "attention.sliding_window_pattern": pattern,
      block_count: ["u32", 5],
    } as const).flatMap(([key, entry]): Entry[] =>
      entry === null ? [] : [[`${architecture}.${key}`, ...entry]],
    );
    const others = good.entries
      .map(([key, ...entry]): Entry => [key.replace(/^qwen3\./, `${architecture}.`), ...entry])
      .filter(([key]) => !own.some(([set]) => set === key) && key !== "general.architecture");
    return written(
      { ...good, entries: [["general.architecture", "string", architecture], ...others, ...own] },
      "windows.gguf",
    );
  };
  /** Layers that have a window, as letters. Most tensors are absent. */
  const slidingOf = (
    architecture: string,
    pattern: readonly [type: string, value: unknown] | null,
  ): string => {
    const metadata = new Metadata(readGgufFile(fileOf(architecture, pattern)));
    const none = { vocab: 241, tiedEmbeddings: true, has: () => false, floats: () => null, rows: () => null };
    const { layers } = ggufConfig(metadata, none).shape;
    return layers.map(({ slidingWindow }) => (slidingWindow === 100 ? "W" : "-")).join("");
  };

  test.each([
    ["llama", ["bool[]", [0, 1, 1, 0, 1]], "-WW-W"],
    ["qwen2", ["u32[]", [0, 0, 0, 1, 1]], "---WW"],
    ["mistral3", ["u32", 2], "W-W-W"],
    ["qwen3", ["u32", 1], "-----"],
    ["gemma2", null, "W-W-W"],
    ["gemma2", ["u32", 3], "WW-WW"],
    ["gemma3", ["bool[]", [0, 1, 0, 1, 0]], "-W-W-"],
    ["phi3", null, "WWWWW"],
  ] as const)("%s with the pattern %j: %s", (architecture, pattern, layers) => {
    expect(slidingOf(architecture, pattern)).toBe(layers);
  });

  test.each(["llama", "mistral3", "qwen2", "qwen3"])(
    "are refused in %s files that do not tell which",
    (architecture) => {
      expect(errorOf(fileOf(architecture, null))).toBe(
        `windows.gguf: ${architecture}.attention.sliding_window: 100: the file does not tell which layers have the window: no attention.sliding_window_pattern`,
      );
    },
  );

  test("are refused where the family knows none, and in patterns that are none", () => {
    expect(errorOf(fileOf("smollm3", ["u32", 0]))).toContain(
      "sliding_window: 100: no layer of a smollm3 model has a window",
    );
    expect(errorOf(fileOf("llama", ["bool[]", [1, 1]]))).toContain(
      "sliding_window_pattern: array of 2 bool: wanted: an array of 5 truth values or whole numbers",
    );
  });
});

describe("what is not supported is refused by name", () => {
  const cases: readonly (readonly [string, readonly [string, unknown] | null, string])[] = [
    ["general.architecture", null, "missing: wanted: a text"],
    ["general.architecture", ["string", "gpt2"], '"gpt2": supported: llama, mistral3, qwen2, qwen3'],
    ["general.architecture", ["u32", 1], "1: wanted: a text"],
    ["qwen3.block_count", null, "missing: wanted: a whole number from 1 to 4096"],
    ["qwen3.block_count", ["u32", 0], "0: wanted"],
    ["qwen3.block_count", ["f32", 2], "2: wanted: a whole number"],
    ["qwen3.block_count", ["u64", 2n ** 64n - 1n], "18446744073709551615: wanted"],
    ["qwen3.embedding_length", ["i32", -48], "-48: wanted"],
    [
      "qwen3.feed_forward_length",
      ["i32[]", [80, 96]],
      "array of 2 i32: layers of a qwen3 model do not differ",
    ],
    ["qwen3.attention.head_count", ["u32[]", [4, 4]], "array of 2 u32: wanted"],
    ["qwen3.attention.head_count_kv", ["u32", 3], "3: does not divide attention.head_count 4"],
    ["qwen3.attention.key_length", ["u32", 24], "24: a head size of 24 is not supported"],
    ["qwen3.attention.value_length", ["u32", 64], "64: wanted: a whole number from 80 to 80"],
    ["qwen3.attention.layer_norm_rms_epsilon", null, "missing: wanted: a real number"],
    ["qwen3.attention.layer_norm_rms_epsilon", ["f32", Number.NaN], "NaN: wanted: a real number"],
    ["qwen3.attention.layer_norm_rms_epsilon", ["u32", 1], "1: wanted: a real number"],
    [
      "qwen3.attention.sliding_window",
      ["u32", 100],
      "100: the file does not tell which layers have the window: no attention.sliding_window_pattern",
    ],
    ["qwen3.attention.causal", ["bool", false], "false: attention to later tokens"],
    ["qwen3.attention.scale", ["f32", 0.5], "0.5: a scale of its own is not supported"],
    ["qwen3.expert_count", ["u32", 8], "8: wanted: a whole number from 0 to 0"],
    ["qwen3.expert_gating_func", ["u32", 2], "2: experts that are chosen by sigmoids are not supported"],
    ["qwen3.expert_weights_scale", ["f32", 2.5], "2.5: wanted: a real number from 1 to 1"],
    ["qwen3.expert_shared_count", ["u32", 1], "1: wanted: a whole number from 0 to 0"],
    ["qwen3.rope.dimension_count", ["u32", 41], "41: wanted: an even number"],
    ["qwen3.rope.dimension_count", ["u32", 82], "82: wanted: a whole number from 2 to 80"],
    ["qwen3.rope.freq_base", ["f32", 0], "0: wanted: a real number from 1"],
    ["qwen3.rope.scale_linear", ["f32", 2], "2: is an old spelling"],
    ["qwen3.rope.scaling.type", ["string", "dynamic"], '"dynamic": supported: none, linear, yarn, longrope'],
    ["qwen3.vocab_size", ["u32", 240], "240: wanted: a whole number from 241 to 241"],
    ["qwen3.context_length", ["u32", 0], "0: wanted"],
    ["general.sampling.temp", ["f32", -1], "-1: wanted: a real number from 0 to 100"],
  ];
  test.each(cases)("%s %p", (key, change, reason) => {
    expect(errorOf(written(withEntries({ [key]: change }), "bad.gguf"))).toStartWith(
      `bad.gguf: ${key}: ${reason}`,
    );
  });

  test("tokens that are never sampled", () => {
    const input = withEntries({ "tokenizer.ggml.suppress_tokens": ["i32[]", [5, 7]] });
    expect(openModelFolder(written(input)).generationDefaults.badWords).toEqual([[5], [7]]);
  });

  test("heads that do not divide the width", () => {
    const input = withEntries({
      "qwen3.attention.key_length": null,
      "qwen3.attention.head_count": ["u32", 5],
      "qwen3.attention.head_count_kv": ["u32", 1],
    });
    expect(errorOf(written(input))).toContain("head_count: 5: does not divide embedding_length 48");
  });

  test("linear rescaling without its factor", () => {
    const input = withEntries({ "qwen3.rope.scaling.type": ["string", "linear"] });
    expect(errorOf(written(input))).toContain("qwen3.rope.scaling.factor: missing: wanted: a real number");
  });
});

describe("tensors are those of the model", () => {
  const withTensors = (change: (tensors: (typeof good.tensors)[number][]) => void): string => {
    const tensors = [...good.tensors];
    change(tensors);
    return written({ ...good, tensors }, "bad.gguf");
  };
  const find = (tensors: readonly { readonly name: string }[], name: string): number =>
    tensors.findIndex((tensor) => tensor.name === name);

  test.each(["token_embd.weight", "output_norm.weight", "blk.1.attn_q_norm.weight"])(
    "%s is missing",
    (name) => {
      const file = withTensors((tensors) => tensors.splice(find(tensors, name), 1));
      expect(errorOf(file)).toBe(`bad.gguf: ${name}: the tensor is missing`);
    },
  );

  test("without a projection of its own, the embedding is it", () => {
    const file = withTensors((tensors) => tensors.splice(find(tensors, "output.weight"), 1));
    expect(openModelFolder(file).config.shape.tiedEmbeddings).toBeTrue();
  });

  test("a tensor that no such model has", () => {
    const file = withTensors((tensors) => tensors.push({ ...tensors[1]!, name: "blk.0.attn_z.bias" }));
    expect(errorOf(file)).toBe(
      "bad.gguf: blk.0.attn_z.bias: is no part of a qwen3 model as the metadata describes it",
    );
  });

  test("another shape", () => {
    const file = withTensors((tensors) => {
      const at = find(tensors, "blk.0.ffn_up.weight");
      tensors[at] = { ...tensors[at]!, shape: [48, 80] };
    });
    expect(errorOf(file)).toBe("bad.gguf: blk.0.ffn_up.weight: has shape [48,80], wanted [80,48]");
  });
});

describe("parts", () => {
  const split = (number: number, count: number) =>
    ({ "split.no": ["u16", number], "split.count": ["u16", count] }) as const;

  test("a part that is not the first names the first", () => {
    const file = written(withEntries(split(1, 2)), "two-00002-of-00002.gguf");
    expect(errorOf(file)).toBe(
      "two-00002-of-00002.gguf: split.no: is part 2 of 2: open two-00001-of-00002.gguf",
    );
  });

  test("a part under another name, or alone", () => {
    const renamed = written(withEntries(split(0, 2)), "renamed.gguf");
    expect(errorOf(renamed)).toContain("is the first of 2 parts; its name must end in -00001-of-00002.gguf");
    const alone = written(withEntries(split(0, 2)), "alone-00001-of-00002.gguf");
    expect(errorOf(alone)).toBe("alone-00002-of-00002.gguf: does not exist");
  });

  test("parts that do not belong together", () => {
    const first = written(withEntries(split(0, 2)), "odd-00001-of-00002.gguf");
    written({ entries: [["split.count", "u16", 3]], tensors: [] }, "odd-00002-of-00002.gguf");
    expect(errorOf(first)).toContain(
      "odd-00002-of-00002.gguf: split.count: 3: wanted: a whole number from 2 to 2",
    );
    const entries = Object.entries(split(1, 2)).map(([key, value]): Entry => [key, ...value]);
    written({ entries, tensors: good.tensors.slice(0, 1) }, "odd-00002-of-00002.gguf");
    expect(errorOf(first)).toContain("odd-00002-of-00002.gguf: token_embd.weight: is in ");
  });
});

describe("Llama 3's rescaling is found in its factors", () => {
  const factorsOf = (rope: Extract<Rope, { kind: "llama3" }>, headSize: number): Float32Array =>
    Float32Array.from({ length: headSize / 2 }, (_, index) => {
      const waves = (rope.originalContext * rope.theta ** ((-2 * index) / headSize)) / (2 * Math.PI);
      const share = (waves - rope.lowFreqFactor) / (rope.highFreqFactor - rope.lowFreqFactor);
      const smooth = Math.min(1, Math.max(0, share));
      return 1 / ((1 - smooth) / rope.factor + smooth);
    });
  const published = { kind: "llama3", theta: 500_000, lowFreqFactor: 1, highFreqFactor: 4 } as const;

  test.each([
    [8, 8192, 128],
    [32, 8192, 64],
    [8, 64, 16],
    [2.5, 4096, 96],
  ])("factor %d of %d positions, heads of %d", (factor, originalContext, headSize) => {
    const rope = { ...published, factor, originalContext, dimensions: headSize };
    const { theta, dimensions: _, ...scaling } = rope;
    expect(ropeOfFactors(factorsOf(rope, headSize), theta, headSize)).toEqual(scaling);
  });

  test("factors of 1 change nothing", () => {
    const factors = new Float32Array(32).fill(1);
    expect(ropeOfFactors(factors, 10_000, 64)).toEqual({ kind: "plain" });
  });

  test("other factors are not Llama 3's", () => {
    const rope = { ...published, factor: 8, originalContext: 8192, dimensions: 128 };
    const changed = (index: number, value: number): Float32Array => factorsOf(rope, 128).with(index, value);
    expect(ropeOfFactors(changed(30, 3), 500_000, 128)).toBeNull();
    expect(ropeOfFactors(changed(60, 7.9), 500_000, 128)).toBeNull();
    expect(ropeOfFactors(changed(0, Number.NaN), 500_000, 128)).toBeNull();
    expect(ropeOfFactors(changed(0, Number.POSITIVE_INFINITY), 500_000, 128)).toBeNull();
    expect(ropeOfFactors(changed(0, 0), 500_000, 128)).toBeNull();
    expect(ropeOfFactors(factorsOf(rope, 64), 500_000, 128)).toBeNull();
  });

  const withFactors = (factors: readonly number[]): GgufInput => {
    const input = convertModel(referenceModel("llama3").dir, { type: "F32" });
    const data = new Uint8Array(Float32Array.from(factors).buffer);
    const tensors = input.tensors.map((tensor) =>
      tensor.name === "rope_freqs.weight" ? { ...tensor, shape: [factors.length], data } : tensor,
    );
    return { ...input, tensors };
  };

  test("other factors are read as they are", () => {
    const { config } = openModelFolder(written(withFactors([1, 1, 1, 16, 16, 16, 16, 16])));
    const rope = config.shape.ropes[0]!;
    const { frequencies, magnitude } = rotationOf(rope, config.shape.contextMax);
    const plain = rotationOf({ kind: "plain", theta: rope.theta, dimensions: 16 }, 16).frequencies;
    expect(magnitude).toBe(1);
    expect(frequencies).toEqual(plain.map((frequency, pair) => frequency / (pair < 3 ? 1 : 16)));
  });

  test.each([
    ["too few", [1, 1, 1, 16]],
    ["one of 0", [1, 1, 1, 0, 16, 16, 16, 16]],
    ["one that is no number", [1, 1, 1, Number.NaN, 16, 16, 16, 16]],
  ])("factors are refused: %s", (_, factors) => {
    expect(errorOf(written(withFactors(factors), "odd.gguf"))).toBe(
      "odd.gguf: rope_freqs.weight: wanted: 8 factors greater than 0",
    );
  });
});
