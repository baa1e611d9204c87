// machine.h - what bunting_machine_probe tells.
#pragma once

#include <cstdint>

#include "include/engine.h"

namespace bunting {

// The best level that processor, kernel and library all have.
int32_t usable_isa();

bunting_machine probe_machine();

}  // namespace bunting
