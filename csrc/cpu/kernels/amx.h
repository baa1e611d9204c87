// amx.h - the AMX tile instructions that the GEMM needs, in hardware or emulated.
//
// A tile is 16 rows of 64 bytes, or half of that. Tile numbers are template arguments because the
// instructions encode them. With BUNTING_AMX_EMULATED the same functions compute, slowly, the results that
// Intel's manual specifies. So the kernels above them are tested on processors without AMX.
#pragma once

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

#if defined(BUNTING_AMX_EMULATED)

struct Tile {
  uint32_t row[16][16];
};

// Template arguments are sets of tiles, one bit each: `Narrow` tiles have rows of 32 bytes, `Short` tiles
// have 8 rows.
template <int Narrow, int Short>
struct TileState {
  Tile tile[8];
  TileState() = default;

  template <int D>
  void zero() {
    tile[D] = {};
  }
  template <int D>
  void load(void const* from, int64_t stride) {
    constexpr int kRows = Short >> D & 1 ? 8 : 16;
    constexpr size_t kBytes = Narrow >> D & 1 ? 32 : 64;
    tile[D] = {};
    for (int m = 0; m < kRows; ++m)
      std::memcpy(tile[D].row[m], static_cast<char const*>(from) + m * stride, kBytes);
  }
  template <int S>
  void store(void* to, int64_t stride) const {
    for (int m = 0; m < 16; ++m) std::memcpy(static_cast<char*>(to) + m * stride, tile[S].row[m], 64);
  }

  // Computes d[m, n] += (sum_k a[m, 2k] * b[k, 2n]) + (sum_k a[m, 2k+1] * b[k, 2n+1]). A product of two bf16
  // is exact in f32. Each of the two chains is rounded after every term, and denormals count as zero.
  template <int D, int A, int B>
  void multiply_bf16() {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          uint32_t const a = tile[A].row[m][k], b = tile[B].row[k][n];
          even = flush(even + flush(flush(to_f32(bf16(a))) * flush(to_f32(bf16(b)))));
          odd = flush(odd + flush(flush(to_f32(bf16(a >> 16))) * flush(to_f32(bf16(b >> 16)))));
        }
        float d;
        std::memcpy(&d, &tile[D].row[m][n], 4);
        d = flush(flush(d) + flush(even + odd));
        std::memcpy(&tile[D].row[m][n], &d, 4);
      }
    }
  }

  // Computes d[m, n] += sum_k sum_i signed a[m, 4k+i] * unsigned b[k, 4n+i], i = 0..3, in 32 bits; the second
  // function with signed b.
  template <int D, int A, int B>
  void multiply_int8() {
    multiply_bytes<D, A, B>([](uint32_t b) { return int32_t(b & 255); });
  }
  template <int D, int A, int B>
  void multiply_signed_int8() {
    multiply_bytes<D, A, B>([](uint32_t b) { return int32_t(int8_t(b)); });
  }

 private:
  template <int D, int A, int B, class Byte>
  void multiply_bytes(Byte const& byte_of) {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        int32_t d = int32_t(tile[D].row[m][n]);
        for (int k = 0; k < 16; ++k) {
          uint32_t const a = tile[A].row[m][k], b = tile[B].row[k][n];
          for (int i = 0; i < 32; i += 8) d += int32_t(int8_t(a >> i)) * byte_of(b >> i);
        }
        tile[D].row[m][n] = uint32_t(d);
      }
    }
  }
  static float flush(float x) { return x < 0x1p-126f && x > -0x1p-126f ? 0.0f : x; }
};

#elif defined(__AMX_BF16__)

// Owner of the calling thread's tile state. Releasing the tiles keeps them out of the thread's context
// switches. Template arguments are sets of tiles, one bit each: `Narrow` tiles have rows of 32 bytes, `Short`
// tiles have 8 rows.
template <int Narrow, int Short>
struct TileState {
  TileState() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
      constexpr Config() {
        for (int i = 0; i < 8; ++i) {
          row_bytes[i] = Narrow >> i & 1 ? 32 : 64;
          rows[i] = Short >> i & 1 ? 8 : 16;
        }
      }
    };
    static constexpr Config config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileState() { asm volatile("tilerelease"); }
  TileState(TileState const&) = delete;
  TileState& operator=(TileState const&) = delete;

  template <int D>
  BUNTING_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(D));
  }
  template <int D>
  BUNTING_INLINE void load(void const* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(D) : "memory");
  }
  template <int S>
  BUNTING_INLINE void store(void* to, int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(S) : "memory");
  }
  template <int D, int A, int B>
  BUNTING_INLINE void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(D), "i"(A), "i"(B));
  }
  template <int D, int A, int B>
  BUNTING_INLINE void multiply_int8() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(D), "i"(A), "i"(B));
  }
  template <int D, int A, int B>
  BUNTING_INLINE void multiply_signed_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(D), "i"(A), "i"(B));
  }
};

#endif

#if defined(BUNTING_AMX_EMULATED) || defined(__AMX_BF16__)
// Configuration of eight tiles of 16 rows of 64 bytes.
using Tiles = TileState<0, 0>;
// Configuration where tile 6 is 16 rows of 32 bytes and tile 7 is 8 rows of 64 bytes: a product of half the
// depth.
using HalfTiles = TileState<1 << 6, 1 << 7>;
// Configuration for half-depth products only: tiles 4 and 5 are 16 rows of 32 bytes, tiles 6 and 7 are 8
// rows.
using HalfDepthTiles = TileState<1 << 4 | 1 << 5, 1 << 6 | 1 << 7>;
#endif

}  // namespace bunting::BUNTING_ISA
