#include "cuda/tests/models.h"

#include <cmath>
#include <deque>
#include <functional>

namespace bunting::test {

bunting_model_shape shape_for_gpu() {
  bunting_model_shape shape = tiny_shape();
  shape.head_size = 32;
  shape.rope = tiny_rope(32);
  shape.context_max = 400;
  return shape;
}

namespace {

using Change = std::function<void(bunting_layer_shape&)>;

// Returns a model whose layers differ from tiny_layers() by one change each.
bunting_model_shape shape_of_layers(std::vector<Change> const& changes) {
  static std::deque<std::vector<bunting_layer_shape>> kept;
  std::vector<bunting_layer_shape>& layers = kept.emplace_back();
  for (Change const& change : changes) layers.push_back(*tiny_layers(change));
  bunting_model_shape shape = shape_for_gpu();
  shape.layers = int32_t(layers.size()), shape.layer = layers.data();
  shape.state_conv = 4;
  return shape;
}

void set_heads(bunting_model_shape& shape, int32_t key_heads, int32_t heads, int32_t key_size,
               int32_t value_size, int32_t options) {
  shape.state_key_heads = key_heads, shape.state_heads = heads;
  shape.state_key_size = key_size, shape.state_value_size = value_size;
  shape.state_options = options;
  shape.state_dt_max = INFINITY;
}

}  // namespace

std::vector<bunting_model_shape> recurrent_shapes() {
  auto const recurrent = [](int32_t mixer) {
    return [mixer](bunting_layer_shape& layer) {
      layer.mixer = mixer;
      layer.biases = 0;
      layer.qk_norm = BUNTING_QK_NORM_NONE;
      layer.rope = -1;
    };
  };
  auto const alone = [&](int32_t mixer) {
    return [=](bunting_layer_shape& layer) {
      if (mixer != BUNTING_MIXER_ATTENTION) recurrent(mixer)(layer);
      layer.mlp = BUNTING_MLP_NONE;
      layer.norms = BUNTING_NORM_ATTN;
    };
  };
  Change const plain = [](bunting_layer_shape&) {};
  Change const gated = [](bunting_layer_shape& layer) { layer.gated_output = 1; };
  Change const both = [](bunting_layer_shape& layer) { layer.mixer = BUNTING_MIXER_ATTENTION_SSM; };
  Change const mlp = [&](bunting_layer_shape& layer) {
    recurrent(BUNTING_MIXER_NONE)(layer);
    layer.norms = BUNTING_NORM_MLP;
  };
  Change const delta = recurrent(BUNTING_MIXER_DELTA), ssm = alone(BUNTING_MIXER_SSM),
               conv = recurrent(BUNTING_MIXER_CONV), attention = alone(BUNTING_MIXER_ATTENTION);
  // Like Qwen 3.5, and its GGUF files; the last layer is gated attention or recurrent.
  bunting_model_shape qwen = shape_of_layers({delta, gated});
  set_heads(qwen, 2, 4, 32, 16, BUNTING_STATE_NORM_HEADS);
  bunting_model_shape tiled = shape_of_layers({gated, delta});
  set_heads(tiled, 2, 4, 48, 48, BUNTING_STATE_NORM_HEADS | BUNTING_STATE_TILED_HEADS);
  // Like Nemotron-H: each layer is one of mixer, MLP and attention.
  bunting_model_shape nemotron = shape_of_layers({ssm, mlp, attention, mlp});
  set_heads(
      nemotron, 2, 4, 32, 16,
      BUNTING_STATE_CONV_BIAS | BUNTING_STATE_NORM_GROUPS | BUNTING_STATE_GATE_FIRST | BUNTING_STATE_SKIP);
  // Like Falcon-H1: attention and recurrence side by side.
  bunting_model_shape falcon = shape_of_layers({both, both});
  set_heads(falcon, 1, 2, 16, 32, BUNTING_STATE_CONV_BIAS);
  // Like Granite 4, but for its layers.
  bunting_model_shape granite = shape_of_layers({both, mlp});
  set_heads(granite, 1, 3, 16, 48, BUNTING_STATE_NORM_WIDE | BUNTING_STATE_SKIP);
  // Like LFM2.
  bunting_model_shape lfm = shape_of_layers({conv, plain, conv});
  return {qwen, tiled, nemotron, falcon, granite, lfm};
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
  std::vector<bunting_model_shape> shapes{plain,
                                          around,
                                          after,
                                          parallel,
                                          experts,
                                          wide,
                                          biased,
                                          xielu,
                                          mixed,
                                          tiny_latent_shape(plain, 16),
                                          tiny_latent_shape(plain, 0)};
  std::vector<bunting_model_shape> const recurrent = recurrent_shapes();
  shapes.insert(shapes.end(), recurrent.begin(), recurrent.end());
  return shapes;
}

void load(TinyFile const& file, Model& model, Model::Loading loading, FlagsOf flags) {
  model.allocate(loading);
  for (TinyFile::Tensor const& t : file.tensors())
    model.load(t.tensor, t.layer, file.path().c_str(), t.offset,
               file.dtype() + flags(t.tensor % BUNTING_EXPERT), t.rows, t.cols);
  model.seal();
}

}  // namespace bunting::test
