/** Reads adapter_config.json of PEFT folders. What changes the mathematics and is not computed here is refused. */
import { join } from "node:path";
import { isObject, type JsonObject, readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";

export interface PeftConfig {
  /** Alpha of a module, by its path in the model. */
  alphaOf(module: string): number;
  /** True for rank-stabilised LoRA, which divides alpha by the root of the rank. */
  readonly usesRankRoot: boolean;
}

const configBytesMax = 4 << 20;

/** Fields that must be absent, false, null or empty, and what they stand for. */
const unsupported: Readonly<Record<string, string>> = {
  use_dora: "DoRA",
  fan_in_fan_out: "weights that are stored transposed",
  modules_to_save: "whole matrices beside the low-rank ones",
  layer_replication: "layers that are there several times",
  trainable_token_indices: "rows of the embedding",
  alora_invocation_tokens: "adapters that begin in the middle of a prompt",
  lora_bias: "biases of B",
  use_qalora: "QALoRA",
  use_bdlora: "block-diagonal LoRA",
  arrow_config: "Arrow's routing",
};

/** Ways to begin a training that change the base model's weights too. */
const changesBase = /^(pissa|olora|corda|lora_ga)/;

/** Reads and checks a folder's configuration. Throws ModelError. */
export function readPeftConfig(dir: string): PeftConfig {
  const file = join(dir, "adapter_config.json");
  const config = readJsonObject(file, configBytesMax);
  const refuse = (field: string, reason: string): never => {
    throw new ModelError(file, field, `${show(config[field])}: ${reason}`);
  };
  if (config.peft_type !== "LORA") refuse("peft_type", "only LORA is computed here");
  for (const [field, what] of Object.entries(unsupported))
    if (!isEmpty(config[field])) refuse(field, `${what} are not computed here`);
  if (!isEmpty(config.bias) && config.bias !== "none")
    refuse("bias", "adapters with biases are not computed here");
  const start = config.init_lora_weights;
  if (typeof start === "string" && changesBase.test(start))
    refuse(
      "init_lora_weights",
      "the training changed the base model's weights; convert it to plain LoRA with PEFT",
    );
  const alpha = number(config.lora_alpha) ?? refuse("lora_alpha", "wanted: a number");
  const patterns =
    patternsOf(config.alpha_pattern) ??
    refuse("alpha_pattern", "wanted: an object of numbers, by regular expressions");
  return {
    alphaOf: (module) => patterns.find(([pattern]) => matches(pattern, module))?.[1] ?? alpha,
    usesRankRoot: config.use_rslora === true,
  };
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return true;
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && Object.keys(value).length === 0;
}

function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function patternsOf(value: unknown): [string, number][] | null {
  if (value === undefined || value === null) return [];
  if (!isObject(value)) return null;
  const entries = Object.entries(value as JsonObject);
  const areGood = entries.every(([pattern, alpha]) => isPattern(pattern) && number(alpha) !== null);
  return areGood ? (entries as [string, number][]) : null;
}

function isPattern(text: string): boolean {
  try {
    new RegExp(text);
    return true;
  } catch {
    return false;
  }
}

/** PEFT's rule: a key is a regular expression for a module's path, or for its end from a dot on. */
function matches(pattern: string, module: string): boolean {
  return new RegExp(`^(?:.*\\.)?(?:${pattern})$`).test(module);
}
