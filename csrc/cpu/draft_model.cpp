#include "cpu/draft_model.h"

#include <algorithm>
#include <cstring>

#include "boundary/error.h"
#include "cpu/kernels/kv_layout.h"

namespace bunting {
namespace {

constexpr size_t kHeaderWords = sizeof(bunting_step_result) / 4;
static_assert(BUNTING_DRAFTS_MAX <= kPageTokens, "drafts need one spare page");

// True for a chunk of a prompt; false for one of a decode, which draws from each of its tokens.
bool is_prompt(StepPlan const& plan, int32_t chunk, int32_t* row) {
  ChunkView const& view = plan.chunk[size_t(chunk)];
  int32_t const first = *row, end = view.first_token + view.count;
  while (*row < plan.rows && plan.row[size_t(*row)].token_row < end) ++*row;
  return view.count > 1 && *row - first < view.count;
}

}  // namespace

void DraftModel::check(Model const& model) {
  if (model.has_states()) fail(BUNTING_INVALID, "a draft model with recurrent layers is not computed");
  if (model.is_bidirectional()) fail(BUNTING_INVALID, "an encoder is no draft model");
  if (model.has_head()) fail(BUNTING_INVALID, "a draft model is computed without a head of its own");
}

bunting_engine_limits DraftModel::own_limits(bunting_engine_limits const& limits) {
  bunting_engine_limits own = limits;
  // A chunk may have its drawn token in addition. There is room for the unread tokens of at least one chunk.
  own.step_tokens_max = limits.step_tokens_max + limits.step_chunks_max + kPageTokens;
  own.step_draws_max = limits.step_chunks_max;
  own.step_hidden_max = own.top_logprobs_max = own.states = own.drafts_max = 0;
  own.adapters_max = own.adapter_rank_max = 0;
  return own;
}

size_t DraftModel::page_list_size(Model const& model) {
  return size_t(model.shape().context_max) / kPageTokens + 2;
}

uint64_t DraftModel::workspace_bytes(Model const& model, bunting_engine_limits const& limits) {
  check(model);
  size_t const lists = size_t(limits.step_chunks_max) * page_list_size(model) * sizeof(int32_t);
  return Forward::workspace_bytes(model, own_limits(limits)) + lists;
}

DraftModel::DraftModel(Model const& model, Model const& target, bunting_engine_limits const& limits,
                       ThreadPool& pool)
    : limits_(limits),
      context_max_(model.shape().context_max),
      vocab_(model.shape().vocab),
      target_vocab_(target.shape().vocab),
      forward_(model, own_limits(limits), pool, limits.step_chunks_max) {
  bunting_engine_limits const own = own_limits(limits);
  size_t const chunks = size_t(own.step_chunks_max), tokens = size_t(own.step_tokens_max);
  plan_.chunk.resize(chunks), plan_.state.resize(chunks), plan_.next.resize(chunks);
  plan_.row.resize(chunks), plan_.draw.resize(chunks);
  plan_.position.resize(tokens), plan_.token_page.resize(tokens);
  tokens_.resize(tokens);
  rows_.reserve(chunks);
  right_draws_.resize(chunks);
  page_lists_.resize(chunks * page_list_size(model));
  result_.resize(kHeaderWords + chunks * StepReader::draw_words(0, 0));
}

void DraftModel::run(StepPlan const& plan, void* result) {
  auto const started = std::chrono::steady_clock::now();
  uint32_t* const results = static_cast<uint32_t*>(result) + kHeaderWords;
  find_right_draws(plan, results, StepReader::draw_words(limits_.top_logprobs_max, limits_.drafts_max),
                   right_draws_.data());
  rows_.clear();
  Reading reading;
  plan_.moves = plan.moves, plan_.move = plan.move;
  do {
    plan_reading(plan, reading);
    if (plan_.chunks == 0 && plan_.moves == 0) break;
    size_t const first_row = rows_.size() - size_t(plan_.rows);
    forward_.run(plan_, result_.data(), nullptr);
    write_drafts(first_row);
    plan_.moves = 0;
  } while (reading.chunks < plan.chunks);
  double const read_ms = double(ms_since(started));
  for (plan_drafting(); plan_.chunks > 0; plan_drafting()) {
    forward_.run(plan_, result_.data(), nullptr);
    write_drafts(0);
  }
  bunting_step_result header;
  std::memcpy(&header, result, sizeof header);
  float const all_ms = ms_since(started);
  header.device_ms += all_ms;
  header.drafts_ms += float(double(all_ms) - read_ms * reading.of_prompts / std::max(1, reading.tokens));
  std::memcpy(result, &header, sizeof header);
}

// Plans a pass over the next chunks of the step, as many as fit.
void DraftModel::plan_reading(StepPlan const& plan, Reading& reading) {
  plan_.chunks = plan_.tokens = plan_.rows = plan_.draws = 0;
  plan_.token = tokens_.data();
  for (; reading.chunks < plan.chunks; reading.chunks++) {
    int32_t const c = reading.chunks;
    ChunkView const& chunk = plan.chunk[size_t(c)];
    ChunkNext const& next = plan.next[size_t(c)];
    if (plan_.tokens + next.unread + chunk.count + 1 > int32_t(tokens_.size())) return;
    bool const is_of_prompt = is_prompt(plan, c, &reading.rows);
    if (next.unread < 0) continue;
    RightDraw const& right = right_draws_[size_t(c)];
    bool const drafts = next.drafts > 0 && right.token_row >= 0;
    int32_t const read_from = chunk.start - next.unread;
    int32_t const known = drafts ? right.token_row - chunk.first_token + 1 : chunk.count;
    int32_t const position = chunk.start + known;  // of the drawn token
    int32_t const end = std::min(context_max_, position);
    if (end <= read_from) continue;
    bool const draws = drafts && position < context_max_;
    int32_t const* const page = draws ? with_spare(chunk, c) : chunk.pages;
    int32_t const first = plan_.tokens;
    for (int32_t at = read_from; at < end; at++)
      read(at < chunk.start ? next.unread_token[at - read_from]
                            : plan.token[chunk.first_token + at - chunk.start],
           at, page);
    if (draws) read(right.token, position, page);
    int32_t const tokens = plan_.tokens - first;
    reading.tokens += tokens;
    if (is_of_prompt) reading.of_prompts += tokens;
    plan_.chunk[size_t(plan_.chunks++)] = {first, tokens, read_from, page, 0};
    if (draws) draw({position, page, next.drafts, drafts_of(right.words, limits_.top_logprobs_max)});
  }
}

// Adds a token to the pass. Tokens without an embedding in the draft model occur in no text.
void DraftModel::read(int32_t token, int32_t position, int32_t const* page) {
  size_t const at = size_t(plan_.tokens++);
  tokens_[at] = token < vocab_ ? token : 0;
  plan_.position[at] = position;
  plan_.token_page[at] = page[position / kPageTokens];
}

// Adds a draw after the last token of the step.
void DraftModel::draw(Row const& row) {
  plan_.row[size_t(plan_.rows++)] = {plan_.tokens - 1, true, plan_.draws};
  SampleRow greedy{};
  greedy.top_p = greedy.repetition = 1;
  plan_.draw[size_t(plan_.draws++)] = greedy;
  rows_.push_back(row);
}

// Returns the pages of a chunk with a spare one behind them.
int32_t const* DraftModel::with_spare(ChunkView const& chunk, int32_t index) {
  int32_t const size = context_max_ / kPageTokens + 2;
  int32_t* const list = page_lists_.data() + size_t(index) * size_t(size);
  // A chunk may have pages for rejected drafts beyond the draft model's context.
  int32_t const count = std::min(size - 1, (chunk.start + chunk.count + kPageTokens - 1) / kPageTokens);
  std::copy_n(chunk.pages, count, list);
  list[count] = limits_.pages + index;
  return list;
}

// Writes the tokens that the last pass drew as drafts of the rows from `first_row` on.
void DraftModel::write_drafts(size_t first_row) {
  uint32_t const* drawn = result_.data() + kHeaderWords;
  for (size_t i = first_row; i < rows_.size(); i++, drawn += StepReader::draw_words(0, 0)) {
    Row& row = rows_[i];
    if (drawn[0] != 0 || int32_t(drawn[1]) >= target_vocab_) {
      row.wanted = 0;
      continue;
    }
    std::memcpy(row.drafts + 1 + 2 * row.drafts[0], drawn + 1, 2 * sizeof(uint32_t));
    row.drafts[0]++;
    row.position++;
  }
}

// Plans the pass over the last draft of each row that needs more drafts.
void DraftModel::plan_drafting() {
  plan_.chunks = plan_.tokens = plan_.rows = plan_.draws = 0;
  size_t kept = 0;
  for (Row const& row : rows_) {
    int32_t const drafted = int32_t(row.drafts[0]);
    if (drafted >= row.wanted || row.position >= context_max_) continue;
    plan_.chunk[kept] = {int32_t(kept), 1, row.position, row.page, 0};
    plan_.row[kept] = {int32_t(kept), true, int32_t(kept)};
    read(int32_t(row.drafts[1 + 2 * (drafted - 1)]), row.position, row.page);
    rows_[kept++] = row;
  }
  rows_.resize(kept);
  plan_.chunks = plan_.rows = plan_.draws = int32_t(kept);
}

}  // namespace bunting
