/** Property: any fault in a model's files leads to a sentence that names one of them. */
import { afterAll, describe, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { openModelFolder } from "../model/folder.ts";
import { runs } from "../tests/support/property.ts";
import { openTemplate, openTokenizer } from "./model-text.ts";

const root = join(import.meta.dir, "..");
const scratch = mkdtempSync(join(tmpdir(), "bunting-mutated-"));
afterAll(() => rmSync(scratch, { recursive: true }));
/** Folder that is laid anew for every case. */
const folder = join(scratch, "laid");

/** Files of a model by their paths in its folder: the path of the original, or contents. */
type Files = ReadonlyMap<string, { readonly from: string } | { readonly text: string }>;

function filesOf(path: string): Files {
  const names = readdirSync(path, { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.(json|jinja|safetensors)$/.test(name),
  );
  return new Map(names.map((name) => [name, { from: join(path, name) }]));
}

/** Files with others in place of some; null: not there. */
function changed(files: Files, changes: Readonly<Record<string, string | null>>): Files {
  const texts = Object.entries(changes).flatMap(([name, text]): [string, { text: string }][] =>
    text === null ? [] : [[name, { text }]],
  );
  return new Map([...[...files].filter(([name]) => !Object.hasOwn(changes, name)), ...texts]);
}

const demo = filesOf(join(root, "models/demo"));
const part = "part.safetensors";
const weights = openModelFolder(join(root, "models/demo")).tensors.map(({ name }) => [name, part]);
const vocab = Array.from({ length: 260 }, (_, rank) => ({
  rank,
  token_bytes: Buffer.from(rank < 256 ? [rank] : [97, rank - 160]).toString("base64"),
  token_str: null,
}));
const tekken = {
  config: { pattern: "\\p{L}+|\\P{L}", default_vocab_size: 270, default_num_special_tokens: 10 },
  vocab,
  special_tokens: ["<unk>", "<s>", "</s>"].map((text, rank) => ({ rank, token_str: text })),
};

const models: Readonly<Record<string, Files>> = {
  "the demo model": changed(demo, {
    "special_tokens_map.json": JSON.stringify({
      bos_token: "<|im_start|>",
      eos_token: { content: "<|im_end|>" },
    }),
    "tekken.json": JSON.stringify(tekken),
  }),
  "a model in parts": new Map([
    ...changed(demo, { "model.safetensors": null }),
    [part, demo.get("model.safetensors")!],
    [
      "model.safetensors.index.json",
      { text: JSON.stringify({ metadata: {}, weight_map: Object.fromEntries(weights) }) },
    ],
  ]),
  "a model with tekken.json alone": changed(demo, {
    "tokenizer.json": null,
    "tekken.json": JSON.stringify(tekken),
    "chat_template.json": JSON.stringify({ chat_template: "{{ messages[0].content }}" }),
  }),
  "a model with templates in files": changed(demo, {
    "chat_template.jinja": "{{ messages[0].content }}",
    "additional_chat_templates/rag.jinja": "{{ messages[0].content }}",
  }),
  "an encoder": filesOf(join(root, "tests/reference/encoders/embedding-gemma")),
  "a WordPiece encoder": filesOf(join(root, "tests/reference/encoders/bert-mean")),
  "a scorer": filesOf(join(root, "tests/reference/encoders/modern-bert-score")),
};

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

const junk = fc.constantFrom<Json>(
  ...[null, true, 0, -1, 1.5, 1e300, 2 ** 53, "", "x", "[", "(?<", "\uD800"],
  ...[[], {}, [null], [[]], { a: null }, ["x", -1], [["x", 0]], { type: "Sequence" }, { type: null }],
);
/** A position as one number per level, modulo the number of members, and the change to make there. */
const mutation = fc.record({
  path: fc.array(fc.nat(), { minLength: 1, maxLength: 7 }),
  change: fc.oneof(
    junk.map((value) => () => [value]),
    fc.constant((): Json[] => []),
    fc.constant((value: Json): Json[] => [[value]]),
    fc.constant((value: Json): Json[] => [{ value }]),
    fc.constant((value: Json): Json[] => [typeof value === "string" ? `${value}${value}` : String(value)]),
  ),
});

function mutated(value: Json, path: readonly number[], change: (value: Json) => Json[]): Json {
  if (typeof value !== "object" || value === null) return change(value)[0] ?? null;
  const keys = Object.keys(value);
  const [first, ...rest] = path;
  if (keys.length === 0) return change(value)[0] ?? null;
  const key = keys[first! % keys.length]!;
  const members = value as Record<string, Json>;
  const next = rest.length === 0 ? change(members[key]!) : [mutated(members[key]!, rest, change)];
  if (Array.isArray(value)) return value.toSpliced(Number(key), 1, ...next);
  const { [key]: _, ...others } = members;
  return next.length === 0 ? others : { ...others, [key]: next[0]! };
}

/** Opens all of a model's files, as a server does. */
function open(): void {
  openModelFolder(folder);
  const tokenizer = openTokenizer(folder);
  openTemplate(folder, tokenizer);
  const text = "Text that nobody tried: 3.14 naïve, 100 %\r\n";
  tokenizer.decode(tokenizer.encode(text, { addSpecialTokens: true }), { skipSpecialTokens: true });
}

function lay(files: Files): void {
  rmSync(folder, { recursive: true, force: true });
  for (const [name, file] of files) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    if ("from" in file) symlinkSync(file.from, path);
    else writeFileSync(path, file.text);
  }
}

/** Opens the folder, which may fail with a sentence about one of its files. */
function expectSentence(): void {
  try {
    open();
  } catch (error) {
    const { name: kind, message } = error as Error;
    expect(["ModelError", "TokenizerError", "TemplateError"]).toContain(kind);
    expect(`${kind}: ${message}`).toContain(folder);
    expect(message).not.toMatch(/(undefined|null|value) is not an object|is not a function|is not iterable/);
  }
}

/** Opens every model once, to show that the faults alone make it fail. */
test.each(Object.keys(models))("%s opens as it is", (model) => {
  lay(models[model]!);
  open();
});

const isTested = (name: string): boolean => name.endsWith(".json") && name !== "expected.json";
const cases = Object.entries(models).flatMap(([model, files]) =>
  [...files.keys()].filter(isTested).map((name) => [model, name] as const),
);

describe("a fault in a file leads to a sentence", () => {
  test.each(cases)(
    "%s: %s",
    (model, name) => {
      const file = models[model]!.get(name)!;
      const original = JSON.parse("text" in file ? file.text : readFileSync(file.from, "utf8")) as Json;
      fc.assert(
        fc.property(fc.array(mutation, { minLength: 1, maxLength: 2 }), (mutations) => {
          const value = mutations.reduce((json, { path, change }) => mutated(json, path, change), original);
          lay(changed(models[model]!, { [name]: JSON.stringify(value) }));
          expectSentence();
        }),
        runs(model === "the demo model" ? 60 : 20),
      );
    },
    60_000,
  );

  const templates = [
    "chat_template.jinja",
    "additional_chat_templates",
    "additional_chat_templates/rag.jinja",
  ];
  test.each([...cases, ...templates.map((name) => ["a model with templates in files", name] as const)])(
    "%s: %s is a folder, empty, cut, no text, or an array",
    (model, name) => {
      const others = new Map([...models[model]!].filter(([other]) => !other.startsWith(name)));
      lay(others);
      mkdirSync(join(folder, name), { recursive: true });
      expectSentence();
      for (const text of ["", '{"a": [', "\u0000\uFFFD", "[]", "null"]) {
        lay(changed(others, { [name]: text }));
        expectSentence();
      }
    },
  );
});
