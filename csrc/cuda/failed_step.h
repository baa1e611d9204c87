// failed_step.h - keeps the block of a step that lost its device, so that it can run again on the emulator.
#pragma once

#include <cstdint>
#include <string>

namespace bunting::cuda {

// Writes the block (engine.h) to a new file in the system's folder for temporary files, readable by its
// owner. Returns the path, or an empty text if that fails.
std::string keep_step_block(void const* block, uint64_t bytes) noexcept;

}  // namespace bunting::cuda
