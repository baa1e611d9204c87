import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeRandomModel } from "../tools/random-model.ts";
import { openModelFolder } from "./folder.ts";
import { contextLimit } from "./rope.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-rope-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const demo = join(import.meta.dir, "../models/demo");

/** The demo model, made for 2,048 tokens, with changes to its configuration. */
function modelWith(changes: object): string {
  const folder = mkdtempSync(join(scratch, "model-"));
  for (const name of readdirSync(demo))
    if (name !== "config.json") symlinkSync(join(demo, name), join(folder, name));
  const config = JSON.parse(readFileSync(join(demo, "config.json"), "utf8")) as object;
  writeFileSync(join(folder, "config.json"), JSON.stringify({ ...config, ...changes }));
  return folder;
}

const yarn = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 512 };

test("yarn allows what its factor makes of the original context, as model cards say", () => {
  const folder = openModelFolder(modelWith({ max_position_embeddings: 640, rope_scaling: yarn }));
  expect([folder.contextMax, contextLimit(folder.config.shape)]).toEqual([640, 2048]);
  const longer = openModelFolder(modelWith({ max_position_embeddings: 4096, rope_scaling: yarn }));
  expect(contextLimit(longer.config.shape)).toBe(4096);
  const plain = openModelFolder(demo);
  expect(contextLimit(plain.config.shape)).toBe(2048);
});

test("a scaling in place of the model's own is that of a configuration with it", () => {
  const given = openModelFolder(demo, JSON.stringify({ ...yarn, original_max_position_embeddings: 2048 }));
  const written = openModelFolder(
    modelWith({ rope_scaling: { ...yarn, original_max_position_embeddings: 2048 } }),
  );
  expect(given.config.shape.ropes).toEqual(written.config.shape.ropes);
  expect([given.contextMax, given.config.shape.contextMax]).toEqual([8192, 8192]);
  expect(openModelFolder(demo, '{"type": "linear", "factor": 2}').contextMax).toBe(4096);
  // The original context is the model's own unless it is given.
  expect(openModelFolder(demo, '{"rope_type": "yarn", "factor": 2}').contextMax).toBe(4096);
});

test("over latents it scales the scores too, as in a configuration with it", () => {
  const scaling = { rope_type: "yarn", factor: 8, original_max_position_embeddings: 64, mscale: 1 };
  const latents = {
    ...{
      architectures: ["DeepseekV3ForCausalLM"],
      num_hidden_layers: 1,
      hidden_size: 64,
      intermediate_size: 96,
    },
    ...{ num_attention_heads: 4, vocab_size: 300, max_position_embeddings: 256, rope_theta: 10_000 },
    ...{ kv_lora_rank: 32, qk_nope_head_dim: 48, qk_rope_head_dim: 16, v_head_dim: 32 },
    ...{ n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32, n_group: 1, topk_group: 1 },
  };
  const write = (name: string, changes: object): string => {
    const folder = join(scratch, name);
    const source = { file: "config.json", json: { ...latents, ...changes } };
    writeRandomModel(source, folder, { seed: 1 });
    return folder;
  };
  const plain = write("plain", {});
  const scaled = { ...scaling, mscale_all_dim: 1 };
  const written = openModelFolder(write("written", { rope_scaling: scaled })).config.shape;
  expect(openModelFolder(plain).config.shape.attentionScale).toBe(1 / 8);
  expect(written.attentionScale).toBeCloseTo((1 + 0.1 * Math.log(8)) ** 2 / 8, 12);
  const given = openModelFolder(plain, JSON.stringify(scaled)).config.shape;
  expect([given.attentionScale, given.ropes]).toEqual([written.attentionScale, written.ropes]);
});

test.each([
  ['{"factor": 4}', "--rope-scaling: rope_type: missing: wanted: the kind of scaling"],
  ['{"rope_type": "yarn", "factor": -1}', "--rope-scaling: factor: -1: wanted: a number from 1 to 1000000"],
  ['{"rope_type": "dynamic", "factor": 4}', '--rope-scaling: rope_type: "dynamic": keys in the cache'],
  ['{"rope_type": "yarn", "factor": 4, "rope_theta": 5e6}', "--rope-scaling: rope_theta: not known here"],
  ['{"rope_type": "spiral"}', "supported rope types"],
])("%s is refused by its field", (text, sentence) => {
  expect(() => openModelFolder(demo, text)).toThrow(sentence);
});
