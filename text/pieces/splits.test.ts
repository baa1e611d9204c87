import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createTokenizer } from "../tokenizer.ts";
import type { JsonObject } from "../tokenizer-file.ts";

interface Shapes {
  readonly tokenizer: JsonObject & {
    readonly model: JsonObject;
    readonly added_tokens: readonly JsonObject[];
  };
  readonly texts: readonly string[];
  readonly shapes: readonly {
    readonly name: string;
    readonly pre_tokenizer: JsonObject;
    readonly ids: number[][];
  }[];
}

/** Tokens that the package `tokenizers` makes; tests/reference/tokenizers/shapes.py wrote them. */
const { tokenizer, texts, shapes } = JSON.parse(
  readFileSync(join(import.meta.dir, "../../tests/reference/tokenizers/shapes.json"), "utf8"),
) as Shapes;

describe("a pre-tokenizer cuts a text as the package tokenizers does", () => {
  test.each(shapes.map((shape) => [shape.name, shape] as const))("%s", (_, { pre_tokenizer, ids }) => {
    const made = createTokenizer({ ...tokenizer, pre_tokenizer }, {});
    for (const [index, text] of texts.entries())
      expect({ text, ids: made.encode(text, { addSpecialTokens: false }) }).toEqual({
        text,
        ids: ids[index]!,
      });
  });
});

describe("parts that are not read are refused by name", () => {
  const withModel = (more: object) => ({ ...tokenizer, model: { ...tokenizer.model, ...more } });
  test.each([
    [
      { ...tokenizer, pre_tokenizer: { type: "UnicodeScripts" } },
      'pre-tokenizer "UnicodeScripts" is not supported',
    ],
    [
      {
        ...tokenizer,
        pre_tokenizer: { type: "Split", pattern: { String: "a" }, behavior: "MergedWithNext", invert: true },
      },
      "a split that is MergedWithNext and inverted is not supported",
    ],
    [withModel({ continuing_subword_prefix: "##" }), 'model.continuing_subword_prefix "##" is not supported'],
    [withModel({ end_of_word_suffix: "</w>" }), 'model.end_of_word_suffix "</w>" is not supported'],
    [withModel({ dropout: 0.1 }), "model.dropout 0.1 makes tokens at random"],
    [
      { ...tokenizer, added_tokens: [{ id: 500, content: "<w>", special: true, single_word: true }] },
      'control token "<w>" counts as a word alone (single_word)',
    ],
    [
      {
        ...tokenizer,
        normalizer: { type: "Strip", strip_left: true, strip_right: true },
        pre_tokenizer: { type: "Metaspace", prepend_scheme: "first" },
      },
      'Metaspace with prepend_scheme "first" behind the normalizer "Strip"',
    ],
    [{ ...tokenizer, model: { type: "WordLevel", vocab: { a: 0 } } }, 'model of type "WordLevel"'],
  ])("%#", (file, sentence) => {
    expect(() => createTokenizer(file, {})).toThrow(sentence);
  });
});

test("characters without a token become the unknown one", () => {
  const made = createTokenizer(
    {
      added_tokens: [{ id: 0, content: "<unk>", special: true }],
      pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "never", split: false },
      decoder: { type: "Metaspace", replacement: "▁", prepend_scheme: "never" },
      model: {
        type: "BPE",
        unk_token: "<unk>",
        fuse_unk: true,
        vocab: { "<unk>": 0, a: 1, "▁": 2 },
        merges: [],
      },
    },
    {},
  );
  expect(made.encode("a éé a", { addSpecialTokens: false })).toEqual([1, 2, 0, 2, 1]);
});
