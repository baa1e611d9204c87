#include "cuda/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "error.h"

namespace bunting::cuda {
namespace {

constexpr float kE4m3Max = 448;

int32_t pieces_of(Format format, int32_t k) {
  return (k + piece_k(format) - 1) / piece_k(format);
}

// The byte in its piece, and the bit in its byte, of position `k` in the piece.
struct Place {
  int32_t byte, bit;
};
Place place_of(Format format, int32_t k) {
  int32_t const slab = k / 32, lane = k % 32 / 8, i = k % 8;
  if (format == Format::int4) {
    int32_t const nibble = i % 2 * 4 + i / 2;
    return {lane * 16 + slab * 4 + nibble / 2, nibble % 2 * 4};
  }
  int32_t const byte_of[] = {0, 2, 1, 3};
  return {lane * 16 + slab * 8 + i / 4 * 4 + byte_of[i % 4], 0};
}

void put(Format format, void* row, int32_t k, uint32_t code) {
  Place const place = place_of(format, k % piece_k(format));
  uint8_t& byte = static_cast<uint8_t*>(row)[k / piece_k(format) * kPieceBytes + place.byte];
  uint32_t const bits = format == Format::int4 ? 15 : 255;
  byte = uint8_t((byte & ~(bits << place.bit)) | code << place.bit);
}

void put_integer(Format format, void* row, int32_t k, int32_t q) {
  put(format, row, k, format == Format::int4 ? uint32_t(q + 8) : uint8_t(q));
}

// To nearest even, for 2^-14 <= |x| <= 65504 and zero; below, what is left of it.
uint16_t half_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  uint16_t const sign = uint16_t(bits >> 16 & 0x8000);
  float const size = std::fabs(x);
  if (size < 0x1p-14f) return uint16_t(sign | uint16_t(std::nearbyint(size * 0x1p24f)));
  bits = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return uint16_t(sign | uint16_t((bits >> 13) - (112u << 10)));
}

// |x| <= 448, to nearest even.
uint8_t e4m3_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  uint32_t const sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
  // Below 2^-6 codes are multiples of 2^-9; above, a carry out of the fraction goes into the exponent.
  if (size < 0x3c800000u) return uint8_t(sign | uint32_t(std::lrint(std::fabs(x) * 0x1p9f)));
  return uint8_t(sign | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120u << 3)));
}

// All codes are zero's.
void clear(Format format, int32_t k, void* row, void* row_scales) {
  std::memset(row, format == Format::int4 ? 0x88 : 0, row_bytes(format, k));
  std::memset(row_scales, 0, row_scale_bytes(format, k));
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
      return size_t(pieces_of(format, k)) * size_t(piece_k(format) / kGroup) * sizeof(uint16_t);
  }
}

void pack_row(Format format, std::span<int8_t const> q, std::span<uint16_t const> scales, void* row,
              void* row_scales) {
  clear(format, int32_t(q.size()), row, row_scales);
  for (size_t k = 0; k < q.size(); ++k) put_integer(format, row, int32_t(k), q[k]);
  std::memcpy(row_scales, scales.data(), scales.size_bytes());
}

void quantise_row(Format format, std::span<float const> values, int32_t group, void* row, void* row_scales) {
  int32_t const k = int32_t(values.size());
  for (float value : values)
    if (!std::isfinite(value)) fail(BUNTING_INVALID, "a weight is not finite");
  clear(format, k, row, row_scales);
  auto const larger = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
  if (format == Format::fp8) {
    float const largest = std::fabs(*std::max_element(values.begin(), values.end(), larger));
    float const scale = largest / kE4m3Max;
    std::memcpy(row_scales, &scale, sizeof scale);
    for (int32_t i = 0; i < k && scale > 0; ++i)
      put(format, row, i, e4m3_of(std::clamp(values[size_t(i)] / scale, -kE4m3Max, kE4m3Max)));
    return;
  }
  float const lowest = format == Format::int4 ? -8 : -127, highest = format == Format::int4 ? 7 : 127;
  uint16_t* const scales = static_cast<uint16_t*>(row_scales);
  for (int32_t begin = 0; begin < k; begin += group) {
    int32_t const end = std::min(begin + group, k);
    float const largest = *std::max_element(values.begin() + begin, values.begin() + end, larger);
    float const wanted = format == Format::int4 ? largest / -8 : std::fabs(largest) / 127;
    uint16_t const half = half_of(std::clamp(wanted, -65504.0f, 65504.0f));
    float const scale = half_value(half);
    for (int32_t i = begin; i < end; i += kGroup) scales[i / kGroup] = half;
    for (int32_t i = begin; i < end && scale != 0; ++i)
      put_integer(format, row, i,
                  int32_t(std::clamp(std::nearbyint(values[size_t(i)] / scale), lowest, highest)));
  }
}

}  // namespace bunting::cuda
