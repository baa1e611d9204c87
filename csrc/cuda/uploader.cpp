#include "cuda/uploader.h"

#include <algorithm>

#include "boundary/error.h"

namespace bunting::cuda {
Uploader::Uploader(DeviceMemory const& memory, Model const& model, bunting_progress progress)
    : carver_(memory.data()), bytes_(memory.bytes()), progress_(progress) {
  int const threads = model.shape().threads;
  panels_.emplace(model, threads);
  pool_.emplace(threads, ThreadPool::Cores::any, ThreadPool::Manner::yielding);
  writers_.resize(size_t(threads));
  staging_.emplace();
}

size_t Uploader::finish() {
  staging_->finish();
  if (progress_) progress_(bytes_, bytes_);
  size_t bytes = Staging::bytes() + panels_->bytes();
  for (RowWriter const& writer : writers_) bytes += writer.bytes();
  return bytes;
}

size_t Uploader::host_bytes(Model const& model) {
  int const threads = model.shape().threads;
  return Staging::bytes() + PanelReader::bytes_max(model, threads) +
         size_t(threads) * RowWriter::bytes_max(model.width_max()) +
         (model.has_states() ? size_t(model.conv_channels() * model.shape().state_conv) * sizeof(float) : 0);
}

float const* Uploader::vectors(std::vector<float const*> const& from, int64_t size, float scale) {
  float* const whole = carver_.take<float>(from.size() * size_t(size));
  for (size_t i = 0; i < from.size() && !is_measuring(); ++i) {
    size_t const bytes = size_t(size) * sizeof(float);
    float* const staged = reinterpret_cast<float*>(staging_->take(bytes));
    panels_->read(from[i], size, staged);
    for (int64_t n = 0; n < size; ++n) staged[n] *= scale;
    send(whole + int64_t(i) * size, staged, bytes);
  }
  return whole;
}

float Uploader::number(float const* from) const {
  float number = 1;
  numbers(from, 1, &number);
  return number;
}

void Uploader::numbers(float const* from, int64_t size, float* to) const {
  if (!is_measuring()) panels_->read(from, size, to);
}

WeightMatrix Uploader::matrix(PackedMatrix const& from, bool as_fp8, std::vector<Rows> const& ranges) {
  Format const format = format_of(from.dtype, as_fp8);
  size_t const row = row_bytes(format, int32_t(from.k)),
               row_scales = row_scale_bytes(format, int32_t(from.k));
  size_t count = 0;
  for (Rows const& range : ranges) count += size_t(range.count);
  char* const to = carver_.take<char>(count * row);
  char* const to_scales = carver_.take<char>(count * row_scales);
  rows(from, ranges, {to, row, to_scales, row_scales}, format == Format::plain,
       [format](RowWriter& writer, PackedMatrix const& panel, int64_t r, void* at, void* scales_at) {
         writer.write(panel, r, format, at, scales_at);
       });
  return WeightMatrix(format, to, to_scales);
}

float const* Uploader::transposed(float const* from, int64_t rows, int64_t cols) {
  size_t const numbers = size_t(rows * cols);
  float* const to = carver_.take<float>(numbers);
  if (is_measuring()) return to;
  std::vector<float> table(numbers);
  panels_->read(from, int64_t(numbers), table.data());
  float* const staged = reinterpret_cast<float*>(staging_->take(numbers * sizeof(float)));
  for (int64_t i = 0; i < rows * cols; ++i) staged[i % cols * rows + i / cols] = table[size_t(i)];
  send(to, staged, numbers * sizeof(float));
  return to;
}

float const* Uploader::exact(PackedMatrix const& from, std::vector<Rows> const& ranges) {
  int64_t count = 0;
  for (Rows const& range : ranges) count += range.count;
  float* const to = carver_.take<float>(size_t(count * from.k));
  rows(from, ranges, {reinterpret_cast<char*>(to), size_t(from.k) * sizeof(float)}, false,
       [](RowWriter&, PackedMatrix const& panel, int64_t r, void* at, void*) {
         float const* const numbers = static_cast<float const*>(panel.data);
         for (int64_t k = 0; k < panel.k; ++k) static_cast<float*>(at)[k] = numbers[k * kPanel + r];
       });
  return to;
}

bf16 const* Uploader::table(PackedMatrix const& from) {
  bf16* const to = carver_.take<bf16>(size_t(from.n * from.k));
  rows(from, {{0, from.n}}, {reinterpret_cast<char*>(to), size_t(from.k) * sizeof(bf16)}, true,
       [](RowWriter& writer, PackedMatrix const& panel, int64_t r, void* at, void*) {
         writer.write(panel, r, Format::plain, at, nullptr);
       });
  return to;
}

void Uploader::rows(PackedMatrix const& from, std::vector<Rows> const& ranges, Target target, bool is_bf16,
                    WriteRow const& write) {
  if (is_measuring()) return;
  int64_t const row = int64_t(target.row), row_scales = int64_t(target.row_scales);
  int64_t const panels_max = std::max<int64_t>(1, int64_t(sent_bytes) / kPanel / (row + row_scales));
  for (Rows const& range : ranges)
    for (int64_t done = 0; done < range.count;) {
      int64_t const first = (range.first + done) / kPanel;
      int64_t const turned = std::min(panels_max, panels_->turn_to(from, first));
      int64_t const count = std::min(range.count - done, turned * kPanel);
      int64_t const panels = (count + kPanel - 1) / kPanel;
      bool const as_stored = is_bf16 && panels_->has_rows_of_bf16();
      char* const staged = staging_->take(size_t(count * (row + row_scales)));
      char* const staged_scales = staged + count * row;
      pool_->run(panels, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t p = begin; p < end; ++p) {
          PackedMatrix const panel = as_stored ? PackedMatrix() : panels_->panel(first + p, thread);
          for (int64_t r = p * kPanel; r < std::min((p + 1) * kPanel, count); ++r)
            if (as_stored)
              panels_->copy_bf16(first * kPanel + r, staged + r * row);
            else
              write(writers_[size_t(thread)], panel, r - p * kPanel, staged + r * row,
                    staged_scales + r * row_scales);
        }
      });
      panels_->finish(first, panels);
      for (RowWriter const& writer : writers_)
        if (!writer.is_finite()) fail(BUNTING_INVALID, "a weight is not finite: fp8 has no code for it");
      send(target.to, staged, size_t(count * row));
      if (row_scales > 0) send(target.to_scales, staged_scales, size_t(count * row_scales));
      target.to += count * row;
      target.to_scales += count * row_scales;
      done += count;
    }
}

void Uploader::send_bytes(void* to, void const* from, size_t bytes) {
  for (size_t done = 0; done < bytes && !is_measuring(); done += sent_bytes) {
    size_t const count = std::min(sent_bytes, bytes - done);
    char* const staged = staging_->take(count);
    std::memcpy(staged, static_cast<char const*>(from) + done, count);
    send(static_cast<char*>(to) + done, staged, count);
  }
}

void Uploader::send(void* to, void const* from, size_t bytes) {
  staging_->send(to, from, bytes);
  sent_ += bytes;
  if (progress_ && sent_ < bytes_) progress_(sent_, bytes_);
}

}  // namespace bunting::cuda
