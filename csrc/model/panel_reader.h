// panel_reader.h - packed panels and vectors of a model, a few at a time, from its files or from memory.
//
// Memory that a reader takes on the host depends on the widths of the matrices, not on their number or
// rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "host/thread_pool.h"
#include "model/model.h"
#include "model/stored_tensor.h"

namespace bunting {

class PanelReader {
 public:
  // For threads numbered below `threads`. The model must outlive the reader.
  PanelReader(Model const& model, int threads);

  // Turns to a panel of one of the model's matrices, or of a part of one that begins on a panel. Returns the
  // number of panels from there on that can be read before the next turn: those of one tensor.
  int64_t turn_to(PackedMatrix const& matrix, int64_t panel);

  // Several threads may call the next two at a time, for panels and rows of the matrix that was turned to.
  // Returns a panel as a matrix of its own, valid until the thread's next call.
  PackedMatrix panel(int64_t panel, int thread);
  // Copies a row as bf16. has_rows_of_bf16() must be true.
  void copy_bf16(int64_t row, void* to);
  bool has_rows_of_bf16() const { return reader_ && reader_->has_rows_of_bf16(); }

  // Ends the reading of some panels, which leave this process's memory. Throws BUNTING_INVALID if one of them
  // has a number that is not finite.
  void finish(int64_t panel, int64_t panels);

  // Reads numbers of a vector, from its beginning on; zero where the model has no tensor.
  void read(float const* vector, int64_t size, float* to) const;

  // Bytes of work memory that the reader has, and may have at most.
  size_t bytes() const;
  static size_t bytes_max(Model const& model, int threads);

 private:
  struct Scratch {
    PanelScratch reading;
    std::vector<char> panel;
  };
  void refuse_if_not_finite() const;

  Model const& model_;
  std::vector<Scratch> scratch_;  // indexed by thread
  PackedMatrix matrix_;
  int64_t first_ = 0;  // panel of matrix_ with which the open tensor begins
  std::optional<TensorReader> reader_;
  std::atomic<bool> is_finite_{true};
};

// The memory image of a deferred model's weights (packed_file.h), which never exists as a whole.
class PackedImage {
 public:
  PackedImage(Model const& model, char const* base, ThreadPool& pool);
  // Returns bytes [at, +bytes), valid until the next call.
  char const* read(size_t at, size_t bytes);

 private:
  void copy(StoredTensor const& tensor, char const* begin, char const* end);

  Model const& model_;
  char const* base_;
  ThreadPool& pool_;
  PanelReader panels_;
  std::vector<char> bytes_;
};

}  // namespace bunting
