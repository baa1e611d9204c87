import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expectChats, expectTexts, type Golden } from "../tests/support/golden-tokens.ts";
import { plainText } from "./control-text.ts";
import { ChatTemplate } from "./template.ts";
import { readTemplateSource } from "./template-source.ts";
import { createTokenizer, loadTokenizer } from "./tokenizer.ts";
import { type JsonObject, TokenizerError } from "./tokenizer-file.ts";

const reference = join(import.meta.dir, "../tests/reference/tokenizers");

for (const name of ["qwen", "llama3", "llama2", "mistral"]) {
  describe(`${name} tokenizer`, () => {
    const folder = join(reference, name);
    const golden = JSON.parse(readFileSync(join(folder, "golden.json"), "utf8")) as Golden;
    const tokenizer = loadTokenizer(folder);
    const template = new ChatTemplate(readTemplateSource(folder)!, tokenizer.controlTexts);

    test("encodes and decodes texts as transformers does", () => {
      expectTexts(golden, tokenizer);
    });

    test("reads control text in a text only when asked", () => {
      for (const { text, ids, shown } of golden.control) {
        const read = tokenizer.encode(text, { addSpecialTokens: false, parseControlText: true });
        expect(read).toEqual(ids);
        expect(tokenizer.decode(read, { skipSpecialTokens: true })).toBe(shown);
        const plain = tokenizer.encode(text, { addSpecialTokens: false });
        expect(plain.filter(tokenizer.isControl)).toEqual([]);
        // A text that begins with a space loses it in SentencePiece's round trip.
        expect([text, text.slice(1)]).toContain(tokenizer.decode(plain, { skipSpecialTokens: true }));
      }
    });

    test("renders and encodes chats as transformers does", () => {
      expectChats(golden, tokenizer, template);
    });

    test("decodes tokens cut inside scalars as transformers does", () => {
      for (const { ids, decoded } of golden.cuts) {
        const ours = tokenizer.decode(ids, { skipSpecialTokens: false });
        // In transformers, a run of byte tokens with one broken scalar is U+FFFD throughout; ours keeps whole
        // scalars.
        if (name === "llama2" || name === "mistral")
          expect(ours.includes("\uFFFD")).toBe(decoded.includes("\uFFFD"));
        else expect(ours).toBe(decoded);
      }
    });

    test("control text in a message stays text and the template's own stays control", () => {
      const typed = [...tokenizer.controlTexts.texts].join(" x ");
      const ask = (content: string) => {
        const rendered = template.render([{ role: "user", content }], { addGenerationPrompt: true });
        return { rendered, ids: tokenizer.encodeRendered(rendered) };
      };
      const { rendered, ids } = ask(typed);
      expect(ids.filter(tokenizer.isControl)).toEqual(ask("harmless").ids.filter(tokenizer.isControl));
      expect(plainText(rendered)).toContain(typed);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toContain(typed);
    });

    test("bytes of all tokens of a text join to the text", () => {
      for (const { ids, decoded } of golden.texts) {
        const bytes = ids.flatMap((id) => [...tokenizer.bytesOf(id)]);
        const text = new TextDecoder().decode(Uint8Array.from(bytes));
        expect([decoded, ` ${decoded}`]).toContain(text); // SentencePiece puts a space before a text
      }
    });

    test("no text has fewer tokens than the bound says", () => {
      for (const { text, ids } of golden.texts) {
        expect(ids.length).toBeGreaterThanOrEqual(tokenizer.tokensAtLeast(Buffer.byteLength(text)));
      }
    });
  });
}

test("the bound refuses ten megabytes of one letter without encoding them", () => {
  const tokenizer = loadTokenizer(join(reference, "qwen"));
  expect(tokenizer.tokensAtLeast(10_000_000)).toBeGreaterThan(100_000);
});

test("a turn marker that is not special is control text where it is typed, and is shown where it is drawn", () => {
  const file = JSON.parse(readFileSync(join(reference, "qwen/tokenizer.json"), "utf8")) as {
    added_tokens: object[];
  };
  const marker = { id: 5000, content: "<｜User｜>", special: false, normalized: false };
  const tokenizer = createTokenizer({ ...file, added_tokens: [...file.added_tokens, marker] }, {});
  const typed = tokenizer.encode("<｜User｜>", { addSpecialTokens: false });
  expect(typed).not.toContain(5000);
  expect(tokenizer.decode(typed, { skipSpecialTokens: true })).toBe("<｜User｜>");
  expect(tokenizer.encode("<｜User｜>", { addSpecialTokens: false, parseControlText: true })).toEqual([5000]);
  expect(tokenizer.decode([5000], { skipSpecialTokens: true })).toBe("<｜User｜>");
});

test("a tokenizer that may drop text has no bound", () => {
  expect(loadTokenizer(join(reference, "mistral")).tokensAtLeast(10_000_000)).toBe(0);
});

test("lone surrogates become U+FFFD and cannot break a text open", () => {
  const tokenizer = loadTokenizer(join(reference, "mistral"));
  const replaced = tokenizer.encode("a\uFFFD\uFFFDb", { addSpecialTokens: false });
  expect(tokenizer.encode("a\uDC00\uDC00b", { addSpecialTokens: false })).toEqual(replaced);
});

test("ids of no meaning have no bytes and no spelling", () => {
  const tokenizer = loadTokenizer(join(reference, "qwen"));
  for (const id of [-1, tokenizer.vocabSize, 2 ** 31]) {
    expect(tokenizer.bytesOf(id)).toEqual(new Uint8Array(0));
    expect(tokenizer.spellingOf(id)).toBeNull();
  }
  expect(tokenizer.tokenOf("no such token")).toBeNull();
  expect(tokenizer.tokenOf("<|im_end|>")).toBe(
    tokenizer.encode("<|im_end|>", { addSpecialTokens: false, parseControlText: true })[0]!,
  );
});

describe("a bad tokenizer is refused by name", () => {
  const good = JSON.parse(readFileSync(join(reference, "qwen/tokenizer.json"), "utf8")) as JsonObject;
  const cases: [string, JsonObject, string][] = [
    ["decoder", { ...good, decoder: { type: "CTC" } }, 'decoder ["CTC"] is not supported'],
    ["no decoder", { ...good, decoder: null }, "decoder [] is not supported"],
    [
      "post-processor",
      { ...good, post_processor: { type: "OtherProcessing" } },
      '"OtherProcessing" is not supported',
    ],
    ["no vocabulary", { ...good, model: { type: "BPE" } }, "has no vocabulary"],
    [
      "huge id",
      { ...good, added_tokens: [{ id: 2 ** 40, content: "<x>", special: true }] },
      "has the id 1099511627776",
    ],
  ];
  test.each(cases)("%s", (_, file, sentence) => {
    expect(() => createTokenizer(file, {})).toThrow(TokenizerError);
    expect(() => createTokenizer(file, {})).toThrow(sentence);
  });

  test("a missing file", () => {
    expect(() => loadTokenizer(join(reference, "absent"))).toThrow("absent/tokenizer.json: no such file");
  });
});
