// copy_pages.cu - copy-on-write of the first `tokens` slots of a page: all heads, keys and values of layers
// of one size.
//
//   pages  [page][..][Tp][D] bf16: these layers are a row of parts of Tp * D elements, and the slots of a
//          part are adjacent. In e4m3 each layer has 2 Hk such parts, followed by Hk parts of Tp words
//          (KvPages).
//
// Work:     one block per copy and kPartsPerBlock parts, sixteen bytes per thread and turn.
// Roofline: memory, 4 bytes per copied element.
// Checked:  exactly; the other slots of `to` and all other pages stay unchanged.
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
  int32_t parts_of_layer, part_bytes;
  int64_t layer_bytes;
};

template <class T>
GPU_DEVICE void copy_all(char* to, char const* from, int count) {
  for (int i = thread_index(); i < count; i += kThreads)
    store(reinterpret_cast<T*>(to) + i, load(reinterpret_cast<T const*>(from) + i));
}

GPU_KERNEL(kThreads, 8) copy_pages_kernel(Task const task) {
  CopyPages const& c = task.c;
  PageCopy const copy = load(c.copies + block_index() / task.blocks_per_copy);
  int const first = block_index() % task.blocks_per_copy * kPartsPerBlock;
  char const* const from = reinterpret_cast<char const*>(c.pages + copy.from * c.page_stride);
  char* const to = reinterpret_cast<char*>(c.pages + copy.to * c.page_stride);
  for (int p = first; p < first + kPartsPerBlock && p < task.parts; ++p) {
    int const layer = p / task.parts_of_layer, part = p % task.parts_of_layer;
    // Parts of words come last in a layer.
    int const words_part = part - 2 * c.fp8_heads;
    bool const is_words = c.fp8_heads > 0 && words_part >= 0;
    int64_t const at = layer * task.layer_bytes +
                       int64_t(is_words ? 2 * c.fp8_heads : part) * task.part_bytes +
                       (is_words ? words_part * c.page_tokens * int(sizeof(uint32_t)) : 0);
    if (is_words)
      copy_all<uint32_t>(to + at, from + at, copy.tokens);
    else
      copy_all<Vec>(to + at, from + at, copy.tokens * task.part_bytes / c.page_tokens / int(sizeof(Vec)));
  }
}

}  // namespace

void copy_pages(Stream& stream, CopyPages const& c) {
  if (c.count == 0) return;
  bool const fp8 = c.fp8_heads > 0;
  int32_t const part_bytes = c.page_tokens * c.head_size * (fp8 ? 1 : 2);
  // Pages in bf16 consist of equal parts, whatever the layers.
  int32_t const parts_of_layer = fp8 ? 3 * c.fp8_heads : 1;
  int64_t const layer_bytes =
      fp8 ? int64_t(c.fp8_heads) * (2 * part_bytes + c.page_tokens * int32_t(sizeof(uint32_t))) : part_bytes;
  int32_t const parts = int32_t(c.elements * 2 / layer_bytes) * parts_of_layer;
  Task const task{c,          parts,      (parts + kPartsPerBlock - 1) / kPartsPerBlock, parts_of_layer,
                  part_bytes, layer_bytes};
  stream.launch("copy_pages", copy_pages_kernel, {c.count * task.blocks_per_copy, kThreads, 0}, task);
}

}  // namespace bunting::cuda
