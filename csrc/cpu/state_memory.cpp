#include "cpu/state_memory.h"

#include "boundary/error.h"

namespace bunting {
namespace {

size_t slots_bytes(Model const& model, int32_t slots) {
  size_t bytes;
  if (__builtin_mul_overflow(size_t(model.state_bytes()), size_t(slots), &bytes))
    fail(BUNTING_NO_MEMORY, "%d state slots of %llu bytes cannot be addressed", slots,
         (unsigned long long)model.state_bytes());
  return bytes;
}

}  // namespace

StateMemory::StateMemory(Model const& model, int32_t slots)
    : model_(model), region_(slots_bytes(model, slots), "state slots") {}

StateLayer StateMemory::layer(int32_t index) const {
  int64_t before = 0;
  for (int32_t layer = 0; layer < index; layer++) before += model_.has_state(layer);
  return {reinterpret_cast<float*>(region_.data()) + before * model_.layer_state_numbers(),
          int64_t(model_.state_bytes() / sizeof(float)), model_.conv_state_numbers()};
}

}  // namespace bunting
