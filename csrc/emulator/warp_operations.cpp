#include "emulator/warp_operations.h"

#include <bit>
#include <utility>

#include "emulator/grid.h"

namespace bunting::emulator {
namespace {

// Returns lane i's argument.
template <class T>
T& of(void* const* all, int i) {
  return *static_cast<T*>(all[i]);
}

uint32_t half(uint32_t word, int upper) {
  return upper ? word >> 16 : word & 0xffffu;
}

float bf16_value(uint32_t word, int upper) {
  return std::bit_cast<float>(half(word, upper) << 16);
}

}  // namespace

uint32_t shuffle(uint32_t x, int32_t source) {
  struct Brought {
    uint32_t in;
    int32_t source;
    uint32_t out;
  } brought{x, source, 0};
  if (source < 0 || source >= kWarp) fault("shuffle from lane %d", source);
  warp_collective("shuffle", &brought, [](void* const* all) {
    for (int i = 0; i < kWarp; ++i) of<Brought>(all, i).out = of<Brought>(all, of<Brought>(all, i).source).in;
  });
  return brought.out;
}

uint32_t ballot(bool yes) {
  struct Brought {
    bool yes;
    uint32_t out;
  } brought{yes, 0};
  warp_collective("ballot", &brought, [](void* const* all) {
    uint32_t bits = 0;
    for (int i = 0; i < kWarp; ++i) bits |= uint32_t(of<Brought>(all, i).yes) << i;
    for (int i = 0; i < kWarp; ++i) of<Brought>(all, i).out = bits;
  });
  return brought.out;
}

void load_matrices(uint32_t const (&row)[4], bool transposed, uint32_t (&out)[4]) {
  struct Brought {
    uint32_t row[4];
    bool transposed;
    uint32_t out[4];
  } brought{{row[0], row[1], row[2], row[3]}, transposed, {}};
  warp_collective(transposed ? "ldmatrix.trans" : "ldmatrix", &brought, [](void* const* all) {
    bool const transposed = of<Brought>(all, 0).transposed;
    for (int m = 0; m < 4; ++m) {
      auto const element = [&](int r, int c) {
        if (transposed) std::swap(r, c);
        return half(of<Brought>(all, 8 * m + r).row[c / 2], c % 2);
      };
      for (int l = 0; l < kWarp; ++l)
        of<Brought>(all, l).out[m] = element(l / 4, 2 * (l % 4)) | element(l / 4, 2 * (l % 4) + 1) << 16;
    }
  });
  for (int m = 0; m < 4; ++m) out[m] = brought.out[m];
}

// Sums over rising k; the hardware guarantees no order.
void multiply_add_bf16(float (&d)[4], uint32_t const (&a)[4], uint32_t b0, uint32_t b1) {
  struct Brought {
    float* d;
    uint32_t a[4], b[2];
  } brought{d, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  warp_collective("mma", &brought, [](void* const* all) {
    float a[16][16], b[16][8];
    for (int l = 0; l < kWarp; ++l) {
      Brought const& lane = of<Brought>(all, l);
      int const g = l / 4, t = l % 4;
      for (int i = 0; i < 8; ++i)
        a[g + i / 2 % 2 * 8][2 * t + i % 2 + i / 4 * 8] = bf16_value(lane.a[i / 2], i % 2);
      for (int i = 0; i < 4; ++i) b[2 * t + i % 2 + i / 2 * 8][g] = bf16_value(lane.b[i / 2], i % 2);
    }
    for (int row = 0; row < 16; ++row) {
      float sum[8] = {};
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 8; ++n) sum[n] += a[row][k] * b[k][n];
      for (int n = 0; n < 8; ++n) of<Brought>(all, row % 8 * 4 + n / 2).d[row / 8 * 2 + n % 2] += sum[n];
    }
  });
}

}  // namespace bunting::emulator
