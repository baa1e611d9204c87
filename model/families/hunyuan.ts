/**
 * Hunyuan v1 (dense, A13B): norms of the heads of q and k after their rotation, and a theta that a fixed
 * alpha raises. The mixture has a shared MLP in every layer.
 */
import { type LayerShape, plainLayer, type Rope, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { expertsOf, mixedLayers, sharedWidth } from "./experts.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";

const common = {
  defaults: { rms_norm_eps: 1e-5 },
  kvHeadsOptional: true,
  ignoresAutoMap: true,
} as const;
const folderNames = {
  [TensorKind.qNorm]: "self_attn.query_layernorm.weight",
  [TensorKind.kNorm]: "self_attn.key_layernorm.weight",
};

/** Rope with NTK-aware scaling by a fixed alpha, which files of llama.cpp have in their theta. */
function ropeOf(source: Source): Rope {
  const rope = source.rope();
  const alpha = source.number(["alpha", null], 1, 1e9, 1);
  const { headSize } = source.sizes;
  return { ...rope, theta: rope.theta * alpha ** (headSize / (headSize - 2)) };
}

const layerOf = (source: Source): LayerShape => ({
  ...plainLayer,
  biases: { ...biasesOf(source), gateUp: false, down: false },
  qkNorm: "rotated",
});

export const hunyuanDense: Family = {
  ...common,
  name: "hunyuan_v1_dense",
  models: "Hunyuan 0.5B, 1.8B, 4B, 7B (dense)",
  classes: ["HunYuanDenseV1ForCausalLM"],
  metadata: ["hunyuan-dense"],
  folderNames,
  describe: (source) => ({
    ropes: [ropeOf(source)],
    layers: layersOf(source.layers, () => layerOf(source)),
  }),
};

export const hunyuanMoe: Family = {
  ...common,
  name: "hunyuan_v1_moe",
  models: "Hunyuan-A13B",
  classes: ["HunYuanMoEV1ForCausalLM"],
  metadata: ["hunyuan-moe"],
  hasExperts: true,
  readsRouter: true,
  folderNames: {
    ...folderNames,
    [TensorKind.router]: "mlp.gate.wg.weight",
    [TensorKind.besideGate]: "mlp.shared_mlp.gate_proj.weight",
    [TensorKind.besideUp]: "mlp.shared_mlp.up_proj.weight",
    [TensorKind.besideDown]: "mlp.shared_mlp.down_proj.weight",
  },
  describe(source) {
    const width = source.sizes.feedForward;
    // Lists of these fields have a number for each layer, which is the same in all.
    const same = (field: string, usual?: number): number => {
      const names: Names = [field, null];
      if (source.kind === "metadata") return usual ?? 0;
      const values = source.isList(names) ? source.perLayer(names) : null;
      if (values?.some((value) => value !== values[0]))
        source.refuse(names, "wanted: the same number in all layers");
      return values?.[0] ?? source.integer(names, 1, shapeLimits.feedForward, usual);
    };
    if (same("moe_intermediate_size", width) !== width) {
      source.refuse(["moe_intermediate_size", null], `wanted: intermediate_size ${width}`);
    }
    if (same("num_shared_expert", 1) !== 1) source.refuse(["num_shared_expert", null], "wanted: 1");
    const router = source.kind === "config" ? { used: same("moe_topk", 1) } : {};
    return {
      experts: expertsOf(source, "num_experts", "intermediate_size", router),
      ropes: [ropeOf(source)],
      ...mixedLayers(
        source,
        layerOf(source),
        sharedWidth(source, () => width),
        () => true,
      ),
    };
  },
};
