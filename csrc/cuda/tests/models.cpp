#include "cuda/tests/models.h"

namespace bunting::test {

bunting_model_shape shape_for_gpu() {
  bunting_model_shape shape = tiny_shape();
  shape.head_size = 32;
  shape.rope = tiny_rope(32);
  shape.context_max = 400;
  return shape;
}

std::vector<bunting_model_shape> shapes_of_all_kinds() {
  bunting_model_shape const plain = shape_for_gpu();
  // Like Gemma: norms before and after, caps, GELU, a part of each head rotated.
  bunting_model_shape around = plain;
  around.layer = tiny_layers([](bunting_layer_shape& layer) {
    layer.norms = 15;
    layer.biases = 0;
    layer.sliding_window = 30;
  });
  around.rope = tiny_rope(24);
  around.activation = BUNTING_ACTIVATION_GELU_TANH;
  around.attention_cap = 3, around.logit_cap = 5;
  around.embedding_scale = 6, around.residual_scale = 0.6f, around.logit_scale = 0.7f;
  // Like OLMo: only norms after, and norms over all heads.
  bunting_model_shape after = plain;
  after.layer = tiny_layers([](bunting_layer_shape& layer) {
    layer.norms = BUNTING_NORM_ATTN_POST | BUNTING_NORM_MLP_POST;
    layer.qk_norm = BUNTING_QK_NORM_WIDE;
  });
  // Like Cohere: layer norm, MLP parallel to the attention, no rotation.
  bunting_model_shape parallel = plain;
  parallel.norm = BUNTING_NORM_LAYER;
  parallel.layer = tiny_layers([](bunting_layer_shape& layer) {
    layer.norms = BUNTING_NORM_ATTN;
    layer.parallel = 1;
    layer.rope = -1;
  });
  // Like gpt-oss: experts with biases, sinks, a clamped SwiGLU.
  bunting_model_shape experts = plain;
  experts.layer = tiny_layers([](bunting_layer_shape& layer) {
    layer.mlp = BUNTING_MLP_EXPERTS;
    layer.qk_norm = BUNTING_QK_NORM_NONE;
    layer.biases = 31;
    layer.sinks = 1;
  });
  experts.experts = 5, experts.experts_used = 2, experts.expert_feed_forward = 40;
  experts.router_groups = experts.router_groups_used = 1, experts.router_scale = 1;
  experts.activation = BUNTING_ACTIVATION_CLAMPED_SWIGLU;
  // Like Gemma in the size of its heads.
  bunting_model_shape wide = plain;
  wide.head_size = 256, wide.rope = tiny_rope(256);
  // Like StarCoder2: norms with biases, an MLP without a gate, biases everywhere; and like Apertus, by xIELU.
  bunting_model_shape biased = plain;
  biased.norm = BUNTING_NORM_LAYER, biased.norm_biases = 1;
  biased.activation = BUNTING_ACTIVATION_GELU_TANH;
  biased.layer = tiny_layers([](bunting_layer_shape& layer) {
    layer.mlp = BUNTING_MLP_PLAIN;
    layer.qk_norm = BUNTING_QK_NORM_NONE;
    layer.biases = 15;
    layer.sliding_window = 30;
  });
  bunting_model_shape xielu = plain;
  xielu.activation = BUNTING_ACTIVATION_XIELU;
  xielu.layer = tiny_layers([](bunting_layer_shape& layer) { layer.mlp = BUNTING_MLP_PLAIN; });
  bunting_model_shape mixed = tiny_mixed_shape(plain, 512);
  // All experts are used: near ties of these random routers would depend on the rounding to bf16.
  mixed.experts_used = mixed.experts;
  return {plain, around, after, parallel, experts, wide, biased, xielu, mixed};
}

void load(TinyFile const& file, Model& model, Model::Loading loading, FlagsOf flags) {
  model.allocate(loading);
  for (TinyFile::Tensor const& t : file.tensors())
    model.load(t.tensor, t.layer, file.path().c_str(), t.offset,
               file.dtype() + flags(t.tensor % BUNTING_EXPERT), t.rows, t.cols);
  model.seal();
}

}  // namespace bunting::test
