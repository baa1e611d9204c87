// attention_plan.h - cuts a step's attention into items of equal work for the blocks of one launch.
//
// Tokens that lie together in the step and see the same keys are a segment: a chunk's own tokens with what
// only they see, or all tokens below a shared prefix with that prefix. A segment is cut into tiles of query
// rows, a tile times a head is a strip of keys, and the strips, laid end to end on an axis of cost, are cut
// into as many equal parts as there are blocks. A strip is cut only at such a border.
//
// A plan never shows in a result. Keys are summed up within absolute spans (span_end), spans in rising order,
// and every border between items is a border between spans. A plan depends on the step alone, never on
// timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bunting::cuda {

inline constexpr int32_t kFewRows = 16, kManyRows = 64;
inline constexpr int32_t kTileKeys = 64;  // keys that a block reads at a time, from a multiple of as many on

// Spans are long enough that their partial results cost little, and short enough that one long sequence
// occupies a large GPU: 256 positions, and from 8192 on a sixteenth to a thirty-second of the position.
inline constexpr int32_t kSpanKeys = 256;
constexpr int32_t span_doublings(int32_t position) {
  int32_t doublings = 0;
  while (position >> doublings >= 32 * kSpanKeys) ++doublings;
  return doublings;
}
constexpr int32_t span_length(int32_t position) {
  return kSpanKeys << span_doublings(position);
}
// Of the span that has the position: its first position, and the first one after it.
constexpr int32_t span_begin(int32_t position) {
  return position & -span_length(position);
}
constexpr int32_t span_end(int32_t position) {
  return span_begin(position) + span_length(position);
}
// Spans before the one that has the position: 32 of the shortest, then 16 of each length.
constexpr int32_t span_index(int32_t position) {
  return 16 * span_doublings(position) + position / span_length(position);
}
// Spans that share a position with [begin, end).
constexpr int32_t spans_in(int32_t begin, int32_t end) {
  return begin < end ? span_index(end - 1) - span_index(begin) + 1 : 0;
}

// Consecutive tokens (rows of the step) of one KV head against consecutive positions. The query rows of a
// token are the heads that share the KV head. What the kernel reads: 32 bytes.
struct AttentionItem {
  int32_t first_token, tokens;
  int32_t kv_head;
  int32_t pages_at;          // in the step's page ids: the page of position 0
  int32_t kv_begin, kv_end;  // positions; kv_begin is a multiple of kTileKeys
  int32_t partial;           // first row of partial results; -1: this item is all that its tokens see
  int16_t many_rows;         // 1: a tile of kManyRows rows, 0: of kFewRows
  // 1: its tokens see nothing before it, so that it sums up its spans; with a partial result, in one row for
  // each query row. 0: a partial result for each span, span after span, each of as many rows.
  int16_t sums_up;
};

// A chunk of the step, as in engine.h.
struct AttentionChunk {
  int32_t first_token, count, start;
  int32_t pages_at;
};

// Chunks [chunk_begin, chunk_end) have the pages of positions [kv_begin, kv_end) in common: engine.h's
// `shared`. `parent` is the span whose kv_end is this one's kv_begin, earlier in the list; -1: kv_begin is 0.
struct SharedRange {
  int32_t chunk_begin, chunk_end, kv_begin, kv_end;
  int32_t parent;
};

struct AttentionShape {
  int32_t query_heads, kv_heads;
  int32_t sliding_window;  // 0: none
  int32_t blocks;          // of the launch
  int32_t head_size;
};

struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<int32_t> item_begin;   // [blocks + 1] items of each block
  std::vector<int32_t> merge_begin;  // [T * Hk + 1] of token t and KV head h: entry t * Hk + h
  std::vector<int32_t> merge_rows;   // in the order of positions: the partial row of the token's first head
  int32_t partial_rows = 0;
  double balance = 0;  // mean cost of a block / largest
};

// The most items, partial rows and merge_rows of a plan for so many tokens.
int64_t attention_items_max(int32_t tokens, AttentionShape const& shape);
int64_t attention_partial_rows_max(AttentionShape const& shape);
int64_t attention_merge_rows_max(AttentionShape const& shape);

// Plans attention for all tokens of the chunks, which cover the step's tokens [0, T) in order. Of a shared
// range whole spans are read once for all its chunks, unless that adds more partial results than it saves
// reading, as where a short prefix precedes long ones; if partial results would need more memory than there
// is, nothing is shared. `plan` is used again from step to step, so that it allocates nothing once it has
// grown.
void plan_attention(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                    std::span<SharedRange const> shared, AttentionPlan& plan);

}  // namespace bunting::cuda
