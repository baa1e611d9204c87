/**
 * Text models of Qwen 3.5 and 3.6, dense and with experts: Qwen3-Next with the parts of DeltaNets stored
 * apart. Each token has three positions, which are equal in text, so that their rope is a plain one. GGUF
 * files have the value heads of DeltaNets in another order.
 */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { mtpHead } from "./draft-heads.ts";
import { type Family, layersOf } from "./family.ts";
import { describeQwenMixture, describeQwenNext, qwen3Next } from "./qwen3-next.ts";
import { deltaGgufNames, deltaNames } from "./recurrent.ts";

const projections = "linear_attn.in_proj_qkv.weight";
const gateAndUp = "mlp.experts.gate_up_proj";
const names: Readonly<Record<number, string>> = {
  ...deltaNames,
  [TensorKind.stateQ]: projections,
  [TensorKind.stateK]: projections,
  [TensorKind.stateV]: projections,
  [TensorKind.stateZ]: "linear_attn.in_proj_z.weight",
  [TensorKind.stateB]: "linear_attn.in_proj_b.weight",
  [TensorKind.stateA]: "linear_attn.in_proj_a.weight",
};
const ggufNames: Readonly<Record<number, string>> = {
  ...deltaGgufNames,
  [TensorKind.stateB]: "ssm_beta.weight",
  [TensorKind.stateA]: "ssm_alpha.weight",
};

export const qwen35: Family = {
  name: "qwen3_5",
  models: "Qwen 3.5 and 3.6 (text, dense): 0.8B to 27B",
  classes: ["Qwen3_5ForCausalLM"],
  modelTypes: ["qwen3_5_text"],
  wrappers: ["Qwen3_5ForConditionalGeneration"],
  metadata: ["qwen35"],
  normsOneLess: true,
  hasDraftLayers: true,
  draftHead: mtpHead,
  defaults: { head_dim: 256, partial_rotary_factor: 0.25 },
  folderNames: names,
  ggufNames,
  describe: (source) =>
    describeQwenNext(
      source,
      source.kind === "metadata",
      layersOf(source.layers, () => plainLayer),
    ),
};

export const qwen35Moe: Family = {
  ...qwen35,
  name: "qwen3_5_moe",
  models: "Qwen 3.5 and 3.6 35B-A3B, 122B-A10B, 397B-A17B (text)",
  classes: ["Qwen3_5MoeForCausalLM"],
  modelTypes: ["qwen3_5_moe_text"],
  wrappers: ["Qwen3_5MoeForConditionalGeneration"],
  metadata: ["qwen35moe"],
  hasExperts: true,
  readsRouter: true,
  feedForwardField: "shared_expert_intermediate_size",
  defaults: {
    ...qwen35.defaults,
    num_experts: 256,
    num_experts_per_tok: 8,
    moe_intermediate_size: 512,
    shared_expert_intermediate_size: 512,
  },
  folderNames: { ...qwen3Next.folderNames, ...names },
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "mlp.experts.down_proj",
  },
  describe(source) {
    const mixture = describeQwenMixture(source);
    return { ...mixture, ...describeQwenNext(source, source.kind === "metadata", mixture.layers) };
  },
};
