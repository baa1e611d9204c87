// rope_table.h - cosines and sines of rotary positions (RoPE, arXiv:2104.09864), from a model's rope
// parameters.
#pragma once

#include "include/engine.h"

namespace bunting {

// Radians per position of each rotated pair: out [D/2], by shape.rope_kind:
//   plain   theta^(-2i/D)
//   linear  plain / factor
//   llama3  plain for wavelengths below original_context / high_freq_factor, plain / factor for those above
//           original_context / low_freq_factor, a blend linear in original_context / wavelength between the
//           two
void rope_inverse_frequencies(bunting_model_shape const& shape, double* out);

// The tables that RopeAppend wants: cos and sin [context_max, D/2]. Angles are computed in double and rounded
// once.
void rope_tables(bunting_model_shape const& shape, float* cos, float* sin);

}  // namespace bunting
