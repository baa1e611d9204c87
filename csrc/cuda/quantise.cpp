#include "cuda/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bunting::cuda {
namespace {

constexpr float kE4m3Max = 448;

int32_t pieces_of(Format format, int32_t k) {
  return (k + piece_k(format) - 1) / piece_k(format);
}

// Place of position `k` in a piece: the byte, and the bit in that byte.
struct Place {
  int32_t byte, bit;
};
Place place_of(Format format, int32_t k) {
  int32_t const slab = k / 32, lane = k % 32 / 8, i = k % 8;
  if (has_four_bits(format)) {
    int32_t const nibble = i % 2 * 4 + i / 2;
    return {lane * 16 + slab * 4 + nibble / 2, nibble % 2 * 4};
  }
  int32_t const byte_of[] = {0, 2, 1, 3};
  return {lane * 16 + slab * 8 + i / 4 * 4 + byte_of[i % 4], 0};
}

void put(Format format, void* row, int32_t k, uint32_t code) {
  Place const place = place_of(format, k % piece_k(format));
  uint8_t& byte = static_cast<uint8_t*>(row)[k / piece_k(format) * kPieceBytes + place.byte];
  uint32_t const bits = has_four_bits(format) ? 15 : 255;
  byte = uint8_t((byte & ~(bits << place.bit)) | code << place.bit);
}

// Rounds x, |x| <= 448, to the nearest e4m3.
uint8_t e4m3_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  uint32_t const sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
  // Below 2^-6 codes are multiples of 2^-9. Above, a carry out of the fraction increments the exponent.
  if (size < 0x3c800000u) return uint8_t(sign | uint32_t(std::lrint(std::fabs(x) * 0x1p9f)));
  return uint8_t(sign | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120u << 3)));
}

}  // namespace

float half_value(uint16_t half) {
  int const exponent = half >> 10 & 31;
  float const size = exponent == 0 ? std::ldexp(float(half & 0x3ff), -24)
                                   : std::ldexp(float(1024 + (half & 0x3ff)), exponent - 25);
  return half & 0x8000 ? -size : size;
}

size_t row_bytes(Format format, int32_t k) {
  return format == Format::plain ? size_t(k) * 2 : size_t(pieces_of(format, k)) * kPieceBytes;
}

size_t row_scale_bytes(Format format, int32_t k) {
  switch (format) {
    case Format::plain:
      return 0;
    case Format::fp8:
      return sizeof(float);
    default:
      return size_t((pieces_of(format, k) * piece_k(format) + scale_k(format) - 1) / scale_k(format)) *
             sizeof(uint16_t);
  }
}

void pack_row(Format format, std::span<int8_t const> q, std::span<uint16_t const> scales, void* row,
              void* row_scales) {
  int32_t const k = int32_t(q.size());
  std::memset(row, format == Format::int4_32 ? 0x88 : 0, row_bytes(format, k));  // zeros
  std::memset(row_scales, 0, row_scale_bytes(format, k));
  for (int32_t i = 0; i < k; ++i)
    put(format, row, i, format == Format::int4_32 ? uint32_t(q[size_t(i)] + 8) : uint8_t(q[size_t(i)]));
  std::memcpy(row_scales, scales.data(), scales.size_bytes());
}

void round_row_to_fp8(std::span<float const> values, void* row, void* row_scale) {
  int32_t const k = int32_t(values.size());
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  float const scale = largest / kE4m3Max;
  std::memset(row, 0, row_bytes(Format::fp8, k));
  std::memcpy(row_scale, &scale, sizeof scale);
  for (int32_t i = 0; i < k && scale > 0; ++i)
    put(Format::fp8, row, i, e4m3_of(std::clamp(values[size_t(i)] / scale, -kE4m3Max, kE4m3Max)));
}

}  // namespace bunting::cuda
