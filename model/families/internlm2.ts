/** InternLM 2 and 2.5: Llama with its own tensor names, and q, k and v in one tensor, grouped by key head. */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf } from "./family.ts";

const weights = "attention.wqkv.weight";
const biases = "attention.wqkv.bias";

export const internlm2: Family = {
  name: "internlm2",
  models: "InternLM 2 and 2.5",
  classes: ["InternLM2ForCausalLM"],
  ignoresAutoMap: true,
  metadata: ["internlm2"],
  kvHeadsOptional: true,
  groupedHeads: true,
  pairedRows: { gguf: true },
  defaults: { bias: true },
  folderNames: {
    [TensorKind.embed]: "model.tok_embeddings.weight",
    [TensorKind.lmHead]: "output.weight",
    [TensorKind.attentionNorm]: "attention_norm.weight",
    [TensorKind.q]: weights,
    [TensorKind.k]: weights,
    [TensorKind.v]: weights,
    [TensorKind.qBias]: biases,
    [TensorKind.kBias]: biases,
    [TensorKind.vBias]: biases,
    [TensorKind.o]: "attention.wo.weight",
    [TensorKind.oBias]: "attention.wo.bias",
    [TensorKind.mlpNorm]: "ffn_norm.weight",
    [TensorKind.gate]: "feed_forward.w1.weight",
    [TensorKind.up]: "feed_forward.w3.weight",
    [TensorKind.down]: "feed_forward.w2.weight",
  },
  describe(source) {
    const hasBiases = { qkv: source.bias("bias", "attn_q.bias"), o: source.bias("bias", "attn_output.bias") };
    const layer = { ...plainLayer, biases: { ...plainLayer.biases, ...hasBiases } };
    return { ropes: [source.rope()], layers: layersOf(source.layers, () => layer) };
  },
};
