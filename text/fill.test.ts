import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FIRST_ADDED, tokenizerWith } from "../tests/support/demo-variants.ts";
import { fillFormOf } from "./fill.ts";
import { loadTokenizer } from "./tokenizer.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "bunting-fill-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const formWith = (texts: readonly string[], ids = {}) =>
  fillFormOf(loadTokenizer(tokenizerWith(folder, texts)), ids);
const at = (...places: readonly number[]): number[] => places.map((place) => FIRST_ADDED + place);
/** <|endoftext|> of the demo model. */
const demoEnd = 0;

test.each([
  ["Qwen", ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], false],
  ["StarCoder", ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"], false],
  ["Code Llama", ["▁<PRE>", "▁<SUF>", "▁<MID>"], false],
  ["DeepSeek", ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"], false],
  ["Seed-Coder", ["<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"], true],
] as const)("the tokens of %s are known by their texts", (_, texts, isSuffixFirst) => {
  const [prefix, suffix, middle] = at(0, 1, 2) as [number, number, number];
  const ends = [prefix, suffix, middle, demoEnd];
  const form = { prefix, suffix, middle, isSuffixFirst, repository: null, file: null, ends };
  expect(formWith(texts)).toEqual(form);
});

test("Codestral's answer goes on with the text before it, which comes last", () => {
  const [suffix, prefix] = at(0, 1) as [number, number];
  expect(formWith(["[SUFFIX]", "[PREFIX]"])).toMatchObject({
    prefix,
    suffix,
    middle: null,
    isSuffixFirst: true,
  });
});

test("tokens of files, and all that end what is filled in, belong to it", () => {
  const texts = [
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
  ];
  const form = formWith(texts)!;
  expect([form.repository, form.file]).toEqual(at(4, 5));
  expect(form.ends.toSorted((a, b) => a - b)).toEqual([demoEnd, ...at(0, 1, 2, 3, 4, 5)]);
});

test("what a file says goes before texts, and a vocabulary without such tokens has no form", () => {
  expect(formWith(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], { prefix: 7 })).toMatchObject({
    prefix: 7,
  });
  expect(formWith([], { prefix: 7, suffix: 8, middle: 9, file: 6 })).toMatchObject({
    ...{ prefix: 7, suffix: 8, middle: 9, file: 6, isSuffixFirst: false },
  });
  expect(formWith([])).toBeNull();
  expect(formWith(["<|fim_prefix|>", "<|fim_suffix|>"])).toBeNull();
});
