// copy_pages.cu - copy-on-write: the first `tokens` slots of a page, of every layer, head, keys and values.
//
//   pages  [page][..][Tp][D] bf16: a page is a row of parts of Tp * D elements, and the slots of a part lie
//   together
//
// Work:     one block per copy and kPartsPerBlock parts, sixteen bytes per thread and turn.
// Roofline: memory, 4 bytes per element copied.
// Checked:  exactly; the other slots of `to` and all other pages stay as they are.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 128;
constexpr int kPartsPerBlock = 8;

struct Task {
  CopyPages c;
  int32_t parts, blocks_per_copy;
};

GPU_KERNEL(kThreads, 8) copy_pages_kernel(Task const task) {
  CopyPages const& c = task.c;
  PageCopy const copy = load(c.copies + block_index() / task.blocks_per_copy);
  int const first = block_index() % task.blocks_per_copy * kPartsPerBlock;
  int const part = c.page_tokens * c.head_size / 8, wanted = copy.tokens * c.head_size / 8;  // vectors
  Vec const* const from = reinterpret_cast<Vec const*>(c.pages + copy.from * c.page_elements);
  Vec* const to = reinterpret_cast<Vec*>(c.pages + copy.to * c.page_elements);
  for (int p = first; p < first + kPartsPerBlock && p < task.parts; ++p)
    for (int i = thread_index(); i < wanted; i += kThreads) {
      int64_t const at = int64_t(p) * part + i;
      store(to + at, load(from + at));
    }
}

}  // namespace

void copy_pages(Stream& stream, CopyPages const& c) {
  if (c.count == 0) return;
  int32_t const parts = int32_t(c.page_elements / (c.page_tokens * c.head_size));
  Task const task{c, parts, (parts + kPartsPerBlock - 1) / kPartsPerBlock};
  stream.launch("copy_pages", copy_pages_kernel, {c.count * task.blocks_per_copy, kThreads, 0}, task);
}

}  // namespace bunting::cuda
