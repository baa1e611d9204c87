// dispatch.cpp - which tables this library contains.
//
// A processor with AVX2 and VPDPBUSD, but without AVX-512, multiplies grouped weights with the kernel
// avx2_vnni: the level is the same, and its products of integers are as exact.
#include "cpu/kernels/kernels.h"
#include "host/cpu_features.h"
#include "include/engine.h"

namespace bunting {

namespace portable {
extern Kernels const kernels;
}
namespace avx2 {
extern Kernels const kernels;
}
namespace avx2_vnni {
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
}
namespace avx512 {
extern Kernels const kernels;
}
namespace avx512_bf16 {
extern Kernels const kernels;
}
namespace amx_bf16 {
extern Kernels const kernels;
}

#ifdef BUNTING_HAS_AVX2
static Kernels const* avx2_kernels() {
#ifdef BUNTING_HAS_AVX2_VNNI
  static Kernels const with_vnni = [] {
    Kernels kernels = avx2::kernels;
    kernels.gemm = avx2_vnni::gemm;
    return kernels;
  }();
  if (has_avx_vnni()) return &with_vnni;
#endif
  return &avx2::kernels;
}
#endif

Kernels const* kernels_for(int32_t isa) {
  switch (isa) {
    case BUNTING_ISA_PORTABLE:
      return &portable::kernels;
#ifdef BUNTING_HAS_AVX2
    case BUNTING_ISA_AVX2:
      return avx2_kernels();
#endif
#ifdef BUNTING_HAS_AVX512
    case BUNTING_ISA_AVX512:
      return &avx512::kernels;
#endif
#ifdef BUNTING_HAS_AVX512_BF16
    case BUNTING_ISA_AVX512_BF16:
      return &avx512_bf16::kernels;
#endif
#ifdef BUNTING_HAS_AMX_BF16
    case BUNTING_ISA_AMX_BF16:
      return &amx_bf16::kernels;
#endif
    default:
      return nullptr;
  }
}

}  // namespace bunting
