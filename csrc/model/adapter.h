// adapter.h - the factors of a LoRA adapter in the reading order of the kernels.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "host/memory_region.h"
#include "include/adapters.h"
#include "model/model.h"

namespace bunting {

// Term that an adapter adds to the product with one matrix of the model. That matrix may hold several of the
// file, such as q, k and v: each is a part with factors of its own.
struct LowRankTerm {
  struct Part {
    int64_t first_panel = 0;  // of the part's rows in the model's matrix
    int64_t rank_row = 0;     // first of its rows in `a`, and column of A x; a multiple of kPanel
    int64_t column = 0;       // first column of A x in the operand of `b`; a multiple of kKAlign
    PackedMatrix b;           // [rows, rank]
  };
  // [all ranks, K], scaled: the parts' A, one below the other. Both factors have the type of the matrix if it
  // is plain, else of the model's activations.
  PackedMatrix a;
  std::vector<Part> parts;
  int64_t columns = 0;  // of the operand of all parts' B
};

class Adapter {
 public:
  // `model` is sealed, and its weights are in memory.
  explicit Adapter(Model const& model) : model_(model) {}

  // See adapters.h for both.
  void load(int32_t tensor, int32_t layer, int32_t rank, float scale, bunting_factor const& a,
            bunting_factor const& b);
  void seal();

  Model const& model() const { return model_; }
  bool sealed() const { return sealed_; }
  uint64_t bytes() const { return region_.bytes(); }
  int32_t rank() const { return rank_; }  // the highest
  // Term of a matrix of the model, which is known by the address of its weights; null: none.
  LowRankTerm const* term(PackedMatrix const& w) const {
    auto const found = terms_.find(w.data);
    return found == terms_.end() ? nullptr : &found->second;
  }

 private:
  // Factors of a tensor of the model, before they are packed.
  struct Source {
    int32_t tensor, layer, rank;
    float scale;
    std::string a_path, b_path;
    uint64_t a_offset, b_offset;
    int32_t a_dtype, b_dtype;
    PackedMatrix const* matrix;  // of the model
    int64_t first_panel, rows;
  };
  Dtype type_of(Source const& source) const;
  void place(char* base);
  void pack(Source const& source, ThreadPool& pool);

  Model const& model_;
  std::vector<Source> sources_;
  std::unordered_map<void const*, LowRankTerm> terms_;
  MemoryRegion region_;
  size_t used_ = 0;
  int32_t rank_ = 0;
  bool sealed_ = false;
};

}  // namespace bunting
