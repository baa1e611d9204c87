#include "reference/dense.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/kv_value.h"

namespace bunting::reference {
namespace {

double f16_value(uint16_t x) {
  int const exponent = x >> 10 & 31, mantissa = x & 1023;
  double const magnitude = exponent == 31  ? (mantissa ? std::numeric_limits<double>::quiet_NaN() : INFINITY)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return x & 0x8000 ? -magnitude : magnitude;
}

size_t packed_index(PackedMatrix const& w, int64_t n, int64_t k) {
  int64_t const panel = n / kPanel * kPanel * w.kp(), column = n % kPanel;
  return size_t(w.dtype == Dtype::f32 ? panel + k * kPanel + column
                                      : panel + k / 2 * 2 * kPanel + column * 2 + k % 2);
}

// Where a matrix of integers has column n, k: the byte of the scale, and of the number the bits from `bit` on
// of a byte, and two more of another in 6 bits.
struct IntegerPlace {
  int64_t scale, low, high;
  int low_bit, high_bit;
};

IntegerPlace integer_place(PackedMatrix const& w, int64_t n, int64_t k) {
  int const bits = integer_bits(w.dtype);
  int64_t const column = n % 16, i = k % 32, step = i / 4;
  int64_t const group = w.group(), blocks_before = k / (2 * group);
  int64_t const block = n / 16 * w.panel_bytes() + blocks_before * (64 + 2 * group * 2 * bits);
  int64_t const scale = block + k % (2 * group) / group * 32 + column * 2;
  int64_t const values = block + 64 + k % (2 * group) / 32 * (64 * bits) + column * 4 + i % 4;
  if (bits == 8) return {scale, values + step * 64, 0, 0, 0};
  return {scale, values + step % 4 * 64, values + 256 + step % 2 * 64, int(step / 4 * 4), int(step / 2 * 2)};
}

int get_integer(PackedMatrix const& w, IntegerPlace const& place) {
  uint8_t const* const bytes = static_cast<uint8_t const*>(w.data);
  int const low = bytes[place.low] >> place.low_bit;
  if (integer_bits(w.dtype) == 8) return low - 128;
  if (integer_bits(w.dtype) == 4) return low % 16 - 8;
  return low % 16 + (bytes[place.high] >> place.high_bit) % 4 * 16 - 32;
}

// Bits [bit, bit + count) of a byte.
void put_bits(uint8_t& byte, int bit, int count, int value) {
  int const mask = ((1 << count) - 1) << bit;
  byte = uint8_t((byte & ~mask) | value << bit);
}

void put_integer(PackedMatrix const& w, IntegerPlace const& place, int q) {
  uint8_t* const bytes = static_cast<uint8_t*>(w.data);
  int const bits = integer_bits(w.dtype), stored = q + (1 << (bits - 1));
  put_bits(bytes[place.low], place.low_bit, bits == 8 ? 8 : 4, bits == 8 ? stored : stored % 16);
  if (bits == 6) put_bits(bytes[place.high], place.high_bit, 2, stored / 16);
}

double grouped_weight(PackedMatrix const& w, int64_t n, int64_t k) {
  IntegerPlace const place = integer_place(w, n, k);
  return source_value(static_cast<char const*>(w.data) + place.scale, Dtype::f16, 0) * get_integer(w, place);
}

uint16_t f16_bits(double value) {  // of a value of f16
  if (std::isnan(value)) return 0x7e00;
  uint16_t const sign = std::signbit(value) ? 0x8000 : 0;
  double const magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | 0x7c00;
  if (magnitude < std::ldexp(1, -14)) return uint16_t(sign | int(std::ldexp(magnitude, 24)));
  int exponent;
  double const fraction = std::frexp(magnitude, &exponent);
  return uint16_t(sign | (exponent + 14) << 10 | (int(std::ldexp(fraction, 11)) - 1024));
}

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype) {
  std::memset(w.data, 0, w.bytes());  // scales that belong to no number
  for (int64_t n = 0; n < w.panels() * kPanel; ++n) {
    for (int64_t first = 0; first < w.kp(); first += w.group()) {
      int8_t q[kGroupMax] = {};
      double scale = 0;
      bool const exists = n < w.n && first < w.k;
      if (exists && src_dtype == w.dtype) {
        int64_t const size = w.dtype == Dtype::q8 ? 34 : 18;
        char const* const from = static_cast<char const*>(src) + (n * w.k + first) / kGroup * size;
        scale = source_value(from, Dtype::f16, 0);
        for (int i = 0; i < kGroup; ++i) {
          uint8_t const byte = uint8_t(from[2 + (w.dtype == Dtype::q8 ? i : i % 16)]);
          q[i] = int8_t(w.dtype == Dtype::q8 ? byte : (i < 16 ? byte % 16 : byte / 16) - 8);
        }
      } else if (exists) {
        float values[kGroupMax] = {};
        for (int64_t i = 0; i < std::min(w.group(), w.k - first); ++i)
          values[i] = float(source_value(src, src_dtype, n * w.k + first + i));
        round_group(w.dtype, values, q, &scale);
      }
      uint16_t const half = f16_bits(scale);
      std::memcpy(static_cast<char*>(w.data) + integer_place(w, n, first).scale, &half, 2);
      for (int64_t i = 0; i < w.group() && first + i < w.kp(); ++i)
        put_integer(w, integer_place(w, n, first + i), q[i]);
    }
  }
}

double x_value(Gemm const& g, int64_t t, int64_t k) {
  if (g.w->grouped()) {
    InputGroup const& group = static_cast<InputGroup const*>(g.x)[t * g.ldx + k / kGroup];
    return double(group.scale) * group.q[k % kGroup];
  }
  return get(g.w->dtype, static_cast<char const*>(g.x), size_t(t * g.ldx + k));
}

}  // namespace

double source_value(void const* src, Dtype dtype, int64_t index) {
  char const* bytes = static_cast<char const*>(src) + index * (dtype == Dtype::f32 ? 4 : 2);
  if (dtype == Dtype::f32) {
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  return dtype == Dtype::f16 ? f16_value(half) : double(widen(half));
}

double weight(PackedMatrix const& w, int64_t n, int64_t k) {
  if (w.grouped()) return grouped_weight(w, n, k);
  return get(w.dtype, static_cast<char const*>(w.data), packed_index(w, n, k));
}

void pack(PackedMatrix const& w, void const* src, Dtype src_dtype) {
  if (w.grouped()) return pack_grouped(w, src, src_dtype);
  for (int64_t n = 0; n < w.panels() * kPanel; ++n) {
    for (int64_t k = 0; k < w.kp(); ++k) {
      double const value = n < w.n && k < w.k ? source_value(src, src_dtype, n * w.k + k) : 0;
      put(w.dtype, static_cast<char*>(w.data), packed_index(w, n, k), float(value));
    }
  }
}

void gemm(Gemm const& g, double* y, double* scale) {
  for (int64_t t = 0; t < g.tokens; ++t) {
    for (int64_t n = 0; n < g.w->n; ++n) {
      double sum = (g.accumulate ? g.y[t * g.ldy + n] : 0) + (g.bias ? g.bias[n] : 0),
             absolute = std::fabs(sum);
      for (int64_t k = 0; k < g.w->k; ++k) {
        double const term = x_value(g, t, k) * weight(*g.w, n, k);
        sum += term;
        absolute += std::fabs(term);
      }
      y[t * g.w->n + n] = sum;
      scale[t * g.w->n + n] = absolute;
    }
  }
}

void embed(double* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < table.k; ++h) x[t * ldx + h] = float(weight(table, ids[t], h));
}

void rmsnorm(double* y, int64_t ldy, float const* x, int64_t ldx, float const* w, int64_t h, float eps,
             int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < h; ++i) squares += double(x[t * ldx + i]) * x[t * ldx + i];
    double const scale = 1 / std::sqrt(squares / double(h) + eps);
    for (int64_t i = 0; i < h; ++i) y[t * ldy + i] = x[t * ldx + i] * scale * w[i];
  }
}

void swiglu(double* y, int64_t ldy, float const* gu, int64_t ldgu, int64_t f, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < f; ++i) {
      double const gate = gu[t * ldgu + i], up = gu[t * ldgu + f + i];
      y[t * ldy + i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
}

}  // namespace bunting::reference
