// uploader.h - lays out weights in device memory and sends them there, piece by piece. All threads bring a
// piece into the kernels' order while earlier ones are copied.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "cuda/row_writer.h"
#include "cuda/runtime.h"
#include "cuda/staging.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "model/model.h"
#include "model/panel_reader.h"

namespace bunting::cuda {

class Uploader {
 public:
  // Most bytes that are packed before they go to the device. Tests make it smaller.
  inline static size_t sent_bytes = size_t(8) << 20;

  // Sends nothing and only adds up sizes.
  Uploader() : carver_(nullptr) {}
  // Sends weights of the model to `memory`. Both must outlive the uploader.
  Uploader(DeviceMemory const& memory, Model const& model, bunting_progress progress);

  size_t used() const { return carver_.used(); }  // bytes of device memory
  // Waits for all copies, and returns the bytes of the host's memory that were in use.
  size_t finish();
  // Returns their most.
  static size_t host_bytes(Model const& model);

  // Each function below returns the place on the device.

  // Sends a vector times `scale`; or vectors of `size` numbers, one after the other.
  float const* vector(float const* from, int64_t size, float scale = 1) {
    return vectors({from}, size, scale);
  }
  float const* vectors(std::vector<float const*> const& from, int64_t size, float scale = 1);
  // Reads a single number; 1 if only sizes are added up. The other reads several, or leaves them.
  float number(float const* from) const;
  void numbers(float const* from, int64_t size, float* to) const;

  // Sends an array of the host's memory.
  template <class T>
  T* array(T const* from, int64_t size) {
    T* const to = carver_.take<T>(size_t(size));
    send_bytes(to, from, size_t(size) * sizeof(T));
    return to;
  }

  // Ranges of rows of a packed matrix. Each begins on a panel.
  struct Rows {
    int64_t first, count;
  };
  // Sends ranges of rows, one after the other, in the host's format, or from bf16 to fp8.
  WeightMatrix matrix(PackedMatrix const& from, bool as_fp8, std::vector<Rows> const& ranges);
  // Sends ranges of rows of an f32 matrix unchanged, one after the other.
  float const* exact(PackedMatrix const& from, std::vector<Rows> const& ranges);
  // Sends a table of f32 [rows, cols] with rows and columns exchanged.
  float const* transposed(float const* from, int64_t rows, int64_t cols);
  // Sends all rows in bf16, from any host format.
  bf16 const* table(PackedMatrix const& from);

 private:
  // Places of a matrix's rows, and of their scales.
  struct Target {
    char* to;
    size_t row;
    char* to_scales = nullptr;
    size_t row_scales = 0;
  };
  // Writes one row of a panel, and its scales.
  using WriteRow =
      std::function<void(RowWriter&, PackedMatrix const& panel, int64_t row, void* to, void* to_scales)>;

  // Sends ranges of rows. `is_bf16`: a row is its numbers in bf16, so it needs no packing if a file has them.
  void rows(PackedMatrix const& from, std::vector<Rows> const& ranges, Target to, bool is_bf16,
            WriteRow const& write);
  void send_bytes(void* to, void const* from, size_t bytes);
  void send(void* to, void const* from, size_t bytes);
  bool is_measuring() const { return !staging_; }

  Carver carver_;
  size_t sent_ = 0, bytes_ = 0;
  bunting_progress progress_ = nullptr;
  std::optional<PanelReader> panels_;
  std::optional<ThreadPool> pool_;
  std::vector<RowWriter> writers_;  // indexed by thread
  std::optional<Staging> staging_;
};

}  // namespace bunting::cuda
