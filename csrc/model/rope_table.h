// rope_table.h - cosines and sines of rotary positions (RoPE, arXiv:2104.09864).
#pragma once

#include <cstdint>
#include <vector>

namespace bunting {

// Rotation by an angle.
struct alignas(16) Turn {
  double cos, sin;
};

// Rotations of a rope's pairs at every kRopeStride-th position (far), and at the positions below kRopeStride
// (near). The rotation of any position is one of each, composed.
inline constexpr int32_t kRopeStride = 512;
struct RopeTable {
  int32_t dimensions = 0;        // R
  float magnitude = 1;           // factor of cosines and sines
  Turn* far = nullptr;           // [ceil(context_max / kRopeStride), R/2]
  Turn* near = nullptr;          // [kRopeStride, R/2]
  float* query_scale = nullptr;  // [context_max] factor of queries by position; null: none

  int64_t far_turns(int64_t context_max) const {
    return (context_max + kRopeStride - 1) / kRopeStride * (dimensions / 2);
  }
  int64_t near_turns() const { return kRopeStride * int64_t{dimensions / 2}; }
};

// Computes the rotations of positions 0, stride, 2 stride, ..: [positions, R/2], for frequencies [R/2] in
// radians per position. Angles are computed in double.
void rope_turns(std::vector<double> const& frequencies, int64_t positions, int64_t stride, Turn* out);

// Computes RopeAppend's cos and sin [T, R/2] of tokens [begin, end), in double and rounded once.
void rope_angles(RopeTable const& rope, int32_t const* positions, int64_t begin, int64_t end, float* cos,
                 float* sin);

// Computes 1 + growth * ln(1 + floor((p + offset) / span)) for positions p from 0 on.
void query_scales(float growth, int32_t span, int32_t offset, int64_t positions, float* out);

}  // namespace bunting
