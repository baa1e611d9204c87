// Tests of the rope tables.
#include <cmath>
#include <vector>

#include "model/rope_table.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

struct Rope {
  std::vector<double> frequencies;
  std::vector<Turn> far, near;
  RopeTable table;

  Rope(int32_t pairs, int64_t context, float magnitude)
      : table{.dimensions = 2 * pairs, .magnitude = magnitude} {
    for (int32_t i = 0; i < pairs; ++i) frequencies.push_back(std::pow(1e6, -double(i) / pairs));
    far.resize(size_t(table.far_turns(context)));
    near.resize(size_t(table.near_turns()));
    rope_turns(frequencies, int64_t(far.size()) / pairs, kRopeStride, far.data());
    rope_turns(frequencies, kRopeStride, 1, near.data());
    table.far = far.data();
    table.near = near.data();
  }
};

}  // namespace

TEST(rope_angles_are_cosines_and_sines_of_positions) {
  constexpr int32_t kPairs = 16, kContext = 262'144;
  std::vector<int32_t> positions = {0, 1, 17, 511, 512, 513, 4999, 131'071, kContext - 1};
  for (float const magnitude : {1.0f, 1.25f}) {
    Rope const rope(kPairs, kContext, magnitude);
    std::vector<float> cos(positions.size() * kPairs, NAN), sin(cos);
    rope_angles(rope.table, positions.data(), 2, int64_t(positions.size()), cos.data(), sin.data());
    rope_angles(rope.table, positions.data(), 0, 2, cos.data(), sin.data());
    for (size_t at = 0; at < cos.size(); ++at) {
      int32_t const position = positions[at / kPairs];
      double const angle = position * rope.frequencies[at % kPairs];
      double const of_cos = double(magnitude) * std::cos(angle), of_sin = double(magnitude) * std::sin(angle);
      // Error bound: one rounding to f32, plus the rounding in double of an angle of this size.
      double const most = double(magnitude) * (0x1p-24 + angle * 0x1p-52);
      CHECK(std::fabs(double(cos[at]) - of_cos) <= most && std::fabs(double(sin[at]) - of_sin) <= most,
            "position %d, pair %zu: %g, %g", position, at % kPairs, double(cos[at]), double(sin[at]));
      if (position < kRopeStride || position % kRopeStride == 0)
        CHECK(cos[at] == float(of_cos) && sin[at] == float(of_sin), "position %d, pair %zu: other bits",
              position, at % kPairs);
    }
  }
}

TEST(query_scales_grow_with_each_span) {
  std::vector<float> scales(50);
  query_scales(0.5f, 16, 0, 50, scales.data());
  for (int position = 0; position < 50; ++position)
    CHECK(scales[size_t(position)] == float(1 + 0.5 * std::log(1.0 + position / 16)), "position %d",
          position);
}

}  // namespace bunting::test
