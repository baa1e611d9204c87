/**
 * Granite 4 without recurrent layers (350M, 1B, Micro): Granite whose MLP is named after the shared one of
 * the mixtures.
 */
import { shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import type { Family, Names } from "./family.ts";
import { granite } from "./granite.ts";

const gateAndUp = "shared_mlp.input_linear.weight";

export const graniteHybrid: Family = {
  ...granite,
  name: "granitemoehybrid",
  models: "Granite 4.0 350M, 1B, Micro (dense)",
  classes: ["GraniteMoeHybridForCausalLM"],
  metadata: ["granitehybrid"],
  feedForwardField: "shared_intermediate_size",
  folderNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "shared_mlp.output_linear.weight",
  },
  describe(source) {
    if (source.kind === "metadata") return granite.describe(source);
    const types: Names = ["layer_types", null];
    const recurrent = source.texts(types)?.some((type) => type !== "attention" && type !== "full_attention");
    if (recurrent !== false) source.refuse(types, "recurrent layers are not supported");
    const experts: Names = ["num_local_experts", null];
    if (source.integer(experts, 0, shapeLimits.experts, 8) > 0) {
      source.refuse(experts, "experts are not supported in a granitemoehybrid model");
    }
    const { layers, ...traits } = granite.describe(source);
    const rotates = source.text(["position_embedding_type", null], "none") === "rope";
    return { ...traits, layers: layers.map((layer) => ({ ...layer, rope: rotates ? 0 : null })) };
  },
};
