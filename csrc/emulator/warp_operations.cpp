#include "emulator/warp_operations.h"

#include <utility>

#include "emulator/grid.h"
#include "emulator/matrix_sums.h"

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

void multiply_add_bf16(float (&d)[4], uint32_t const (&a)[4], uint32_t b0, uint32_t b1) {
  struct Brought {
    float* d;
    uint32_t a[4], b[2];
  } brought{d, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  warp_collective("mma", &brought, [](void* const* all) {
    Operand a[16], b[8];
    for (int l = 0; l < kWarp; ++l) {
      Brought const& lane = of<Brought>(all, l);
      int const g = l / 4, t = l % 4;
      for (int i = 0; i < 8; ++i)
        a[g + i / 2 % 2 * 8].set(2 * t + i % 2 + i / 4 * 8, uint16_t(half(lane.a[i / 2], i % 2)));
      for (int i = 0; i < 4; ++i) b[g].set(2 * t + i % 2 + i / 2 * 8, uint16_t(half(lane.b[i / 2], i % 2)));
    }
    for (int row = 0; row < 16; ++row)
      for (int n = 0; n < 8; ++n) {
        float& sum = of<Brought>(all, row % 8 * 4 + n / 2).d[row / 8 * 2 + n % 2];
        sum = add_products(a[row], b[n], sum);
      }
  });
}

}  // namespace bunting::emulator
