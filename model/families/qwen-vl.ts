/**
 * Text models of Qwen2-VL, 2.5-VL and Qwen3-VL: Qwen2 and Qwen3. Each token has three positions, which are
 * equal in text, so that their ropes are plain ones.
 */
import { TensorKind } from "../tensor-kinds.ts";
import type { Family } from "./family.ts";
import { qwen2, qwen3 } from "./qwen.ts";
import { qwen3Moe } from "./qwen3-moe.ts";

const gateAndUp = "mlp.experts.gate_up_proj";

export const qwen2Vl: Family = {
  ...qwen2,
  name: "qwen2_vl",
  models: "Qwen2-VL, Qwen2.5-VL (text)",
  classes: [],
  modelTypes: ["qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl"],
  wrappers: ["Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"],
  metadata: ["qwen2vl"],
  defaults: { rope_theta: 1e6 },
};

export const qwen3Vl: Family = {
  ...qwen3,
  name: "qwen3_vl",
  models: "Qwen3-VL (text, dense)",
  classes: [],
  modelTypes: ["qwen3_vl_text"],
  wrappers: ["Qwen3VLForConditionalGeneration"],
  metadata: ["qwen3vl"],
  defaults: { ...qwen3.defaults, rope_theta: 500_000 },
};

export const qwen3VlMoe: Family = {
  ...qwen3Moe,
  name: "qwen3_vl_moe",
  models: "Qwen3-VL 30B-A3B and 235B-A22B (text)",
  classes: [],
  modelTypes: ["qwen3_vl_moe_text"],
  wrappers: ["Qwen3VLMoeForConditionalGeneration"],
  metadata: ["qwen3vlmoe"],
  defaults: { head_dim: 128, rope_theta: 500_000, norm_topk_prob: true },
  transposesExperts: "halves",
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "mlp.experts.down_proj",
  },
};
