/**
 * GGUF files on the CPU engine. A file must give the same bits as a folder with the same numbers, whatever
 * its storage type. Both are rounded to bf16 from the same floats. Block formats must stay close to their
 * original numbers, in the logits as well.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import type { Quant } from "../../model/formats.ts";
import type { JsonObject } from "../../model/json.ts";
import type { storedTypes as knownTypes } from "../../model/stored-types.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { type ReferenceName, referenceModel, referenceNames } from "../reference/models.ts";
import { decodeStored, encodeStored, type StoredName, storedTypes } from "../support/gguf-blocks.ts";
import { convertModel, storageOf, valuesOf } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { cosineOf, sameBits } from "./compare.ts";
import { cpuLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-gguf-"));
afterAll(() => rmSync(scratch, { recursive: true }));

let files = 0;
function ggufOf(dir: string, type: StoredName): string {
  files += 1;
  const file = join(scratch, `model-${files}.gguf`);
  writeFileSync(file, ggufBytes(convertModel(dir, { type })));
  return file;
}

/** Returns the logits after every position of a prompt. */
function logitsOf(
  path: string,
  compute: "f32" | "bf16",
  tokens: readonly number[],
  quant: Quant = "none",
): Float32Array[] {
  const rig = new Rig(library, openModelFolder(path), { compute, quant });
  const logits = rig.logitsAfterEach(tokens);
  rig.close();
  return logits;
}

function expectSame(got: readonly Float32Array[], want: readonly Float32Array[]): void {
  expect(got).toHaveLength(want.length);
  expect(got.findIndex((row, position) => !sameBits(row, want[position]!))).toBe(-1);
}

/** Storage type of each folder in tests/reference. */
const stored: Readonly<Record<ReferenceName, StoredName>> = {
  llama3: "F32",
  llama2: "BF16",
  mistral: "F16",
  qwen2: "BF16",
  qwen3: "BF16",
  "llama3-96": "BF16",
  "qwen3-128": "BF16",
};

describe.each(referenceNames.map((name) => [name]))("%s", (name) => {
  const model = referenceModel(name);

  test("stored as in the folder, or as f32, it is computed to the same bits", () => {
    for (const compute of ["f32", "bf16"] as const) {
      const whole = logitsOf(model.dir, compute, model.prompts.long);
      for (const type of new Set<StoredName>([stored[name], "F32"])) {
        expectSame(logitsOf(ggufOf(model.dir, type), compute, model.prompts.long), whole);
      }
    }
  });

  test("continues greedily as transformers does", () => {
    const rig = new Rig(library, openModelFolder(ggufOf(model.dir, stored[name])), { compute: "f32" });
    for (const prompt of ["long", "branch", "short"] as const) {
      const stream = rig.stream(model.prompts[prompt]);
      expect(rig.generate(stream, 32, 64)).toEqual([...model.greedy[prompt]]);
      rig.free(stream);
    }
    rig.close();
  });
});

/** Model wide enough for blocks of 256, in the shape of each architecture. */
const wide: JsonObject = {
  hidden_size: 256,
  intermediate_size: 512,
  max_position_embeddings: 256,
  num_attention_heads: 4,
  num_hidden_layers: 2,
  num_key_value_heads: 2,
  vocab_size: 500,
  tie_word_embeddings: false,
  initializer_range: 0.02,
};
const wideFamilies: readonly (readonly [string, JsonObject])[] = [
  ["llama", { architectures: ["LlamaForCausalLM"] }],
  ["qwen2", { architectures: ["Qwen2ForCausalLM"] }],
  ["qwen3", { architectures: ["Qwen3ForCausalLM"], head_dim: 64 }],
];

/**
 * Smallest cosine with the original's logits at any position. Random weights are the worst case for low-bit
 * numbers.
 */
const cosineMin: Readonly<Record<NamesOf<"blocks">, number>> = {
  Q8_0: 0.9995,
  Q6_K: 0.996,
  Q5_K: 0.985,
  Q5_1: 0.985,
  Q5_0: 0.98,
  Q4_K: 0.94,
  Q4_1: 0.94,
  IQ4_NL: 0.92,
  IQ4_XS: 0.92,
  Q4_0: 0.92,
  MXFP4: 0.88,
  NVFP4: 0.9,
  Q3_K: 0.7,
  Q2_K: 0.5,
};
type NamesOf<Kind> = {
  [Name in StoredName]: (typeof knownTypes)[Name]["kind"] extends Kind ? Name : never;
}[StoredName];

describe.each(wideFamilies)("a random %s model", (family, fields) => {
  const dir = join(scratch, family);
  writeRandomModel({ file: "config.json", json: { ...wide, ...fields } }, dir, { seed: 5 });
  const tokens = Array.from({ length: 24 }, (_, index) => (index * 37 + 11) % 500);
  const original = logitsOf(dir, "bf16", tokens);

  test.each(Object.entries(cosineMin) as [NamesOf<"blocks">, number][])(
    "in %s gives the bits of a folder with the same numbers, and is close",
    (type, cosineMin) => {
      const file = ggufOf(dir, type);
      const same = withNumbersOf(dir, type);
      const logits = logitsOf(file, "bf16", tokens);
      expectSame(logits, logitsOf(same, "bf16", tokens));
      expectSame(logitsOf(file, "f32", tokens.slice(0, 8)), logitsOf(same, "f32", tokens.slice(0, 8)));
      for (const [position, row] of logits.entries()) {
        expect(cosineOf(row, original[position]!)).toBeGreaterThan(cosineMin);
      }
      if (!["Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q5_K", "Q6_K"].includes(type)) return;
      // Multiplies in its own blocks, with rows in int8.
      const own = logitsOf(file, "bf16", tokens, "auto");
      expect(sameBits(own[5]!, logits[5]!)).toBeFalse();
      for (const [position, row] of own.entries()) {
        expect(cosineOf(row, original[position]!)).toBeGreaterThan(cosineMin - 0.0002);
      }
    },
  );
});

/** Smallest cosine when numbers of random codebook blocks are rounded to int4 or int6. */
const codebookCosineMin: Readonly<Record<NamesOf<"codebook">, number>> = {
  ...{ IQ2_XXS: 0.98, IQ2_XS: 0.97, IQ2_S: 0.97 },
  ...{ IQ3_XXS: 0.99, IQ3_S: 0.99 },
  ...{ IQ1_S: 0.98, IQ1_M: 0.98 },
};

describe("a model of rows of code books", () => {
  const dir = join(scratch, "codebooks");
  writeRandomModel({ file: "config.json", json: { ...wide, ...wideFamilies[0]![1] } }, dir, { seed: 6 });
  const tokens = Array.from({ length: 8 }, (_, index) => (index * 37 + 11) % 500);

  test.each(Object.entries(codebookCosineMin) as [NamesOf<"codebook">, number][])(
    "in %s gives the bits of a folder with the same numbers, and is close in few bits",
    (type, cosineMin) => {
      const file = ggufOf(dir, type);
      const logits = logitsOf(file, "f32", tokens);
      expectSame(logits, logitsOf(withNumbersOf(dir, type), "f32", tokens));
      const rounded = logitsOf(file, "bf16", tokens, "auto");
      expect(sameBits(rounded[5]!, logits[5]!)).toBeFalse();
      for (const [position, row] of rounded.entries()) {
        expect(cosineOf(row, logits[position]!)).toBeGreaterThan(cosineMin);
      }
    },
  );
});

/** Copies a folder whose weights are f32, rounded to the precision of a storage type. */
function withNumbersOf(dir: string, type: StoredName): string {
  files += 1;
  const copy = join(scratch, `folder-${files}`);
  cpSync(dir, copy, { recursive: true });
  for (const name of readdirSync(copy)) if (name.endsWith(".safetensors")) rmSync(join(copy, name));
  const header: Record<string, unknown> = {};
  const data: Uint8Array[] = [];
  let end = 0;
  for (const tensor of openModelFolder(dir).tensors) {
    const storage = storageOf(tensor, type);
    const values = decodeStored(storage, encodeStored(storage, valuesOf(tensor)));
    const isVector = storedTypes[storage].block === 1 && tensor.rows === 1;
    const bytes = new Uint8Array(values.buffer);
    const shape = isVector ? [tensor.cols] : [tensor.rows, tensor.cols];
    header[tensor.name] = { dtype: "F32", shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
    data.push(bytes);
  }
  const json = Buffer.from(JSON.stringify(header));
  const start = Buffer.alloc(8);
  start.writeBigUint64LE(BigInt(json.length));
  writeFileSync(join(copy, "model.safetensors"), Buffer.concat([start, json, ...data]));
  return copy;
}

test("a model in parts is the same model", () => {
  const { dir, prompts } = referenceModel("qwen3");
  const whole = convertModel(dir, { type: "BF16" });
  const cut = 5;
  const parts = [
    whole.tensors.slice(0, cut),
    whole.tensors.slice(cut, cut + 7),
    whole.tensors.slice(cut + 7),
  ];
  parts.forEach((tensors, number) => {
    const split = [
      ["split.no", "u16", number],
      ["split.count", "u16", parts.length],
      ["split.tensors.count", "i32", whole.tensors.length],
    ] as const;
    const entries = number === 0 ? [...whole.entries, ...split] : split;
    const name = `tiny-0000${number + 1}-of-00003.gguf`;
    writeFileSync(join(scratch, name), ggufBytes({ entries, tensors }));
  });
  const first = join(scratch, "tiny-00001-of-00003.gguf");
  const sizes = [1, 2, 3].map((n) => readFileSync(join(scratch, `tiny-0000${n}-of-00003.gguf`)).length);
  expect(openModelFolder(first).weightFilesBytes).toBe(sizes.reduce((sum, size) => sum + size, 0));
  expectSame(logitsOf(first, "bf16", prompts.short), logitsOf(dir, "bf16", prompts.short));
});
