#include "reference/attention.h"

#include <cmath>
#include <vector>

#include "reference/kv_value.h"

namespace bunting::reference {

void attention(Attention const& a, int64_t begin, int64_t end, double* out) {
  int32_t const d = a.kv.head_size, value_size = a.kv.value_size(), group = a.query_heads / a.kv.kv_heads;
  for (int64_t i = begin; i < end; ++i) {
    AttentionItem const& item = a.items[i];
    if (item.kv_end != kAttentionEnd) continue;
    for (int32_t row = item.row_begin; row < item.row_end; ++row) {
      int32_t const index = row / group, head = item.kv_head * group + row % group;
      ChunkView const& chunk = a.chunks[item.members ? item.members[index] : item.chunk];
      int32_t const within = item.members ? 0 : index;
      int64_t const token = chunk.first_token + within;
      int32_t const position = chunk.start + within;
      int32_t const first = a.sliding_window == 0 ? 0
                            : a.is_chunked        ? position - position % a.sliding_window
                                                  : std::max(0, position - a.sliding_window + 1);
      int32_t last = position;
      if (a.is_bidirectional) {
        last = chunk.start + chunk.count - 1;
        if (a.sliding_window > 0) last = std::min(last, position + a.sliding_window - 1);
      }
      float const* const q = a.q + token * a.ldq + int64_t(head) * d;
      std::vector<double> p(size_t(last) + 1);
      double largest = -INFINITY, total = 0;
      for (int32_t t = first; t <= last; ++t) {
        double dot = 0;
        for (int32_t j = 0; j < d; ++j)
          dot += double(q[j]) *
                 double(key(a.kv, chunk.pages[t / kPageTokens], item.kv_head, t % kPageTokens, j));
        p[size_t(t)] = dot * double(a.scale);
        if (a.cap > 0) p[size_t(t)] = double(a.cap) * std::tanh(p[size_t(t)] / double(a.cap));
        largest = std::max(largest, p[size_t(t)]);
      }
      if (a.sinks) total = std::exp(double(a.sinks[head]) - largest);
      for (int32_t t = first; t <= last; ++t) total += p[size_t(t)] = std::exp(p[size_t(t)] - largest);
      double* const y = out + (token * a.query_heads + head) * value_size;
      for (int32_t j = 0; j < value_size; ++j) {
        double sum = 0;
        for (int32_t t = first; t <= last; ++t)
          sum += p[size_t(t)] *
                 double(value(a.kv, chunk.pages[t / kPageTokens], item.kv_head, t % kPageTokens, j));
        y[j] = sum / total;
      }
      if (a.kv.dtype == Dtype::q4) rotate_evenly(y, d);
    }
  }
}

}  // namespace bunting::reference
