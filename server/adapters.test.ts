import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../model/folder.ts";
import type { ModelFolder } from "../model/model-folder.ts";
import { writeAdapter } from "../tests/support/adapter-folder.ts";
import { distinctAdapters, openAdapters } from "./adapters.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-adapters-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const demo = join(import.meta.dir, "../models/demo");
const folder = openModelFolder(demo);
const [sql, copy, law] = ["sql", "copy", "law"].map((name) => {
  const dir = join(scratch, name);
  const rank = name === "law" ? 8 : 4;
  writeAdapter(demo, dir, { seed: rank, rank, alpha: 8, changes: /layers\.0\.self_attn\.q_proj/ });
  return dir;
}) as [string, string, string];

test("adapters are known by their names, and by their contents once", () => {
  const adapters = openAdapters([`sql=${sql}`, `law=${law}`, `other=${copy}`], folder, ["demo"], false);
  expect([...adapters].map(([name, { path, rank }]) => [name, path, rank])).toEqual([
    ["sql", sql, 4],
    ["law", law, 8],
    ["other", copy, 4],
  ]);
  expect(distinctAdapters(adapters).map(({ rank }) => rank)).toEqual([4, 8]);
  expect(openAdapters([], folder, ["demo"], true).size).toBe(0);
});

describe("refused:", () => {
  const encoder = { ...folder.config.shape, encoder: {} } as ModelFolder["config"]["shape"];
  const ofEncoder = { ...folder, config: { ...folder.config, shape: encoder } };
  const wide = { ...folder, config: { ...folder.config, shape: { ...folder.config.shape, hidden: 512 } } };
  const many = Array.from({ length: 1025 }, (_, index) => `${index}=${sql}`);
  const refused: readonly (readonly [string, Parameters<typeof openAdapters>, string])[] = [
    ["the model's name", [[`demo=${sql}`], folder, ["one", "demo"], false], "demo is the name of the model"],
    [
      "a name that is there twice",
      [[`sql=${sql}`, `sql=${law}`], folder, ["demo"], false],
      `--lora sql=${law}: another adapter has the name sql.`,
    ],
    ["a model", [["a=models/demo"], folder, ["demo"], false], "--lora a=models/demo: models/demo"],
    [
      "an adapter of a narrower model",
      [[`a=${sql}`], wide, ["demo"], false],
      "the model's matrix has 512 inputs",
    ],
    [
      "too many",
      [many, folder, ["demo"], false],
      "--lora: at most 1024 adapters are served, and 1025 are given.",
    ],
    [
      "a GPU",
      [[`a=${sql}`], folder, ["demo"], true],
      `--lora a=${sql}: adapters are computed on CPUs only yet; use --device cpu.`,
    ],
    ["an encoder", [[`a=${sql}`], ofEncoder, ["demo"], false], "an encoder takes no adapters."],
  ];
  test.each(refused)("%s", (_, args, sentence) => {
    expect(() => openAdapters(...args)).toThrow(sentence);
  });
});
