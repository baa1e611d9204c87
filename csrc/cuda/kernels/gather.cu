// gather.cu - to[r] = from[rows[r]].
//
// Work:     one block per row, sixteen bytes per thread and turn.
// Roofline: memory, twice the bytes of the rows.
// Checked:  exactly.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 128;

GPU_KERNEL(kThreads, 8) gather_kernel(Gather const g) {
  int const vectors = g.row_bytes / int(sizeof(Vec));
  Vec const* const from = static_cast<Vec const*>(g.from) + int64_t(load(g.rows + block_index())) * vectors;
  Vec* const to = static_cast<Vec*>(g.to) + int64_t(block_index()) * vectors;
  for (int i = thread_index(); i < vectors; i += kThreads) store(to + i, load(from + i));
}

}  // namespace

void gather(Stream& stream, Gather const& g) {
  if (g.count > 0) stream.launch("gather", gather_kernel, {g.count, kThreads, 0}, g);
}

}  // namespace bunting::cuda
