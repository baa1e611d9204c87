// expert_rows.h - assignment of a GEMM block to rows of an expert. Only the device knows how many rows an
// expert has, so each block finds its own tile. Blocks without a tile end at once.
#pragma once

#include "cuda/gpu.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {

// Rows [first, first + count) of x and y, all of one expert; count is 0 if there are none.
struct ExpertRows {
  int expert = 0, first = 0, count = 0;
};

// Returns tile `tile` of the experts' rows, where a tile has at most kRows rows. Whole warps must call it.
template <int kRows>
GPU_DEVICE ExpertRows find_expert_rows(Experts const& e, int tile) {
  auto const tiles_of = [&](int expert) {
    return (gpu::load(e.begin + expert + 1) - gpu::load(e.begin + expert) + kRows - 1) / kRows;
  };
  int const of_lane = (e.count + gpu::kWarp - 1) / gpu::kWarp, first = gpu::lane() * of_lane;
  int tiles = 0;
  for (int expert = first; expert < first + of_lane && expert < e.count; ++expert) tiles += tiles_of(expert);
  int up_to = tiles;  // tiles of this lane's experts and those of the lanes below
  for (int distance = 1; distance < gpu::kWarp; distance *= 2) {
    int const below = gpu::shuffle(up_to, gpu::lane() < distance ? gpu::lane() : gpu::lane() - distance);
    if (gpu::lane() >= distance) up_to += below;
  }
  uint32_t const reached = gpu::ballot(tile < up_to);
  if (reached == 0) return {};
  int const owner = gpu::count_bits(~reached & (reached - 1));  // the lowest lane
  int expert = owner * of_lane;
  tile -= gpu::shuffle(up_to - tiles, owner);
  for (int of_expert = tiles_of(expert); tile >= of_expert; of_expert = tiles_of(++expert)) tile -= of_expert;
  int const begin = gpu::load(e.begin + expert) + tile * kRows, end = gpu::load(e.begin + expert + 1);
  return {expert, begin, end - begin < kRows ? end - begin : kRows};
}

}  // namespace bunting::cuda
