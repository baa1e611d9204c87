/** Property: any fault in a model's files leads to a sentence that names one of them. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { openModelFolder } from "../model/folder.ts";
import { runs } from "../tests/support/property.ts";
import { openTemplate, openTokenizer } from "./model-text.ts";

const demo = join(import.meta.dir, "../models/demo");
const folder = mkdtempSync(join(tmpdir(), "bunting-mutated-"));
afterAll(() => rmSync(folder, { recursive: true }));

const files = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"];
const index = "model.safetensors.index.json";
const originals = new Map(files.map((name) => [name, readFileSync(join(demo, name), "utf8")]));
const weights = openModelFolder(demo).tensors.map(({ name }) => [name, "part.safetensors"]);
originals.set(index, JSON.stringify({ metadata: {}, weight_map: Object.fromEntries(weights) }));

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

function lay(changed: ReadonlyMap<string, string>): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const isInParts = changed.has(index);
  symlinkSync(
    join(demo, "model.safetensors"),
    join(folder, isInParts ? "part.safetensors" : "model.safetensors"),
  );
  for (const name of [...files, ...(isInParts ? [index] : [])])
    writeFileSync(join(folder, name), changed.get(name) ?? originals.get(name)!);
}

describe("a mutated file", () => {
  test("is not needed: the files as they are open", () => {
    lay(new Map());
    open();
    lay(new Map([[index, originals.get(index)!]]));
    open();
  });

  test.each([...originals.keys()])(
    "%s",
    (name) => {
      const original = JSON.parse(originals.get(name)!) as Json;
      fc.assert(
        fc.property(fc.array(mutation, { minLength: 1, maxLength: 2 }), (mutations) => {
          const value = mutations.reduce((json, { path, change }) => mutated(json, path, change), original);
          lay(new Map([[name, JSON.stringify(value)]]));
          try {
            open();
          } catch (error) {
            const { name: kind, message } = error as Error;
            expect(["ModelError", "TokenizerError", "TemplateError"]).toContain(kind);
            expect(`${kind}: ${message}`).toContain(folder);
            expect(message).not.toMatch(
              /(undefined|null|value) is not an object|is not a function|is not iterable/,
            );
          }
        }),
        runs(60),
      );
    },
    60_000,
  );
});
