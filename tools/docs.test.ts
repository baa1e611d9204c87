import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Glob } from "bun";
import { storedTypes } from "../model/stored-types.ts";
import { configReference } from "./docs.ts";
import { modelsReference } from "./models-reference.ts";
import { storedTypesModule } from "./stored-types.ts";

const root = resolve(import.meta.dir, "..");
const written = (name: string): string => readFileSync(resolve(root, "docs/reference", name), "utf8");

test("docs/reference/config.md is what the settings say (bun tools/docs.ts writes it)", () => {
  expect(written("config.md")).toBe(configReference());
});

test("docs/reference/models.md is what families and tests say (bun tools/docs.ts writes it)", () => {
  expect(written("models.md")).toBe(modelsReference());
});

test("model/stored-types.ts is what csrc says (bun tools/docs.ts writes it)", () => {
  const module = storedTypesModule();
  expect(readFileSync(resolve(root, "model/stored-types.ts"), "utf8")).toBe(module);
  // Row count: one for each format of files and each code book.
  const rows = (file: string, row: RegExp): number =>
    readFileSync(resolve(root, "csrc", file), "utf8").match(row)!.length;
  const inFiles = rows("cpu/kernels/block_formats.h", /\.file = \{/g);
  const codebooks = rows("model/codebook_types.cpp", /\{kIq/g);
  expect(module.match(/ number: \d+,/g)).toHaveLength(inFiles + codebooks);
});

test.each(["gguf.md", "weights.md"])("docs/reference/%s names every stored type in blocks", (name) => {
  const text = written(name);
  const types = Object.entries(storedTypes).filter(([, { kind }]) => kind === "blocks");
  expect(types.map(([type]) => type).filter((type) => !new RegExp(`\\b${type}\\b`).test(text))).toEqual([]);
});

describe("docs/troubleshooting.md", () => {
  /** Source texts in which a quoted message may be found, with concatenated literals joined. */
  const sources = ["server", "model", "gpu", "csrc"].flatMap((folder) =>
    [...new Glob("**/*.{ts,cpp,h}").scanSync(resolve(root, folder))]
      .filter((path) => !path.includes(".test."))
      .map((path) => readFileSync(resolve(root, folder, path), "utf8").replace(/[`"] \+\s*[`"]/g, "")),
  );
  /** Parts of a quoted message between `…` that are long enough to identify it. */
  const partsOf = (sentence: string): string[] =>
    sentence.split("…").filter((part) => part.replace(/[^a-z]/gi, "").length >= 4);
  const isSaid = (sentence: string): boolean =>
    sources.some((source) => partsOf(sentence).every((part) => source.includes(part)));
  const page = readFileSync(resolve(root, "docs/troubleshooting.md"), "utf8");
  const sentences = page.split("\n## ").flatMap((section) => {
    const head = /^\|(.*)\|$/m.exec(section)?.[1]?.split(" | ") ?? [];
    const column = head.findIndex((name) => name.trim() === "It says");
    if (column === -1) return [];
    return [...section.matchAll(/^\| (.*) \|$/gm)].flatMap(
      ([, row]) => /^`(.*)`$/.exec(row!.split(" | ")[column]!)?.[1] ?? [],
    );
  });

  test("quotes what the server says", () => {
    expect(sentences.length).toBeGreaterThan(30);
    expect(sentences.filter((sentence) => !isSaid(sentence))).toEqual([]);
  });

  test("a sentence that nobody says is found", () => {
    expect(isSaid("the queue is empty: it holds … requests at most")).toBe(false);
  });
});
