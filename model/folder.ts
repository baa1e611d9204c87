/**
 * A model on disk: a Hugging Face folder, a GGUF file, or the published name of a downloaded model. Opens it,
 * checks it, and describes it for an engine. Loads no weights.
 */
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { headless, type ModelConfig, readModelConfig } from "./config.ts";
import { type HeadChoice, matchedWithHead } from "./draft-head.ts";
import { encoderScore } from "./encoder-head.ts";
import { isGguf, openGguf } from "./gguf.ts";
import {
  hubCache,
  type PublishedModel,
  publishedNameOf,
  publishedText,
  readPublishedName,
  snapshotFolder,
} from "./hub-cache.ts";
import { isObject, type JsonObject, readExactly, readJsonObject, show, withFile } from "./json.ts";
import { ioReason, ModelError } from "./model-error.ts";
import type { ModelFolder } from "./model-folder.ts";
import { folderEmbedding } from "./pooling.ts";
import { quantisationOf } from "./quantisation.ts";
import { withRopeScaling } from "./rope-scaling.ts";
import { readStoredTensors, type StoredTensor, type StoredTensors } from "./safetensors.ts";
import { folderScore } from "./score-head.ts";
import { folderLayout, isNamedHeadless, matchTensors } from "./weights.ts";

const configBytesMax = 4 << 20;

/**
 * Opens and checks a folder with config.json and safetensors, a folder with a GGUF file, or a GGUF file.
 * `ropeScaling`: JSON of a RoPE scaling in place of the model's own; null: the model's own. `head`: whether
 * to load a draft head. Throws ModelError.
 */
export function openModelFolder(
  path: string,
  ropeScaling: string | null = null,
  head: HeadChoice = "none",
): ModelFolder {
  const folder = opened(path, head);
  return ropeScaling === null ? folder : withRopeScaling(folder, ropeScaling);
}

function opened(path: string, head: HeadChoice): ModelFolder {
  const published = existsSync(path) ? null : readPublishedName(path);
  const downloaded = published === null ? null : snapshotFolder(hubCache(process.env), published);
  const dir = downloaded ?? path;
  if (isGguf(dir)) return openGguf(dir, head);
  const names = folderNames(dir, published);
  const hasWeights = names.includes("model.safetensors") || names.includes("model.safetensors.index.json");
  if (!hasWeights) {
    const file = onlyGguf(dir, names, published?.variant ?? null);
    if (file !== null) return openGguf(join(dir, file), head);
    throw insteadOf(dir, names, "has neither model.safetensors, nor its index, nor a GGUF file");
  }
  if (!names.includes("config.json")) throw insteadOf(dir, names, "has no config.json");
  const described = readModelConfig(dir);
  const stored = readStoredTensors(dir);
  const { config: own, note } = withOwnProjection(described, stored);
  const configFile = join(dir, "config.json");
  const quantisation = quantisationOf(
    configFile,
    withModelopt(dir, readJsonObject(configFile, configBytesMax)),
  );
  const source = stored.files.length === 1 ? stored.files[0]! : join(dir, "model.safetensors.index.json");
  const { config, tensors } = matchedWithHead(own, head, configFile, (config) =>
    matchTensors(config, stored, source, folderLayout(quantisation)),
  );
  return {
    dir,
    name: publishedNameOf(dir) ?? basename(resolve(dir)),
    config,
    tensors,
    notes: [
      ...(quantisation === null ? [] : [`Matrices are stored as ${quantisation.title}.`]),
      ...(note === null ? [] : [note]),
    ],
    weightFilesBytes: stored.filesBytes,
    eosTokens: config.eosTokens,
    contextMax: config.shape.contextMax,
    generationDefaults: config.generationDefaults,
    embedding: folderEmbedding(
      dir,
      config.shape.hidden,
      config.shape.encoder === undefined ? "last" : "mean",
    ),
    score: (config.shape.encoder === undefined ? folderScore : encoderScore)(dir, config, stored),
  };
}

/** Configuration with the quantization that older ModelOpt folders describe in a separate file. */
function withModelopt(dir: string, config: JsonObject): JsonObject {
  const file = join(dir, "hf_quant_config.json");
  if (config.quantization_config != null || !existsSync(file)) return config;
  const { quantization } = readJsonObject(file, configBytesMax);
  if (!isObject(quantization))
    throw new ModelError(file, "quantization", `is ${show(quantization)}, not an object`);
  return { ...config, quantization_config: { ...quantization, quant_method: "modelopt" } };
}

/**
 * Corrects a configuration that ties the vocabulary projection to the embedding although the file stores a
 * separate projection. The stored tensor counts, as in transformers. Also detects by tensor names that there
 * is no projection.
 */
function withOwnProjection(
  config: ModelConfig,
  { tensors }: StoredTensors,
): { config: ModelConfig; note: string | null } {
  if (isNamedHeadless({ tensors })) return { config: { ...config, ...headless(config.shape) }, note: null };
  const projection = tensors.get("lm_head.weight");
  const embedding = tensors.get("model.embed_tokens.weight");
  if (!config.shape.tiedEmbeddings || projection === undefined || embedding === undefined)
    return { config, note: null };
  const isOne =
    projection.shape.length === 2 && projection.shape.every((size, at) => size === embedding.shape[at]);
  if (!isOne || haveSameBytes(projection, embedding)) return { config, note: null };
  return {
    config: { ...config, shape: { ...config.shape, tiedEmbeddings: false } },
    note: "config.json ties the vocabulary projection to the embedding, but lm_head.weight is another matrix: it is used.",
  };
}

function haveSameBytes(a: StoredTensor, b: StoredTensor): boolean {
  if (a.dtype !== b.dtype || a.bytes !== b.bytes) return false;
  const pieceBytes = 4 << 20;
  return withFile(a.file, (first) =>
    withFile(b.file, (second) => {
      for (let at = 0; at < a.bytes; at += pieceBytes) {
        const count = Math.min(pieceBytes, a.bytes - at);
        const piece = readExactly(a.file, first, a.offset + at, count);
        if (Buffer.compare(piece, readExactly(b.file, second, b.offset + at, count)) !== 0) return false;
      }
      return true;
    }),
  );
}

function folderNames(dir: string, published: PublishedModel | null): readonly string[] {
  try {
    if (!statSync(dir).isDirectory()) {
      throw new ModelError(
        dir,
        null,
        "is not a folder; wanted: a Hugging Face folder with config.json and *.safetensors, or a GGUF file",
      );
    }
    return readdirSync(dir);
  } catch (error) {
    if (error instanceof ModelError) throw error;
    const hint =
      published === null
        ? "; wanted: a Hugging Face folder, a GGUF file, or a published name such as Qwen/Qwen3-0.6B or qwen3:0.6b"
        : `, and Hugging Face's cache has no such model; \`bunting pull ${publishedText(published)}\` puts it there`;
    throw new ModelError(dir, null, ioReason(error) + hint);
  }
}

/**
 * The one GGUF file of a folder (maybe in parts), or the one whose name contains `variant`; null if the
 * folder has none.
 */
function onlyGguf(dir: string, names: readonly string[], variant: string | null): string | null {
  const isModel = (name: string): boolean =>
    name.endsWith(".gguf") && !/^mmproj/i.test(name) && !/-(?!00001)\d{5}-of-\d{5}\.gguf$/.test(name);
  const all = names.filter(isModel);
  const files = all.filter((name) => name.toLowerCase().includes((variant ?? "").toLowerCase()));
  if (files.length === 1 || all.length === 0) return files[0] ?? null;
  const wanted = variant === null ? "" : ` for "${variant}"`;
  const found = all.toSorted().slice(0, 12).join(", ");
  throw new ModelError(
    dir,
    null,
    `has ${files.length === 0 ? "no GGUF file" : "several GGUF files"}${wanted}: give the path of one of ${found}`,
  );
}

/** Error for a folder that lacks `missing`; names the unsupported format that it has instead, if any. */
function insteadOf(dir: string, names: readonly string[], missing: string): ModelError {
  const formats: readonly (readonly [RegExp, string])[] = [
    [
      /^adapter_config\.json$|^adapter_model\./,
      "a LoRA adapter: serve its base model, with --lora name=path for the adapter",
    ],
    [/^pytorch_model.*\.bin(\.index\.json)?$|\.pth?$/, "pickled PyTorch weights, which are never opened"],
    [/^consolidated.*\.safetensors$/, "the publisher's own layout, not the Hugging Face one"],
    [/\.safetensors$/, "safetensors under another name"],
  ];
  for (const [pattern, format] of formats) {
    const found = names.find((name) => pattern.test(name) && !/^model\.safetensors/.test(name));
    if (found !== undefined) return new ModelError(dir, null, `${missing}; it has ${found} (${format})`);
  }
  return new ModelError(dir, null, missing);
}
