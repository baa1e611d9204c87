import type { GenerationDefaults, ModelConfig } from "./config.ts";
import type { EmbeddingRule } from "./pooling.ts";
import type { ScoreRule } from "./score-head.ts";
import type { ModelTensor } from "./weights.ts";

/** Description of an opened model, with the places of its tensors. */
export interface ModelFolder {
  /** Path of the folder or the GGUF file. */
  readonly dir: string;
  /** Model name: the folder's name, or the name in the file. */
  readonly name: string;
  readonly config: ModelConfig;
  /** All tensors of the model, each once, in the order of the forward pass. */
  readonly tensors: readonly ModelTensor[];
  /** Total size of the weight files; packed weights have a different size. */
  readonly weightFilesBytes: number;
  /** End-of-text tokens; may be empty. */
  readonly eosTokens: readonly number[];
  /** Longest sequence in tokens. */
  readonly contextMax: number;
  readonly generationDefaults: GenerationDefaults;
  readonly embedding: EmbeddingRule;
  readonly score: ScoreRule;
  /** Sentences for people about unusual facts in the files. */
  readonly notes: readonly string[];
}
