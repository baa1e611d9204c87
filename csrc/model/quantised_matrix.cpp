// quantised_matrix.cpp - the published layouts of quantised safetensors. A number is (q - z) s; q, z and s
// are
//
//   rows   q [N, K] packed along k, first k in the lowest bits; s [N / group_rows, G];
//          z [N, G] packed along n (compressed-tensors, FP8, MXFP4)
//   GPTQ   q [K, N] packed along k in words of 32 bits; s [G, N]; z [G, N] packed along n
//   AWQ    q [K, N] packed along n in words, the columns of a word in the order 0 2 4 6 1 3 5 7; s [G, N];
//          z [G, N] packed as q
//   NVFP4  rows of GGUF's blocks of 64 k: four s, then the nibbles q of each 16 k, the first eight of which
//   are
//          low ones
//
// with G groups of group_cols k, or the group of each k that `order` gives. A factor may multiply all
// numbers.
//
// Work:    a block of 32 numbers at a time, on the threads that pack.
// Checked: against formulas in double (tests/test_quantised_matrix.cpp).
#include "model/quantised_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "boundary/error.h"
#include "cpu/kernels/stored_block.h"

namespace bunting {
namespace {

// Returns bits [index * bits, +bits) of the data at `from`; bits is 4 or 8.
int packed(uint8_t const* from, int64_t index, int bits) {
  return bits == 8 ? from[index] : from[index / 2] >> (index % 2 * 4) & 15;
}

// Returns the place of column n in AWQ's words.
int64_t awq_place(int64_t n) {
  constexpr int64_t kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
  return n / 8 * 8 + kPlaces[n % 8];
}

float float_at(uint8_t const* floats, int64_t index) {
  float value;
  std::memcpy(&value, floats + index * 4, 4);
  return value;
}

double e4m3(int bits) {
  int const exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return NAN;
  double const magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return bits >= 128 ? -magnitude : magnitude;
}

double half(uint16_t bits) {
  int const exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double const magnitude = exponent == 31  ? (mantissa ? double(NAN) : double(INFINITY))
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Rounds to the nearest f16, ties to even.
uint16_t to_half(double value) {
  uint16_t const sign = std::signbit(value) ? 0x8000 : 0;
  double const magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (magnitude < 0x1p-14) return uint16_t(sign | int(std::nearbyint(std::ldexp(magnitude, 24))));
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent;
  int const mantissa = int(std::nearbyint(std::ldexp(std::frexp(magnitude, &exponent), 11)));  // 1024 .. 2048
  return uint16_t(sign | (((exponent + 14) << 10) + mantissa - 1024));
}

}  // namespace

QuantisedMatrix::QuantisedMatrix(bunting_quantised const& how, char const* paths, uint64_t const* offsets,
                                 int64_t rows, int64_t cols, int64_t row_step, bool is_read_soon)
    : how_(how), rows_(rows), cols_(cols), row_step_(row_step) {
  bool const is_integer = how.number == BUNTING_NUMBER_UNSIGNED;
  bool const is_wide = how.number == BUNTING_NUMBER_SIGNED || how.number == BUNTING_NUMBER_E4M3 ||
                       how.number == BUNTING_NUMBER_SIGNED_127;
  bool const has_levels = how.number == BUNTING_NUMBER_LEVELS,
             is_nested = how.scale_type == BUNTING_SCALE_NESTED;
  bool const is_blocks = how.layout == BUNTING_LAYOUT_NVFP4;
  bool const is_words = how.layout == BUNTING_LAYOUT_GPTQ || how.layout == BUNTING_LAYOUT_AWQ;
  int64_t const per_word = how.bits > 0 ? 32 / how.bits : 1;
  if (how.layout < BUNTING_LAYOUT_ROWS || how.layout > BUNTING_LAYOUT_NVFP4 ||
      how.number < BUNTING_NUMBER_UNSIGNED || how.number > BUNTING_NUMBER_LEVELS ||
      (how.bits != 4 && how.bits != 8) || (is_wide && how.bits != 8) ||
      ((how.number == BUNTING_NUMBER_E2M1 || has_levels) && how.bits != 4) || (is_words && !is_integer) ||
      (how.layout == BUNTING_LAYOUT_AWQ && how.bits != 4) || how.group_rows < 1 || how.group_cols < 1 ||
      (is_words && how.group_rows != 1) || how.scale_type < BUNTING_SCALE_F32 ||
      how.scale_type > BUNTING_SCALE_NESTED ||
      (is_blocks && (how.number != BUNTING_NUMBER_E2M1 || how.scale_type != BUNTING_SCALE_E4M3 ||
                     how.group_cols != 16 || how.group_rows != 1 || cols % 64 != 0)))
    fail(BUNTING_INVALID, "%s: no such way of storing quantised matrices", paths);
  if (row_step != 1 && (is_words || how.group_rows != 1))
    fail(BUNTING_INVALID, "%s: rows that take turns are one after the other, with scales of their own",
         paths);
  if ((is_integer && rows % per_word != 0) || cols % 32 != 0)
    fail(BUNTING_INVALID, "%s: a matrix of [%lld, %lld] cannot be stored so: wanted multiples of %lld and 32",
         paths, (long long)rows, (long long)cols, (long long)per_word);
  groups_ = (cols + how.group_cols - 1) / how.group_cols;
  int64_t const element = how.scale_type == BUNTING_SCALE_F32    ? 4
                          : how.scale_type >= BUNTING_SCALE_E8M0 ? 1
                                                                 : 2;
  int64_t const stored_rows = (rows - 1) * row_step + 1;
  int64_t const scale_rows = (stored_rows + how.group_rows - 1) / how.group_rows;
  int64_t const sizes[parts] = {is_blocks ? stored_rows * cols / 64 * 36 : stored_rows * cols * how.bits / 8,
                                scale_rows * groups_ * element,
                                rows * groups_ * how.bits / 8,
                                cols * 4,
                                4,
                                16 * 4,
                                (scale_rows * groups_ + 255) / 256 * 4,
                                256 * 4,
                                how.state_bytes};
  for (int part = 0; part < parts; part++) {
    if (*paths != 0)
      files_[part] = std::make_unique<TensorFile>(paths, offsets[part], uint64_t(sizes[part]), is_read_soon);
    paths += std::strlen(paths) + 1;
  }
  for (Part const part : {nested_scales, nested_levels, state})
    if (!files_[part] == is_nested)
      fail(BUNTING_INVALID, "nested scales, and no others, have scales and levels of their own");
  if (!files_[levels] == has_levels)
    fail(BUNTING_INVALID, "numbers that are levels, and no others, have those");
  if (!files_[integers] || !files_[scales] != is_blocks || (files_[zeros] && (!is_integer || row_step != 1)))
    fail(BUNTING_INVALID,
         "a quantised matrix has integers and scales, and zeros only beside unsigned ones in whole rows");
  if (files_[factor]) {
    double const value = float_at(bytes(factor), 0);
    factor_ = how.divided ? 1 / value : value;
  }
  if (is_nested) {
    std::string const text(reinterpret_cast<char const*>(bytes(state)), size_t(how.state_bytes));
    std::string const name = "\"nested_offset\":";
    size_t const at = text.find(name);
    if (at == std::string::npos) fail(BUNTING_INVALID, "nested scales without %s", name.c_str());
    nested_offset_ = std::strtod(text.c_str() + at + name.size(), nullptr);
  }
  for (int64_t k = 0; k < cols && files_[order]; k++)
    if (group_of(k) < 0 || group_of(k) >= groups_)
      fail(BUNTING_INVALID, "a quantised matrix of %lld groups says that column %lld is of group %lld",
           (long long)groups_, (long long)k, (long long)group_of(k));
}

int QuantisedMatrix::integer(int64_t n, int64_t k) const {
  int64_t const per_word = 32 / how_.bits;
  switch (how_.layout) {
    case BUNTING_LAYOUT_GPTQ:
      return packed(bytes(integers), (k / per_word * rows_ + n) * per_word + k % per_word, how_.bits);
    case BUNTING_LAYOUT_AWQ:
      return packed(bytes(integers), k * rows_ + awq_place(n), how_.bits);
    case BUNTING_LAYOUT_NVFP4:
      return block_of(n, k)[4 + k % 64 / 16 * 8 + k % 8] >> (k % 16 / 8 * 4) & 15;
    default: {
      int64_t const place = n * row_step_ * cols_ + k;
      return packed(bytes(integers), how_.number == BUNTING_NUMBER_LEVELS ? place ^ 1 : place, how_.bits);
    }
  }
}

int QuantisedMatrix::zero(int64_t n, int64_t group) const {
  if (!files_[zeros]) return 1 << (how_.bits - 1);
  int64_t const per_word = 32 / how_.bits;
  switch (how_.layout) {
    case BUNTING_LAYOUT_GPTQ:
      return packed(bytes(zeros), group * rows_ + n, how_.bits) + how_.zero_added;
    case BUNTING_LAYOUT_AWQ:
      return packed(bytes(zeros), group * rows_ + awq_place(n), how_.bits);
    default:
      return packed(bytes(zeros), (n / per_word * groups_ + group) * per_word + n % per_word, how_.bits);
  }
}

double QuantisedMatrix::stored_scale(int64_t n, int64_t group) const {
  if (how_.layout == BUNTING_LAYOUT_NVFP4) {
    int const bits = block_of(n, group * 16)[group % 4] & 127;
    return bits == 127 ? 0 : e4m3(bits);
  }
  int64_t const at = how_.layout == BUNTING_LAYOUT_ROWS ? scale_row(n) * groups_ + group : group * rows_ + n;
  uint8_t const* const from = bytes(scales);
  if (how_.scale_type == BUNTING_SCALE_E8M0) return double(exponent_scale(from[at])) * 2;
  if (how_.scale_type == BUNTING_SCALE_E4M3) return e4m3(from[at]);
  if (how_.scale_type == BUNTING_SCALE_F32) return float_at(from, at);
  if (how_.scale_type == BUNTING_SCALE_NESTED)
    return double(float_at(bytes(nested_levels), from[at])) * float_at(bytes(nested_scales), at / 256) +
           nested_offset_;
  uint16_t value;
  std::memcpy(&value, from + at * 2, 2);
  if (how_.scale_type == BUNTING_SCALE_F16) return half(value);
  uint32_t const wide = uint32_t(value) << 16;
  float number;
  std::memcpy(&number, &wide, 4);
  return number;
}

int64_t QuantisedMatrix::group_of(int64_t k) const {
  if (!files_[order]) return k / how_.group_cols;
  int32_t group;
  std::memcpy(&group, bytes(order) + k * 4, 4);
  return group;
}

double QuantisedMatrix::number(int64_t n, int64_t k) const {
  int64_t const group = group_of(k);
  int const q = integer(n, k);
  switch (how_.number) {
    case BUNTING_NUMBER_SIGNED:
      return int8_t(q) * scale(n, group);
    case BUNTING_NUMBER_SIGNED_127:
      return int8_t(q) * scale(n, group) / 127;
    case BUNTING_NUMBER_LEVELS:
      return float_at(bytes(levels), q) * scale(n, group);
    case BUNTING_NUMBER_E4M3:
      return e4m3(q) * scale(n, group);
    case BUNTING_NUMBER_E2M1:
      return kTwiceE2m1.of[q] * 0.5 * scale(n, group);
    default:
      return (q - zero(n, group)) * scale(n, group);
  }
}

bool QuantisedMatrix::can_be(Dtype type) const {
  bool const has_groups = !files_[order] && how_.group_cols % kGroup == 0;
  bool const is_four = how_.number == BUNTING_NUMBER_UNSIGNED && how_.bits == 4 && has_groups;
  switch (type) {
    case Dtype::q4:
      return is_four && !files_[zeros];
    case Dtype::q4_1:
      return is_four;
    case Dtype::mxfp4:
      return how_.number == BUNTING_NUMBER_E2M1 && how_.scale_type == BUNTING_SCALE_E8M0 && has_groups &&
             !files_[factor];
    case Dtype::nvfp4:
      return how_.number == BUNTING_NUMBER_E2M1 && how_.scale_type == BUNTING_SCALE_E4M3 &&
             how_.group_cols == 16 && !files_[order] && cols_ % kSuper == 0;
    case Dtype::q8:
      return true;
    default:
      return false;
  }
}

// Writes kSuper numbers with integer scales: multiples of the smallest power of two for which all are at most
// 127. That changes no number where the largest scale is at most eight times the smallest one.
void QuantisedMatrix::read_nvfp4(int64_t n, int64_t first, char* to) const {
  constexpr int kGroups = kSuper / 16;
  double of[kGroups], largest = 0;
  for (int i = 0; i < kGroups; i++) {
    of[i] = stored_scale(n, first / 16 + i);
    largest = std::isfinite(of[i]) ? std::max(largest, std::fabs(of[i])) : double(INFINITY);
  }
  bool const is_finite = std::isfinite(largest);
  double unit = 0x1p-9;  // the smallest number of e4m3
  while (is_finite && largest > 127 * unit) unit *= 2;
  uint16_t const d = is_finite ? to_half(0.5 * unit * factor_) : 0x7e00;
  std::memcpy(to, &d, 2);
  for (int i = 0; i < kGroups; i++) to[2 + i] = char(is_finite ? int(std::nearbyint(of[i] / unit)) : 0);
  for (int i = 0; i < kSuper / 2; i++) {
    int64_t const k = first + i / 16 * 32 + i % 16;
    to[2 + kGroups + i] = char(integer(n, k) | integer(n, k + 16) << 4);
  }
}

void QuantisedMatrix::read_block(Dtype type, int64_t n, int64_t first, char* to) const {
  if (type == Dtype::nvfp4) return read_nvfp4(n, first, to);
  int64_t const group = group_of(first);
  auto const put_half = [](char* at, double value) {
    uint16_t const bits = to_half(value);
    std::memcpy(at, &bits, 2);
  };
  auto const put_nibbles = [&](char* at) {
    for (int i = 0; i < 16; i++) at[i] = char(integer(n, first + i) | integer(n, first + 16 + i) << 4);
  };
  switch (type) {
    case Dtype::q4:
      put_half(to, scale(n, group));
      return put_nibbles(to + 2);
    case Dtype::q4_1:
      put_half(to, scale(n, group));
      put_half(to + 2, -zero(n, group) * scale(n, group));
      return put_nibbles(to + 4);
    case Dtype::mxfp4:
      to[0] = char(bytes(scales)[scale_row(n) * groups_ + group]);
      return put_nibbles(to + 1);
    default:
      break;
  }
  bool const has_groups = !files_[order] && how_.group_cols % kGroup == 0;
  bool const is_unsigned = how_.number == BUNTING_NUMBER_UNSIGNED && how_.bits == 8 && !files_[zeros];
  bool const is_of_127 = how_.number == BUNTING_NUMBER_SIGNED_127;
  if (has_groups && (is_unsigned || is_of_127 || how_.number == BUNTING_NUMBER_SIGNED)) {
    put_half(to, scale(n, group) / (is_of_127 ? 127 : 1));
    for (int i = 0; i < kGroup; i++) to[2 + i] = char(integer(n, first + i) - (is_unsigned ? 128 : 0));
    return;
  }
  double numbers[kGroup], largest = 0;
  bool is_finite = true;
  for (int i = 0; i < kGroup; i++) {
    numbers[i] = number(n, first + i);
    largest = std::max(largest, std::fabs(numbers[i]));
    is_finite = is_finite && std::isfinite(numbers[i]);
  }
  uint16_t const bits = is_finite ? to_half(largest / 127) : 0x7e00;
  std::memcpy(to, &bits, 2);
  double const step = half(bits);
  for (int i = 0; i < kGroup; i++) {
    double const q = is_finite && step > 0 ? std::nearbyint(numbers[i] / step) : 0;
    to[2 + i] = char(int(std::clamp(q, -127.0, 127.0)));
  }
}

void QuantisedMatrix::read(Dtype type, int64_t begin, int64_t end, char* to) const {
  int64_t const size = stored_block_bytes(type), length = stored_block_length(type);
  int64_t const row_bytes = cols_ / length * size;
  // Processes rows of the same words together, so that the words stay in the cache.
  constexpr int64_t kRows = 16;
  for (int64_t row = begin; row < end; row += kRows)
    for (int64_t k = 0; k < cols_; k += length)
      for (int64_t n = row; n < std::min(row + kRows, end); n++)
        read_block(type, n, k, to + (n - begin) * row_bytes + k / length * size);
}

}  // namespace bunting
