/**
 * Small random models of the families in family-configs.ts: seeded weights, and the results of transformers on
 * them. This writes the model folders; families.py computes the results.
 *
 *   npx bun tests/reference/families.ts <folder>
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseModelConfig } from "../../model/config.ts";
import { configWithHead } from "../../model/draft-head.ts";
import type { JsonObject } from "../../model/json.ts";
import { folderTensors, type NamedTensor } from "../../model/weights.ts";
import type { Spread } from "../../tools/random-model/weights.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { familyConfigs, vocab } from "./family-configs.ts";

/**
 * Models with folders only: GGUF metadata cannot say that some of their layers have no experts, or has no
 * keys for numbers of theirs, or their architecture is unsupported.
 */
export const foldersOnly: readonly string[] = [
  "qwen3-moe",
  "glm",
  "llama4",
  "falcon-h1-norm",
  "granite-swa-thetas",
  "hyperclovax",
  "lfm3",
  "vaultgemma",
  "apertus1.5",
];

/** Models with parts that GPU engines refuse. */
export const cpuOnly: readonly string[] = ["gemma3n", "nemotron-h-moe"];

/**
 * Seeds of weights; other models have 20. With that one two groups of experts of deepseek-v3 have nearly equal
 * scores in one row of the prompt, and bf16 chooses the one or the other.
 */
const seeds: Readonly<Record<string, number>> = { "deepseek-v3": 27 };

/** Prompt of every model, and the positions after which its logits are kept. */
export const familyPrompt: readonly number[] = Array.from(
  { length: 48 },
  (_, index) => (index * 37 + 11) % vocab,
);
export const familyPositions = [9, 30, 47] as const;

/**
 * Returns the distribution of a tensor's weights so that every part matters: projections keep variance, norms
 * and biases are far from neutral.
 */
function spreadOf({ name, shape, untrained }: NamedTensor): Spread {
  // States that keep something for a few tokens up to dozens.
  if (name.endsWith("A_log")) return { mean: -2, sigma: 1 };
  if (untrained !== null) return { mean: untrained, sigma: 0.25 };
  if (name.includes("embed_tokens") || name.startsWith("lm_head"))
    return { mean: 0, sigma: 2 / Math.sqrt(shape[1]!) };
  if (name.includes("_coefs.")) return { mean: 0, sigma: 0.2 };
  if (name.endsWith("act_fn.beta")) return { mean: 0.5, sigma: 0.1 };
  if (name.endsWith("act_fn.eps")) return { mean: -0.02, sigma: 0.005 };
  if (shape.length === 1 || name.endsWith("bias")) return { mean: 0, sigma: 0.5 };
  return { mean: 0, sigma: 1.4 / Math.sqrt(shape.at(-1)!) };
}

/** A tensor of an image tower, and one of a layer that predicts a second token. */
const ofTower = { name: "model.visual.merger.probe.weight", shape: [32, 16], untrained: null };
const ofMtp = { name: "mtp.fc.weight", shape: [64, 128], untrained: null };
const ofDraft = { name: "model.layers.3.eh_proj.weight", shape: [64, 128], untrained: null };

/**
 * ERNIE stores a vector as a matrix of one row; Apertus has numbers without a dimension, and 1.5 more rows in its
 * embedding than in its vocabulary projection.
 */
function asStored(tensor: NamedTensor, json: JsonObject): NamedTensor {
  if (json.output_vocab_size !== undefined && tensor.name.includes("embed_tokens"))
    return { ...tensor, shape: [json.vocab_size as number, tensor.shape[1]!] };
  if (/\.act_fn\.(beta|eps)$/.test(tensor.name)) return { ...tensor, shape: [] };
  return tensor.name.includes("moe_statics") ? { ...tensor, shape: [1, ...tensor.shape] } : tensor;
}

function inWrapper(tensor: NamedTensor): NamedTensor {
  return { ...tensor, name: tensor.name.replace(/^model\./, "model.language_model.") };
}

/** Tensors of a model's head. */
function headTensors(json: JsonObject): readonly NamedTensor[] {
  const config = parseModelConfig({ file: "config.json", json }, { file: "", json: {} });
  const plain = new Set(folderTensors(config).map(({ name }) => name));
  return folderTensors(configWithHead(config)!).filter(({ name }) => !plain.has(name));
}

/** Writes the folder of one model, whose configuration may have changes, and which may have a whole head. */
export function writeFamily(
  name: string,
  folder: string,
  changes: JsonObject = {},
  hasHead: boolean = false,
): void {
  const json = JSON.parse(JSON.stringify({ ...familyConfigs[name], ...changes })) as JsonObject; // drops undefined values
  const isWrapped = json.text_config !== undefined;
  const head = hasHead ? headTensors(json) : null;
  const drafting = Number(json.num_nextn_predict_layers ?? 0) > 0 ? [ofDraft] : [];
  const further = /^(qwen3-5|qwen3-next$|mellum$)/.test(name) ? [ofMtp] : [];
  const tensorsOf = (tensors: readonly NamedTensor[]): readonly NamedTensor[] =>
    isWrapped
      ? [...tensors.map(inWrapper), ofTower, ...(head ?? further)]
      : [...tensors.map((tensor) => asStored(tensor, json)), ...(head ?? [...drafting, ...further])];
  writeRandomModel({ file: "config.json", json }, folder, { seed: seeds[name] ?? 20, spreadOf, tensorsOf });
}

/** Reads transformers' float32 logits [vocab] after each of `familyPositions`. */
export function familyLogits(name: string): Float32Array[] {
  const bytes = readFileSync(join(import.meta.dir, "families", `${name}.f32.bin`));
  const all = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  return familyPositions.map((_, index) => all.subarray(index * vocab, (index + 1) * vocab));
}

if (import.meta.main) {
  const folder = process.argv[2];
  if (folder === undefined) throw new Error("wanted: a folder to write to");
  for (const name of Object.keys(familyConfigs)) writeFamily(name, join(folder, name));
}
