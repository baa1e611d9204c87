// philox.h - Philox4x32-10, the counter-based random numbers of Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3" (SC'11). The same (key, counter) gives the same 128 bits on every machine, without any
// state.
#pragma once

#include <array>
#include <cstdint>

namespace bunting {

constexpr std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                                std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t const a = uint64_t(0xD2511F53u) * counter[0], b = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1],
               uint32_t(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: the top bits of the first two words.
constexpr double philox_uniform(uint32_t seed_low, uint32_t seed_high, uint32_t position) {
  auto const words = philox4x32_10({position, 0, 0, 0}, {seed_low, seed_high});
  return double((uint64_t(words[0]) << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace bunting
