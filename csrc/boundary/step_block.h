// step_block.h - validates a step block (engine.h) and parses it into views that the forward pass can trust.
//
// The block comes from outside. So the reader checks every offset, count, id, range and real number before
// use, with 64-bit arithmetic. It parses a plan into memory reserved when the engine opens and allocates
// nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "include/engine.h"

namespace bunting {

struct PageMove {
  int32_t from, to, count, tier;
};

// Token row with an output: a draw, or else its hidden state. Token rows rise strictly.
struct WantedRow {
  int32_t token_row = 0;
  bool is_draw = true;
  int32_t index = 0;  // index among the draws, or among the hidden states
};

// Continuation of a chunk, for a head or a model that drafts.
struct ChunkNext {
  int32_t token;   // -1: not known
  int32_t drafts;  // number of tokens to draft
  // Number of tokens before the chunk that a draft model reads first; -1: it reads none of the chunk.
  int32_t unread;
  int32_t const* unread_token;  // [unread] ids
};

// Shared prefix: chunks [chunk_begin, chunk_end) share the pages of positions [begin, end) (engine.h,
// `shared`).
struct SharedSpan {
  int32_t chunk_begin, chunk_end;  // at least two chunks
  int32_t begin, end;              // whole pages, below the start of each of the chunks
  int32_t parent;                  // index of the earlier span whose end is this one's begin; -1: begin is 0
};

// Validated step. Pointers are into the block, which the caller keeps unchanged until the step is done.
struct StepPlan {
  int32_t moves = 0, tokens = 0, chunks = 0, rows = 0, draws = 0,
          shared_spans = 0;         // numbers of valid entries of the arrays below
  PageMove const* move = nullptr;   // [moves]
  int32_t const* token = nullptr;   // [T] ids
  std::vector<ChunkView> chunk;     // [chunks]
  std::vector<ChunkState> state;    // [chunks]; unspecified without state slots
  std::vector<ChunkNext> next;      // [chunks]
  std::vector<int32_t> adapter;     // [chunks] slot; 0: none
  std::vector<int32_t> position;    // [T] absolute
  std::vector<int32_t> token_page;  // [T] page of each position
  std::vector<WantedRow> row;       // [rows]
  std::vector<SampleRow> draw;      // [draws] one per row that draws
  std::vector<SharedSpan> shared;   // [shared_spans]
  int32_t hidden() const { return rows - draws; }
};

// Limits against which the reader checks a block.
struct StepLimits {
  int32_t pages = 0, page_tokens = 0, states = 0;
  int32_t tokens_max = 0, chunks_max = 0, draws_max = 0, hidden_max = 0, top_logprobs_max = 0, drafts_max = 0,
          adapters_max = 0;
  int32_t vocab = 0, context_max = 0, hidden_size = 0;
  bool is_bidirectional = false;  // chunks are whole texts
};

class StepReader {
 public:
  explicit StepReader(StepLimits const& limits);

  // Throws BUNTING_INVALID with the first error; the plan is then meaningless.
  StepPlan const& read(void const* block, uint64_t block_bytes, uint64_t result_bytes);
  StepPlan const& plan() const { return plan_; }

  // Words of a draw's result; and bytes of a step's.
  static uint64_t draw_words(int32_t top_logprobs_max, int32_t drafts_max);
  static uint64_t result_bytes(int32_t draws, int32_t top_logprobs_max, int32_t drafts_max, int32_t hidden,
                               int32_t hidden_size);

 private:
  // Use of a page in the current step. Entries of earlier steps have another step number, so nothing needs
  // clearing.
  struct PageUse {
    uint64_t written_step = 0, moved_to_step = 0, moved_from_step = 0;
    int32_t chunk = 0, index = 0;  // the writing chunk, and the page's index in its list
  };

  // Writer of a state slot in the current step.
  struct SlotUse {
    uint64_t written_step = 0;
    int32_t chunk = 0;
  };

  struct Array {
    uint32_t const* words = nullptr;
    int32_t count = 0;
  };
  Array array(char const* name, int32_t count, int32_t at, int32_t width) const;
  void read_moves(Array const& moves);
  void read_tokens(Array const& tokens);
  void read_chunks(Array const& chunks, Array const& pages, Array const& rows);
  void read_unread(Array const& unread);
  void read_states(Array const& saves);
  void write_slot(int32_t slot, int32_t chunk);
  void read_token_rows(int32_t chunk, uint32_t const* rows, int32_t first, int32_t count);
  void check_page_writers() const;
  void count_rows(Array const& rows, uint64_t result_bytes);
  void read_rows(Array const& rows, Array const& pairs, Array const& words);
  SampleRow read_row(int32_t index, uint32_t const* words, Array const& pairs, Array const& masks) const;
  void read_shared(Array const& shared);
  int32_t chunk_at_row(int32_t row) const;

  StepLimits limits_;
  StepPlan plan_;
  std::vector<PageUse> page_use_;  // [P]
  std::vector<SlotUse> slot_use_;  // [states]
  uint64_t step_ = 0;
  uint32_t const* block_ = nullptr;  // set while reading
  int64_t block_words_ = 0;
};

}  // namespace bunting
