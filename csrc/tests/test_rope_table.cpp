// Tables of rotations.
#include <cmath>
#include <vector>

#include "model/rope_table.h"
#include "tests/test.h"

namespace bunting::test {

TEST(rope_tables_hold_cosines_and_sines_of_every_position) {
  std::vector<double> frequency;
  for (int i = 0; i < 8; ++i) frequency.push_back(std::pow(10000, -i / 8.0));
  std::vector<float> cos(5000 * 8, NAN), sin(5000 * 8, NAN);
  for (float const magnitude : {1.0f, 1.25f}) {
    rope_table(frequency, magnitude, 5000, cos.data(), sin.data());
    for (int i = 0; i < 8; ++i)
      CHECK(cos[size_t(i)] == magnitude && sin[size_t(i)] == 0, "position 0, pair %d is turned", i);
    for (int position : {1, 17, 4999})
      for (int i = 0; i < 8; ++i) {
        double const angle = position * frequency[size_t(i)];
        size_t const at = size_t(position * 8 + i);
        CHECK(cos[at] == float(double(magnitude) * std::cos(angle)) &&
                  sin[at] == float(double(magnitude) * std::sin(angle)),
              "position %d, pair %d", position, i);
      }
  }
}

TEST(query_scales_grow_with_each_span) {
  std::vector<float> scales(50);
  query_scales(0.5f, 16, 50, scales.data());
  for (int position = 0; position < 50; ++position)
    CHECK(scales[size_t(position)] == float(1 + 0.5 * std::log(1.0 + position / 16)), "position %d",
          position);
}

}  // namespace bunting::test
