/** Replaces the RoPE scaling of a model's files by another one, for longer contexts. */
import { scalingOfJson } from "./config.ts";
import { isObject, type JsonObject, show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { ModelFolder } from "./model-folder.ts";
import { contextLimit, latentScale } from "./rope.ts";
import type { ModelShape, Rope } from "./shape.ts";

const option = "--rope-scaling";

/** Fields that some kind of scaling reads. */
const known = [
  ...["rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast"],
  ...["beta_slow", "mscale", "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor"],
  ...["short_factor", "long_factor"],
];

/**
 * The model with this scaling, JSON in the form of config.json's `rope_scaling`. Its longest sequence becomes
 * what the factor gives. Throws ModelError.
 */
export function withRopeScaling(folder: ModelFolder, text: string): ModelFolder {
  const { config } = folder;
  const { shape } = config;
  const [first] = shape.ropes;
  const json: unknown = JSON.parse(text);
  if (!isObject(json)) throw new ModelError(option, null, "wanted: a JSON object");
  if (first === undefined || shape.ropes.some((rope) => !isSame(rope, first)))
    throw new ModelError(option, null, `layers of a ${config.family} model have positions of several kinds`);
  if (first.kind === "proportional")
    throw new ModelError(option, null, `positions of a ${config.family} model cannot be scaled`);
  const unknown = Object.keys(json).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new ModelError(option, unknown, `not known here; known: ${known.join(", ")}`);
  const type = json.rope_type ?? json.type;
  if (type === "dynamic")
    throw new ModelError(
      option,
      "rope_type",
      `${show(type)}: keys in the cache cannot follow a text's length`,
    );
  const scaling = scalingOfJson({ file: option, json }, shape, first.dimensions / 2);
  const { dimensions, theta, queries } = first;
  const rope: Rope = { ...scaling, dimensions, theta, ...(queries === undefined ? {} : { queries }) };
  const scaled = { ...shape, ropes: shape.ropes.map(() => rope), ...scaleOf(shape, rope, json) };
  const longest =
    scaling.kind === "linear" ? Math.floor(shape.contextMax * scaling.factor) : contextLimit(scaled);
  return {
    ...folder,
    config: { ...config, shape: { ...scaled, contextMax: longest } },
    contextMax: longest,
  };
}

/** Attention scale of latent attention, which depends on the RoPE scaling. */
function scaleOf({ latent }: ModelShape, rope: Rope, json: JsonObject): Partial<ModelShape> {
  if (latent === undefined) return {};
  const scale = typeof json.mscale_all_dim === "number" ? json.mscale_all_dim : 0;
  return { attentionScale: latentScale(latent.keySize + rope.dimensions, rope, scale) };
}

function isSame(one: Rope, other: Rope): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
