// rope_table.h - cosines and sines of rotary positions (RoPE, arXiv:2104.09864).
#pragma once

#include <cstdint>
#include <vector>

namespace bunting {

// The tables that RopeAppend wants: cos and sin [positions, R/2] of frequencies [R/2] in radians per
// position, times `magnitude`. Angles are computed in double and rounded once.
void rope_table(std::vector<double> const& frequencies, float magnitude, int64_t positions, float* cos,
                float* sin);

// 1 + growth * ln(1 + floor(p / span)) for positions p from 0 on.
void query_scales(float growth, int32_t span, int64_t positions, float* out);

}  // namespace bunting
