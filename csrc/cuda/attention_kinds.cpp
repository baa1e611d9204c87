#include "cuda/attention_kinds.h"

#include <algorithm>

namespace bunting::cuda {

AttentionKinds::AttentionKinds(Model const& model, int32_t blocks) {
  for (int32_t i = 0; i < model.shape().layers; ++i) {
    if (!model.has_attention(i) || model.is_latent(i)) {
      of_layer.push_back(0);
      continue;
    }
    bunting_layer_shape const& has = model.layer_shape(i);
    auto const at = std::find_if(shapes.begin(), shapes.end(), [&](AttentionShape const& known) {
      return known.kv_heads == has.kv_heads && known.head_size == has.head_size &&
             (known.sliding_window > 0) == (has.sliding_window > 0) &&
             known.is_chunked == (has.chunked != 0) &&
             (!known.is_chunked || known.sliding_window == has.sliding_window);
    });
    of_layer.push_back(size_t(at - shapes.begin()));
    if (at == shapes.end())
      shapes.push_back({model.shape().query_heads, has.kv_heads, has.sliding_window, blocks, has.head_size,
                        has.chunked != 0});
    else
      at->sliding_window = std::max(at->sliding_window, has.sliding_window);
  }
}

size_t AttentionKinds::partial_floats() const {
  size_t most = 0;
  for (AttentionShape const& shape : shapes)
    most = std::max(most, size_t(attention_partial_rows_max(shape)) * size_t(shape.head_size));
  return most;
}

size_t AttentionKinds::partial_rows() const {
  size_t most = 0;
  for (AttentionShape const& shape : shapes) most = std::max(most, size_t(attention_partial_rows_max(shape)));
  return most;
}

}  // namespace bunting::cuda
