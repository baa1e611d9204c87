#include "cpu/workspace.h"

#include <algorithm>

#include "cpu/experts.h"
#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/parallel_gemm.h"
#include "host/memory_region.h"

namespace bunting {
namespace {

// True if any layer has a part whose result a GEMM cannot add to x directly.
bool has_deltas(Model const& model) {
  constexpr int32_t kPostNorms = BUNTING_NORM_ATTN_POST | BUNTING_NORM_MLP_POST;
  if (model.shape().residual_scale != 1 || model.shape().layer_inputs > 0) return true;
  for (int32_t i = 0; i < model.shape().layers; i++)
    if (model.layer_shape(i).parallel || model.has_shared(i) || (model.layer_shape(i).norms & kPostNorms))
      return true;
  return false;
}

bool has_gated_output(Model const& model) {
  for (int32_t i = 0; i < model.shape().layers; i++)
    if (model.layer_shape(i).gated_output) return true;
  return false;
}

// Bytes of `rows` rows in the input type of a matrix.
size_t rows_bytes(PackedMatrix const& w, size_t rows) {
  return rows * size_t((w.grouped() ? w.kp() / kGroup : row_stride(w.dtype, w.k)) * input_bytes(w.dtype));
}

}  // namespace

AttentionShape attention_shape(Model const& model, int32_t layer) {
  bunting_layer_shape const& has = model.layer_shape(layer);
  return {model.shape().query_heads,
          has.kv_heads,
          has.head_size,
          has.sliding_window,
          model.shape().context_max,
          model.is_bidirectional(),
          has.chunked != 0};
}

LatentWidths::LatentWidths(Model const& model) {
  bunting_model_shape const& shape = model.shape();
  int64_t const query_heads = shape.query_heads;
  latents = shape.query_rank + shape.head_size;
  queries = query_heads * (shape.key_size + shape.head_size - shape.latent_rank);
  nope_of_head = round_up(shape.key_size, kKAlign);
  nope = query_heads * nope_of_head;
  mixed = query_heads * shape.value_size;
}

size_t attention_scratch(Model const& model) {
  return size_t(round_up(int64_t(attention_scratch_bytes(model.shape().head_size)), 64));
}

size_t sample_scratch(Model const& model) {
  return size_t(round_up(int64_t(sample_scratch_bytes(model.shape().vocab)), 64));
}

void Workspace::place_states(Model const& model, size_t tokens, Carver& carver) {
  state_conv.assign(size_t(model.shape().layers), nullptr);
  if (!model.has_states()) return;
  int64_t const values = model.state_value_width();
  state_in = carver.take<float>(tokens * size_t(model.state_in_width()));
  state_out = carver.take<float>(tokens * size_t(model.state_out_width()));
  state_mixed =
      carver.take<char>(tokens * size_t(row_stride(model.dtype(), values)) * dtype_bytes(model.dtype()));
  for (int32_t i = 0; i < model.shape().layers; i++)
    if (model.has_state(i))
      state_conv[size_t(i)] = carver.take<float>(size_t(model.conv_channels() * model.shape().state_conv));
  if (!model.has_state_heads()) return;
  state_gates = carver.take<float>(tokens * size_t(2 * model.state_b_row()));
  state_decay = carver.take<float>(tokens * size_t(model.shape().state_heads));
  state_write = carver.take<float>(tokens * size_t(model.shape().state_heads));
  state_products = carver.take<float>(tokens * size_t(model.shape().state_key_heads));
}

size_t Workspace::place(Model const& model, bunting_engine_limits const& limits, char* base) {
  Carver carver(base);
  size_t const tokens = size_t(limits.step_tokens_max), threads = size_t(limits.threads);
  auto const operand = [&](int64_t k) {
    return carver.take<char>(tokens * size_t(row_stride(model.dtype(), k)) * dtype_bytes(model.dtype()));
  };
  int64_t const hidden = model.shape().hidden;
  x = carver.take<float>(tokens * size_t(round_up(hidden, kPanel)));
  normed = operand(hidden);
  qkv = carver.take<float>(tokens * size_t(model.qkv_width()));
  angles.clear();
  for (RopeTable const& rope : model.ropes()) {
    size_t const count = tokens * size_t(rope.dimensions / 2);
    angles.push_back({carver.take<float>(count), carver.take<float>(count)});
  }
  attended = operand(model.query_width());
  if (model.is_latent()) {
    LatentWidths const widths(model);
    latents = carver.take<float>(tokens * size_t(widths.latents));
    heads = carver.take<float>(tokens * size_t(std::max(widths.queries, widths.mixed)));
    query_latents = operand(model.shape().query_rank);
    nope = operand(widths.nope);
    mixed = operand(widths.mixed);
  }
  if (model.has_beside()) both = carver.take<float>(tokens * size_t(round_up(hidden, kPanel)));
  if (int64_t const inputs = model.shape().layer_inputs; inputs > 0) {
    size_t const all = tokens * size_t(model.shape().layers * inputs);
    layer_inputs = carver.take<float>(all);
    layer_projections = carver.take<float>(all);
    input_gates = carver.take<float>(tokens * size_t(2 * inputs));
    gated_inputs = operand(inputs);
  }
  if (has_deltas(model)) delta = carver.take<float>(tokens * size_t(round_up(hidden, kPanel)));
  size_t const streams_floats = tokens * size_t(round_up(hidden, kPanel));
  if (model.streams() > 1) streams = carver.take<float>(size_t(model.streams()) * streams_floats);
  int64_t rank = 0, sparse = 0;
  for (int32_t layer = 0; layer < model.shape().layers; layer++) {
    rank = std::max<int64_t>(rank, model.layer_shape(layer).laurel_rank);
    if (model.layer_shape(layer).sparse_gate) sparse = std::max(sparse, model.padded_feed_forward(layer));
  }
  if (rank > 0) {
    laurel = carver.take<float>(streams_floats);
    laurel_ranks = carver.take<float>(tokens * size_t(rank));
    laurel_operand = operand(rank);
  }
  sparse_gates = carver.take<float>(size_t(kSparseRows * 2 * sparse));
  gate_up = carver.take<float>(threads * size_t(kGateScratch));
  activated = operand(model.shape().feed_forward);
  groups = carver.take<InputGroup>(tokens * size_t(model.grouped_width() / kGroup));
  activated_groups = carver.take<InputGroup>(tokens * size_t(model.grouped_width() / kGroup));
  if (model.has_experts() || model.has_state_heads())
    router_input = carver.take<float>(tokens * size_t(row_stride(Dtype::f32, hidden)));
  place_states(model, tokens, carver);
  if (has_gated_output(model)) q_gates = carver.take<float>(tokens * size_t(model.query_width()));
  if (model.has_experts()) {
    size_t const pairs = tokens * size_t(model.shape().experts_used);
    size_t input_bytes = 0, activated_bytes = 0;
    for (int32_t layer = 0; layer < model.shape().layers; layer++) {
      if (!model.has_experts(layer)) continue;
      input_bytes = std::max(input_bytes, rows_bytes(model.layer(layer).gate_up, pairs));
      activated_bytes = std::max(activated_bytes, rows_bytes(model.layer(layer).down, pairs));
    }
    shared_gates = carver.take<float>(tokens);
    router_logits = carver.take<float>(tokens * size_t(model.shape().experts));
    expert_input = carver.take<char>(input_bytes);
    expert_activated = carver.take<char>(activated_bytes);
    expert_scratch = carver.take<float>(threads * size_t(kExpertScratch));
  }
  if (limits.drafts_max > 0 && model.has_head()) {
    head_hidden = carver.take<float>(tokens * size_t(round_up(hidden, kPanel)));
    head_input = carver.take<float>(tokens * size_t(2 * hidden));
    head_operand = operand(2 * hidden);
    head_logits = carver.take<float>(size_t(limits.step_chunks_max) * size_t(model.shape().vocab));
  }
  attention_states = carver.take<float>(size_t(limits.step_chunks_max) * size_t(model.shape().query_heads) *
                                        size_t(attention_state_floats(model.shape().head_size)));
  size_t part_floats = 0;
  for (int32_t layer = 0; layer < model.shape().layers; layer++) {
    if (!model.has_attention(layer)) continue;
    AttentionShape const of = attention_shape(model, layer);
    part_floats = std::max(
        part_floats, size_t(AttentionPlan::part_rows(of)) * size_t(attention_sums_floats(of.head_size)));
  }
  attention_parts = carver.take<float>(part_floats);
  attention_scratch = carver.take<char>(threads * bunting::attention_scratch(model));
  sample_scratch = carver.take<char>(threads * bunting::sample_scratch(model));
  logits = carver.take<float>(size_t(limits.step_draws_max) * size_t(model.shape().vocab));
  return carver.used();
}

}  // namespace bunting
