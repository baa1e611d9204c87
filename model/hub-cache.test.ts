import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "./folder.ts";
import { readPublishedName, snapshotFolder } from "./hub-cache.ts";

const cache = mkdtempSync(join(tmpdir(), "bunting-hub-"));
const before = process.env.HF_HUB_CACHE;
beforeAll(() => {
  process.env.HF_HUB_CACHE = cache;
});
afterAll(() => {
  if (before === undefined) delete process.env.HF_HUB_CACHE;
  else process.env.HF_HUB_CACHE = before;
  rmSync(cache, { recursive: true });
});

/** Creates the snapshot folder of a downloaded model in the layout of huggingface_hub. */
function download(repository: string): string {
  const folder = join(cache, repository);
  const snapshot = join(folder, "snapshots", "abc123");
  mkdirSync(join(folder, "refs"), { recursive: true });
  mkdirSync(snapshot, { recursive: true });
  writeFileSync(join(folder, "refs", "main"), "abc123");
  return snapshot;
}

test("a downloaded model is opened by its published name, and has it", () => {
  const snapshot = download("models--Tiny--Qwen3-0.1B");
  cpSync(join(import.meta.dir, "../tests/reference/qwen3"), snapshot, { recursive: true });
  for (const name of ["Tiny/Qwen3-0.1B", "https://huggingface.co/Tiny/Qwen3-0.1B", snapshot]) {
    const { dir, name: called } = openModelFolder(name);
    expect([dir, called]).toEqual([snapshot, "Tiny/Qwen3-0.1B"]);
  }
  expect(snapshotFolder(cache, { name: "Tiny/Other", revision: "main" })).toBeNull();
});

test("a GGUF file is chosen by a part of its name", () => {
  const snapshot = download("models--Tiny--Model-GGUF");
  for (const name of ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]) writeFileSync(join(snapshot, name), "");
  const told = (name: string): string => {
    try {
      openModelFolder(name);
    } catch (error) {
      return String((error as Error).message).replace(snapshot, "DIR");
    }
    return "opened";
  };
  expect(told("Tiny/Model-GGUF:q8_0")).toStartWith("DIR/m-Q8_0.gguf: has 0 bytes");
  const files = "give the path of one of m-Q4_K_M.gguf, m-Q8_0.gguf";
  expect(told("Tiny/Model-GGUF")).toBe(`DIR: has several GGUF files: ${files}`);
  expect(told("Tiny/Model-GGUF:Q5_0")).toBe(`DIR: has no GGUF file for "Q5_0": ${files}`);
});

test.each<[string, ReturnType<typeof readPublishedName>]>([
  ["Qwen/Qwen3-0.6B", { name: "Qwen/Qwen3-0.6B", revision: "main", variant: null }],
  [
    "hf.co/unsloth/Qwen3-0.6B-GGUF:Q4_K_M",
    { name: "unsloth/Qwen3-0.6B-GGUF", revision: "main", variant: "Q4_K_M" },
  ],
  ["a/b@refs/pr/1:q/m.gguf", { name: "a/b", revision: "refs/pr/1", variant: "q/m.gguf" }],
  ["a/b@../x", null],
  ["a/b@x/../../y", null],
  ["a/b:../x.gguf", null],
  ["models/qwen3/q8.gguf", null],
  ["models/q8.gguf", null],
  ["./models", null],
  ["/models/x", null],
  ["qwen3", null],
])("%s", (text, published) => expect(readPublishedName(text)).toEqual(published));
