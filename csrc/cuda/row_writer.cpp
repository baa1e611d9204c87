#include "cuda/row_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kernels/integer_layout.h"

namespace bunting::cuda {
namespace {

// Rounds to nearest even; x must be finite.
bf16 bf16_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

Format format_of(Dtype dtype, bool as_fp8) {
  switch (dtype) {
    case Dtype::q8_128:
    case Dtype::q6:
      return Format::int8_128;
    case Dtype::q8:
      return Format::int8_32;
    case Dtype::q4:
      return Format::int4_32;
    case Dtype::mxfp4:
      return Format::mxfp4;
    default:
      return as_fp8 ? Format::fp8 : Format::plain;
  }
}

void RowWriter::write(PackedMatrix const& from, int64_t row, Format format, void* to, void* to_scales) {
  if (from.grouped()) {
    read_groups(from, row);
    if (format == Format::plain)
      for (int64_t k = 0; k < from.k; ++k) static_cast<bf16*>(to)[k] = bf16_of(value_of(from, k));
    else
      pack_row(format, q_, scales_, to, to_scales);
    return;
  }
  bf16 const* const panel =
      static_cast<bf16 const*>(from.data) + row / kPanel * kPanel * from.kp() + row % kPanel * 2;
  auto const at = [&](int64_t k) { return panel[k / 2 * (2 * kPanel) + k % 2]; };
  if (format == Format::plain) {
    for (int64_t k = 0; k < from.k; ++k) static_cast<bf16*>(to)[k] = at(k);
    return;
  }
  values_.resize(size_t(from.k));
  for (int64_t k = 0; k < from.k; ++k) {
    uint32_t const bits = uint32_t(at(k)) << 16;
    std::memcpy(&values_[size_t(k)], &bits, sizeof bits);
  }
  is_finite_ &= std::all_of(values_.begin(), values_.end(), [](float x) { return std::isfinite(x); });
  if (is_finite_) round_row_to_fp8(values_, to, to_scales);
}

void RowWriter::read_groups(PackedMatrix const& from, int64_t row) {
  q_.resize(size_t(round_up(from.k, kGroup)));
  scales_.clear();
  scales_.reserve(size_t(from.kp() / from.group()));
  for (int64_t k = 0; k < from.k; k += from.group())
    scales_.push_back(from.dtype == Dtype::mxfp4 ? mxfp4_scale(read_scales(from, row, k).bytes[0])
                                                 : read_scales(from, row, k).halves[0]);
  for (int64_t k = 0; k < from.k; k += kGroup) read_integers(from, row, k, q_.data() + k);
  q_.resize(size_t(from.k));
}

// Returns a value of the row that was read last.
float RowWriter::value_of(PackedMatrix const& from, int64_t k) const {
  uint16_t const scale = scales_[size_t(k / from.group())];
  int8_t const q = q_[size_t(k)];
  if (from.dtype != Dtype::mxfp4) return half_value(scale) * float(q);
  uint32_t const bits = uint32_t(scale) << 16;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power * 0.5f * float(kTwiceE2m1.of[q]);
}

size_t RowWriter::bytes() const {
  return q_.capacity() + scales_.capacity() * sizeof(uint16_t) + values_.capacity() * sizeof(float);
}

size_t RowWriter::bytes_max(int64_t width) {
  constexpr size_t kGroupMin = 16;  // fewest numbers that share a scale
  return size_t(width) * (1 + sizeof(float)) + size_t(width) / kGroupMin * sizeof(uint16_t);
}

}  // namespace bunting::cuda
