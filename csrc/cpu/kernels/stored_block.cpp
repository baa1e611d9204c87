// stored_block.cpp - packs rows of a file's blocks into the panels of a matrix.
//
// Work:     one panel after another, a block of one column at a time.
// Checked:  bit for bit against reference::pack.
#include "cpu/kernels/stored_block.h"

namespace bunting {
namespace {

template <Dtype W>
void pack_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  constexpr int64_t kLength = stored_block_length(W), kBytes = stored_block_bytes(W);
  int64_t const row_bytes = w.k / kLength * kBytes;
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t k = 0; k < w.kp(); k += kLength) {
      if (k % w.block() == 0)
        std::memset(w.panel(panel) + w.depth_bytes(k), 0, size_t(w.block_scale_bytes()));
      for (int64_t n = panel * kPanel; n < (panel + 1) * kPanel; ++n) {
        StoredBlock block{};
        if (n < w.n && k < w.k) block = read_stored_block<W>(src + n * row_bytes + k / kLength * kBytes);
        write_scales(w, n, k, block.scales);
        for (int64_t i = 0; i < kLength; i += kGroup) write_integers(w, n, k + i, block.q + i);
      }
    }
  }
}

}  // namespace

void pack_stored_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  with_grouped_format(w.dtype, [&]<Dtype W>() {
    if constexpr (stored_block_bytes(W) > 0) pack_blocks<W>(w, src, begin, end);
  });
}

}  // namespace bunting
