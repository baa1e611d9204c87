// model_shape.h - which shapes of models there may be.
#pragma once

#include "include/engine.h"

namespace bunting {

// Throws BUNTING_INVALID with the field and its limits. Every dimension is bounded such that no product of
// three of them leaves 63 bits.
void check_shape(bunting_model_shape const& shape);

}  // namespace bunting
