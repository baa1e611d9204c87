import { describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ModelError } from "../model/model-error.ts";
import { demoCutAsSmolLm } from "../tests/support/demo-variants.ts";
import { tokenizerEntries } from "../tests/support/gguf-model.ts";
import { type Entry, parsedGguf } from "../tests/support/gguf-writer.ts";
import { expectChats, expectTexts, type Golden } from "../tests/support/golden-tokens.ts";
import { ggufFillIds, ggufTemplates, ggufTokenizer } from "./gguf-tokenizer.ts";
import { preTokenizers } from "./pre-tokenizers.ts";
import { ChatTemplate } from "./template.ts";
import { chosenTemplate, usualTemplate } from "./template-source.ts";
import { createTokenizer, loadTokenizer, type Tokenizer } from "./tokenizer.ts";

const root = join(import.meta.dir, "..");
const reference = join(root, "tests/reference/tokenizers");

const fileOf = (entries: readonly Entry[]) => parsedGguf({ entries, tensors: [] });

function tokenizerOf(entries: readonly Entry[]): Tokenizer {
  const { tokenizer, config } = ggufTokenizer(fileOf(entries));
  return createTokenizer(tokenizer, config);
}

/** Prose, code and tables of several languages and alphabets. */
const corpus = [
  "docs/architecture.md",
  "text/control-text.ts",
  "csrc/boundary/philox.h",
  "tests/reference/tokenizers/make.py",
].map((path) => readFileSync(join(root, path), "utf8").slice(0, 6000));

describe.each([
  ["qwen", "qwen2"],
  ["llama3", "llama-bpe"],
])("the %s tokenizer, from metadata", (name, pre) => {
  const folder = join(reference, name);
  const golden = JSON.parse(readFileSync(join(folder, "golden.json"), "utf8")) as Golden;
  const entries = tokenizerEntries(folder, pre);
  const tokenizer = tokenizerOf(entries);
  const template = new ChatTemplate(usualTemplate(ggufTemplates(fileOf(entries)))!, tokenizer.controlTexts);

  test("encodes and decodes as transformers does", () => {
    expectTexts(golden, tokenizer);
    for (const { text, ids, shown } of golden.control) {
      expect(tokenizer.encode(text, { addSpecialTokens: false, parseControlText: true })).toEqual(ids);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(shown);
    }
  });

  test("renders and encodes chats as transformers does", () => {
    expectChats(golden, tokenizer, template);
  });

  test("is the folder's, on longer texts and token by token", () => {
    const own = loadTokenizer(folder);
    for (const text of corpus) {
      const ids = own.encode(text, { addSpecialTokens: false });
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids);
    }
    expect(tokenizer.vocabSize).toBe(own.vocabSize);
    for (let id = 0; id < own.vocabSize; id += 1) {
      expect([tokenizer.spellingOf(id), tokenizer.isControl(id)]).toEqual([
        own.spellingOf(id),
        own.isControl(id),
      ]);
      expect(tokenizer.bytesOf(id)).toEqual(own.bytesOf(id));
    }
  });
});

test("the demo model's vocabulary, cut in a way that has a name, from metadata", () => {
  const folder = demoCutAsSmolLm(mkdtempSync(join(tmpdir(), "bunting-cut-")));
  const [own, tokenizer] = [loadTokenizer(folder), tokenizerOf(tokenizerEntries(folder, "smollm"))];
  for (const text of [...corpus, "1234 5.678, 90½ and ²³"]) {
    expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual(
      own.encode(text, { addSpecialTokens: true }),
    );
  }
  rmSync(folder, { recursive: true });
});

describe("each pre-tokenizer cuts a text where its pattern says", () => {
  const cut = (pre: string, text: string): string[] => {
    let pieces = [text];
    for (const pattern of preTokenizers[pre]!.patterns) {
      const expression = new RegExp(pattern, "gu");
      pieces = pieces.flatMap((piece) => {
        const parts: string[] = [];
        let from = 0;
        for (const match of piece.matchAll(expression)) {
          if (match.index > from) parts.push(piece.slice(from, match.index));
          parts.push(match[0]);
          from = match.index + match[0].length;
        }
        return from < piece.length ? [...parts, piece.slice(from)] : parts;
      });
    }
    return pieces;
  };
  const text = "It's 12345 o'CLOCK,\n\n  naïveTest x=y; 日本";
  const lines: readonly (readonly [string, string])[] = [
    ["llama-bpe", "It|'s| |123|45| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["qwen2", "It|'s| |1|2|3|4|5| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["tekken", "It|'s| |1|2|3|4|5| o|'CLOCK|,\n\n| | naïve|Test| x|=y|;| 日本"],
    // Expected splits by the patterns that tiktoken publishes for cl100k and o200k.
    ["dbrx", "It|'s| |123|45| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["gpt-4o", "It's| |123|45| o|'CLOCK|,\n\n| | naïve|Test| x|=y|;| 日本"],
    ["hunyuan", "It|'s| |1|2|3|4|5| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["hunyuan-dense", "It|'s| |123|45| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| |日本"],
    ["bailingmoe2", "It|'s| |1|2|3|4|5| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["deepseek-v3", "It|'s| |123|45| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| |日本"],
    ["tiny_aya", "It's| |12|345| o|'CLOCK|,\n\n| | naïve|Test| x|=y|;| 日本"],
    ["afmoe", "It|'s| |12|345| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| |日本"],
    ["minicpm5", "It|'s| |123|45| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["jais-2", "It|'s| |123|45| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["youtu", "It's| |1|2|3|4|5| o|'CLOCK|,\n\n| | naïve|Test| x|=y|;| |日本"],
    ["mellum2", "It|'s| |1|2|3|4|5| o|'|CLOCK|,|\n\n | naïveTest| x|=|y|;| 日本"],
    ["trillion", "It|'s| 12345| o|'|CLOCK|,|\n\n | naïveTest| x|=|y|;| 日本"],
    ["seed-coder", "It|'s| |1|2|3|4|5| o|'CLOCK|,|\n\n| | naïveTest| x|=y|;| 日本"],
    ["gpt-2", "It|'s| 12345| o|'|CLOCK|,|\n\n | naïveTest| x|=|y|;| 日本"],
    ["smollm", "It|'s| |1|2|3|4|5| o|'|CLOCK|,|\n\n | naïveTest| x|=|y|;| 日本"],
    ["qwen35", "It|'s| |1|2|3|4|5| o|'CLOCK|,\n\n| | naïveTest| x|=y|;| 日本"],
    ["falcon", "It|'|s| |123|45| o|'|CLOCK|,|\n\n | naïveTest| x|=|y|;| 日本"],
    // Its signs range from : to ~, letters among them.
    ["deepseek-llm", "It|'|s| |1|2|3|4|5| o|'|CLOCK|,|\n|\n| | na|ï|veTest| x|=|y|;| |日本"],
    ["deepseek-coder", "It|'|s| |1|2|3|4|5| o|'|CLOCK|,|\n|\n| | naïveTest| x|=|y|;| |日本"],
    ["default", "It|'|s| |123|45| o|'|CLOCK|,|\n\n | naïveTest| x|=|y|;| 日本"],
  ];
  test.each(lines)("%s", (pre, pieces) => {
    expect(cut(pre, text).join("|")).toBe(pieces);
  });
  test("jais-2 cuts runs of spaces to powers of two", () => {
    expect(cut("jais-2", `a${" ".repeat(15)}b\n`)).toEqual([
      "a",
      " ".repeat(8),
      " ".repeat(4),
      "  ",
      " b",
      "\n",
    ]);
  });
  test("qwen35 keeps marks with their letters", () => {
    expect(cut("qwen35", "हिन्दी x")).toEqual(["हिन्दी", " x"]);
    expect(cut("qwen2", "हिन्दी x")).not.toEqual(["हिन्दी", " x"]);
  });
});

test("stored merges over SentencePiece's spelling, from metadata", () => {
  const words = ["▁", "a", "b", "\n", "▁a", "ab", "▁ab", "\n\n"];
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
  );
  const tokens = ["<unk>", "<bos>", "<call>", ...words, ...bytes];
  const idOf = (text: string): number => tokens.indexOf(text);
  const entries: Entry[] = [
    ["tokenizer.ggml.model", "string", "gemma4"],
    ["tokenizer.ggml.tokens", "string[]", tokens],
    ["tokenizer.ggml.token_type", "i32[]", [3, 3, 4, ...words.map(() => 1), ...bytes.map(() => 6)]],
    ["tokenizer.ggml.merges", "string[]", ["\n \n", "a b", "▁ ab", "▁ a"]],
    ["tokenizer.ggml.bos_token_id", "u32", 1],
    ["tokenizer.ggml.unknown_token_id", "u32", 0],
  ];
  const tokenizer = tokenizerOf(entries);
  const ids = ["▁ab", "▁a", "▁", "\n\n", "\n", "ab", "<0xC3>", "<0xA9>", "<call>"].map(idOf);
  const text = " ab a \n\n\nabé<call>";
  expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual([1, ...ids]);
  expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(text);

  // Early files of Gemma 4 deny the beginning-of-text token, without which the model fails.
  const denied = tokenizerOf([...entries, ["tokenizer.ggml.add_bos_token", "bool", false]]);
  expect(denied.encode(text, { addSpecialTokens: true })).toEqual([1, ...ids]);
});

test("control tokens of Phi-3 take the spaces behind them, as in its folder", () => {
  const tokens = ["<unk>", "<s>", "<|user|>", "▁", "a", "\n", "▁a"];
  const entries: Entry[] = [
    ["general.architecture", "string", "phi3"],
    ["tokenizer.ggml.model", "string", "llama"],
    ["tokenizer.ggml.tokens", "string[]", tokens],
    ["tokenizer.ggml.token_type", "i32[]", [2, 3, 3, 1, 1, 1, 1]],
    ["tokenizer.ggml.scores", "f32[]", tokens.map((_, token) => -token)],
    ["tokenizer.ggml.unknown_token_id", "u32", 0],
    ["tokenizer.ggml.bos_token_id", "u32", 1],
  ];
  const ids = (given: readonly Entry[], text: string) =>
    tokenizerOf(given).encode(text, { addSpecialTokens: false, parseControlText: true });
  expect(ids(entries, "<|user|>\na<s> a")).toEqual([2, 6, 1, 3, 6]);
  const other = entries.map(
    (entry): Entry => (entry[2] === "phi3" ? ["general.architecture", "string", "llama"] : entry),
  );
  expect(ids(other, "<|user|>\na")).toEqual([2, 3, 5, 4]);
});

test("an end of a turn is a control token, whatever type the file gives it", () => {
  const tokens = ["a", "<|im_end|>", "</s>"];
  const { tokenizer } = ggufTokenizer(
    fileOf([
      ["tokenizer.ggml.model", "string", "gpt2"],
      ["tokenizer.ggml.pre", "string", "qwen2"],
      ["tokenizer.ggml.tokens", "string[]", tokens],
      ["tokenizer.ggml.token_type", "i32[]", [1, 1, 4]],
      ["tokenizer.ggml.merges", "string[]", []],
    ]),
  );
  const made = createTokenizer(tokenizer, {});
  expect(tokens.map((_, token) => made.isControl(token))).toEqual([false, true, false]);
});

test("tokens for filling in the middle have names, of today or of before", () => {
  const entries = tokenizerEntries(join(reference, "qwen"), "qwen2");
  const key = (name: string) => `tokenizer.ggml.${name}_token_id`;
  const named = (names: Readonly<Record<string, number>>): Entry[] => [
    ...entries,
    ...Object.entries(names).map(([name, token]): Entry => [key(name), "u32", token]),
  ];
  const idsOf = (names: Readonly<Record<string, number>>) => ggufFillIds(fileOf(named(names)));
  expect(idsOf({ fim_pre: 5, fim_suf: 6, fim_mid: 7, fim_pad: 8, fim_rep: 9, fim_sep: 10 })).toEqual({
    ...{ prefix: 5, suffix: 6, middle: 7, pad: 8, repository: 9, file: 10 },
  });
  expect(idsOf({ prefix: 5, suffix: 6, middle: 7 })).toEqual({ prefix: 5, suffix: 6, middle: 7 });
  expect(idsOf({})).toEqual({});
  expect(() => idsOf({ fim_pre: 10_000_000 })).toThrow(ModelError);
});

describe("SentencePiece, from metadata", () => {
  const words = ["▁", "a", "b", "c", "n", "▁a", "an", "▁an", "ban", "ana", "▁ban", "aa", "▁▁", "nana", "é"];
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
  );
  const tokens = ["<unk>", "<s>", "</s>", ...bytes, ...words, "[tool]"];
  const types = [2, 3, 3, ...bytes.map(() => 6), ...words.map(() => 1), 4];
  const scores = tokens.map((_, token) => (token < 259 ? 0 : -((token * 7) % words.length)));
  const entries: readonly Entry[] = [
    ["tokenizer.ggml.model", "string", "llama"],
    ["tokenizer.ggml.tokens", "string[]", tokens],
    ["tokenizer.ggml.token_type", "i32[]", types],
    ["tokenizer.ggml.scores", "f32[]", scores],
    ["tokenizer.ggml.bos_token_id", "u32", 1],
    ["tokenizer.ggml.eos_token_id", "u32", 2],
    ["tokenizer.ggml.unknown_token_id", "u32", 0],
  ];

  /** Repeatedly joins the adjacent pieces whose token has the best score, leftmost first. */
  function greedily(text: string): number[] {
    const isWord = (piece: string): boolean => types[tokens.indexOf(piece)] === 1;
    const pieces = [...text.replaceAll(" ", "▁")];
    for (;;) {
      let best = -1;
      for (let at = 0; at + 1 < pieces.length; at += 1) {
        const joined = pieces[at]! + pieces[at + 1]!;
        const isBetter = (score: number): boolean =>
          best < 0 || score > scores[tokens.indexOf(pieces[best]! + pieces[best + 1]!)]!;
        if (isWord(joined) && isBetter(scores[tokens.indexOf(joined)]!)) best = at;
      }
      if (best < 0) break;
      pieces.splice(best, 2, pieces[best]! + pieces[best + 1]!);
    }
    return pieces.flatMap((piece) =>
      isWord(piece) ? [tokens.indexOf(piece)] : [...new TextEncoder().encode(piece)].map((byte) => 3 + byte),
    );
  }

  const texts = [
    "",
    "a",
    "banana",
    "ban an a",
    "bananas é 日",
    "  two  spaces",
    "aaaa",
    "c\n\tb",
    "cab banana nanan",
  ];

  test("joins by score, spells what has no token in bytes, and begins with a space", () => {
    const tokenizer = tokenizerOf(entries);
    for (const text of texts) {
      const ids = text === "" ? [] : greedily(` ${text}`);
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids);
      expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual([1, ...ids]);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(text);
    }
  });

  test("without a space before a text, with an end after it", () => {
    const tokenizer = tokenizerOf([
      ...entries,
      ["tokenizer.ggml.add_space_prefix", "bool", false],
      ["tokenizer.ggml.add_bos_token", "bool", false],
      ["tokenizer.ggml.add_eos_token", "bool", true],
    ]);
    for (const text of texts) {
      const ids = greedily(text);
      expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual([...ids, 2]);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(text);
    }
  });

  test("control text is read only when asked, text of the authors always", () => {
    const tokenizer = tokenizerOf(entries);
    expect(tokenizer.encode("a</s>", { addSpecialTokens: false, parseControlText: true })).toContain(2);
    expect(tokenizer.encode("a</s>", { addSpecialTokens: false })).not.toContain(2);
    expect(tokenizer.encode("a[tool]", { addSpecialTokens: false })).toContain(tokens.length - 1);
    expect(tokenizer.isControl(1)).toBeTrue();
    expect(tokenizer.isControl(tokens.length - 1)).toBeFalse();
  });

  const without = (key: string): Entry[] => entries.filter(([name]) => name !== `tokenizer.ggml.${key}`);
  const cases: readonly (readonly [string, readonly Entry[], string])[] = [
    ["no tokenizer", [], "tokenizer.ggml.model: missing: wanted: a text"],
    [
      "another kind",
      [...without("model"), ["tokenizer.ggml.model", "string", "rwkv"]],
      'tokenizer.ggml.model: "rwkv": supported: gpt2, llama, gemma4, bert, t5',
    ],
    ["no tokens", without("tokens"), "tokenizer.ggml.tokens: missing: wanted: an array of texts"],
    [
      "a token twice",
      [...without("tokens"), ["tokenizer.ggml.tokens", "string[]", tokens.with(270, "a")]],
      'tokenizer.ggml.tokens: array of 275 string: tokens 260 and 270 are both "a"',
    ],
    [
      "types of other tokens",
      [...without("token_type"), ["tokenizer.ggml.token_type", "i32[]", [1]]],
      "tokenizer.ggml.token_type: array of 1 i32: wanted: an array of 275 whole numbers",
    ],
    [
      "a type that is none",
      [...without("token_type"), ["tokenizer.ggml.token_type", "i32[]", types.with(5, 7)]],
      "tokenizer.ggml.token_type: array of 275 i32: token 5 has the type 7; types are 1 to 6",
    ],
    [
      "no scores",
      without("scores"),
      "tokenizer.ggml.scores: missing: wanted: an array of a score for each token",
    ],
    [
      "scores that are no real numbers",
      [...without("scores"), ["tokenizer.ggml.scores", "i8[]", scores]],
      "tokenizer.ggml.scores: array of 275 i8: wanted: an array of 275 real numbers",
    ],
    [
      "a score that is no number",
      [...without("scores"), ["tokenizer.ggml.scores", "f32[]", scores.with(9, Number.NaN)]],
      "tokenizer.ggml.scores: array of 275 f32: the score of token 9 is not a number",
    ],
    [
      "a special token outside",
      [...without("bos_token_id"), ["tokenizer.ggml.bos_token_id", "u32", 275]],
      "tokenizer.ggml.bos_token_id: 275: wanted: a whole number from 0 to 274",
    ],
    [
      "a beginning that is not there",
      [...without("bos_token_id"), ["tokenizer.ggml.add_bos_token", "bool", true]],
      "tokenizer.ggml.add_bos_token: true: there is no tokenizer.ggml.bos_token_id",
    ],
  ];
  test.each(cases)("%s is refused", (_, bad, sentence) => {
    expect(() => tokenizerOf(bad)).toThrow(ModelError);
    expect(() => tokenizerOf(bad)).toThrow(`model.gguf: ${sentence}`);
  });
});

describe("byte-level merges are refused when", () => {
  const entries = tokenizerEntries(join(reference, "qwen"), "qwen2");
  const changed = (key: string, ...change: [string, unknown][]): Entry[] => [
    ...entries.filter(([name]) => name !== `tokenizer.ggml.${key}`),
    ...change.map(([type, value]): Entry => [`tokenizer.ggml.${key}`, type, value]),
  ];
  const cases: readonly (readonly [string, readonly Entry[], string])[] = [
    ["nothing says how a text is cut", changed("pre"), "tokenizer.ggml.pre: missing: wanted: a text"],
    [
      "the way a text is cut is not known",
      changed("pre", ["string", "superbpe"]),
      'tokenizer.ggml.pre: "superbpe": how this pre-tokenizer cuts a text is not known; known: llama-bpe',
    ],
    ["there are none", changed("merges"), "tokenizer.ggml.merges: missing: wanted: an array of texts"],
    [
      "one is not two parts",
      changed("merges", ["string[]", ["a b", "ab"]]),
      'tokenizer.ggml.merges: array of 2 string: merge 1, "ab", is not two parts with a space between',
    ],
  ];
  test.each(cases)("%s", (_, bad, sentence) => {
    expect(() => tokenizerOf(bad)).toThrow(`model.gguf: ${sentence}`);
  });
});

test("a model without a template has none; one for tools is used with tools", () => {
  const entries = tokenizerEntries(join(reference, "qwen"), "qwen2");
  const bare = entries.filter(([key]) => key !== "tokenizer.chat_template");
  expect(usualTemplate(ggufTemplates(fileOf(bare)))).toBeNull();
  const both: Entry[] = [
    ...bare,
    ["tokenizer.chat_template", "string", "plain"],
    ["tokenizer.chat_template.tool_use", "string", "tools"],
    ["tokenizer.chat_templates", "string[]", ["rag", "tool_use"]],
    ["tokenizer.chat_template.rag", "string", "documents"],
    ["tokenizer.ggml.eos_token_id", "u32", 702],
  ];
  const set = ggufTemplates(fileOf(both));
  const specialTokens = { eos_token: "<|im_end|>" };
  expect(usualTemplate(set)).toEqual({ template: "plain", toolTemplate: "tools", specialTokens });
  expect(chosenTemplate("rag", set)).toEqual({ template: "documents", toolTemplate: null, specialTokens });
});
