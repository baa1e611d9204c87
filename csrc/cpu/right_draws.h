// right_draws.h - the last valid draw of each chunk, behind which a draft head or a draft model drafts.
#pragma once

#include <chrono>
#include <cstdint>

#include "boundary/step_block.h"

namespace bunting {

// Last valid draw of a chunk: all draws before it equal the chunk's next tokens, so the drafts there were
// accepted.
struct RightDraw {
  int32_t token_row = -1;     // -1: none
  int32_t token = 0;          // the drawn token
  uint32_t* words = nullptr;  // its result (engine.h, bunting_step_result)
};

// Finds the last valid draw of each chunk, in results with `draw_words` words per draw.
void find_right_draws(StepPlan const& plan, uint32_t* results, size_t draw_words, RightDraw* of_chunk);

// Words behind a draw's result: the count of its drafts, then pairs (token, logprob).
inline uint32_t* drafts_of(uint32_t* draw, int32_t top_logprobs_max) {
  return draw + StepReader::draw_words(top_logprobs_max, 0);
}

inline float ms_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - from).count();
}

}  // namespace bunting
