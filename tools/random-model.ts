/**
 * Writes a Hugging Face folder with random weights: `npx bun tools/random-model.ts <shape|config.json>
 * <folder> [--seed N] [--layers N]`. For measurements at real sizes without published weights or vocabulary;
 * the same seed gives the same bytes.
 */
import { existsSync, mkdirSync, readdirSync, statfsSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { parseModelConfig } from "../model/config.ts";
import { isObject, type JsonObject, readJsonObject } from "../model/json.ts";
import { ModelError } from "../model/model-error.ts";
import { folderTensors, type NamedTensor } from "../model/weights.ts";
import { publishedShapes } from "./random-model/shapes.ts";
import { eosTokens, tokenizerConfigJson, tokenizerJson, vocabMin } from "./random-model/tokenizer.ts";
import { parametersOf, type Spread, withMxfp4Experts, writeWeights } from "./random-model/weights.ts";

export interface RandomModelOptions {
  /** Seed, 0 … 2^32-1. */
  readonly seed: number;
  /** Distribution of each tensor. Default: as before training, with neutral norms and small weights. */
  readonly spreadOf?: (tensor: NamedTensor) => Spread;
  /** Tensors to write instead of a folder's usual ones. */
  readonly tensorsOf?: (tensors: readonly NamedTensor[]) => readonly NamedTensor[];
  /** Maximum bytes of a weight file; default 4 GB. */
  readonly shardBytesMax?: number;
  /** Progress of writing weights. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
}

/** Failure to write the model. The message is a sentence for people. */
export class RandomModelError extends Error {
  override readonly name = "RandomModelError";
}

/** Configuration named on the command line: a published shape's, or that of a file. */
export function namedConfig(name: string): { readonly file: string; json: JsonObject } {
  const isShape = Object.hasOwn(publishedShapes, name);
  if (isShape) return { file: name, json: publishedShapes[name]!.config };
  if (name.endsWith(".json")) return { file: name, json: readJsonObject(name, 4 << 20) };
  throw new RandomModelError(
    `${name} is no shape that is known: wanted a config.json or one of ${Object.keys(publishedShapes).join(", ")}.`,
  );
}

/**
 * Writes the folder, which must be empty or absent, and returns the number of weights. Control tokens become
 * those of the generated tokenizer; the rest of the configuration stays. config.json is written last, so a
 * folder without it is incomplete. Throws RandomModelError or ModelError before anything is written.
 */
export function writeRandomModel(
  source: { readonly file: string; readonly json: JsonObject },
  folder: string,
  options: RandomModelOptions,
): number {
  const { eos_token_id: _, dtype: __, ...kept } = source.json;
  const control = { bos_token_id: null, eos_token_id: eosTokens, pad_token_id: 0 };
  const json = { ...kept, ...control, torch_dtype: "bfloat16" };
  const config = parseModelConfig({ file: source.file, json }, { file: "", json: {} });
  const { shape } = config;
  if (shape.vocab < vocabMin) {
    throw new RandomModelError(
      `${source.file}: vocab_size ${shape.vocab} is too small: ${vocabMin} are the bytes and the control tokens.`,
    );
  }
  const plain = (options.tensorsOf ?? ((tensors) => tensors))(folderTensors(config));
  const parameters = parametersOf(plain);
  const tensors = hasMxfp4Experts(source) ? withMxfp4Experts(plain) : plain;
  // Upper bound of 100 bytes per token in tokenizer.json.
  checkPlace(folder, parameters * 2 + shape.vocab * 100);

  mkdirSync(folder, { recursive: true });
  const write = (name: string, content: JsonObject): void =>
    writeFileSync(join(folder, name), `${JSON.stringify(content, null, 2)}\n`);
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(tokenizerJson(shape.vocab)));
  write("tokenizer_config.json", tokenizerConfigJson(shape.contextMax));
  write("generation_config.json", control);
  if (config.isHeadless) {
    mkdirSync(join(folder, "1_Pooling"));
    write("1_Pooling/config.json", {
      word_embedding_dimension: shape.hidden,
      pooling_mode_lasttoken: true,
      pooling_mode_mean_tokens: false,
    });
  }
  const { initializer_range: sigma } = json as { initializer_range?: unknown };
  writeWeights(folder, tensors, {
    seed: options.seed,
    spreadOf: options.spreadOf ?? untrained(typeof sigma === "number" && sigma > 0 ? sigma : 0.02),
    shardBytesMax: options.shardBytesMax ?? 4e9,
    onProgress: options.onProgress ?? (() => undefined),
  });
  write("config.json", json);
  return parameters;
}

/** True for MXFP4 experts. Throws RandomModelError for other quantisation methods. */
function hasMxfp4Experts({ file, json }: { readonly file: string; readonly json: JsonObject }): boolean {
  const { quantization_config: quantisation } = json;
  if (quantisation === undefined) return false;
  const method = isObject(quantisation) ? quantisation.quant_method : undefined;
  if (method === "mxfp4") return true;
  throw new RandomModelError(
    `${file}: quantization_config: weights are written in bf16, or experts in mxfp4.`,
  );
}

function untrained(sigma: number): (tensor: NamedTensor) => Spread {
  return ({ untrained: mean }) => (mean === null ? { mean: 0, sigma } : { mean, sigma: 0 });
}

function checkPlace(folder: string, neededBytes: number): void {
  if (existsSync(folder)) {
    if (!statSync(folder).isDirectory()) throw new RandomModelError(`${folder} is not a folder.`);
    if (readdirSync(folder).length > 0) {
      throw new RandomModelError(`${folder} is not empty: nothing is written over.`);
    }
  }
  let there = resolve(folder);
  while (!existsSync(there)) there = dirname(there);
  const { bavail, bsize } = statfsSync(there);
  if (bavail * bsize < neededBytes) {
    throw new RandomModelError(
      `${folder} needs ${gigabytes(neededBytes)}, and ${gigabytes(bavail * bsize)} are free there.`,
    );
  }
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(1)} GB`;
}

const usage = `Usage: npx bun tools/random-model.ts <shape|config.json> <folder> [--seed N] [--layers N]
Shapes: ${Object.keys(publishedShapes).join(", ")}`;

function main(): void {
  const { values, positionals } = parseArgs({
    options: { seed: { type: "string", default: "1" }, layers: { type: "string" } },
    allowPositionals: true,
  });
  const [name, folder] = positionals;
  if (name === undefined || folder === undefined || positionals.length > 2) throw new RandomModelError(usage);
  const seed = Number(values.seed);
  if (!/^\d+$/.test(values.seed) || seed >= 2 ** 32) {
    throw new RandomModelError(`--seed ${values.seed}: wanted a whole number from 0 to ${2 ** 32 - 1}.`);
  }
  const source = namedConfig(name);
  if (values.layers !== undefined) {
    if (!/^[1-9]\d*$/.test(values.layers)) {
      throw new RandomModelError(`--layers ${values.layers}: wanted a whole number from 1 on.`);
    }
    source.json = { ...source.json, num_hidden_layers: Number(values.layers) };
  }
  const startedMs = performance.now();
  let toldTenths = 0;
  const onProgress = (doneBytes: number, totalBytes: number): void => {
    const tenths = Math.floor((10 * doneBytes) / totalBytes);
    if (tenths === toldTenths) return;
    toldTenths = tenths;
    console.error(`${tenths * 10} % of ${gigabytes(totalBytes)}`);
  };
  const parameters = writeRandomModel(source, folder, { seed, onProgress });
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  console.log(`${folder}: ${name}, ${parameters.toLocaleString("en")} random weights, ${seconds} s`);
}

if (import.meta.main) {
  try {
    main();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    const isForPeople =
      error instanceof RandomModelError || error instanceof ModelError || code !== undefined;
    if (!isForPeople) throw error;
    console.error((error as Error).message);
    process.exitCode = 1;
  }
}
