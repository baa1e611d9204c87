#include "cuda/attention_plan.h"

#include <algorithm>
#include <cmath>

namespace bunting::cuda {
namespace {

// Estimated cost of a strip for a block: a start plus each tile of keys, in units of reading one tile of keys
// with few rows.
constexpr double kStart = 1.25, kFewTile = 1, kManyTile = 1.3;
// Cost of a query row's partial result, written and read in f32, as a number of positions' keys and values.
constexpr int64_t kPartialPositions = 2;
constexpr double kStretchLeast = 1.01;
constexpr double kRounding = 1e-9;
// Rows of partial results per block, for heads of at most kPartialHeadSize; longer heads have fewer rows.
constexpr int32_t kPartialRows = 16 * kManyRows, kPartialHeadSize = 128;

struct Segment {
  int32_t token_begin, token_end;
  int32_t kv_begin, kv_end;
  int32_t pages_at;
  bool first;     // its tokens see nothing before it
  bool own;       // the keys include the tokens' own positions: a tile ends at its last token
  int32_t start;  // position of token_begin, if own
};

// Tile of query rows of a segment; with each KV head it makes one strip.
struct RowTile {
  int32_t first_token, tokens;
  int32_t kv_begin, kv_end;
  int32_t pages_at;
  bool many, first, own;
  double cost_of_tile() const { return many ? kManyTile : kFewTile; }
  double cost(int32_t begin) const {
    return kStart + (kv_end - begin + kTileKeys - 1) / kTileKeys * cost_of_tile();
  }
  // Partial results that a cut at `end` adds per query row. A tile that is not first has one per span anyway.
  // A shared range that is first has one in any case. A token's own keys have none if the token sees nothing
  // else.
  int32_t partials_of_cut(int32_t end) const { return first ? spans_in(end, kv_end) + (own ? 1 : 0) : 0; }
};

// Part of a shared range that the plan uses, in whole spans. Empty if some chunk cannot see any, or if it
// does not pay.
struct UsedRange {
  int32_t chunk_begin, chunk_end;
  int32_t kv_begin, kv_end;
  bool is_used() const { return kv_begin < kv_end; }
};

int32_t first_visible(AttentionShape const& shape, int32_t position) {
  if (shape.sliding_window == 0) return 0;
  return shape.is_chunked ? position - position % shape.sliding_window
                          : std::max(0, position - shape.sliding_window + 1);
}

int32_t first_tile_key(int32_t position) {
  return position / kTileKeys * kTileKeys;
}

// Gain and cost of reading a range once for all, if nothing before it is shared. It saves reading the range
// for each of `readers`, which are chunks and ranges below it. It adds a partial result for each of `spans`
// to each query head that shares a KV head. Tokens that see nothing before the range keep one result; those
// that follow keep one per span.
struct Sharing {
  int64_t readers = 0, spans = 0;
};

void weigh(std::span<AttentionChunk const> chunks, std::span<SharedRange const> shared,
           std::vector<int32_t>& innermost, std::vector<Sharing>& sharing) {
  innermost.assign(chunks.size(), -1);
  sharing.assign(shared.size(), {});
  for (size_t r = 0; r < shared.size(); ++r) {
    SharedRange const& range = shared[r];
    std::fill(innermost.begin() + range.chunk_begin, innermost.begin() + range.chunk_end, int32_t(r));
    if (range.parent < 0) continue;
    AttentionChunk const& last = chunks[size_t(range.chunk_end) - 1];
    int64_t const tokens = last.first_token + last.count - chunks[size_t(range.chunk_begin)].first_token;
    Sharing& parent = sharing[size_t(range.parent)];
    parent.readers += 1;
    parent.spans += tokens * spans_in(shared[size_t(range.parent)].kv_end, range.kv_end);
  }
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (innermost[c] < 0) continue;
    Sharing& own = sharing[size_t(innermost[c])];
    int32_t const begin = shared[size_t(innermost[c])].kv_end, end = chunks[c].start + chunks[c].count;
    own.readers += 1;
    own.spans += int64_t(chunks[c].count) * (1 + spans_in(begin, end));
  }
}

UsedRange use(AttentionShape const& shape, std::span<AttentionChunk const> chunks, SharedRange const& range,
              Sharing const& sharing, std::span<UsedRange const> before) {
  int32_t const begin = range.parent >= 0 ? before[size_t(range.parent)].kv_end : 0;
  int32_t const end = std::max(begin, span_begin(range.kv_end));
  int64_t const saved = (sharing.readers - 1) * end;
  if (begin == 0 && saved < kPartialPositions * sharing.spans * (shape.query_heads / shape.kv_heads))
    return {range.chunk_begin, range.chunk_end, 0, 0};
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
      tiles.push_back({.first_token = token,
                       .tokens = end - token,
                       .kv_begin = kv_begin,
                       .kv_end = kv_end,
                       .pages_at = segment.pages_at,
                       .many = (end - token) * group > kFewRows,
                       .first = segment.first,
                       .own = segment.own});
  }
}

// Adds the tiles of the shared ranges and writes into `shared_end` where each chunk's shared part ends.
// Returns the rows of partial results that sharing needs, before any strip is cut.
int64_t add_shared_tiles(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                         std::span<UsedRange const> ranges, std::vector<int32_t>& shared_end,
                         std::vector<RowTile>& tiles) {
  int64_t rows = 0;
  for (UsedRange const& range : ranges) {
    if (!range.is_used()) continue;
    AttentionChunk const& begin = chunks[size_t(range.chunk_begin)];
    AttentionChunk const& last = chunks[size_t(range.chunk_end) - 1];
    int32_t const token_end = last.first_token + last.count;
    bool const first = shared_end[size_t(range.chunk_begin)] == 0;
    std::fill(shared_end.begin() + range.chunk_begin, shared_end.begin() + range.chunk_end, range.kv_end);
    add_tiles(shape,
              {begin.first_token, token_end, range.kv_begin, range.kv_end, begin.pages_at, first, false, 0},
              tiles);
    rows += int64_t(first ? 1 : spans_in(range.kv_begin, range.kv_end)) * (token_end - begin.first_token);
  }
  for (size_t c = 0; c < chunks.size(); ++c)
    if (shared_end[c] > 0)
      rows += int64_t(spans_in(shared_end[c], chunks[c].start + chunks[c].count)) * chunks[c].count;
  return rows * shape.query_heads;
}

// Assigns the strips to the blocks in order and returns how many blocks that takes. If possible no block
// costs more than `target`. Cuts may add `partial_rows` rows.
int32_t deal(AttentionShape const& shape, std::span<RowTile const> tiles, double target, int64_t partial_rows,
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
        double cost = tile.cost(begin);
        int32_t end = tile.kv_end;
        if (cost > room + kRounding) {
          bool const is_empty = room == target;  // an empty block must receive something
          double const tiles_of_keys = std::max(0.0, (room - kStart + kRounding) / tile.cost_of_tile());
          end = std::min(span_begin(begin + int32_t(tiles_of_keys) * kTileKeys), tile.kv_end);
          if (end <= begin && is_empty) end = std::min(span_end(begin), tile.kv_end);
          int64_t const rows = begin == tile.kv_begin && end > begin && end < tile.kv_end
                                   ? int64_t(tile.partials_of_cut(end)) * tile.tokens * group
                                   : 0;
          bool const has_memory = rows <= partial_rows;
          if (end <= begin || (!has_memory && !is_empty)) {
            next_block();
            continue;
          }
          if (has_memory) {
            partial_rows -= rows;
            cost -= tile.cost(end) - kStart;
          } else {
            end = tile.kv_end;
          }
        }
        plan.items.push_back(
            {tile.first_token, tile.tokens, head, tile.pages_at, begin, end, -1, int16_t(tile.many), 1});
        room -= cost;
        begin = end;
      }
  next_block();
  int32_t const blocks = int32_t(plan.item_begin.size()) - 1;
  plan.item_begin.resize(size_t(shape.blocks) + 1, int32_t(plan.items.size()));
  plan.balance = largest;  // the caller turns this into mean / largest
  return blocks;
}

// Finds the items to merge. A token's items come in the order of positions.
void add_merges(AttentionShape const& shape, int32_t tokens, AttentionPlan& plan) {
  size_t const pairs = size_t(tokens) * size_t(shape.kv_heads);
  int32_t const group = shape.query_heads / shape.kv_heads;
  auto const pair_of = [&](AttentionItem const& item, int32_t i) {
    return size_t(item.first_token + i) * size_t(shape.kv_heads) + size_t(item.kv_head);
  };
  auto const results_of = [&](AttentionItem const& item) {
    return item.sums_up ? 1 : spans_in(item.kv_begin, item.kv_end);
  };
  // Counts each pair's partial results at the next index, so that prefix sums become beginnings.
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
  // Each beginning has moved to the next index.
  std::copy_backward(plan.merge_begin.begin(), plan.merge_begin.end() - 1, plan.merge_begin.end());
  plan.merge_begin[0] = 0;
}

}  // namespace

int64_t attention_items_max(int32_t tokens, AttentionShape const& shape) {
  // A tile has at least one token, and shared ranges have at most as many tiles as tokens. A border between
  // two blocks makes one more item.
  return 2 * int64_t(tokens) * shape.kv_heads + shape.blocks;
}

int64_t attention_partial_rows_max(AttentionShape const& shape) {
  return int64_t(shape.blocks) * kPartialRows * kPartialHeadSize /
         std::max(kPartialHeadSize, shape.head_size);
}

int64_t attention_merge_rows_max(AttentionShape const& shape) {
  return attention_partial_rows_max(shape) / (shape.query_heads / shape.kv_heads);
}

void plan_attention(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                    std::span<SharedRange const> shared, AttentionPlan& plan) {
  static thread_local std::vector<UsedRange> ranges;
  static thread_local std::vector<RowTile> tiles;
  static thread_local std::vector<int32_t> innermost, shared_end;  // indexed by chunk
  static thread_local std::vector<Sharing> sharing;                // indexed by range
  ranges.clear();
  tiles.clear();
  shared_end.assign(chunks.size(), 0);
  int32_t const tokens = chunks.empty() ? 0 : chunks.back().first_token + chunks.back().count;
  weigh(chunks, shared, innermost, sharing);
  for (size_t r = 0; r < shared.size(); ++r)
    ranges.push_back(use(shape, chunks, shared[r], sharing[r], ranges));
  int64_t partial_rows =
      attention_partial_rows_max(shape) - add_shared_tiles(shape, chunks, ranges, shared_end, tiles);
  if (partial_rows < 0 || tiles.size() > size_t(tokens)) {
    partial_rows = attention_partial_rows_max(shape);
    shared_end.assign(chunks.size(), 0);
    tiles.clear();
  }
  for (size_t c = 0; c < chunks.size(); ++c) {
    AttentionChunk const& chunk = chunks[c];
    add_tiles(shape,
              {chunk.first_token, chunk.first_token + chunk.count, shared_end[c], chunk.start + chunk.count,
               chunk.pages_at, shared_end[c] == 0, true, chunk.start},
              tiles);
  }

  double total = 0;
  for (RowTile const& tile : tiles) total += shape.kv_heads * tile.cost(tile.kv_begin);
  double target = std::max(total / shape.blocks, kStart + kSpanKeys / kTileKeys * kFewTile);
  for (;;) {
    int32_t const blocks = deal(shape, tiles, target, partial_rows, plan);
    if (blocks <= shape.blocks) break;
    target *= std::max(kStretchLeast, (1 + double(blocks) / shape.blocks) / 2);
  }
  plan.balance = plan.balance > 0 ? total / shape.blocks / plan.balance : 1;
  add_merges(shape, tokens, plan);
}

}  // namespace bunting::cuda
