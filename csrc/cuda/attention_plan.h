// attention_plan.h - cuts a step's attention into items of equal work for the blocks of one launch.
//
// Consecutive tokens that see the same keys are a segment: a chunk's own tokens with the keys that only they
// see, or all tokens below a shared prefix with that prefix. The planner cuts a segment into tiles of query
// rows. A tile times a head is a strip of keys. The strips, end to end on an axis of estimated cost, are cut
// into as many equal parts as there are blocks. A strip is cut only at such a border.
//
// A plan never changes a result: keys are summed within absolute spans (span_end), spans are added in rising
// order, and every border between items is a border between spans. A plan depends only on the step, never on
// timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bunting::cuda {

inline constexpr int32_t kFewRows = 16, kManyRows = 64;
inline constexpr int32_t kTileKeys = 64;  // keys per tile; tiles begin at multiples of this position

// Spans are 256 positions, and from position 8192 on a sixteenth to a thirty-second of the position. They are
// long enough that their partial results cost little, and short enough that one long sequence occupies a
// large GPU.
inline constexpr int32_t kSpanKeys = 256;
constexpr int32_t span_doublings(int32_t position) {
  int32_t doublings = 0;
  while (position >> doublings >= 32 * kSpanKeys) ++doublings;
  return doublings;
}
constexpr int32_t span_length(int32_t position) {
  return kSpanKeys << span_doublings(position);
}
// First position of the span that has `position`, and the first position after the span.
constexpr int32_t span_begin(int32_t position) {
  return position & -span_length(position);
}
constexpr int32_t span_end(int32_t position) {
  return span_begin(position) + span_length(position);
}
// Number of spans before the one that has `position`: 32 of the shortest, then 16 of each length.
constexpr int32_t span_index(int32_t position) {
  return 16 * span_doublings(position) + position / span_length(position);
}
// Number of spans that overlap [begin, end).
constexpr int32_t spans_in(int32_t begin, int32_t end) {
  return begin < end ? span_index(end - 1) - span_index(begin) + 1 : 0;
}

// Work item: consecutive tokens (rows of the step) of one KV head against consecutive positions. The query
// rows of a token are the heads that share the KV head. The kernel reads this struct: 32 bytes.
struct AttentionItem {
  int32_t first_token, tokens;
  int32_t kv_head;
  int32_t pages_at;          // index of the page of position 0 in the step's page ids
  int32_t kv_begin, kv_end;  // positions; kv_begin is a multiple of kTileKeys
  // First row of partial results; -1: this item covers everything that its tokens see.
  int32_t partial;
  int16_t many_rows;  // 1: a tile of kManyRows rows, 0: of kFewRows
  // 1: its tokens see nothing before it, so it sums up its spans; a partial result then has one row per query
  // row. 0: it leaves a partial result per span, span after span, each with one row per query row.
  int16_t sums_up;
};

// Chunk of the step, as in engine.h.
struct AttentionChunk {
  int32_t first_token, count, start;
  int32_t pages_at;
};

// Shared prefix (engine.h, `shared`): chunks [chunk_begin, chunk_end) share the pages of positions [kv_begin,
// kv_end). `parent` is the index of the earlier range whose kv_end is this one's kv_begin; -1 if kv_begin is
// 0.
struct SharedRange {
  int32_t chunk_begin, chunk_end, kv_begin, kv_end;
  int32_t parent;
};

struct AttentionShape {
  int32_t query_heads, kv_heads;
  int32_t sliding_window;  // 0: none
  int32_t blocks;          // blocks of the launch
  int32_t head_size;
  bool is_chunked = false;  // the window is a chunk (engine.h)
};

struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<int32_t> item_begin;  // [blocks + 1] first item of each block
  // [T * Hk + 1] entry t * Hk + h: first merge_rows of token t and KV head h
  std::vector<int32_t> merge_begin;
  std::vector<int32_t> merge_rows;  // partial row of the token's first head, in the order of positions
  int32_t partial_rows = 0;
  double balance = 0;  // mean cost of a block / largest
};

// Upper bounds of the items, partial rows and merge_rows of a plan for `tokens` tokens.
int64_t attention_items_max(int32_t tokens, AttentionShape const& shape);
int64_t attention_partial_rows_max(AttentionShape const& shape);
int64_t attention_merge_rows_max(AttentionShape const& shape);

// Plans attention for all tokens of the chunks, which cover the step's tokens [0, T) in order. The plan reads
// whole spans of a shared range once for all its chunks, unless that adds more partial results than it saves
// reading. That is so for a short prefix of long chunks. If partial results would need more memory than there
// is, nothing is shared. The caller reuses `plan` from step to step, so it allocates nothing once it has
// grown.
void plan_attention(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                    std::span<SharedRange const> shared, AttentionPlan& plan);

}  // namespace bunting::cuda
