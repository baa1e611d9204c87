import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadTokenizer } from "./tokenizer.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-tekken-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const words = ["th", "the", " the", "é", " t", "hi", "unreached"];
const vocab = [
  ...Array.from({ length: 256 }, (_, byte) => Buffer.of(byte)),
  ...words.map((word) => Buffer.from(word)),
].map((bytes, rank) => ({ rank, token_bytes: bytes.toString("base64"), token_str: null }));
/** The last word is beyond the size. */
const config = {
  pattern: " ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  num_vocab_tokens: vocab.length,
  default_vocab_size: 1000 + 256 + words.length - 1,
  default_num_special_tokens: 1000,
  version: "v3",
};
const listed = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"].map((text, rank) => ({
  rank,
  token_str: text,
  is_control: true,
}));

function folder(file: object): string {
  const path = mkdtempSync(join(scratch, "folder-"));
  writeFileSync(join(path, "tekken.json"), JSON.stringify(file));
  return path;
}

const byte = (text: string): number => 1000 + text.charCodeAt(0);
const word = (text: string): number => 1000 + 256 + words.indexOf(text);

describe("tekken.json alone", () => {
  const tokenizer = loadTokenizer(folder({ config, vocab, special_tokens: listed }));

  test("merges bytes by rank, behind the special tokens", () => {
    // "th" has a lower rank than " t" and "hi".
    const ids = [
      word("the"),
      word(" the"),
      byte(" "),
      word("th"),
      byte("i"),
      word("é"),
      byte("7"),
      byte("7"),
    ];
    expect(tokenizer.encode("the the thié77", { addSpecialTokens: false })).toEqual(ids);
    expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe("the the thié77");
    expect(tokenizer.encode("the", { addSpecialTokens: true })).toEqual([1, word("the")]);
    expect([tokenizer.vocabSize, tokenizer.endToken]).toEqual([config.default_vocab_size, 2]);
  });

  test("has special tokens for control text alone", () => {
    const text = "[INST]hi</s>";
    expect(tokenizer.encode(text, { addSpecialTokens: false, parseControlText: true })).toEqual([
      3,
      word("hi"),
      2,
    ]);
    expect(tokenizer.encode(text, { addSpecialTokens: false }).filter(tokenizer.isControl)).toEqual([]);
    expect(tokenizer.spellingOf(999)).toBe("<SPECIAL_999>");
  });

  test("without a list of special tokens has those of Mistral's first files", () => {
    const first = loadTokenizer(folder({ config, vocab }));
    expect(["[TOOL_CALLS]", "[SUFFIX]", "[TOOL_CONTENT]"].map((text) => first.tokenOf(text))).toEqual([
      9, 16, 19,
    ]);
  });
});

test.each([
  [{ vocab }, "tekken.json: config: wanted pattern"],
  [{ config, vocab: vocab.slice(0, 260) }, "tekken.json: vocab: wanted at least"],
  [
    { config, vocab: vocab.map((token) => ({ ...token, rank: 0 })) },
    "tekken.json: vocab: no token has the rank 1",
  ],
  [{ config, vocab, special_tokens: [] }, "tekken.json: special_tokens: there is no <s>"],
  [
    { config, vocab, special_tokens: [...listed, { rank: 7, token_str: "<s>" }] },
    "special_tokens: two have the same text",
  ],
])("a damaged file is refused by its part", (file, sentence) => {
  expect(() => loadTokenizer(folder(file))).toThrow(sentence);
});

test("tekken.json beside a tokenizer.json with another pattern has the right one", () => {
  const path = folder({ config, vocab, special_tokens: listed });
  const wrong = { type: "Split", pattern: { Regex: "\\S+|\\s+" }, behavior: "Isolated", invert: false };
  const bytes = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  const letters = Object.fromEntries(Array.from("the1", (letter, id) => [letter, id]));
  const tokenizer = {
    added_tokens: [],
    pre_tokenizer: { type: "Sequence", pretokenizers: [wrong, bytes] },
    decoder: bytes,
    model: {
      type: "BPE",
      vocab: { ...letters, e1: 4, th: 5 },
      merges: [
        ["e", "1"],
        ["t", "h"],
      ],
    },
  };
  writeFileSync(join(path, "tokenizer.json"), JSON.stringify(tokenizer));
  expect(loadTokenizer(path).encode("the1", { addSpecialTokens: false })).toEqual([5, 2, 3]);
});

test("a folder with a tokenizer in another form says what makes one", () => {
  const path = mkdtempSync(join(scratch, "folder-"));
  expect(() => loadTokenizer(path)).toThrow(/tokenizer\.json: no such file$/);
  writeFileSync(
    join(path, "tokenizer.json"),
    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
  );
  expect(() => loadTokenizer(path)).toThrow(
    "is a pointer of Git LFS: `git lfs pull` fetches the file itself",
  );
  rmSync(join(path, "tokenizer.json"));
  writeFileSync(join(path, "tokenizer.model"), "");
  expect(() => loadTokenizer(path)).toThrow(
    "the folder has tokenizer.model, of which transformers makes one",
  );
});
