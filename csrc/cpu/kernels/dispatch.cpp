// dispatch.cpp - selects the kernel table for an instruction set among those in this library.
//
// The levels AVX2 and AVX-512 have a second table, whose grouped GEMM uses VPDPBUSD, for processors that have
// the instruction. The portable level has two more on ARM, with SDOT, and with USMMLA. Alder Lake has
// AVX2 and VPDPBUSD. Cascade Lake to Rocket Lake have AVX-512 and VPDPBUSD, but not BF16. Integer products
// are exact in all tables.
#include "cpu/kernels/kernels.h"
#include "host/cpu_features.h"
#include "include/engine.h"

namespace bunting {

namespace portable {
extern Kernels const kernels;
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace portable
namespace portable_dotprod {
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace portable_dotprod
namespace portable_i8mm {
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace portable_i8mm
namespace avx2 {
extern Kernels const kernels;
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace avx2
namespace avx2_vnni {
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace avx2_vnni
namespace avx512 {
extern Kernels const kernels;
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace avx512
namespace avx512_vnni {
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
}  // namespace avx512_vnni
namespace avx512_bf16 {
extern Kernels const kernels;
}
namespace amx_bf16 {
extern Kernels const kernels;
}

#ifdef BUNTING_ONLY_VARIANT
// A library for one machine with VPDPBUSD, SDOT or USMMLA has no other GEMM for these tables.
#ifdef BUNTING_HAS_PORTABLE_DOTPROD
void portable::gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  portable_dotprod::gemm(g, panel_begin, panel_end);
}
double portable::peak(Dtype dtype) {
  return portable_dotprod::peak(dtype);
}
#endif
#ifdef BUNTING_HAS_PORTABLE_I8MM
void portable::gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  portable_i8mm::gemm(g, panel_begin, panel_end);
}
double portable::peak(Dtype dtype) {
  return portable_i8mm::peak(dtype);
}
#endif
#ifdef BUNTING_HAS_AVX2_VNNI
void avx2::gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  avx2_vnni::gemm(g, panel_begin, panel_end);
}
double avx2::peak(Dtype dtype) {
  return avx2_vnni::peak(dtype);
}
#endif
#ifdef BUNTING_HAS_AVX512_VNNI
void avx512::gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  avx512_vnni::gemm(g, panel_begin, panel_end);
}
double avx512::peak(Dtype dtype) {
  return avx512_vnni::peak(dtype);
}
#endif
#endif

[[maybe_unused]] static Kernels with_gemm(Kernels kernels, decltype(Kernels::gemm) gemm,
                                          decltype(Kernels::peak) peak) {
  kernels.gemm = gemm;
  kernels.peak = peak;
  return kernels;
}

#ifdef BUNTING_HAS_PORTABLE
static Kernels const* portable_kernels() {
#ifdef BUNTING_HAS_PORTABLE_I8MM
  static Kernels const with_i8mm = with_gemm(portable::kernels, portable_i8mm::gemm, portable_i8mm::peak);
  if (has_i8mm()) return &with_i8mm;
#endif
#ifdef BUNTING_HAS_PORTABLE_DOTPROD
  static Kernels const with_dotprod =
      with_gemm(portable::kernels, portable_dotprod::gemm, portable_dotprod::peak);
  if (has_dotprod()) return &with_dotprod;
#endif
  return &portable::kernels;
}
#endif

#ifdef BUNTING_HAS_AVX2
static Kernels const* avx2_kernels() {
#ifdef BUNTING_HAS_AVX2_VNNI
  static Kernels const with_vnni = with_gemm(avx2::kernels, avx2_vnni::gemm, avx2_vnni::peak);
  if (has_avx_vnni()) return &with_vnni;
#endif
  return &avx2::kernels;
}
#endif

#ifdef BUNTING_HAS_AVX512
static Kernels const* avx512_kernels() {
#ifdef BUNTING_HAS_AVX512_VNNI
  static Kernels const with_vnni = with_gemm(avx512::kernels, avx512_vnni::gemm, avx512_vnni::peak);
  if (has_avx512_vnni()) return &with_vnni;
#endif
  return &avx512::kernels;
}
#endif

Kernels const* kernels_for(int32_t isa) {
  switch (isa) {
#ifdef BUNTING_HAS_PORTABLE
    case BUNTING_ISA_PORTABLE:
      return portable_kernels();
#endif
#ifdef BUNTING_HAS_AVX2
    case BUNTING_ISA_AVX2:
      return avx2_kernels();
#endif
#ifdef BUNTING_HAS_AVX512
    case BUNTING_ISA_AVX512:
      return avx512_kernels();
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
