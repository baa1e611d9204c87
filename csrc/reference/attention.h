// attention.h - plain loops in double for the kernels around keys and values; parameters as in kernels.h.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting::reference {

// Like Kernels::attention for the rows of those of items [begin, end) that write outputs, over all their
// positions, but out is [T, Hq*D] double; a.out, a.ldo, a.states and a.scratch are not used.
void attention(Attention const& a, int64_t begin, int64_t end, double* out);

// Like Kernels::rope_append, but the results stay in double and nothing is put into pages: q [T, Hq*D], k and
// v [T, Hk*D]. a.qkv is not changed.
void rope_append(RopeAppend const& a, int64_t begin, int64_t end, double* q, double* k, double* v);

}  // namespace bunting::reference
