/**
 * BERT, and XLM-RoBERTa, whose positions begin behind the padding token's row: encoders with norms of the
 * residual stream after attention and MLP, learned positions, and biases everywhere.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf, type Source } from "./family.ts";

const layer: LayerShape = {
  ...plainLayer,
  mlp: "plain",
  norms: "sums",
  biases: { qkv: true, o: true, gateUp: true, down: true, router: false },
  rope: null,
};

const common = {
  kvHeadsOptional: true,
  isEncoder: true,
  epsilon: ["layer_norm_eps", "attention.layer_norm_epsilon"],
  layerNames: "encoder.layer",
  folderNames: {
    [TensorKind.embed]: "embeddings.word_embeddings.weight",
    [TensorKind.positions]: "embeddings.position_embeddings.weight",
    [TensorKind.tokenTypes]: "embeddings.token_type_embeddings.weight",
    [TensorKind.embedNorm]: "embeddings.LayerNorm.weight",
    [TensorKind.embedNormBias]: "embeddings.LayerNorm.bias",
    [TensorKind.q]: "attention.self.query.weight",
    [TensorKind.qBias]: "attention.self.query.bias",
    [TensorKind.k]: "attention.self.key.weight",
    [TensorKind.kBias]: "attention.self.key.bias",
    [TensorKind.v]: "attention.self.value.weight",
    [TensorKind.vBias]: "attention.self.value.bias",
    [TensorKind.o]: "attention.output.dense.weight",
    [TensorKind.oBias]: "attention.output.dense.bias",
    [TensorKind.attentionPostNorm]: "attention.output.LayerNorm.weight",
    [TensorKind.attentionPostNormBias]: "attention.output.LayerNorm.bias",
    [TensorKind.up]: "intermediate.dense.weight",
    [TensorKind.upBias]: "intermediate.dense.bias",
    [TensorKind.down]: "output.dense.weight",
    [TensorKind.downBias]: "output.dense.bias",
    [TensorKind.mlpPostNorm]: "output.LayerNorm.weight",
    [TensorKind.mlpPostNormBias]: "output.LayerNorm.bias",
  },
  ggufNames: {
    [TensorKind.attentionPostNorm]: "attn_output_norm.weight",
    [TensorKind.attentionPostNormBias]: "attn_output_norm.bias",
    [TensorKind.mlpPostNorm]: "layer_output_norm.weight",
    [TensorKind.mlpPostNormBias]: "layer_output_norm.bias",
  },
  unread: /(^|\.)(pooler|cls|lm_head|classifier)\.|\.position_ids$/,
} as const;

function describe(source: Source, positionOffset: number): ReturnType<Family["describe"]> {
  if (source.flag(["is_decoder", null], false))
    source.refuse(["is_decoder", null], "only encoders of this family are supported");
  if (source.text(["position_embedding_type", null], "absolute") !== "absolute")
    source.refuse(["position_embedding_type", null], 'supported: "absolute"');
  const { contextMax } = source.sizes;
  return {
    contextMax: contextMax - positionOffset,
    norm: "biasedLayer",
    activation: source.activation("gelu"),
    encoder: {
      embeddingNorm: true,
      finalNorm: false,
      positions: contextMax,
      positionOffset,
      tokenTypes: source.integer(
        ["type_vocab_size", "tokenizer.ggml.token_type_count"],
        1,
        shapeLimits.vocab,
        2,
      ),
    },
    ropes: [],
    layers: layersOf(source.layers, () => layer),
  };
}

export const bert: Family = {
  ...common,
  name: "bert",
  models: "BERT: bge, e5, gte, MiniLM and ms-marco-MiniLM",
  classes: ["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"],
  metadata: ["bert"],
  prefixes: ["", "bert."],
  defaults: { layer_norm_eps: 1e-12, hidden_act: "gelu", max_position_embeddings: 512 },
  describe: (source) => describe(source, 0),
};

export const xlmRoberta: Family = {
  ...common,
  name: "xlm-roberta",
  models: "XLM-RoBERTa and RoBERTa: bge-m3, multilingual-e5, bge-reranker-v2-m3",
  classes: ["XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"].flatMap(
    (name) => [name, name.replace("XLMRoberta", "Roberta")],
  ),
  modelTypes: ["xlm-roberta", "roberta"],
  metadata: [],
  prefixes: ["", "roberta."],
  defaults: { layer_norm_eps: 1e-12, hidden_act: "gelu", pad_token_id: 1, type_vocab_size: 2 },
  describe: (source) => describe(source, source.integer(["pad_token_id", null], 0, shapeLimits.vocab, 1) + 1),
};
