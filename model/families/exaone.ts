/** EXAONE 3 and 3.5, and EXAONE Deep: Llama by other names. */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf } from "./family.ts";

export const exaone: Family = {
  name: "exaone",
  models: "EXAONE 3.0, 3.5 and Deep: 2.4B, 7.8B, 32B",
  classes: ["ExaoneForCausalLM"],
  metadata: ["exaone"],
  ignoresAutoMap: true,
  kvHeadsOptional: true,
  renamedFields: { num_layers: "num_hidden_layers", activation_function: "hidden_act" },
  epsilon: ["layer_norm_epsilon", "attention.layer_norm_rms_epsilon"],
  defaults: { layer_norm_epsilon: 1e-5 },
  layerNames: "transformer.h",
  folderNames: {
    [TensorKind.embed]: "transformer.wte.weight",
    [TensorKind.finalNorm]: "transformer.ln_f.weight",
    [TensorKind.attentionNorm]: "ln_1.weight",
    [TensorKind.q]: "attn.attention.q_proj.weight",
    [TensorKind.k]: "attn.attention.k_proj.weight",
    [TensorKind.v]: "attn.attention.v_proj.weight",
    [TensorKind.o]: "attn.attention.out_proj.weight",
    [TensorKind.mlpNorm]: "ln_2.weight",
    [TensorKind.gate]: "mlp.c_fc_0.weight",
    [TensorKind.up]: "mlp.c_fc_1.weight",
    [TensorKind.down]: "mlp.c_proj.weight",
  },
  describe: (source) => ({
    activation: source.activation("silu"),
    ropes: [source.rope()],
    layers: layersOf(source.layers, () => plainLayer),
  }),
};
