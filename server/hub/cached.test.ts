import { afterAll, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readPublishedName } from "../../model/hub-cache.ts";
import { listCached, removeCached } from "./cached.ts";

const root = mkdtempSync(join(tmpdir(), "bunting-cached-"));
afterAll(() => rmSync(root, { recursive: true }));

const main = "a".repeat(40);
const old = "b".repeat(40);
let cache = "";
beforeEach(() => {
  cache = mkdtempSync(join(root, "cache-"));
  const ggufs = join(cache, "models--Tiny--GGUF");
  const folder = join(cache, "models--Tiny--Folder");
  for (const [repository, commit, files] of [
    [ggufs, main, { "m-Q4_K_M.gguf": "q4", "m-Q8_0.gguf": "q8 bytes", "README.md": "shared" }],
    [ggufs, old, { "m-Q8_0.gguf": "q8 bytes" }],
    [folder, main, { "config.json": "{}", "model.safetensors": "weights" }],
  ] as const) {
    const snapshot = join(repository, "snapshots", commit);
    for (const part of [snapshot, join(repository, "blobs"), join(repository, "refs")])
      mkdirSync(part, { recursive: true });
    writeFileSync(join(repository, "refs", "main"), main);
    for (const [name, content] of Object.entries(files)) {
      const blob = name.replaceAll(".", "");
      writeFileSync(join(repository, "blobs", blob), content);
      symlinkSync(`../../blobs/${blob}`, join(snapshot, name));
    }
  }
  writeFileSync(join(folder, "blobs", "other.incomplete"), "half");
});

const named = (name: string) => readPublishedName(name)!;
const listed = () =>
  listCached(cache)
    .map(({ name, bytes }) => [name, bytes] as const)
    .toSorted();

test("each model is listed by the name that serves it", () => {
  expect(listed()).toEqual([
    ["Tiny/Folder", 9],
    ["Tiny/GGUF:Q4_K_M", 2],
    ["Tiny/GGUF:Q8_0", 8],
    [`Tiny/GGUF@${old}:Q8_0`, 8],
  ]);
  const folder = listCached(cache).find(({ name }) => name === "Tiny/Folder")!;
  expect(folder).toMatchObject({
    incompleteBytes: 4,
    path: join(cache, "models--Tiny--Folder", "snapshots", main),
  });
  expect(Date.now() - folder.usedMs).toBeLessThan(60_000);
  expect(listCached(join(cache, "nowhere"))).toEqual([]);
});

test("a model is removed with its folder, and others stay", () => {
  expect(removeCached(cache, named("Tiny/Folder"))).toBe(13);
  expect(readdirSync(cache)).toEqual(["models--Tiny--GGUF"]);
});

test("a revision is removed, and what others need stays", () => {
  expect(removeCached(cache, named(`Tiny/GGUF@${old}`))).toBe(0);
  expect(listed().map(([name]) => name)).toEqual(["Tiny/Folder", "Tiny/GGUF:Q4_K_M", "Tiny/GGUF:Q8_0"]);
});

test("a quant is removed from every snapshot, and its bytes are free", () => {
  expect(removeCached(cache, named(`Tiny/GGUF@${old}:Q8_0`))).toBe(0);
  expect(removeCached(cache, named("Tiny/GGUF:Q8_0"))).toBe(8);
  expect(listed().map(([name]) => name)).toEqual(["Tiny/Folder", "Tiny/GGUF:Q4_K_M"]);
});

test.each(["Tiny/Other", "Tiny/GGUF:Q2_K", `Tiny/GGUF@${"c".repeat(40)}`])("%s is not there", (name) => {
  expect(() => removeCached(cache, named(name))).toThrow(/is not in|no one GGUF model/);
  expect(existsSync(join(cache, "models--Tiny--GGUF", "blobs", "m-Q8_0gguf"))).toBe(true);
});
