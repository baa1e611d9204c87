// attention_memory.h - where attention keeps queries, keys and values of a block in shared memory, and how
// they come there.
#pragma once

#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {

using gpu::Shared;
using gpu::Vec;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * gpu::kWarp;
constexpr int kPageShift = 4;  // pages of 16 tokens

// A row of D elements is D/8 chunks of sixteen bytes. They are permuted so that the same chunk of eight
// neighbouring rows lies in eight different bank groups, whatever D / 16 is.
template <int D>
GPU_DEVICE int twist_of(int row) {
  return D % 64 == 0 ? row % 8 : D % 32 == 0 ? row / 2 % 4 : row / 4 % 2;
}
template <int D>
GPU_DEVICE int chunk_at(int row, int chunk) {
  return row * (D / 8) + (chunk ^ twist_of<D>(row));
}

// A row's chunks: [c] is chunk c ^ `other`. Where rows are as long as a power of two, a constant c costs one
// exclusive or, and rows a constant number of rows further cost nothing.
template <int D>
struct Row {
  uint32_t first;
  int twist;
  GPU_DEVICE Row(Shared<Vec> matrix, int row, int other)
      : first(matrix.at + uint32_t(row * D) * uint32_t(sizeof(bf16))), twist(twist_of<D>(row) ^ other) {}
  GPU_DEVICE Shared<Vec> operator[](int chunk) const {
    constexpr uint32_t kBytes = sizeof(Vec);
    if constexpr ((D & (D - 1)) == 0)
      return {(first + uint32_t(twist) * kBytes) ^ uint32_t(chunk) * kBytes};
    else
      return {first + uint32_t(chunk ^ twist) * kBytes};
  }
};

// Shared memory, in vectors: queries, then the ring of keys and values, then their multipliers if they are
// e4m3, then a flag per token. Few rows leave room behind the queries: for the probabilities of a tile, and
// for what is largest in a row, by warp.
template <int D, bool kFp8>
struct Layout {
  static constexpr int kChunks = D / 8;              // of a query
  static constexpr int kKvWidth = kFp8 ? D / 2 : D;  // of a key or value, in units of two bytes
  // With one stage keys and values take turns: the next keys come while these values are read. Those that
  // have no room beside each other come in parts of their dimensions (Ring).
  static constexpr int kStages = kKvWidth <= 64 ? 3 : kKvWidth <= 128 ? 2 : 1;
  static constexpr int kPartWidth = kKvWidth <= 256 ? kKvWidth : 256;
  static constexpr int kParts = kKvWidth / kPartWidth;
  static constexpr int kPartChunks = kPartWidth / 8;
  static constexpr int kMatrix = kTileKeys * kPartChunks;  // a part of the keys or values of one stage
  static constexpr int kProbabilities = kFewRows * kChunks;
  static constexpr int kLargest = kProbabilities + kFewRows * kTileKeys / 8;
  static constexpr int kFewEnd = kLargest + kWarps * kFewRows / 4;
  // On a whole row, which Row wants.
  static constexpr int kRing =
      kStages == 1 ? (kFewEnd + kChunks - 1) / kChunks * kChunks : kManyRows * kChunks;
  static constexpr int kMultipliers = kRing + kStages * 2 * kMatrix;
  static constexpr int kFlags = kMultipliers + (kFp8 ? kStages * kTileKeys / 4 : 0);
  static constexpr size_t kBytes = kFlags * sizeof(Vec) + kManyRows * sizeof(int32_t);
  static_assert(kLargest * sizeof(Vec) + kWarps * kFewRows * sizeof(float) <= kRing * sizeof(Vec));
};

// Two bf16 of a query in each word, eight of sixteen dimensions in the order in which e4m3 are read.
GPU_DEVICE Vec even_of_four(Vec const& a, Vec const& b) {
  constexpr uint32_t kLowHalves = 0x5410;
  return {
      {gpu::pick_bytes(a.word[0], a.word[1], kLowHalves), gpu::pick_bytes(a.word[2], a.word[3], kLowHalves),
       gpu::pick_bytes(b.word[0], b.word[1], kLowHalves), gpu::pick_bytes(b.word[2], b.word[3], kLowHalves)}};
}
GPU_DEVICE Vec odd_of_four(Vec const& a, Vec const& b) {
  constexpr uint32_t kHighHalves = 0x7632;
  return {{gpu::pick_bytes(a.word[0], a.word[1], kHighHalves),
           gpu::pick_bytes(a.word[2], a.word[3], kHighHalves),
           gpu::pick_bytes(b.word[0], b.word[1], kHighHalves),
           gpu::pick_bytes(b.word[2], b.word[3], kHighHalves)}};
}

// The queries of `rows` rows; head_of(row) is the first of a row, counted in heads. Rows that are not there
// are zeros.
template <int D, bool kFp8, int kRows, class HeadOf>
GPU_DEVICE void fetch_queries(Shared<Vec> queries, bf16 const* q, int rows, HeadOf const& head_of) {
  constexpr int kChunks = Layout<D, kFp8>::kChunks;
  if constexpr (kFp8) {
    for (int i = gpu::thread_index(); i < kRows * kChunks / 2; i += kThreads) {
      int const row = i / (kChunks / 2), chunk = i % (kChunks / 2) * 2;
      Vec const* const from = reinterpret_cast<Vec const*>(q + head_of(row < rows ? row : 0) * D) + chunk;
      Vec const first = row < rows ? gpu::load(from) : Vec{},
                second = row < rows ? gpu::load(from + 1) : Vec{};
      queries.set(chunk_at<D>(row, chunk), even_of_four(first, second));
      queries.set(chunk_at<D>(row, chunk + 1), odd_of_four(first, second));
    }
  } else {
    for (int i = gpu::thread_index(); i < kRows * kChunks; i += kThreads) {
      int const row = i / kChunks, chunk = i % kChunks;
      Vec const* const from = reinterpret_cast<Vec const*>(q + head_of(row < rows ? row : 0) * D) + chunk;
      gpu::copy_async(queries + chunk_at<D>(row, chunk), from, row < rows);
    }
  }
}

// The ring of tiles through which an item's keys and values pass: whole tiles, or with one stage pieces in
// two slots, the parts of a tile's keys and then those of its values. Page ids are looked up one tile ahead,
// so that copies do not wait for them: each lane one of the tile.
template <int D, bool kFp8>
struct Ring {
  using L = Layout<D, kFp8>;
  Attention const& a;
  AttentionItem const& item;
  Shared<Vec> shared;  // the block's
  int tiles = (item.kv_end - item.kv_begin + kTileKeys - 1) / kTileKeys;
  int page_of_lane = 0;

  GPU_DEVICE Shared<Vec> keys(int tile, int part = 0) const {
    return shared + L::kRing + (tile % L::kStages * 2 + part % 2) * L::kMatrix;
  }
  GPU_DEVICE Shared<Vec> values(int tile, int part = 0) const { return keys(tile, L::kParts + part); }
  GPU_DEVICE Shared<uint32_t> multipliers(int tile) const {
    return (shared + L::kMultipliers).template as<uint32_t>() + tile % L::kStages * kTileKeys;
  }

  // Begins to fill all stages but one, or the only one.
  GPU_DEVICE void begin() {
    look_up(0);
    GPU_UNROLL
    for (int i = 0; i < L::kStages - 1; ++i) fetch(i);
    if constexpr (L::kStages == 1) {
      fetch_piece(0, 0);
      fetch_piece(0, 1);
    }
  }

  // Begins to copy a tile, if there is one; commits in any case.
  GPU_DEVICE void fetch(int tile) {
    if (tile < tiles) {
      fetch_rows<true>(tile, keys(tile), 0);
      if constexpr (kFp8) fetch_multipliers(tile);
      look_up(tile + 1);
    }
    gpu::copy_commit();
  }

  // The same of one piece of a tile, or, behind its last one, of the next tile: piece after piece.
  GPU_DEVICE void fetch_piece(int tile, int piece) {
    constexpr int kPieces = 2 * L::kParts;
    if (piece >= kPieces) {
      ++tile;
      piece -= kPieces;
    }
    if (tile < tiles) {
      int const first = piece % L::kParts * L::kPartWidth;
      fetch_rows<false>(tile, keys(tile, piece), first + (piece < L::kParts ? 0 : a.kv.values));
      if (piece == kPieces - 1) look_up(tile + 1);
    }
    gpu::copy_commit();
  }

 private:
  static constexpr int kSlotMask = (1 << kPageShift) - 1;

  GPU_DEVICE void look_up(int tile) {
    int const page = ((item.kv_begin + tile * kTileKeys) >> kPageShift) + gpu::lane();
    if (page <= (item.kv_end - 1) >> kPageShift) page_of_lane = gpu::load(a.pages + item.pages_at + page);
  }

  // The page with row `row` of the tile that was looked up last.
  GPU_DEVICE bf16 const* page_with(int row) const {
    return a.kv.layer + gpu::shuffle(page_of_lane, row >> kPageShift) * a.kv.page_stride;
  }

  // Of each row a part of its keys or values that begins `offset` behind its keys, and with both that of its
  // values too.
  template <bool kBoth>
  GPU_DEVICE void fetch_rows(int tile, Shared<Vec> matrix, int64_t offset) {
    constexpr int kCopies = L::kMatrix / kThreads;
    int const first_key = item.kv_begin + tile * kTileKeys;
    auto const copy = [&](int i) {
      // Where it can be, a thread copies the same chunk of rows that lie equally far apart.
      int const at = gpu::thread_index() + i * kThreads;
      int const row = kThreads % L::kPartChunks == 0
                          ? gpu::thread_index() / L::kPartChunks + i * (kThreads / L::kPartChunks)
                          : at / L::kPartChunks;
      int const chunk = at % L::kPartChunks;
      bool const inside = first_key + row < item.kv_end;
      bf16 const* const from = page_with(row) +
                               (int64_t(item.kv_head << kPageShift) + (row & kSlotMask)) * L::kKvWidth +
                               8 * chunk + offset;
      Shared<Vec> const to = matrix + chunk_at<L::kPartWidth>(row, chunk);
      gpu::copy_async(to, reinterpret_cast<Vec const*>(from), inside);
      if constexpr (kBoth)
        gpu::copy_async(to + L::kMatrix, reinterpret_cast<Vec const*>(from + a.kv.values), inside);
    };
    if constexpr (kCopies > 8) {  // addresses of all would not fit the registers
      GPU_UNROLL_BY_FOUR
      for (int i = 0; i < kCopies; ++i) copy(i);
    } else {
      GPU_UNROLL
      for (int i = 0; i < kCopies; ++i) copy(i);
    }
  }

  GPU_DEVICE void fetch_multipliers(int tile) {
    int const row = gpu::thread_index() % kTileKeys, first_key = item.kv_begin + tile * kTileKeys;
    bf16 const* const from =
        page_with(row) + a.kv.multipliers + 2 * ((item.kv_head << kPageShift) + (row & kSlotMask));
    if (gpu::thread_index() < kTileKeys)
      gpu::copy_async(multipliers(tile) + row, reinterpret_cast<uint32_t const*>(from),
                      first_key + row < item.kv_end);
  }
};

}  // namespace bunting::cuda
