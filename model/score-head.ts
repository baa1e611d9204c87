/**
 * Reads a model's score head: a row of weights whose product with a hidden state scores a pair of texts.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Pooling } from "../base/token.ts";
import type { ModelConfig } from "./config.ts";
import type { DenseLayer } from "./dense.ts";
import { readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { numbersOf } from "./numbers.ts";
import type { StoredTensors } from "./safetensors.ts";

/**
 * Weights [hidden size] of a score, which is their product with a hidden state. The logistic function turns
 * it into a probability.
 */
export interface ScoreHead {
  readonly weights: Float32Array;
  /** Added to the product. Absent: 0. */
  readonly bias?: number;
  /** Pooling of the hidden states of a pair. Absent: that of its last token. */
  readonly pooling?: Pooling;
  /** Layers between the pooled state and the product. Absent: none. */
  readonly layers?: readonly DenseLayer[];
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
    if (labels === 1) return { weights: numbersOf(classifier, 0) };
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
  const weights = numbersOf(projection, Number(yes));
  if (no === null) return { weights };
  const against = numbersOf(projection, Number(no));
  return { weights: weights.map((value, i) => value - against[i]!) };
}
