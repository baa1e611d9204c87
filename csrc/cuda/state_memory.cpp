#include "cuda/state_memory.h"

#include <algorithm>

#include "model/state_slots.h"

namespace bunting::cuda {

StateMemory::StateMemory(Model const& model, int32_t slots) : model_(model), copies_(slots) {
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
  copies_.settle(copies_.before_writing(slot));
  Stream& stream = copies_.writes();
  stream.copy(at(slot, offset), bytes, size);
  stream.finish(step_deadline_ms(), "has not copied a state to the device");
}

void StateMemory::send(int32_t slot, uint64_t offset, char* bytes, uint64_t size) {
  copies_.reads().copy(bytes, at(slot, offset), size);
  copies_.sent(&slot, 1);
}

void StateMemory::settle(StepPlan const& plan) {
  if (model_.state_bytes() == 0) return;
  int64_t last = 0;
  for (int32_t i = 0; i < plan.chunks; ++i) {
    ChunkState const& state = plan.state[size_t(i)];
    last = std::max(last, copies_.before_writing(state.slot));
    for (int32_t save = 0; save < state.save_count; ++save)
      last = std::max(last, copies_.before_writing(state.saves[save].slot));
  }
  copies_.settle(last);
}

}  // namespace bunting::cuda
