import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
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
