#include "host/machine.h"

#include <algorithm>

#include "cpu/kernels/kernels.h"
#include "host/cpu_features.h"

namespace bunting {

namespace {

int32_t built_isa() {
  int32_t isa = BUNTING_ISA_AMX_BF16;
  while (isa > BUNTING_ISA_PORTABLE && !kernels_for(isa)) isa--;
  return isa;
}

}  // namespace

int32_t usable_isa() {
  int32_t isa = std::min(best_isa(), built_isa());
  while (isa > BUNTING_ISA_PORTABLE && !kernels_for(isa))
    isa--;  // the build may lack a level between two others
  return isa;
}

bunting_machine probe_machine() {
  bunting_machine machine{};
  Memory const memory = usable_memory();
  machine.isa_best = best_isa();
  machine.isa_built = built_isa();
  machine.cores = usable_cores();
  machine.memory_bytes = memory.total_bytes;
  machine.memory_free_bytes = memory.free_bytes;
  processor_name(machine.processor, sizeof machine.processor);
  return machine;
}

}  // namespace bunting
