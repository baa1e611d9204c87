/** Mixture-of-experts fields of configurations. */
import { type Experts, shapeLimits } from "../shape.ts";
import type { Names, Source } from "./family.ts";

/**
 * `count` and `feedForward` are the names of these fields in config.json. GGUF metadata has the same names
 * for all families; old files have the width of an expert where others have that of a dense layer.
 */
export function expertsOf(
  source: Source,
  count: string,
  feedForward: string,
  softmaxOf: Experts["softmaxOf"],
): Experts {
  const names: Names = [count, "expert_count"];
  const experts = source.integer(names, 1, shapeLimits.experts);
  return {
    count: experts,
    used: source.integer(["num_experts_per_tok", "expert_used_count"], 1, experts),
    feedForward: source.integer(
      [feedForward, "expert_feed_forward_length"],
      1,
      shapeLimits.feedForward,
      source.kind === "metadata" ? source.sizes.feedForward : undefined,
    ),
    softmaxOf,
  };
}
