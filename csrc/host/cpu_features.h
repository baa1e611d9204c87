// cpu_features.h - instruction sets, cores and memory of this machine, as far as this process may use them.
#pragma once

#include <cstdint>

namespace bunting {

// Returns the best BUNTING_ISA_* that the processor and the operating system allow. The first call asks the
// system for AMX tiles, once for the process, if the processor has them.
int32_t best_isa();

// True if the processor has VPDPBUSD on AVX2 registers, and on AVX-512 registers.
bool has_avx_vnni();
bool has_avx512_vnni();
// True if an ARM processor has SDOT.
bool has_dotprod();
// True if an ARM processor has USDOT and USMMLA.
bool has_i8mm();
// True for processors of AMD.
bool is_amd();

// Returns the cores of the affinity mask, or fewer if a control group limits processor time (rounded up); >=
// 1.
int32_t usable_cores();

// Physical memory, and memory available without swapping, both lowered to the control groups' limits.
struct Memory {
  uint64_t total_bytes = 0, free_bytes = 0;
};
Memory usable_memory();

// Writes the brand string, NUL-terminated, at most `size` bytes; "unknown processor" if there is none.
void processor_name(char* out, int32_t size);

}  // namespace bunting
