import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../model/folder.ts";
import { modelNotes } from "./model-notes.ts";

const demo = openModelFolder(join(import.meta.dir, "../models/demo"));
const dir = mkdtempSync(join(tmpdir(), "bunting-notes-"));
afterAll(() => rmSync(dir, { recursive: true }));

test("a folder with tekken.json and no template: says what to fetch", () => {
  writeFileSync(join(dir, "tekken.json"), "{}");
  expect(modelNotes({ ...demo, dir }, null)).toEqual([expect.stringContaining("fetch chat_template.jinja")]);
  expect(modelNotes(demo, null)).toEqual([]);
});

test("fields of generation_config.json that are not heeded are named", () => {
  const generationDefaults = { ...demo.config.generationDefaults, unheeded: ["begin_suppress_tokens"] };
  const config = { ...demo.config, generationDefaults };
  expect(modelNotes({ ...demo, config }, null)).toEqual([
    "generation_config.json sets begin_suppress_tokens, which is not heeded",
  ]);
});
