#include "cpu/meter.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "boundary/error.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/parallel_gemm.h"

namespace bunting {
namespace {

constexpr size_t kThreadBytes = size_t{64} << 20, kBytesLeast = size_t{256} << 20,
                 kBytesMost = size_t{4} << 30;
// Byte of all weights, keys and inputs: small finite numbers in every format.
constexpr int kByte = 0x3c;
// Pieces of a matrix per thread, and rows of queries of an item of attention.
constexpr int64_t kPieces = 4;
constexpr int32_t kItemRows = 32;

size_t memory_bytes(int32_t threads) {
  return std::clamp(size_t(threads) * kThreadBytes, kBytesLeast, kBytesMost);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Meter::Meter(int32_t isa, int32_t threads)
    : kernels_(*kernels_for(isa)),
      pool_(threads, ThreadPool::Cores::own),
      memory_(memory_bytes(threads), "measuring") {
  std::memset(memory_.data(), kByte, memory_.bytes());
}

Meter::Rates Meter::rates(double seconds, std::function<Rates(int, int64_t)> const& work) {
  std::vector<Rates> rates(static_cast<size_t>(pool_.threads()));
  std::atomic<int64_t> next{0};
  pool_.run(pool_.threads(), 1, [&](int64_t, int64_t, int thread) {
    work(thread, next++);  // warm-up
    Rates did;
    double const start = now();
    double elapsed = 0;
    do {
      Rates const more = work(thread, next++);
      did.operations += more.operations, did.bytes += more.bytes;
      elapsed = now() - start;
    } while (elapsed < seconds);
    rates[size_t(thread)] = {did.operations / elapsed, did.bytes / elapsed};
  });
  Rates all;
  for (Rates const& one : rates) all.operations += one.operations, all.bytes += one.bytes;
  return all;
}

double Meter::read(double seconds) {
  constexpr size_t kPiece = size_t{1} << 20;
  int64_t const pieces = int64_t(memory_.bytes() / kPiece);
  std::atomic<uint64_t> sink{0};
  return rates(seconds,
               [&](int, int64_t piece) -> Rates {
                 sink += kernels_.read(memory_.data() + size_t(piece % pieces) * kPiece, kPiece);
                 return {.bytes = double(kPiece)};
               })
      .bytes;
}

double Meter::peak(Dtype dtype, double seconds) {
  return rates(seconds, [&](int, int64_t) -> Rates { return {.operations = kernels_.peak(dtype)}; })
      .operations;
}

Meter::Rates Meter::gemm(Dtype dtype, int64_t rows, int64_t columns, int64_t depth, double seconds) {
  PackedMatrix const w{.dtype = dtype, .n = columns, .k = depth, .data = memory_.data()};
  if (rows < 1 || columns < 1 || depth < 1 || w.bytes() > memory_.bytes())
    fail(BUNTING_INVALID, "a matrix of %lld x %lld for %lld rows cannot be measured", (long long)columns,
         (long long)depth, (long long)rows);
  int64_t const ldx = w.grouped() ? w.kp() / kGroup : row_stride(dtype, w.kp());
  MemoryRegion const numbers(size_t(rows * w.kp()) * 2, "rows"),
      x(size_t(rows * ldx * input_bytes(dtype)), "inputs");
  std::memset(numbers.data(), kByte, numbers.bytes());
  std::memset(x.data(), kByte, x.bytes());
  if (w.grouped())
    kernels_.quantise({x.data(), ldx, dtype}, numbers.data(), Dtype::bf16, w.kp(), w.k, 0, rows);

  GemmCut const cut = cut_gemm(w.panels(), rows, kPieces * pool_.threads());
  int64_t const across = (rows + cut.rows - 1) / cut.rows,
                of_copy = (w.panels() + cut.panels - 1) / cut.panels * across,
                copies = int64_t(memory_.bytes() / w.bytes());
  auto const weights_of = [&](int64_t piece) {
    int64_t const panel = piece % of_copy / across * cut.panels;
    return memory_.data() + size_t(piece / of_copy % copies) * w.bytes() + size_t(panel * w.panel_bytes());
  };
  int64_t const ldy = cut.panels * kPanel;
  MemoryRegion const y(size_t(pool_.threads() * cut.rows * ldy) * 4, "outputs");
  return rates(seconds, [&](int thread, int64_t piece) -> Rates {
    int64_t const panel = piece % of_copy / across * cut.panels, row = piece % across * cut.rows;
    PackedMatrix part = w;
    part.data = weights_of(piece);
    part.n = std::min(w.n - panel * kPanel, ldy);
    Gemm const g{.x = x.data() + row * ldx * input_bytes(dtype),
                 .ldx = ldx,
                 .w = &part,
                 .y = reinterpret_cast<float*>(y.data()) + thread * cut.rows * ldy,
                 .ldy = ldy,
                 .tokens = std::min(cut.rows, rows - row),
                 .may_have_outliers = false,
                 .next = across == 1 ? weights_of(piece + pool_.threads()) : nullptr};
    kernels_.gemm(g, 0, part.panels());
    return {2.0 * double(g.tokens) * double(part.n) * double(depth),
            double(part.bytes()) * double(g.tokens) / double(rows)};
  });
}

Meter::Rates Meter::attention(int32_t tokens, int32_t positions, double seconds) {
  size_t const page_bytes = kv_page_bytes(Dtype::bf16, kKvHeads, kHeadSize);
  int32_t const all = positions + tokens, page_count = (all + kPageTokens - 1) / kPageTokens;
  int64_t const sequences = int64_t(memory_.bytes() / (page_bytes * size_t(page_count)));
  if (tokens < 1 || positions < 0 || sequences < 1)
    fail(BUNTING_INVALID, "%d tokens behind %d keys cannot be measured", tokens, positions);
  std::vector<int32_t> ids(size_t(page_count * sequences));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
  constexpr int32_t kGroupHeads = kQueryHeads / kKvHeads, kWidth = kQueryHeads * kHeadSize;
  std::vector<ChunkView> chunks;
  std::vector<AttentionItem> items;
  int32_t const rows = tokens * kGroupHeads;
  for (int32_t s = 0; s < sequences; ++s) {
    chunks.push_back({0, tokens, positions, ids.data() + size_t(s) * size_t(page_count)});
    for (int32_t head = 0; head < kKvHeads; ++head)
      for (int32_t row = 0; row < rows; row += kItemRows)
        items.push_back(
            {.chunk = s, .kv_head = head, .row_begin = row, .row_end = std::min(row + kItemRows, rows)});
  }
  size_t const scratch_bytes = size_t(round_up(int64_t(attention_scratch_bytes(kHeadSize)), 64)),
               out_bytes = size_t(tokens) * kWidth * 2;
  MemoryRegion const scratch(scratch_bytes * size_t(pool_.threads()), "scratch"),
      out(out_bytes * size_t(pool_.threads()), "outputs");
  std::vector<float> q(size_t(tokens) * kWidth);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : q) value = uniform(random);
  Attention const shared{.q = q.data(),
                         .ldq = kWidth,
                         .kv = {Dtype::bf16, kKvHeads, kHeadSize, memory_.data(), page_bytes},
                         .chunks = chunks.data(),
                         .items = items.data(),
                         .query_heads = kQueryHeads,
                         .scale = 0.125f,
                         .ldo = kWidth};
  return rates(seconds, [&](int thread, int64_t piece) -> Rates {
    int64_t const at = piece % int64_t(items.size());
    Attention mine = shared;
    mine.out = out.data() + size_t(thread) * out_bytes;
    mine.scratch = scratch.data() + size_t(thread) * scratch_bytes;
    kernels_.attention(mine, at, at + 1);
    AttentionItem const& item = items[size_t(at)];
    double operations = 0;
    for (int32_t row = item.row_begin; row < item.row_end; ++row)
      operations += 4.0 * kHeadSize * (positions + row / kGroupHeads + 1);
    // A tile of rows reads the keys and values of its head.
    return {operations, double(page_bytes) * page_count / kKvHeads};
  });
}

}  // namespace bunting
