#include "cpu/kv_memory.h"

#include <algorithm>
#include <cstring>

#include "boundary/error.h"
#include "cpu/kernels/kv_layout.h"

namespace bunting {
namespace {

size_t pages_bytes(Model const& model, int32_t pages) {
  size_t bytes;
  if (__builtin_mul_overflow(size_t(model.page_bytes()), size_t(pages), &bytes))
    fail(BUNTING_NO_MEMORY, "%d KV pages of %llu bytes cannot be addressed", pages,
         (unsigned long long)model.page_bytes());
  return bytes;
}

}  // namespace

KvMemory::KvMemory(Model const& model, int32_t pages, int32_t spare)
    : model_(model), pages_(pages), region_(pages_bytes(model, pages + spare), "KV pages") {
  size_t at = 0;
  for (int32_t layer = 0; layer < model.shape().layers; layer++) {
    layer_at_.push_back(at);
    // Later steps read no page of an encoder, so all its layers write the same ones.
    if (model.has_keys(layer) && !model.is_bidirectional())
      at += size_t(model.page_bytes(layer)) * size_t(pages + spare);
  }
}

KvLayer KvMemory::layer(int32_t index) const {
  bunting_layer_shape const& has = model_.layer_shape(index);
  int32_t const source = model_.kv_layer(index);
  return {model_.kv_dtype(),
          has.kv_heads,
          has.head_size,
          region_.data() + layer_at_[size_t(source)],
          size_t(model_.page_bytes(source)),
          model_.latent(index)};
}

// Takes physical memory ahead of its use. The operating system assigns it at the first touch, one huge page
// at a time. Without this function all layers would reach their next huge page in the same step and stall it.
// While pages of one part of each layer are in use, each step touches the next part of a few layers. Their
// number keeps it ahead of its tokens.
void KvMemory::populate_ahead(StepPlan const& plan) {
  int32_t highest = -1;
  for (int32_t i = 0; i < plan.tokens; i++)
    if (int32_t const page = plan.token_page[size_t(i)]; page < pages_) highest = std::max(highest, page);
  size_t page_bytes = 0;
  for (int32_t layer = 0; layer < model_.shape().layers; layer++)
    page_bytes = std::max(page_bytes, this->layer(layer).page_bytes);
  int32_t const part = int32_t(std::max<size_t>(1, kHugePage / page_bytes)), layers = model_.shape().layers;
  if (highest >= populated_pages_) {
    populated_pages_ = (highest / part + 1) * part;
    populated_layers_ = 0;
  }
  if (populated_pages_ >= pages_) return;
  int64_t const part_tokens = int64_t(part) * kPageTokens;
  int64_t const enough = (int64_t(layers) * plan.tokens + part_tokens - 1) / part_tokens;
  int32_t const due = int32_t(std::min<int64_t>(layers, populated_layers_ + enough));
  for (; populated_layers_ < due; populated_layers_++) {
    if (!model_.has_keys(populated_layers_)) continue;
    size_t const bytes = this->layer(populated_layers_).page_bytes, first = size_t(populated_pages_);
    size_t const count = std::min(size_t(part), size_t(pages_) - first);
    region_.populate(layer_at_[size_t(populated_layers_)] + first * bytes, count * bytes);
  }
}

void KvMemory::read(int32_t const* pages, int32_t count, char* bytes) const {
  for (int32_t i = 0; i < count; i++)
    for (int32_t layer = 0; layer < model_.shape().layers; layer++) {
      if (!model_.has_keys(layer)) continue;
      KvLayer const kv = this->layer(layer);
      std::memcpy(bytes, kv.pages + size_t(pages[i]) * kv.page_bytes, kv.page_bytes);
      bytes += kv.page_bytes;
    }
}

void KvMemory::write(int32_t const* pages, int32_t count, char const* bytes) {
  for (int32_t i = 0; i < count; i++)
    for (int32_t layer = 0; layer < model_.shape().layers; layer++) {
      if (!model_.has_keys(layer)) continue;
      KvLayer const kv = this->layer(layer);
      std::memcpy(kv.pages + size_t(pages[i]) * kv.page_bytes, bytes, kv.page_bytes);
      bytes += kv.page_bytes;
    }
}

void KvMemory::copy(StepPlan const& plan, ThreadPool& pool) const {
  if (plan.moves == 0) return;
  pool.run(model_.shape().layers, [&](int64_t begin, int64_t end) {
    for (int64_t layer = begin; layer < end; layer++) {
      if (!model_.has_keys(int32_t(layer))) continue;
      KvLayer const kv = this->layer(int32_t(layer));
      for (int32_t i = 0; i < plan.moves; i++)
        copy_page(kv, plan.move[i].from, plan.move[i].to, plan.move[i].count);
    }
  });
}

}  // namespace bunting
