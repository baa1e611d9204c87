#include "attention_plan.h"

#include <algorithm>

#include "kernels/attention_tile.h"

namespace bunting {
namespace {

constexpr int32_t kOwnTokens =
    32;  // of a chunk in one item: enough to share its pages in cache, few enough to spread
constexpr int32_t kSharedLeast = 128;  // positions that are worth a phase of their own

// What an item takes on one thread, in ns, within a factor of two on today's machines.
constexpr double kItemNs = 300;
constexpr double kReadNs = 0.15;     // one dimension of a key and its value, for each tile of rows
constexpr double kRowNs = 0.02;      // the same for each row
constexpr double kPieceNs = 20'000;  // shorter work is done before another core has begun with its share

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
  items_.resize(planned_.size());
  piece_begin_.resize(planned_.size() + phase_begin_.size());
}

void AttentionPlan::make(StepPlan const& plan) {
  item_count_ = member_count_ = 0;
  std::fill_n(covered_.begin(), plan.chunks, 0);
  std::fill_n(depth_.begin(), plan.chunks, 0);
  for (int32_t i = 0; i < plan.shared_spans; ++i) share(plan, plan.shared[size_t(i)]);
  for (int32_t c = 0; c < plan.chunks; ++c) add_own(plan, c);
  deal();
}

int32_t AttentionPlan::first_visible(int32_t position) const {
  return shape_.sliding_window > 0 ? std::max(0, position - shape_.sliding_window + 1) : 0;
}

// The decodes among a span's chunks read it together, from where the spans around it end. Their number and
// `covered` are the same for all of them, as each lies in the same spans.
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
          end - std::max(begin, visible));
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
    int32_t const keys = view.start + token_end - std::max(begin, first_visible(view.start + token));
    for (int32_t head = 0; head < shape_.kv_heads; ++head)
      add({chunk, head, token * group, token_end * group, begin, kAttentionEnd, nullptr},
          depth_[size_t(chunk)], keys);
  }
}

void AttentionPlan::add(AttentionItem const& item, int32_t phase, int32_t keys) {
  int32_t const rows = item.row_end - item.row_begin;
  double const key_ns = kReadNs * ceil_div(rows, kTileRows) + kRowNs * rows;
  planned_[size_t(item_count_++)] = {item, phase, float(kItemNs + keys * double(shape_.head_size) * key_ns)};
}

// Several pieces per thread and phase, so that the last one to finish is not waited for long, and the longest
// first; but none too short to be worth sharing.
void AttentionPlan::deal() {
  std::sort(planned_.begin(), planned_.begin() + item_count_, [](Planned const& a, Planned const& b) {
    return a.phase != b.phase ? a.phase < b.phase : a.cost_ns > b.cost_ns;
  });
  phases_ = 0;
  int32_t pieces = 0;
  for (int32_t at = 0; at < item_count_;) {
    int32_t const phase = planned_[size_t(at)].phase;
    int32_t end = at;
    double total_ns = 0;
    for (; end < item_count_ && planned_[size_t(end)].phase == phase; ++end) {
      items_[size_t(end)] = planned_[size_t(end)].item;
      total_ns += planned_[size_t(end)].cost_ns;
    }
    double const piece_ns = std::max(kPieceNs, total_ns / (4.0 * threads_));
    phase_begin_[size_t(phases_++)] = pieces;
    double room_ns = 0;
    for (; at < end; ++at) {
      if (room_ns <= 0) {
        piece_begin_[size_t(pieces++)] = at;
        room_ns = piece_ns;
      }
      room_ns -= planned_[size_t(at)].cost_ns;
    }
  }
  phase_begin_[size_t(phases_)] = pieces;
  piece_begin_[size_t(pieces)] = item_count_;
}

}  // namespace bunting
