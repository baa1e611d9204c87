#include "cuda/attention_plan.h"

#include <algorithm>
#include <cmath>

namespace bunting::cuda {
namespace {

// What a strip costs a block, in units of reading one tile of keys with few rows: a start, and each tile of
// keys.
constexpr double kStart = 1.25, kFewTile = 1, kManyTile = 1.3;
constexpr int32_t kPieceTilesMin = 2;        // a shorter piece is not worth the partial results
constexpr int32_t kSharedPositionsMin = 64;  // a shorter span is not worth reading once
constexpr double kStretch = 1.02;

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
  int32_t key_tiles() const { return (kv_end - kv_begin + kTileKeys - 1) / kTileKeys; }
  double tile_cost() const { return many ? kManyTile : kFewTile; }
};

// A span as it is used: clipped to whole chunks [chunk_begin, chunk_end).
struct UsedSpan {
  int32_t chunk_begin, chunk_end;
  int32_t kv_begin, kv_end;
};

int32_t first_visible(AttentionShape const& shape, int32_t position) {
  return shape.sliding_window > 0 ? std::max(0, position - shape.sliding_window + 1) : 0;
}

// Which chunks a span covers and which positions all of them may share; an empty range of positions if it
// is no use.
UsedSpan use(AttentionShape const& shape, std::span<AttentionChunk const> chunks, SharedSpan const& span) {
  auto const at = [&](int32_t token) {
    return int32_t(std::lower_bound(chunks.begin(), chunks.end(), token,
                                    [](AttentionChunk const& c, int32_t t) { return c.first_token < t; }) -
                   chunks.begin());
  };
  int32_t const begin = at(span.token_begin), end = at(span.token_end);
  UsedSpan used{begin, end, span.kv_begin, span.kv_end};
  bool const whole = begin < end && chunks[size_t(begin)].first_token == span.token_begin &&
                     chunks[size_t(end) - 1].first_token + chunks[size_t(end) - 1].count == span.token_end;
  int32_t visible = span.kv_end;
  for (int32_t c = begin; whole && c < end; ++c) {
    used.kv_end = std::min(used.kv_end, chunks[size_t(c)].start);
    visible = std::min(visible, first_visible(shape, chunks[size_t(c)].start));
  }
  used.kv_begin = std::max(used.kv_begin, visible);
  if (!whole || end - begin < 2 || used.kv_end - used.kv_begin < kSharedPositionsMin)
    used.kv_end = used.kv_begin;
  return used;
}

void add_tiles(AttentionShape const& shape, Segment const& segment, std::vector<RowTile>& tiles) {
  if (segment.kv_begin >= segment.kv_end) return;
  int32_t const group = shape.query_heads / shape.kv_heads;
  bool const many = (segment.token_end - segment.token_begin) * group > kFewRows;
  int32_t const step = (many ? kManyRows : kFewRows) / group;
  for (int32_t token = segment.token_begin; token < segment.token_end; token += step) {
    int32_t const end = std::min(token + step, segment.token_end);
    int32_t kv_begin = segment.kv_begin, kv_end = segment.kv_end;
    if (segment.own) {
      kv_begin = std::max(kv_begin, first_visible(shape, segment.start + token - segment.token_begin));
      kv_end = std::min(kv_end, segment.start + end - segment.token_begin);
    }
    if (kv_begin < kv_end)
      tiles.push_back(
          {token, end - token, kv_begin, kv_end, segment.pages_at, (end - token) * group > kFewRows});
  }
}

// The chunk's positions that no span covers, in order.
void add_own(AttentionShape const& shape, AttentionChunk const& chunk, std::span<UsedSpan const> spans,
             int32_t index, std::vector<RowTile>& tiles) {
  int32_t at = 0;
  auto const add = [&](int32_t end) {
    if (at < end)
      add_tiles(
          shape,
          {chunk.first_token, chunk.first_token + chunk.count, at, end, chunk.pages_at, true, chunk.start},
          tiles);
  };
  for (;;) {  // spans are few, and in no order
    UsedSpan const* next = nullptr;
    for (UsedSpan const& span : spans)
      if (span.chunk_begin <= index && index < span.chunk_end && span.kv_end > at &&
          span.kv_begin < span.kv_end && (!next || span.kv_begin < next->kv_begin))
        next = &span;
    if (!next) break;
    add(next->kv_begin);
    at = next->kv_end;
  }
  add(chunk.start + chunk.count);
}

// Deals the strips to the blocks, none of which gets more than `target`. False if there are too few blocks
// for that.
bool deal(AttentionShape const& shape, std::span<RowTile const> tiles, double target, AttentionPlan& plan) {
  plan.items.clear();
  plan.item_begin.assign(1, 0);
  double room = target, largest = 0;
  auto const next_block = [&] {
    largest = std::max(largest, target - room);
    plan.item_begin.push_back(int32_t(plan.items.size()));
    room = target;
  };
  for (RowTile const& tile : tiles)
    for (int32_t head = 0; head < shape.kv_heads; ++head) {
      int32_t begin = tile.kv_begin, left = tile.key_tiles();
      while (left > 0) {
        int32_t take = int32_t(std::min<double>(left, std::floor((room - kStart) / tile.tile_cost() + 1e-9)));
        if (take < left) take = std::min(take, left - kPieceTilesMin);
        if (take < std::min(left, kPieceTilesMin)) {
          if (room < target) {
            next_block();
            continue;
          }
          take = std::min(left, kPieceTilesMin);  // an empty block takes something, whatever the target
          if (left - take < kPieceTilesMin) take = left;
        }
        int32_t const end = take == left ? tile.kv_end : begin + take * kTileKeys;
        plan.items.push_back({tile.first_token, tile.tokens, head, tile.pages_at, begin, end, -1, tile.many});
        room -= kStart + take * tile.tile_cost();
        begin = end;
        left -= take;
      }
    }
  next_block();
  bool const fits = int32_t(plan.item_begin.size()) <= shape.blocks + 1;
  plan.item_begin.resize(size_t(shape.blocks) + 1, int32_t(plan.items.size()));
  plan.balance = largest;  // a mean makes a balance of it
  return fits;
}

// Who has to be merged with whom.
void add_merges(AttentionShape const& shape, int32_t tokens, AttentionPlan& plan) {
  size_t const pairs = size_t(tokens) * size_t(shape.kv_heads);
  int32_t const group = shape.query_heads / shape.kv_heads;
  auto const pair_of = [&](AttentionItem const& item, int32_t i) {
    return size_t(item.first_token + i) * size_t(shape.kv_heads) + size_t(item.kv_head);
  };
  // Contributions of each pair, as counts one place further on, so that their sums become beginnings.
  plan.merge_begin.assign(pairs + 1, 0);
  for (AttentionItem const& item : plan.items)
    for (int32_t i = 0; i < item.tokens; ++i) ++plan.merge_begin[pair_of(item, i) + 1];
  plan.partial_rows = 0;
  for (AttentionItem& item : plan.items) {
    bool alone = true;
    for (int32_t i = 0; i < item.tokens; ++i) alone = alone && plan.merge_begin[pair_of(item, i) + 1] == 1;
    if (alone) continue;
    item.partial = plan.partial_rows;
    plan.partial_rows += item.tokens * group;
  }
  for (AttentionItem const& item : plan.items)
    if (item.partial < 0)
      for (int32_t i = 0; i < item.tokens; ++i) plan.merge_begin[pair_of(item, i) + 1] = 0;
  for (size_t i = 0; i < pairs; ++i) plan.merge_begin[i + 1] += plan.merge_begin[i];
  plan.merge_rows.resize(size_t(plan.merge_begin[pairs]));
  for (AttentionItem const& item : plan.items)
    for (int32_t i = 0; item.partial >= 0 && i < item.tokens; ++i)
      plan.merge_rows[size_t(plan.merge_begin[pair_of(item, i)]++)] = item.partial + i * group;
  // Each beginning has moved to the next one.
  std::copy_backward(plan.merge_begin.begin(), plan.merge_begin.end() - 1, plan.merge_begin.end());
  plan.merge_begin[0] = 0;
}

}  // namespace

void plan_attention(AttentionShape const& shape, std::span<AttentionChunk const> chunks,
                    std::span<SharedSpan const> shared, AttentionPlan& plan) {
  static thread_local std::vector<UsedSpan> spans;
  static thread_local std::vector<RowTile> tiles;
  spans.clear();
  tiles.clear();
  for (SharedSpan const& span : shared) {
    UsedSpan const used = use(shape, chunks, span);
    if (used.kv_begin < used.kv_end) spans.push_back(used);
  }
  // Spans that overlap in both dimensions would count keys twice: the first one stays.
  for (size_t i = 0; i < spans.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (std::max(spans[i].chunk_begin, spans[j].chunk_begin) <
              std::min(spans[i].chunk_end, spans[j].chunk_end) &&
          std::max(spans[i].kv_begin, spans[j].kv_begin) < std::min(spans[i].kv_end, spans[j].kv_end))
        spans[i].kv_end = spans[i].kv_begin;

  for (UsedSpan const& span : spans) {
    AttentionChunk const& first = chunks[size_t(span.chunk_begin)];
    AttentionChunk const& last = chunks[size_t(span.chunk_end) - 1];
    add_tiles(shape,
              {first.first_token, last.first_token + last.count, span.kv_begin, span.kv_end, first.pages_at,
               false, 0},
              tiles);
  }
  for (size_t c = 0; c < chunks.size(); ++c) add_own(shape, chunks[c], spans, int32_t(c), tiles);

  double total = 0;
  for (RowTile const& tile : tiles) total += shape.kv_heads * (kStart + tile.key_tiles() * tile.tile_cost());
  double target = std::max(total / shape.blocks, kStart + kPieceTilesMin * kManyTile);
  while (!deal(shape, tiles, target, plan)) target *= kStretch;
  plan.balance = plan.balance > 0 ? total / shape.blocks / plan.balance : 1;
  int32_t const tokens = chunks.empty() ? 0 : chunks.back().first_token + chunks.back().count;
  add_merges(shape, tokens, plan);
}

}  // namespace bunting::cuda
