import { describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createTokenizer } from "../tokenizer.ts";
import type { JsonObject } from "../tokenizer-file.ts";
import { normalizerOf } from "./normalizers.ts";

interface Shape {
  readonly name: string;
  readonly model: "WordPiece" | "Unigram" | "SentencePiece" | "ByteLevel";
  readonly byte_fallback: boolean;
  readonly normalizer: JsonObject | null;
  readonly pre_tokenizer: JsonObject | null;
  readonly added_tokens: readonly JsonObject[];
  readonly ids: number[][];
}

/** Results of the package `tokenizers`; tests/reference/tokenizers/pieces.py wrote them. */
const { texts, tokenizers, shapes, hashes } = JSON.parse(
  readFileSync(join(import.meta.dir, "../../tests/reference/tokenizers/pieces.json"), "utf8"),
) as {
  readonly texts: readonly string[];
  readonly tokenizers: Readonly<Record<Shape["model"], JsonObject & { readonly model: JsonObject }>>;
  readonly shapes: readonly Shape[];
  readonly hashes: readonly { name: string; normalizer: JsonObject; sha256: string }[];
};

const decoders = {
  WordPiece: "WordPiece",
  Unigram: "Metaspace",
  SentencePiece: "Metaspace",
  ByteLevel: "ByteLevel",
};

function tokenizerOf({ model, byte_fallback, ...parts }: Shape) {
  const file = tokenizers[model];
  const changed = { ...parts, decoder: { type: decoders[model] }, model: { ...file.model, byte_fallback } };
  return createTokenizer({ ...file, ...changed }, {});
}

const named = shapes.map((shape) => [shape.name, shape] as const);

test.each(named)("hostile texts have the tokens of the package tokenizers: %s", (_, shape) => {
  const tokenizer = tokenizerOf(shape);
  for (const [index, text] of texts.entries())
    expect({
      text,
      ids: tokenizer.encode(text, { addSpecialTokens: false, parseControlText: true }),
    }).toEqual({ text, ids: shape.ids[index]! });
});

test.each(named)("control text that was typed stays text: %s", (_, shape) => {
  const tokenizer = tokenizerOf(shape);
  for (const text of [...tokenizer.controlTexts.texts].flatMap((control) => [control, `a${control}b`])) {
    const ids = tokenizer.encode(text, { addSpecialTokens: false });
    const unknown = tokenizer.tokenOf(String(tokenizers[shape.model].model.unk_token ?? "<unk>"));
    expect(ids.filter((id) => id !== unknown && tokenizer.isControl(id))).toEqual([]);
    expect(ids.length).toBeGreaterThan(1);
  }
});

describe("every character has the normal form of the package tokenizers", () => {
  test.each(hashes.map((row) => [row.name, row] as const))("%s", (_, { normalizer, sha256 }) => {
    const normalize = normalizerOf(normalizer);
    const digest = createHash("sha256");
    for (let from = 0; from < 0x110000; from += 0x1000) {
      const codes = Array.from({ length: 0x1000 }, (_, i) => from + i);
      const characters = codes.filter((code) => code < 0xd800 || code >= 0xe000);
      digest.update(normalize(characters.map((code) => `a${String.fromCodePoint(code)}b`).join("")));
    }
    expect(digest.digest("hex")).toBe(sha256);
  });
});
