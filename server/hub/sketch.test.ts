import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planMemory } from "../../gpu/memory.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import { FakeHub, type FakeHubOptions } from "../../tests/support/fake-hub.ts";
import { convertModel } from "../../tests/support/gguf-model.ts";
import { ggufBytes } from "../../tests/support/gguf-writer.ts";
import { publishedShapes } from "../../tools/random-model/shapes.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { defaultHubLimits } from "./client.ts";
import { resolveModel } from "./resolve.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-sketch-test-"));
afterAll(() => rmSync(scratch, { recursive: true }));

type Files = Record<string, Uint8Array>;

/** A folder with weights in several files. */
function sharded(): { readonly files: Files; readonly dir: string } {
  const dir = mkdtempSync(join(scratch, "sharded-"));
  const json = {
    ...publishedShapes["Qwen2.5-0.5B"]!.config,
    ...{ hidden_size: 64, intermediate_size: 96, max_position_embeddings: 256, num_attention_heads: 4 },
    ...{ num_hidden_layers: 2, num_key_value_heads: 2, vocab_size: 8000 },
  };
  writeRandomModel({ file: "config.json", json }, dir, { seed: 1, shardBytesMax: 400_000 });
  const files = Object.fromEntries(readdirSync(dir).map((name) => [name, readFileSync(join(dir, name))]));
  return { files, dir };
}

/** A GGUF file in two parts, whose configuration is partly in a tensor. */
function split(): { readonly files: Files; readonly dir: string } {
  // The configuration comes from the last tensor, which lies behind the first part that is read of a file.
  const config = readFileSync(join(import.meta.dir, "../../tests/reference/llama3/config.json"), "utf8");
  const json = { ...(JSON.parse(config) as object), vocab_size: 8000 };
  const folder = mkdtempSync(join(scratch, "whole-"));
  writeRandomModel({ file: "config.json", json }, folder, { seed: 1 });
  const whole = convertModel(folder, { type: "F32" });
  const files: Files = {};
  const parts = [[...whole.tensors.slice(0, 3), ...whole.tensors.slice(-1)], whole.tensors.slice(3, -1)];
  parts.forEach((tensors, number) => {
    const own = [
      ["split.no", "u16", number],
      ["split.count", "u16", parts.length],
      ["split.tensors.count", "i32", whole.tensors.length],
    ] as const;
    const entries = number === 0 ? [...whole.entries, ...own] : own;
    files[`Q8_0/tiny-Q8_0-0000${number + 1}-of-00002.gguf`] = ggufBytes({ entries, tensors });
  });
  for (const [path, content] of Object.entries(files)) writeFileSync(join(scratch, path.slice(5)), content);
  return { files, dir: join(scratch, "tiny-Q8_0-00001-of-00002.gguf") };
}

/** All facts about a model except the paths of its files. */
function facts({ dir, name: _, ...model }: ModelFolder, root: string): unknown {
  const text = JSON.stringify(model, (key, value: unknown) =>
    key === "path" && typeof value === "string" ? value.split("/").at(-1) : value,
  );
  return JSON.parse(text.replaceAll(dir, "").replaceAll(root, ""));
}

const fits = planMemory({
  compute: "bf16",
  isRounded: false,
  weightBytes: 1,
  pageBytes: 1,
  pageTokens: 16,
  states: null,
  workspaceBytes: 0,
  engines: 1,
  contextMax: 16,
  availableBytes: 2 ** 30,
  kvBytes: null,
});

async function pulled(
  name: string,
  files: Files,
  options: FakeHubOptions = {},
): Promise<{ readonly sketch: unknown; readonly path: string; readonly paths: ReadonlySet<string> }> {
  const hub = new FakeHub(options);
  hub.commit("Tiny/Model", files);
  const cache = mkdtempSync(join(scratch, "cache-"));
  let sketch: unknown = null;
  const plan = async (path: string) => {
    sketch = facts(openModelFolder(path), path);
    return fits;
  };
  const settings = { endpoint: hub.endpoint, token: null, cache, isOffline: false };
  const events = { onSize: () => {}, onProgress: () => {} };
  const limits = { ...defaultHubLimits, headBytes: 100 };
  const { signal } = new AbortController();
  try {
    const path = await resolveModel(name, { settings, limits, signal, events, plan });
    const offline = { ...settings, isOffline: true };
    expect(await resolveModel(name, { settings: offline, limits, signal, events, plan })).toBe(path);
    const paths = new Set(
      hub.requests.filter(({ from }) => from === "cdn").map(({ path }) => path.split("/").slice(5).join("/")),
    );
    return { sketch, path, paths };
  } finally {
    await hub.stop();
  }
}

test("shards are those that the index names, and are planned before they are fetched", async () => {
  const { files, dir } = sharded();
  const shards = Object.keys(files).filter((name) => name.endsWith(".safetensors"));
  expect(shards.length).toBeGreaterThan(1);
  const others = { "pytorch_model.bin": Buffer.alloc(5000), "consolidated.safetensors": Buffer.alloc(5000) };
  const { sketch, path, paths } = await pulled("Tiny/Model", { ...files, ...others });
  expect(sketch).toEqual(facts(openModelFolder(dir), dir));
  expect(facts(openModelFolder(path), path)).toEqual(sketch);
  expect(readdirSync(path).sort()).toEqual(Object.keys(files).sort());
  expect([...paths].filter((file) => file.endsWith(".bin") || file.startsWith("consolidated"))).toEqual([]);
});

test("a shard that is missing or elsewhere is refused", async () => {
  const { files } = sharded();
  const first = Object.keys(files).find((name) => name.endsWith(".safetensors"))!;
  const { [first]: _, ...rest } = files;
  await expect(pulled("Tiny/Model", rest)).rejects.toThrow(
    `names ${first}, which the repository does not have`,
  );
  const index = String(files["model.safetensors.index.json"]).replaceAll(first, `../${first}`);
  await expect(
    pulled("Tiny/Model", { ...files, "model.safetensors.index.json": Buffer.from(index) }),
  ).rejects.toThrow(`names ../${first}, which`);
});

test("a GGUF file in parts is planned from its heads, and its parts are found in the cache", async () => {
  const { files, dir } = split();
  const mmproj = { "mmproj-Q8_0.gguf": Buffer.alloc(5000), "Q4_0/tiny-Q4_0.gguf": Buffer.alloc(5000) };
  const { sketch, path, paths } = await pulled("Tiny/Model:Q8_0", { ...files, ...mmproj });
  expect(sketch).toEqual(facts(openModelFolder(dir), dir));
  expect(facts(openModelFolder(path), path)).toEqual(sketch);
  expect([...paths].sort()).toEqual(Object.keys(files).sort());
});
