// block_formats.h - table of weight formats with integers in groups, one row per format. A row is the
// complete description of its format; the following derive from it:
//
//   layout of integers and scales in memory         weight_format.h, integer_layout.h
//   kernels for each instruction set                dot.h, block_header.h, gemm_grouped.cpp
//   reading, packing and checking a file's blocks   stored_block.cpp, model/stored_type.cpp
//   plain loops that tests compare kernels with     reference/stored_type.cpp, reference/dense.cpp
//   the table for TypeScript                        model/stored-types.ts, by `bun tools/docs.ts`
//
// To add a format of GGUF files, add a name with a free number to Dtype, and a row.
#pragma once

#include <cstdint>

namespace bunting {

// Number types: the types and formats of engine.h, and two more (q6, q8_128). All types but f32, f16 and bf16
// are integers in groups: weights, and q8 and q4 keys and values.
enum class Dtype : int32_t {
  f32 = 0,
  f16 = 1,
  bf16 = 2,
  q4 = 16,
  q4_1 = 17,
  q5_0 = 18,
  q5_1 = 19,
  q8 = 20,
  q2_k = 22,
  q3_k = 23,
  q4_k = 24,
  q5_k = 25,
  q6_k = 26,
  iq4_nl = 27,
  iq4_xs = 28,
  mxfp4 = 29,
  // Numbers 30 to 36 are codebook types (model/codebook_types.cpp).
  nvfp4 = 37,
  q6 = 64,
  q8_128 = 65,
};

// Storage of a group's scale s and of its minimum m, if it has one: a number is s q - m.
enum class Scales : int32_t {
  none,           // plain numbers
  half,           // s: an f16
  half_minimum,   // s and -m: an f16 each
  exponent,       // s = 2^(e - 128): a byte e
  super,          // s = d times an i8: an f16 d for a superblock
  super_minimum,  // s = d times a u8, m = e times another: f16 d and e for a superblock
  super_nibbles,  // super_minimum with both in one byte, the scale in the low four bits
};

// Place where a file's block keeps the same `bits` of all its numbers, a bit plane. It begins at byte `at` in
// runs of `run` bytes; the lowest bits of a run's bytes come before the next higher ones. With 6 bits: two
// times eight numbers in twelve bytes, the packing of scales in the K types. With 0 bits the block has no
// such plane.
struct Plane {
  int at = 0, bits = 0, run = 0;
};
inline __attribute__((always_inline)) constexpr int in_plane(Plane const& plane, uint8_t const* block,
                                                             int i) {
  auto const [at, bits, run] = plane;
  if (bits == 0) return 0;
  if (bits == 6) {
    // Numbers 0-3 and 8-11 are the lower six bits of bytes 0-3 and 4-7. The number four after each of them is
    // split: its low nibble is in bytes 8-11, its upper two bits are the top bits of that byte.
    uint8_t const* const packed = block + at;
    bool const is_second = i >= 8;
    int const first = i % 4 + 4 * is_second;
    if (i % 8 < 4) return packed[first] & 63;
    return (packed[8 + i % 4] >> (4 * is_second) & 15) | packed[first] >> 6 << 4;
  }
  int const in_byte = 8 / bits;
  return block[at + i / (run * in_byte) * run + i % run] >> (i / run % in_byte * bits) & ((1 << bits) - 1);
}

// Layout of a block in a GGUF file, little-endian. It has f16 scales (first d, then e or -m if there are
// two), scale bytes and integers. Planes of higher bits follow those of lower ones.
struct FileBlock {
  int type = -1;  // the format's type number in GGUF files; -1: GGUF files have no such blocks
  int bytes = 0;
  int halves_at = 0;  // offset of the f16 scales
  // Planes of the integers or level indices, plus integer_zero(). 8 bits are signed.
  Plane low = {}, high = {};
  // Planes of the scale bytes, of all groups and then of all minimums, plus scale_zero.
  Plane scale = {}, scale_high = {};
  int scale_zero = 0;
  // Numbers and bytes of the file's own block, if loading converts those to this one
  // (model/quantised_matrix.cpp).
  int converted[2] = {};
};

// Table of the values that integers stand for if they are not evenly spaced.
struct Levels {
  int bits = 0;  // signed bits that hold a level; 0: integers stand for themselves
  int8_t of[16] = {};
};
constexpr Levels kDenseAboutZero = {
    8, {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
// Doubled values of e2m1, the four-bit float of the OCP Microscaling Formats specification 1.0.
constexpr Levels kTwiceE2m1 = {5, {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};

struct WeightFormat {
  Dtype type;
  char const* name;   // name in files
  int bits = 0;       // bits of an integer in memory
  int64_t group = 0;  // consecutive k of a column that share a scale
  Scales scales = Scales::none;
  int scale_most = 0;  // largest magnitude of the integer scales in superblocks
  Levels levels = {};
  FileBlock file = {};
  bool is_common = false;  // true: few rows have their own kernels (gemm_grouped.cpp)
};

// clang-format off
constexpr WeightFormat kFormats[] = {
    {.type = Dtype::f32, .name = "F32", .file = {.type = 0, .bytes = 4}},
    {.type = Dtype::f16, .name = "F16", .file = {.type = 1, .bytes = 2}},
    {.type = Dtype::bf16, .name = "BF16", .file = {.type = 30, .bytes = 2}},
    // Formats of this project only, to which plain numbers are rounded.
    {.type = Dtype::q8_128, .name = "int8", .bits = 8, .group = 128, .scales = Scales::half, .is_common = true},
    {.type = Dtype::q6, .name = "int6", .bits = 6, .group = 128, .scales = Scales::half, .is_common = true},
    // Formats of single groups.
    {.type = Dtype::q8, .name = "Q8_0", .bits = 8, .group = 32, .scales = Scales::half,
     .file = {.type = 8, .bytes = 34, .low = {2, 8, 32}}, .is_common = true},
    {.type = Dtype::q4, .name = "Q4_0", .bits = 4, .group = 32, .scales = Scales::half,
     .file = {.type = 2, .bytes = 18, .low = {2, 4, 16}}, .is_common = true},
    {.type = Dtype::q4_1, .name = "Q4_1", .bits = 4, .group = 32, .scales = Scales::half_minimum,
     .file = {.type = 3, .bytes = 20, .low = {4, 4, 16}}},
    {.type = Dtype::q5_0, .name = "Q5_0", .bits = 5, .group = 32, .scales = Scales::half,
     .file = {.type = 6, .bytes = 22, .low = {6, 4, 16}, .high = {2, 1, 1}}, .is_common = true},
    {.type = Dtype::q5_1, .name = "Q5_1", .bits = 5, .group = 32, .scales = Scales::half_minimum,
     .file = {.type = 7, .bytes = 24, .low = {8, 4, 16}, .high = {4, 1, 1}}},
    {.type = Dtype::iq4_nl, .name = "IQ4_NL", .bits = 4, .group = 32, .scales = Scales::half, .levels = kDenseAboutZero,
     .file = {.type = 20, .bytes = 18, .low = {2, 4, 16}}},
    {.type = Dtype::mxfp4, .name = "MXFP4", .bits = 4, .group = 32, .scales = Scales::exponent, .levels = kTwiceE2m1,
     .file = {.type = 39, .bytes = 17, .low = {1, 4, 16}, .scale = {0, 8, 1}}},
    // Formats with superblocks of 256 numbers.
    {.type = Dtype::q6_k, .name = "Q6_K", .bits = 6, .group = 16, .scales = Scales::super, .scale_most = 128,
     .file = {.type = 14, .bytes = 210, .halves_at = 208, .low = {0, 4, 64}, .high = {128, 2, 32}, .scale = {192, 8, 16}},
     .is_common = true},
    {.type = Dtype::q5_k, .name = "Q5_K", .bits = 5, .group = 32, .scales = Scales::super_minimum, .scale_most = 63,
     .file = {.type = 13, .bytes = 176, .low = {48, 4, 32}, .high = {16, 1, 32}, .scale = {4, 6, 4}}, .is_common = true},
    {.type = Dtype::q4_k, .name = "Q4_K", .bits = 4, .group = 32, .scales = Scales::super_minimum, .scale_most = 63,
     .file = {.type = 12, .bytes = 144, .low = {16, 4, 32}, .scale = {4, 6, 4}}, .is_common = true},
    {.type = Dtype::q3_k, .name = "Q3_K", .bits = 3, .group = 16, .scales = Scales::super, .scale_most = 32,
     .file = {.type = 11, .bytes = 110, .halves_at = 108, .low = {32, 2, 32}, .high = {0, 1, 32}, .scale = {96, 4, 8},
              .scale_high = {104, 2, 4}, .scale_zero = 32}},
    {.type = Dtype::q2_k, .name = "Q2_K", .bits = 2, .group = 16, .scales = Scales::super_nibbles, .scale_most = 15,
     .file = {.type = 10, .bytes = 84, .halves_at = 80, .low = {16, 2, 32}, .scale = {0, 8, 16}}},
    {.type = Dtype::iq4_xs, .name = "IQ4_XS", .bits = 4, .group = 32, .scales = Scales::super, .scale_most = 32,
     .levels = kDenseAboutZero,
     .file = {.type = 23, .bytes = 136, .low = {8, 4, 16}, .scale = {4, 4, 1}, .scale_high = {2, 2, 1}, .scale_zero = 32}},
    {.type = Dtype::nvfp4, .name = "NVFP4", .bits = 4, .group = 16, .scales = Scales::super, .scale_most = 127,
     .levels = kTwiceE2m1,
     .file = {.type = 40, .bytes = 146, .low = {18, 4, 16}, .scale = {2, 8, 16}, .converted = {64, 36}}},
};
// clang-format on

}  // namespace bunting
