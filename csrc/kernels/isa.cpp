// isa.cpp - the table of one instruction set; compiled once per level with BUNTING_ISA naming it.
#include "kernels/kernels.h"

#define BUNTING_STRING_(x) #x
#define BUNTING_STRING(x) BUNTING_STRING_(x)

namespace bunting::BUNTING_ISA {

void pack(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end);
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
void embed(float* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t begin, int64_t end);
void rmsnorm(void* y, Dtype out, int64_t ldy, float const* x, int64_t ldx, float const* w, int64_t h,
             float eps, int64_t begin, int64_t end);
void swiglu(void* y, Dtype out, int64_t ldy, float const* gu, int64_t ldgu, int64_t f, int64_t begin,
            int64_t end);

extern Kernels const kernels;
Kernels const kernels = {
    .name = BUNTING_STRING(BUNTING_ISA),
    .pack = pack,
    .gemm = gemm,
    .embed = embed,
    .rmsnorm = rmsnorm,
    .rope_append = nullptr,
    .swiglu = swiglu,
    .attention = nullptr,
    .sample = nullptr,
};

}  // namespace bunting::BUNTING_ISA
