#include "cpu/forward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "boundary/error.h"
#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/parallel_gemm.h"

namespace bunting {

namespace {

// What work takes on one thread, in ns, as far as it matters for sharing it: within a factor of two on
// today's machines.
constexpr double kPieceNs = 20'000;      // shorter work is done before another core has fetched its share
constexpr double kElementNs = 0.2;       // of a loop over activations
constexpr double kByteNs = 0.05;         // reading a byte of weights
constexpr double kWeightRowNs = 0.007;   // multiplying it with one row
constexpr double kLogitNs = 5;           // of a draw
constexpr int64_t kChoiceElements = 10;  // of a loop over activations, as one logit of a router
constexpr int64_t kFewRows = 32, kFewRowsPieces = 4;

AttentionShape attention_shape(Model const& model, int32_t layer) {
  bunting_layer_shape const& has = model.layer_shape(layer);
  return {model.shape().query_heads, has.kv_heads, has.head_size, has.sliding_window,
          model.shape().context_max};
}

// Whether any layer has a part whose result cannot be added to x as it is.
bool has_deltas(Model const& model) {
  constexpr int32_t kPostNorms = BUNTING_NORM_ATTN_POST | BUNTING_NORM_MLP_POST;
  if (model.shape().residual_scale != 1 || model.shape().layer_inputs > 0) return true;
  for (int32_t i = 0; i < model.shape().layers; i++)
    if (model.layer_shape(i).parallel || (model.layer_shape(i).norms & kPostNorms)) return true;
  return false;
}

// Room for `rows` rows that are multiplied with a matrix.
size_t rows_bytes(PackedMatrix const& w, size_t rows) {
  return rows * size_t((w.grouped() ? w.kp() / kGroup : row_stride(w.dtype, w.k)) * input_bytes(w.dtype));
}

// As the experts of a layer read rows and hand them on.
Operand expert_rows(PackedMatrix const& w, char* rows, std::atomic<bool>& outliers) {
  outliers = false;
  return {rows, w.grouped() ? w.kp() / kGroup : row_stride(w.dtype, w.k), w.dtype, &outliers};
}

RoutingRule routing_rule(Model const& model) {
  bunting_model_shape const& shape = model.shape();
  if (!model.has_experts()) return {};
  return {shape.experts, shape.experts_used, shape.router == BUNTING_ROUTER_CHOSEN};
}

size_t attention_scratch(Model const& model) {
  return size_t(round_up(int64_t(attention_scratch_bytes(model.shape().head_size)), 64));
}

size_t sample_scratch(Model const& model) {
  return size_t(round_up(int64_t(sample_scratch_bytes(model.shape().vocab)), 64));
}

size_t result_row_words(bunting_engine_limits const& limits) {
  return BUNTING_RESULT_ROW_WORDS + 2 * size_t(limits.top_logprobs_max);
}

size_t pages_bytes(Model const& model, bunting_engine_limits const& limits) {
  size_t bytes;
  if (__builtin_mul_overflow(size_t(model.page_bytes()), size_t(limits.pages), &bytes))
    fail(BUNTING_NO_MEMORY, "%d KV pages of %llu bytes cannot be addressed", limits.pages,
         (unsigned long long)model.page_bytes());
  return bytes;
}

}  // namespace

void check_limits(bunting_engine_limits const& limits) {
  auto const check = [](char const* name, int32_t value, int32_t low, int32_t high) {
    if (value < low || value > high)
      fail(BUNTING_INVALID, "engine limits: %s is %d, allowed are %d to %d", name, value, low, high);
  };
  check("threads", limits.threads, 1, 1024);
  check("pages", limits.pages, 1, 1 << 28);
  check("page_tokens", limits.page_tokens, kPageTokens, kPageTokens);
  check("step_tokens_max", limits.step_tokens_max, 1, 1 << 20);
  check("step_chunks_max", limits.step_chunks_max, 1, 1 << 16);
  check("step_draws_max", limits.step_draws_max, 1, 1 << 20);
  check("step_hidden_max", limits.step_hidden_max, 0, 1 << 20);
  check("top_logprobs_max", limits.top_logprobs_max, 0, 1024);
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
  attended = operand(model.query_width());
  if (model.has_both()) both = carver.take<float>(tokens * size_t(round_up(hidden, kPanel)));
  if (int64_t const inputs = model.shape().layer_inputs; inputs > 0) {
    size_t const all = tokens * size_t(model.shape().layers * inputs);
    layer_inputs = carver.take<float>(all);
    layer_projections = carver.take<float>(all);
    input_gates = carver.take<float>(tokens * size_t(2 * inputs));
    gated_inputs = operand(inputs);
  }
  if (has_deltas(model)) delta = carver.take<float>(tokens * size_t(round_up(hidden, kPanel)));
  gate_up = carver.take<float>(threads * size_t(kGateScratch));
  activated = operand(model.shape().feed_forward);
  groups = carver.take<InputGroup>(tokens * size_t(model.grouped_width() / kGroup));
  activated_groups = carver.take<InputGroup>(tokens * size_t(model.grouped_width() / kGroup));
  if (model.has_experts()) {
    size_t const pairs = tokens * size_t(model.shape().experts_used);
    size_t input_bytes = 0, activated_bytes = 0;
    for (int32_t layer = 0; layer < model.shape().layers; layer++) {
      if (!model.has_experts(layer)) continue;
      input_bytes = std::max(input_bytes, rows_bytes(model.layer(layer).gate_up, pairs));
      activated_bytes = std::max(activated_bytes, rows_bytes(model.layer(layer).down, pairs));
    }
    router_input = carver.take<float>(tokens * size_t(row_stride(Dtype::f32, hidden)));
    router_logits = carver.take<float>(tokens * size_t(model.shape().experts));
    expert_input = carver.take<char>(input_bytes);
    expert_activated = carver.take<char>(activated_bytes);
    expert_scratch = carver.take<float>(threads * size_t(kExpertScratch));
  }
  attention_states = carver.take<float>(size_t(limits.step_chunks_max) * size_t(model.shape().query_heads) *
                                        size_t(attention_state_floats(model.shape().head_size)));
  size_t part_floats = 0;
  for (int32_t layer = 0; layer < model.shape().layers; layer++) {
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

Forward::Forward(Model const& model, bunting_engine_limits const& limits)
    : model_(model),
      kernels_(model.kernels()),
      limits_(limits),
      hidden_stride_(round_up(model.shape().hidden, kPanel)),
      normed_stride_(row_stride(model.dtype(), model.shape().hidden)),
      attended_stride_(row_stride(model.dtype(), model.query_width())),
      activated_stride_(row_stride(model.dtype(), model.shape().feed_forward)),
      pages_region_(pages_bytes(model, limits), "KV pages"),
      work_region_(Workspace().place(model, limits, nullptr), "the workspaces of a step"),
      expert_plan_(routing_rule(model), limits.step_tokens_max),
      pool_(limits.threads, ThreadPool::Cores::own) {
  work_.place(model, limits, work_region_.data());
  std::vector<AttentionShape> shapes;
  size_t pages_at = 0;
  for (int32_t layer = 0; layer < model.shape().layers; layer++) {
    pages_at_.push_back(pages_at);
    if (model.has_keys(layer)) {
      pages_at += size_t(model.page_bytes(layer)) * size_t(limits.pages);
      last_with_keys_ = layer;
    }
    AttentionShape const shape = attention_shape(model, layer);
    size_t const known = size_t(std::find(shapes.begin(), shapes.end(), shape) - shapes.begin());
    plan_of_layer_.push_back(known);
    if (known < shapes.size()) continue;
    shapes.push_back(shape);
    attention_plans_.emplace_back(shape, limits.step_chunks_max, limits.step_tokens_max, limits.threads);
  }
}

void Forward::run(StepPlan const& plan, void* result) {
  auto const started = std::chrono::steady_clock::now();
  ThreadPool::Step const step(pool_);
  populate_ahead(plan);
  copy_pages(plan);
  for (AttentionPlan& attention_plan : attention_plans_) attention_plan.make(plan);
  share_rows(plan.tokens, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.embed(work_.x, hidden_stride_, model_.embedding(), plan.token, begin, end);
    if (float const scale = model_.shape().embedding_scale; scale != 1)
      kernels_.scale_and_cap(work_.x, hidden_stride_, model_.shape().hidden, scale, 0, begin, end);
  });
  if (model_.shape().layer_inputs > 0) make_layer_inputs(plan);
  int32_t const last = model_.shape().layers - 1;
  for (int32_t layer = 0; layer <= last && plan.tokens > 0; layer++) {
    project_and_append(plan, layer);
    // What follows the last layer that appends is of no use to later steps.
    if (plan.rows == 0 && layer >= last_with_keys_) break;
    attend(plan, layer);
    if (layer == last) keep_wanted_rows(plan);
    finish_layer(layer, layer == last ? plan.rows : plan.tokens);
  }
  uint32_t* const results = static_cast<uint32_t*>(result) + sizeof(bunting_step_result) / 4;
  if (plan.hidden() > 0) {
    write_hidden(plan, reinterpret_cast<float*>(results + size_t(plan.draws) * result_row_words(limits_)));
    keep_drawn_rows(plan);
  }
  if (plan.draws > 0) sample(plan, results);
  std::chrono::duration<float, std::milli> const elapsed = std::chrono::steady_clock::now() - started;
  draws_ = plan.draws;
  bunting_step_result const header{plan.draws, elapsed.count(), plan.hidden(), 0};
  std::memcpy(result, &header, sizeof header);
}

KvLayer Forward::kv_layer(int32_t layer) const {
  bunting_layer_shape const& has = model_.layer_shape(layer);
  int32_t const source = model_.kv_layer(layer);
  return {model_.kv_dtype(), has.kv_heads, has.head_size, pages_region_.data() + pages_at_[size_t(source)],
          size_t(model_.page_bytes(source))};
}

// The system gives physical memory when it is first touched, a huge page at a time, and all layers come to
// their next one in the same step, which then takes tens of milliseconds longer. So while pages of one part
// of each layer are in use, each step takes memory for the next part of a few layers: of enough to be ahead
// of its tokens.
void Forward::populate_ahead(StepPlan const& plan) {
  int32_t highest = -1;
  for (int32_t i = 0; i < plan.tokens; i++) highest = std::max(highest, plan.token_page[size_t(i)]);
  size_t page_bytes = 0;
  for (int32_t layer = 0; layer < model_.shape().layers; layer++)
    page_bytes = std::max(page_bytes, kv_layer(layer).page_bytes);
  int32_t const part = int32_t(std::max<size_t>(1, kHugePage / page_bytes)), layers = model_.shape().layers;
  if (highest >= populated_pages_) {
    populated_pages_ = (highest / part + 1) * part;
    populated_layers_ = 0;
  }
  if (populated_pages_ >= limits_.pages) return;
  int64_t const part_tokens = int64_t(part) * kPageTokens;
  int64_t const enough = (int64_t(layers) * plan.tokens + part_tokens - 1) / part_tokens;
  int32_t const due = int32_t(std::min<int64_t>(layers, populated_layers_ + enough));
  for (; populated_layers_ < due; populated_layers_++) {
    if (!model_.has_keys(populated_layers_)) continue;
    size_t const bytes = kv_layer(populated_layers_).page_bytes, first = size_t(populated_pages_);
    size_t const count = std::min(size_t(part), size_t(limits_.pages) - first);
    pages_region_.populate(pages_at_[size_t(populated_layers_)] + first * bytes, count * bytes);
  }
}

void Forward::copy_pages(StepPlan const& plan) {
  if (plan.moves == 0) return;
  pool_.run(model_.shape().layers, [&](int64_t begin, int64_t end) {
    for (int64_t layer = begin; layer < end; layer++) {
      if (!model_.has_keys(int32_t(layer))) continue;
      KvLayer const kv = kv_layer(int32_t(layer));
      for (int32_t i = 0; i < plan.moves; i++)
        copy_page(kv, plan.move[i].from, plan.move[i].to, plan.move[i].count);
    }
  });
}

void Forward::project_and_append(StepPlan const& plan, int32_t layer) {
  LayerWeights const& weights = model_.layer(layer);
  auto const project = [&](PackedMatrix const& w, int64_t column) {
    multiply({.w = &w,
              .bias = weights.qkv_bias ? weights.qkv_bias + column : nullptr,
              .y = work_.qkv + column,
              .ldy = model_.qkv_width(),
              .tokens = plan.tokens},
             normalise(weights.attention_norm, plan.tokens, w));
  };
  project(weights.qkv, 0);
  if (weights.v.n > 0) project(weights.v, weights.qkv.n);
  RopeTable const* const rope = model_.rope(layer);
  bunting_layer_shape const& has = model_.layer_shape(layer);
  RopeAppend append{.qkv = work_.qkv,
                    .ldqkv = model_.qkv_width(),
                    .query_heads = model_.shape().query_heads,
                    .q_norm = weights.q_norm,
                    .k_norm = weights.k_norm,
                    .has_wide_norms = has.qk_norm == BUNTING_QK_NORM_WIDE,
                    .values_are_keys = (has.values & BUNTING_VALUES_KEYS) != 0,
                    .has_value_norm = (has.values & BUNTING_VALUES_NORMED) != 0,
                    .norm_epsilon = model_.shape().norm_epsilon,
                    .rotated = rope ? rope->dimensions : 0,
                    .cos = rope ? rope->cos : nullptr,
                    .sin = rope ? rope->sin : nullptr,
                    .query_scale = rope ? rope->query_scale : nullptr,
                    .positions = plan.position.data(),
                    .token_pages = plan.token_page.data(),
                    .kv = kv_layer(layer)};
  if (!model_.has_keys(layer)) append.kv.pages = nullptr;
  share_rows(plan.tokens, model_.qkv_width(layer),
             [&](int64_t begin, int64_t end) { kernels_.rope_append(append, begin, end); });
}

void Forward::attend(StepPlan const& plan, int32_t layer) {
  AttentionPlan const& attention_plan = attention_plans_[plan_of_layer_[size_t(layer)]];
  Attention const attention{.q = work_.qkv,
                            .ldq = model_.qkv_width(),
                            .kv = kv_layer(layer),
                            .chunks = plan.chunk.data(),
                            .items = attention_plan.items(),
                            .query_heads = model_.shape().query_heads,
                            .sliding_window = model_.layer_shape(layer).sliding_window,
                            .scale = model_.shape().attention_scale,
                            .cap = model_.shape().attention_cap,
                            .sinks = model_.layer(layer).sinks,
                            .out = work_.attended,
                            .ldo = attended_stride_,
                            .states = work_.attention_states,
                            .parts = work_.attention_parts,
                            .scratch = nullptr};
  size_t const scratch_bytes = attention_scratch(model_);
  for (int32_t phase = 0; phase < attention_plan.phases(); phase++) {
    pool_.run(attention_plan.pieces(phase), 1, [&](int64_t begin, int64_t end, int thread) {
      Attention mine = attention;
      mine.scratch = work_.attention_scratch + size_t(thread) * scratch_bytes;
      kernels_.attention(mine, attention_plan.piece_begin(phase, int32_t(begin)),
                         attention_plan.piece_begin(phase, int32_t(end)));
    });
  }
}

// What layers are given of each token beside x, which is the embedding by now (engine.h, layer_inputs).
void Forward::make_layer_inputs(StepPlan const& plan) {
  LayerInputWeights const& weights = model_.layer_inputs();
  bunting_model_shape const& shape = model_.shape();
  int64_t const inputs = shape.layer_inputs, all = shape.layers * inputs;
  multiply({.w = &weights.projection, .y = work_.layer_projections, .ldy = all, .tokens = plan.tokens},
           normalise(nullptr, plan.tokens, weights.projection));
  // The norm of what is divided by sqrt(H), as one of what is not.
  Norm const norm{NormKind::rms, weights.norm, shape.norm_epsilon * float(shape.hidden)};
  float const half = std::sqrt(0.5f);
  share_rows(plan.tokens, all, [&](int64_t begin, int64_t end) {
    kernels_.embed(work_.layer_inputs, all, weights.embedding, plan.token, begin, end);
    kernels_.scale_and_cap(work_.layer_inputs, all, all, std::sqrt(float(inputs)) * half, 0, begin, end);
    kernels_.add_normed(work_.layer_inputs, inputs, work_.layer_projections, inputs, norm, half, inputs,
                        begin * shape.layers, end * shape.layers);
  });
}

// x += norm(out(activation(gate(x)) . input)) of the first `rows` rows.
void Forward::add_layer_input(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const inputs = model_.shape().layer_inputs, all = model_.shape().layers * inputs;
  multiply({.w = &weights.input_gate, .y = work_.input_gates, .ldy = 2 * inputs, .tokens = rows},
           normalise(nullptr, rows, weights.input_gate));
  Operand const gated{work_.gated_inputs, row_stride(model_.dtype(), inputs), model_.dtype()};
  share_rows(rows, inputs, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      std::memcpy(work_.input_gates + row * 2 * inputs + inputs,
                  work_.layer_inputs + row * all + layer * inputs, size_t(inputs) * sizeof(float));
    kernels_.gate(gated, work_.input_gates, 2 * inputs, inputs, Activation(model_.shape().activation), begin,
                  end);
  });
  multiply({.w = &weights.input_out, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows}, gated);
  add_normed(work_.x, work_.delta, weights.input_post_norm, 1, rows);
}

// Moves the wanted rows of x and of the attention's output to the front; token rows rise, so nothing is
// overwritten before it is read.
void Forward::keep_wanted_rows(StepPlan const& plan) {
  size_t const attended_bytes = size_t(attended_stride_) * dtype_bytes(model_.dtype());
  size_t const hidden_bytes = size_t(hidden_stride_) * sizeof(float);
  // Of the inputs of layers the last one's are read yet.
  size_t const inputs = size_t(model_.shape().layer_inputs), all = size_t(model_.shape().layers) * inputs;
  for (int32_t r = 0; r < plan.rows; r++) {
    size_t const to = size_t(r), from = size_t(plan.row[to].token_row);
    if (to == from) continue;
    std::memcpy(work_.x + to * size_t(hidden_stride_), work_.x + from * size_t(hidden_stride_), hidden_bytes);
    std::memcpy(work_.attended + to * attended_bytes, work_.attended + from * attended_bytes, attended_bytes);
    if (inputs > 0)
      std::memcpy(work_.layer_inputs + to * all + all - inputs,
                  work_.layer_inputs + from * all + all - inputs, inputs * sizeof(float));
  }
}

void Forward::finish_layer(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  bool const is_parallel = model_.layer_shape(layer).parallel;
  if (is_parallel)  // x stays what it was until the MLP has read it
    multiply(
        {.w = &weights.o, .bias = weights.o_bias, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows},
        attended(weights.o, rows));
  else
    add(weights.o, weights.o_bias, weights.attention_post_norm, attended(weights.o, rows), rows);
  if (model_.has_both(layer)) {
    add_both(layer, rows);
  } else if (model_.has_experts(layer)) {
    add_experts(layer, rows, weights.mlp_norm, work_.x, model_.shape().residual_scale);
  } else {
    Operand const activated = multiply_gated(normalise(weights.mlp_norm, rows, weights.gate_up),
                                             weights.gate_up, weights.gate_up_bias, weights.down, rows);
    if (is_parallel) add_delta(nullptr, rows);
    add(weights.down, weights.down_bias, weights.mlp_post_norm, activated, rows);
  }
  if (model_.shape().layer_inputs > 0) add_layer_input(layer, rows);
  if (weights.scale)
    share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
      kernels_.scale_and_cap(work_.x, hidden_stride_, model_.shape().hidden, *weights.scale, 0, begin, end);
    });
}

// x += residual_scale * norm(norm(what the MLP makes of the first `rows` rows) + norm(what experts make)).
void Forward::add_both(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  Operand const activated = multiply_gated(normalise(weights.mlp_norm, rows, weights.beside_gate_up),
                                           weights.beside_gate_up, nullptr, weights.beside_down, rows);
  multiply({.w = &weights.beside_down, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows}, activated);
  size_t const bytes = size_t(rows * hidden_stride_) * sizeof(float);
  std::memset(work_.both, 0, bytes);
  add_normed(work_.both, work_.delta, weights.beside_post_norm, 1, rows);
  std::memset(work_.delta, 0, bytes);
  add_experts(layer, rows, weights.experts_norm, work_.delta, 1);
  add_normed(work_.both, work_.delta, weights.experts_post_norm, 1, rows);
  add_normed(work_.x, work_.both, weights.mlp_post_norm, model_.shape().residual_scale, rows);
}

// to += scale * what the experts make of the first `rows` rows, by way of `norm`.
void Forward::add_experts(int32_t layer, int64_t rows, float const* norm, float* to, float scale) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const hidden = model_.shape().hidden, experts = model_.shape().experts;
  Operand const input{work_.router_input, row_stride(Dtype::f32, hidden), Dtype::f32};
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(input, work_.x, hidden_stride_, norm_by(weights.router_norm ? weights.router_norm : norm),
                  hidden, begin, end);
  });
  multiply({.w = &weights.router,
            .bias = weights.router_bias,
            .y = work_.router_logits,
            .ldy = experts,
            .tokens = rows},
           input);
  share_rows(rows, kChoiceElements * experts, [&](int64_t begin, int64_t end) {
    expert_plan_.choose(work_.router_logits, experts, weights.expert_scales, begin, end);
  });
  expert_plan_.group(rows);
  Operand const x = normalise(norm, rows, weights.gate_up);
  Operand gathered = x;
  gathered.rows = work_.expert_input;
  parallel_experts(pool_, kernels_,
                   {.plan = &expert_plan_,
                    .x = x,
                    .gate_up = &weights.gate_up,
                    .down = &weights.down,
                    .gate_up_bias = weights.gate_up_bias,
                    .down_bias = weights.down_bias,
                    .gathered = gathered,
                    .activated = expert_rows(weights.down, work_.expert_activated, activated_has_outliers_),
                    .y = to,
                    .ldy = hidden_stride_,
                    .hidden = hidden,
                    .activation = Activation(model_.shape().activation),
                    .residual_scale = scale,
                    .scratch = work_.expert_scratch});
}

// x += residual_scale * norm(x * w + bias), of the first `rows` rows.
void Forward::add(PackedMatrix const& w, float const* bias, float const* post_norm, Operand const& x,
                  int64_t rows) {
  bool const is_plain = !post_norm && model_.shape().residual_scale == 1;
  multiply({.w = &w,
            .bias = bias,
            .y = is_plain ? work_.x : work_.delta,
            .ldy = hidden_stride_,
            .tokens = rows,
            .accumulate = is_plain},
           x);
  if (!is_plain) add_delta(post_norm, rows);
}

void Forward::add_delta(float const* post_norm, int64_t rows) {
  add_normed(work_.x, work_.delta, post_norm, model_.shape().residual_scale, rows);
}

// to += scale * norm(from), of the first `rows` rows.
void Forward::add_normed(float* to, float const* from, float const* norm, float scale, int64_t rows) {
  int64_t const hidden = model_.shape().hidden;
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.add_normed(to, hidden_stride_, from, hidden_stride_, norm_by(norm), scale, hidden, begin, end);
  });
}

Norm Forward::norm_by(float const* weight) const {
  bunting_model_shape const& shape = model_.shape();
  return {weight ? NormKind(shape.norm) : NormKind::none, weight, shape.norm_epsilon};
}

// norm(x) of the wanted rows, which lead x by now, into `hidden` [hidden, H].
void Forward::write_hidden(StepPlan const& plan, float* hidden) {
  int64_t const width = model_.shape().hidden;
  share_rows(plan.rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      WantedRow const& row = plan.row[size_t(r)];
      if (row.is_draw) continue;
      Operand const to{hidden + row.index * width, width, Dtype::f32};
      kernels_.norm(to, work_.x + r * hidden_stride_, hidden_stride_, norm_by(model_.final_norm()), width, 0,
                    1);
    }
  });
}

// Of the wanted rows of x, those to draw from move to the front.
void Forward::keep_drawn_rows(StepPlan const& plan) {
  for (int32_t r = 0; r < plan.rows; r++) {
    WantedRow const& row = plan.row[size_t(r)];
    if (row.is_draw && row.index != r)
      std::memcpy(work_.x + row.index * hidden_stride_, work_.x + r * hidden_stride_,
                  size_t(hidden_stride_) * sizeof(float));
  }
}

// Logits of the rows to draw from, which lead x by now, then one draw each into `results`.
void Forward::sample(StepPlan const& plan, uint32_t* results) {
  int32_t const vocab = model_.shape().vocab;
  PackedMatrix const& projection = model_.vocabulary_projection();
  multiply({.w = &projection, .y = work_.logits, .ldy = vocab, .tokens = plan.draws},
           normalise(model_.final_norm(), plan.draws, projection));
  float const scale = model_.shape().logit_scale, cap = model_.shape().logit_cap;
  if (scale != 1 || cap > 0)
    share_rows(plan.draws, vocab, [&](int64_t begin, int64_t end) {
      kernels_.scale_and_cap(work_.logits, vocab, vocab, scale, cap, begin, end);
    });
  size_t const row_words = result_row_words(limits_);
  size_t const scratch_bytes = sample_scratch(model_);
  double const draws_ns = kLogitNs * double(plan.draws) * double(vocab);
  pool_.run(plan.draws, grain(plan.draws, draws_ns), [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; r++) {
      uint32_t* const words = results + size_t(r) * row_words;
      int32_t* const top = reinterpret_cast<int32_t*>(words + BUNTING_RESULT_ROW_WORDS);
      SampleResult const drawn =
          kernels_.sample(plan.draw[size_t(r)], work_.logits + size_t(r) * size_t(vocab), vocab,
                          work_.sample_scratch + size_t(thread) * scratch_bytes, top);
      static_assert(sizeof drawn == 4 * BUNTING_RESULT_ROW_WORDS,
                    "a result row begins with status, token, logprob, count");
      std::memcpy(words, &drawn, sizeof drawn);
    }
  });
}

// Where a matrix's operand goes: groups, or `plain` numbers of the model's type.
Operand Forward::operand(PackedMatrix const& w, char* plain, int64_t stride) {
  if (!w.grouped()) return {plain, stride, model_.dtype()};
  has_outliers_ = false;
  return {work_.groups, w.kp() / kGroup, w.dtype, &has_outliers_};
}

// norm(x) of the first `rows` rows, as `next` wants it; without weights, x itself.
Operand Forward::normalise(float const* weight, int64_t rows, PackedMatrix const& next) {
  Operand const to = operand(next, work_.normed, normed_stride_);
  share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, work_.x, hidden_stride_, norm_by(weight), model_.shape().hidden, begin, end);
  });
  return to;
}

// The attention's output of the first `rows` rows, as `next` wants it.
Operand Forward::attended(PackedMatrix const& next, int64_t rows) {
  Operand const to = operand(next, work_.attended, attended_stride_);
  if (next.grouped())
    share_rows(rows, next.k, [&](int64_t begin, int64_t end) {
      kernels_.quantise(to, work_.attended, model_.dtype(), attended_stride_, next.k, begin, end);
    });
  return to;
}

// activation(gate) . up of the first `rows` rows of `normed`, as `down` wants it.
Operand Forward::multiply_gated(Operand const& normed, PackedMatrix const& gate_up, float const* bias,
                                PackedMatrix const& down, int64_t rows) {
  Operand to{work_.activated, activated_stride_, model_.dtype()};
  if (down.grouped()) {  // `normed` may be in the other groups
    activated_has_outliers_ = false;
    to = {work_.activated_groups, down.kp() / kGroup, down.dtype, &activated_has_outliers_};
  }
  GatedGemm const gemm{.x = normed.rows,
                       .ldx = normed.ld,
                       .may_have_outliers = normed.may_have_outliers(),
                       .w = &gate_up,
                       .bias = bias,
                       .activation = Activation(model_.shape().activation),
                       .out = to,
                       .tokens = rows,
                       .scratch = work_.gate_up};
  parallel_gated(pool_, kernels_, gemm, gemm_pieces(gate_up, rows));
  return to;
}

void Forward::multiply(Gemm gemm, Operand const& x) {
  gemm.x = x.rows;
  gemm.ldx = x.ld;
  gemm.may_have_outliers = x.may_have_outliers();
  parallel_gemm(pool_, kernels_, gemm, gemm_pieces(*gemm.w, gemm.tokens));
}

double Forward::gemm_ns(PackedMatrix const& w, int64_t rows) const {
  double const weights = double(w.panels() * kPanel) * double(w.kp());
  return kByteNs * double(w.bytes()) + kWeightRowNs * weights * double(rows);
}

// With few rows threads wait for memory, which serves now the one and now the other: smaller pieces even that
// out.
int64_t Forward::gemm_pieces(PackedMatrix const& w, int64_t rows) const {
  int64_t const n = pieces(gemm_ns(w, rows));
  return n > 1 && rows <= kFewRows ? kFewRowsPieces * n : n;
}

// Spreads rows of `width` elements over the threads if there are enough of them.
template <typename Body>
void Forward::share_rows(int64_t rows, int64_t width, Body const& body) {
  pool_.run(rows, grain(rows, kElementNs * double(rows) * double(width)), body);
}

// Into how many pieces to cut some work: several per thread, so that the last one to finish is not waited for
// long, and the same number for each, but none too short to be worth sharing.
int64_t Forward::pieces(double total_ns) const {
  int64_t const threads = limits_.threads;
  int64_t const pieces = int64_t(std::clamp(total_ns / kPieceNs, 1.0, 4.0 * double(threads)));
  return pieces > threads ? pieces / threads * threads : pieces;
}

// How many of `count` equal parts of some work make one piece.
int64_t Forward::grain(int64_t count, double total_ns) const {
  int64_t const n = pieces(total_ns);
  return std::max<int64_t>(1, (count + n - 1) / n);
}

}  // namespace bunting
