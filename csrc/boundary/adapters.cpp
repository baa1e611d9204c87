// adapters.cpp - the C boundary of include/adapters.h, but for the engine's slots (engine.cpp).
#include "include/adapters.h"

#include <memory>

#include "boundary/guarded.h"
#include "boundary/handles.h"

using bunting::fail;
using bunting::guarded;
using bunting::require;

extern "C" {

bunting_status bunting_adapter_open(bunting_model const* model, bunting_adapter** out) {
  return guarded([&] {
    require(out, "out");
    if (!model->sealed()) fail(BUNTING_INVALID, "the model is not sealed");
    *out = std::make_unique<bunting_adapter>(*model).release();
  });
}

bunting_status bunting_adapter_load(bunting_adapter* adapter, int32_t tensor, int32_t layer, int32_t rank,
                                    float scale, bunting_factor const* a, bunting_factor const* b) {
  return guarded([&] {
    require(a, "a");
    require(b, "b");
    require(a->path, "the path of a");
    require(b->path, "the path of b");
    adapter->load(tensor, layer, rank, scale, *a, *b);
  });
}

bunting_status bunting_adapter_seal(bunting_adapter* adapter, uint64_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    adapter->seal();
    *bytes = adapter->bytes();
  });
}

bunting_status bunting_adapter_close(bunting_adapter* adapter) {
  return guarded([&] { delete adapter; });
}

}  // extern "C"
