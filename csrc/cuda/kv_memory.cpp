#include "cuda/kv_memory.h"

#include <algorithm>

namespace bunting::cuda {

KvMemory::KvMemory(Model const& model, int32_t pages)
    : model_(model), memory_(size_t(pages) * size_t(model.page_bytes()), "KV pages"), copies_(pages) {
  int64_t at = 0;
  for (int32_t i = 0; i < model.shape().layers; ++i) {
    layer_at_.push_back(at);
    if (!model.has_keys(i)) continue;
    int64_t const elements = int64_t(model.page_bytes(i) / sizeof(bf16));
    bunting_layer_shape const& has = model.layer_shape(i);
    bunting_layer_shape const& before = model.layer_shape(runs_.empty() ? i : runs_.back().first_layer);
    if (runs_.empty() || before.kv_heads != has.kv_heads || before.head_size != has.head_size)
      runs_.push_back({i, 0});
    runs_.back().elements += elements;
    at += elements;
  }
}

KvPages KvMemory::layer(int32_t index) const {
  bunting_layer_shape const& has = model_.layer_shape(index);
  bool const is_fp8 = model_.shape().kv == BUNTING_KV_FP8;
  int64_t const part = int64_t(has.kv_heads) * kPageTokens * has.head_size / (is_fp8 ? 2 : 1);
  return {.layer = reinterpret_cast<bf16*>(memory_.data()) + layer_at_[size_t(model_.kv_layer(index))],
          .page_stride = stride(),
          .values = part,
          .kv_heads = has.kv_heads,
          .head_size = has.head_size,
          .page_tokens = kPageTokens,
          .fp8 = is_fp8,
          .multipliers = is_fp8 ? 2 * part : 0};
}

void KvMemory::copy(Stream& stream, PageCopy const* copies, int32_t count) const {
  for (Run const& run : runs_) {
    KvPages const kv = layer(run.first_layer);
    copy_pages(stream, {.pages = kv.layer,
                        .copies = copies,
                        .count = count,
                        .page_stride = kv.page_stride,
                        .elements = run.elements,
                        .head_size = kv.head_size,
                        .page_tokens = kPageTokens,
                        .fp8_heads = kv.fp8 ? kv.kv_heads : 0});
  }
}

void KvMemory::read(int32_t const* pages, int32_t count, char* bytes) {
  size_t const page_bytes = size_t(model_.page_bytes());
  Stream& stream = copies_.reads();
  for (int32_t i = 0; i < count; ++i) stream.copy(bytes + size_t(i) * page_bytes, at(pages[i]), page_bytes);
  stream.finish(step_deadline_ms(), "has not copied KV pages to the host");
}

void KvMemory::write(int32_t const* pages, int32_t count, char const* bytes) {
  size_t const page_bytes = size_t(model_.page_bytes());
  settle(pages, count);
  Stream& stream = copies_.writes();
  for (int32_t i = 0; i < count; ++i) stream.copy(at(pages[i]), bytes + size_t(i) * page_bytes, page_bytes);
  stream.finish(step_deadline_ms(), "has not copied KV pages to the device");
}

void KvMemory::send(int32_t const* pages, int32_t const* to, int32_t count, HostPlaces const& places) {
  for (int32_t i = 0; i < count; ++i)
    copies_.reads().copy(places.at(to[i]), at(pages[i]), size_t(model_.page_bytes()));
  copies_.sent(pages, count);
}

void KvMemory::fetch(int32_t const* pages, int32_t const* from, int32_t count, HostPlaces const& places) {
  settle(pages, count);
  Stream& stream = copies_.writes();
  for (int32_t i = 0; i < count; ++i)
    stream.copy(at(pages[i]), places.at(from[i]), size_t(model_.page_bytes()));
  stream.finish(step_deadline_ms(), "has not copied KV pages to the device");
}

void KvMemory::settle(int32_t const* pages, int32_t count) {
  int64_t last = 0;
  for (int32_t i = 0; i < count; ++i) last = std::max(last, copies_.before_writing(pages[i]));
  copies_.settle(last);
}

void KvMemory::settle(StepPlan const& plan) {
  int64_t last = 0;
  for (int32_t i = 0; i < plan.moves; ++i) last = std::max(last, copies_.before_writing(plan.move[i].to));
  for (int32_t t = 0; t < plan.tokens; ++t)
    last = std::max(last, copies_.before_writing(plan.token_page[size_t(t)]));
  copies_.settle(last);
}

}  // namespace bunting::cuda
