#include "model/model_shape.h"

#include <algorithm>
#include <cmath>

#include "boundary/error.h"

namespace bunting {

bool mixes_experts(int32_t mlp) {
  return mlp != BUNTING_MLP_GATED && mlp != BUNTING_MLP_PLAIN && mlp != BUNTING_MLP_NONE;
}

bool mixes_attention(int32_t mixer) {
  return mixer == BUNTING_MIXER_ATTENTION || mixer == BUNTING_MIXER_LATENT ||
         mixer == BUNTING_MIXER_ATTENTION_SSM;
}

bool has_state(int32_t mixer) {
  return mixer >= BUNTING_MIXER_DELTA && mixer <= BUNTING_MIXER_ATTENTION_SSM;
}

namespace {

constexpr int32_t kRopesMax = 8;
constexpr int32_t kStateSizeMax = 256;  // of a head's keys or values

void check_range(char const* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail(BUNTING_INVALID, "model shape: %s is %lld, allowed are %lld to %lld", name, (long long)value,
         (long long)low, (long long)high);
}

void check_positive(char const* name, float value) {
  if (!(value > 0 && std::isfinite(value)))
    fail(BUNTING_INVALID, "model shape: %s is %g, must be greater than 0", name, double(value));
}

// Checks that a layer without one of its parts lacks the norms and biases of that part too.
void check_parts(bunting_layer_shape const& layer) {
  bool const has_mixer = layer.mixer != BUNTING_MIXER_NONE, has_mlp = layer.mlp != BUNTING_MLP_NONE;
  if (!has_mixer && !has_mlp) fail(BUNTING_INVALID, "model shape: a layer has neither mixer nor MLP");
  if (layer.parallel && !(has_mixer && has_mlp))
    fail(BUNTING_INVALID, "model shape: a layer with one part has no parallel MLP");
  constexpr int32_t kMlpNorms = BUNTING_NORM_MLP | BUNTING_NORM_MLP_POST | BUNTING_NORM_MLP_SUM;
  constexpr int32_t kMlpBiases = BUNTING_BIAS_GATE_UP | BUNTING_BIAS_DOWN | BUNTING_BIAS_ROUTER;
  if (!has_mlp && (layer.norms & kMlpNorms || layer.biases & kMlpBiases))
    fail(BUNTING_INVALID, "model shape: a layer without an MLP has a norm or a bias of it");
  if (!has_mixer && (layer.norms & ~kMlpNorms || layer.biases & BUNTING_BIAS_O))
    fail(BUNTING_INVALID, "model shape: a layer without a mixer has a norm or a bias of it");
  constexpr int32_t kAfterMixer = BUNTING_NORM_ATTN_POST | BUNTING_NORM_ATTN_SUM;
  if (has_state(layer.mixer) && (layer.parallel || layer.biases & BUNTING_BIAS_O))
    fail(BUNTING_INVALID, "model shape: a recurrent layer has no parallel MLP and no bias of o");
  if (layer.mixer == BUNTING_MIXER_ATTENTION_SSM && layer.norms & kAfterMixer)
    fail(BUNTING_INVALID, "model shape: a layer with two mixers has no norm after them");
  if (mixes_attention(layer.mixer)) return;
  if (layer.biases & BUNTING_BIAS_QKV || layer.qk_norm != BUNTING_QK_NORM_NONE || layer.sinks ||
      layer.values || layer.kv_layers_back || layer.sliding_window)
    fail(BUNTING_INVALID, "model shape: a layer without attention has a part of it");
}

void check_layer(bunting_layer_shape const& layer, int32_t ropes) {
  check_range("a layer's mixer", layer.mixer, BUNTING_MIXER_ATTENTION, BUNTING_MIXER_NONE);
  check_range("a layer's mlp", layer.mlp, BUNTING_MLP_GATED, BUNTING_MLP_SHARED_PLAIN);
  check_range("a layer's norms", layer.norms, 0, 63);
  constexpr int32_t kAfterAttn = BUNTING_NORM_ATTN_POST | BUNTING_NORM_ATTN_SUM;
  constexpr int32_t kAfterMlp = BUNTING_NORM_MLP_POST | BUNTING_NORM_MLP_SUM;
  for (int32_t const both : {kAfterAttn, kAfterMlp})
    if ((layer.norms & both) == both)
      fail(BUNTING_INVALID, "model shape: a layer has a norm of a part's output, or of the sum, not both");
  if ((layer.norms & (BUNTING_NORM_ATTN_SUM | BUNTING_NORM_MLP_SUM)) && mixes_experts(layer.mlp))
    fail(BUNTING_INVALID, "model shape: a layer with experts has no norm of a sum");
  check_range("a layer's biases", layer.biases, 0, 31);
  check_range("a layer's qk_norm", layer.qk_norm, BUNTING_QK_NORM_NONE, BUNTING_QK_NORM_UNIT);
  check_range("a layer's rope", layer.rope, -1, ropes - 1);
  check_range("a layer's sliding_window", layer.sliding_window, 0, INT32_MAX);
  check_range("a layer's sinks", layer.sinks, 0, 1);
  check_range("a layer's parallel", layer.parallel, 0, 1);
  if (layer.parallel && layer.norms != BUNTING_NORM_ATTN)
    fail(BUNTING_INVALID,
         "model shape: a layer whose MLP is parallel has one norm, before the attention; it has %d",
         layer.norms);
  check_range("a layer's values", layer.values, 0, BUNTING_VALUES_KEYS | BUNTING_VALUES_NORMED);
  check_range("a layer's scaled", layer.scaled, 0, 1);
  check_range("a layer's laurel_rank", layer.laurel_rank, 0, 1 << 18);
  if (layer.laurel_rank > 0 && (layer.norms != 15 || layer.parallel))
    fail(BUNTING_INVALID, "model shape: a layer with LAuReL has norms around attention and MLP");
  check_range("a layer's sparse_gate", layer.sparse_gate, 0, layer.mlp == BUNTING_MLP_GATED ? 1 : 0);
  if (!std::isfinite(layer.gate_cutoff))
    fail(BUNTING_INVALID, "model shape: a layer's gate_cutoff is %g", double(layer.gate_cutoff));
  check_range("a layer's chunked", layer.chunked, 0, layer.sliding_window > 0 ? 1 : 0);
  if ((layer.values & BUNTING_VALUES_KEYS) &&
      (layer.qk_norm == BUNTING_QK_NORM_WIDE || (layer.biases & BUNTING_BIAS_QKV)))
    fail(BUNTING_INVALID, "model shape: a layer whose values are its keys has no wide norm and no biases");
  if (layer.mlp == BUNTING_MLP_BOTH &&
      (layer.norms != 15 || layer.parallel || (layer.biases & ~BUNTING_BIAS_QKV)))
    fail(BUNTING_INVALID,
         "model shape: a layer with experts beside an MLP has all norms, and no biases but of q, k and v");
  if (layer.mlp == BUNTING_MLP_EXPERTS && (layer.parallel || (layer.norms & BUNTING_NORM_MLP_SUM)))
    fail(
        BUNTING_INVALID,
        "model shape: a layer with experts has no norm of the sum behind its MLP, and the MLP not beside the "
        "attention");
  bool const is_shared = layer.mlp == BUNTING_MLP_SHARED || layer.mlp == BUNTING_MLP_SHARED_GATED ||
                         layer.mlp == BUNTING_MLP_SHARED_PLAIN;
  if (is_shared && (layer.parallel || (layer.norms & BUNTING_NORM_MLP_SUM) ||
                    (layer.biases & (BUNTING_BIAS_GATE_UP | BUNTING_BIAS_DOWN))))
    fail(
        BUNTING_INVALID,
        "model shape: a layer with shared experts has no norm of the sum behind its MLP and no biases in it, "
        "and the MLP not beside the attention");
  if (!mixes_experts(layer.mlp) && (layer.biases & BUNTING_BIAS_ROUTER))
    fail(BUNTING_INVALID, "model shape: a layer without experts has no router");
  check_range("a layer's gated_output", layer.gated_output, 0,
              mixes_attention(layer.mixer) && layer.mixer != BUNTING_MIXER_LATENT ? 1 : 0);
  check_parts(layer);
}

void check_router(bunting_model_shape const& s) {
  check_range("router", s.router, BUNTING_ROUTER_CHOSEN, BUNTING_ROUTER_SIGMOID);
  check_range("router_options", s.router_options, 0, 7);
  check_range("router_groups", s.router_groups, 1, 64);
  check_range("router_groups_used", s.router_groups_used, 1, s.router_groups);
  check_positive("router_scale", s.router_scale);
  if (s.router == BUNTING_ROUTER_CHOSEN && (s.router_options != 0 || s.router_groups > 1))
    fail(BUNTING_INVALID,
         "model shape: a router that weighs the chosen experts alone has no options and groups");
  int32_t const in_group = s.experts / s.router_groups;
  if (s.experts % s.router_groups != 0 || s.experts_used > in_group * s.router_groups_used ||
      (s.router_groups > 1 && in_group < 2))
    fail(BUNTING_INVALID, "model shape: %d of %d groups of experts cannot give %d of %d experts",
         s.router_groups_used, s.router_groups, s.experts_used, s.experts);
  if ((s.router_options & BUNTING_ROUTER_SCALES_INPUT) && s.experts_used != 1)
    fail(BUNTING_INVALID, "model shape: a router scales the input of one expert, not of %d", s.experts_used);
}

// Checks the sizes that a layer overrides.
void check_sizes(bunting_model_shape const& s, int32_t index) {
  bunting_layer_shape const& layer = s.layer[index];
  check_range("a layer's head_size", layer.head_size, 0, s.head_size);
  check_range("a layer's kv_heads", layer.kv_heads, 0, s.kv_heads);
  check_range("a layer's feed_forward", layer.feed_forward, 0, s.feed_forward);
  check_range("a layer's kv_layers_back", layer.kv_layers_back, 0, index);
  if (layer.head_size % 16 != 0)
    fail(BUNTING_INVALID, "model shape: a layer's head_size %d is not a multiple of 16", layer.head_size);
  if (layer.kv_heads > 0 && s.query_heads % layer.kv_heads != 0)
    fail(BUNTING_INVALID, "model shape: a layer's %d key-value heads do not divide %d query heads",
         layer.kv_heads, s.query_heads);
  // Activation rows of narrower layers use the widest layer's buffers without padding, so their widths need
  // alignment.
  if (layer.head_size > 0 && s.query_heads * layer.head_size % 32 != 0)
    fail(BUNTING_INVALID, "model shape: %d heads of a layer's own head_size %d are no multiple of 32",
         s.query_heads, layer.head_size);
  if (layer.feed_forward % 32 != 0)
    fail(BUNTING_INVALID, "model shape: a layer's own feed_forward %d is not a multiple of 32",
         layer.feed_forward);
  if (layer.rope >= 0 && layer.head_size > 0 && s.rope[layer.rope].dimensions > layer.head_size)
    fail(BUNTING_INVALID, "model shape: a rope of %d dimensions for a layer's heads of %d",
         s.rope[layer.rope].dimensions, layer.head_size);
  if (layer.kv_layers_back == 0) return;
  bunting_layer_shape const& source = s.layer[index - layer.kv_layers_back];
  if (!mixes_attention(source.mixer) || source.kv_layers_back > 0 || source.head_size != layer.head_size ||
      source.kv_heads != layer.kv_heads)
    fail(BUNTING_INVALID,
         "model shape: layer %d reads keys and values of layer %d, which has none of its own or other sizes",
         index, index - layer.kv_layers_back);
  if (layer.biases & BUNTING_BIAS_QKV)
    fail(BUNTING_INVALID, "model shape: layer %d has no keys of its own, and biases of them", index);
}

// Checks a latent layer, and the sizes of the model's latents.
void check_latent(bunting_model_shape const& s, int32_t index) {
  bunting_layer_shape const& layer = s.layer[index];
  if (layer.mixer != BUNTING_MIXER_LATENT) return;
  auto const check_size = [](char const* name, int32_t value, int32_t low, int32_t step) {
    check_range(name, value, low, 1 << 16);
    if (value % step != 0)
      fail(BUNTING_INVALID, "model shape: %s %d is not a multiple of %d", name, value, step);
  };
  check_size("latent_rank", s.latent_rank, 32, 32);
  check_size("query_rank", s.query_rank, 0, 16);
  check_size("key_size", s.key_size, 16, 16);
  check_size("value_size", s.value_size, 16, 16);
  check_positive("latent_norm_epsilon", s.latent_norm_epsilon);
  int32_t const rotated = layer.rope < 0 ? 0 : s.rope[layer.rope].dimensions;
  if (rotated == 0 || s.kv_heads != 1 || s.head_size != s.latent_rank + rotated || layer.head_size > 0 ||
      layer.kv_heads > 0)
    fail(BUNTING_INVALID,
         "model shape: a latent layer has one key head of its latent's %d and its rope's %d numbers, not %d "
         "of %d",
         s.latent_rank, rotated, s.kv_heads, s.head_size);
  if ((layer.biases & (BUNTING_BIAS_QKV | BUNTING_BIAS_O)) || layer.qk_norm != BUNTING_QK_NORM_NONE ||
      layer.values != 0 || layer.kv_layers_back != 0 || layer.sinks != 0 || layer.gated_output != 0 ||
      s.attention == BUNTING_ATTENTION_BIDIRECTIONAL)
    fail(BUNTING_INVALID,
         "model shape: a latent layer has no biases, sinks, norms of heads, and keys of other layers, and is "
         "of no encoder");
  if (s.kv != BUNTING_KV_PLAIN)
    fail(BUNTING_INVALID, "model shape: the KV cache of latent layers is plain, not int8, fp8 or int4");
}

// Checks the sizes and options of recurrent layers.
void check_states(bunting_model_shape const& s) {
  int32_t kind = BUNTING_MIXER_NONE, attention_layers = 0;
  for (int32_t i = 0; i < s.layers; i++) {
    int32_t const mixer = s.layer[i].mixer;
    if (mixes_attention(mixer)) attention_layers++;
    if (!has_state(mixer)) continue;
    int32_t const own = mixer == BUNTING_MIXER_ATTENTION_SSM ? int32_t{BUNTING_MIXER_SSM} : mixer;
    if (kind != BUNTING_MIXER_NONE && own != kind)
      fail(BUNTING_INVALID, "model shape: layers have recurrent mixers %d and %d; a model has one kind", kind,
           own);
    kind = own;
  }
  if (attention_layers == 0) fail(BUNTING_INVALID, "model shape: no layer has attention");
  if (s.attention == BUNTING_ATTENTION_BIDIRECTIONAL && kind != BUNTING_MIXER_NONE)
    fail(BUNTING_INVALID, "model shape: an encoder has no recurrent layers");
  bool const has_any = kind != BUNTING_MIXER_NONE, has_heads = has_any && kind != BUNTING_MIXER_CONV;
  check_range("state_key_heads", s.state_key_heads, has_heads, has_heads ? 4096 : 0);
  check_range("state_heads", s.state_heads, has_heads, has_heads ? 4096 : 0);
  check_range("state_key_size", s.state_key_size, has_heads, has_heads ? kStateSizeMax : 0);
  check_range("state_value_size", s.state_value_size, has_heads, has_heads ? kStateSizeMax : 0);
  check_range("state_conv", s.state_conv, has_any ? 2 : 0, has_any ? 8 : 0);
  check_range("state_options", s.state_options, 0,
              has_heads ? 127
              : has_any ? int32_t{BUNTING_STATE_CONV_BIAS}
                        : 0);
  if (!has_heads) return;
  if (s.state_heads % s.state_key_heads != 0)
    fail(BUNTING_INVALID, "model shape: %d key heads of states do not divide %d value heads",
         s.state_key_heads, s.state_heads);
  if (s.state_key_size % 16 != 0 || s.state_value_size % 16 != 0)
    fail(BUNTING_INVALID, "model shape: states are [%d, %d], which are no multiples of 16", s.state_key_size,
         s.state_value_size);
  int32_t const norms =
      s.state_options & (BUNTING_STATE_NORM_HEADS | BUNTING_STATE_NORM_GROUPS | BUNTING_STATE_NORM_WIDE);
  if (norms & (norms - 1))
    fail(BUNTING_INVALID, "model shape: a recurrent layer has several norms of its output");
  if (kind != BUNTING_MIXER_SSM) return;
  if (!(s.state_dt_min >= 0 && s.state_dt_max > s.state_dt_min))
    fail(BUNTING_INVALID, "model shape: a recurrent layer's time steps are %g to %g", double(s.state_dt_min),
         double(s.state_dt_max));
}

// Checks the layer of a head, and that the model around it has no parts that the head lacks.
void check_head(bunting_model_shape const& s) {
  check_range("head", s.head, 0, 7);
  if (s.head == 0) return;
  if (!(s.head & BUNTING_HEAD_PRESENT) || s.layers < 2)
    fail(BUNTING_INVALID, "model shape: head is %d, with %d layers; a head is the last of several", s.head,
         s.layers);
  bunting_layer_shape const& layer = s.layer[s.layers - 1];
  if (!mixes_attention(layer.mixer) || has_state(layer.mixer) || layer.kv_layers_back > 0)
    fail(BUNTING_INVALID,
         "model shape: the layer of a head has attention with keys of its own, and no state");
  if (s.attention == BUNTING_ATTENTION_BIDIRECTIONAL || s.layer_inputs > 0 || s.streams > 1 ||
      s.no_final_norm || s.norm_biases)
    fail(BUNTING_INVALID,
         "model shape: a head goes with no encoder, no inputs of layers, one residual stream, and a final "
         "norm "
         "without biases");
}

void check_rope(bunting_rope const& rope, int32_t head_size) {
  check_range("a rope's dimensions", rope.dimensions, 2, head_size);
  if (rope.dimensions % 2 != 0)
    fail(BUNTING_INVALID, "model shape: a rope of %d dimensions", rope.dimensions);
  check_positive("a rope's magnitude", rope.magnitude);
  if (!(rope.query_growth >= 0 && std::isfinite(rope.query_growth)))
    fail(BUNTING_INVALID, "model shape: a rope's query_growth is %g", double(rope.query_growth));
  if (rope.query_growth > 0) check_range("a rope's query_span", rope.query_span, 1, INT32_MAX);
  check_range("a rope's query_offset", rope.query_offset, 0, 1);
  if (!rope.frequencies) fail(BUNTING_INVALID, "model shape: a rope without frequencies");
  for (int32_t i = 0; i < rope.dimensions / 2; i++)
    if (!(rope.frequencies[i] >= 0 && std::isfinite(rope.frequencies[i])))
      fail(BUNTING_INVALID, "model shape: a rope's frequency %d is %g", i, rope.frequencies[i]);
}

}  // namespace

void check_shape(bunting_model_shape const& s) {
  check_range("layers", s.layers, 1, 4096);
  check_range("hidden", s.hidden, 1, 1 << 18);
  check_range("feed_forward", s.feed_forward, 1, 1 << 20);
  check_range("query_heads", s.query_heads, 1, 4096);
  check_range("kv_heads", s.kv_heads, 1, s.query_heads);
  check_range("head_size", s.head_size, 16, 1024);
  check_range("vocab", s.vocab, 1, 1 << 24);
  check_range("context_max", s.context_max, 1, 1 << 26);
  check_range("tied_embeddings", s.tied_embeddings, 0, 1);
  check_range("norm", s.norm, BUNTING_NORM_RMS, BUNTING_NORM_LAYER);
  check_range("activation", s.activation, BUNTING_ACTIVATION_SILU, BUNTING_ACTIVATION_RELU_SQUARED);
  check_range("ropes", s.ropes, 0, kRopesMax);
  check_range("threads", s.threads, 1, 1024);
  if (s.query_heads % s.kv_heads != 0)
    fail(BUNTING_INVALID, "model shape: %d key-value heads do not divide %d query heads", s.kv_heads,
         s.query_heads);
  if (s.head_size % 16 != 0)
    fail(BUNTING_INVALID, "model shape: head_size %d is not a multiple of 16", s.head_size);
  if (s.compute != BUNTING_BF16 && s.compute != BUNTING_F32)
    fail(BUNTING_INVALID, "model shape: compute type %d is neither bf16 nor f32", s.compute);
  if (s.kv < BUNTING_KV_PLAIN || s.kv > BUNTING_KV_INT4)
    fail(BUNTING_INVALID, "model shape: keys and values of kind %d are not plain, int8, fp8 or int4", s.kv);
  if (s.kv != BUNTING_KV_PLAIN && s.compute != BUNTING_BF16)
    fail(BUNTING_INVALID, "model shape: keys and values in %s go with bf16, not with f32",
         s.kv == BUNTING_KV_INT8   ? "int8"
         : s.kv == BUNTING_KV_INT4 ? "int4"
                                   : "fp8");
  check_positive("norm_epsilon", s.norm_epsilon);
  check_positive("attention_scale", s.attention_scale);
  check_positive("embedding_scale", s.embedding_scale);
  check_positive("residual_scale", s.residual_scale);
  check_positive("logit_scale", s.logit_scale);
  for (float const cap : {s.attention_cap, s.logit_cap})
    if (!(cap >= 0 && std::isfinite(cap))) fail(BUNTING_INVALID, "model shape: a cap is %g", double(cap));
  if (!s.layer) fail(BUNTING_INVALID, "model shape: layer must not be null");
  if (s.ropes > 0 && !s.rope) fail(BUNTING_INVALID, "model shape: rope must not be null");
  for (int32_t i = 0; i < s.ropes; i++) check_rope(s.rope[i], s.head_size);
  check_range("layer_inputs", s.layer_inputs, 0, 1 << 16);
  if (s.layer_inputs % 16 != 0)
    fail(BUNTING_INVALID, "model shape: layer_inputs %d is not a multiple of 16", s.layer_inputs);
  if (s.layer_inputs > 0 &&
      (s.activation == BUNTING_ACTIVATION_CLAMPED_SWIGLU || s.activation == BUNTING_ACTIVATION_XIELU))
    fail(BUNTING_INVALID, "model shape: inputs of layers go by an activation of the gate alone");
  check_range("attention", s.attention, BUNTING_ATTENTION_CAUSAL, BUNTING_ATTENTION_BIDIRECTIONAL);
  check_range("norm_biases", s.norm_biases, 0, s.norm == BUNTING_NORM_LAYER);
  check_range("no_final_norm", s.no_final_norm, 0, 1);
  check_range("embedding_norm", s.embedding_norm, 0, 1);
  check_range("positions", s.positions, 0, 1 << 26);
  check_range("position_offset", s.position_offset, 0, s.positions);
  if (s.positions > 0 && s.positions - s.position_offset < s.context_max)
    fail(BUNTING_INVALID, "model shape: %d learned positions from row %d on for a context of %d", s.positions,
         s.position_offset, s.context_max);
  check_range("token_types", s.token_types, 0, 1 << 16);
  check_range("streams", s.streams, 0, std::min(8, s.layers + 1));
  if (s.streams > 1 && s.layer_inputs == 0)
    fail(BUNTING_INVALID, "model shape: several streams go with inputs of layers, and there are none");
  check_states(s);
  check_head(s);
  bool has_experts = false;
  for (int32_t i = 0; i < s.layers; i++) {
    check_layer(s.layer[i], s.ropes);
    check_sizes(s, i);
    check_latent(s, i);
    has_experts = has_experts || mixes_experts(s.layer[i].mlp);
    bool const is_plain = s.layer[i].mlp == BUNTING_MLP_PLAIN || s.layer[i].mlp == BUNTING_MLP_SHARED_PLAIN;
    if (is_plain && s.activation == BUNTING_ACTIVATION_CLAMPED_SWIGLU)
      fail(BUNTING_INVALID, "model shape: a plain MLP has an activation of one number");
    if (s.streams > 1 && s.layer[i].laurel_rank == 0)
      fail(BUNTING_INVALID, "model shape: several streams go with LAuReL, and layer %d has none", i);
    if (s.layer[i].mlp != BUNTING_MLP_PLAIN && s.activation == BUNTING_ACTIVATION_XIELU)
      fail(BUNTING_INVALID, "model shape: xIELU goes with plain MLPs, and layer %d has another", i);
    if (s.norm_biases && (s.layer[i].mlp == BUNTING_MLP_BOTH || s.layer_inputs > 0))
      fail(BUNTING_INVALID,
           "model shape: norms beside experts and of layers' inputs have no biases, and layer %d has such",
           i);
    if (s.attention == BUNTING_ATTENTION_BIDIRECTIONAL && s.layer[i].kv_layers_back > 0)
      fail(BUNTING_INVALID, "model shape: layer %d of an encoder reads keys and values of another layer", i);
  }
  if (!has_experts) return check_range("experts", s.experts, 0, 0);
  check_range("experts", s.experts, 1, 4096);
  check_range("experts_used", s.experts_used, 1, s.experts);
  check_range("expert_feed_forward", s.expert_feed_forward, 1, 1 << 20);
  check_router(s);
}

}  // namespace bunting
