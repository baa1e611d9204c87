/** Score heads of GGUF files, as llama.cpp's converter lays them out. */
import type { Pooling } from "../base/token.ts";
import type { ModelConfig } from "./config.ts";
import { type DenseLayer, denseLayer } from "./dense.ts";
import type { Metadata } from "./gguf-metadata.ts";
import { numbersOf, readTypes } from "./numbers.ts";
import type { StoredTensors } from "./safetensors.ts";
import type { ScoreRule } from "./score-head.ts";

/** Number of llama.cpp for the pooling that makes a score. */
const rankPooling = 4;

/** True for a file that is meant for scores alone. */
export function isOfRanker(metadata: Metadata): boolean {
  const key = `${metadata.text("general.architecture")}.pooling_type`;
  return metadata.integer(key, 0, 255, 0) === rankPooling;
}

const names = { labels: "cls.output", dense: "cls", norm: "cls.norm" } as const;

/** Score head of a file; the reason if it has none that is computed here. Throws ModelError. */
export function ggufScore(
  metadata: Metadata,
  tensors: StoredTensors["tensors"],
  { shape }: Pick<ModelConfig, "shape">,
): ScoreRule {
  const rows = tensors.get(`${names.labels}.weight`);
  if (rows === undefined) return { refusal: `its file has no ${names.labels}.weight` };
  const unread = [rows, tensors.get(`${names.dense}.weight`)].find(
    (one) => one && !readTypes.includes(one.dtype),
  );
  if (unread !== undefined)
    return {
      refusal: `${unread.name} is in ${unread.dtype}, and scores need one of ${readTypes.join(", ")}`,
    };
  const labels = rows.shape.length === 1 ? 1 : rows.shape[0]!;
  if (shape.encoder === undefined) {
    const key = `${metadata.text("general.architecture")}.classifier.output_labels`;
    const known = metadata.has(key) ? metadata.texts(key) : [];
    if (known.join() !== "yes,no" || labels !== 2)
      return { refusal: `${names.labels} has the labels ${known.join(", ")}, and a score is of yes and no` };
    const against = numbersOf(rows, 1);
    return { weights: numbersOf(rows, 0).map((value, i) => value - against[i]!) };
  }
  if (labels !== 1) return { refusal: `${names.labels} has ${labels} labels, and a score is of one` };
  if (!tensors.has(`${names.dense}.weight`))
    return { refusal: `its file lacks ${names.dense}.weight, the layer before ${names.labels}` };
  const bias = tensors.get(`${names.labels}.bias`);
  return {
    weights: numbersOf(rows),
    bias: bias === undefined ? 0 : numbersOf(bias)[0]!,
    pooling: poolingOf(metadata),
    layers: [layerOf(metadata, tensors, shape)],
  };
}

function poolingOf(metadata: Metadata): Pooling {
  const key = `${metadata.text("general.architecture")}.classifier.pooling_type`;
  const type = metadata.integer(key, 1, 2, 2);
  return type === 1 ? "mean" : "first";
}

function layerOf(
  metadata: Metadata,
  tensors: StoredTensors["tensors"],
  { hidden, normEpsilon }: ModelConfig["shape"],
): DenseLayer {
  const architecture = metadata.text("general.architecture");
  const [weights, bias] = ["weight", "bias"].map((part) => tensors.get(`${names.dense}.${part}`));
  const layer = denseLayer(weights!, bias, hidden, architecture === "modern-bert" ? "gelu" : "tanh");
  const norm = tensors.get(`${names.norm}.weight`);
  if (norm === undefined) return layer;
  return { ...layer, norm: { weights: numbersOf(norm), bias: null, epsilon: normEpsilon } };
}
