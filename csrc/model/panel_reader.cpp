#include "model/panel_reader.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "boundary/error.h"

namespace bunting {
namespace {

// Returns the first tensor that is at `place` or begins after it.
auto stored_from(Model const& model, char const* place) {
  auto next = model.stored().upper_bound(place);
  return next == model.stored().begin() ? next : std::prev(next);
}

}  // namespace

PanelReader::PanelReader(Model const& model, int threads) : model_(model), scratch_(size_t(threads)) {}

int64_t PanelReader::turn_to(PackedMatrix const& matrix, int64_t panel) {
  matrix_ = matrix;
  if (!model_.is_in_files()) {
    first_ = 0;
    return matrix.panels() - panel;
  }
  StoredTensor const& tensor = stored_from(model_, matrix.panel(panel))->second;
  first_ = (static_cast<char const*>(tensor.to.part.data) - static_cast<char const*>(matrix.data)) /
           matrix.panel_bytes();
  if (!reader_ || &reader_->tensor() != &tensor) {
    reader_.reset();  // unmaps the last tensor first
    reader_.emplace(tensor);
  }
  return first_ + tensor.to.part.panels() - panel;
}

PackedMatrix PanelReader::panel(int64_t panel, int thread) {
  if (!reader_) return panels_of(matrix_, panel, std::min<int64_t>(kPanel, matrix_.n - panel * kPanel));
  Scratch& scratch = scratch_[size_t(thread)];
  scratch.panel.resize(std::max(scratch.panel.size(), size_t(matrix_.panel_bytes())));
  if (!reader_->pack(model_.kernels(), panel - first_, scratch.panel.data(), scratch.reading))
    is_finite_ = false;
  PackedMatrix packed = matrix_;
  packed.n = kPanel;
  packed.data = scratch.panel.data();
  return packed;
}

void PanelReader::copy_bf16(int64_t row, void* to) {
  if (!reader_->copy_bf16(row - first_ * kPanel, to)) is_finite_ = false;
}

void PanelReader::finish(int64_t panel, int64_t panels) {
  if (!is_finite_) reader_->refuse();
  if (reader_)
    reader_->let_go(panel - first_, panels);
  else
    model_.let_go(matrix_.panel(panel), size_t(panels * matrix_.panel_bytes()));
}

void PanelReader::read(float const* vector, int64_t size, float* to) const {
  if (!model_.is_in_files()) {
    std::copy_n(vector, size, to);
    return;
  }
  std::fill_n(to, size, 0.0f);
  auto const& stored = model_.stored();
  for (auto next = stored.lower_bound(reinterpret_cast<char const*>(vector));
       next != stored.end() && next->first < reinterpret_cast<char const*>(vector + size); ++next) {
    StoredTensor const& tensor = next->second;
    std::vector<float> numbers(static_cast<size_t>(tensor.numbers()));
    TensorReader(tensor).read(numbers.data());
    int64_t const at = tensor.to.vector - vector;
    std::copy_n(numbers.data(), std::min(tensor.numbers(), size - at), to + at);
  }
}

size_t PanelReader::bytes() const {
  size_t bytes = 0;
  for (Scratch const& scratch : scratch_) bytes += scratch.reading.bytes() + scratch.panel.capacity();
  return bytes;
}

size_t PanelReader::bytes_max(Model const& model, int threads) {
  // A packed panel takes less than one in f32, and a vector less than a panel.
  size_t const of_panel = size_t(kPanel * model.width_max()) * sizeof(float);
  return size_t(threads) * (PanelScratch::bytes_max(model.width_max()) + of_panel) + of_panel;
}

PackedImage::PackedImage(Model const& model, char const* base, ThreadPool& pool)
    : model_(model), base_(base), pool_(pool), panels_(model, pool.threads()) {}

char const* PackedImage::read(size_t at, size_t bytes) {
  bytes_.assign(bytes, 0);
  char const *const begin = base_ + at, *const end = begin + bytes;
  for (auto next = stored_from(model_, begin); next != model_.stored().end() && next->first < end; ++next)
    copy(next->second, begin, end);
  return bytes_.data();
}

// Copies the part of a tensor that is in [begin, end), the addresses of bytes_.
void PackedImage::copy(StoredTensor const& tensor, char const* begin, char const* end) {
  auto const copy_part = [&](char const* place, void const* from, size_t bytes) {
    char const *const first = std::max(place, begin), *const last = std::min(place + bytes, end);
    if (first < last)
      std::memcpy(bytes_.data() + (first - begin), static_cast<char const*>(from) + (first - place),
                  size_t(last - first));
  };
  PackedMatrix const& part = tensor.to.part;
  if (!part.data) {
    std::vector<float> numbers(static_cast<size_t>(tensor.numbers()));
    panels_.read(tensor.to.vector, tensor.numbers(), numbers.data());
    copy_part(reinterpret_cast<char const*>(tensor.to.vector), numbers.data(),
              numbers.size() * sizeof(float));
    return;
  }
  char const* const place = part.panel(0);
  int64_t const first = std::max<int64_t>(0, begin - place) / part.panel_bytes(),
                last = std::min(part.panels(), (end - place + part.panel_bytes() - 1) / part.panel_bytes());
  if (first >= last) return;
  panels_.turn_to(part, first);
  pool_.run(last - first, 1, [&](int64_t from, int64_t to, int thread) {
    for (int64_t panel = first + from; panel < first + to; panel++)
      copy_part(part.panel(panel), panels_.panel(panel, thread).data, size_t(part.panel_bytes()));
  });
  panels_.finish(first, last - first);
}

}  // namespace bunting
