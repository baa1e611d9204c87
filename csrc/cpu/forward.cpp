#include "cpu/forward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "boundary/error.h"
#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/parallel_gemm.h"
#include "host/right_of_way.h"

namespace bunting {

namespace {

// Estimated time of work on one thread, in ns, accurate to a factor of two. It only decides how work is
// shared.
constexpr double kPieceNs = 20'000;     // shorter work ends before another core has started on it
constexpr double kByteNs = 0.05;        // reading one byte of weights
constexpr double kWeightRowNs = 0.007;  // multiplying that byte with one row
constexpr double kLogitNs = 5;          // one logit of a draw
constexpr int64_t kFewRows = 12, kFewRowsPieces = 4;

RoutingRule routing_rule(Model const& model) {
  bunting_model_shape const& shape = model.shape();
  if (!model.has_experts()) return {};
  return {shape.experts,       shape.experts_used,       shape.router,      shape.router_options,
          shape.router_groups, shape.router_groups_used, shape.router_scale};
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
  check("states", limits.states, 0, 1 << 24);
  check("drafts_max", limits.drafts_max, 0, BUNTING_DRAFTS_MAX);
  check("adapters_max", limits.adapters_max, 0, BUNTING_ADAPTERS_MAX);
  check("adapter_rank_max", limits.adapter_rank_max, 0, BUNTING_ADAPTER_RANK_MAX);
}

size_t Forward::draw_words() const {
  return StepReader::draw_words(limits_.top_logprobs_max, limits_.drafts_max);
}

Forward::Forward(Model const& model, bunting_engine_limits const& limits, ThreadPool& pool,
                 int32_t spare_pages)
    : model_(model),
      kernels_(model.kernels()),
      limits_(limits),
      hidden_stride_(round_up(model.shape().hidden, kPanel)),
      normed_stride_(row_stride(model.dtype(), model.shape().hidden)),
      attended_stride_(row_stride(model.dtype(), model.query_width())),
      activated_stride_(row_stride(model.dtype(), model.shape().feed_forward)),
      pages_(model, limits.pages, spare_pages),
      states_(model, limits.states),
      work_region_(Workspace().place(model, limits, nullptr), "the workspaces of a step"),
      expert_plan_(routing_rule(model), limits.step_tokens_max),
      pool_(pool),
      low_rank_(model, limits, pool) {
  work_.place(model, limits, work_region_.data());
  if (has_head()) prepare_head();
  transpose_convolutions();
  std::vector<AttentionShape> shapes;
  for (int32_t layer = 0; layer < model.shape().layers; layer++) {
    plan_of_layer_.push_back(0);
    if (!model.has_attention(layer)) continue;
    AttentionShape const shape = attention_shape(model, layer);
    size_t const known = size_t(std::find(shapes.begin(), shapes.end(), shape) - shapes.begin());
    plan_of_layer_.back() = known;
    if (known < shapes.size()) continue;
    shapes.push_back(shape);
    attention_plans_.emplace_back(shape, limits.step_chunks_max, limits.step_tokens_max, limits.threads);
  }
}

bool Forward::run(StepPlan const& plan, void* result, int32_t const* way) {
  // An aborted step has only written KV beyond the committed length of its sequences. States are updated in
  // place, so with them a step could not be repeated.
  if (model_.has_states()) way = nullptr;
  auto const is_wanted = [way] { return way == nullptr || __atomic_load_n(way, __ATOMIC_RELAXED) == 0; };
  draws_ = 0;
  auto const started = std::chrono::steady_clock::now();
  ComputedStep const computed;
  ThreadPool::Step const step(pool_);
  low_rank_.begin(plan);
  pages_.populate_ahead(plan);
  pages_.copy(plan, pool_);
  for (AttentionPlan& attention_plan : attention_plans_) attention_plan.make(plan);
  share_rows(plan.tokens, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.embed(work_.x, hidden_stride_, model_.embedding(), plan.token, begin, end);
    if (float const scale = model_.shape().embedding_scale; scale != 1)
      kernels_.scale_and_cap(work_.x, hidden_stride_, model_.shape().hidden, scale, 0, begin, end);
  });
  add_places(plan);
  for (size_t i = 0; i < model_.ropes().size(); i++) {
    RopeTable const& rope = model_.ropes()[i];
    share_rows(plan.tokens, rope.dimensions, [&](int64_t begin, int64_t end) {
      rope_angles(rope, plan.position.data(), begin, end, work_.angles[i].cos, work_.angles[i].sin);
    });
  }
  if (model_.shape().layer_inputs > 0) make_layer_inputs(plan);
  bool const has_streams = model_.streams() > 1;
  if (has_streams) make_streams(plan.tokens);
  int32_t const last = model_.body_layers() - 1;
  for (int32_t layer = 0; layer <= last && plan.tokens > 0; layer++) {
    if (!is_wanted()) return false;
    if (has_streams) predict_streams(layer, plan.tokens);
    if (model_.has_attention(layer)) project_and_append(plan, layer);
    if (model_.has_state(layer)) run_states(plan, layer);
    // Later steps need no result that follows the last layer with memory, unless a head reads it.
    if (plan.rows == 0 && !has_head() && layer >= model_.last_layer_with_memory()) break;
    if (model_.has_attention(layer)) attend(plan, layer);
    if (!is_wanted()) return false;
    bool const is_wanted_only = layer == last && !has_head();
    if (is_wanted_only) keep_wanted_rows(plan);
    finish_layer(layer, is_wanted_only ? plan.rows : plan.tokens);
  }
  if (has_head()) {
    keep_hidden(plan.tokens);
    keep_wanted_rows(plan);
  }
  if (has_streams && plan.rows > 0) join_streams(plan.rows);
  uint32_t* const results = static_cast<uint32_t*>(result) + sizeof(bunting_step_result) / 4;
  if (plan.hidden() > 0) {
    write_hidden(plan, reinterpret_cast<float*>(results + size_t(plan.draws) * draw_words()));
    keep_drawn_rows(plan);
  }
  if (plan.draws > 0) sample(plan, results);
  float const drafts_ms = has_head() ? run_head(plan, results) : 0;
  draws_ = plan.draws;
  bunting_step_result const header{plan.draws, ms_since(started), plan.hidden(), drafts_ms};
  std::memcpy(result, &header, sizeof header);
  return true;
}

// Adds learned positions and token types to the embedding, and replaces it by its norm.
void Forward::add_places(StepPlan const& plan) {
  bunting_model_shape const& shape = model_.shape();
  int64_t const hidden = shape.hidden;
  auto const add_row = [&](int64_t token, float const* row) {
    float* const x = work_.x + token * hidden_stride_;
    for (int64_t i = 0; i < hidden; i++) x[i] += row[i];
  };
  bool const has_rows = model_.positions() || model_.token_types();
  for (int32_t c = 0; has_rows && c < plan.chunks; c++) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    for (int32_t i = 0; i < chunk.count; i++) {
      int64_t const token = chunk.first_token + i;
      bool const is_second = chunk.second > 0 && i >= chunk.second && shape.token_types > 1;
      if (model_.token_types()) add_row(token, model_.token_types() + (is_second ? hidden : 0));
      if (model_.positions())
        add_row(token, model_.positions() + int64_t(chunk.start + i + shape.position_offset) * hidden);
    }
  }
  if (model_.embedding_norm()) norm_sum(model_.embedding_norm(), plan.tokens);
}

// Replaces the first `rows` rows of x by their norm.
void Forward::norm_sum(float const* norm, int64_t rows) {
  Operand const to{work_.x, hidden_stride_, Dtype::f32};
  share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, work_.x, hidden_stride_, norm_by(norm), model_.shape().hidden, begin, end);
  });
}

// Moves the requested rows of x and of the mixers' outputs to the front. Token rows rise, so no row is
// overwritten before it is moved.
void Forward::keep_wanted_rows(StepPlan const& plan) {
  low_rank_.keep_wanted_rows(plan);
  size_t const attended_bytes = size_t(attended_stride_) * dtype_bytes(model_.dtype());
  size_t const hidden_bytes = size_t(hidden_stride_) * sizeof(float);
  size_t const state_width = model_.has_states() ? size_t(model_.state_out_width()) : 0;
  // Only the last layer's part of the per-layer inputs is still to be read.
  size_t const inputs = size_t(model_.shape().layer_inputs), all = size_t(model_.shape().layers) * inputs;
  for (int32_t r = 0; r < plan.rows; r++) {
    size_t const to = size_t(r), from = size_t(plan.row[to].token_row);
    if (to == from) continue;
    std::memcpy(work_.x + to * size_t(hidden_stride_), work_.x + from * size_t(hidden_stride_), hidden_bytes);
    std::memcpy(work_.attended + to * attended_bytes, work_.attended + from * attended_bytes, attended_bytes);
    if (state_width > 0)
      std::memcpy(work_.state_out + to * state_width, work_.state_out + from * state_width,
                  state_width * sizeof(float));
    for (int32_t i = 0; model_.streams() > 1 && i < model_.streams(); i++)
      std::memcpy(stream(i) + to * size_t(hidden_stride_), stream(i) + from * size_t(hidden_stride_),
                  hidden_bytes);
    if (inputs > 0)
      std::memcpy(work_.layer_inputs + to * all + all - inputs,
                  work_.layer_inputs + from * all + all - inputs, inputs * sizeof(float));
  }
}

// Writes norm(x) of the requested rows, which are now at the front of x, into `hidden` [hidden, H].
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

// Moves the rows to draw from to the front of the requested rows of x.
void Forward::keep_drawn_rows(StepPlan const& plan) {
  for (int32_t r = 0; r < plan.rows; r++) {
    WantedRow const& row = plan.row[size_t(r)];
    if (row.is_draw && row.index != r)
      std::memcpy(work_.x + row.index * hidden_stride_, work_.x + r * hidden_stride_,
                  size_t(hidden_stride_) * sizeof(float));
  }
}

// Computes the logits of the rows to draw from, which are now at the front of x, then writes one draw each
// into `results`.
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
  size_t const row_words = draw_words();
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
      if (limits_.drafts_max > 0) *drafts_of(words, limits_.top_logprobs_max) = 0;
    }
  });
}

void Forward::multiply(Gemm gemm, Operand const& x) {
  gemm.x = x.rows;
  gemm.ldx = x.ld;
  gemm.may_have_outliers = x.may_have_outliers();
  parallel_gemm(pool_, kernels_, gemm, gemm_pieces(*gemm.w, gemm.tokens));
  if (!low_rank_.changes(*gemm.w)) return;
  low_rank_.reduce(*gemm.w, x);
  low_rank_.expand_all(*gemm.w, gemm.y, gemm.ldy);
}

double Forward::gemm_ns(PackedMatrix const& w, int64_t rows) const {
  double const weights = double(w.panels() * kPanel) * double(w.kp());
  return kByteNs * double(w.bytes()) + kWeightRowNs * weights * double(rows);
}

// Number of pieces of a GEMM. With few rows threads wait for memory unevenly, and smaller pieces even out the
// wait. With more rows AMX tiles gather their inputs once per piece, so more pieces cost more.
int64_t Forward::gemm_pieces(PackedMatrix const& w, int64_t rows) const {
  int64_t const n = pieces(gemm_ns(w, rows));
  return n > 1 && rows <= kFewRows ? kFewRowsPieces * n : n;
}

// Number of pieces for some work: several per thread, so that the wait for the last one is short, and the
// same number for each thread. No piece is too short to be worth sharing.
int64_t Forward::pieces(double total_ns) const {
  int64_t const threads = limits_.threads;
  int64_t const pieces = int64_t(std::clamp(total_ns / kPieceNs, 1.0, 4.0 * double(threads)));
  return pieces > threads ? pieces / threads * threads : pieces;
}

// Number of `count` equal parts of some work that make one piece.
int64_t Forward::grain(int64_t count, double total_ns) const {
  int64_t const n = pieces(total_ns);
  return std::max<int64_t>(1, (count + n - 1) / n);
}

}  // namespace bunting
