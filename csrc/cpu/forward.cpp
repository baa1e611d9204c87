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
constexpr double kPieceNs = 20'000;     // shorter work is done before another core has fetched its share
constexpr double kElementNs = 0.2;      // of a loop over activations
constexpr double kByteNs = 0.05;        // reading a byte of weights
constexpr double kWeightRowNs = 0.007;  // multiplying it with one row
constexpr double kLogitNs = 5;          // of a draw
constexpr int64_t kFewRows = 32, kFewRowsPieces = 4;

AttentionShape attention_shape(Model const& model) {
  bunting_model_shape const& shape = model.shape();
  return {shape.query_heads, shape.kv_heads, shape.head_size, shape.sliding_window, shape.context_max};
}

size_t attention_scratch(Model const& model) {
  return size_t(round_up(int64_t(attention_scratch_bytes(model.shape().head_size)), 64));
}

size_t sample_scratch(Model const& model) {
  return size_t(round_up(int64_t(sample_scratch_bytes(model.shape().vocab)), 64));
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
  check("step_rows_max", limits.step_rows_max, 1, 1 << 20);
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
  gate_up = carver.take<float>(threads * size_t(kSwigluScratch));
  activated = operand(model.shape().feed_forward);
  groups = carver.take<InputGroup>(tokens * size_t(model.grouped_width() / kGroup));
  activated_groups = carver.take<InputGroup>(tokens * size_t(model.grouped_width() / kGroup));
  attention_states = carver.take<float>(size_t(limits.step_chunks_max) * size_t(model.shape().query_heads) *
                                        size_t(attention_state_floats(model.shape().head_size)));
  attention_parts = carver.take<float>(size_t(AttentionPlan::part_rows(attention_shape(model))) *
                                       size_t(attention_sums_floats(model.shape().head_size)));
  attention_scratch = carver.take<char>(threads * bunting::attention_scratch(model));
  sample_scratch = carver.take<char>(threads * bunting::sample_scratch(model));
  logits = carver.take<float>(size_t(limits.step_rows_max) * size_t(model.shape().vocab));
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
      attention_plan_(attention_shape(model), limits.step_chunks_max, limits.step_tokens_max, limits.threads),
      pool_(limits.threads, ThreadPool::Cores::own) {
  work_.place(model, limits, work_region_.data());
}

void Forward::run(StepPlan const& plan, void* result) {
  auto const started = std::chrono::steady_clock::now();
  ThreadPool::Step const step(pool_);
  populate_ahead(plan);
  copy_pages(plan);
  attention_plan_.make(plan);
  share_rows(plan.tokens, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.embed(work_.x, hidden_stride_, model_.embedding(), plan.token, begin, end);
  });
  int32_t const last = model_.shape().layers - 1;
  for (int32_t layer = 0; layer <= last && plan.tokens > 0; layer++) {
    project_and_append(plan, layer);
    if (layer == last && plan.rows == 0) break;
    attend(plan, layer);
    if (layer == last) keep_sampled_rows(plan);
    finish_layer(layer, layer == last ? plan.rows : plan.tokens);
  }
  uint32_t* const words = static_cast<uint32_t*>(result);
  if (plan.rows > 0) sample(plan, words + sizeof(bunting_step_result) / 4);
  std::chrono::duration<float, std::milli> const elapsed = std::chrono::steady_clock::now() - started;
  rows_ = plan.rows;
  bunting_step_result const header{plan.rows, elapsed.count(), {0, 0}};
  std::memcpy(result, &header, sizeof header);
}

KvLayer Forward::kv_layer(int32_t layer) const {
  bunting_model_shape const& shape = model_.shape();
  size_t const page_bytes = kv_page_bytes(model_.kv_dtype(), shape.kv_heads, shape.head_size);
  char* const pages = pages_region_.data() + size_t(layer) * size_t(limits_.pages) * page_bytes;
  return {model_.kv_dtype(), shape.kv_heads, shape.head_size, pages, page_bytes};
}

// The system gives physical memory when it is first touched, a huge page at a time, and all layers come to
// their next one in the same step, which then takes tens of milliseconds longer. So while pages of one part
// of each layer are in use, each step takes memory for the next part of a few layers: of enough to be ahead
// of its tokens.
void Forward::populate_ahead(StepPlan const& plan) {
  int32_t highest = -1;
  for (int32_t i = 0; i < plan.tokens; i++) highest = std::max(highest, plan.token_page[size_t(i)]);
  size_t const page_bytes = kv_layer(0).page_bytes;
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
    size_t const first = size_t(populated_layers_) * size_t(limits_.pages) + size_t(populated_pages_);
    pages_region_.populate(first * page_bytes, size_t(part) * page_bytes);
  }
}

void Forward::copy_pages(StepPlan const& plan) {
  if (plan.moves == 0) return;
  pool_.run(model_.shape().layers, [&](int64_t begin, int64_t end) {
    for (int64_t layer = begin; layer < end; layer++) {
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
  RopeAppend const append{.qkv = work_.qkv,
                          .ldqkv = model_.qkv_width(),
                          .query_heads = model_.shape().query_heads,
                          .q_norm = weights.q_norm,
                          .k_norm = weights.k_norm,
                          .norm_epsilon = model_.shape().norm_epsilon,
                          .cos = model_.rope_cos(),
                          .sin = model_.rope_sin(),
                          .positions = plan.position.data(),
                          .token_pages = plan.token_page.data(),
                          .kv = kv_layer(layer)};
  share_rows(plan.tokens, model_.qkv_width(),
             [&](int64_t begin, int64_t end) { kernels_.rope_append(append, begin, end); });
}

void Forward::attend(StepPlan const& plan, int32_t layer) {
  Attention const attention{.q = work_.qkv,
                            .ldq = model_.qkv_width(),
                            .kv = kv_layer(layer),
                            .chunks = plan.chunk.data(),
                            .items = attention_plan_.items(),
                            .query_heads = model_.shape().query_heads,
                            .sliding_window = model_.shape().sliding_window,
                            .scale = 1.0f / std::sqrt(float(model_.shape().head_size)),
                            .out = work_.attended,
                            .ldo = attended_stride_,
                            .states = work_.attention_states,
                            .parts = work_.attention_parts,
                            .scratch = nullptr};
  size_t const scratch_bytes = attention_scratch(model_);
  for (int32_t phase = 0; phase < attention_plan_.phases(); phase++) {
    pool_.run(attention_plan_.pieces(phase), 1, [&](int64_t begin, int64_t end, int thread) {
      Attention mine = attention;
      mine.scratch = work_.attention_scratch + size_t(thread) * scratch_bytes;
      kernels_.attention(mine, attention_plan_.piece_begin(phase, int32_t(begin)),
                         attention_plan_.piece_begin(phase, int32_t(end)));
    });
  }
}

// Moves the sampled rows of x and of the attention's output to the front; token rows rise, so nothing is
// overwritten before it is read.
void Forward::keep_sampled_rows(StepPlan const& plan) {
  size_t const attended_bytes = size_t(attended_stride_) * dtype_bytes(model_.dtype());
  size_t const hidden_bytes = size_t(hidden_stride_) * sizeof(float);
  for (int32_t r = 0; r < plan.rows; r++) {
    size_t const to = size_t(r), from = size_t(plan.row[to].token_row);
    if (to == from) continue;
    std::memcpy(work_.x + to * size_t(hidden_stride_), work_.x + from * size_t(hidden_stride_), hidden_bytes);
    std::memcpy(work_.attended + to * attended_bytes, work_.attended + from * attended_bytes, attended_bytes);
  }
}

void Forward::finish_layer(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  multiply({.w = &weights.o, .y = work_.x, .ldy = hidden_stride_, .tokens = rows, .accumulate = true},
           attended(weights.o, rows));
  Operand const normed = normalise(weights.mlp_norm, rows, weights.gate_up);
  multiply({.w = &weights.down, .y = work_.x, .ldy = hidden_stride_, .tokens = rows, .accumulate = true},
           multiply_swiglu(normed, weights.gate_up, rows, weights.down));
}

// Logits of the sampled rows, which lead x by now, then one draw per row into the result's rows.
void Forward::sample(StepPlan const& plan, uint32_t* rows) {
  int32_t const vocab = model_.shape().vocab;
  PackedMatrix const& projection = model_.vocabulary_projection();
  multiply({.w = &projection, .y = work_.logits, .ldy = vocab, .tokens = plan.rows},
           normalise(model_.final_norm(), plan.rows, projection));
  size_t const row_words = BUNTING_RESULT_ROW_WORDS + 2 * size_t(limits_.top_logprobs_max);
  size_t const scratch_bytes = sample_scratch(model_);
  double const draws_ns = kLogitNs * double(plan.rows) * double(vocab);
  pool_.run(plan.rows, grain(plan.rows, draws_ns), [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; r++) {
      uint32_t* const words = rows + size_t(r) * row_words;
      int32_t* const top = reinterpret_cast<int32_t*>(words + BUNTING_RESULT_ROW_WORDS);
      SampleResult const drawn =
          kernels_.sample(plan.row[size_t(r)].sample, work_.logits + size_t(r) * size_t(vocab), vocab,
                          work_.sample_scratch + size_t(thread) * scratch_bytes, top);
      static_assert(sizeof drawn == 4 * BUNTING_RESULT_ROW_WORDS,
                    "a result row begins with status, token, logprob, count");
      std::memcpy(words, &drawn, sizeof drawn);
    }
  });
}

// Where a matrix's operand goes: groups, or `plain` numbers of the model's type.
Operand Forward::operand(PackedMatrix const& w, char* plain, int64_t stride) const {
  if (w.grouped()) return {work_.groups, w.kp() / kGroup, w.dtype};
  return {plain, stride, model_.dtype()};
}

// norm(x) * weight of the first `rows` rows, as `next` wants it.
Operand Forward::normalise(float const* weight, int64_t rows, PackedMatrix const& next) {
  Operand const to = operand(next, work_.normed, normed_stride_);
  share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.rmsnorm(to, work_.x, hidden_stride_, weight, model_.shape().hidden, model_.shape().norm_epsilon,
                     begin, end);
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

// silu(gate) . up of the first `rows` rows of `normed`, as `next` wants it.
Operand Forward::multiply_swiglu(Operand const& normed, PackedMatrix const& gate_up, int64_t rows,
                                 PackedMatrix const& next) {
  Operand to = operand(next, work_.activated, activated_stride_);
  if (next.grouped()) to.rows = work_.activated_groups;  // `normed` may be in the others
  SwigluGemm const gemm{
      .x = normed.rows, .ldx = normed.ld, .w = &gate_up, .out = to, .tokens = rows, .scratch = work_.gate_up};
  parallel_swiglu(pool_, kernels_, gemm, gemm_pieces(gate_up, rows));
  return to;
}

void Forward::multiply(Gemm gemm, Operand const& x) {
  gemm.x = x.rows;
  gemm.ldx = x.ld;
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
