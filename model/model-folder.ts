import type { GenerationDefaults, ModelConfig } from "./config.ts";
import type { EmbeddingRule } from "./pooling.ts";
import type { ScoreRule } from "./score-head.ts";
import type { ModelTensor } from "./weights.ts";

/** An opened model: its description, and where its tensors lie. */
export interface ModelFolder {
  /** The folder, or the GGUF file. */
  readonly dir: string;
  /** What the model is called: the folder's name, or what the file says. */
  readonly name: string;
  readonly config: ModelConfig;
  /** Everything the model needs, each once, in the order of the forward pass. */
  readonly tensors: readonly ModelTensor[];
  /** Sizes of the weight files together; the packed weights take other room. */
  readonly weightFilesBytes: number;
  /** Tokens that end a text; may be empty. */
  readonly eosTokens: readonly number[];
  /** Longest sequence in tokens. */
  readonly contextMax: number;
  readonly generationDefaults: GenerationDefaults;
  readonly embedding: EmbeddingRule;
  readonly score: ScoreRule;
  /** Sentences for people about what is unusual in the files. */
  readonly notes: readonly string[];
}
