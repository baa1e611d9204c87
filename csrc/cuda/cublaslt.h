// cublaslt.h - NVIDIA's library for matrix products, if a machine has it. It is loaded at run time and never
// linked or required. cublaslt.cpp declares the used parts, which are the same in versions 12 and 13.
//
// Its order of sums depends on the number of tokens, so results are not batch-invariant. The engine uses it
// only with --gemm.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"

namespace bunting::cuda {

class CublasLt {
 public:
  // Loads the library from `path`, or from the usual places and the environment variable BUNTING_CUBLASLT if
  // `path` is empty. Compares a small product with the engine's own kernel. Throws BUNTING_INVALID with the
  // reason if the library is absent or wrong.
  explicit CublasLt(std::string const& path);
  ~CublasLt();
  CublasLt(CublasLt const&) = delete;
  CublasLt& operator=(CublasLt const&) = delete;

  // Name, version and file, like "cuBLASLt 13.1.0 (libcublasLt.so.13)".
  std::string const& description() const { return description_; }

  // Device memory, allocated when the library is loaded.
  static constexpr size_t kWorkspaceBytes = size_t(32) << 20;

  // Multiplies like gemm(), for plain weights. The first product of a shape asks the library for an
  // algorithm, which takes longer. If the library has none, gemm() multiplies.
  void multiply(Stream& stream, Gemm const& g);

 private:
  struct Library;
  struct Plan;
  // Starts a loaded library on the current device, with a deadline.
  explicit CublasLt(std::shared_ptr<Library> library);
  using Shape = std::tuple<int32_t, int32_t, int32_t, bool>;  // tokens, n, k, true if there is a bias
  std::shared_ptr<Plan> plan_of(Gemm const& g);
  void check_itself();

  std::shared_ptr<Library> library_;
  int32_t device_;
  std::string description_;
  DeviceMemory workspace_;
  std::map<Shape, std::shared_ptr<Plan>> plans_;
};

}  // namespace bunting::cuda
