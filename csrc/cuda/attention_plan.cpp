#include "cuda/attention_plan.h"

#include <algorithm>
#include <cmath>

namespace bunting::cuda {
namespace {

// What a strip costs a block, in units of reading one tile of keys with few rows: a start, and each tile of
// keys.
constexpr double kStart = 1.25, kFewTile = 1, kManyTile = 1.3;
constexpr double kStretch = 1.02;
constexpr int32_t kPartialTiles = 8;  // of kManyRows rows, for each block

struct Segment {
  int32_t token_begin, token_end;
  int32_t kv_begin, kv_end;
  int32_t pages_at;
  bool own;       // the tokens' own positions are among the keys: a tile ends where its last token does
  int32_t start;  // own: the position of token_begin
};

// A tile of rows of a segment; with each KV head one strip.
struct RowTile {
  int32_t first_token, tokens;
  int32_t kv_begin, kv_end;
  int32_t pages_at;
  bool many;
  double cost(int32_t begin, int32_t end) const {
    return (end - begin + kTileKeys - 1) / kTileKeys * (many ? kManyTile : kFewTile);
  }
};

// A range as it is used: whole spans. Empty if there are none that all its chunks can see.
struct UsedRange {
  int32_t chunk_begin, chunk_end;
  int32_t kv_begin, kv_end;
  bool is_used() const { return kv_begin < kv_end; }
};

int32_t first_visible(AttentionShape const& shape, int32_t position) {
  return shape.sliding_window > 0 ? std::max(0, position - shape.sliding_window + 1) : 0;
}

int32_t first_tile_key(int32_t position) {
  return position / kTileKeys * kTileKeys;
}

UsedRange use(AttentionShape const& shape, std::span<AttentionChunk const> chunks, SharedRange const& range,
              std::span<UsedRange const> before) {
  int32_t const begin = range.parent >= 0 ? before[size_t(range.parent)].kv_end : 0;
  int32_t const end = std::max(begin, span_begin(range.kv_end));
  int32_t visible = end;
  for (int32_t c = range.chunk_begin; c < range.chunk_end; ++c)
    visible = std::min(visible, first_visible(shape, chunks[size_t(c)].start));
  return {range.chunk_begin, range.chunk_end, std::max(begin, std::min(end, first_tile_key(visible))), end};
}

void add_tiles(AttentionShape const& shape, Segment const& segment, std::vector<RowTile>& tiles) {
  int32_t const group = shape.query_heads / shape.kv_heads;
  bool const many = (segment.token_end - segment.token_begin) * group > kFewRows;
  int32_t const step = (many ? kManyRows : kFewRows) / group;
  for (int32_t token = segment.token_begin; token < segment.token_end; token += step) {
    int32_t const end = std::min(token + step, segment.token_end);
    int32_t kv_begin = segment.kv_begin, kv_end = segment.kv_end;
    if (segment.own) {
      int32_t const position = segment.start + token - segment.token_begin;
      kv_begin = std::max(kv_begin, first_tile_key(first_visible(shape, position)));
      kv_end = std::min(kv_end, position + end - token);
    }
    if (kv_begin < kv_end)
      tiles.push_back(
          {token, end - token, kv_begin, kv_end, segment.pages_at, (end - token) * group > kFewRows});
  }
}

// Rows of partial results that a step needs because it shares, before any strip is cut.
int64_t shared_partial_rows(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                            std::span<UsedRange const> ranges) {
  int64_t rows = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    int64_t spans = 0;
    int32_t shared_end = 0;
    for (UsedRange const& range : ranges)
      if (range.is_used() && range.chunk_begin <= int32_t(c) && int32_t(c) < range.chunk_end) {
        spans += shared_end == 0 ? 1 : spans_in(range.kv_begin, range.kv_end);
        shared_end = range.kv_end;
      }
    if (spans > 0) spans += spans_in(shared_end, chunks[c].start + chunks[c].count);
    rows += spans * chunks[c].count * shape.query_heads;
  }
  return rows;
}

// Deals the strips to the blocks, none of which gets more than `target` if that can be. False if there are
// too few blocks for that. Cuts may add `partial_rows` rows.
bool deal(AttentionShape const& shape, std::span<RowTile const> tiles, double target, int64_t partial_rows,
          AttentionPlan& plan) {
  plan.items.clear();
  plan.item_begin.assign(1, 0);
  int32_t const group = shape.query_heads / shape.kv_heads;
  double room = target, largest = 0;
  auto const next_block = [&] {
    largest = std::max(largest, target - room);
    plan.item_begin.push_back(int32_t(plan.items.size()));
    room = target;
  };
  for (RowTile const& tile : tiles)
    for (int32_t head = 0; head < shape.kv_heads; ++head)
      for (int32_t begin = tile.kv_begin; begin < tile.kv_end;) {
        double cost = kStart;
        int32_t end = begin;
        while (end < tile.kv_end) {
          int32_t const next = std::min(span_end(end), tile.kv_end);
          double const more = cost + tile.cost(end, next);
          bool const is_first = end == begin && room == target;  // an empty block takes something
          if (more > room + 1e-9 && !is_first) break;
          cost = more;
          end = next;
        }
        if (end == begin) {
          next_block();
          continue;
        }
        if (begin == tile.kv_begin && end < tile.kv_end) {
          int64_t const rows = int64_t(1 + spans_in(end, tile.kv_end)) * tile.tokens * group;
          if (rows > partial_rows) {  // there is no memory to cut this strip
            cost += tile.cost(end, tile.kv_end);
            end = tile.kv_end;
          } else {
            partial_rows -= rows;
          }
        }
        plan.items.push_back(
            {tile.first_token, tile.tokens, head, tile.pages_at, begin, end, -1, int16_t(tile.many), 1});
        room -= cost;
        begin = end;
      }
  next_block();
  bool const fits = int32_t(plan.item_begin.size()) <= shape.blocks + 1;
  plan.item_begin.resize(size_t(shape.blocks) + 1, int32_t(plan.items.size()));
  plan.balance = largest;  // a mean makes a balance of it
  return fits;
}

// Who has to be merged with whom. A token's items come in the order of positions.
void add_merges(AttentionShape const& shape, int32_t tokens, AttentionPlan& plan) {
  size_t const pairs = size_t(tokens) * size_t(shape.kv_heads);
  int32_t const group = shape.query_heads / shape.kv_heads;
  auto const pair_of = [&](AttentionItem const& item, int32_t i) {
    return size_t(item.first_token + i) * size_t(shape.kv_heads) + size_t(item.kv_head);
  };
  auto const results_of = [&](AttentionItem const& item) {
    return item.sums_up ? 1 : spans_in(item.kv_begin, item.kv_end);
  };
  // Partial results of each pair, as counts one place further on, so that their sums become beginnings.
  plan.merge_begin.assign(pairs + 1, 0);
  for (AttentionItem& item : plan.items) {
    for (int32_t i = 0; i < item.tokens; ++i)
      if (plan.merge_begin[pair_of(item, i) + 1] > 0) item.sums_up = 0;
    for (int32_t i = 0; i < item.tokens; ++i) plan.merge_begin[pair_of(item, i) + 1] += results_of(item);
  }
  plan.partial_rows = 0;
  for (AttentionItem& item : plan.items) {
    bool alone = item.sums_up;
    for (int32_t i = 0; i < item.tokens; ++i) alone = alone && plan.merge_begin[pair_of(item, i) + 1] == 1;
    if (alone) continue;
    item.partial = plan.partial_rows;
    plan.partial_rows += results_of(item) * item.tokens * group;
  }
  for (AttentionItem const& item : plan.items)
    if (item.partial < 0)
      for (int32_t i = 0; i < item.tokens; ++i) plan.merge_begin[pair_of(item, i) + 1] = 0;
  for (size_t i = 0; i < pairs; ++i) plan.merge_begin[i + 1] += plan.merge_begin[i];
  plan.merge_rows.resize(size_t(plan.merge_begin[pairs]));
  for (AttentionItem const& item : plan.items)
    for (int32_t i = 0; item.partial >= 0 && i < item.tokens; ++i)
      for (int32_t r = 0; r < results_of(item); ++r)
        plan.merge_rows[size_t(plan.merge_begin[pair_of(item, i)]++)] =
            item.partial + (r * item.tokens + i) * group;
  // Each beginning has moved to the next one.
  std::copy_backward(plan.merge_begin.begin(), plan.merge_begin.end() - 1, plan.merge_begin.end());
  plan.merge_begin[0] = 0;
}

}  // namespace

int64_t attention_items_max(int32_t tokens, AttentionShape const& shape) {
  // A tile has a token at least, and tiles of shared ranges are at most as many as tokens; a border between
  // two blocks makes one more item.
  return 2 * int64_t(tokens) * shape.kv_heads + shape.blocks;
}

int64_t attention_partial_rows_max(AttentionShape const& shape) {
  return int64_t(shape.blocks) * kPartialTiles * kManyRows;
}

void plan_attention(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                    std::span<SharedRange const> shared, AttentionPlan& plan) {
  static thread_local std::vector<UsedRange> ranges;
  static thread_local std::vector<RowTile> tiles;
  ranges.clear();
  tiles.clear();
  int32_t const tokens = chunks.empty() ? 0 : chunks.back().first_token + chunks.back().count;
  for (SharedRange const& range : shared) ranges.push_back(use(shape, chunks, range, ranges));
  for (UsedRange const& range : ranges)
    if (range.is_used()) {
      AttentionChunk const& first = chunks[size_t(range.chunk_begin)];
      AttentionChunk const& last = chunks[size_t(range.chunk_end) - 1];
      add_tiles(shape,
                {first.first_token, last.first_token + last.count, range.kv_begin, range.kv_end,
                 first.pages_at, false, 0},
                tiles);
    }
  int64_t partial_rows = attention_partial_rows_max(shape) - shared_partial_rows(shape, chunks, ranges);
  if (partial_rows < 0 || tiles.size() > size_t(tokens)) {
    partial_rows = attention_partial_rows_max(shape);
    ranges.clear();
    tiles.clear();
  }
  for (size_t c = 0; c < chunks.size(); ++c) {
    AttentionChunk const& chunk = chunks[c];
    int32_t begin = 0;
    for (UsedRange const& range : ranges)
      if (range.is_used() && range.chunk_begin <= int32_t(c) && int32_t(c) < range.chunk_end)
        begin = range.kv_end;
    add_tiles(shape,
              {chunk.first_token, chunk.first_token + chunk.count, begin, chunk.start + chunk.count,
               chunk.pages_at, true, chunk.start},
              tiles);
  }

  double total = 0;
  for (RowTile const& tile : tiles)
    total += shape.kv_heads * (kStart + tile.cost(tile.kv_begin, tile.kv_end));
  double target = std::max(total / shape.blocks, kStart + kSpanKeys / kTileKeys * kFewTile);
  while (!deal(shape, tiles, target, partial_rows, plan)) target *= kStretch;
  plan.balance = plan.balance > 0 ? total / shape.blocks / plan.balance : 1;
  add_merges(shape, tokens, plan);
}

}  // namespace bunting::cuda
