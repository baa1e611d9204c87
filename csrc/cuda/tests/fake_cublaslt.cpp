// fake_cublaslt.cpp - fake of the parts of cuBLASLt that cublaslt.cpp uses, written from its documentation,
// in plain loops on the emulator's memory. It rejects everything that the documentation does not allow.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

namespace {

constexpr int kOk = 0, kInvalid = 7;
constexpr int kReal32F = 0, kReal16BF = 14, kCompute32F = 68;

struct Desc {
  int32_t transposed_a = 0, transposed_b = 0, epilogue = 1;
  float const* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  // Returns an element in column-major order.
  float at(void const* data, uint64_t row, uint64_t col) const {
    uint64_t const i = col * uint64_t(ld) + row;
    if (type == kReal32F) return static_cast<float const*>(data)[i];
    uint32_t const bits = uint32_t(static_cast<uint16_t const*>(data)[i]) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
};

template <class T>
int set(T& field, void const* value, size_t bytes) {
  if (bytes != sizeof field) return kInvalid;
  std::memcpy(&field, value, bytes);
  return kOk;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

// 1: wrong results; 2: no algorithm; 3: starting hangs; 4: closing hangs
int fake_cublaslt_fault = 0;

static void hang_while(int fault) {
  while (__atomic_load_n(&fake_cublaslt_fault, __ATOMIC_RELAXED) == fault)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int cublasLtCreate(void** handle) {
  hang_while(3);
  *handle = &fake_cublaslt_fault;
  return kOk;
}
int cublasLtDestroy(void*) {
  hang_while(4);
  return kOk;
}
size_t cublasLtGetVersion() {
  return 130102;
}
char const* cublasLtGetStatusString(int) {
  return "CUBLAS_STATUS_INVALID_VALUE";
}

int cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if (compute != kCompute32F || scale != kReal32F) return kInvalid;
  *desc = new Desc;
  return kOk;
}
int cublasLtMatmulDescDestroy(void* desc) {
  delete static_cast<Desc*>(desc);
  return kOk;
}
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, void const* value, size_t bytes) {
  Desc& d = *static_cast<Desc*>(desc);
  switch (attribute) {
    case 3:
      return set(d.transposed_a, value, bytes);
    case 4:
      return set(d.transposed_b, value, bytes);
    case 7:
      return set(d.epilogue, value, bytes);
    case 8:
      return set(d.bias, value, bytes);
    default:
      return kInvalid;
  }
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if ((type != kReal32F && type != kReal16BF) || ld < int64_t(rows)) return kInvalid;
  *layout = new Layout{type, rows, cols, ld};
  return kOk;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return kOk;
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new uint64_t;
  return kOk;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<uint64_t*>(preference);
  return kOk;
}
int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, void const*, size_t bytes) {
  return (attribute == 1 && bytes == 8) || (attribute >= 5 && attribute <= 8 && bytes == 4) ? kOk : kInvalid;
}

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, Heuristic* result,
                                   int* found) {
  *found = fake_cublaslt_fault == 2 ? 0 : 1;
  *result = {{17}, 0, 0, 1, {}};
  return kOk;
}

int cublasLtMatmul(void*, void* desc, void const* alpha, void const* a, void* a_layout, void const* b,
                   void* b_layout, void const* beta, void const*, void*, void* d, void* d_layout,
                   void const* algorithm, void*, size_t, void*) {
  Desc const& how = *static_cast<Desc*>(desc);
  Layout const &la = *static_cast<Layout*>(a_layout), &lb = *static_cast<Layout*>(b_layout),
               &ld = *static_cast<Layout*>(d_layout);
  uint64_t const depth = how.transposed_a ? la.rows : la.cols, n = how.transposed_a ? la.cols : la.rows;
  if (depth != (how.transposed_b ? lb.cols : lb.rows) || n != ld.rows || ld.type != kReal32F ||
      ld.cols != (how.transposed_b ? lb.rows : lb.cols) || *static_cast<float const*>(beta) != 0 ||
      *static_cast<uint64_t const*>(algorithm) != 17)
    return kInvalid;
  for (uint64_t row = 0; row < ld.rows; ++row)
    for (uint64_t col = 0; col < ld.cols; ++col) {
      float sum = 0;
      for (uint64_t i = 0; i < depth; ++i)
        sum += (how.transposed_a ? la.at(a, i, row) : la.at(a, row, i)) *
               (how.transposed_b ? lb.at(b, col, i) : lb.at(b, i, col));
      sum = sum * *static_cast<float const*>(alpha) + (how.epilogue == 4 ? how.bias[row] : 0);
      static_cast<float*>(d)[col * uint64_t(ld.ld) + row] = sum + (fake_cublaslt_fault == 1 ? 1 : 0);
    }
  return kOk;
}

#pragma GCC visibility pop
}
