// dispatch.cpp - which tables this library contains.
#include "include/engine.h"
#include "kernels/kernels.h"

namespace bunting {

namespace portable {
extern Kernels const kernels;
}
namespace avx2 {
extern Kernels const kernels;
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

Kernels const* kernels_for(int32_t isa) {
  switch (isa) {
    case BUNTING_ISA_PORTABLE:
      return &portable::kernels;
#ifdef BUNTING_HAS_AVX2
    case BUNTING_ISA_AVX2:
      return &avx2::kernels;
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
