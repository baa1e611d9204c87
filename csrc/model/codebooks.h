// codebooks.h - the codebooks of GGUF's types IQ1, IQ2 and IQ3: the possible combinations of magnitudes of
// eight numbers, or four.
//
// They are constants of the file format. A row is a word of indices into a short list of magnitudes: in IQ1
// and IQ2 eight indices of two bits, in IQ3 four of three bits, the first in the lowest bits.
#pragma once

#include <cstdint>

namespace bunting {

extern uint16_t const kBook1[2048], kBook2Xxs[256], kBook2Xs[512], kBook2S[1024];
extern uint16_t const kBook3Xxs[256], kBook3S[512];

inline constexpr int8_t kMagnitudes1[] = {-1, 0, 1};
inline constexpr int8_t kMagnitudes2[] = {8, 25, 43};
inline constexpr int8_t kMagnitudes3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr int8_t kMagnitudes3S[] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace bunting
