import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { configReference } from "./docs.ts";
import { modelsReference } from "./models-reference.ts";

const written = (name: string): string =>
  readFileSync(resolve(import.meta.dir, "../docs/reference", name), "utf8");

test("docs/reference/config.md is what the settings say (bun tools/docs.ts writes it)", () => {
  expect(written("config.md")).toBe(configReference());
});

test("docs/reference/models.md is what families and tests say (bun tools/docs.ts writes it)", () => {
  expect(written("models.md")).toBe(modelsReference());
});
