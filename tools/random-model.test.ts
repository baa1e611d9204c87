import { afterAll, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseModelConfig } from "../model/config.ts";
import { openModelFolder } from "../model/folder.ts";
import type { JsonObject } from "../model/json.ts";
import { folderTensors } from "../model/weights.ts";
import { ChatTemplate } from "../text/template.ts";
import { readTemplateSource } from "../text/template-source.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { publishedShapes } from "./random-model/shapes.ts";
import { vocabMin } from "./random-model/tokenizer.ts";
import { parametersOf } from "./random-model/weights.ts";
import { namedConfig, writeRandomModel } from "./random-model.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-random-model-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Shape with odd sizes, a bias, weights in two files if requested, and words of up to three syllables. */
const tiny: JsonObject = {
  ...publishedShapes["Qwen2.5-0.5B"]!.config,
  hidden_size: 48,
  intermediate_size: 33,
  max_position_embeddings: 256,
  num_attention_heads: 3,
  num_hidden_layers: 2,
  num_key_value_heads: 1,
  vocab_size: 4001,
};
const source = (json: JsonObject) => ({ file: "config.json", json });

function written(json: JsonObject, seed = 1, shardBytesMax = 4e9): string {
  const folder = join(mkdtempSync(join(scratch, "model-")), "new");
  writeRandomModel(source(json), folder, { seed, shardBytesMax });
  return folder;
}

function contents(folder: string): Record<string, string> {
  const hash = (name: string) => Bun.hash(readFileSync(join(folder, name))).toString(16);
  return Object.fromEntries(
    readdirSync(folder)
      .sort()
      .map((name) => [name, hash(name)]),
  );
}

/** Weights of a folder by tensor, converted from bf16. */
function weightsOf(folder: string): Map<string, Float32Array> {
  return new Map(
    openModelFolder(folder).tensors.map(({ name, path, offset, rows, cols }) => {
      const bytes = readFileSync(path).subarray(offset, offset + rows * cols * 2);
      const bits = new Uint16Array(Uint8Array.from(bytes).buffer);
      return [name, new Float32Array(Uint32Array.from(bits, (half) => half << 16).buffer)];
    }),
  );
}

test.each(Object.entries(publishedShapes))("%s has as many weights as its publisher says", (_, published) => {
  const config = parseModelConfig(source(published.config), { file: "", json: {} });
  expect(parametersOf(folderTensors(config))).toBe(published.parameters);
});

describe("weights", () => {
  test("the same seed gives the same bytes, another seed other weights only", () => {
    const first = contents(written(tiny));
    expect(contents(written(tiny))).toEqual(first);
    const other = contents(written(tiny, 2));
    expect(other["model.safetensors"]).not.toBe(first["model.safetensors"]!);
    expect({ ...other, "model.safetensors": "" }).toEqual({ ...first, "model.safetensors": "" });
  });

  test("files cut by size hold the same tensors", () => {
    const sharded = written(tiny, 1, 30_000);
    const files = readdirSync(sharded).filter((name) => name.endsWith(".safetensors"));
    expect(files.length).toBeGreaterThan(2);
    expect(files).toContain(`model-00001-of-0000${files.length}.safetensors`);
    expect(weightsOf(sharded)).toEqual(weightsOf(written(tiny)));
  });

  test("norms are 1, the rest is normal around 0 and differs from tensor to tensor", () => {
    const seen = new Set<number>();
    for (const [name, weights] of weightsOf(written(tiny))) {
      if (name.endsWith("norm.weight")) {
        expect(new Set(weights)).toEqual(new Set([1]));
        continue;
      }
      seen.add(weights[0]! * 7 + weights[1]!);
      const count = weights.length;
      const mean = weights.reduce((sum, weight) => sum + weight, 0) / count;
      const deviation = Math.sqrt(weights.reduce((sum, weight) => sum + weight * weight, 0) / count);
      expect(Math.abs(mean)).toBeLessThan((0.02 * 5) / Math.sqrt(count));
      expect(Math.abs(deviation / 0.02 - 1)).toBeLessThan(4 / Math.sqrt(count));
      if (count < 10_000) continue;
      const within = weights.filter((weight) => Math.abs(weight) < 0.02).length / count;
      expect(within).toBeCloseTo(0.683, 1);
    }
    expect(seen.size).toBe(1 + 2 * 10);
  });
});

describe("text", () => {
  const folder = written(tiny);
  const tokenizer = loadTokenizer(folder);
  const plain = { addSpecialTokens: false };
  const every = Array.from({ length: 4001 }, (_, id) => id);
  const textOf = (id: number) => tokenizer.decode([id], { skipSpecialTokens: false });

  test("every id has its own text, and every word encodes to its id", () => {
    expect(tokenizer.vocabSize).toBe(4001);
    for (const id of every) expect(tokenizer.bytesOf(id).length).toBeGreaterThan(0);
    const words = every.slice(vocabMin);
    for (const id of words) {
      expect(textOf(id)).toMatch(/^ ?([bdjlmnrstvw][aeiou])+$/);
      expect(tokenizer.encode(textOf(id), plain)).toEqual([id]);
    }
    expect(new Set(words.map(textOf)).size).toBe(words.length);
    expect(Math.max(...words.map((id) => textOf(id).length))).toBe(" bajolu".length);
  });

  test.each(["Hello, world! 42\n\ttabs", "naïve 東京 🦜", " dorime <|im_end|>", "x".repeat(60)])(
    "%j comes back",
    (text) => {
      const tokens = tokenizer.encode(text, plain);
      expect(tokenizer.decode(tokens, { skipSpecialTokens: false })).toBe(text);
      expect(tokens.every((token) => !tokenizer.isControl(token))).toBe(true);
    },
  );

  test("the smallest vocabulary is bytes alone", () => {
    const bytes = loadTokenizer(written({ ...tiny, vocab_size: vocabMin }));
    expect(bytes.vocabSize).toBe(vocabMin);
    expect(bytes.encode("hé", plain)).toHaveLength(3);
  });

  test("a chat becomes turns that end with what the model stops at", () => {
    const template = new ChatTemplate(readTemplateSource(folder)!, tokenizer.controlTexts);
    const rendered = template.render([{ role: "user", content: "Hi" }], { addGenerationPrompt: true });
    expect(rendered.text).toBe("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    const tokens = tokenizer.encodeRendered(rendered);
    expect(tokens.filter((token) => tokenizer.isControl(token))).toEqual([1, 2, 1]);
    expect(openModelFolder(folder).eosTokens).toEqual([2, 0]);
  });
});

describe("refusals leave nothing behind", () => {
  const refusal = (json: JsonObject, folder: string): string => {
    try {
      writeRandomModel(source(json), folder, { seed: 1 });
    } catch (error) {
      return (error as Error).message;
    }
    throw new Error("no error");
  };
  const huge = { num_hidden_layers: 4096, intermediate_size: 2 ** 20, hidden_size: 2 ** 14, head_dim: 64 };

  test.each<[string, JsonObject, RegExp]>([
    ["a small vocabulary", { vocab_size: 258 }, /vocab_size 258 is too small: 259 are/],
    ["another architecture", { architectures: ["MambaForCausalLM"] }, /architectures: .*supported: Llama/],
    ["more than the disk", huge, /needs 42\d{4}\.\d GB, and \d+\.\d GB are free there/],
  ])("%s", (name, change, message) => {
    const folder = join(scratch, name);
    expect(refusal({ ...tiny, ...change }, folder)).toMatch(message);
    expect(existsSync(folder)).toBe(false);
  });

  test("a folder with something in it, and a file", () => {
    const folder = join(scratch, "full");
    mkdirSync(folder);
    writeFileSync(join(folder, "notes"), "mine");
    expect(refusal(tiny, folder)).toContain("is not empty");
    expect(readdirSync(folder)).toEqual(["notes"]);
    expect(refusal(tiny, join(folder, "notes"))).toContain("is not a folder");
  });

  test("an unknown shape, with the names of the known ones", () => {
    expect(() => namedConfig("toString")).toThrow(/toString is no shape .* Qwen2\.5-0\.5B, Llama-3\.2-1B/);
    expect(() => namedConfig(join(scratch, "none.json"))).toThrow(/none\.json: does not exist/);
  });
});
