// dense.h - plain loops for pack, gemm, embed, norm and gate; parameters as in kernels.h, sums in
// double.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting::reference {

// One value of a file: element `index` of src.
double source_value(void const* src, Dtype dtype, int64_t index);

// One value of a packed matrix; 0 <= n < 16 * panels, 0 <= k < kp.
double weight(PackedMatrix const& w, int64_t n, int64_t k);

// Packs all of w.
void pack(PackedMatrix const& w, void const* src, Dtype src_dtype);

// `count` numbers, a multiple of 32, in the integers and the one scale (a value of f16) of q8 or q4.
void round_group(Dtype dtype, float const* values, int8_t* q, double* scale);

// Rows of x [T, ldx], f32 or bf16, as groups.
void quantise(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t tokens);

// y [T, N] becomes what g.y should; scale [T, N] the sum of the terms' absolute values, by which rounding
// errors are measured. g.y holds the values before the GEMM and is not changed.
void gemm(Gemm const& g, double* y, double* scale);

void embed(double* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t tokens);
void norm(double* y, int64_t ldy, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t tokens);
// x + scale * norm(d), both [T, H] without gaps.
void add_normed(double* y, float const* x, float const* d, Norm const& n, float scale, int64_t h,
                int64_t tokens);
void gate(double* y, int64_t ldy, float const* gu, int64_t ldgu, int64_t f, Activation activation,
          int64_t tokens);

}  // namespace bunting::reference
