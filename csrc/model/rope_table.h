// rope_table.h - cosines and sines of rotary positions (RoPE, arXiv:2104.09864).
#pragma once

#include <cstdint>
#include <vector>

namespace bunting {

// By an angle.
struct alignas(16) Turn {
  double cos, sin;
};

// What a rope turns the pairs of a head by, at every kRopeStride-th position, and at the positions below the
// second of these: any other position's turn is one of each, one after the other.
inline constexpr int32_t kRopeStride = 512;
struct RopeTable {
  int32_t dimensions = 0;        // R
  float magnitude = 1;           // of cosines and sines
  Turn* far = nullptr;           // [ceil(context_max / kRopeStride), R/2]
  Turn* near = nullptr;          // [kRopeStride, R/2]
  float* query_scale = nullptr;  // [context_max]: what queries are multiplied by; null: nothing

  int64_t far_turns(int64_t context_max) const {
    return (context_max + kRopeStride - 1) / kRopeStride * (dimensions / 2);
  }
  int64_t near_turns() const { return kRopeStride * int64_t{dimensions / 2}; }
};

// The turns of positions 0, stride, 2 stride, ..: [positions, R/2] of frequencies [R/2] in radians per
// position. Angles are computed in double.
void rope_turns(std::vector<double> const& frequencies, int64_t positions, int64_t stride, Turn* out);

// What RopeAppend wants, of tokens [begin, end): cos and sin [T, R/2], computed in double and rounded once.
void rope_angles(RopeTable const& rope, int32_t const* positions, int64_t begin, int64_t end, float* cos,
                 float* sin);

// 1 + growth * ln(1 + floor(p / span)) for positions p from 0 on.
void query_scales(float growth, int32_t span, int64_t positions, float* out);

}  // namespace bunting
