/** Reads a model's pooling from its files: sentence-transformers' folders, or a GGUF key. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Pooling } from "../base/token.ts";
import type { Metadata } from "./gguf-metadata.ts";
import { isObject, readJson, readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";

/**
 * Pooling of hidden states to an embedding, which is then normalised; or the reason why it is not supported.
 */
export type EmbeddingRule = { readonly pooling: Pooling } | { readonly refusal: string };

const bytesMax = 1 << 20;
/** Default pooling: the last token has seen all of the text. */
const usual: EmbeddingRule = { pooling: "last" };

/** Pooling by flag of `1_Pooling/config.json`. */
const modes: Readonly<Record<string, Pooling>> = {
  pooling_mode_lasttoken: "last",
  pooling_mode_mean_tokens: "mean",
  pooling_mode_cls_token: "first",
};

/** Pooling of a Hugging Face folder. Throws ModelError for unreadable files. */
export function folderEmbedding(dir: string): EmbeddingRule {
  const file = join(dir, "1_Pooling", "config.json");
  const unknown = unknownModule(join(dir, "modules.json"));
  if (unknown !== null) return { refusal: `modules.json wants ${unknown}, which is not computed here` };
  if (!existsSync(file)) return usual;
  const wanted = Object.entries(readJsonObject(file, bytesMax)).flatMap(([name, value]) =>
    name.startsWith("pooling_mode_") && value === true ? [name] : [],
  );
  const [mode] = wanted;
  const pooling = wanted.length === 1 ? modes[mode!] : undefined;
  if (pooling !== undefined) return { pooling };
  const supported = `one of ${Object.keys(modes).join(", ")} is supported`;
  return { refusal: `1_Pooling/config.json wants ${wanted.join(" and ") || "no pooling"}; ${supported}` };
}

/** Module of the model that is neither transformer, pooling nor normalisation; null if there is none. */
function unknownModule(file: string): string | null {
  if (!existsSync(file)) return null;
  const modules = readJson(file, bytesMax);
  if (!Array.isArray(modules)) throw new ModelError(file, null, `is ${show(modules)}, wanted an array`);
  const types = modules.map((module) => (isObject(module) ? String(module.type) : show(module)));
  return types.find((type) => !/\.(Transformer|Pooling|Normalize)$/.test(type)) ?? null;
}

/**
 * Pooling of a GGUF file, by llama.cpp's numbers: none, mean, first, last, and rank, which is no embedding.
 */
export function ggufEmbedding(metadata: Metadata): EmbeddingRule {
  const key = `${metadata.text("general.architecture")}.pooling_type`;
  if (!metadata.has(key)) return usual;
  const known: readonly EmbeddingRule[] = [
    usual,
    { pooling: "mean" },
    { pooling: "first" },
    { pooling: "last" },
  ];
  const type = metadata.integer(key, 0, 255);
  return known[type] ?? { refusal: `${key} is ${type}, which is not computed here` };
}
