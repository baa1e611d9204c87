import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openStored } from "../../tests/support/stored-pages.ts";
import { engineFolder, listStored, noteModel, removeStored, secretFor, shareOf } from "./folders.ts";
import type { KvDiskSetup } from "./protocol.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "bunting-kv-folders-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function setupOf(model: string, digit: string): KvDiskSetup {
  return {
    ...{ workerUrl: "", root, model, identity: digit.repeat(64), bytesMax: 10_000, engines: 1 },
    ...{ pageBytes: 700, stateBytes: 0, pageTokens: 16, key: null },
  };
}

/** Gives a model a file of `bytes` bytes, last used at `usedMs`. */
function fill(setup: KvDiskSetup, bytes: number, usedMs: number): string {
  const folder = engineFolder(setup, 0);
  openStored(folder).close();
  noteModel(setup);
  const file = join(folder, "1.kv");
  writeFileSync(file, Buffer.alloc(bytes));
  for (const path of [file, join(folder, "lock"), join(folder, "..", "model.json")])
    utimesSync(path, usedMs / 1000, usedMs / 1000);
  return file;
}

test("models are listed by their last use", () => {
  expect(listStored(join(root, "absent"))).toEqual([]);
  fill(setupOf("old", "a"), 1000, 1_000_000);
  fill(setupOf("new", "b"), 2000, 2_000_000);
  expect(listStored(root).map(({ name, bytes, usedMs }) => [name, bytes, usedMs])).toEqual([
    ["new", 2000, 2_000_000],
    ["old", 1000, 1_000_000],
  ]);
});

test("other models keep half of the space, the last used first", () => {
  const setup = setupOf("own", "0");
  fill(setup, 9000, 1);
  fill(setupOf("older", "a"), 3000, 1_000_000);
  fill(setupOf("newer", "b"), 4000, 2_000_000);
  expect(shareOf(setup)).toBe(6000);
  expect(listStored(root).map(({ name }) => name)).toEqual(["newer", "own"]);
});

test("pages that a server has open are not removed", () => {
  const setup = setupOf("m", "a");
  fill(setup, 1000, 1_000_000);
  const store = openStored(engineFolder(setup, 1));
  const [model] = listStored(root);
  expect(removeStored(model!)).toBe(false);
  expect(readdirSync(engineFolder(setup, 0))).toContain("1.kv");
  store.close();
  expect(removeStored(model!)).toBe(true);
  expect(listStored(root)).toEqual([]);
});

test("each use of a key has its own secret", () => {
  const key = Buffer.alloc(32, 1);
  expect(secretFor(null, "ids")).toBeNull();
  expect(secretFor(key, "ids")).not.toEqual(secretFor(key, "pages")!);
  expect(secretFor(key, "ids")).toHaveLength(32);
});
