/**
 * Qwen2 and 2.5: Llama with biases on q, k and v, as MiMo is. Qwen3 has norms of their heads instead. Either may have
 * sliding windows in its upper layers.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { mimoHead } from "./draft-heads.ts";
import type { Family, Source } from "./family.ts";
import { toldWindows } from "./windows.ts";

const biased: LayerShape = { ...plainLayer, biases: { ...plainLayer.biases, qkv: true } };

export const qwen2: Family = {
  name: "qwen2",
  models: "Qwen 2 and 2.5, QwQ, DeepSeek-R1-Distill-Qwen",
  classes: ["Qwen2ForCausalLM"],
  metadata: ["qwen2"],
  describe: (source) => withWindows(source, biased),
};

export const qwen3: Family = {
  name: "qwen3",
  models: "Qwen 3 (dense)",
  classes: ["Qwen3ForCausalLM"],
  metadata: ["qwen3"],
  defaults: { head_dim: 128 },
  describe: (source) => withWindows(source, { ...plainLayer, biases: biasesOf(source), qkNorm: "head" }),
};

export const mimo: Family = {
  name: "mimo",
  models: "MiMo-7B",
  classes: ["MiMoForCausalLM"],
  metadata: [],
  ggufAs: "qwen2",
  ignoresAutoMap: true,
  hasDraftLayers: true,
  draftHead: mimoHead,
  defaults: { head_dim: 128 },
  describe: (source) => withWindows(source, biased),
};

function withWindows(source: Source, layer: LayerShape): ReturnType<Family["describe"]> {
  const isUsed = source.flag(["use_sliding_window", null], false);
  if (source.kind === "config" && !isUsed && source.slidingLayers(() => false).includes(true)) {
    source.refuse(["layer_types", null], "lists sliding layers but no window is in use");
  }
  const firstSliding = isUsed ? source.integer(["max_window_layers", null], 0, shapeLimits.contextMax) : 0;
  const windows = toldWindows(source, (index) => isUsed && index >= firstSliding);
  return { ropes: [source.rope()], layers: windows.map((slidingWindow) => ({ ...layer, slidingWindow })) };
}
