import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { configReference } from "./docs.ts";

test("docs/reference/config.md is what the settings say (bun tools/docs.ts writes it)", () => {
  const file = resolve(import.meta.dir, "../docs/reference/config.md");
  expect(readFileSync(file, "utf8")).toBe(configReference());
});
