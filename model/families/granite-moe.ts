/** Granite 3's mixtures of experts (1B-A400M, 3B-A800M): Granite with experts in place of MLPs. */
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf } from "./experts.ts";
import type { Family } from "./family.ts";
import { granite } from "./granite.ts";

const gateAndUp = "block_sparse_moe.input_linear.weight";

export const graniteMoe: Family = {
  ...granite,
  name: "granitemoe",
  models: "Granite 3.x 1B-A400M and 3B-A800M",
  classes: ["GraniteMoeForCausalLM"],
  metadata: ["granitemoe"],
  hasExperts: true,
  readsRouter: false,
  folderNames: { [TensorKind.router]: "block_sparse_moe.router.layer.weight" },
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "block_sparse_moe.output_linear.weight",
  },
  describe(source) {
    const { layers, ...traits } = granite.describe(source);
    return {
      ...traits,
      experts: expertsOf(source, "num_local_experts", "intermediate_size", {}),
      layers: layers.map((layer) => ({ ...layer, mlp: "experts" })),
    };
  },
};
