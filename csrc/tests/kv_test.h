// kv_test.h - common parts of the tests of attention, rope_append and pages: levels, pages full of NaN,
// sequences.
#pragma once

#include <algorithm>
#include <vector>

#include "host/cpu_features.h"
#include "reference/attention.h"
#include "reference/kv_value.h"
#include "tests/test.h"

namespace bunting::test {

// Returns the tables of every level that this library has and this machine can run.
inline std::vector<Kernels const*> levels() {
  std::vector<Kernels const*> all;
  for (int32_t isa = 0; isa <= best_isa(); ++isa)
    if (Kernels const* const kernels = kernels_for(isa)) all.push_back(kernels);
  return all;
}

inline char const* name_of(Dtype dtype) {
  return dtype == Dtype::f32 ? "f32" : dtype == Dtype::q8 ? "q8" : dtype == Dtype::q4 ? "q4" : "bf16";
}

template <class T>
struct alignas(64) Line {
  T values[64 / sizeof(T)];
};

// Array of `count` elements on a 64-byte boundary.
template <class T>
class Aligned {
 public:
  explicit Aligned(size_t count) : lines_(count / (64 / sizeof(T)) + 1) {}
  T* data() { return lines_.data()->values; }
  T& operator[](size_t i) { return data()[i]; }

 private:
  std::vector<Line<T>> lines_;
};

// Pages of one layer with every bit set: any element that was not written is NaN.
class Pages {
 public:
  KvLayer kv;
  Pages(Dtype dtype, int32_t kv_heads, int32_t head_size, int32_t count, int32_t latent = 0)
      : memory_(page_bytes(dtype, kv_heads, head_size, latent) * size_t(count)) {
    kv = {dtype, kv_heads, head_size, memory_.data(), page_bytes(dtype, kv_heads, head_size, latent), latent};
    std::memset(kv.pages, 0xff, kv.page_bytes * size_t(count));
  }

 private:
  static size_t page_bytes(Dtype dtype, int32_t kv_heads, int32_t head_size, int32_t latent) {
    return latent > 0 ? latent_page_bytes(dtype, head_size) : kv_page_bytes(dtype, kv_heads, head_size);
  }
  Aligned<char> memory_;
};

// Returns `count` different page ids in random order, starting at `from`.
inline std::vector<int32_t> shuffled_pages(Random& random, int32_t from, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) ids[size_t(i)] = from + i;
  for (int32_t i = count - 1; i > 0; --i) std::swap(ids[size_t(i)], ids[size_t(random.below(i + 1))]);
  return ids;
}

// Rounds a token's keys and values of a head like int8 pages.
inline void append_int8(KvLayer const& kv, int32_t page, int32_t head, int32_t slot, float const* k,
                        float const* v) {
  auto const append = [&](char* part, float const* x, auto index) {
    float largest = 0;
    for (int32_t i = 0; i < kv.head_size; ++i) largest = std::max(largest, std::fabs(x[i]));
    float const scale = largest / 127;
    reinterpret_cast<float*>(part)[slot] = scale;
    for (int32_t i = 0; i < kv.head_size; ++i)
      reinterpret_cast<int8_t*>(part + kKvScaleBytes)[index(i)] =
          int8_t(scale > 0 ? std::lround(std::clamp(x[i] / scale, -127.0f, 127.0f)) : 0);
  };
  append(k_of(kv, page, head), k, [&](int32_t i) { return k_index(Dtype::q8, slot, i); });
  append(v_of(kv, page, head), v, [&](int32_t i) { return v_index(Dtype::q8, kv.head_size, slot, i); });
}

// Likewise like pages of four bits, without the rotation.
inline void append_int4(KvLayer const& kv, int32_t page, int32_t head, int32_t slot, float const* k,
                        float const* v) {
  int32_t const half = kv.head_size / 2;
  auto const append = [&](char* part, float const* x, auto index) {
    float largest = 0;
    for (int32_t i = 0; i < kv.head_size; ++i) largest = std::max(largest, std::fabs(x[i]));
    float const scale = largest / 15;
    reinterpret_cast<float*>(part)[slot] = scale;
    auto const nibble = [&](int32_t i) {
      return scale > 0 ? int(std::clamp(std::nearbyint(x[i] / (2 * scale) + 7.5f), 0.0f, 15.0f)) : 8;
    };
    for (int32_t i = 0; i < half; ++i)
      part[kKvScaleBytes + index(i)] = char(nibble(i) | nibble(i + half) << 4);
  };
  append(k_of(kv, page, head), k, [&](int32_t i) { return k_index(Dtype::q4, slot, i); });
  append(v_of(kv, page, head), v, [&](int32_t i) { return v_index(Dtype::q4, kv.head_size, slot, i); });
}

// Queries, keys and values of one sequence: q [tokens, Hq*D], k and v [tokens, Hk*D].
struct Sequence {
  int32_t query_heads, kv_heads, head_size;
  std::vector<float> q, k, v;

  Sequence(Random& random, int32_t tokens, int32_t hq, int32_t hk, int32_t d)
      : query_heads(hq), kv_heads(hk), head_size(d) {
    auto const fill = [&](std::vector<float>& x, int32_t width, float limit) {
      x.resize(size_t(tokens) * size_t(width));
      for (float& value : x) value = random.uniform(-limit, limit);
    };
    fill(q, hq * d, 4);  // scores range over about +-8, so that maxima move
    fill(k, hk * d, 2);
    fill(v, hk * d, 1);
  }

  // Writes keys and values of positions [begin, end) to their pages.
  void append(KvLayer const& kv, std::vector<int32_t> const& pages, int32_t begin, int32_t end) const {
    for (int32_t t = begin; t < end; ++t)
      for (int32_t head = 0; head < kv_heads; ++head)
        if (has_kv_scales(kv.dtype)) {
          size_t const from = (size_t(t) * size_t(kv_heads) + size_t(head)) * size_t(head_size);
          (kv.dtype == Dtype::q8 ? append_int8 : append_int4)(
              kv, pages[size_t(t / kPageTokens)], head, t % kPageTokens, k.data() + from, v.data() + from);
        } else
          for (int32_t i = 0; i < head_size; ++i) {
            size_t const from = (size_t(t) * size_t(kv_heads) + size_t(head)) * size_t(head_size) + size_t(i);
            int32_t const page = pages[size_t(t / kPageTokens)], slot = t % kPageTokens;
            reference::put(kv.dtype, k_of(kv, page, head), k_index(kv.dtype, slot, i), k[from]);
            if (kv.latent == 0)
              reference::put(kv.dtype, v_of(kv, page, head), v_index(kv.dtype, head_size, slot, i), v[from]);
          }
  }
};

}  // namespace bunting::test
