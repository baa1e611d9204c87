/**
 * nomic-bert: BERT with a rope in place of learned positions, a gated MLP, and no biases but those of norms.
 * Published configurations have the field names of GPT-2.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf, type Names } from "./family.ts";

export const nomicBert: Family = {
  name: "nomic-bert",
  models: "nomic-embed-text 1 and 1.5",
  classes: ["NomicBertModel"],
  modelTypes: ["nomic_bert"],
  metadata: ["nomic-bert"],
  ignoresAutoMap: true,
  kvHeadsOptional: true,
  isEncoder: true,
  epsilon: ["layer_norm_eps", "attention.layer_norm_epsilon"],
  layerNames: "encoder.layers",
  prefixes: ["", "bert."],
  renamedFields: {
    n_embd: "hidden_size",
    n_head: "num_attention_heads",
    n_layer: "num_hidden_layers",
    n_inner: "intermediate_size",
    n_positions: "max_position_embeddings",
    layer_norm_epsilon: "layer_norm_eps",
    rotary_emb_base: "rope_theta",
    rotary_emb_fraction: "partial_rotary_factor",
  },
  folderNames: {
    [TensorKind.embed]: "embeddings.word_embeddings.weight",
    [TensorKind.tokenTypes]: "embeddings.token_type_embeddings.weight",
    [TensorKind.embedNorm]: "emb_ln.weight",
    [TensorKind.embedNormBias]: "emb_ln.bias",
    [TensorKind.q]: "attn.Wqkv.weight",
    [TensorKind.k]: "attn.Wqkv.weight",
    [TensorKind.v]: "attn.Wqkv.weight",
    [TensorKind.o]: "attn.out_proj.weight",
    [TensorKind.attentionPostNorm]: "norm1.weight",
    [TensorKind.attentionPostNormBias]: "norm1.bias",
    [TensorKind.gate]: "mlp.fc12.weight",
    [TensorKind.up]: "mlp.fc11.weight",
    [TensorKind.down]: "mlp.fc2.weight",
    [TensorKind.mlpPostNorm]: "norm2.weight",
    [TensorKind.mlpPostNormBias]: "norm2.bias",
  },
  ggufNames: {
    [TensorKind.q]: "attn_qkv.weight",
    [TensorKind.k]: "attn_qkv.weight",
    [TensorKind.v]: "attn_qkv.weight",
    [TensorKind.attentionPostNorm]: "attn_output_norm.weight",
    [TensorKind.attentionPostNormBias]: "attn_output_norm.bias",
    [TensorKind.mlpPostNorm]: "layer_output_norm.weight",
    [TensorKind.mlpPostNormBias]: "layer_output_norm.bias",
  },
  unread: /^(bert\.)?(pooler|cls)\./,
  defaults: { layer_norm_eps: 1e-12, rope_theta: 1000, max_position_embeddings: 2048 },
  describe(source) {
    const period: Names = ["moe_every_n_layers", null];
    if (source.integer(period, 0, shapeLimits.layers, 0) > 0)
      source.refuse(period, "mixtures of this family are not supported: 0");
    const unusual = [
      ...["prenorm", "causal", "parallel_block", "use_rms_norm", "rotary_emb_interleaved"],
      ...["qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"],
    ].find((field) => source.flag([field, null], false));
    if (unusual !== undefined) source.refuse([unusual, null], "supported: false");
    const activation = source.text(["activation_function", null], "swiglu");
    if (activation !== "swiglu") source.refuse(["activation_function", null], 'supported: "swiglu"');
    const { contextMax } = source.sizes;
    const trained = source.integer(["max_trained_positions", null], 1, shapeLimits.contextMax, contextMax);
    return {
      contextMax: Math.min(contextMax, trained), // more positions want a rope that depends on the length
      norm: "biasedLayer",
      activation: source.activation("silu"),
      encoder: {
        embeddingNorm: true,
        finalNorm: false,
        positions: 0,
        positionOffset: 0,
        tokenTypes: source.integer(
          ["type_vocab_size", "tokenizer.ggml.token_type_count"],
          0,
          shapeLimits.vocab,
          2,
        ),
      },
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, norms: "sums" }) as const),
    };
  },
};
