#include "cuda/state_memory.h"

#include "model/state_slots.h"

namespace bunting::cuda {

StateMemory::StateMemory(Model const& model, int32_t slots) : model_(model) {
  if (slots > 0) memory_ = DeviceMemory(state_slots_bytes(model, slots), "state slots");
}

StateLayer StateMemory::layer(int32_t index) const {
  int64_t before = 0;
  for (int32_t layer = 0; layer < index; ++layer) before += model_.has_state(layer);
  return {reinterpret_cast<float*>(memory_.data()) + before * model_.layer_state_numbers(),
          int64_t(model_.state_bytes() / sizeof(float)), model_.conv_state_numbers()};
}

void StateMemory::read(int32_t slot, uint64_t offset, char* bytes, uint64_t size) {
  Stream& stream = copies_.reads();
  stream.copy(bytes, at(slot, offset), size);
  stream.finish(step_deadline_ms(), "has not copied a state to the host");
}

void StateMemory::write(int32_t slot, uint64_t offset, char const* bytes, uint64_t size) {
  Stream& stream = copies_.writes();
  stream.copy(at(slot, offset), bytes, size);
  stream.finish(step_deadline_ms(), "has not copied a state to the device");
}

}  // namespace bunting::cuda
