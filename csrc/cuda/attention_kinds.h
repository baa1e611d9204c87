// attention_kinds.h - which plans of attention the steps of a model need.
#pragma once

#include <vector>

#include "cuda/attention_plan.h"
#include "model/model.h"

namespace bunting::cuda {

// Layers with the same heads share a plan, but those without a window one and those with one another: that of
// the widest, of which narrower ones mask what it covers beyond.
struct AttentionKinds {
  std::vector<AttentionShape> shapes;
  std::vector<size_t> of_layer;  // index into shapes

  AttentionKinds(Model const& model, int32_t blocks);

  // Floats of partial results, and their rows, that any of the plans takes at most.
  size_t partial_floats() const;
  size_t partial_rows() const;
};

}  // namespace bunting::cuda
