#include "cpu/low_rank.h"

#include <algorithm>
#include <cstring>

#include "boundary/error.h"
#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/row_stride.h"
#include "model/tensor_kinds.h"

namespace bunting {
namespace {

// Parts of a matrix at most: q, k, v and z of a recurrent layer.
constexpr int64_t kPartsMax = 4;
// Multiply-adds that are worth a second thread.
constexpr int64_t kPieceProducts = 100'000;

constexpr Norm kNoNorm{NormKind::none, nullptr, 0, nullptr};

// Writes the values of groups, with their outliers.
void read_groups(InputGroup const* groups, int64_t k, float* to) {
  for (int64_t at = 0; at < k; at += kGroup) {
    InputGroup const& group = groups[at / kGroup];
    int64_t const count = std::min<int64_t>(kGroup, k - at);
    for (int64_t i = 0; i < count; i++) to[at + i] = group.scale * float(group.q[i]);
    if (group.outlier != 0) to[at + group.outlier_at] = group.outlier;
  }
}

uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Writes `count` numbers of a plain operand, and zeros to `padded`.
void write_plain(Dtype dtype, float const* from, int64_t count, int64_t padded, char* to) {
  std::memset(to, 0, size_t(padded) * dtype_bytes(dtype));
  if (dtype == Dtype::f32) {
    std::memcpy(to, from, size_t(count) * sizeof(float));
  } else {
    bf16* const out = reinterpret_cast<bf16*>(to);
    for (int64_t i = 0; i < count; i++) out[i] = to_bf16(from[i]);
  }
}

}  // namespace

size_t LowRank::Buffers::place(Model const& model, bunting_engine_limits const& limits, char* base) {
  Carver carver(base);
  if (limits.adapters_max == 0) return 0;
  size_t const tokens = size_t(limits.step_tokens_max), blocks = size_t(limits.threads * kBlockRows);
  int64_t const ranks = kPartsMax * round_up(limits.adapter_rank_max, kKAlign);
  rank_stride = row_stride(Dtype::bf16, ranks);
  number_stride = std::max(ranks, model.width_max());
  input_stride = row_stride(model.dtype(), model.width_max());
  this->ranks = carver.take<char>(tokens * size_t(rank_stride) * sizeof(float));
  numbers = carver.take<float>(blocks * size_t(number_stride));
  inputs = carver.take<char>(blocks * size_t(input_stride) * dtype_bytes(model.dtype()));
  return carver.used();
}

LowRank::LowRank(Model const& model, bunting_engine_limits const& limits, ThreadPool& pool)
    : model_(model),
      kernels_(model.kernels()),
      pool_(pool),
      rank_max_(limits.adapter_rank_max),
      adapters_(size_t(limits.adapters_max) + 1) {
  region_ = MemoryRegion(workspace_bytes(model, limits), "the products with adapters");
  buffers_.place(model, limits, region_.data());
  if (limits.adapters_max > 0) blocks_.reserve(size_t(limits.step_tokens_max));
}

void LowRank::put(int32_t slot, Adapter const* adapter) {
  if (slot < 1 || slot >= int32_t(adapters_.size()))
    fail(BUNTING_INVALID, "adapter slot %d: the engine has 1 to %d", slot, int(adapters_.size()) - 1);
  if (adapter && adapter->rank() > rank_max_)
    fail(BUNTING_INVALID, "the adapter has rank %d, and the engine's limit is %d", adapter->rank(),
         rank_max_);
  adapters_[size_t(slot)] = adapter;
}

void LowRank::check(StepPlan const& plan) const {
  for (int32_t c = 0; c < plan.chunks; c++)
    if (int32_t const slot = plan.adapter[size_t(c)]; slot > 0 && !adapters_[size_t(slot)])
      fail(BUNTING_INVALID, "step block: chunk %d wants adapter %d, and that slot is empty", c, slot);
}

void LowRank::begin(StepPlan const& plan) {
  blocks_.clear();
  if (adapters_.size() == 1) return;
  for (int32_t c = 0; c < plan.chunks; c++) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    add_rows(chunk.first_token, chunk.first_token + chunk.count, plan.adapter[size_t(c)]);
  }
}

void LowRank::keep_wanted_rows(StepPlan const& plan) {
  if (blocks_.empty()) return;
  blocks_.clear();
  int32_t row = 0;
  for (int32_t c = 0; c < plan.chunks; c++) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    int32_t const first = row;
    while (row < plan.rows && plan.row[size_t(row)].token_row < chunk.first_token + chunk.count) row++;
    add_rows(first, row, plan.adapter[size_t(c)]);
  }
}

// Adds rows to the last block where they continue it, and to new ones.
void LowRank::add_rows(int64_t begin, int64_t end, int32_t slot) {
  if (slot == 0) return;
  Adapter const* const adapter = adapters_[size_t(slot)];
  while (begin < end) {
    bool const continues = !blocks_.empty() && blocks_.back().end == begin &&
                           blocks_.back().adapter == adapter &&
                           blocks_.back().end - blocks_.back().begin < kBlockRows;
    if (!continues) blocks_.push_back({begin, begin, adapter});
    Block& block = blocks_.back();
    begin = block.end = std::min(end, block.begin + kBlockRows);
  }
}

bool LowRank::changes(PackedMatrix const& w) const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [&](Block const& block) { return block.adapter->term(w) != nullptr; });
}

void LowRank::reduce(PackedMatrix const& w, Operand const& x) {
  int64_t const blocks = int64_t(blocks_.size());
  int64_t const products = kBlockRows * w.kp() * kPanel;
  int64_t const grain = std::max<int64_t>(1, kPieceProducts / products);
  pool_.run(blocks, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; i++) {
      Block const& block = blocks_[size_t(i)];
      if (LowRankTerm const* const term = block.adapter->term(w)) reduce_block(*term, block, x, thread);
    }
  });
}

void LowRank::reduce_block(LowRankTerm const& term, Block const& block, Operand const& x, int thread) {
  int64_t const rows = block.end - block.begin;
  float* const numbers = buffers_.numbers + thread * kBlockRows * buffers_.number_stride;
  Operand plain{x.row(block.begin), x.ld, x.dtype};
  if (is_grouped(x.dtype)) {
    for (int64_t row = 0; row < rows; row++)
      read_groups(reinterpret_cast<InputGroup const*>(plain.row(row)), term.a.k,
                  numbers + row * buffers_.number_stride);
    plain = {
        buffers_.inputs + thread * kBlockRows * buffers_.input_stride * int64_t(dtype_bytes(model_.dtype())),
        buffers_.input_stride, model_.dtype()};
    kernels_.norm(plain, numbers, buffers_.number_stride, kNoNorm, term.a.k, 0, rows);
  }
  // From here on `numbers` holds A x.
  kernels_.gemm({.x = plain.rows,
                 .ldx = plain.ld,
                 .w = &term.a,
                 .y = numbers,
                 .ldy = buffers_.number_stride,
                 .tokens = rows},
                0, term.a.panels());
  Operand const ranks{buffers_.ranks, buffers_.rank_stride, term.a.dtype};
  for (LowRankTerm::Part const& part : term.parts)
    for (int64_t row = 0; row < rows; row++)
      write_plain(ranks.dtype, numbers + row * buffers_.number_stride + part.rank_row, part.b.k, part.b.kp(),
                  ranks.row(block.begin + row) + part.column * ranks.element_bytes());
}

void LowRank::expand(PackedMatrix const& w, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                     int64_t panel_end, float* y, int64_t ldy) const {
  for (Block const& block : blocks_) {
    int64_t const begin = std::max(row_begin, block.begin), end = std::min(row_end, block.end);
    if (begin >= end) continue;
    LowRankTerm const* const term = block.adapter->term(w);
    if (!term) continue;
    for (LowRankTerm::Part const& part : term->parts) {
      int64_t const first = std::max(panel_begin, part.first_panel),
                    last = std::min(panel_end, part.first_panel + part.b.panels());
      if (first >= last) continue;
      int64_t const skipped = first - part.first_panel;
      PackedMatrix const b = panels_of(
          part.b, skipped, std::min(part.b.n, (last - part.first_panel) * kPanel) - skipped * kPanel);
      Operand const ranks{buffers_.ranks, buffers_.rank_stride, b.dtype};
      kernels_.gemm({.x = ranks.row(begin) + part.column * ranks.element_bytes(),
                     .ldx = ranks.ld,
                     .w = &b,
                     .y = y + (begin - row_begin) * ldy + (first - panel_begin) * kPanel,
                     .ldy = ldy,
                     .tokens = end - begin,
                     .accumulate = true},
                    0, b.panels());
    }
  }
}

void LowRank::expand_all(PackedMatrix const& w, float* y, int64_t ldy) {
  int64_t const pieces = (w.panels() + kPiecePanels - 1) / kPiecePanels;
  int64_t const rows = blocks_.back().end;
  int64_t const blocks = (rows + kBlockRows - 1) / kBlockRows;
  int64_t const products = std::min(rows, kBlockRows) * kPiecePanels * kPanel * kKAlign;
  int64_t const grain = std::max<int64_t>(1, kPieceProducts / products);
  pool_.run(pieces * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      int64_t const panel = i % pieces * kPiecePanels, row = i / pieces * kBlockRows;
      expand(w, row, std::min(rows, row + kBlockRows), panel, std::min(w.panels(), panel + kPiecePanels),
             y + row * ldy + panel * kPanel, ldy);
    }
  });
}

}  // namespace bunting
