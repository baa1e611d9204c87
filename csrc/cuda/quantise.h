// quantise.h - quantised weights of a matrix in the reading order of the GEMM kernels.
//
//   plain              bf16, rows as they are
//   int8_128, int8_32  groups of 128 or of 32 adjacent k with an f16 scale each: w = scale * q,
//                      -128 <= q <= 127
//   int4_32            likewise, groups of 32: w = scale * (q - 8), 0 <= q <= 15
//   mxfp4              e2m1 in groups of 32 with a power of two each: w = scale * q
//                      (OCP Microscaling Formats 1.0)
//   fp8                e4m3 with an f32 scale per row: w = scale * q
//
// A row is cut into pieces of kPieceBytes: 64 k of eight bits or 128 of four. The last piece is padded with
// zeros, and its scales are padded too. Lane t of the four that share a row in a matrix instruction
// (gemm_few.cu) loads sixteen bytes of a piece at once: of each slab of 32 k those from 8t on. Within them a
// mask selects two adjacent k in the two halves of a word:
//
//   eight bits: byte 0 1 2 3 of a word is k 0 2 1 3
//   four bits:  nibble 0 .. 7 of a word is k 0 2 4 6 1 3 5 7
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bunting::cuda {

enum class Format : int32_t { plain, int8_128, int8_32, int4_32, fp8, mxfp4 };

inline constexpr int32_t kPieceBytes = 64;

// Number of adjacent k that share a two-byte scale; 0 if there are no such scales.
constexpr int32_t scale_k(Format format) {
  switch (format) {
    case Format::int8_128:
      return 128;
    case Format::int8_32:
    case Format::int4_32:
    case Format::mxfp4:
      return 32;
    default:
      return 0;
  }
}

// Number of k per piece; 0 for plain, which has no pieces.
constexpr bool has_four_bits(Format format) {
  return format == Format::int4_32 || format == Format::mxfp4;
}
constexpr int32_t piece_k(Format format) {
  return has_four_bits(format) ? 128 : format == Format::plain ? 0 : 64;
}

// Bytes of a row of `k` weights, and bytes of its scales.
size_t row_bytes(Format format, int32_t k);
size_t row_scale_bytes(Format format, int32_t k);

// Returns the scale of an mxfp4 group, 2^(e - 127), in bf16, which represents all of them. The kernels read
// it in this form.
constexpr uint16_t mxfp4_scale(uint8_t e) {
  return e == 0 ? 0x40 : uint16_t(e << 7);
}

// Returns the value of a finite f16.
float half_value(uint16_t half);

// Packs a row of integers q [k] with scales [ceil(k / scale_k())]. q is from -8 to 7 for int4_32 and e2m1
// codes for mxfp4. Scales are f16, or mxfp4_scale(). Writes row_bytes() and row_scale_bytes().
void pack_row(Format format, std::span<int8_t const> q, std::span<uint16_t const> scales, void* row,
              void* row_scales);

// Rounds a row of finite numbers to the nearest fp8; the largest magnitude gets the largest code.
void round_row_to_fp8(std::span<float const> values, void* row, void* row_scale);

}  // namespace bunting::cuda
