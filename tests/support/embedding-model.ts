import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { publishedShapes } from "../../tools/random-model/shapes.ts";
import { writeRandomModel } from "../../tools/random-model.ts";

/** Writes a small random embedding model of the published one's class to the folder `dir`. */
export function writeEmbeddingModel(dir: string, pooling: "lasttoken" | "mean_tokens" = "lasttoken"): string {
  const small = {
    ...{ hidden_size: 96, intermediate_size: 64, num_attention_heads: 4, num_key_value_heads: 2 },
    ...{ num_hidden_layers: 2, max_position_embeddings: 512, vocab_size: 2000, initializer_range: 0.2 },
  };
  const file = "Qwen3-Embedding-0.6B";
  writeRandomModel({ file, json: { ...publishedShapes[file]!.config, ...small } }, dir, { seed: 7 });
  writeFileSync(join(dir, "1_Pooling", "config.json"), JSON.stringify({ [`pooling_mode_${pooling}`]: true }));
  return dir;
}
