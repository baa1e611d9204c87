/**
 * Phi-3, 3.5 and 4, Phi-4-mini: Llama with q, k and v in one tensor, and gate and up in another. The rope may
 * cover only a part of each head, and longrope may lengthen the context.
 */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import type { Family } from "./family.ts";
import { sameWindow } from "./windows.ts";

const qkv = "self_attn.qkv_proj.weight";
const gateUp = "mlp.gate_up_proj.weight";

export const phi3: Family = {
  name: "phi3",
  models: "Phi-3 and 3.5 mini and medium, Phi-4, Phi-4-mini",
  classes: ["Phi3ForCausalLM"],
  metadata: ["phi3"],
  kvHeadsOptional: true,
  ignoresAutoMap: true,
  folderNames: {
    [TensorKind.q]: qkv,
    [TensorKind.k]: qkv,
    [TensorKind.v]: qkv,
    [TensorKind.gate]: gateUp,
    [TensorKind.up]: gateUp,
  },
  ggufNames: {
    [TensorKind.q]: "attn_qkv.weight",
    [TensorKind.k]: "attn_qkv.weight",
    [TensorKind.v]: "attn_qkv.weight",
    [TensorKind.gate]: "ffn_up.weight",
    [TensorKind.up]: "ffn_up.weight",
  },
  describe: (source) => ({
    ropes: [source.rope()],
    layers: sameWindow(source).map((slidingWindow) => ({ ...plainLayer, slidingWindow })),
  }),
};
