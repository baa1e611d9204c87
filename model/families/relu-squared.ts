/** Layers of the Llama style whose MLP has no gate, and a squared ReLU as activation. */
import { plainLayer, type Traits } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";

const activation: Names = ["hidden_act", null];

export function describeReluSquared(source: Source, norm: Traits["norm"]): ReturnType<Family["describe"]> {
  if (source.text(activation, "relu2") !== "relu2") source.refuse(activation, "wanted: relu2");
  const biases = { ...biasesOf(source), gateUp: source.bias("mlp_bias", "ffn_up.bias") };
  return {
    norm,
    activation: "reluSquared",
    ropes: [source.rope()],
    layers: layersOf(source.layers, () => ({ ...plainLayer, mlp: "plain", biases })),
  };
}
