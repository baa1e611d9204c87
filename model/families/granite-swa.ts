/**
 * Granite Swash, dense and with experts: Granite with attention sinks, and a sliding window in three of four
 * layers. Each layer has a rope of its own, or none.
 */
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf } from "./experts.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";
import { granite } from "./granite.ts";
import { windowsOf } from "./windows.ts";

const thetas: Names = ["layer_rope_theta", null];
const rotating: Names = [null, "attention.rope_pattern"];
const gateAndUp = "block_sparse_moe.experts.gate_up_proj";
const gateAndUpInFile = "ffn_gate_up_exps.weight";

export const graniteSwa: Family = {
  ...granite,
  name: "granite_swa",
  models: "Granite Swash 2B",
  classes: ["GraniteSWAForCausalLM"],
  metadata: ["granite_swa"],
  defaults: { rms_norm_eps: 1e-5, sliding_window: 128, tie_word_embeddings: true },
  describe: describeSwa,
};

export const graniteMoeSwa: Family = {
  ...graniteSwa,
  name: "granitemoe_swa",
  models: "Granite Swash 3B-A600M",
  classes: ["GraniteMoeSWAForCausalLM"],
  metadata: [],
  ggufAs: "granite_swa",
  hasExperts: true,
  defaults: { sliding_window: 128 },
  folderNames: { [TensorKind.router]: "block_sparse_moe.router.weight" },
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "block_sparse_moe.experts.down_proj",
  },
  ggufExpertNames: {
    [TensorKind.gate]: gateAndUpInFile,
    [TensorKind.up]: gateAndUpInFile,
    [TensorKind.down]: "ffn_down_exps.weight",
  },
  describe(source) {
    const { layers, ...traits } = describeSwa(source);
    // No published model has a shared MLP beside its experts.
    source.integer(["shared_intermediate_size", "expert_shared_feed_forward_length"], 0, 0, 0);
    return {
      ...traits,
      experts: expertsOf(source, "num_local_experts", "intermediate_size", {}),
      layers: layers.map((layer) => ({ ...layer, mlp: "experts" })),
    };
  },
};

function describeSwa(source: Source): ReturnType<Family["describe"]> {
  const { layers, ropes, ...traits } = granite.describe(source);
  const rope = ropes[0]!;
  const own = thetasOf(source, rope.theta);
  const distinct = [...new Set(own)].filter((theta) => theta > 0);
  const windows = windowsOf(source, (layer) => layer % 4 !== 0);
  return {
    ...traits,
    ropes: distinct.map((theta) => ({ ...rope, theta })),
    layers: layers.map((layer, index) => ({
      ...layer,
      sinks: true,
      slidingWindow: windows[index]!,
      rope: own[index]! > 0 ? distinct.indexOf(own[index]!) : null,
    })),
  };
}

/** Base of each layer's rope; 0: its heads are not rotated. */
function thetasOf(source: Source, theta: number): readonly number[] {
  const listed = source.realsPerLayer(thetas);
  if (listed?.some((own) => own < 0 || (own > 0 && own < 1))) {
    source.refuse(thetas, "wanted for each layer: 0 for no rotation, or a number from 1");
  }
  const rotates = source.flags(rotating);
  return listed ?? layersOf(source.layers, (layer) => (rotates?.[layer] === false ? 0 : theta));
}
