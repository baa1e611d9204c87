// main.cpp - prints the instruction sets that this machine can use, best first, in the words of
// CMakeLists.txt: "avx512;avx512_vnni;avx2;portable". Compiled before the build is configured
// (tools/native.mjs).
#include <cstdio>

#include "host/cpu_features.h"
#include "include/engine.h"

int main() {
  int32_t const best = bunting::best_isa();
  if (best >= BUNTING_ISA_AMX_BF16) std::printf("amx_bf16;");
  if (best >= BUNTING_ISA_AVX512_BF16) std::printf("avx512_bf16;");
  if (best >= BUNTING_ISA_AVX512) std::printf("avx512;");
  if (bunting::has_avx512_vnni()) std::printf("avx512_vnni;");
  if (best >= BUNTING_ISA_AVX2) std::printf("avx2;");
  if (bunting::has_avx_vnni()) std::printf("avx2_vnni;");
  if (bunting::has_i8mm()) std::printf("portable_i8mm;");
  if (bunting::has_dotprod()) std::printf("portable_dotprod;");
  std::printf("portable\n");
}
