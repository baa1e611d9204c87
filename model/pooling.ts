/**
 * Reads how a model pools hidden states, and the layers that follow: sentence-transformers' folders, or a
 * GGUF key.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Pooling } from "../base/token.ts";
import { activationNamed, type DenseLayer, denseLayer } from "./dense.ts";
import type { Metadata } from "./gguf-metadata.ts";
import { isObject, type JsonObject, readJson, readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { readStoredTensors } from "./safetensors.ts";

/**
 * Pooling of hidden states to an embedding, which is then normalised; or the reason why it is not supported.
 */
export type EmbeddingRule = EmbeddingMethod | { readonly refusal: string };

export interface EmbeddingMethod {
  readonly pooling: Pooling;
  /** Dense layers after the pooling. Absent: none. */
  readonly layers?: readonly DenseLayer[];
  /** Prompts by name, which are prepended to inputs, and the name of the default one. Absent: none. */
  readonly prompts?: Prompts;
}

export interface Prompts {
  readonly byName: Readonly<Record<string, string>>;
  /** Null: inputs have no prompt unless a request names one. */
  readonly usual: string | null;
}

const bytesMax = 1 << 20;

/** Pooling by flag of `1_Pooling/config.json`. */
const modes: Readonly<Record<string, Pooling>> = {
  pooling_mode_lasttoken: "last",
  pooling_mode_mean_tokens: "mean",
  pooling_mode_cls_token: "first",
};
/** Pooling by the value of `pooling_mode`, its newer form. */
const named: Readonly<Record<string, string>> = {
  lasttoken: "pooling_mode_lasttoken",
  mean: "pooling_mode_mean_tokens",
  cls: "pooling_mode_cls_token",
};

/**
 * Pooling of a Hugging Face folder with hidden states of `hidden` numbers. `usual` applies if no file
 * specifies it: the last token by default, since in a decoder only that one has seen the whole text. Throws
 * ModelError for unreadable files.
 */
export function folderEmbedding(dir: string, hidden = 0, usual: Pooling = "last"): EmbeddingRule {
  const file = join(dir, "1_Pooling", "config.json");
  const modules = modulesOf(join(dir, "modules.json"));
  const unknown = modules.find(({ type }) => !/\.(Transformer|Pooling|Dense|Normalize)$/.test(type));
  if (unknown !== undefined)
    return { refusal: `modules.json wants ${unknown.type}, which is not computed here` };
  const dense = modules.filter(({ type }) => type.endsWith(".Dense"));
  const layers: DenseLayer[] = [];
  for (const { path } of dense) {
    const layer = folderLayer(join(dir, path), layers.at(-1)?.outputs ?? hidden);
    if (typeof layer === "string") return { refusal: layer };
    layers.push(layer);
  }
  const prompts = promptsOf(join(dir, "config_sentence_transformers.json"));
  const rest = { ...(layers.length === 0 ? {} : { layers }), ...(prompts === null ? {} : { prompts }) };
  if (!existsSync(file)) return { pooling: usual, ...rest };
  const config = readJsonObject(file, bytesMax);
  const wanted = wantedModes(config);
  const [mode] = wanted;
  const pooling = wanted.length === 1 ? modes[mode!] : undefined;
  if (config.include_prompt === false && pooling !== "last" && prompts !== null)
    return {
      refusal:
        "1_Pooling/config.json leaves prompts out of the pooling (include_prompt), which is not computed here",
    };
  if (pooling !== undefined) return { pooling, ...rest };
  const supported = `one of ${Object.keys(modes).join(", ")} is supported`;
  return { refusal: `1_Pooling/config.json wants ${wanted.join(" and ") || "no pooling"}; ${supported}` };
}

function wantedModes(config: JsonObject): readonly string[] {
  const { pooling_mode: mode } = config;
  if (typeof mode === "string") return [named[mode] ?? `pooling_mode ${show(mode)}`];
  return Object.entries(config).flatMap(([name, value]) =>
    name.startsWith("pooling_mode_") && value === true ? [name] : [],
  );
}

interface Module {
  readonly type: string;
  readonly path: string;
}

function modulesOf(file: string): readonly Module[] {
  if (!existsSync(file)) return [];
  const modules = readJson(file, bytesMax);
  if (!Array.isArray(modules)) throw new ModelError(file, null, `is ${show(modules)}, wanted an array`);
  return modules.map((module) => {
    if (!isObject(module)) return { type: show(module), path: "" };
    return { type: String(module.type), path: String(module.path ?? "") };
  });
}

/** Layer of a module's folder; a sentence if it is not supported. */
function folderLayer(dir: string, inputs: number): DenseLayer | string {
  const file = join(dir, "config.json");
  const { activation_function: name = "Identity" } = readJsonObject(file, bytesMax);
  const activation = activationNamed(String(name));
  if (activation === null) return `${file} wants the activation ${show(name)}, which is not computed here`;
  if (!existsSync(join(dir, "model.safetensors")))
    return `${dir} has no model.safetensors, and pickled weights are never opened`;
  const { tensors } = readStoredTensors(dir);
  const weights = tensors.get("linear.weight");
  if (weights === undefined) throw new ModelError(dir, "linear.weight", "the tensor is missing");
  return denseLayer(weights, tensors.get("linear.bias"), inputs, activation);
}

/** Prompts of sentence-transformers' configuration; null if it has none. */
function promptsOf(file: string): Prompts | null {
  if (!existsSync(file)) return null;
  const { prompts, default_prompt_name: usual = null } = readJsonObject(file, bytesMax);
  if (!isObject(prompts)) return null;
  const texts = Object.entries(prompts).filter(
    (entry): entry is [string, string] => typeof entry[1] === "string",
  );
  if (texts.every(([, text]) => text === "")) return null;
  const byName = Object.fromEntries(texts);
  return { byName, usual: typeof usual === "string" && Object.hasOwn(byName, usual) ? usual : null };
}

/**
 * Pooling of a GGUF file, by llama.cpp's numbers: none, mean, first, last, and rank, which is no embedding.
 */
export function ggufEmbedding(metadata: Metadata, usual: Pooling = "last"): EmbeddingRule {
  const key = `${metadata.text("general.architecture")}.pooling_type`;
  if (!metadata.has(key)) return { pooling: usual };
  const known: readonly EmbeddingRule[] = [
    { pooling: usual },
    { pooling: "mean" },
    { pooling: "first" },
    { pooling: "last" },
  ];
  const type = metadata.integer(key, 0, 255);
  const of =
    type === 4
      ? "its file is for scores alone (/v1/rerank)"
      : `${key} is ${type}, which is not computed here`;
  return known[type] ?? { refusal: of };
}
