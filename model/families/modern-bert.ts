/**
 * ModernBERT: an encoder with norms before attention and MLP but for the first layer's attention, ropes, a
 * gated MLP, and windows in all but every third layer.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf } from "./family.ts";

export const modernBert: Family = {
  name: "modern-bert",
  models: "ModernBERT: modernbert-embed, gte-modernbert and its reranker",
  classes: ["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
  modelTypes: ["modernbert"],
  metadata: ["modern-bert"],
  kvHeadsOptional: true,
  isEncoder: true,
  epsilon: ["norm_eps", "attention.layer_norm_epsilon"],
  prefixes: ["", "model."],
  layerNames: "layers",
  folderNames: {
    [TensorKind.embed]: "embeddings.tok_embeddings.weight",
    [TensorKind.embedNorm]: "embeddings.norm.weight",
    [TensorKind.embedNormBias]: "embeddings.norm.bias",
    [TensorKind.finalNorm]: "final_norm.weight",
    [TensorKind.finalNormBias]: "final_norm.bias",
    [TensorKind.attentionNorm]: "attn_norm.weight",
    [TensorKind.attentionNormBias]: "attn_norm.bias",
    [TensorKind.q]: "attn.Wqkv.weight",
    [TensorKind.k]: "attn.Wqkv.weight",
    [TensorKind.v]: "attn.Wqkv.weight",
    [TensorKind.qBias]: "attn.Wqkv.bias",
    [TensorKind.kBias]: "attn.Wqkv.bias",
    [TensorKind.vBias]: "attn.Wqkv.bias",
    [TensorKind.o]: "attn.Wo.weight",
    [TensorKind.oBias]: "attn.Wo.bias",
    [TensorKind.mlpNorm]: "mlp_norm.weight",
    [TensorKind.mlpNormBias]: "mlp_norm.bias",
    [TensorKind.gate]: "mlp.Wi.weight",
    [TensorKind.up]: "mlp.Wi.weight",
    [TensorKind.gateBias]: "mlp.Wi.bias",
    [TensorKind.upBias]: "mlp.Wi.bias",
    [TensorKind.down]: "mlp.Wo.weight",
    [TensorKind.downBias]: "mlp.Wo.bias",
  },
  ggufNames: {
    [TensorKind.q]: "attn_qkv.weight",
    [TensorKind.k]: "attn_qkv.weight",
    [TensorKind.v]: "attn_qkv.weight",
    [TensorKind.gate]: "ffn_up.weight",
    [TensorKind.up]: "ffn_up.weight",
  },
  unread: /^(head|decoder|classifier)\./,
  defaults: {
    hidden_activation: "gelu",
    norm_eps: 1e-5,
    local_attention: 128,
    global_rope_theta: 160_000,
    local_rope_theta: 10_000,
  },
  describe(source) {
    const names = ["global_attn_every_n_layers", "attention.sliding_window_pattern"] as const;
    const period = source.integer(names, 1, shapeLimits.layers, 3);
    const usual = (layer: number) => layer % period !== 0;
    // In files too every nth layer sees the whole text, from the first one on.
    const sliding = source.kind === "metadata" ? layersOf(source.layers, usual) : source.slidingLayers(usual);
    const window = source.integer(["local_attention", "attention.sliding_window"], 1, shapeLimits.contextMax);
    const attention = source.bias("attention_bias", "attn_qkv.bias");
    const mlp = source.bias("mlp_bias", "ffn_up.bias");
    const layer = {
      ...plainLayer,
      biases: { qkv: attention, o: attention, gateUp: mlp, down: mlp, router: false },
    };
    return {
      norm: source.bias("norm_bias", "ffn_norm.bias") ? "biasedLayer" : "layer",
      activation: source.activation("gelu"),
      encoder: { embeddingNorm: true, finalNorm: true, positions: 0, positionOffset: 0, tokenTypes: 0 },
      ropes: [
        source.rope("full_attention", ["global_rope_theta", "rope.freq_base"]),
        source.rope("sliding_attention", ["local_rope_theta", "rope.freq_base_swa"]),
      ],
      layers: sliding.map((slides, index) => ({
        ...layer,
        norms: index === 0 ? "beforeMlp" : "before",
        slidingWindow: slides ? Math.floor(window / 2) + 1 : 0,
        rope: slides ? 1 : 0,
      })),
    };
  },
};
