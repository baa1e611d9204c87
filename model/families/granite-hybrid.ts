/**
 * Granite 4: Granite whose MLP is named after the shared one of the mixtures. Most layers of the hybrids (H
 * Tiny, H Small, H Micro) are Mamba-2, and their attention does not rotate; some have experts beside the MLP.
 */
import { type LayerShape, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, sharedWidth } from "./experts.ts";
import type { Family, Names, Source } from "./family.ts";
import { granite } from "./granite.ts";
import { graniteFields, mambaGgufNames, mambaNames, mambaStates } from "./mamba.ts";
import { attendingLayers } from "./recurrent.ts";

const gateAndUp = "shared_mlp.input_linear.weight";
const down = "shared_mlp.output_linear.weight";
const expertsGateAndUp = "block_sparse_moe.input_linear.weight";

export const graniteHybrid: Family = {
  ...granite,
  name: "granitemoehybrid",
  models: "Granite 4.0 350M, 1B, Micro, and the hybrids H-350M to H-Small",
  classes: ["GraniteMoeHybridForCausalLM"],
  metadata: ["granitehybrid"],
  ggufAs: "granite",
  feedForwardField: "shared_intermediate_size",
  hasExperts: true,
  readsRouter: true,
  layersDiffer: true,
  folderNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: down,
    [TensorKind.besideGate]: gateAndUp,
    [TensorKind.besideUp]: gateAndUp,
    [TensorKind.besideDown]: down,
    [TensorKind.router]: "block_sparse_moe.router.layer.weight",
    ...mambaNames("mamba"),
  },
  expertNames: {
    [TensorKind.gate]: expertsGateAndUp,
    [TensorKind.up]: expertsGateAndUp,
    [TensorKind.down]: "block_sparse_moe.output_linear.weight",
  },
  ggufNames: mambaGgufNames,
  describe(source) {
    const { layers, ...traits } = granite.describe(source);
    const attends = attendingLayers(source, ["mamba", "linear_attention"], ["attention", "full_attention"]);
    const rotates =
      source.kind === "config"
        ? source.text(["position_embedding_type", null], "none") === "rope"
        : source.flag([null, "rope.scaling.finetuned"], true);
    const { mlp, ...mixture } = mixtureOf(source);
    const first = attends.indexOf(false);
    return {
      ...traits,
      ...mixture,
      ...(first < 0 ? {} : { states: { ...statesOf(source, first), norm: "groups", gateFirst: true } }),
      layers: layers.map(
        (layer, index): LayerShape =>
          attends[index]
            ? { ...layer, mlp, rope: rotates ? 0 : null }
            : { ...layer, mlp, rope: null, mixer: "ssm", biases: noBiases },
      ),
    };
  },
};

const noBiases = { qkv: false, o: false, gateUp: false, down: false, router: false } as const;

function statesOf(source: Source, first: number) {
  const expand = source.integer(["mamba_expand", null], 1, 64, 2);
  return mambaStates(source, graniteFields, first, expand * source.sizes.hidden);
}

/** Experts, if there are any, and the width of the MLP, which may be a shared one beside them. */
function mixtureOf(source: Source) {
  const names: Names = ["num_local_experts", "expert_count"];
  if (source.integer(names, 0, shapeLimits.experts, source.kind === "config" ? 8 : 0) === 0)
    return { mlp: "gated", feedForward: source.rows("ffn_up.weight") ?? source.sizes.feedForward } as const;
  return {
    mlp: "shared",
    feedForward: sharedWidth(source, () => source.sizes.feedForward),
    experts: expertsOf(source, "num_local_experts", "intermediate_size", {}),
  } as const;
}
