// attention_kinds.h - kinds of attention plans that the steps of a model need.
#pragma once

#include <vector>

#include "cuda/attention_plan.h"
#include "model/model.h"

namespace bunting::cuda {

// Attention shapes of a model, one plan each. Layers with the same heads share a plan, except that layers
// with and without a sliding window have separate plans. The plan of windowed layers is that of the widest
// window; narrower layers mask the extra positions.
struct AttentionKinds {
  std::vector<AttentionShape> shapes;
  std::vector<size_t> of_layer;  // index into shapes; 0 for a layer without attention

  AttentionKinds(Model const& model, int32_t blocks);

  // Largest numbers of floats and rows of partial results in any of the plans.
  size_t partial_floats() const;
  size_t partial_rows() const;
};

}  // namespace bunting::cuda
