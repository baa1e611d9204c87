// model_shape.h - validation of model shapes.
#pragma once

#include "include/engine.h"

namespace bunting {

// Throws BUNTING_INVALID with the field and its limits. The bounds keep any product of three dimensions below
// 2^63.
void check_shape(bunting_model_shape const& shape);

// True for the kinds of MLPs (BUNTING_MLP_*) with experts.
bool mixes_experts(int32_t mlp);
// Return true for kinds of mixers with attention, and with a recurrent state.
bool mixes_attention(int32_t mixer);
bool has_state(int32_t mixer);

}  // namespace bunting
