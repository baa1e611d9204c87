import type { Pooling, TokenId } from "../../base/token.ts";
import type { GenerationDefaults } from "../../model/config.ts";
import { isGguf } from "../../model/gguf.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import type { ScoreRule } from "../../model/score-head.ts";
import type { FillForm } from "../../text/fill.ts";

/** What parsing needs to know of the served model. */
export interface ServedModel {
  /** Names it answers to; the first is its id. */
  readonly names: readonly string[];
  /** It answers to every other name too. */
  readonly answersToAny?: boolean;
  /** Names of programs that answer chats. Absent: there are none. */
  readonly programs?: readonly string[];
  readonly contextMax: number;
  readonly vocabSize: number;
  /** Tokens of a text that stands within another. */
  readonly tokensOf: (text: string) => readonly TokenId[];
  readonly generationDefaults: GenerationDefaults;
  /** How it fills in the middle; null or absent: it does not. */
  readonly fill?: FillForm | null;
  /** Absent: its engine gives no hidden states. */
  readonly embedding?: ServedEmbedding;
  /** Absent: the same. */
  readonly score?: ScoreRule;
}

/** How it makes embeddings, and of how many numbers; or why it cannot. */
export type ServedEmbedding =
  | { readonly pooling: Pooling; readonly size: number }
  | { readonly refusal: string };

export function embeddingServed({ embedding, config }: ModelFolder): ServedEmbedding {
  return "refusal" in embedding ? embedding : { ...embedding, size: config.shape.hidden };
}

/** What clients like to show of a model. */
export interface ModelAbout {
  readonly family: string;
  readonly format: "gguf" | "safetensors";
  /** How many numbers its tensors hold. */
  readonly parameters: number;
  /** Of its files. */
  readonly weightsBytes: number;
  readonly layers: number;
  readonly hidden: number;
  /** It writes no texts. */
  readonly isHeadless: boolean;
}

export function aboutOf({ dir, config, tensors, weightFilesBytes }: ModelFolder): ModelAbout {
  return {
    family: config.family,
    format: isGguf(dir) ? "gguf" : "safetensors",
    parameters: tensors.reduce((sum, { rows, cols }) => sum + rows * cols, 0),
    weightsBytes: weightFilesBytes,
    layers: config.shape.layers.length,
    hidden: config.shape.hidden,
    isHeadless: config.isHeadless ?? false,
  };
}
