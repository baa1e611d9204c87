// attention.cu - softmax(scale * q k^T) v over paged keys and values; one launch for decodes, prompt chunks
// and shared prefixes alike, after a plan (attention_plan.h).
//
//   q, out  [T, Hq*D] bf16     pages  one layer of the KV pages, bf16     sums and softmax in f32
//
// An item is a tile of query rows (token, head of the group; the heads of a token lie together) against a
// range of positions. Keys and values pass in tiles of 64 positions through a ring in shared memory; the
// softmax is computed online (arXiv:2205.14135). Few rows (16): each of the four warps takes 16 keys of a
// tile, and their results are merged at the end of the item. Many rows (64): each warp takes 16 rows. What
// a row sees is decided by absolute positions alone.
//
// Results of items that see only part of what their tokens see are merged in this launch: such an item
// leaves normalised partial results and counts itself arrived for each of its tokens; the block that comes
// last for a token and KV head adds up all of them in the plan's order. So the sum does not depend on who
// came last, and nobody waits.
//
// Slots of pages that nobody has written may hold any bits: rows from kv_end on are zeros.
//
// Work:     a persistent block per entry of item_begin.
// Roofline: decodes by memory, 4*D bytes per position and KV head; chunks by arithmetic, 4*D flops per
//           position and query row.
// Checked:  against reference::attention in double, two bf16 roundings; plans that split, share and permute
//           against each other.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"
#include "error.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr float kLog2E = 1.44269504f;
constexpr float kInfinity = __builtin_inff();

// A row of D elements is D/8 chunks of sixteen bytes. They are permuted so that the same chunk of eight
// neighbouring rows lies in eight different bank groups, whatever D / 32 is.
template <int D>
GPU_DEVICE int chunk_at(int row, int chunk) {
  return row * (D / 8) + (chunk ^ (D % 64 == 0 ? row % 8 : row / 2 % 4));
}

// Shared memory, in vectors: queries, then the ring of keys and values, then a flag per token.
template <int D>
struct Layout {
  static constexpr int kChunks = D / 8;
  static constexpr int kStages = D <= 64 ? 3 : 2;
  static constexpr int kMatrix = kTileKeys * kChunks;  // keys or values of one stage
  static constexpr int kRing = kManyRows * kChunks;
  static constexpr int kFlags = kRing + kStages * 2 * kMatrix;
  static constexpr size_t kBytes = kFlags * sizeof(Vec) + kManyRows * sizeof(int32_t);
  // The merge of the warps of few rows takes the place of the ring: sums, then largest and total of each
  // row.
  static_assert(kWarps * kFewRows * (D + 2) * sizeof(float) <= kStages * 2 * kMatrix * sizeof(Vec));
};

// Where the results of an item's row go.
template <int D>
struct Output {
  Attention const& a;
  AttentionItem const& item;
  int group;

  GPU_DEVICE int64_t head_of(int row) const {
    return int64_t(item.first_token + row / group) * a.query_heads + item.kv_head * group + row % group;
  }
  // Dimensions d and d + 1 of the normalised result, d even, and the log2 of what it was divided by.
  GPU_DEVICE void write(int row, int d, float x, float y, float log) const {
    if (item.partial < 0) {
      store(reinterpret_cast<uint32_t*>(a.out + head_of(row) * D + d), narrow(x, y));
      return;
    }
    int64_t const partial = item.partial + row;
    store(reinterpret_cast<Float2*>(a.partial_out + partial * D + d), Float2{{x, y}});
    if (d == 0) store(a.partial_log + partial, log);
  }
};

// log2(total * exp2(largest)), for a row that saw something.
GPU_DEVICE float log_of(float largest, float total) {
  return total > 0 ? largest + log2_fast(total) : -kInfinity;
}

// exp2 of x - largest where the largest may be -infinity, because nothing was seen.
GPU_DEVICE float relative_exp2(float x, float largest) {
  return largest == -kInfinity ? 0 : exp2_fast(x - largest);
}

template <int D, bool kFew>
GPU_DEVICE void attend(Attention const& a, AttentionItem const& item) {
  using L = Layout<D>;
  constexpr int kRows = kFew ? kFewRows : kManyRows;
  constexpr int kKeys = kFew ? kTileKeys / kWarps : kTileKeys;  // of a tile, for one warp
  constexpr int kCopies = L::kMatrix / kThreads;
  int const group = a.query_heads / a.kv.kv_heads, rows = item.tokens * group;
  Output<D> const output{a, item, group};
  Shared<Vec> const queries{0}, ring = queries + L::kRing;

  for (int i = thread_index(); i < kRows * L::kChunks; i += kThreads) {
    int const row = i / L::kChunks, chunk = i % L::kChunks;
    int64_t const head = output.head_of(row < rows ? row : 0);
    copy_async(queries + chunk_at<D>(row, chunk), reinterpret_cast<Vec const*>(a.q + head * D) + chunk,
               row < rows);
  }

  // Page ids are looked up one tile ahead, so that copies do not wait for them.
  int const tiles = (item.kv_end - item.kv_begin + kTileKeys - 1) / kTileKeys;
  int page_of[kCopies];
  auto const position_of = [&](int tile, int copy) {
    return item.kv_begin + tile * kTileKeys + (thread_index() + copy * kThreads) / L::kChunks;
  };
  auto const look_up = [&](int tile) {
    GPU_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      int const position = position_of(tile, i);
      page_of[i] = position < item.kv_end ? load(a.pages + item.pages_at + (position >> a.page_shift)) : 0;
    }
  };
  auto const keys_of = [&](int tile) { return ring + tile % L::kStages * 2 * L::kMatrix; };
  auto const fetch = [&](int tile) {
    if (tile < tiles) {
      Shared<Vec> const keys = keys_of(tile);
      GPU_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        int const at = thread_index() + i * kThreads, row = at / L::kChunks, chunk = at % L::kChunks;
        int const position = position_of(tile, i), slot = position & ((1 << a.page_shift) - 1);
        bool const inside = position < item.kv_end;
        bf16 const* const from = a.kv.layer + page_of[i] * a.kv.page_stride +
                                 (int64_t(item.kv_head << a.page_shift) + slot) * D + 8 * chunk;
        copy_async(keys + chunk_at<D>(row, chunk), reinterpret_cast<Vec const*>(from), inside);
        copy_async(keys + L::kMatrix + chunk_at<D>(row, chunk),
                   reinterpret_cast<Vec const*>(from + a.kv.values), inside);
      }
      look_up(tile + 1);
    }
    copy_commit();
  };
  look_up(0);
  GPU_UNROLL
  for (int i = 0; i < L::kStages - 1; ++i) fetch(i);

  // This lane's two rows, and the positions that they see.
  int const warp_row = kFew ? 0 : warp() * 16, warp_key = kFew ? warp() * kKeys : 0;
  int const in_quad = lane() % 4;
  int first[2], last[2];
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    int const row = warp_row + lane() / 4 + 8 * i;
    int const position = row < rows ? load(a.positions + item.first_token + row / group) : -1;
    last[i] = position < item.kv_end ? position : item.kv_end - 1;
    first[i] = a.sliding_window > 0 ? position - a.sliding_window + 1 : 0;
  }

  float const factor = a.scale * kLog2E;
  float sums[D / 8][4] = {};
  float largest[2] = {-kInfinity, -kInfinity},
        total[2] = {};  // of scores in powers of two; total: this lane's share
  for (int tile = 0; tile < tiles; ++tile) {
    copy_wait<L::kStages - 2>();
    block_sync();  // the tile is there for all, and nobody reads the stage that is filled next
    fetch(tile + L::kStages - 1);
    Shared<Vec> const keys = keys_of(tile), values = keys + L::kMatrix;

    float scores[kKeys / 8][4] = {};
    GPU_UNROLL
    for (int k = 0; k < D / 16; ++k) {
      Vec const left =
          load_matrices<false>(queries + chunk_at<D>(warp_row + lane() % 16, 2 * k + lane() / 16));
      GPU_UNROLL
      for (int n = 0; n < kKeys / 16; ++n) {
        int const key = warp_key + 16 * n + lane() / 16 * 8 + lane() % 8;
        Vec const right = load_matrices<false>(keys + chunk_at<D>(key, 2 * k + lane() / 8 % 2));
        multiply_add(scores[2 * n], left, right.word[0], right.word[1]);
        multiply_add(scores[2 * n + 1], left, right.word[2], right.word[3]);
      }
    }

    int const base = item.kv_begin + tile * kTileKeys + warp_key;
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      bool const all_seen = base >= first[i] && base + kKeys - 1 <= last[i];
      float top = largest[i];
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        GPU_UNROLL
        for (int j = 0; j < 2; ++j) {
          int const position = base + 8 * n + 2 * in_quad + j;
          float& score = scores[n][2 * i + j];
          score = all_seen || (position >= first[i] && position <= last[i]) ? score * factor : -kInfinity;
          top = fmaxf(top, score);
        }
      }
      top = fmaxf(top, shuffle_xor(top, 1));
      top = fmaxf(top, shuffle_xor(top, 2));
      float const rescale = relative_exp2(largest[i], top);
      float sum = 0;
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        GPU_UNROLL
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n][2 * i + j];
          score = relative_exp2(score, top);
          sum += score;
        }
      }
      total[i] = total[i] * rescale + sum;
      largest[i] = top;
      GPU_UNROLL
      for (int n = 0; n < D / 8; ++n) {
        sums[n][2 * i] *= rescale;
        sums[n][2 * i + 1] *= rescale;
      }
    }

    // The scores, now probabilities, lie as the left operand of the next product wants them.
    GPU_UNROLL
    for (int k = 0; k < kKeys / 16; ++k) {
      float const(&low)[4] = scores[2 * k], (&high)[4] = scores[2 * k + 1];
      Vec const left{{narrow(low[0], low[1]), narrow(low[2], low[3]), narrow(high[0], high[1]),
                      narrow(high[2], high[3])}};
      GPU_UNROLL
      for (int n = 0; n < D / 16; ++n) {
        int const key = warp_key + 16 * k + lane() % 16;
        Vec const right = load_matrices<true>(values + chunk_at<D>(key, 2 * n + lane() / 16));
        multiply_add(sums[2 * n], left, right.word[0], right.word[1]);
        multiply_add(sums[2 * n + 1], left, right.word[2], right.word[3]);
      }
    }
  }
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) total[i] = warp_sum(total[i], 4);

  if constexpr (kFew) {
    Shared<float> const sums_of = ring.as<float>();  // [warp][row][D]
    Shared<float> const largest_of = sums_of + kWarps * kRows * D, total_of = largest_of + kWarps * kRows;
    block_sync();  // nobody reads the ring any more
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const row = warp() * kRows + lane() / 4 + 8 * i;
      GPU_UNROLL
      for (int n = 0; n < D / 8; ++n)
        (sums_of + row * D + 8 * n).as<Float2>().set(in_quad, Float2{{sums[n][2 * i], sums[n][2 * i + 1]}});
      if (in_quad == 0) {
        largest_of.set(row, largest[i]);
        total_of.set(row, total[i]);
      }
    }
    block_sync();
    for (int i = thread_index(); i < rows * (D / 2); i += kThreads) {
      int const row = i / (D / 2), pair = i % (D / 2);
      float top = -kInfinity, all = 0, x = 0, y = 0;
      GPU_UNROLL
      for (int w = 0; w < kWarps; ++w) top = fmaxf(top, largest_of.get(w * kRows + row));
      GPU_UNROLL
      for (int w = 0; w < kWarps; ++w) {
        float const weight = relative_exp2(largest_of.get(w * kRows + row), top);
        Float2 const part = (sums_of + (w * kRows + row) * D).as<Float2>().get(pair);
        all += weight * total_of.get(w * kRows + row);
        x += weight * part.at[0];
        y += weight * part.at[1];
      }
      float const inverse = all > 0 ? 1 / all : 0;
      output.write(row, 2 * pair, x * inverse, y * inverse, log_of(top, all));
    }
  } else {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const row = warp_row + lane() / 4 + 8 * i;
      if (row >= rows) continue;
      float const inverse = total[i] > 0 ? 1 / total[i] : 0, log = log_of(largest[i], total[i]);
      GPU_UNROLL
      for (int n = 0; n < D / 8; ++n)
        output.write(row, 8 * n + 2 * in_quad, sums[n][2 * i] * inverse, sums[n][2 * i + 1] * inverse, log);
    }
  }
}

// The partial results of one token and KV head, in the order of the plan.
template <int D>
GPU_DEVICE void merge(Attention const& a, int token, int kv_head) {
  int const group = a.query_heads / a.kv.kv_heads, pair = token * a.kv.kv_heads + kv_head;
  int const begin = load(a.merge_begin + pair), end = load(a.merge_begin + pair + 1);
  for (int i = thread_index(); i < group * (D / 2); i += kThreads) {
    int const head = i / (D / 2), d = i % (D / 2) * 2;
    float top = -kInfinity, all = 0, x = 0, y = 0;
    for (int m = begin; m < end; ++m) top = fmaxf(top, load(a.partial_log + load(a.merge_rows + m) + head));
    for (int m = begin; m < end; ++m) {
      int64_t const row = load(a.merge_rows + m) + head;
      float const weight = relative_exp2(load(a.partial_log + row), top);
      Float2 const part = load(reinterpret_cast<Float2 const*>(a.partial_out + row * D + d));
      all += weight;
      x += weight * part.at[0];
      y += weight * part.at[1];
    }
    float const inverse = 1 / all;
    int64_t const out = (int64_t(token) * a.query_heads + kv_head * group + head) * D + d;
    store(reinterpret_cast<uint32_t*>(a.out + out), narrow(x * inverse, y * inverse));
  }
}

// Counts the item arrived for its tokens, and merges those for which it is the last.
template <int D>
GPU_DEVICE void arrive(Attention const& a, AttentionItem const& item) {
  Shared<int32_t> const is_last = (Shared<Vec>{0} + Layout<D>::kFlags).template as<int32_t>();
  block_sync();  // all of the item's results are written
  for (int i = thread_index(); i < item.tokens; i += kThreads) {
    int const pair = (item.first_token + i) * a.kv.kv_heads + item.kv_head;
    int const wanted = load(a.merge_begin + pair + 1) - load(a.merge_begin + pair);
    bool const last = add_acquire_release(a.arrived + pair, 1) == wanted - 1;
    if (last) store(a.arrived + pair, 0);
    is_last.set(i, last);
  }
  block_sync();
  for (int i = 0; i < item.tokens; ++i)
    if (is_last.get(i)) merge<D>(a, item.first_token + i, item.kv_head);
}

template <int D>
GPU_KERNEL(kThreads, kAttentionBlocks)
attention_kernel(Attention const a) {
  int const end = load(a.item_begin + block_index() + 1);
  for (int i = load(a.item_begin + block_index()); i < end; ++i) {
    AttentionItem const item = load(a.items + i);
    if (item.many_rows)
      attend<D, false>(a, item);
    else
      attend<D, true>(a, item);
    if (item.partial >= 0) arrive<D>(a, item);
    block_sync();  // the next item takes the shared memory
  }
}

template <int D>
void launch(Stream& stream, Attention const& a) {
  stream.launch("attention", attention_kernel<D>, {a.blocks, kThreads, Layout<D>::kBytes}, a);
}

}  // namespace

void attention(Stream& stream, Attention const& a) {
  switch (a.kv.head_size) {
    case 32:
      return launch<32>(stream, a);
    case 64:
      return launch<64>(stream, a);
    case 96:
      return launch<96>(stream, a);
    case 128:
      return launch<128>(stream, a);
    default:
      fail(BUNTING_INVALID, "attention has no kernel for heads of %d", a.kv.head_size);
  }
}

}  // namespace bunting::cuda
