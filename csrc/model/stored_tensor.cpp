// stored_tensor.cpp - reads and packs one panel of a tensor at a time.
//
// Work:    every number read once and packed once; a panel stays in a thread's cache meanwhile.
// Checked: against matrices packed from the same numbers by themselves (tests/test_model.cpp).
#include "model/stored_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "boundary/error.h"

namespace bunting {
namespace {

QuantisedMatrix open(StoredTensor const& tensor, bool is_read_soon) {
  QuantisedSource const& from = *tensor.quantised;
  return QuantisedMatrix(from.how, from.paths.c_str(), from.offsets, tensor.layout.stored_rows(),
                         tensor.layout.stored_cols(), from.row_step, is_read_soon);
}

}  // namespace

void StoredTensor::check_files() const {
  if (!quantised) {
    TensorFile(path.c_str(), offset, layout.bytes(), false);
    return;
  }
  bool const has_rows = !layout.is_vector && !layout.is_transposed && !layout.is_in_runs();
  if (!has_rows || !open(*this, false).can_be(Dtype(layout.dtype)))
    fail(BUNTING_INVALID, "%s: %s cannot become blocks of type %d", path.c_str(), name.c_str(), layout.dtype);
}

TensorReader::TensorReader(StoredTensor const& tensor) : tensor_(tensor) {
  if (tensor.quantised)
    quantised_.emplace(open(tensor, true));
  else
    file_.emplace(tensor.path.c_str(), tensor.offset, tensor.layout.bytes());
}

bool TensorReader::pack(Kernels const& kernels, int64_t panel, char* to, PanelScratch& scratch) const {
  StoredLayout const& layout = tensor_.layout;
  int64_t const first = panel * kPanel, count = std::min<int64_t>(kPanel, layout.rows - first);
  PackedMatrix packed = tensor_.to.part;
  packed.n = count;
  packed.data = to;
  // No stored type takes more than f32.
  size_t const bytes_max = size_t(kPanel * layout.cols) * sizeof(float);
  scratch.converted.resize(std::max(scratch.converted.size(), bytes_max));
  if (layout.is_transposed)
    return layout.pack_columns(kernels, packed, panel, file_->data(),
                               reinterpret_cast<float*>(scratch.converted.data()));
  int64_t const row_bytes = layout.row_bytes();
  if (file_ && layout.is_in_order())
    return layout.pack(kernels, packed, file_->data() + first * row_bytes, scratch.converted.data(),
                       tensor_.factor);
  scratch.stored.resize(std::max({scratch.stored.size(), bytes_max, size_t(row_bytes)}));
  char* const rows = scratch.stored.data();
  if (layout.turned > 0) {
    auto const row_of = [&](int64_t row) -> char const* {
      if (!quantised_) return file_->data() + row * row_bytes;
      quantised_->read(Dtype(layout.dtype), row, row + 1, rows);
      return rows;
    };
    return layout.pack_turned(kernels, packed, panel, row_of,
                              reinterpret_cast<float*>(scratch.converted.data()));
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t const row = layout.order.source(first + i);
    if (quantised_)
      quantised_->read(Dtype(layout.dtype), row, row + 1, rows + i * row_bytes);
    else
      std::memcpy(rows + i * row_bytes, file_->data() + row * row_bytes, size_t(row_bytes));
  }
  return layout.pack(kernels, packed, rows, scratch.converted.data(), tensor_.factor);
}

bool TensorReader::has_rows_of_bf16() const {
  return file_ && tensor_.layout.dtype == BUNTING_BF16 && !tensor_.layout.is_transposed &&
         tensor_.layout.turned == 0 && tensor_.factor == 1 && tensor_.to.part.dtype == Dtype::bf16;
}

bool TensorReader::copy_bf16(int64_t row, void* to) const {
  StoredLayout const& layout = tensor_.layout;
  char const* const from = file_->data() + layout.order.source(row) * layout.row_bytes();
  std::memcpy(to, from, size_t(layout.row_bytes()));
  return layout.type->is_finite(static_cast<char const*>(to), layout.cols);
}

void TensorReader::read(float* to) const {
  if (!tensor_.layout.read(file_->data(), to)) refuse();
  for (int64_t i = 0; i < tensor_.numbers(); i++) {
    to[i] = to[i] / tensor_.divisor * tensor_.factor;
    if (tensor_.negates_exp) to[i] = float(-std::exp(double(to[i])));
  }
}

void TensorReader::let_go(int64_t panel, int64_t panels) const {
  if (!file_ || !tensor_.layout.is_in_order()) return;
  int64_t const row_bytes = tensor_.layout.row_bytes(), first = panel * kPanel,
                rows = std::min(panels * kPanel, tensor_.layout.rows - first);
  file_->let_go(file_->data() + first * row_bytes, uint64_t(rows * row_bytes));
}

void TensorReader::refuse() const {
  fail(BUNTING_INVALID, "%s: %s has a number that is not finite", tensor_.path.c_str(), tensor_.name.c_str());
}

}  // namespace bunting
