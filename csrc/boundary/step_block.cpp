#include "boundary/step_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "boundary/error.h"

namespace bunting {

namespace {

constexpr int32_t kHeaderWords = sizeof(bunting_step_header) / 4;
static_assert(sizeof(bunting_step_header) == 88, "the header is part of the ABI (gpu/step-block.ts)");
static_assert(sizeof(bunting_step_result) == 16, "the result header is part of the ABI (gpu/step-block.ts)");
static_assert(sizeof(PageMove) == 4 * BUNTING_MOVE_WORDS, "moves are read in place");
static_assert(sizeof(StateSave) == 4 * BUNTING_SAVE_WORDS, "saves are read in place");

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Returns true for a number in [low, high]; NaN is not in it.
bool within(float value, float low, float high) {
  return value >= low && value <= high;
}

}  // namespace

StepReader::StepReader(StepLimits const& limits) : limits_(limits) {
  plan_.chunk.resize(size_t(limits.chunks_max));
  plan_.state.resize(size_t(limits.chunks_max));
  plan_.next.resize(size_t(limits.chunks_max));
  plan_.adapter.resize(size_t(limits.chunks_max));
  plan_.position.resize(size_t(limits.tokens_max));
  plan_.token_page.resize(size_t(limits.tokens_max));
  plan_.row.resize(size_t(limits.draws_max) + size_t(limits.hidden_max));
  plan_.draw.resize(size_t(limits.draws_max));
  plan_.shared.resize(size_t(limits.chunks_max));
  page_use_.resize(size_t(limits.pages));
  slot_use_.resize(size_t(limits.states));
}

uint64_t StepReader::draw_words(int32_t top_logprobs_max, int32_t drafts_max) {
  uint64_t const of_drafts = drafts_max > 0 ? 1 + 2 * uint64_t(drafts_max) : 0;
  return BUNTING_RESULT_ROW_WORDS + 2 * uint64_t(top_logprobs_max) + of_drafts;
}

uint64_t StepReader::result_bytes(int32_t draws, int32_t top_logprobs_max, int32_t drafts_max, int32_t hidden,
                                  int32_t hidden_size) {
  return sizeof(bunting_step_result) + uint64_t(draws) * 4 * draw_words(top_logprobs_max, drafts_max) +
         uint64_t(hidden) * 4 * uint64_t(hidden_size);
}

StepPlan const& StepReader::read(void const* block, uint64_t block_bytes, uint64_t result_bytes) {
  plan_.moves = plan_.tokens = plan_.chunks = plan_.rows = plan_.draws = plan_.shared_spans = 0;
  step_++;
  if (!block || reinterpret_cast<uintptr_t>(block) % 4 != 0)
    fail(BUNTING_INVALID, "step block: not 4-byte aligned");
  if (block_bytes < sizeof(bunting_step_header))
    fail(BUNTING_INVALID, "step block: %llu bytes cannot hold the header", (unsigned long long)block_bytes);
  bunting_step_header header;
  std::memcpy(&header, block, sizeof header);
  if (header.magic != BUNTING_STEP_MAGIC) fail(BUNTING_INVALID, "step block: wrong magic %08x", header.magic);
  if (header.words_total < uint32_t(kHeaderWords) || uint64_t(header.words_total) * 4 > block_bytes)
    fail(BUNTING_INVALID, "step block: words_total %u does not fit %llu bytes", header.words_total,
         (unsigned long long)block_bytes);
  block_ = static_cast<uint32_t const*>(block);
  block_words_ = header.words_total;

  Array const moves = array("moves", header.moves, header.moves_at, BUNTING_MOVE_WORDS);
  Array const tokens = array("tokens", header.tokens, header.tokens_at, 1);
  Array const chunks = array("chunks", header.chunks, header.chunks_at, BUNTING_CHUNK_WORDS);
  Array const pages = array("pages", header.pages, header.pages_at, 1);
  Array const rows = array("rows", header.rows, header.rows_at, BUNTING_ROW_WORDS);
  Array const pairs = array("pairs", header.pairs, header.pairs_at, 2);
  Array const words = array("words", header.words, header.words_at, 1);
  Array const shared = array("shared", header.shared, header.shared_at, 4);
  Array const saves = array("saves", header.saves, header.saves_at, BUNTING_SAVE_WORDS);
  Array const unread = array("unread", header.unread, header.unread_at, 1);
  if (tokens.count > limits_.tokens_max)
    fail(BUNTING_INVALID, "step block: %d tokens, at most %d fit a step", tokens.count, limits_.tokens_max);
  if (chunks.count > limits_.chunks_max)
    fail(BUNTING_INVALID, "step block: %d chunks, at most %d fit a step", chunks.count, limits_.chunks_max);
  count_rows(rows, result_bytes);

  read_moves(moves);
  read_tokens(tokens);
  read_chunks(chunks, pages, rows);
  check_page_writers();
  read_unread(unread);
  read_states(saves);
  read_rows(rows, pairs, words);
  read_shared(shared);

  plan_.moves = moves.count;
  plan_.tokens = tokens.count;
  plan_.rows = rows.count;
  return plan_;
}

StepReader::Array StepReader::array(char const* name, int32_t count, int32_t at, int32_t width) const {
  if (count == 0) return {};
  if (count < 0 || at < kHeaderWords || int64_t(at) + int64_t(count) * width > block_words_)
    fail(BUNTING_INVALID, "step block: %s [%d entries of %d words at word %d] leave the block of %lld words",
         name, count, width, at, (long long)block_words_);
  return {block_ + at, count};
}

// A page may be a target only once and never also a source, so the moves may run in any order.
void StepReader::read_moves(Array const& moves) {
  PageMove const* const move = reinterpret_cast<PageMove const*>(moves.words);
  for (int32_t i = 0; i < moves.count; i++) {
    auto const [from, to, count, tier] = move[i];
    if (tier != 0)
      fail(BUNTING_INVALID, "step block: move %d is from tier %d; there is only 0, the device's pages", i,
           tier);
    if (from < 0 || from >= limits_.pages || to < 0 || to >= limits_.pages)
      fail(BUNTING_INVALID, "step block: move %d is from page %d to page %d of %d", i, from, to,
           limits_.pages);
    if (count < 1 || count > limits_.page_tokens)
      fail(BUNTING_INVALID, "step block: move %d has %d tokens, a page holds %d", i, count,
           limits_.page_tokens);
    if (page_use_[size_t(to)].moved_to_step == step_)
      fail(BUNTING_INVALID, "step block: page %d is moved to twice", to);
    page_use_[size_t(to)].moved_to_step = step_;
    page_use_[size_t(from)].moved_from_step = step_;
  }
  for (int32_t i = 0; i < moves.count; i++)
    if (page_use_[size_t(move[i].to)].moved_from_step == step_)
      fail(BUNTING_INVALID, "step block: page %d is both moved from and moved to", move[i].to);
  plan_.move = move;
}

void StepReader::read_tokens(Array const& tokens) {
  int32_t const* const token = reinterpret_cast<int32_t const*>(tokens.words);
  for (int32_t i = 0; i < tokens.count; i++)
    if (token[i] < 0 || token[i] >= limits_.vocab)
      fail(BUNTING_INVALID, "step block: token %d at row %d is outside the vocabulary of %d", token[i], i,
           limits_.vocab);
  plan_.token = token;
  plan_.tokens = tokens.count;
}

// Chunks must cover the token rows exactly once, in order, and likewise the rows. Marks the written pages.
void StepReader::read_chunks(Array const& chunks, Array const& pages, Array const& rows) {
  int32_t next_token = 0, next_row = 0;
  int32_t const tp = limits_.page_tokens;
  for (int32_t c = 0; c < chunks.count; c++) {
    int32_t word[BUNTING_CHUNK_WORDS];
    std::memcpy(word, chunks.words + size_t(c) * BUNTING_CHUNK_WORDS, sizeof word);
    auto const [first, count, start, pages_at, page_count, rows_at, row_count, adapter, second, slot, from,
                save_count, next, drafts, unread] = word;
    if (first != next_token || count < 1 || count > plan_.tokens - first)
      fail(BUNTING_INVALID, "step block: chunk %d has rows [%d, +%d), expected to begin at %d of %d", c,
           first, count, next_token, plan_.tokens);
    if (start < 0 || start > limits_.context_max - count)
      fail(BUNTING_INVALID, "step block: chunk %d has positions [%d, +%d), the context is %d", c, start,
           count, limits_.context_max);
    if (page_count != int32_t((int64_t(start) + count + tp - 1) / tp))
      fail(BUNTING_INVALID, "step block: chunk %d has %d pages for %d positions", c, page_count,
           start + count);
    if (pages_at < 0 || pages_at > pages.count - page_count)
      fail(BUNTING_INVALID, "step block: chunk %d has pages [%d, +%d) of %d", c, pages_at, page_count,
           pages.count);
    if (row_count < 0 || row_count > rows.count - next_row || (row_count > 0 && rows_at != next_row))
      fail(BUNTING_INVALID, "step block: chunk %d samples rows [%d, +%d), expected to begin at %d of %d", c,
           rows_at, row_count, next_row, rows.count);
    if (adapter < 0 || adapter > limits_.adapters_max)
      fail(BUNTING_INVALID, "step block: chunk %d wants adapter %d of %d", c, adapter, limits_.adapters_max);
    if (second < 0 || second >= count)
      fail(BUNTING_INVALID, "step block: chunk %d has tokens of type 1 from %d on, of %d tokens", c, second,
           count);
    if (next < -1 || next >= limits_.vocab || drafts < 0 || drafts > limits_.drafts_max)
      fail(BUNTING_INVALID, "step block: chunk %d is followed by token %d of %d, and %d drafts of at most %d",
           c, next, limits_.vocab, drafts, limits_.drafts_max);
    if (unread < -1 || unread > start % tp || (unread < 0 && drafts > 0))
      fail(BUNTING_INVALID, "step block: chunk %d from position %d on has %d unread tokens, and %d drafts", c,
           start, unread, drafts);
    if (limits_.is_bidirectional && start > 0)
      fail(BUNTING_INVALID,
           "step block: chunk %d begins at position %d, but its tokens see those behind them", c, start);

    int32_t const* const page = reinterpret_cast<int32_t const*>(pages.words) + pages_at;
    for (int32_t i = 0; i < page_count; i++)
      if (page[i] < 0 || page[i] >= limits_.pages)
        fail(BUNTING_INVALID, "step block: chunk %d has page %d of %d", c, page[i], limits_.pages);
    for (int32_t i = start / tp; i < page_count; i++) {
      PageUse& use = page_use_[size_t(page[i])];
      if (use.written_step == step_)
        fail(BUNTING_INVALID, "step block: page %d is written by chunks %d and %d", page[i], use.chunk, c);
      use.written_step = step_;
      use.chunk = c;
      use.index = i;
    }
    for (int32_t i = 0; i < count; i++) {
      plan_.position[size_t(first + i)] = start + i;
      plan_.token_page[size_t(first + i)] = page[(start + i) / tp];
    }
    plan_.chunk[size_t(c)] = ChunkView{first, count, start, page, second};
    plan_.next[size_t(c)] = ChunkNext{next, drafts, unread, nullptr};
    plan_.adapter[size_t(c)] = adapter;
    plan_.state[size_t(c)] = ChunkState{slot, from, nullptr, save_count};
    read_token_rows(c, rows.words, next_row, row_count);
    next_row += row_count;
    next_token += count;
  }
  if (next_token != plan_.tokens)
    fail(BUNTING_INVALID, "step block: chunks cover %d of %d tokens", next_token, plan_.tokens);
  if (next_row != rows.count)
    fail(BUNTING_INVALID, "step block: chunks sample %d of %d rows", next_row, rows.count);
  plan_.chunks = chunks.count;
}

// Reads the unread tokens before the chunks, which cover the array in order.
void StepReader::read_unread(Array const& unread) {
  int32_t const* const token = reinterpret_cast<int32_t const*>(unread.words);
  for (int32_t i = 0; i < unread.count; i++)
    if (token[i] < 0 || token[i] >= limits_.vocab)
      fail(BUNTING_INVALID, "step block: unread token %d is outside the vocabulary of %d", token[i],
           limits_.vocab);
  int32_t next_token = 0;
  for (int32_t c = 0; c < plan_.chunks; c++) {
    ChunkNext& next = plan_.next[size_t(c)];
    int32_t const count = std::max(0, next.unread);
    if (count > unread.count - next_token)
      fail(BUNTING_INVALID, "step block: chunk %d has unread tokens [%d, +%d) of %d", c, next_token, count,
           unread.count);
    next.unread_token = token + next_token;
    next_token += count;
  }
  if (next_token != unread.count)
    fail(BUNTING_INVALID, "step block: chunks have %d of %d unread tokens", next_token, unread.count);
}

// Marks a slot as written by a chunk.
void StepReader::write_slot(int32_t slot, int32_t chunk) {
  if (slot < 0 || slot >= limits_.states)
    fail(BUNTING_INVALID, "step block: chunk %d writes state slot %d of %d", chunk, slot, limits_.states);
  SlotUse& use = slot_use_[size_t(slot)];
  if (use.written_step == step_)
    fail(BUNTING_INVALID, "step block: state slot %d is written by chunks %d and %d", slot, use.chunk, chunk);
  use = {step_, chunk};
}

// Reads the states of the chunks and their saves, which cover the array in order.
void StepReader::read_states(Array const& saves) {
  int32_t next_save = 0;
  for (int32_t c = 0; c < plan_.chunks; c++) {
    ChunkState& state = plan_.state[size_t(c)];
    ChunkView const& chunk = plan_.chunk[size_t(c)];
    if (limits_.states == 0) {
      if (state.slot != -1 || state.from != -1 || state.save_count != 0)
        fail(BUNTING_INVALID, "step block: chunk %d has state slot %d; the model has no states", c,
             state.slot);
      continue;
    }
    write_slot(state.slot, c);
    if (state.from < -1 || state.from >= limits_.states || (state.from == -1) != (chunk.start == 0))
      fail(BUNTING_INVALID, "step block: chunk %d from position %d on begins from state slot %d of %d", c,
           chunk.start, state.from, limits_.states);
    if (state.save_count < 0 || state.save_count > saves.count - next_save)
      fail(BUNTING_INVALID, "step block: chunk %d has saves [%d, +%d) of %d", c, next_save, state.save_count,
           saves.count);
    state.saves = reinterpret_cast<StateSave const*>(saves.words) + next_save;
    for (int32_t i = 0; i < state.save_count; i++) {
      int32_t const least = i == 0 ? 1 : state.saves[i - 1].count + 1;
      if (state.saves[i].count < least || state.saves[i].count > chunk.count)
        fail(BUNTING_INVALID, "step block: chunk %d saves its state after %d tokens, expected %d to %d", c,
             state.saves[i].count, least, chunk.count);
      write_slot(state.saves[i].slot, c);
    }
    next_save += state.save_count;
  }
  if (next_save != saves.count)
    fail(BUNTING_INVALID, "step block: chunks have %d of %d saves", next_save, saves.count);
  for (int32_t c = 0; limits_.states > 0 && c < plan_.chunks; c++) {
    auto const [slot, from, list, count] = plan_.state[size_t(c)];
    if (from >= 0 && from != slot && slot_use_[size_t(from)].written_step == step_)
      fail(BUNTING_INVALID, "step block: chunk %d begins from state slot %d, which chunk %d writes", c, from,
           slot_use_[size_t(from)].chunk);
  }
}

// Counts the rows that draw, and checks that rows fit a step and their output fits the result.
void StepReader::count_rows(Array const& rows, uint64_t result_bytes) {
  int32_t draws = 0;
  for (int32_t r = 0; r < rows.count; r++) {
    uint32_t const wants = rows.words[size_t(r) * BUNTING_ROW_WORDS + BUNTING_ROW_WANTS];
    if (wants != BUNTING_WANTS_DRAW && wants != BUNTING_WANTS_HIDDEN)
      fail(BUNTING_INVALID, "step block: row %d wants %u, which is not known", r, wants);
    draws += wants == BUNTING_WANTS_DRAW;
  }
  int32_t const hidden = rows.count - draws;
  if (draws > limits_.draws_max)
    fail(BUNTING_INVALID, "step block: %d rows to draw from, at most %d fit a step", draws,
         limits_.draws_max);
  if (hidden > limits_.hidden_max)
    fail(BUNTING_INVALID, "step block: %d hidden states, at most %d fit a step", hidden, limits_.hidden_max);
  if (result_bytes < StepReader::result_bytes(draws, limits_.top_logprobs_max, limits_.drafts_max, hidden,
                                              limits_.hidden_size))
    fail(BUNTING_INVALID, "step result: %llu bytes cannot hold %d draws and %d hidden states",
         (unsigned long long)result_bytes, draws, hidden);
}

// Finds the tokens of a chunk to which its rows [first, first + count) belong.
void StepReader::read_token_rows(int32_t chunk, uint32_t const* rows, int32_t first, int32_t count) {
  auto const [first_token, tokens, start, pages, second] = plan_.chunk[size_t(chunk)];
  int32_t least = 0;
  for (int32_t r = first; r < first + count; r++) {
    int32_t const token = int32_t(rows[size_t(r) * BUNTING_ROW_WORDS + BUNTING_ROW_AFTER_INDEX]);
    if (token < least || token >= tokens)
      fail(BUNTING_INVALID, "step block: row %d is of token %d of chunk %d, expected %d to %d", r, token,
           chunk, least, tokens - 1);
    plan_.row[size_t(r)].token_row = first_token + token;
    least = token + 1;
  }
}

// Checks that a page written by a chunk occurs nowhere else: in no other chunk, and only once in its own.
void StepReader::check_page_writers() const {
  for (int32_t c = 0; c < plan_.chunks; c++) {
    ChunkView const& chunk = plan_.chunk[size_t(c)];
    int32_t const page_count = (chunk.start + chunk.count + limits_.page_tokens - 1) / limits_.page_tokens;
    for (int32_t i = 0; i < page_count; i++) {
      PageUse const& use = page_use_[size_t(chunk.pages[i])];
      if (use.written_step == step_ && (use.chunk != c || use.index != i))
        fail(BUNTING_INVALID, "step block: page %d is written by chunk %d and read by chunk %d",
             chunk.pages[i], use.chunk, c);
    }
  }
}

void StepReader::read_rows(Array const& rows, Array const& pairs, Array const& words) {
  for (int32_t r = 0; r < rows.count; r++) {
    uint32_t const* const row = rows.words + size_t(r) * BUNTING_ROW_WORDS;
    WantedRow& wanted = plan_.row[size_t(r)];
    wanted.is_draw = row[BUNTING_ROW_WANTS] == BUNTING_WANTS_DRAW;
    wanted.index = wanted.is_draw ? plan_.draws : r - plan_.draws;
    if (wanted.is_draw) {
      plan_.draw[size_t(plan_.draws++)] = read_row(r, row, pairs, words);
      continue;
    }
    for (int word = 0; word < BUNTING_ROW_WORDS; word++)
      if (row[word] != 0 && word != BUNTING_ROW_AFTER_INDEX && word != BUNTING_ROW_WANTS)
        fail(BUNTING_INVALID, "step block: row %d wants a hidden state, and its word %d is not 0", r, word);
  }
}

SampleRow StepReader::read_row(int32_t index, uint32_t const* words, Array const& pairs,
                               Array const& masks) const {
  auto const integer = [&](int word) { return int32_t(words[word]); };
  auto const real = [&](int word, char const* name, float low, float high) {
    float const value = as_float(words[word]);
    if (!within(value, low, high))
      fail(BUNTING_INVALID, "step block: row %d has %s %g, allowed are %g to %g", index, name, double(value),
           double(low), double(high));
    return value;
  };
  float const finite = 3.4e38f;
  SampleRow row{};
  row.temperature = real(BUNTING_ROW_TEMPERATURE, "temperature", 0, finite);
  row.top_p = real(BUNTING_ROW_TOP_P, "top_p", 0, 1);
  row.min_p = real(BUNTING_ROW_MIN_P, "min_p", 0, 1);
  row.repetition = real(BUNTING_ROW_REPETITION, "repetition penalty", 1e-6f, 1e6f);
  row.presence = real(BUNTING_ROW_PRESENCE, "presence penalty", -1e6f, 1e6f);
  row.frequency = real(BUNTING_ROW_FREQUENCY, "frequency penalty", -1e6f, 1e6f);
  row.top_k = integer(BUNTING_ROW_TOP_K);
  if (row.top_k < 0) fail(BUNTING_INVALID, "step block: row %d has top_k %d", index, row.top_k);
  row.seed_low = words[BUNTING_ROW_SEED_LOW];
  row.seed_high = words[BUNTING_ROW_SEED_HIGH];
  row.position = words[BUNTING_ROW_POSITION];

  auto const pairs_of = [&](int at_word, char const* name, int32_t* count) {
    int32_t const at = integer(at_word);
    *count = integer(at_word + 1);
    if (*count == 0) return static_cast<int32_t const*>(nullptr);
    if (at < 0 || *count < 0 || *count > pairs.count || at > pairs.count - *count)
      fail(BUNTING_INVALID, "step block: row %d has %s pairs [%d, +%d) of %d", index, name, at, *count,
           pairs.count);
    int32_t const* const pair = reinterpret_cast<int32_t const*>(pairs.words) + size_t(at) * 2;
    for (int32_t i = 0; i < *count; i++)
      if (pair[2 * i] < 0 || pair[2 * i] >= limits_.vocab)
        fail(BUNTING_INVALID, "step block: row %d has %s token %d outside the vocabulary of %d", index, name,
             pair[2 * i], limits_.vocab);
    return pair;
  };
  row.bias = pairs_of(BUNTING_ROW_BIAS_AT, "bias", &row.bias_count);
  for (int32_t i = 0; i < row.bias_count; i++) {
    float const bias = as_float(uint32_t(row.bias[2 * i + 1]));
    if (std::isnan(bias) || bias > finite)  // -inf bans a token
      fail(BUNTING_INVALID, "step block: row %d has bias %g", index, double(bias));
  }
  row.seen = pairs_of(BUNTING_ROW_SEEN_AT, "seen", &row.seen_count);
  for (int32_t i = 0; i < row.seen_count; i++)
    if (row.seen[2 * i + 1] < 0)
      fail(BUNTING_INVALID, "step block: row %d has seen count %d", index, row.seen[2 * i + 1]);

  int32_t const mask_at = integer(BUNTING_ROW_MASK_AT),
                mask_words = int32_t((int64_t(limits_.vocab) + 31) / 32);
  if (mask_at != -1) {
    if (mask_at < 0 || mask_at > masks.count - mask_words)
      fail(BUNTING_INVALID, "step block: row %d has a mask at word %d of %d", index, mask_at, masks.count);
    row.mask = masks.words + mask_at;
  }
  row.top_logprobs = integer(BUNTING_ROW_TOP_LOGPROBS);
  if (row.top_logprobs < -1 || row.top_logprobs > limits_.top_logprobs_max)
    fail(BUNTING_INVALID, "step block: row %d asks for %d logprobs, at most %d", index, row.top_logprobs,
         limits_.top_logprobs_max);
  for (int word = BUNTING_ROW_WANTS + 1; word < BUNTING_ROW_WORDS; word++)
    if (words[word] != 0)
      fail(BUNTING_INVALID, "step block: row %d has a reserved word that is not 0", index);
  return row;
}

// Returns the chunk that begins at a token row, the number of chunks for the end of the last one, or -1
// inside a chunk.
int32_t StepReader::chunk_at_row(int32_t row) const {
  auto const begin = plan_.chunk.begin(), end = begin + plan_.chunks;
  auto const at = std::lower_bound(
      begin, end, row, [](ChunkView const& chunk, int32_t first) { return chunk.first_token < first; });
  if (at == end) return row == plan_.tokens ? plan_.chunks : -1;
  return at->first_token == row ? int32_t(at - begin) : -1;
}

// Reads shared spans. Parents precede their children, and siblings follow the order of their chunks. So the
// parent of a span is the last earlier span that has not ended yet.
void StepReader::read_shared(Array const& shared) {
  int32_t const tp = limits_.page_tokens;
  if (shared.count > 0 && shared.count >= plan_.chunks)
    fail(BUNTING_INVALID, "step block: %d shared spans of %d chunks, one fewer is the most", shared.count,
         plan_.chunks);
  for (int32_t i = 0; i < shared.count; i++) {
    int32_t word[4];
    std::memcpy(word, shared.words + size_t(i) * 4, sizeof word);
    auto const [row_begin, row_end, begin, end] = word;
    SharedSpan span{chunk_at_row(row_begin), chunk_at_row(row_end), begin, end, i - 1};
    while (span.parent >= 0 && plan_.shared[size_t(span.parent)].chunk_end <= span.chunk_begin)
      span.parent = plan_.shared[size_t(span.parent)].parent;
    if (span.chunk_begin < 0 || span.chunk_end - span.chunk_begin < 2)
      fail(BUNTING_INVALID, "step block: shared span %d has rows [%d, %d), not those of two or more chunks",
           i, row_begin, row_end);
    SharedSpan const whole{0, plan_.chunks, 0, 0, -1};
    SharedSpan const& parent = span.parent < 0 ? whole : plan_.shared[size_t(span.parent)];
    if (span.chunk_begin < parent.chunk_begin || span.chunk_end > parent.chunk_end || begin != parent.end)
      fail(BUNTING_INVALID,
           "step block: shared span %d is chunks [%d, %d) from position %d, inside of [%d, %d) to %d", i,
           span.chunk_begin, span.chunk_end, begin, parent.chunk_begin, parent.chunk_end, parent.end);
    if (end <= begin || end % tp != 0)
      fail(BUNTING_INVALID, "step block: shared span %d is positions [%d, %d), not whole pages of %d", i,
           begin, end, tp);
    int32_t const* const pages = plan_.chunk[size_t(span.chunk_begin)].pages;
    for (int32_t c = span.chunk_begin; c < span.chunk_end; c++) {
      ChunkView const& chunk = plan_.chunk[size_t(c)];
      if (end > chunk.start)
        fail(BUNTING_INVALID, "step block: shared span %d goes to position %d, chunk %d computes from %d on",
             i, end, c, chunk.start);
      if (std::memcmp(chunk.pages + begin / tp, pages + begin / tp, size_t(end - begin) / size_t(tp) * 4) !=
          0)
        fail(BUNTING_INVALID, "step block: shared span %d: chunks %d and %d have different pages in [%d, %d)",
             i, span.chunk_begin, c, begin, end);
    }
    plan_.shared[size_t(i)] = span;
  }
  plan_.shared_spans = shared.count;
}

}  // namespace bunting
