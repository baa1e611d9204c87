/**
 * Reads a model's score head: a row of weights whose product with the last token's hidden state scores a pair
 * of texts.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { ModelConfig } from "./config.ts";
import { readExactly, readJsonObject, show, withFile } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { StoredTensor, StoredTensors } from "./safetensors.ts";

/**
 * Weights [hidden size] of a score, which is their product with a hidden state. The logistic function turns
 * it into a probability.
 */
export interface ScoreHead {
  readonly weights: Float32Array;
}

/** Score head, or the reason why there is none. */
export type ScoreRule = ScoreHead | { readonly refusal: string };

const bytesMax = 1 << 20;
const scoreName = "score.weight";

/**
 * Score head of a Hugging Face folder: a classifier of one label, or sentence-transformers' tokens for yes
 * and no. Throws ModelError for unreadable files.
 */
export function folderScore(
  dir: string,
  config: ModelConfig,
  stored: Pick<StoredTensors, "tensors">,
): ScoreRule {
  const { tensors } = stored;
  const classifier = tensors.get(scoreName);
  if (classifier !== undefined) {
    const [labels] = classifier.shape;
    if (labels === 1) return { weights: rowOf(classifier, 0) };
    return { refusal: `${scoreName} has ${labels} labels, and a score is of one` };
  }
  const file = join(dir, "1_LogitScore", "config.json");
  if (!existsSync(file)) return { refusal: "its files have no score.weight and no 1_LogitScore/config.json" };
  const { true_token_id: yes, false_token_id: no = null } = readJsonObject(file, bytesMax);
  const { vocab, tiedEmbeddings } = config.shape;
  for (const token of no === null ? [yes] : [yes, no]) {
    if (Number.isInteger(token) && Number(token) >= 0 && Number(token) < vocab) continue;
    throw new ModelError(file, null, `names the token ${show(token)}, wanted: 0 to ${vocab - 1}`);
  }
  const projection = tensors.get(tiedEmbeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  if (projection === undefined) return { refusal: "its vocabulary projection is stored in another way" };
  const weights = rowOf(projection, Number(yes));
  if (no === null) return { weights };
  const against = rowOf(projection, Number(no));
  return { weights: weights.map((value, i) => value - against[i]!) };
}

/** Row `index` of a matrix, as f32. */
function rowOf({ file, name, dtype, shape, offset, bytes }: StoredTensor, index: number): Float32Array {
  const [rows, columns] = shape as [number, number];
  const rowBytes = bytes / rows;
  const raw = withFile(file, (descriptor) =>
    readExactly(file, descriptor, offset + index * rowBytes, rowBytes),
  );
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const read: Record<string, (at: number) => number> = {
    F32: (at) => view.getFloat32(4 * at, true),
    F16: (at) => view.getFloat16(2 * at, true),
    BF16: (at) => bf16(view.getUint16(2 * at, true)),
  };
  const value = read[dtype];
  if (value === undefined)
    throw new ModelError(file, name, `has dtype ${dtype}; wanted: ${Object.keys(read).join(", ")}`);
  return Float32Array.from({ length: columns }, (_, at) => value(at));
}

function bf16(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(2, bits, true);
  return view.getFloat32(0, true);
}
