#include "cpu/right_draws.h"

namespace bunting {

void find_right_draws(StepPlan const& plan, uint32_t* results, size_t draw_words, RightDraw* of_chunk) {
  int32_t row = 0;
  for (int32_t c = 0; c < plan.chunks; c++) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    int32_t const last = chunk.first_token + chunk.count - 1;
    RightDraw right;
    bool goes_on = true;
    for (; row < plan.rows && plan.row[size_t(row)].token_row <= last; row++) {
      WantedRow const& wanted = plan.row[size_t(row)];
      if (!wanted.is_draw || !goes_on) continue;
      uint32_t* const words = results + size_t(wanted.index) * draw_words;
      goes_on = words[0] == 0;
      if (!goes_on) continue;
      right = {wanted.token_row, int32_t(words[1]), words};
      goes_on = right.token_row < last && plan.token[right.token_row + 1] == right.token;
    }
    of_chunk[c] = right;
  }
}

}  // namespace bunting
