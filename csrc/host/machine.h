// machine.h - the machine description of bunting_machine_probe.
#pragma once

#include <cstdint>

#include "include/engine.h"

namespace bunting {

// Returns the best level that the processor, the operating system and the library all have.
int32_t usable_isa();

bunting_machine probe_machine();

}  // namespace bunting
