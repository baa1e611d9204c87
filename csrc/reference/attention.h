// attention.h - plain loops in double for the kernels around keys and values; parameters as in kernels.h.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting::reference {

// Computes Kernels::attention for the rows of items [begin, end) that write outputs, over all their
// positions, into out [T, Hq*Dv] in double. Ignores a.out, a.ldo, a.states and a.scratch.
void attention(Attention const& a, int64_t begin, int64_t end, double* out);

// Computes Kernels::rope_append, but keeps the results in double and writes no pages: q [T, Hq*D], k and v
// [T, Hk*D]. a.qkv is not changed.
void rope_append(RopeAppend const& a, int64_t begin, int64_t end, double* q, double* k, double* v);

// Computes Kernels::latent_append likewise: the queries [T, Hq, nope_size + R], and the keys [T, D].
void latent_append(LatentAppend const& a, int64_t begin, int64_t end, double* q, double* k);

}  // namespace bunting::reference
