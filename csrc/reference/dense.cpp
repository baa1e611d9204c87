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

// Place of column n, k in a matrix of integers: the block, the group in it, and the bits of the number. These
// are bits of the byte `low` from low_bit on, and maybe further bits of the byte `high`.
struct IntegerPlace {
  int64_t block, group, low, high;
  int low_bit, high_bit;
};

IntegerPlace integer_place(PackedMatrix const& w, int64_t n, int64_t k) {
  int const bits = integer_bits(w.dtype);
  int64_t const i = k % 32, step = i / 4;
  int64_t const length = block_length(w.dtype), header = block_header_bytes(w.dtype);
  int64_t const block = n / 16 * w.panel_bytes() + k / length * (header + length * 2 * bits);
  int64_t const group = k % length / weight_group(w.dtype);
  int64_t const values = block + header + k % length / 32 * (64 * bits) + n % 16 * 4 + i % 4;
  if (bits == 8) return {block, group, values + step * 64, 0, 0, 0};
  if (bits < 4) return {block, group, values + step % 2 * 64, values + 128, int(step / 2 * 2), int(step)};
  if (bits == 5) return {block, group, values + step % 4 * 64, values + 256, int(step / 4 * 4), int(step)};
  return {block,
          group,
          values + step % 4 * 64,
          values + 256 + step % 2 * 64,
          int(step / 4 * 4),
          int(step / 2 * 2)};
}

// Number of bits in the byte at `low`; the byte at `high` has the others.
int low_bits(int bits) {
  return bits == 8 ? 8 : bits < 4 ? 2 : 4;
}

// Returns the unsigned number at a place.
int get_index(PackedMatrix const& w, IntegerPlace const& place) {
  uint8_t const* const bytes = static_cast<uint8_t const*>(w.data);
  int const count = low_bits(integer_bits(w.dtype)), more = integer_bits(w.dtype) - count;
  int const low = bytes[place.low] >> place.low_bit & ((1 << count) - 1);
  if (more == 0) return low;
  return low | (bytes[place.high] >> place.high_bit & ((1 << more) - 1)) << count;
}

// Sets bits [bit, bit + count) of a byte.
void put_bits(uint8_t& byte, int bit, int count, int value) {
  int const mask = ((1 << count) - 1) << bit;
  byte = uint8_t((byte & ~mask) | value << bit);
}

void put_index(PackedMatrix const& w, IntegerPlace const& place, int index) {
  uint8_t* const bytes = static_cast<uint8_t*>(w.data);
  int const count = low_bits(integer_bits(w.dtype)), more = integer_bits(w.dtype) - count;
  put_bits(bytes[place.low], place.low_bit, count, index % (1 << count));
  if (more > 0) put_bits(bytes[place.high], place.high_bit, more, index >> count);
}

// Returns the product of two f32 values as f32.
float product(double a, double b) {
  return float(a * b);
}

double grouped_weight(PackedMatrix const& w, int64_t n, int64_t k) {
  IntegerPlace const place = integer_place(w, n, k);
  char const* const block = static_cast<char const*>(w.data) + place.block;
  auto const half = [&](int64_t row) { return source_value(block + row * 32 + n % 16 * 2, Dtype::f16, 0); };
  auto const byte = [&](int64_t offset, int64_t row) { return uint8_t(block[offset + row * 16 + n % 16]); };
  WeightFormat const& format = weight_format(w.dtype);
  int const index = get_index(w, place);
  int const q = format.levels.bits != 0 ? format.levels.of[index] : index - integer_zero(w.dtype);
  int64_t const group = place.group, groups = kSuper / format.group;
  switch (format.scales) {
    case Scales::half_minimum:
      return product(half(group), q) + half(2 + group);
    case Scales::exponent:
      return std::ldexp(1.0, byte(0, group) - 128) * q;
    case Scales::super:
      return product(product(half(0), int8_t(byte(32, group))), q);
    case Scales::super_nibbles:
      return product(product(half(0), byte(64, group) % 16), q) - product(half(1), byte(64, group) / 16);
    case Scales::super_minimum:
      return product(product(half(0), byte(64, group)), q) - product(half(1), byte(64, groups + group));
    default:
      return half(group) * q;
  }
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

// Packs blocks of a GGUF file, number by number.
void pack_stored(PackedMatrix const& w, void const* src) {
  int32_t const type = int32_t(w.dtype);
  WeightFormat const& format = weight_format(w.dtype);
  int64_t const row_bytes = w.k / (is_super(w.dtype) ? kSuper : kGroup) * format.file.bytes;
  for (int64_t n = 0; n < w.panels() * kPanel; ++n) {
    for (int64_t k = 0; k < w.kp(); ++k) {
      IntegerPlace const place = integer_place(w, n, k);
      char* const block = static_cast<char*>(w.data) + place.block;
      if (n >= w.n || k >= w.k) {
        put_index(w, place, integer_zero(w.dtype));
        continue;
      }
      StoredNumber const x = stored_number(type, static_cast<char const*>(src) + n * row_bytes, k);
      auto const put_half = [&](int64_t row, uint16_t bits) {
        std::memcpy(block + row * 32 + n % 16 * 2, &bits, 2);
      };
      auto const put_byte = [&](int64_t row, int value) { block[row * 16 + n % 16] = char(value); };
      int64_t const group = place.group, groups = kSuper / format.group;
      put_index(w, place, x.index);
      switch (format.scales) {
        case Scales::half_minimum:
          put_half(group, x.d);
          put_half(2 + group, x.e);
          break;
        case Scales::exponent:
          put_byte(group, x.scale);
          break;
        case Scales::super:
          put_half(0, x.d);
          put_byte(2 + group, x.scale);
          break;
        case Scales::super_nibbles:
          put_half(0, x.d);
          put_half(1, x.e);
          put_byte(4 + group, x.scale | x.minimum << 4);
          break;
        case Scales::super_minimum:
          put_half(0, x.d);
          put_half(1, x.e);
          put_byte(4 + group, x.scale);
          put_byte(4 + groups + group, x.minimum);
          break;
        default:
          put_half(group, x.d);
      }
    }
  }
}

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype) {
  std::memset(w.data, 0, w.bytes());  // scales without numbers
  if (src_dtype == w.dtype) return pack_stored(w, src);
  for (int64_t n = 0; n < w.panels() * kPanel; ++n) {
    for (int64_t first = 0; first < w.kp(); first += w.group()) {
      int8_t q[kGroupMax] = {};
      double scale = 0;
      if (n < w.n && first < w.k) {
        float values[kGroupMax] = {};
        for (int64_t i = 0; i < std::min(w.group(), w.k - first); ++i)
          values[i] = float(source_value(src, src_dtype, n * w.k + first + i));
        round_group(w.dtype, values, q, &scale);
      }
      IntegerPlace const place = integer_place(w, n, first);
      uint16_t const half = f16_bits(scale);
      std::memcpy(static_cast<char*>(w.data) + place.block + place.group * 32 + n % 16 * 2, &half, 2);
      for (int64_t i = 0; i < w.group() && first + i < w.kp(); ++i)
        put_index(w, integer_place(w, n, first + i), q[i] + integer_zero(w.dtype));
    }
  }
}

double x_value(Gemm const& g, int64_t t, int64_t k) {
  if (g.w->grouped()) {
    InputGroup const& group = static_cast<InputGroup const*>(g.x)[t * g.ldx + k / kGroup];
    if (group.outlier != 0 && group.outlier_at == k % kGroup) return double(group.outlier);
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
      y[t * ldy + i] = n.kind == NormKind::none
                           ? x[t * ldx + i]
                           : (x[t * ldx + i] - mean) * scale * n.weight[i] + (n.bias ? double(n.bias[i]) : 0);
  }
}

void add_normed(double* y, float const* x, float const* d, Norm const& n, float scale, int64_t h,
                int64_t tokens) {
  norm(y, h, d, h, n, h, tokens);
  for (int64_t i = 0; i < tokens * h; ++i) y[i] = double(x[i]) + double(scale) * y[i];
}

double xielu(double x, Xielu const& of) {
  double const low = std::min(x, double(of.epsilon));
  return (x > 0 ? double(of.p) * x * x : double(of.n) * (std::expm1(low) - x)) + double(of.beta) * x;
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
      if (activation == Activation::gelu) {
        y[t * ldy + i] = up * g / 2 * std::erfc(-g / std::sqrt(2.0));
        continue;
      }
      if (activation == Activation::relu_squared) {
        y[t * ldy + i] = up * (g > 0 ? g * g : 0);
        continue;
      }
      double const u = 0.79788456080286541 * (g + 0.044715 * g * g * g);
      y[t * ldy + i] =
          up * (activation == Activation::silu ? g / (1 + std::exp(-g)) : g / (1 + std::exp(-2 * u)));
    }
  }
}

}  // namespace bunting::reference
