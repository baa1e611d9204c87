// Tests of the probe's results that hold on any machine.
#include <cstring>

#include "cpu/tests/dense_test.h"
#include "host/cpu_features.h"
#include "include/engine.h"

namespace bunting::test {

TEST(cpu_features_are_plausible) {
  CHECK(best_isa() >= BUNTING_ISA_PORTABLE && best_isa() <= BUNTING_ISA_AMX_BF16, "level %d", best_isa());
  CHECK(usable_cores() >= 1, "%d cores", usable_cores());
  Memory const memory = usable_memory();
  CHECK(memory.total_bytes > (uint64_t{64} << 20), "%llu bytes", (unsigned long long)memory.total_bytes);
  CHECK(memory.free_bytes > 0 && memory.free_bytes <= memory.total_bytes, "%llu of %llu bytes free",
        (unsigned long long)memory.free_bytes, (unsigned long long)memory.total_bytes);
  char name[96], tiny[4];
  processor_name(name, sizeof name);
  CHECK(std::strlen(name) > 0, "no name");
  processor_name(tiny, sizeof tiny);
  CHECK(std::strlen(tiny) <= 3, "the name is longer than its buffer");
}

// The probe agrees with the compiler's, if there is one.
#if defined(__x86_64__)
TEST(cpu_features_agree_with_the_compiler) {
  __builtin_cpu_init();
  bool const avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool const avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  CHECK((best_isa() >= BUNTING_ISA_AVX2) == avx2, "AVX2: level %d", best_isa());
  CHECK((best_isa() >= BUNTING_ISA_AVX512) == avx512, "AVX-512: level %d", best_isa());
  CHECK(has_avx512_vnni() == (avx512 && __builtin_cpu_supports("avx512vnni")), "VPDPBUSD: %d",
        has_avx512_vnni());
  CHECK(is_amd() == bool(__builtin_cpu_is("amd")), "AMD: %d", is_amd());
}
#endif

TEST(dispatch_has_a_table_for_every_usable_level) {
  CHECK(kernels_for(BUNTING_ISA_PORTABLE) != nullptr, "no portable kernels");
  CHECK(kernels_for(BUNTING_ISA_AUTO) == nullptr && kernels_for(BUNTING_ISA_AMX_BF16 + 1) == nullptr,
        "a table for a level that is none");
  for (Kernels const* kernels : dense_levels()) {
    CHECK(kernels->pack && kernels->gemm && kernels->quantise && kernels->embed && kernels->norm &&
              kernels->add_normed && kernels->scale_and_cap && kernels->rope_append && kernels->gate &&
              kernels->attention && kernels->sample && kernels->peak && kernels->read,
          "%s lacks a kernel", kernels->name);
  }
}

}  // namespace bunting::test
