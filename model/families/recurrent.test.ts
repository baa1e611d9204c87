import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { foldersOnly, writeFamily } from "../../tests/reference/families.ts";
import { familyConfigs } from "../../tests/reference/family-configs.ts";
import { convertModel } from "../../tests/support/gguf-model.ts";
import { type Entry, ggufBytes } from "../../tests/support/gguf-writer.ts";
import { type ModelConfig, parseModelConfig, readModelConfig } from "../config.ts";
import { openModelFolder } from "../folder.ts";
import { isObject, type JsonObject } from "../json.ts";
import type { ModelShape } from "../shape.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-recurrent-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Configuration of a reference model with changed fields, of its text model if it has one. */
function configOf(name: string, changes: JsonObject = {}): ModelConfig {
  const own = JSON.parse(JSON.stringify(familyConfigs[name])) as JsonObject;
  const text = own.text_config;
  const json = isObject(text) ? { ...own, text_config: { ...text, ...changes } } : { ...own, ...changes };
  return parseModelConfig({ file: "config.json", json }, { file: "", json: {} });
}

const mixersOf = (name: string, changes: JsonObject = {}): string[] =>
  configOf(name, changes).shape.layers.map(({ mixer }) => mixer);

const recurrent = Object.keys(familyConfigs).filter((name) => configOf(name).shape.states !== undefined);

describe("which layers are recurrent", () => {
  test("is listed, by today's words and by former ones", () => {
    expect(mixersOf("qwen3-5-moe")).toEqual(["delta", "attention", "delta"]);
    expect(mixersOf("granite4-hybrid")).toEqual(["ssm", "attention", "ssm"]);
    const layer_types = ["linear_attention", "full_attention", "linear_attention"];
    expect(mixersOf("granite4-hybrid", { layer_types })).toEqual(["ssm", "attention", "ssm"]);
    expect(mixersOf("lfm2")).toEqual(["conv", "attention", "conv"]);
    expect(mixersOf("lfm2", { layer_types: undefined, full_attn_idxs: [2] })).toEqual([
      "conv",
      "conv",
      "attention",
    ]);
  });

  test("is all but every fourth in a Qwen that does not list them, or another period", () => {
    expect(mixersOf("qwen3-next", { num_hidden_layers: 5 })).toEqual([
      ...["delta", "delta", "delta", "attention", "delta"],
    ]);
    expect(mixersOf("qwen3-5")).toEqual(["delta", "attention", "delta", "attention"]);
  });

  test("is spelled in a Nemotron-H, whose layers are one part each", () => {
    const parts = configOf("nemotron-h").shape.layers.map(({ mixer, mlp }) => `${mixer} ${mlp}`);
    expect(parts).toEqual(["ssm none", "none plain", "attention none", "none plain", "ssm none"]);
    expect(mixersOf("nemotron-h", { num_hidden_layers: undefined })).toHaveLength(5);
    const words = { hybrid_override_pattern: undefined, layers_block_type: ["mamba", "mlp", "attention"] };
    expect(mixersOf("nemotron-h", { ...words, num_hidden_layers: 3 })).toEqual(["ssm", "none", "attention"]);
  });

  test.each([
    ["qwen3-next", { layer_types: Array(4).fill("sliding_attention") }, "layer_types"],
    ["qwen3-5", { layer_types: ["linear_attention"] }, "layer_types"],
    ["granite4-hybrid", { layer_types: null }, "layer_types"],
    ["lfm2", { layer_types: ["conv", "linear_attention", "conv"] }, "layer_types"],
    ["nemotron-h", { hybrid_override_pattern: "M-X-M" }, "hybrid_override_pattern"],
    ["nemotron-h", { layers_block_type: ["mamba", "conv"], num_hidden_layers: 2 }, "layers_block_type"],
  ] as const)("of %s cannot be %j", (name, changes, field) => {
    expect(() => configOf(name, changes as unknown as JsonObject)).toThrow(`${field}: `);
  });
});

describe("a field of recurrent layers that is not computed is refused by name", () => {
  test.each([
    ["qwen3-next", "attention_bias", true],
    ["qwen3-5", "attn_output_gate", false],
    ["qwen3-5", "hidden_act", "gelu"],
    ["qwen3-5-moe", "linear_num_value_heads", 5],
    ["granite4-moe", "mamba_proj_bias", true],
    ["granite4-moe", "mamba_d_head", 16],
    ["falcon-h1", "projectors_bias", true],
    ["falcon-h1", "ssm_multipliers", [1, 1]],
    ["lfm2", "conv_bias", true],
    ["lfm2", "conv_L_cache", 9],
    ["nemotron-h", "mlp_hidden_act", "silu"],
    ["nemotron-h", "mlp_bias", true],
    ["nemotron-h-moe", "moe_latent_size", 32],
    ["nemotron-h-moe", "n_shared_experts", 2],
  ] as const)("%s: %s: %j", (name, field, value) => {
    expect(() => configOf(name, { [field]: value })).toThrow(`${field}: `);
  });
});

test("time steps have the limits of the configuration, which may be infinite as Python writes it", () => {
  const folder = join(scratch, "infinite");
  writeFamily("nemotron-h", folder);
  const file = join(folder, "config.json");
  const json = { ...familyConfigs["nemotron-h"], time_step_limit: [0.5, "endless"] };
  writeFileSync(file, JSON.stringify(json).replace('"endless"', "Infinity"));
  const { dtMin, dtMax } = readModelConfig(folder).shape.states!;
  expect([dtMin, dtMax]).toEqual([0.5, Number.POSITIVE_INFINITY]);
  writeFileSync(file, JSON.stringify({ ...json, time_step_limit: ["Infinity"] }));
  expect(() => readModelConfig(folder)).toThrow('time_step_limit: ["Infinity"]: wanted: a list of numbers');
});

test("Falcon-H1's multipliers are of weights, embedding and logits", () => {
  const folder = join(scratch, "multipliers");
  writeFamily("falcon-h1", folder);
  const { config, tensors } = openModelFolder(folder);
  expect([config.shape.embeddingScale, config.shape.logitScale]).toEqual([5.65, 0.4]);
  const factors = new Set(tensors.filter(({ layer }) => layer === 1).map(({ factor }) => factor));
  expect(factors).toEqual(
    new Set([
      undefined,
      0.9,
      0.9 * 0.39,
      0.94,
      0.88,
      0.58,
      0.24,
      ...[0.35, 0.25, 0.18, 0.5].map((m) => m * 1.25),
    ]),
  );
});

describe("a GGUF file says the same as the folder it was made from", () => {
  /** Traits of recurrent layers; files have Falcon-H1's multipliers in the weights, and Qwen's heads in another order. */
  const traits = ({ layers, experts, feedForward, states }: ModelShape) => ({
    ...{ layers, experts, feedForward },
    states: { ...states, tiledHeads: false },
  });

  test.each(recurrent.filter((name) => !foldersOnly.includes(name)).map((name) => [name]))("%s", (name) => {
    const folder = join(scratch, name);
    writeFamily(name, folder);
    const file = `${folder}.gguf`;
    writeFileSync(file, ggufBytes(convertModel(folder, { type: "F32" })));
    const [own, other] = [openModelFolder(file), openModelFolder(folder)];
    expect(traits(own.config.shape)).toEqual(traits(other.config.shape));
    expect(own.tensors.map(({ tensor, layer, rows, cols }) => [tensor, layer, rows, cols])).toEqual(
      other.tensors.map(({ tensor, layer, rows, cols }) => [tensor, layer, rows, cols]),
    );
  });

  test("beside layers that predict further tokens, which are skipped", () => {
    const folder = join(scratch, "drafting");
    writeFamily("qwen3-5", folder);
    const { entries, tensors } = convertModel(folder, { type: "F32" });
    const changed: Readonly<Record<string, Entry>> = {
      "qwen35.block_count": ["qwen35.block_count", "u32", 5],
      "qwen35.attention.recurrent_layers": ["qwen35.attention.recurrent_layers", "bool[]", [1, 0, 1, 0, 0]],
    };
    const file = join(scratch, "drafting.gguf");
    const drafted = {
      entries: [
        ...entries.map((entry) => changed[entry[0]] ?? entry),
        ["qwen35.nextn_predict_layers", "u32", 1] as const,
      ],
      tensors: [...tensors, { ...tensors.at(-1)!, name: "blk.4.nextn.eh_proj.weight" }],
    };
    writeFileSync(file, ggufBytes(drafted));
    const mixers: string[] = openModelFolder(file).config.shape.layers.map(({ mixer }) => mixer);
    expect(mixers).toEqual(["delta", "attention", "delta", "attention"]);
  });
});
