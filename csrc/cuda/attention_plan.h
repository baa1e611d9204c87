// attention_plan.h - cuts a step's attention into items of equal work for the blocks of one launch.
//
// Tokens that lie together in the step and see the same keys are a segment: a chunk's own tokens with what
// only they see, or all tokens below a shared prefix with that prefix. A segment is cut into tiles of query
// rows, a tile times a head is a strip of keys, and the strips, laid end to end on an axis of cost, are cut
// into as many equal parts as there are blocks. A strip is cut only at such a border. A plan depends on the
// step alone, never on timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bunting::cuda {

// Consecutive tokens (rows of the step) of one KV head against consecutive positions. The query rows of a
// token are the heads that share the KV head. What the kernel reads: 32 bytes.
struct AttentionItem {
  int32_t first_token, tokens;
  int32_t kv_head;
  int32_t pages_at;          // in the step's page ids: the page of position 0
  int32_t kv_begin, kv_end;  // positions
  int32_t partial;           // first row of partial results; -1: this item is all that its tokens see
  int32_t many_rows;         // 1: a tile of kManyRows rows, 0: of kFewRows
};

inline constexpr int32_t kFewRows = 16, kManyRows = 64;
inline constexpr int32_t kTileKeys = 64;  // keys that a block reads at a time

// A chunk of the step, as in engine.h.
struct AttentionChunk {
  int32_t first_token, count, start;
  int32_t pages_at;
};

// Tokens [token_begin, token_end) have the keys and values of positions [kv_begin, kv_end) in common; both
// ranges as engine.h's `shared`.
struct SharedSpan {
  int32_t token_begin, token_end, kv_begin, kv_end;
};

struct AttentionShape {
  int32_t query_heads, kv_heads;
  int32_t sliding_window;  // 0: none
  int32_t blocks;          // of the launch
};

struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<int32_t> item_begin;   // [blocks + 1] items of each block
  std::vector<int32_t> merge_begin;  // [T * Hk + 1] of token t and KV head h: entry t * Hk + h
  std::vector<int32_t> merge_rows;   // in the order of summation: the partial row of the token's first head
  int32_t partial_rows = 0;
  double balance = 0;  // mean cost of a block / largest
};

// Plans attention for all tokens of the chunks, which cover the step's tokens [0, T) in order. Spans that
// are not worth it, that end inside a chunk's tokens or reach into positions that a member computes in this
// step are not shared. `plan` is used again from step to step, so that it allocates nothing once it has
// grown.
void plan_attention(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                    std::span<SharedSpan const> shared, AttentionPlan& plan);

}  // namespace bunting::cuda
