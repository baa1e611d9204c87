#include "cpu/attention_plan.h"

#include <algorithm>
#include <cmath>

#include "cpu/kernels/attention_tile.h"

namespace bunting {
namespace {

// Tokens of a chunk per item: enough to share its pages in cache, few enough to spread.
constexpr int32_t kOwnTokens = 32;
constexpr int32_t kSharedLeast = 128;  // least number of shared positions that justifies a phase of its own
constexpr int32_t kCutTiles = 8;       // room for the parts of this many row tiles of the longest context
constexpr int32_t kPiecesPerThread = 4;
constexpr float kShares = 2;  // an item is cut if it is longer than this many pieces

// Estimated time of an item on one thread, in ns. The estimate is accurate to a factor of two.
constexpr double kItemNs = 300;
constexpr double kReadNs = 0.15;     // one dimension of a key and its value, per tile of rows
constexpr double kRowNs = 0.02;      // the same per row
constexpr double kPieceNs = 20'000;  // shorter work ends before another core has started on it

int32_t ceil_div(int32_t x, int32_t by) {
  return (x + by - 1) / by;
}

}  // namespace

AttentionPlan::AttentionPlan(AttentionShape const& shape, int32_t chunks_max, int32_t tokens_max,
                             int32_t threads)
    : shape_(shape), threads_(threads) {
  size_t const chunks = size_t(chunks_max), group = size_t(shape.query_heads / shape.kv_heads);
  size_t const own = chunks + size_t(tokens_max) / kOwnTokens;
  size_t const shared = kLevels * (chunks / 2 + chunks * group / kTileRows);
  covered_.resize(chunks);
  depth_.resize(chunks);
  members_.resize(kLevels * chunks);
  planned_.resize((own + shared) * size_t(shape.kv_heads));
  // Per phase, fewer than `cut` items are longer than kShares of the kPiecesPerThread * threads pieces.
  size_t const cut = size_t(kPiecesPerThread * threads),
               segments = size_t(attention_segments(shape.context_max));
  sums_.resize(cut);
  dealt_.resize(planned_.size() + (kLevels + 1) * cut * (segments + 2));
  items_.resize(dealt_.size());
  piece_begin_.resize(dealt_.size() + phase_begin_.size());
}

int64_t AttentionPlan::part_rows(AttentionShape const& shape) {
  int32_t const segments = attention_segments(shape.context_max);
  return segments > 1 ? int64_t(kCutTiles) * kTileRows * segments : 0;
}

void AttentionPlan::make(StepPlan const& plan) {
  planned_count_ = member_count_ = 0;
  std::fill_n(covered_.begin(), plan.chunks, 0);
  std::fill_n(depth_.begin(), plan.chunks, 0);
  for (int32_t i = 0; i < plan.shared_spans; ++i) share(plan, plan.shared[size_t(i)]);
  for (int32_t c = 0; c < plan.chunks; ++c) add_own(plan, c);
  deal();
}

int32_t AttentionPlan::first_visible(int32_t position) const {
  return bunting::first_visible(position, shape_.sliding_window, shape_.is_chunked);
}

// Returns the end of the positions that a chunk's token at `position` sees.
int32_t AttentionPlan::visible_end(ChunkView const& chunk, int32_t position) const {
  if (!shape_.is_bidirectional) return position + 1;
  int32_t const end = chunk.start + chunk.count;
  return shape_.sliding_window > 0
             ? int32_t(std::min<int64_t>(end, int64_t(position) + shape_.sliding_window))
             : end;
}

// Adds items in which the decodes among a span's chunks read the span together, starting at the end of the
// enclosing spans. All these decodes have the same `depth_` and `covered_`, because each lies in the same
// spans.
void AttentionPlan::share(StepPlan const& plan, SharedSpan const& span) {
  int32_t const first_member = member_count_;
  int32_t visible = span.end;
  for (int32_t c = span.chunk_begin; c < span.chunk_end; ++c) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    if (chunk.count != 1 || depth_[size_t(c)] == kLevels) continue;
    members_[size_t(member_count_++)] = c;
    visible = std::min(visible, first_visible(chunk.start));
  }
  int32_t const count = member_count_ - first_member;
  int32_t const* const members = members_.data() + first_member;
  int32_t const begin = count > 0 ? covered_[size_t(members[0])] : 0;
  int32_t const end = span.end / kAttentionBlock * kAttentionBlock;
  if (count < 2 || end - std::max(begin, visible) < kSharedLeast) {
    member_count_ = first_member;
    return;
  }
  int32_t const rows = count * (shape_.query_heads / shape_.kv_heads), depth = depth_[size_t(members[0])];
  for (int32_t head = 0; head < shape_.kv_heads; ++head)
    for (int32_t row = 0; row < rows; row += kTileRows)
      add({members[0], head, row, std::min(row + kTileRows, rows), begin, end, members}, depth,
          std::max(begin, visible), end);
  for (int32_t i = 0; i < count; ++i) {
    covered_[size_t(members[i])] = end;
    ++depth_[size_t(members[i])];
  }
}

void AttentionPlan::add_own(StepPlan const& plan, int32_t chunk) {
  ChunkView const& view = plan.chunk[size_t(chunk)];
  int32_t const group = shape_.query_heads / shape_.kv_heads, begin = covered_[size_t(chunk)];
  for (int32_t token = 0; token < view.count; token += kOwnTokens) {
    int32_t const token_end = std::min(token + kOwnTokens, view.count);
    int32_t const visible = std::max(begin, first_visible(view.start + token));
    for (int32_t head = 0; head < shape_.kv_heads; ++head)
      add({chunk, head, token * group, token_end * group, begin, kAttentionEnd, nullptr},
          depth_[size_t(chunk)], visible, visible_end(view, view.start + token_end - 1));
  }
}

void AttentionPlan::add(AttentionItem const& item, int32_t phase, int32_t begin, int32_t end) {
  planned_[size_t(planned_count_++)] = {item, phase, begin, end, cost_ns(item, end - begin)};
}

float AttentionPlan::cost_ns(AttentionItem const& item, int32_t positions) const {
  int32_t const rows = item.row_end - item.row_begin;
  double const key_ns = kReadNs * ceil_div(rows, kTileRows) + kRowNs * rows;
  return float(kItemNs + positions * double(shape_.head_size) * key_ns);
}

// Groups the items of each phase into several pieces per thread, longest items first, so that the wait for
// the last piece is short. A piece is at least long enough to pay for its hand-over to another thread.
void AttentionPlan::deal() {
  auto const by_phase = [](Planned const& a, Planned const& b) { return a.phase < b.phase; };
  std::sort(planned_.begin(), planned_.begin() + planned_count_, by_phase);
  phases_ = pieces_ = item_count_ = 0;
  for (int32_t at = 0; at < planned_count_;) {
    int32_t const first = at, phase = planned_[size_t(at)].phase;
    double total_ns = 0;
    for (; at < planned_count_ && planned_[size_t(at)].phase == phase; ++at)
      total_ns += planned_[size_t(at)].cost_ns;
    double const piece_ns = std::max(kPieceNs, total_ns / (kPiecesPerThread * threads_));
    int32_t begin = item_count_;
    sum_count_ = part_rows_ = 0;
    for (int32_t i = first; i < at; ++i) cut(planned_[size_t(i)], float(piece_ns));
    end_phase(begin, piece_ns);
    if (sum_count_ == 0) continue;
    begin = item_count_;
    for (int32_t i = 0; i < sum_count_; ++i) dealt_[size_t(item_count_++)] = sums_[size_t(i)];
    end_phase(begin, kPieceNs);
  }
  phase_begin_[size_t(phases_)] = pieces_;
  piece_begin_[size_t(pieces_)] = item_count_;
}

// Adds an item to the phase. An item much longer than a piece becomes several items of about one piece each.
void AttentionPlan::cut(Planned const& whole, float piece_ns) {
  int32_t const rows = whole.item.row_end - whole.item.row_begin;
  bool const is_long = threads_ > 1 && whole.cost_ns > kShares * piece_ns;
  int32_t const tiles = ceil_div(rows, kTileRows), parts = int32_t(std::ceil(whole.cost_ns / piece_ns));
  int32_t const step = is_long ? ceil_div(tiles, parts) * kTileRows : std::max(1, rows);
  for (int32_t row = whole.item.row_begin; row < whole.item.row_end; row += step) {
    Planned part = whole;
    part.item.row_begin = row;
    part.item.row_end = std::min(row + step, whole.item.row_end);
    part.cost_ns = cost_ns(part.item, part.end - part.begin);
    if (is_long && step == kTileRows && part.cost_ns > kShares * piece_ns)
      cut_positions(part);
    else
      dealt_[size_t(item_count_++)] = part;
  }
}

// Cuts a tile of rows into one item per segment of positions (split-K), if it sees several segments and there
// is room for their partial sums.
void AttentionPlan::cut_positions(Planned const& tile) {
  int32_t const rows = tile.item.row_end - tile.item.row_begin;
  int32_t parts = 0;
  for (int32_t at = tile.begin; at < tile.end; at = attention_segment_end(at)) ++parts;
  if (parts == 1 || part_rows_ + parts * rows > part_rows(shape_)) {
    dealt_[size_t(item_count_++)] = tile;
    return;
  }
  Planned sum = tile, part = tile;
  sum.item.part = part_rows_;
  sum.item.parts = parts;
  sum.cost_ns = cost_ns(tile.item, parts);
  sums_[size_t(sum_count_++)] = sum;
  for (int32_t at = tile.begin; at < tile.end;) {
    int32_t const end = attention_segment_end(at);
    part.item.part = part_rows_;
    part.item.kv_end = end < tile.end ? end : tile.item.kv_end;
    part.cost_ns = cost_ns(part.item, std::min(end, tile.end) - at);
    dealt_[size_t(item_count_++)] = part;
    part_rows_ += rows;
    part.item.kv_begin = at = end;
  }
}

// Makes a phase of the items from `begin` on.
void AttentionPlan::end_phase(int32_t begin, double piece_ns) {
  std::sort(dealt_.begin() + begin, dealt_.begin() + item_count_,
            [](Planned const& a, Planned const& b) { return a.cost_ns > b.cost_ns; });
  phase_begin_[size_t(phases_++)] = pieces_;
  double room_ns = 0;
  for (int32_t at = begin; at < item_count_; ++at) {
    items_[size_t(at)] = dealt_[size_t(at)].item;
    if (room_ns <= 0) {
      piece_begin_[size_t(pieces_++)] = at;
      room_ns = piece_ns;
    }
    room_ns -= dealt_[size_t(at)].cost_ns;
  }
}

}  // namespace bunting
