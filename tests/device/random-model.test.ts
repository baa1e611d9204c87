/** A folder written by tools/random-model.ts loads like any other, and its model answers. */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { publishedShapes } from "../../tools/random-model/shapes.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { cpuLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-random-model-"));
afterAll(() => rmSync(scratch, { recursive: true }));

test.each(Object.keys(publishedShapes))("a small %s answers", (name) => {
  const { config } = publishedShapes[name]!;
  const small = {
    hidden_size: 96,
    intermediate_size: 64,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 32,
    num_hidden_layers: 2,
    max_position_embeddings: 256,
    vocab_size: 4000,
    ...(config.full_attention_interval === undefined ? {} : { full_attention_interval: 2 }),
  };
  const dir = join(scratch, name);
  writeRandomModel({ file: name, json: { ...config, ...small } }, dir, { seed: 7 });
  const tokenizer = loadTokenizer(dir);
  const rig = new Rig(cpuLibrary(), openModelFolder(dir));
  try {
    const prompt = tokenizer.encode("Once upon a time", { addSpecialTokens: false });
    const stream = rig.stream(prompt);
    const [drawn] = rig.step([{ stream, count: prompt.length }]);
    expect(tokenizer.bytesOf(drawn!.token).length).toBeGreaterThan(0);
    const { logits } = drawn!;
    expect(logits).toHaveLength(4000);
    expect(logits.every(Number.isFinite)).toBe(true);
    expect(new Set(logits).size).toBeGreaterThan(1000); // not a constant, so the weights matter
  } finally {
    rig.close();
  }
});
