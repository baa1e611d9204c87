/**
 * Loads the model's own draft head (multi-token prediction), if the files have one and the caller wants it.
 */
import type { ModelConfig } from "./config.ts";
import { familyNamed } from "./families/index.ts";
import { ModelError } from "./model-error.ts";
import { hasAttention } from "./shape.ts";
import type { ModelTensor } from "./weights.ts";

/**
 * Choice of loading the draft head: "none" never does, "offered" does if the files have a complete one,
 * "required" throws without one.
 */
export type HeadChoice = "none" | "offered" | "required";

/** A model's configuration and tensors, with its head if that is loaded. */
export interface MatchedModel {
  readonly config: ModelConfig;
  readonly tensors: readonly ModelTensor[];
}

/**
 * Matches a model's tensors, with those of its head as chosen. Errors about a head that its family lacks name
 * `source`. Throws ModelError.
 */
export function matchedWithHead(
  config: ModelConfig,
  choice: HeadChoice,
  source: string,
  match: (config: ModelConfig) => readonly ModelTensor[],
): MatchedModel {
  const plain = (): MatchedModel => ({ config, tensors: match(config) });
  if (choice === "none") return plain();
  const withHead = configWithHead(config);
  if (withHead === null) {
    if (choice === "offered") return plain();
    throw new ModelError(source, null, `is a ${config.family} model, which has no head that drafts tokens`);
  }
  try {
    return { config: withHead, tensors: match(withHead) };
  } catch (error) {
    if (choice === "required" || !(error instanceof ModelError)) throw error;
    return plain();
  }
}

/** Configuration with the family's draft head; null: the family has none. */
export function configWithHead(config: ModelConfig): ModelConfig | null {
  const { draftHead } = familyNamed(config.family);
  const { layers, encoder } = config.shape;
  const layer = layers.findLast((one) => hasAttention(one) || one.mixer === "latent");
  if (draftHead === undefined || layer === undefined || encoder !== undefined || config.isHeadless === true)
    return null;
  const { isNormed, isHiddenFirst } = draftHead;
  return { ...config, shape: { ...config.shape, head: { layer, isNormed, isHiddenFirst } } };
}
