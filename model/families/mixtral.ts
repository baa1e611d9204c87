/** Mixtral 8x7B and 8x22B: Mistral with experts in place of MLPs. */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf } from "./experts.ts";
import type { Family } from "./family.ts";
import { toldWindows } from "./windows.ts";

export const mixtral: Family = {
  name: "mixtral",
  models: "Mixtral 8x7B and 8x22B",
  classes: ["MixtralForCausalLM"],
  metadata: [],
  ggufAs: "llama",
  defaults: { rope_theta: 1e6 },
  hasExperts: true,
  pairedRows: { gguf: true },
  folderNames: { [TensorKind.router]: "block_sparse_moe.gate.weight" },
  expertNames: {
    [TensorKind.gate]: "block_sparse_moe.experts.{}.w1.weight",
    [TensorKind.up]: "block_sparse_moe.experts.{}.w3.weight",
    [TensorKind.down]: "block_sparse_moe.experts.{}.w2.weight",
  },
  describe(source) {
    return {
      experts: expertsOf(source, "num_local_experts", "intermediate_size", {}),
      ropes: [source.rope()],
      layers: toldWindows(source, () => true).map((slidingWindow) => ({
        ...plainLayer,
        mlp: "experts",
        slidingWindow,
      })),
    };
  },
};
