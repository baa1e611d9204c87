// cublaslt.h - NVIDIA's library for matrix products, where a machine has it: loaded while running, never
// linked and never needed. What of it is used is declared in cublaslt.cpp, the same in versions 12 and 13.
//
// Its sums are in an order of its own, which depends on the number of tokens: with it, results depend on the
// company that a request has. So it is used only if --gemm asks for it.
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
  // Looks for the library, at `path` alone if that is not empty or where the environment's BUNTING_CUBLASLT
  // says, and lets it multiply something small, which must be what our own kernel makes of it. Throws
  // BUNTING_INVALID with the reason if there is no such library.
  explicit CublasLt(std::string const& path);
  ~CublasLt();
  CublasLt(CublasLt const&) = delete;
  CublasLt& operator=(CublasLt const&) = delete;

  // "cuBLASLt 13.1.0 (libcublasLt.so.13)"
  std::string const& description() const { return description_; }

  // Of the device, taken when it is loaded.
  static constexpr size_t kWorkspaceBytes = size_t(32) << 20;

  // As gemm(), of plain weights. For the first product of a shape the library is asked for an algorithm,
  // which takes longer; if it has none, it is gemm().
  void multiply(Stream& stream, Gemm const& g);

 private:
  struct Library;
  struct Plan;
  using Shape = std::tuple<int32_t, int32_t, int32_t, bool>;  // tokens, n, k, whether there is a bias
  std::shared_ptr<Plan> plan_of(Gemm const& g);
  void check_itself();

  std::shared_ptr<Library> library_;
  std::string description_;
  DeviceMemory workspace_;
  std::map<Shape, std::shared_ptr<Plan>> plans_;
};

}  // namespace bunting::cuda
