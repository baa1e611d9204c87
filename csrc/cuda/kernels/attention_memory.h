// attention_memory.h - layout and loading of a block's queries, keys and values in shared memory.
#pragma once

#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {

using gpu::Shared;
using gpu::Vec;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * gpu::kWarp;
constexpr int kPageShift = 4;  // pages of 16 tokens

// Swizzle of a row of D elements, which is D/8 chunks of sixteen bytes. The same chunk of eight adjacent rows
// lies in eight different bank groups for every D / 16.
template <int D>
GPU_DEVICE int twist_of(int row) {
  return D % 64 == 0 ? row % 8 : D % 32 == 0 ? row / 2 % 4 : row / 4 % 2;
}
template <int D>
GPU_DEVICE int chunk_at(int row, int chunk) {
  return row * (D / 8) + (chunk ^ twist_of<D>(row));
}

// Chunks of a row: [c] is chunk c ^ `other`. If the row length is a power of two, a constant c costs one
// exclusive or, and rows at a constant distance cost nothing.
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

// Layout of shared memory, in vectors: queries, then the ring of keys and values, then their multipliers
// (e4m3 only), then a flag per token. With few rows the space after the queries holds the probabilities of a
// tile and the row maxima by warp.
template <int D, bool kFp8>
struct Layout {
  static constexpr int kChunks = D / 8;              // chunks of a query
  static constexpr int kKvWidth = kFp8 ? D / 2 : D;  // width of a key or value in units of two bytes
  // With one stage keys and values alternate: the next keys arrive while these values are read. If they do
  // not fit side by side, they arrive in parts of their dimensions (Ring).
  static constexpr int kStages = kKvWidth <= 64 ? 3 : kKvWidth <= 128 ? 2 : 1;
  static constexpr int kPartWidth = kKvWidth <= 256 ? kKvWidth : 256;
  static constexpr int kParts = kKvWidth / kPartWidth;
  static constexpr int kPartChunks = kPartWidth / 8;
  static constexpr int kMatrix = kTileKeys * kPartChunks;  // a part of one stage's keys or values
  static constexpr int kProbabilities = kFewRows * kChunks;
  static constexpr int kLargest = kProbabilities + kFewRows * kTileKeys / 8;
  static constexpr int kFewEnd = kLargest + kWarps * kFewRows / 4;
  // Aligned to a whole row, as Row requires.
  static constexpr int kRing =
      kStages == 1 ? (kFewEnd + kChunks - 1) / kChunks * kChunks : kManyRows * kChunks;
  static constexpr int kMultipliers = kRing + kStages * 2 * kMatrix;
  static constexpr int kFlags = kMultipliers + (kFp8 ? kStages * kTileKeys / 4 : 0);
  static constexpr size_t kBytes = kFlags * sizeof(Vec) + kManyRows * sizeof(int32_t);
  static_assert(kLargest * sizeof(Vec) + kWarps * kFewRows * sizeof(float) <= kRing * sizeof(Vec));
};

// Two bf16 of a query per word, eight of sixteen dimensions in the reading order of e4m3.
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

// Loads the queries of `rows` rows; head_of(row) is a row's first head. Missing rows become zeros.
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

// Ring of tiles through which an item's keys and values pass. It has whole tiles, or with one stage two slots
// for pieces: the parts of a tile's keys, then those of its values. Each lane looks up one page id, one tile
// ahead, so that copies do not wait for page ids.
template <int D, bool kFp8>
struct Ring {
  using L = Layout<D, kFp8>;
  Attention const& a;
  AttentionItem const& item;
  Shared<Vec> shared;  // the block's shared memory
  int tiles = (item.kv_end - item.kv_begin + kTileKeys - 1) / kTileKeys;
  int page_of_lane = 0;

  GPU_DEVICE Shared<Vec> keys(int tile, int part = 0) const {
    return shared + L::kRing + (tile % L::kStages * 2 + part % 2) * L::kMatrix;
  }
  GPU_DEVICE Shared<Vec> values(int tile, int part = 0) const { return keys(tile, L::kParts + part); }
  GPU_DEVICE Shared<uint32_t> multipliers(int tile) const {
    return (shared + L::kMultipliers).template as<uint32_t>() + tile % L::kStages * kTileKeys;
  }

  // Starts to fill all stages but one, or the only one.
  GPU_DEVICE void begin() {
    look_up(0);
    GPU_UNROLL
    for (int i = 0; i < L::kStages - 1; ++i) fetch(i);
    if constexpr (L::kStages == 1) {
      fetch_piece(0, 0);
      fetch_piece(0, 1);
    }
  }

  // Starts to copy a tile, if there is one; commits in any case.
  GPU_DEVICE void fetch(int tile) {
    if (tile < tiles) {
      fetch_rows<true>(tile, keys(tile), 0);
      if constexpr (kFp8) fetch_multipliers(tile);
      look_up(tile + 1);
    }
    gpu::copy_commit();
  }

  // Does the same for one piece of a tile; a piece beyond the last one is the next tile's.
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

  // Returns the page with row `row` of the tile looked up last.
  GPU_DEVICE bf16 const* page_with(int row) const {
    return a.kv.layer + gpu::shuffle(page_of_lane, row >> kPageShift) * a.kv.page_stride;
  }

  // Copies a part of each row's keys or values that begins `offset` after its keys; with kBoth also the same
  // part of its values.
  template <bool kBoth>
  GPU_DEVICE void fetch_rows(int tile, Shared<Vec> matrix, int64_t offset) {
    constexpr int kCopies = L::kMatrix / kThreads;
    int const first_key = item.kv_begin + tile * kTileKeys;
    auto const copy = [&](int i) {
      // If possible, a thread copies the same chunk of equidistant rows.
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
    if constexpr (kCopies > 8) {  // the addresses of all copies would not fit the registers
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
