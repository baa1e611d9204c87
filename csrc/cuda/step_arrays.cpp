#include "cuda/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "boundary/error.h"
#include "host/memory_region.h"

namespace bunting::cuda {
namespace {

int32_t pages_of(int32_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

size_t mask_words(Model const& model) {
  return size_t(model.shape().vocab + 31) / 32;
}

// Returns the largest sizes of the plans for steps of up to `tokens` tokens.
std::vector<StepArrays::PlanSizes> largest_plans(AttentionKinds const& kinds, int32_t tokens) {
  std::vector<StepArrays::PlanSizes> sizes;
  for (AttentionShape const& shape : kinds.shapes)
    sizes.push_back({size_t(tokens) * size_t(shape.kv_heads), size_t(attention_items_max(tokens, shape)),
                     size_t(attention_merge_rows_max(shape))});
  return sizes;
}

// Returns the number of pairs that are copied at a time: the tokens of a list are distinct, and a row has
// two.
size_t pairs_max(int32_t vocab, size_t draws) {
  size_t const row = 2 * size_t(vocab);
  return std::max(row, std::min(StepArrays::pairs_at_once, draws * row));
}

// Returns the sizes of the largest step within the limits.
StepArrays::Sizes largest_sizes(Model const& model, bunting_engine_limits const& limits,
                                AttentionKinds const& kinds) {
  bunting_model_shape const& s = model.shape();
  size_t const draws = size_t(limits.step_draws_max);
  return {.tokens = size_t(limits.step_tokens_max),
          .pages = size_t(limits.step_chunks_max) * size_t(pages_of(s.context_max)),
          .rows = draws + size_t(limits.step_hidden_max),
          .draws = draws,
          .copies = size_t(limits.pages),
          .blocks = kinds.shapes.empty() ? 0 : size_t(kinds.shapes[0].blocks),
          .sample_pairs = pairs_max(s.vocab, draws),
          .mask_words = draws * mask_words(model),
          .state_tokens = size_t(model.has_states() ? limits.step_tokens_max : 0),
          .state_chunks = size_t(model.has_states() ? limits.step_chunks_max : 0),
          .saves = size_t(limits.states),
          .plans = largest_plans(kinds, limits.step_tokens_max)};
}

}  // namespace

size_t StepArrays::place(Sizes const& sizes, char* base) {
  Carver carver(base);
  tokens = carver.take<int32_t>(sizes.tokens);
  positions = carver.take<int32_t>(sizes.tokens);
  slots = carver.take<int32_t>(sizes.tokens);
  pages_at = carver.take<int32_t>(sizes.tokens);
  wanted = carver.take<int32_t>(sizes.rows);
  chunk_of_token = carver.take<int32_t>(sizes.state_tokens);
  state_chunks = carver.take<StateChunk>(sizes.state_chunks);
  saves = carver.take<StateCopy>(sizes.saves);
  plans.clear();
  for (PlanSizes const& of_plan : sizes.plans) {
    Plan plan;
    plan.item_begin = carver.take<int32_t>(sizes.blocks + 1);
    plan.merge_begin = carver.take<int32_t>(of_plan.pairs_of_heads + 1);
    plan.items = carver.take<AttentionItem>(of_plan.items);
    plan.merge_rows = carver.take<int32_t>(of_plan.merge_rows);
    plans.push_back(plan);
  }
  pages = carver.take<int32_t>(sizes.pages);
  copies = carver.take<PageCopy>(sizes.copies);
  draws = carver.take<uint32_t>(sizes.draws * BUNTING_ROW_WORDS);
  masks = carver.take<uint32_t>(sizes.mask_words);
  pairs = carver.take<int32_t>(2 * sizes.sample_pairs);
  return carver.used();
}

size_t StepInputs::bytes(Model const& model, bunting_engine_limits const& limits, int32_t blocks) {
  return StepArrays().place(largest_sizes(model, limits, AttentionKinds(model, blocks)), nullptr);
}

StepInputs::StepInputs(Model const& model, bunting_engine_limits const& limits, int32_t blocks)
    : model_(model),
      blocks_(blocks),
      states_(limits.states),
      kinds_(model, blocks),
      pairs_max_(largest_sizes(model, limits, kinds_).sample_pairs),
      device_memory_(bytes(model, limits, blocks), "the arrays of a step"),
      host_memory_(device_memory_.bytes(), "the arrays of a step"),
      plans_(kinds_.shapes.size()) {
  chunks_.reserve(size_t(limits.step_chunks_max));
  shared_.reserve(size_t(limits.step_chunks_max));
}

StepArrays::Sizes StepInputs::place_decodes(int32_t tokens) {
  StepArrays::Sizes sizes;
  sizes.tokens = sizes.rows = sizes.draws = size_t(tokens);
  sizes.blocks = size_t(blocks_);
  if (model_.has_states()) {
    sizes.state_tokens = sizes.state_chunks = size_t(tokens);
    sizes.saves = size_t(std::min(tokens, states_));  // a slot is written once
  }
  sizes.plans = largest_plans(kinds_, tokens);
  device_.place(sizes, device_memory_.data());
  return sizes;
}

void StepInputs::send(StepPlan const& step, StepArrays::Sizes const* recorded, Stream& stream) {
  StepArrays::Sizes sizes = plan(step);
  if (recorded) {
    sizes.tokens = recorded->tokens;
    sizes.rows = recorded->rows;
    sizes.draws = recorded->draws;
    sizes.state_tokens = recorded->state_tokens;
    sizes.state_chunks = recorded->state_chunks;
    sizes.saves = recorded->saves;
    sizes.plans = recorded->plans;
  }
  host_.place(sizes, host_memory_.data());
  device_.place(sizes, device_memory_.data());
  write(step, sizes.tokens);
  auto const at = [&](void const* place) {
    return size_t(static_cast<char const*>(place) - host_memory_.data());
  };
  // Copies only the used part of a recorded step's plans, not their whole reserved space.
  size_t begin = 0;
  for (size_t i = 0; recorded && i < plans_.size(); ++i) {
    StepArrays::Plan const& places = host_.plans[i];
    copy(begin, at(places.items + plans_[i].items.size()), stream);
    copy(at(places.merge_rows), at(places.merge_rows + plans_[i].merge_rows.size()), stream);
    begin = i + 1 < plans_.size() ? at(host_.plans[i + 1].item_begin) : at(host_.pages);
  }
  copy(begin, at(host_.pairs), stream);  // send_pairs() copies those
}

void StepInputs::copy(size_t begin, size_t end, Stream& stream) const {
  if (end > begin) stream.copy(device_memory_.data() + begin, host_memory_.data() + begin, end - begin);
}

// Plans the step's attention, and returns the sizes of its arrays.
StepArrays::Sizes StepInputs::plan(StepPlan const& plan) {
  StepArrays::Sizes sizes{.tokens = size_t(plan.tokens),
                          .rows = size_t(plan.rows),
                          .draws = size_t(plan.draws),
                          .copies = size_t(plan.moves),
                          .blocks = size_t(blocks_)};
  chunks_.clear();
  for (int32_t c = 0; c < plan.chunks; ++c) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    chunks_.push_back({chunk.first_token, chunk.count, chunk.start, int32_t(sizes.pages)});
    sizes.pages += size_t(pages_of(chunk.start + chunk.count));
    if (model_.has_states()) sizes.saves += size_t(plan.state[size_t(c)].save_count);
  }
  if (model_.has_states()) sizes.state_tokens = sizes.tokens, sizes.state_chunks = chunks_.size();
  shared_.clear();
  for (int32_t i = 0; i < plan.shared_spans; ++i) {
    SharedSpan const& span = plan.shared[size_t(i)];
    shared_.push_back({span.chunk_begin, span.chunk_end, span.begin, span.end, span.parent});
  }
  for (size_t i = 0; i < plans_.size(); ++i) {
    plan_attention(kinds_.shapes[i], chunks_, shared_, plans_[i]);
    sizes.plans.push_back(
        {plans_[i].merge_begin.size() - 1, plans_[i].items.size(), plans_[i].merge_rows.size()});
  }
  for (int32_t r = 0; r < plan.draws; ++r)
    if (plan.draw[size_t(r)].mask) sizes.mask_words += mask_words(model_);
  return sizes;
}

void StepInputs::write(StepPlan const& plan, size_t tokens) {
  std::copy_n(plan.token, plan.tokens, host_.tokens);
  std::copy_n(plan.position.begin(), plan.tokens, host_.positions);
  for (int32_t t = 0; t < plan.tokens; ++t)
    host_.slots[t] = plan.token_page[size_t(t)] * kPageTokens + plan.position[size_t(t)] % kPageTokens;
  for (size_t t = size_t(plan.tokens); t < tokens; ++t) {
    host_.tokens[t] = host_.positions[t] = host_.wanted[t] = host_.pages_at[t] = 0;
    host_.slots[t] = kNoSlot;
  }
  for (int32_t c = 0; c < plan.chunks; ++c) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    std::fill_n(host_.pages_at + chunk.first_token, chunk.count, chunks_[size_t(c)].pages_at);
    std::copy_n(chunk.pages, pages_of(chunk.start + chunk.count), host_.pages + chunks_[size_t(c)].pages_at);
  }
  for (int32_t c = 0; c < plan.moves; ++c)
    host_.copies[c] = {plan.move[c].from, plan.move[c].to, plan.move[c].count};
  for (size_t i = 0; i < plans_.size(); ++i) {
    std::ranges::copy(plans_[i].items, host_.plans[i].items);
    std::ranges::copy(plans_[i].item_begin, host_.plans[i].item_begin);
    std::ranges::copy(plans_[i].merge_begin, host_.plans[i].merge_begin);
    std::ranges::copy(plans_[i].merge_rows, host_.plans[i].merge_rows);
  }
  if (model_.has_states()) write_states(plan, tokens);
  write_rows(plan);
}

void StepInputs::write_states(StepPlan const& plan, size_t tokens) {
  int32_t saves = 0;
  for (int32_t c = 0; c < plan.chunks; ++c) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    ChunkState const& state = plan.state[size_t(c)];
    host_.state_chunks[c] = {chunk.first_token, chunk.count, state.slot, state.from, saves, state.save_count};
    std::fill_n(host_.chunk_of_token + chunk.first_token, chunk.count, c);
    for (int32_t i = 0; i < state.save_count; ++i)
      host_.saves[saves++] = {state.saves[i].count, state.saves[i].slot};
  }
  // Padding tokens of a recorded step are chunks without tokens.
  for (size_t t = size_t(plan.tokens); t < tokens; ++t) {
    host_.chunk_of_token[t] = -1;
    host_.state_chunks[size_t(plan.chunks) + t - size_t(plan.tokens)] = {0, 0, -1, -1, 0, 0};
  }
}

// Places a row's pairs after those of the rows before it, or at the beginning if they do not fit there: then
// the row begins another part. `end` is the end of the pairs of the part.
uint32_t StepInputs::place_pairs(SampleRow const& row, size_t& end) const {
  size_t const count = size_t(row.bias_count) + size_t(row.seen_count);
  if (count > pairs_max_)
    fail(BUNTING_INVALID, "a row has %zu biases and seen tokens, more than %zu", count, pairs_max_);
  if (end + count > pairs_max_) end = 0;
  return uint32_t(std::exchange(end, end + count));
}

int32_t StepInputs::send_pairs(StepPlan const& plan, int32_t begin, Stream& stream) {
  size_t end = 0;
  int32_t row_index = begin;
  for (; row_index < plan.draws; ++row_index) {
    SampleRow const& row = plan.draw[size_t(row_index)];
    size_t const before = end, at = place_pairs(row, end);
    if (at < before) {  // the row begins the next part
      end = before;
      break;
    }
    int32_t* const pairs = host_.pairs + 2 * at;
    std::copy_n(row.bias, 2 * row.bias_count, pairs);
    std::copy_n(row.seen, 2 * row.seen_count, pairs + 2 * row.bias_count);
  }
  if (end > 0) stream.copy(device_.pairs, host_.pairs, 2 * end * sizeof(int32_t));
  return row_index;
}

// Copies the requested rows of the step block: those to draw from first, with their own masks.
void StepInputs::write_rows(StepPlan const& plan) {
  for (int32_t r = 0; r < plan.rows; ++r) {
    WantedRow const& row = plan.row[size_t(r)];
    host_.wanted[row.is_draw ? row.index : plan.draws + row.index] = row.token_row;
  }
  uint32_t mask = 0;
  size_t pairs_end = 0;
  for (int32_t r = 0; r < plan.draws; ++r) {
    SampleRow const& row = plan.draw[size_t(r)];
    uint32_t const pairs_at = place_pairs(row, pairs_end);
    uint32_t* const words = host_.draws + size_t(r) * BUNTING_ROW_WORDS;
    float const reals[] = {row.temperature, row.top_p,    row.min_p,
                           row.repetition,  row.presence, row.frequency};
    std::memcpy(words + BUNTING_ROW_TEMPERATURE, reals, sizeof reals);
    words[BUNTING_ROW_TOP_K] = uint32_t(row.top_k);
    words[BUNTING_ROW_SEED_LOW] = row.seed_low;
    words[BUNTING_ROW_SEED_HIGH] = row.seed_high;
    words[BUNTING_ROW_POSITION] = row.position;
    words[BUNTING_ROW_BIAS_AT] = pairs_at;
    words[BUNTING_ROW_BIAS_COUNT] = uint32_t(row.bias_count);
    words[BUNTING_ROW_SEEN_AT] = pairs_at + uint32_t(row.bias_count);
    words[BUNTING_ROW_SEEN_COUNT] = uint32_t(row.seen_count);
    words[BUNTING_ROW_MASK_AT] = row.mask ? mask : uint32_t(-1);
    words[BUNTING_ROW_TOP_LOGPROBS] = uint32_t(row.top_logprobs);
    if (row.mask) std::copy_n(row.mask, mask_words(model_), host_.masks + mask);
    if (row.mask) mask += uint32_t(mask_words(model_));
  }
}

}  // namespace bunting::cuda
