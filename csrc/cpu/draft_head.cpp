// draft_head.cpp - the draft head (MTP; engine.h, BUNTING_HEAD_*): drafts tokens behind the draws of a step.
//
//   hidden = the last layer's output of all tokens                               kept before the draws
//   all tokens: x = projection [norm(embed(next token)) | norm(hidden)], keys and values of the layer
//   appended a row per chunk that drafts, that of its last right draw: y = layer(x), token = argmax
//   lm_head(norm(y)) again for each further draft, one position on, with y for the hidden state and the token
//   as the next one
//
// Positions behind a chunk lie in its last page. The next step of the sequence writes them again.
#include <algorithm>
#include <cstring>

#include "cpu/forward.h"
#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/row_stride.h"

namespace bunting {
namespace {

constexpr double kLogitNs = 5;  // one logit of a draw

}  // namespace

void Forward::prepare_head() {
  size_t const chunks = size_t(limits_.step_chunks_max);
  head_tokens_.resize(size_t(limits_.step_tokens_max));
  head_rows_.reserve(chunks);
  right_draws_.resize(chunks);
  head_plan_.chunk.resize(chunks);
  head_plan_.position.resize(chunks);
  head_plan_.token_page.resize(chunks);
}

// Keeps x of the first `rows` rows as the head reads it.
void Forward::keep_hidden(int64_t rows) {
  bool const is_normed = model_.shape().head & BUNTING_HEAD_NORMED;
  Operand const to{work_.head_hidden, hidden_stride_, Dtype::f32};
  share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, work_.x, hidden_stride_, norm_by(is_normed ? model_.final_norm() : nullptr),
                  model_.shape().hidden, begin, end);
  });
}

// Returns the time in ms that it took for drafts.
float Forward::run_head(StepPlan const& plan, uint32_t* results) {
  if (plan.tokens == 0) return 0;
  int32_t const layer = model_.body_layers();
  choose_head_rows(plan, results);
  enter_head(plan, head_tokens_.data());
  project_and_append(plan, layer);
  if (head_rows_.empty()) return 0;
  auto const started = std::chrono::steady_clock::now();
  attend(plan, layer);
  size_t const attended_bytes = size_t(attended_stride_) * dtype_bytes(model_.dtype());
  size_t const hidden_bytes = size_t(hidden_stride_) * sizeof(float);
  for (size_t to = 0; to < head_rows_.size(); to++) {
    size_t const from = size_t(head_rows_[to].token_row);
    if (to == from) continue;
    std::memcpy(work_.x + to * size_t(hidden_stride_), work_.x + from * size_t(hidden_stride_), hidden_bytes);
    std::memcpy(work_.attended + to * attended_bytes, work_.attended + from * attended_bytes, attended_bytes);
  }
  AttentionPlan& attention_plan = attention_plans_[plan_of_layer_[size_t(layer)]];
  for (int32_t rows = int32_t(head_rows_.size());;) {
    finish_layer(layer, rows);
    predict(rows);
    rows = next_head_rows();
    if (rows == 0) return ms_since(started);
    for (size_t i = 0; i < model_.ropes().size(); i++)
      rope_angles(model_.ropes()[i], head_plan_.position.data(), 0, rows, work_.angles[i].cos,
                  work_.angles[i].sin);
    attention_plan.make(head_plan_);
    enter_head(head_plan_, head_tokens_.data());
    project_and_append(head_plan_, layer);
    attend(head_plan_, layer);
  }
}

// Finds the token after each token of the step, and for each chunk the row of its last valid draw.
void Forward::choose_head_rows(StepPlan const& plan, uint32_t* results) {
  head_rows_.clear();
  find_right_draws(plan, results, draw_words(), right_draws_.data());
  for (int32_t c = 0; c < plan.chunks; c++) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    ChunkNext const& next = plan.next[size_t(c)];
    int32_t const first = chunk.first_token, last = first + chunk.count - 1;
    for (int32_t i = first; i < last; i++) head_tokens_[size_t(i)] = plan.token[i + 1];
    head_tokens_[size_t(last)] = next.token >= 0 ? next.token : plan.token[last];
    // All draws before this one equal the chunk's own tokens: they were accepted.
    RightDraw const& right = right_draws_[size_t(c)];
    int32_t const from = right.token_row;
    if (from >= 0) head_tokens_[size_t(from)] = right.token;
    if (from < 0 || next.drafts == 0) continue;
    int32_t const pages = (chunk.start + chunk.count + kPageTokens - 1) / kPageTokens;
    head_rows_.push_back({from, chunk.start + from - first, pages, chunk.pages, next.drafts,
                          drafts_of(right.words, limits_.top_logprobs_max)});
  }
}

// Makes x the input of the head's layer for all tokens of a plan, each with the token after it and its row of
// `head_hidden`.
void Forward::enter_head(StepPlan const& plan, int32_t const* next) {
  LayerWeights const& weights = model_.layer(model_.body_layers());
  int64_t const hidden = model_.shape().hidden;
  bool const is_hidden_first = model_.shape().head & BUNTING_HEAD_HIDDEN_FIRST;
  Operand const of_embedding{work_.head_input + (is_hidden_first ? hidden : 0), 2 * hidden, Dtype::f32};
  Operand const of_hidden{work_.head_input + (is_hidden_first ? 0 : hidden), 2 * hidden, Dtype::f32};
  Operand const to =
      operand(weights.head_projection, work_.head_operand, row_stride(model_.dtype(), 2 * hidden));
  float const scale = model_.shape().embedding_scale;
  share_rows(plan.tokens, 4 * hidden, [&](int64_t begin, int64_t end) {
    kernels_.embed(work_.x, hidden_stride_, model_.embedding(), next, begin, end);
    if (scale != 1) kernels_.scale_and_cap(work_.x, hidden_stride_, hidden, scale, 0, begin, end);
    for (int64_t row = begin; row < end; row++) {
      // Each norm clears the columns behind its numbers up to the stride it is given.
      Operand embedding = of_embedding, state = of_hidden;
      embedding.rows = of_embedding.row(row), embedding.ld = hidden;
      state.rows = of_hidden.row(row), state.ld = hidden;
      kernels_.norm(embedding, work_.x + row * hidden_stride_, hidden_stride_,
                    norm_by(weights.head_embed_norm), hidden, 0, 1);
      kernels_.norm(state, work_.head_hidden + row * hidden_stride_, hidden_stride_,
                    norm_by(weights.head_hidden_norm), hidden, 0, 1);
    }
    kernels_.norm(to, work_.head_input, 2 * hidden, norm_by(nullptr), 2 * hidden, begin, end);
  });
  multiply({.w = &weights.head_projection, .y = work_.x, .ldy = hidden_stride_, .tokens = plan.tokens}, to);
}

// Draws the likeliest token of each of the first `rows` rows of x, and writes it as a draft.
void Forward::predict(int32_t rows) {
  LayerWeights const& weights = model_.layer(model_.body_layers());
  int32_t const vocab = model_.shape().vocab;
  PackedMatrix const& projection = model_.vocabulary_projection();
  multiply({.w = &projection, .y = work_.head_logits, .ldy = vocab, .tokens = rows},
           normalise(weights.head_norm, rows, projection));
  SampleRow greedy{};
  greedy.top_p = greedy.repetition = 1;
  size_t const scratch_bytes = sample_scratch(model_);
  pool_.run(rows, grain(rows, kLogitNs * double(rows) * double(vocab)),
            [&](int64_t begin, int64_t end, int thread) {
              for (int64_t r = begin; r < end; r++) {
                HeadRow& row = head_rows_[size_t(r)];
                SampleResult const drawn =
                    kernels_.sample(greedy, work_.head_logits + size_t(r) * size_t(vocab), vocab,
                                    work_.sample_scratch + size_t(thread) * scratch_bytes, nullptr);
                uint32_t* const to = row.drafts + 1 + 2 * row.drafts[0];
                std::memcpy(to, &drawn.token, 4);
                std::memcpy(to + 1, &drawn.logprob, 4);
                if (drawn.status == 0)
                  row.drafts[0]++;
                else
                  row.wanted = 0;
              }
            });
}

// Moves the rows that need further drafts to the front, with their hidden states and tokens, and plans their
// next position. Returns their number.
int32_t Forward::next_head_rows() {
  LayerWeights const& weights = model_.layer(model_.body_layers());
  bool const is_normed = model_.shape().head & BUNTING_HEAD_NORMED;
  Operand const hidden{work_.head_hidden, hidden_stride_, Dtype::f32};
  int32_t rows = 0;
  for (size_t from = 0; from < head_rows_.size(); from++) {
    HeadRow row = head_rows_[from];
    int32_t const drafted = int32_t(row.drafts[0]), position = row.position + 1;
    if (drafted >= row.wanted || position >= row.pages * kPageTokens ||
        position >= model_.shape().context_max)
      continue;
    Operand to = hidden;
    to.rows = hidden.row(rows);
    kernels_.norm(to, work_.x + int64_t(from) * hidden_stride_, hidden_stride_,
                  norm_by(is_normed ? weights.head_norm : nullptr), model_.shape().hidden, 0, 1);
    head_tokens_[size_t(rows)] = int32_t(row.drafts[1 + 2 * (drafted - 1)]);
    row.position = position;
    head_plan_.chunk[size_t(rows)] = {rows, 1, position, row.page, 0};
    head_plan_.position[size_t(rows)] = position;
    head_plan_.token_page[size_t(rows)] = row.page[position / kPageTokens];
    head_rows_[size_t(rows++)] = row;
  }
  head_rows_.resize(size_t(rows));
  head_plan_.chunks = head_plan_.tokens = rows;
  return rows;
}

}  // namespace bunting
