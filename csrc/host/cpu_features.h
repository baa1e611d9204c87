// cpu_features.h - what this machine offers: instruction sets, cores and memory, as far as this process may
// use them.
#pragma once

#include <cstdint>

namespace bunting {

// The best of engine.h's BUNTING_ISA_* that processor and kernel allow. The first call asks the kernel for
// the use of AMX tiles, once for the process, where the processor has them.
int32_t best_isa();

// Whether it has VPDPBUSD on AVX2's registers, and on those of AVX-512.
bool has_avx_vnni();
bool has_avx512_vnni();

// Cores of the affinity mask, fewer if a control group limits processor time (rounded up); >= 1.
int32_t usable_cores();

// Physical memory and what is available without swapping, both lowered to the control groups' limits.
struct Memory {
  uint64_t total_bytes = 0, free_bytes = 0;
};
Memory usable_memory();

// The brand string, NUL-terminated, at most `size` bytes; "unknown processor" where there is none.
void processor_name(char* out, int32_t size);

}  // namespace bunting
