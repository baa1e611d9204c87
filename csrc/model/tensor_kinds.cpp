#include "model/tensor_kinds.h"

namespace bunting {

namespace {

using Place = TensorPlace const&;

using Shape = bunting_model_shape;

template <auto kField>
int64_t of_model(Place p) {
  return p.shape().*kField;
}
template <int64_t (Model::*kSize)(int32_t) const>
int64_t of_layer(Place p) {
  return (p.model.*kSize)(p.layer);
}
template <bool (Model::*kHas)(int32_t) const>
bool layer_has(Place p) {
  return (p.model.*kHas)(p.layer);
}

// Sizes.
constexpr auto hidden = of_model<&Shape::hidden>;
constexpr auto vocab = of_model<&Shape::vocab>;
constexpr auto experts = of_model<&Shape::experts>;
constexpr auto query_heads = of_model<&Shape::query_heads>;
constexpr auto positions = of_model<&Shape::positions>;
constexpr auto token_types = of_model<&Shape::token_types>;
constexpr auto layer_input = of_model<&Shape::layer_inputs>;
constexpr auto q_width = of_layer<&Model::query_width>;
constexpr auto q_rows = of_layer<&Model::q_rows>;
constexpr auto kv_width = of_layer<&Model::kv_width>;
constexpr auto feed_forward = of_layer<&Model::feed_forward>;
constexpr auto state_heads = of_model<&Shape::state_heads>;
template <int64_t (Model::*kSize)() const>
int64_t of_states(Place p) {
  return (p.model.*kSize)();
}
constexpr auto state_keys = of_states<&Model::state_key_width>;
constexpr auto state_values = of_states<&Model::state_value_width>;
constexpr auto state_norm = of_states<&Model::state_norm_width>;
int64_t conv_queries(Place p) {
  return p.model.has_state_heads() ? state_keys(p) : p.shape().hidden;
}
int64_t streams(Place p) {
  return p.model.streams();
}
int64_t stream_pairs(Place p) {
  return streams(p) * streams(p);
}
int64_t laurel_rank(Place p) {
  return p.has().laurel_rank;
}
int64_t one(Place) {
  return 1;
}
int64_t beside(Place p) {
  return p.has().feed_forward;
}
int64_t layer_inputs(Place p) {
  return int64_t(p.shape().layers) * p.shape().layer_inputs;
}
bool has_wide_norms(Place p) {
  return p.has().qk_norm == BUNTING_QK_NORM_WIDE;
}
bool is_latent(Place p) {
  return p.model.is_latent(p.layer);
}
int64_t latent_keys(Place p) {
  return int64_t(p.shape().query_heads) * p.shape().latent_rank;
}
int64_t latent_values(Place p) {
  return p.model.mixed_width(p.layer);
}
constexpr auto query_rank = of_model<&Shape::query_rank>;
int64_t q_norm_width(Place p) {
  if (is_latent(p)) return p.shape().query_rank;
  return has_wide_norms(p) ? q_width(p) : p.has().head_size;
}
int64_t k_norm_width(Place p) {
  if (is_latent(p)) return p.shape().latent_rank;
  return has_wide_norms(p) ? kv_width(p) : p.has().head_size;
}

// First rows of a tensor that shares its matrix with others.
int64_t start(Place) {
  return 0;
}
int64_t after_q(Place p) {
  return q_width(p);
}
int64_t after_k(Place p) {
  return q_width(p) + kv_width(p);
}
int64_t after_weights(Place p) {
  return p.shape().hidden;
}
int64_t gate_of_expert(Place p) {
  return p.expert * (p.model.has_gate(p.layer) ? 2 : 1) * p.model.padded_feed_forward(p.layer);
}
int64_t up_of_expert(Place p) {
  return gate_of_expert(p) + (p.model.has_gate(p.layer) ? p.model.padded_feed_forward(p.layer) : 0);
}
int64_t down_of_expert(Place p) {
  return p.expert * p.model.padded_hidden();
}
template <int64_t kIndex>
int64_t number(Place) {
  return kIndex;
}
int64_t after_state_q(Place p) {
  return round_up(state_keys(p), kPanel);
}
constexpr auto after_state_k = of_states<&Model::state_v_column>;
constexpr auto after_state_v = of_states<&Model::state_z_column>;
constexpr auto after_state_a = of_states<&Model::state_b_row>;
int64_t after_conv_q(Place p) {
  return state_keys(p);
}
int64_t after_conv_k(Place p) {
  return 2 * state_keys(p);
}
int64_t after_beside_gate(Place p) {
  return p.model.has_gate(p.layer) ? round_up(beside(p), kPanel) : 0;
}

// Conditions.
bool always(Place) {
  return true;
}
bool is_untied(Place p) {
  return !p.shape().tied_embeddings;
}
constexpr auto has_attention = layer_has<&Model::has_attention>;
constexpr auto has_mlp = layer_has<&Model::has_mlp>;
constexpr auto has_state = layer_has<&Model::has_state>;
bool has_state_heads(Place p) {
  return has_state(p) && p.model.has_state_heads();
}
bool is_delta(Place p) {
  return p.model.is_delta(p.layer);
}
template <int32_t kOption>
bool has_state_option(Place p) {
  return has_state(p) && p.shape().state_options & kOption;
}
bool has_conv_k_bias(Place p) {
  return has_state_option<BUNTING_STATE_CONV_BIAS>(p) && has_state_heads(p);
}
bool has_state_norm(Place p) {
  return has_state_heads(p) && state_norm(p) > 0;
}
bool has_q_gate(Place p) {
  return p.has().gated_output;
}
constexpr auto has_keys = layer_has<&Model::has_keys>;
constexpr auto has_values = layer_has<&Model::has_v>;
constexpr auto has_experts = layer_has<&Model::has_experts>;
constexpr auto has_both = layer_has<&Model::has_both>;
constexpr auto has_gate = layer_has<&Model::has_gate>;
constexpr auto has_beside = layer_has<&Model::has_beside>;
constexpr auto has_shared_gate = layer_has<&Model::has_shared_gate>;
bool has_choice_bias(Place p) {
  return has_experts(p) && (p.shape().router_options & BUNTING_ROUTER_BIASED);
}
bool has_final_norm(Place p) {
  return !p.shape().no_final_norm;
}
bool has_final_norm_bias(Place p) {
  return has_final_norm(p) && p.shape().norm_biases;
}
template <auto kField>
bool model_has(Place p) {
  return p.shape().*kField > 0;
}
bool has_inputs(Place p) {
  return p.shape().layer_inputs > 0;
}
bool has_sinks(Place p) {
  return p.has().sinks;
}
bool is_scaled(Place p) {
  return p.has().scaled;
}
bool has_query_rank(Place p) {
  return is_latent(p) && p.shape().query_rank > 0;
}
bool has_q_norm(Place p) {
  return p.model.has_qk_weights(p.layer) || has_query_rank(p);
}
bool has_k_norm(Place p) {
  return (p.model.has_qk_weights(p.layer) && has_keys(p)) || is_latent(p);
}
template <int32_t kNorm>
bool has_norm(Place p) {
  return p.has().norms & kNorm;
}
template <int32_t kNorm>
bool has_norm_bias(Place p) {
  return has_norm<kNorm>(p) && p.shape().norm_biases;
}
template <auto kField>
bool model_has_norm_bias(Place p) {
  return model_has<kField>(p) && p.shape().norm_biases;
}
template <int32_t kBias>
bool has_bias(Place p) {
  return p.has().biases & kBias;
}
constexpr auto has_stream = layer_has<&Model::has_stream>;
constexpr auto is_head = layer_has<&Model::is_head>;
bool has_streams(Place p) {
  return streams(p) > 1;
}
bool has_laurel(Place p) {
  return laurel_rank(p) > 0;
}
bool has_xielu(Place p) {
  return p.shape().activation == BUNTING_ACTIVATION_XIELU;
}
bool has_beside_gate(Place p) {
  return has_beside(p) && has_gate(p);
}
bool has_gate_bias(Place p) {
  return has_gate(p) && has_bias<BUNTING_BIAS_GATE_UP>(p);
}

// Places.
template <PackedMatrix LayerWeights::* kMatrix, int64_t (*first_row)(Place) = start>
TensorStart matrix(Place p) {
  return {&(p.weights.*kMatrix), first_row(p)};
}
template <float* LayerWeights::* kVector, int64_t (*first)(Place) = start>
TensorStart vector(Place p) {
  return {nullptr, 0, p.weights.*kVector + first(p)};
}
template <PackedMatrix LayerInputWeights::* kMatrix>
TensorStart input_matrix(Place p) {
  return {&(p.model.layer_inputs().*kMatrix)};
}
TensorStart input_norm(Place p) {
  return {nullptr, 0, p.model.layer_inputs().norm};
}
TensorStart embedding(Place p) {
  return {&p.embedding};
}
TensorStart lm_head(Place p) {
  return {&p.lm_head};
}
template <float* TensorPlace::* kVector, int64_t (*first)(Place) = start>
TensorStart model_vector(Place p) {
  return {nullptr, 0, p.*kVector + first(p)};
}
template <float* TensorPlace::* kTable>
TensorStart table(Place p) {
  return {nullptr, 0, p.*kTable, p.shape().hidden};
}
TensorStart keys(Place p) {
  if (is_latent(p)) return {&p.weights.v, p.shape().query_rank};
  return {&p.weights.qkv, after_q(p)};
}
template <float* LayerWeights::* kTable, int64_t (*cols)(Place)>
TensorStart layer_table(Place p) {
  return {nullptr, 0, p.weights.*kTable, cols(p)};
}
// V is a matrix of its own where a file keeps it in another format than Q and K.
TensorStart values(Place p) {
  if (p.weights.v.n > 0) return {&p.weights.v};
  return {&p.weights.qkv, after_k(p)};
}

TensorStart state_z(Place p) {
  if (p.weights.state_z.n > 0) return {&p.weights.state_z};
  return {&p.weights.state_in, after_state_v(p)};
}
template <int64_t (*first)(Place) = start>
TensorStart conv(Place p) {
  int64_t const taps = p.shape().state_conv;
  return {nullptr, 0, p.weights.state_conv + first(p) * taps, taps};
}

using W = LayerWeights;
using I = LayerInputWeights;
using P = TensorPlace;

constexpr uint32_t kQueryOrKey = kRotated | kGroupedHeads;
constexpr int32_t kAnyAttnPost = BUNTING_NORM_ATTN_POST | BUNTING_NORM_ATTN_SUM;
constexpr int32_t kAnyMlpPost = BUNTING_NORM_MLP_POST | BUNTING_NORM_MLP_SUM;

constexpr TensorKind kKinds[] = {
    {BUNTING_T_EMBED, "embedding", embedding, vocab, always},
    {BUNTING_T_FINAL_NORM, "final norm", model_vector<&P::final_norm>, hidden, has_final_norm, kNormWeights},
    {BUNTING_T_FINAL_NORM_BIAS, "bias of the final norm", model_vector<&P::final_norm, after_weights>, hidden,
     has_final_norm_bias},
    {BUNTING_T_EMBED_NORM, "norm of the embedding", model_vector<&P::embedding_norm>, hidden,
     model_has<&Shape::embedding_norm>, kNormWeights},
    {BUNTING_T_EMBED_NORM_BIAS, "bias of the norm of the embedding",
     model_vector<&P::embedding_norm, after_weights>, hidden, model_has_norm_bias<&Shape::embedding_norm>},
    {BUNTING_T_POSITIONS, "learned positions", table<&P::positions>, positions, model_has<&Shape::positions>},
    {BUNTING_T_TOKEN_TYPES, "token types", table<&P::token_types>, token_types,
     model_has<&Shape::token_types>},
    {BUNTING_T_LM_HEAD, "vocabulary projection", lm_head, vocab, is_untied},
    {BUNTING_T_LAYER_EMBED, "embedding of layers' inputs", input_matrix<&I::embedding>, vocab, has_inputs},
    {BUNTING_T_LAYER_PROJECTION, "projection to layers' inputs", input_matrix<&I::projection>, layer_inputs,
     has_inputs},
    {BUNTING_T_LAYER_INPUT_NORM, "norm of layers' inputs", input_norm, layer_input, has_inputs},

    {BUNTING_T_ATTN_NORM, "attention norm", vector<&W::attention_norm>, hidden, has_norm<BUNTING_NORM_ATTN>,
     kNormWeights},
    {BUNTING_T_Q, "q", matrix<&W::qkv>, q_rows, has_attention, kQueryOrKey | kGatedHeads},
    {BUNTING_T_K, "k", keys, kv_width, has_keys, kQueryOrKey},
    {BUNTING_T_V, "v", values, kv_width, has_values, kGroupedHeads},
    {BUNTING_T_O, "o", matrix<&W::o>, hidden, has_attention},
    {BUNTING_T_Q_BIAS, "q bias", vector<&W::qkv_bias>, q_width, has_bias<BUNTING_BIAS_QKV>, kQueryOrKey},
    {BUNTING_T_K_BIAS, "k bias", vector<&W::qkv_bias, after_q>, kv_width, has_bias<BUNTING_BIAS_QKV>,
     kQueryOrKey},
    {BUNTING_T_V_BIAS, "v bias", vector<&W::qkv_bias, after_k>, kv_width, has_bias<BUNTING_BIAS_QKV>,
     kGroupedHeads},
    {BUNTING_T_Q_NORM, "q norm", vector<&W::q_norm>, q_norm_width, has_q_norm, kNormWeights},
    {BUNTING_T_K_NORM, "k norm", vector<&W::k_norm>, k_norm_width, has_k_norm, kNormWeights},
    {BUNTING_T_MLP_NORM, "MLP norm", vector<&W::mlp_norm>, hidden, has_norm<BUNTING_NORM_MLP>, kNormWeights},
    {BUNTING_T_GATE, "gate", matrix<&W::gate_up, gate_of_expert>, feed_forward, has_gate, kPerExpert},
    {BUNTING_T_UP, "up", matrix<&W::gate_up, up_of_expert>, feed_forward, has_mlp, kPerExpert},
    {BUNTING_T_DOWN, "down", matrix<&W::down, down_of_expert>, hidden, has_mlp, kPerExpert},
    {BUNTING_T_O_BIAS, "o bias", vector<&W::o_bias>, hidden, has_bias<BUNTING_BIAS_O>},
    {BUNTING_T_GATE_BIAS, "gate bias", vector<&W::gate_up_bias, gate_of_expert>, feed_forward, has_gate_bias,
     kPerExpert},
    {BUNTING_T_UP_BIAS, "up bias", vector<&W::gate_up_bias, up_of_expert>, feed_forward,
     has_bias<BUNTING_BIAS_GATE_UP>, kPerExpert},
    {BUNTING_T_DOWN_BIAS, "down bias", vector<&W::down_bias, down_of_expert>, hidden,
     has_bias<BUNTING_BIAS_DOWN>, kPerExpert},
    {BUNTING_T_ATTN_POST_NORM, "norm after the attention", vector<&W::attention_post_norm>, hidden,
     has_norm<kAnyAttnPost>, kNormWeights},
    {BUNTING_T_MLP_POST_NORM, "norm after the MLP", vector<&W::mlp_post_norm>, hidden, has_norm<kAnyMlpPost>,
     kNormWeights},
    {BUNTING_T_SINKS, "attention sinks", vector<&W::sinks>, query_heads, has_sinks},
    {BUNTING_T_ROUTER, "router", matrix<&W::router>, experts, has_experts},
    {BUNTING_T_ROUTER_BIAS, "router bias", vector<&W::router_bias>, experts, has_bias<BUNTING_BIAS_ROUTER>},
    {BUNTING_T_ROUTER_NORM, "router norm", vector<&W::router_norm>, hidden, has_both},
    {BUNTING_T_EXPERT_SCALES, "scales of experts", vector<&W::expert_scales>, experts, has_both},
    {BUNTING_T_EXPERTS_NORM, "norm before the experts", vector<&W::experts_norm>, hidden, has_both},
    {BUNTING_T_EXPERTS_POST_NORM, "norm after the experts", vector<&W::experts_post_norm>, hidden, has_both},
    {BUNTING_T_BESIDE_POST_NORM, "norm after the MLP beside experts", vector<&W::beside_post_norm>, hidden,
     has_both},
    {BUNTING_T_BESIDE_GATE, "gate beside experts", matrix<&W::beside_gate_up>, beside, has_beside_gate},
    {BUNTING_T_BESIDE_UP, "up beside experts", matrix<&W::beside_gate_up, after_beside_gate>, beside,
     has_beside},
    {BUNTING_T_BESIDE_DOWN, "down beside experts", matrix<&W::beside_down>, hidden, has_beside},
    {BUNTING_T_LAYER_SCALE, "scale", vector<&W::scale>, one, is_scaled},
    {BUNTING_T_INPUT_GATE, "gate of the layer's input", matrix<&W::input_gate>, layer_input, has_inputs},
    {BUNTING_T_INPUT_OUT, "projection of the layer's input", matrix<&W::input_out>, hidden, has_inputs},
    {BUNTING_T_INPUT_POST_NORM, "norm of the layer's input", vector<&W::input_post_norm>, hidden, has_inputs},
    {BUNTING_T_ATTN_NORM_BIAS, "bias of the attention norm", vector<&W::attention_norm, after_weights>,
     hidden, has_norm_bias<BUNTING_NORM_ATTN>},
    {BUNTING_T_MLP_NORM_BIAS, "bias of the MLP norm", vector<&W::mlp_norm, after_weights>, hidden,
     has_norm_bias<BUNTING_NORM_MLP>},
    {BUNTING_T_ATTN_POST_NORM_BIAS, "bias of the norm after the attention",
     vector<&W::attention_post_norm, after_weights>, hidden, has_norm_bias<kAnyAttnPost>},
    {BUNTING_T_MLP_POST_NORM_BIAS, "bias of the norm after the MLP", vector<&W::mlp_post_norm, after_weights>,
     hidden, has_norm_bias<kAnyMlpPost>},
    {BUNTING_T_CHOICE_BIAS, "bias of the choice of experts", vector<&W::choice_bias>, experts,
     has_choice_bias},
    {BUNTING_T_SHARED_GATE, "gate of the shared experts", matrix<&W::shared_gate>, one, has_shared_gate},
    {BUNTING_T_STREAM_IN, "projection to a stream", matrix<&W::stream_in>, hidden, has_stream},
    {BUNTING_T_STREAM_OUT, "projection from a stream", matrix<&W::stream_out>, hidden, has_stream},
    {BUNTING_T_STREAM_ROUTER, "router of streams", layer_table<&W::stream_router, hidden>, streams,
     has_streams},
    {BUNTING_T_STREAM_NORM, "norm of the router of streams", vector<&W::stream_norm>, hidden, has_streams,
     kNormWeights},
    {BUNTING_T_STREAM_PREDICT, "prediction of streams", layer_table<&W::stream_predict, streams>,
     stream_pairs, has_streams},
    {BUNTING_T_STREAM_CORRECT, "correction of streams", layer_table<&W::stream_correct, streams>, streams,
     has_streams},
    {BUNTING_T_STREAM_SCALE, "scale of the first stream", vector<&W::stream_scale>, hidden, has_streams},
    {BUNTING_T_LAUREL_IN, "first projection of LAuReL", matrix<&W::laurel_in>, laurel_rank, has_laurel},
    {BUNTING_T_LAUREL_OUT, "second projection of LAuReL", matrix<&W::laurel_out>, hidden, has_laurel},
    {BUNTING_T_LAUREL_NORM, "norm of LAuReL", vector<&W::laurel_norm>, hidden, has_laurel, kNormWeights},
    {BUNTING_T_HEAD_EMBED_NORM, "norm of the embedding", vector<&W::head_embed_norm>, hidden, is_head,
     kNormWeights},
    {BUNTING_T_HEAD_HIDDEN_NORM, "norm of the hidden state", vector<&W::head_hidden_norm>, hidden, is_head,
     kNormWeights},
    {BUNTING_T_HEAD_PROJECTION, "projection of the head", matrix<&W::head_projection>, hidden, is_head},
    {BUNTING_T_HEAD_NORM, "norm of the head", vector<&W::head_norm>, hidden, is_head, kNormWeights},
    {BUNTING_T_XIELU_ALPHA_P, "alpha_p of xIELU", vector<&W::xielu, number<0>>, one, has_xielu},
    {BUNTING_T_XIELU_ALPHA_N, "alpha_n of xIELU", vector<&W::xielu, number<1>>, one, has_xielu},
    {BUNTING_T_XIELU_BETA, "beta of xIELU", vector<&W::xielu, number<2>>, one, has_xielu},
    {BUNTING_T_XIELU_EPS, "eps of xIELU", vector<&W::xielu, number<3>>, one, has_xielu},
    {BUNTING_T_QUERY_LATENT, "first projection of q", matrix<&W::v>, query_rank, has_query_rank},
    {BUNTING_T_LATENT_KEYS, "keys of latents", matrix<&W::keys>, latent_keys, is_latent, kOfLatent},
    {BUNTING_T_LATENT_VALUES, "values of latents", matrix<&W::values>, latent_values, is_latent, kOfLatent},
    {BUNTING_T_Q_GATE, "gate of the attention", matrix<&W::q_gate>, q_width, has_q_gate, kGatedHeads},
    {BUNTING_T_STATE_Q, "q of the state", matrix<&W::state_in>, state_keys, has_state, kStateHeads},
    {BUNTING_T_STATE_K, "k of the state", matrix<&W::state_in, after_state_q>, state_keys, has_state,
     kStateHeads},
    {BUNTING_T_STATE_V, "v of the state", matrix<&W::state_in, after_state_k>, state_values, has_state,
     kStateHeads},
    {BUNTING_T_STATE_Z, "z of the state", state_z, state_values, has_state_heads, kStateHeads},
    {BUNTING_T_STATE_A, "a of the state", matrix<&W::state_gates>, state_heads, has_state_heads, kGateHeads},
    {BUNTING_T_STATE_B, "b of the state", matrix<&W::state_gates, after_state_a>, state_heads, is_delta,
     kGateHeads},
    {BUNTING_T_STATE_CONV_Q, "convolution of q", conv<>, conv_queries, has_state},
    {BUNTING_T_STATE_CONV_K, "convolution of k", conv<after_conv_q>, state_keys, has_state_heads},
    {BUNTING_T_STATE_CONV_V, "convolution of v", conv<after_conv_k>, state_values, has_state_heads},
    {BUNTING_T_STATE_CONV_Q_BIAS, "bias of the convolution of q", vector<&W::state_conv_bias>, conv_queries,
     has_state_option<BUNTING_STATE_CONV_BIAS>},
    {BUNTING_T_STATE_CONV_K_BIAS, "bias of the convolution of k", vector<&W::state_conv_bias, after_conv_q>,
     state_keys, has_conv_k_bias},
    {BUNTING_T_STATE_CONV_V_BIAS, "bias of the convolution of v", vector<&W::state_conv_bias, after_conv_k>,
     state_values, has_conv_k_bias},
    {BUNTING_T_STATE_DT_BIAS, "bias of the state's time steps", vector<&W::state_dt_bias>, state_heads,
     has_state_heads},
    {BUNTING_T_STATE_A_LOG, "decay of the state", vector<&W::state_decay>, state_heads, has_state_heads,
     kDecay},
    {BUNTING_T_STATE_D, "skip factors of the state", vector<&W::state_skip>, state_heads,
     has_state_option<BUNTING_STATE_SKIP>},
    {BUNTING_T_STATE_NORM, "norm of the state's output", vector<&W::state_norm>, state_norm, has_state_norm,
     kNormWeights},
    {BUNTING_T_STATE_O, "o of the state", matrix<&W::state_o>, hidden, has_state},
};

}  // namespace

TensorKind const* tensor_kind(int32_t tensor) {
  if (tensor < 0) return nullptr;
  for (TensorKind const& row : kKinds)
    if (row.kind == tensor % BUNTING_EXPERT) return &row;
  return nullptr;
}

TensorTarget target_of(TensorKind const& kind, TensorPlace const& place) {
  int32_t const experts = kind.traits & kPerExpert && has_experts(place) ? place.shape().experts : 1;
  if (place.expert >= experts || !kind.exists(place)) return {};
  TensorStart const start = kind.where(place);
  int64_t const size = kind.size(place);
  if (!start.matrix && start.cols > 0) return {size, start.cols, {}, start.vector};
  if (!start.matrix) return {1, size, {}, start.vector};
  return {size, start.matrix->k, panels_of(*start.matrix, start.first_row / kPanel, size), nullptr};
}

PackedMatrix panels_of(PackedMatrix const& whole, int64_t begin, int64_t rows) {
  PackedMatrix part = whole;
  part.n = rows;
  if (whole.data) part.data = static_cast<char*>(whole.data) + begin * whole.panel_bytes();
  return part;
}

}  // namespace bunting
