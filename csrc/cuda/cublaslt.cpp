#include "cuda/cublaslt.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "boundary/error.h"
#include "cuda/device_use.h"

namespace bunting::cuda {
namespace {

constexpr size_t kPlansMax = 4096;
constexpr double kTestDeadlineMs = 60'000;

// Values of cuBLASLt's enumerations.
constexpr int kCompute32F = 68, kReal32F = 0, kReal16BF = 14;
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8;
constexpr int kMaxWorkspaceBytes = 1, kMinAlignments[] = {5, 6, 7, 8};
constexpr int32_t kAsItIs = 0, kTransposed = 1, kAddBias = 4;
constexpr uint32_t kAlignment = 16;

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

}  // namespace

struct CublasLt::Library {
  void* handle = nullptr;  // from dlopen
  std::string name;
  void* context = nullptr;

  int (*Create)(void**) = nullptr;
  int (*Destroy)(void*) = nullptr;
  size_t (*GetVersion)() = nullptr;
  char const* (*GetStatusString)(int) = nullptr;
  int (*MatmulDescCreate)(void**, int compute, int scale) = nullptr;
  int (*MatmulDescDestroy)(void*) = nullptr;
  int (*MatmulDescSetAttribute)(void*, int, void const*, size_t) = nullptr;
  int (*MatrixLayoutCreate)(void**, int type, uint64_t rows, uint64_t cols, int64_t ld) = nullptr;
  int (*MatrixLayoutDestroy)(void*) = nullptr;
  int (*MatmulPreferenceCreate)(void**) = nullptr;
  int (*MatmulPreferenceDestroy)(void*) = nullptr;
  int (*MatmulPreferenceSetAttribute)(void*, int, void const*, size_t) = nullptr;
  int (*MatmulAlgoGetHeuristic)(void* context, void* desc, void* a, void* b, void* c, void* d,
                                void* preference, int wanted, Heuristic*, int* found) = nullptr;
  int (*Matmul)(void* context, void* desc, void const* alpha, void const* a, void* a_layout, void const* b,
                void* b_layout, void const* beta, void const* c, void* c_layout, void* d, void* d_layout,
                void const* algorithm, void* workspace, size_t workspace_bytes, void* stream) = nullptr;

  explicit Library(std::string const& path) {
    find(path);
    resolve("cublasLtCreate", Create);
    resolve("cublasLtDestroy", Destroy);
    resolve("cublasLtGetVersion", GetVersion);
    resolve("cublasLtGetStatusString", GetStatusString);
    resolve("cublasLtMatmulDescCreate", MatmulDescCreate);
    resolve("cublasLtMatmulDescDestroy", MatmulDescDestroy);
    resolve("cublasLtMatmulDescSetAttribute", MatmulDescSetAttribute);
    resolve("cublasLtMatrixLayoutCreate", MatrixLayoutCreate);
    resolve("cublasLtMatrixLayoutDestroy", MatrixLayoutDestroy);
    resolve("cublasLtMatmulPreferenceCreate", MatmulPreferenceCreate);
    resolve("cublasLtMatmulPreferenceDestroy", MatmulPreferenceDestroy);
    resolve("cublasLtMatmulPreferenceSetAttribute", MatmulPreferenceSetAttribute);
    resolve("cublasLtMatmulAlgoGetHeuristic", MatmulAlgoGetHeuristic);
    resolve("cublasLtMatmul", Matmul);
  }
  Library(Library const&) = delete;
  Library& operator=(Library const&) = delete;

  void check(int status, char const* what) const {
    if (status != 0) fail(BUNTING_INVALID, "%s: %s fails: %s", name.c_str(), what, GetStatusString(status));
  }

 private:
  void find(std::string path) {
    if (char const* const asked = std::getenv("BUNTING_CUBLASLT"); asked && path.empty()) path = asked;
    std::vector<std::string> candidates;
    if (!path.empty()) {
      candidates = {path};
    } else {
      std::vector<std::string> folders = {"", "/usr/local/cuda/lib64/",
                                          "/usr/local/cuda/targets/x86_64-linux/lib/"};
      if (char const* const home = std::getenv("CUDA_HOME")) folders.push_back(std::string(home) + "/lib64/");
      for (std::string const& folder : folders)
        for (char const* const file : {"libcublasLt.so.13", "libcublasLt.so.12"})
          candidates.push_back(folder + file);
    }
    for (std::string const& candidate : candidates) {
      handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
      name = candidate;
      if (handle) return;
    }
    char const* const why = dlerror();
    fail(BUNTING_INVALID, "there is no cuBLASLt: %s",
         path.empty() || !why ? "no libcublasLt.so.13 or .12 is found" : why);
  }

  template <class Function>
  void resolve(char const* symbol, Function& function) {
    void* const found = dlsym(handle, symbol);
    if (!found) fail(BUNTING_INVALID, "%s has no %s", name.c_str(), symbol);
    std::memcpy(&function, &found, sizeof function);
  }
};

// Product of one shape. In column-major terms, y^T is the transposed W^T times x^T.
struct CublasLt::Plan {
  std::shared_ptr<Library const> owner;
  Library const& library;
  void *desc = nullptr, *w = nullptr, *x = nullptr, *y = nullptr;
  Heuristic best{};
  bool has_algorithm = false;

  Plan(std::shared_ptr<Library const> loaded, Gemm const& g) : owner(std::move(loaded)), library(*owner) {
    Library const& lt = library;
    lt.check(lt.MatmulDescCreate(&desc, kCompute32F, kReal32F), "describing a product");
    set(kTransA, kTransposed);
    set(kTransB, kAsItIs);
    if (g.bias) set(kEpilogue, kAddBias);
    if (g.bias) set(kBiasPointer, g.bias);
    lt.check(lt.MatrixLayoutCreate(&w, kReal16BF, uint64_t(g.k), uint64_t(g.n), g.k), "describing weights");
    lt.check(lt.MatrixLayoutCreate(&x, kReal16BF, uint64_t(g.k), uint64_t(g.tokens), g.k),
             "describing tokens");
    lt.check(lt.MatrixLayoutCreate(&y, kReal32F, uint64_t(g.n), uint64_t(g.tokens), g.n),
             "describing results");
    void* preference = nullptr;
    lt.check(lt.MatmulPreferenceCreate(&preference), "stating a preference");
    size_t const workspace = CublasLt::kWorkspaceBytes;
    int status =
        lt.MatmulPreferenceSetAttribute(preference, kMaxWorkspaceBytes, &workspace, sizeof workspace);
    for (int attribute : kMinAlignments)
      if (status == 0)
        status = lt.MatmulPreferenceSetAttribute(preference, attribute, &kAlignment, sizeof kAlignment);
    int found = 0;
    if (status == 0)
      status = lt.MatmulAlgoGetHeuristic(lt.context, desc, w, x, y, y, preference, 1, &best, &found);
    lt.MatmulPreferenceDestroy(preference);
    has_algorithm = status == 0 && found > 0 && best.status == 0;
  }
  ~Plan() {
    for (void* layout : {w, x, y})
      if (layout) library.MatrixLayoutDestroy(layout);
    if (desc) library.MatmulDescDestroy(desc);
  }
  Plan(Plan const&) = delete;
  Plan& operator=(Plan const&) = delete;

  template <class T>
  void set(int attribute, T value) {
    library.check(library.MatmulDescSetAttribute(desc, attribute, &value, sizeof value),
                  "describing a product");
  }
};

CublasLt::CublasLt(std::shared_ptr<Library> library)
    : library_(std::move(library)), device_(current_device()), workspace_(kWorkspaceBytes, "cuBLASLt") {
  struct Started {
    void* context = nullptr;
    int status = 0;
  };
  auto const started = std::make_shared<Started>();
  bounded_or_throw(device_, "starting cuBLASLt", driver::deadlines().open_ms, "",
                   [started, create = library_->Create] {
                     started->status = create(&started->context);
                     return driver::Outcome();
                   });
  library_->check(started->status, "starting");
  library_->context = started->context;
}

CublasLt::CublasLt(std::string const& path) : CublasLt(std::make_shared<Library>(path)) {
  size_t const version = library_->GetVersion();  // 130100 is 13.1.0
  description_ = "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
                 "." + std::to_string(version % 100) + " (" + library_->name + ")";
  check_itself();
}

// The library stays loaded, because other code may use it.
CublasLt::~CublasLt() {
  if (is_lost(device_)) return;
  bounded_or_lost(device_, "closing cuBLASLt", [destroy = library_->Destroy, context = library_->context] {
    destroy(context);
    return driver::Outcome();
  });
}

std::shared_ptr<CublasLt::Plan> CublasLt::plan_of(Gemm const& g) {
  if (plans_.size() >= kPlansMax) plans_.clear();
  std::shared_ptr<Plan>& plan = plans_[{g.tokens, g.n, g.k, g.bias != nullptr}];
  if (!plan) plan = std::make_shared<Plan>(library_, g);
  return plan;
}

void CublasLt::multiply(Stream& stream, Gemm const& g) {
  if (g.tokens <= 0) return;
  std::shared_ptr<Plan> const plan = plan_of(g);
  if (!plan->has_algorithm) return gemm(stream, g);
  stream.call([plan, g, workspace = workspace_.data()](void* native) -> std::string {
    Library const& lt = plan->library;
    float const one = 1, zero = 0;
    int status = g.bias ? lt.MatmulDescSetAttribute(plan->desc, kBiasPointer, &g.bias, sizeof g.bias) : 0;
    if (status == 0)
      status = lt.Matmul(lt.context, plan->desc, &one, g.w.data, plan->w, g.x, plan->x, &zero, g.y, plan->y,
                         g.y, plan->y, plan->best.algorithm, workspace, kWorkspaceBytes, native);
    return status == 0 ? "" : lt.name + " cannot multiply: " + lt.GetStatusString(status);
  });
}

void CublasLt::check_itself() {
  constexpr int32_t kTokens = 72, kN = 64, kK = 128;
  constexpr size_t kX = size_t(kTokens) * kK, kW = size_t(kN) * kK, kY = size_t(kTokens) * kN;
  // Bound for sums of 128 products below 4 in any order; a wrong layout of x or w exceeds it by far.
  constexpr float kErrorMax = 0.01f;
  constexpr size_t kBytes = (kX + kW) * sizeof(bf16) + (kN + 2 * kY) * sizeof(float);
  MappedMemory host(kBytes, "the check of cuBLASLt");
  DeviceMemory device(kBytes, "the check of cuBLASLt");
  // Any numbers work if they are not symmetric: bf16 of magnitudes from 1 to 2.
  bf16* const numbers = reinterpret_cast<bf16*>(host.data());
  for (size_t i = 0; i < kX + kW; ++i) numbers[i] = bf16(0x3f80 + i * 37 % 127 + (i * 11 % 3 == 0) * 0x8000);
  float* const bias = reinterpret_cast<float*>(numbers + kX + kW);
  for (int32_t i = 0; i < kN; ++i) bias[i] = float(i);

  bf16* const x = reinterpret_cast<bf16*>(device.data());
  float* const device_bias = reinterpret_cast<float*>(x + kX + kW);
  Gemm const ours{x, x + kX, device_bias, device_bias + kN, kTokens, kN, kK};
  Gemm theirs = ours;
  theirs.y = ours.y + kY;
  Stream stream;
  stream.copy(device.data(), host.data(), kBytes);
  stream.finish(kTestDeadlineMs, "has not taken numbers to multiply");
  gemm_many(stream, ours);
  multiply(stream, theirs);
  stream.copy(host.data(), device.data(), kBytes);
  stream.finish(kTestDeadlineMs, "has not multiplied with cuBLASLt");
  float const* const y = bias + kN;
  for (size_t i = 0; i < kY; ++i)
    if (!(std::fabs(y[i] - y[kY + i]) <= kErrorMax))
      fail(BUNTING_INVALID, "%s is not used: it makes %g of what is %g", description_.c_str(),
           double(y[kY + i]), double(y[i]));
}

}  // namespace bunting::cuda
