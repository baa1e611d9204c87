/** Biases of projections in configurations of the Llama style. */
import type { LayerShape } from "../shape.ts";
import type { Source } from "./family.ts";

export function biasesOf(source: Source): LayerShape["biases"] {
  return {
    qkv: source.bias("attention_bias", "attn_q.bias"),
    o: source.bias("attention_bias", "attn_output.bias"),
    gateUp: source.bias("mlp_bias", "ffn_gate.bias"),
    router: false,
    down: source.bias("mlp_bias", "ffn_down.bias"),
  };
}
