/** Score heads of encoders with a class such as BertForSequenceClassification. */
import { join } from "node:path";
import type { Pooling } from "../base/token.ts";
import type { ModelConfig } from "./config.ts";
import { activationNamed, type DenseLayer, type DenseNorm, denseLayer } from "./dense.ts";
import { type JsonObject, readJsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { numbersOf } from "./numbers.ts";
import type { StoredTensor, StoredTensors } from "./safetensors.ts";
import type { ScoreRule } from "./score-head.ts";

const configBytesMax = 4 << 20;

/** Names of a family's tensors between the pooled state and the labels. */
interface HeadNames {
  readonly dense: readonly string[];
  readonly labels: string;
  readonly norm?: string;
  /** Field of config.json for the pooling, and for the activation; absent: the first token, and tanh. */
  readonly pooling?: string;
  readonly activation?: string;
}

const headNames: Readonly<Record<string, HeadNames>> = {
  bert: { dense: ["bert.pooler.dense", "pooler.dense"], labels: "classifier" },
  "xlm-roberta": { dense: ["classifier.dense"], labels: "classifier.out_proj" },
  "modern-bert": {
    dense: ["head.dense"],
    norm: "head.norm",
    labels: "classifier",
    pooling: "classifier_pooling",
    activation: "classifier_activation",
  },
};

export function encoderScore(
  dir: string,
  { family, shape }: ModelConfig,
  { tensors }: Pick<StoredTensors, "tensors">,
): ScoreRule {
  const names = headNames[family];
  const labels = names && tensors.get(`${names.labels}.weight`);
  const dense = names?.dense.find((name) => tensors.has(`${name}.weight`));
  if (names === undefined || labels === undefined || dense === undefined)
    return { refusal: "its files have no classifier of pairs" };
  if (labels.shape[0] !== 1)
    return { refusal: `${labels.name} has ${labels.shape[0]} labels, and a score is of one` };
  const file = join(dir, "config.json");
  const config = readJsonObject(file, configBytesMax);
  const pooling = poolingOf(file, config, names.pooling);
  const layer = layerOf(file, config, names, tensors, dense, shape.hidden);
  const bias = tensors.get(`${names.labels}.bias`);
  return {
    weights: numbersOf(labels, 0),
    bias: bias === undefined ? 0 : numbersOf(bias)[0]!,
    pooling,
    layers: [layer],
  };
}

function poolingOf(file: string, config: JsonObject, field: string | undefined): Pooling {
  const name = field === undefined ? "cls" : (config[field] ?? "cls");
  if (name === "cls") return "first";
  if (name === "mean") return "mean";
  throw new ModelError(file, field!, `${show(name)}: wanted: "cls" or "mean"`);
}

function layerOf(
  file: string,
  config: JsonObject,
  { activation: field, norm }: HeadNames,
  tensors: StoredTensors["tensors"],
  dense: string,
  hidden: number,
): DenseLayer {
  const name = field === undefined ? "tanh" : String(config[field] ?? "gelu");
  const activation = activationNamed(name);
  if (activation === null) throw new ModelError(file, field!, `${show(name)}: it is not computed here`);
  const layer = denseLayer(tensors.get(`${dense}.weight`)!, tensors.get(`${dense}.bias`), hidden, activation);
  const weights = norm === undefined ? undefined : tensors.get(`${norm}.weight`);
  return weights === undefined ? layer : { ...layer, norm: normOf(weights, tensors, norm!, config) };
}

function normOf(
  weights: StoredTensor,
  tensors: StoredTensors["tensors"],
  name: string,
  config: JsonObject,
): DenseNorm {
  const bias = tensors.get(`${name}.bias`);
  return {
    weights: numbersOf(weights),
    bias: bias === undefined ? null : numbersOf(bias),
    epsilon: Number(config.norm_eps ?? 1e-5),
  };
}
