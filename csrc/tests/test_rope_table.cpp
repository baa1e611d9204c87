// Inverse frequencies against values of Hugging Face's formulas, worked out independently in high precision.
#include <cmath>
#include <vector>

#include "model/rope_table.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

bunting_model_shape rope(int32_t kind, int32_t head_size, float theta, float factor = 1) {
  bunting_model_shape shape{};
  shape.rope_kind = kind;
  shape.head_size = head_size;
  shape.rope_theta = theta;
  shape.rope_factor = factor;
  shape.rope_low_freq_factor = 1;
  shape.rope_high_freq_factor = 4;
  shape.rope_original_context = 8192;
  return shape;
}

std::vector<double> frequencies(bunting_model_shape const& shape) {
  std::vector<double> out(size_t(shape.head_size / 2));
  rope_inverse_frequencies(shape, out.data());
  return out;
}

struct Expected {
  size_t pair;
  double radians;
};

bool near(double got, double want) {
  return std::fabs(got - want) <= 1e-12 * std::fabs(want);
}

}  // namespace

TEST(rope_plain_frequencies) {
  std::vector<double> const got = frequencies(rope(BUNTING_ROPE_PLAIN, 64, 10000));
  for (auto [pair, want] :
       {Expected{0, 1}, Expected{1, 0.74989420933245587}, Expected{5, 0.23713737056616552},
        Expected{15, 0.013335214321633241}, Expected{16, 0.01}, Expected{31, 0.0001333521432163324}})
    CHECK(near(got[pair], want), "pair %zu turns by %.17g, wanted %.17g", pair, got[pair], want);
}

TEST(rope_linear_frequencies_are_stretched_by_the_factor) {
  std::vector<double> const plain = frequencies(rope(BUNTING_ROPE_PLAIN, 80, 10000));
  std::vector<double> const got = frequencies(rope(BUNTING_ROPE_LINEAR, 80, 10000, 4));
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == plain[i] / 4, "pair %zu", i);
}

// The parameters of Llama 3.2: short wavelengths stay, long ones are stretched 32 times, three lie between.
TEST(rope_llama3_frequencies) {
  std::vector<double> const got = frequencies(rope(BUNTING_ROPE_LLAMA3, 64, 500000, 32));
  for (auto [pair, want] : {Expected{0, 1}, Expected{5, 0.12868737343265052},
                            Expected{14, 0.0032114459947525909}, Expected{15, 0.0012905479282092638},
                            Expected{16, 0.00042955679655936821}, Expected{17, 9.7082878026276729e-05},
                            Expected{18, 1.9461638184831125e-05}, Expected{31, 9.41830672543491e-08}})
    CHECK(near(got[pair], want), "pair %zu turns by %.17g, wanted %.17g", pair, got[pair], want);
}

TEST(rope_tables_hold_cosines_and_sines_of_every_position) {
  bunting_model_shape shape = rope(BUNTING_ROPE_PLAIN, 16, 10000);
  shape.context_max = 5000;
  std::vector<float> cos(5000 * 8, NAN), sin(5000 * 8, NAN);
  rope_tables(shape, cos.data(), sin.data());
  for (int i = 0; i < 8; ++i)
    CHECK(cos[size_t(i)] == 1 && sin[size_t(i)] == 0, "position 0, pair %d is turned", i);
  std::vector<double> const frequency = frequencies(shape);
  for (int position : {1, 17, 4999})
    for (int i = 0; i < 8; ++i) {
      double const angle = position * frequency[size_t(i)];
      size_t const at = size_t(position * 8 + i);
      CHECK(cos[at] == float(std::cos(angle)) && sin[at] == float(std::sin(angle)), "position %d, pair %d",
            position, i);
    }
}

}  // namespace bunting::test
