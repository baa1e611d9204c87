#include "reference/dense.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/kv_value.h"
#include "reference/stored_type.h"

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

// Where a matrix of integers has column n, k: the byte of the scale (d, in a superblock), and of the number
// the bits from `bit` on of a byte, and one or two more of another in 5 or 6 bits.
struct IntegerPlace {
  int64_t scale, low, high;
  int low_bit, high_bit;
};

IntegerPlace integer_place(PackedMatrix const& w, int64_t n, int64_t k) {
  int const bits = integer_bits(w.dtype);
  int64_t const column = n % 16, i = k % 32, step = i / 4;
  int64_t const group = w.group(), length = is_super(w.dtype) ? 256 : 2 * group;
  int64_t const header = is_super(w.dtype) ? 320 : 64;
  int64_t const block = n / 16 * w.panel_bytes() + k / length * (header + length * 2 * bits);
  int64_t const scale = block + (is_super(w.dtype) ? 0 : k % length / group * 32) + column * 2;
  int64_t const values = block + header + k % length / 32 * (64 * bits) + column * 4 + i % 4;
  if (bits == 8) return {scale, values + step * 64, 0, 0, 0};
  if (bits == 5) return {scale, values + step % 4 * 64, values + 256, int(step / 4 * 4), int(step)};
  return {scale, values + step % 4 * 64, values + 256 + step % 2 * 64, int(step / 4 * 4), int(step / 2 * 2)};
}

int get_integer(PackedMatrix const& w, IntegerPlace const& place) {
  uint8_t const* const bytes = static_cast<uint8_t const*>(w.data);
  int const low = bytes[place.low] >> place.low_bit;
  if (integer_bits(w.dtype) == 8) return low - 128;
  int const zero = w.dtype == Dtype::q4_k || w.dtype == Dtype::q5_k ? 0 : 1 << (integer_bits(w.dtype) - 1);
  if (integer_bits(w.dtype) == 4) return low % 16 - zero;
  if (integer_bits(w.dtype) == 5) return low % 16 + (bytes[place.high] >> place.high_bit) % 2 * 16 - zero;
  return low % 16 + (bytes[place.high] >> place.high_bit) % 4 * 16 - 32;
}

// Bits [bit, bit + count) of a byte.
void put_bits(uint8_t& byte, int bit, int count, int value) {
  int const mask = ((1 << count) - 1) << bit;
  byte = uint8_t((byte & ~mask) | value << bit);
}

void put_integer(PackedMatrix const& w, IntegerPlace const& place, int q) {
  uint8_t* const bytes = static_cast<uint8_t*>(w.data);
  bool const has_zero = w.dtype != Dtype::q4_k && w.dtype != Dtype::q5_k;
  int const bits = integer_bits(w.dtype), stored = has_zero ? q + (1 << (bits - 1)) : q;
  put_bits(bytes[place.low], place.low_bit, bits == 8 ? 8 : 4, bits == 8 ? stored : stored % 16);
  if (bits == 5) put_bits(bytes[place.high], place.high_bit, 1, stored / 16);
  if (bits == 6) put_bits(bytes[place.high], place.high_bit, 2, stored / 16);
}

// A product of two values that are f32, as f32.
float product(double a, double b) {
  return float(a * b);
}

double super_weight(PackedMatrix const& w, int64_t n, int64_t k) {
  IntegerPlace const place = integer_place(w, n, k);
  char const* const d = static_cast<char const*>(w.data) + place.scale;
  char const* const bytes = d - n % 16 * 2 + n % 16;
  int const q = get_integer(w, place);
  if (w.dtype == Dtype::q6_k)
    return product(product(source_value(d, Dtype::f16, 0), int8_t(bytes[32 + k % 256 / 16 * 16])), q);
  float const scale = product(source_value(d, Dtype::f16, 0), bytes[64 + k % 256 / 32 * 16]);
  return product(scale, q) - product(source_value(d + 32, Dtype::f16, 0), bytes[192 + k % 256 / 32 * 16]);
}

double grouped_weight(PackedMatrix const& w, int64_t n, int64_t k) {
  if (is_super(w.dtype)) return super_weight(w, n, k);
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

// Superblocks as a GGUF file has them: the integers from what stored_value makes of a block whose scales are
// 1 and whose minimums are 0, and the scales from a block whose integers are.
void pack_super(PackedMatrix const& w, void const* src) {
  std::memset(w.data, 0, w.bytes());
  bool const is_six = w.dtype == Dtype::q6_k;
  int64_t const size = is_six ? 210 : w.dtype == Dtype::q5_k ? 176 : 144;
  for (int64_t n = 0; n < w.n; ++n) {
    for (int64_t first = 0; first < w.k; first += 256) {
      uint8_t const* const from = static_cast<uint8_t const*>(src) + (n * w.k + first) / 256 * size;
      uint8_t* const d = static_cast<uint8_t*>(w.data) + integer_place(w, n, first).scale;
      uint8_t* const bytes = d - n % 16 * 2 + n % 16;
      std::memcpy(d, from + (is_six ? 208 : 0), 2);
      if (!is_six) std::memcpy(d + 32, from + 2, 2);
      uint8_t plain[210];
      std::memcpy(plain, from, size_t(size));
      if (is_six) {
        for (int i = 0; i < 16; ++i) bytes[32 + i * 16] = from[192 + i];
        std::memset(plain + 192, 1, 16);
        plain[208] = 0x00, plain[209] = 0x3c;
      } else {
        for (int i = 0; i < 8; ++i) bytes[64 + i * 16] = uint8_t(six_bits(from + 4, i, false));
        for (int i = 0; i < 8; ++i) bytes[192 + i * 16] = uint8_t(six_bits(from + 4, i, true));
        plain[0] = 0x00, plain[1] = 0x3c, plain[2] = plain[3] = 0;
        uint8_t const ones[12] = {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1};
        std::memcpy(plain + 4, ones, 12);
      }
      for (int64_t i = 0; i < 256; ++i)
        put_integer(w, integer_place(w, n, first + i), int(stored_value(int32_t(w.dtype), plain, i)));
    }
  }
  // What belongs to no column is zero, which in 6 bits reads otherwise.
  for (int64_t n = w.n; n < w.panels() * kPanel; ++n)
    for (int64_t k = 0; k < w.kp(); ++k) put_integer(w, integer_place(w, n, k), 0);
}

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype) {
  if (is_super(w.dtype)) return pack_super(w, src);
  std::memset(w.data, 0, w.bytes());  // scales that belong to no number
  for (int64_t n = 0; n < w.panels() * kPanel; ++n) {
    for (int64_t first = 0; first < w.kp(); first += w.group()) {
      int8_t q[kGroupMax] = {};
      double scale = 0;
      bool const exists = n < w.n && first < w.k;
      if (exists && src_dtype == w.dtype) {
        int64_t const size = w.dtype == Dtype::q8 ? 34 : w.dtype == Dtype::q5_0 ? 22 : 18;
        char const* const from = static_cast<char const*>(src) + (n * w.k + first) / kGroup * size;
        scale = source_value(from, Dtype::f16, 0);
        char plain[34];
        std::memcpy(plain, from, size_t(size));
        plain[0] = 0x00, plain[1] = 0x3c;  // a scale of 1
        for (int i = 0; i < kGroup; ++i) q[i] = int8_t(stored_value(int32_t(w.dtype), plain, i));
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

void norm(double* y, int64_t ldy, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    double mean = 0, squares = 0;
    if (n.kind == NormKind::layer)
      for (int64_t i = 0; i < h; ++i) mean += double(x[t * ldx + i]) / double(h);
    for (int64_t i = 0; i < h; ++i) squares += (x[t * ldx + i] - mean) * (x[t * ldx + i] - mean);
    double const scale = 1 / std::sqrt(squares / double(h) + n.epsilon);
    for (int64_t i = 0; i < h; ++i)
      y[t * ldy + i] =
          n.kind == NormKind::none ? x[t * ldx + i] : (x[t * ldx + i] - mean) * scale * n.weight[i];
  }
}

void add_normed(double* y, float const* x, float const* d, Norm const& n, float scale, int64_t h,
                int64_t tokens) {
  norm(y, h, d, h, n, h, tokens);
  for (int64_t i = 0; i < tokens * h; ++i) y[i] = double(x[i]) + double(scale) * y[i];
}

void gate(double* y, int64_t ldy, float const* gu, int64_t ldgu, int64_t f, Activation activation,
          int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < f; ++i) {
      double const g = gu[t * ldgu + i], up = gu[t * ldgu + f + i];
      if (activation == Activation::clamped_swiglu) {
        double const low = std::min(g, 7.0), clamped = std::clamp(up, -7.0, 7.0);
        y[t * ldy + i] = low / (1 + std::exp(-1.702 * low)) * (clamped + 1);
        continue;
      }
      double const u = 0.79788456080286541 * (g + 0.044715 * g * g * g);
      y[t * ldy + i] =
          up * (activation == Activation::silu ? g / (1 + std::exp(-g)) : g / (1 + std::exp(-2 * u)));
    }
  }
}

}  // namespace bunting::reference
