// dense.h - plain loops for pack, gemm, embed, norm and gate; parameters as in kernels.h, sums in double.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting::reference {

// Returns element `index` of a file's src.
double source_value(void const* src, Dtype dtype, int64_t index);

// Returns one value of a packed matrix; 0 <= n < 16 * panels, 0 <= k < kp.
double weight(PackedMatrix const& w, int64_t n, int64_t k);

// Packs all of w.
void pack(PackedMatrix const& w, void const* src, Dtype src_dtype);

// Rounds a group's numbers, a multiple of 32, to the integers and the scale (an f16 value) of q8 or q4.
void round_group(Dtype dtype, float const* values, int8_t* q, double* scale);

// Rounds rows of x [T, ldx], f32 or bf16, to groups.
void quantise(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t tokens);

// Computes the expected g.y into y [T, N], and the sum of the terms' magnitudes into scale [T, N], for error
// bounds. g.y has the values before the GEMM and is not changed.
void gemm(Gemm const& g, double* y, double* scale);

void embed(double* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t tokens);
void norm(double* y, int64_t ldy, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t tokens);
// Computes x + scale * norm(d), both [T, H] without gaps.
void add_normed(double* y, float const* x, float const* d, Norm const& n, float scale, int64_t h,
                int64_t tokens);
// Computes the activation xielu (engine.h) of one number.
double xielu(double x, Xielu const& of);
void gate(double* y, int64_t ldy, float const* gu, int64_t ldgu, int64_t f, Activation activation,
          int64_t tokens);

}  // namespace bunting::reference
