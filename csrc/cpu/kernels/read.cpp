// read.cpp - plain read of memory, the ceiling of every kernel that waits for its data.
#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Four streams, each prefetched a kilobyte ahead.
uint64_t read(char const* from, size_t bytes) {
  typedef uint64_t Words __attribute__((vector_size(kLanes * 4)));
  constexpr size_t kStreams = 4, kLine = 64;
  Words sums[kStreams] = {};
  size_t const stream_bytes = bytes / kStreams;
  for (size_t i = 0; i < stream_bytes; i += kLine)
    for (size_t stream = 0; stream < kStreams; ++stream) {
      char const* const line = from + stream * stream_bytes + i;
      __builtin_prefetch(line + 1024);
      for (size_t at = 0; at < kLine; at += sizeof(Words)) {
        Words words;
        std::memcpy(&words, line + at, sizeof words);
        sums[stream] += words;
      }
    }
  uint64_t total = 0;
  for (Words const& sum : sums)
    for (size_t i = 0; i < sizeof sum / 8; ++i) total += sum[i];
  return total;
}

}  // namespace bunting::BUNTING_ISA
