import type { TokenId } from "../../base/token.ts";
import type { GenerationDefaults } from "../../model/config.ts";
import { storedTypeName } from "../../model/formats.ts";
import { isGguf } from "../../model/gguf.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import type { EmbeddingMethod } from "../../model/pooling.ts";
import type { ScoreRule } from "../../model/score-head.ts";
import type { AdapterId } from "../../scheduler/core.ts";
import type { FillForm } from "../../text/fill.ts";

/** Facts about the served model that parsing needs. */
export interface ServedModel {
  /** Names of the model; the first is its id. */
  readonly names: readonly string[];
  /** True if requests may use any other name too. */
  readonly answersToAny?: boolean;
  /** LoRA adapters of the model, by the names that choose them. Absent: none. */
  readonly adapters?: ServedAdapters;
  /** True if the server heeds Ollama's `keep_alive`: it has several models. */
  readonly keepsAlive?: boolean;
  /** Names of programs that answer chats. Absent: none. */
  readonly programs?: readonly string[];
  readonly contextMax: number;
  readonly vocabSize: number;
  /** Tokens of a text inside another text. */
  readonly tokensOf: (text: string) => readonly TokenId[];
  readonly generationDefaults: GenerationDefaults;
  /** The model's FIM tokens; null or absent: it cannot fill in the middle. */
  readonly fill?: FillForm | null;
  /** True for an encoder, which computes a text as a whole. */
  readonly isEncoder?: boolean;
  /** True for a model that generates no text. */
  readonly isHeadless?: boolean;
  /** Absent: its engine gives no hidden states. */
  readonly embedding?: ServedEmbedding;
  /** Absent: its engine gives no hidden states. */
  readonly score?: ScoreRule;
}

/** A LoRA adapter. */
export interface ServedAdapter {
  readonly id: AdapterId;
  readonly path: string;
  readonly rank: number;
  readonly bytes: number;
}

/** Adapters by the names that choose them. */
export type ServedAdapters = ReadonlyMap<string, ServedAdapter>;

/** Names of the model, with those of its adapters. */
export function namesWithAdapters({
  names,
  adapters,
}: Pick<ServedModel, "names" | "adapters">): readonly string[] {
  return adapters === undefined ? names : [...names, ...adapters.keys()];
}

/** All names under which requests find an answer: the model's, its adapters', and those of programs. */
export function servedNames(served: ServedModel): readonly string[] {
  return [...namesWithAdapters(served), ...(served.programs ?? [])];
}

/** The adapter that a requested name chooses, perhaps with Ollama's suffix; 0 for the model itself. */
export function adapterOf(name: string, { names, adapters }: ServedModel): AdapterId {
  if (adapters === undefined || names.includes(name)) return 0;
  return (adapters.get(name) ?? adapters.get(name.replace(/:latest$/, "")))?.id ?? 0;
}

/** Name of an adapter; the model's first one for 0. */
export function nameWith(adapter: AdapterId, { names, adapters }: ServedModel): string {
  for (const [name, { id }] of adapters ?? []) if (id === adapter) return name;
  return names[0]!;
}

/** Pooling method and size of embeddings, or the reason why the model has none. */
export type ServedEmbedding =
  | (EmbeddingMethod & {
      /** Numbers of a vector. */
      readonly size: number;
    })
  | { readonly refusal: string };

export function embeddingServed({ embedding, config }: ModelFolder): ServedEmbedding {
  if ("refusal" in embedding) return embedding;
  return { ...embedding, size: embedding.layers?.at(-1)?.outputs ?? config.shape.hidden };
}

/** Facts that clients display about a model. */
export interface ModelAbout {
  readonly family: string;
  readonly format: "gguf" | "safetensors";
  /** Storage type of most of its parameters in the files, such as BF16 or Q4_K; "" for integers of a folder. */
  readonly storedType: string;
  /** Number of parameters in its tensors. */
  readonly parameters: number;
  /** Size of its weight files. */
  readonly weightsBytes: number;
  readonly layers: number;
  readonly hidden: number;
  /** True if the model has no vocabulary projection and generates no text. */
  readonly isHeadless: boolean;
}

export function aboutOf({ dir, config, tensors, weightFilesBytes }: ModelFolder): ModelAbout {
  return {
    family: config.family,
    format: isGguf(dir) ? "gguf" : "safetensors",
    storedType: mostStoredType(tensors),
    parameters: tensors.reduce((sum, { rows, cols }) => sum + rows * cols, 0),
    weightsBytes: weightFilesBytes,
    layers: config.shape.layers.length,
    hidden: config.shape.hidden,
    isHeadless: config.isHeadless ?? false,
  };
}

function mostStoredType(tensors: ModelFolder["tensors"]): string {
  const counts = new Map<string, number>();
  for (const { dtype, quantised, rows, cols } of tensors) {
    const name = quantised == null ? storedTypeName(dtype) : "";
    counts.set(name, (counts.get(name) ?? 0) + rows * cols);
  }
  return [...counts].sort(([, a], [, b]) => b - a)[0]?.[0] ?? "";
}
