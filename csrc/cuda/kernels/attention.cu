// attention.cu - softmax(scale * q k^T) v over paged keys and values. One launch computes decodes, prompt
// chunks and shared prefixes, following a plan (attention_plan.h).
//
//   q, out  [T, Hq*D] bf16     pages  one layer of the KV pages, bf16 or e4m3     sums and softmax in f32
//
// An item is a tile of query rows (token, head of the group; the heads of a token are adjacent) against a
// range of positions. Keys and values pass in tiles of 64 positions through a ring in shared memory. The
// softmax is online (arXiv:2205.14135).
//
//   many rows (64)  each of the four warps computes 16 rows
//   few rows (16)   each warp computes the scores of 16 keys of a tile, then a quarter of the dimensions of
//                   the output; in between the warps exchange row maxima and probabilities
//
// Absolute positions alone decide which keys a row sees. With heads of 256 shared memory holds one tile: the
// next keys replace its keys while its values are added. The registers cannot hold the sums of many rows
// either, so the kernel computes 16 rows at a time. Heads of 512 are processed in two halves of the
// dimensions, which alternate in shared memory.
//
// A row's arithmetic is the same in every item. Tiles begin at multiples of 64 positions. A span of positions
// (span_end) is one chain: 64 scores update the row maximum, then four times 16 values are added. Spans are
// added in rising order (Sum). Tiles and spans of which a row sees nothing change no bit. So results do not
// depend on the composition of the step or on its partition.
//
// An item that covers only part of its tokens' positions leaves partial results and adds to an arrival
// counter per token and KV head. The block that arrives last merges all partial results of that token and
// head, in this launch (split-K). So no block waits for another, and the order of arrival does not change a
// result.
//
// Keys and values in e4m3 are widened to bf16 before the matrix instruction. A lane reads four adjacent bytes
// instead of two bf16, so the order of dimensions within sixteen differs, for queries too. Of each four
// dimensions one word has d and d + 2, the other d + 1 and d + 3; d rises by four from lane to lane
// (Dimensions).
//
// Slots of pages that were never written may hold any bits: rows from kv_end on are replaced by zeros.
//
// Work:     a persistent block per entry of item_begin.
// Roofline: decodes by memory, 4*D bytes per position and KV head; chunks by arithmetic, 4*D flops per
//           position and query row.
// Checked:  against reference::attention in double, two bf16 roundings; plans that split, share and permute
//           against each other, bit for bit.
#include "boundary/error.h"
#include "cuda/kernels/attention_softmax.h"
#include "cuda/kernels/device.h"
#include "cuda/kernels/formats.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr uint32_t kOnes = 0x3f803f80;  // two bf16

// Compile-time variant of the kernel: heads of D, few or many rows per item, keys and values in bf16 or e4m3.
template <int D, bool kFew, bool kFp8>
struct Shape {
  static constexpr int kRows = kFew ? kFewRows : kManyRows;
  static constexpr int kKeys = kFew ? kTileKeys / kWarps : kTileKeys;  // keys of a tile per warp
  // Dimensions of the output per warp, in whole loads of values. If D does not divide evenly, the last warp
  // has none.
  static constexpr int kLoad = kFp8 ? 16 : 8;
  static constexpr int kDimensions = kFew ? (D / kWarps + kLoad - 1) / kLoad * kLoad : D;
  static constexpr int kPartDimensions = kDimensions / Layout<D, kFp8>::kParts;
};

// Adds a part of queries times sixteen keys to scores[2n] and scores[2n + 1]. `key_row` is this lane's key;
// `multipliers`, for e4m3, begins at the lane's first key.
template <int D, bool kFp8, int kKeys>
GPU_DEVICE void score(float (&scores)[kKeys / 8][4], Row<D> const& query_row, [[maybe_unused]] int part,
                      Row<Layout<D, kFp8>::kPartWidth> const& key_row,
                      [[maybe_unused]] Shared<uint32_t> multipliers) {
  using L = Layout<D, kFp8>;
  if constexpr (kFp8) {
    GPU_UNROLL
    for (int k = 0; k < D / 32; ++k) {
      Vec const left[2] = {load_matrices<false>(query_row[4 * k]),
                           load_matrices<false>(query_row[4 * k + 2])};
      GPU_UNROLL
      for (int n = 0; n < kKeys / 16; ++n) {
        Vec const bytes = load_matrices<false>(key_row[2 * k] + 16 * n * L::kPartChunks);
        GPU_UNROLL
        for (int half = 0; half < 2; ++half) {
          uint32_t const both = multipliers.get(16 * n + 8 * half), of_key = pick_bytes(both, both, 0x1010);
          GPU_UNROLL
          for (int j = 0; j < 2; ++j) {
            PairOfWords const right = widen_e4m3(bytes.word[2 * half + j], of_key, of_key);
            multiply_add(scores[2 * n + half], left[j], right.even, right.odd);
          }
        }
      }
    }
  } else {
    GPU_UNROLL
    for (int k = 0; k < L::kPartWidth / 16; ++k) {
      Vec const left = load_matrices<false>(query_row[part * L::kPartChunks + 2 * k]);
      GPU_UNROLL
      for (int n = 0; n < kKeys / 16; ++n) {
        Vec const right = load_matrices<false>(key_row[2 * k] + 16 * n * L::kPartChunks);
        multiply_add(scores[2 * n], left, right.word[0], right.word[1]);
        multiply_add(scores[2 * n + 1], left, right.word[2], right.word[3]);
      }
    }
  }
}

// Returns the multipliers of the values of keys 2t and 2t + 1 after `key`.
GPU_DEVICE uint32_t value_multipliers(Shared<uint32_t> multipliers, int key) {
  Shared<uint32_t> const at = multipliers + key + 2 * (lane() % 4);
  return pick_bytes(at.get(0), at.get(1), 0x7632);
}

// Adds probabilities of sixteen keys times sixteen dimensions of e4m3 values to sums[0] and sums[1]. The
// first words are of the first eight keys, the second words of the other eight.
GPU_DEVICE void add_values(float (*sums)[4], Vec const& left, uint32_t first, uint32_t second,
                           uint32_t first_multipliers, uint32_t second_multipliers) {
  PairOfWords const low = widen_e4m3(first, first_multipliers, first_multipliers);
  PairOfWords const high = widen_e4m3(second, second_multipliers, second_multipliers);
  multiply_add(sums[0], left, low.even, high.even);
  multiply_add(sums[1], left, low.odd, high.odd);
}

// Many rows: multiplies a warp's own probabilities, already in the layout of the left operand, by all values
// of a tile.
template <int D, bool kFp8>
GPU_DEVICE void add_many(Span<D>& span, uint32_t const (&pairs)[kTileKeys / 8][2], Shared<Vec> values,
                         [[maybe_unused]] Shared<uint32_t> multipliers) {
  using L = Layout<D, kFp8>;
  Row<L::kKvWidth> const value_row(values, lane() % 16, lane() / 16);
  GPU_UNROLL
  for (int k = 0; k < kTileKeys / 16; ++k) {
    Vec const left{{pairs[2 * k][0], pairs[2 * k][1], pairs[2 * k + 1][0], pairs[2 * k + 1][1]}};
    multiply_add(span.total, left, kOnes, kOnes);
    if constexpr (kFp8) {
      uint32_t const first_values = value_multipliers(multipliers, 16 * k),
                     second_values = value_multipliers(multipliers, 16 * k + 8);
      GPU_UNROLL
      for (int n = 0; n < D / 32; ++n) {
        Vec const bytes = load_matrices<true>(value_row[2 * n] + 16 * k * L::kPartChunks);
        GPU_UNROLL
        for (int j = 0; j < 2; ++j)
          add_values(&span.sums[4 * n + 2 * j], left, bytes.word[2 * j], bytes.word[2 * j + 1], first_values,
                     second_values);
      }
    } else {
      GPU_UNROLL
      for (int n = 0; n < D / 16; ++n) {
        Vec const right = load_matrices<true>(value_row[2 * n] + 16 * k * L::kPartChunks);
        multiply_add(span.sums[2 * n], left, right.word[0], right.word[1]);
        multiply_add(span.sums[2 * n + 1], left, right.word[2], right.word[3]);
      }
    }
  }
}

// Few rows: multiplies the probabilities of all warps, in shared memory, by a warp's dimensions of a part of
// the values.
template <int D, bool kFp8>
GPU_DEVICE void add_few(Span<Shape<D, true, kFp8>::kDimensions>& span, int part, Shared<Vec> probabilities,
                        Shared<Vec> values, int warp_dimension,
                        [[maybe_unused]] Shared<uint32_t> multipliers) {
  using L = Layout<D, kFp8>;
  constexpr int kDimensions = Shape<D, true, kFp8>::kPartDimensions;
  float (*const sums)[4] = span.sums + part * (kDimensions / 8);
  GPU_UNROLL
  for (int k = 0; k < kTileKeys / 16; k += 2) {
    Vec left[2];
    GPU_UNROLL
    for (int j = 0; j < 2; ++j) {
      left[j] =
          load_matrices<false>(probabilities + chunk_at<kTileKeys>(lane() % 16, 2 * (k + j) ^ lane() / 16));
      if (part == 0) multiply_add(span.total, left[j], kOnes, kOnes);
    }
    if constexpr (kFp8) {
      uint32_t of_values[4];
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) of_values[j] = value_multipliers(multipliers, 16 * k + 8 * j);
      GPU_UNROLL
      for (int n = 0; n < kDimensions / 16; ++n) {
        Vec const bytes =
            load_matrices<true>(values + chunk_at<L::kKvWidth>(16 * k + lane(), warp_dimension / 16 + n));
        GPU_UNROLL
        for (int j = 0; j < 2; ++j)
          add_values(&sums[2 * n], left[j], bytes.word[2 * j], bytes.word[2 * j + 1], of_values[2 * j],
                     of_values[2 * j + 1]);
      }
    } else {
      GPU_UNROLL
      for (int n = 0; n < kDimensions / 8; ++n) {
        Vec const right =
            load_matrices<true>(values + chunk_at<L::kPartWidth>(16 * k + lane(), warp_dimension / 8 + n));
        multiply_add(sums[n], left[0], right.word[0], right.word[1]);
        multiply_add(sums[n], left[1], right.word[2], right.word[3]);
      }
    }
  }
}

// Computes row maxima over the keys of all warps. `largest_of` is [warp][row].
GPU_DEVICE void exchange_largest(float (&top)[2], Shared<float> largest_of) {
  GPU_UNROLL
  for (int i = 0; i < 2; ++i)
    if (lane() % 4 == 0) largest_of.set(warp() * kFewRows + lane() / 4 + 8 * i, top[i]);
  block_sync();  // waits for the maxima of all warps
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    GPU_UNROLL
    for (int w = 0; w < kWarps; ++w)
      top[i] = fmaxf(top[i], largest_of.get(w * kFewRows + lane() / 4 + 8 * i));
  }
}

// Stores the probabilities of this warp's keys for all warps.
template <int kKeys>
GPU_DEVICE void share_probabilities(uint32_t const (&pairs)[kKeys / 8][2], Shared<Vec> probabilities,
                                    int warp_key) {
  GPU_UNROLL
  for (int n = 0; n < kKeys / 8; ++n) {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      Shared<Vec> const at = probabilities + chunk_at<kTileKeys>(lane() / 4 + 8 * i, warp_key / 8 + n);
      at.template as<uint32_t>().set(lane() % 4, pairs[n][i]);
    }
  }
  block_sync();  // waits for the probabilities of all keys
}

// Destination of the results of a lane's spans: separate, or added to the earlier spans, whose sums are in
// `running`.
template <int D, bool kFew, bool kFp8>
struct SpanResults {
  using S = Shape<D, kFew, kFp8>;
  Output<D> output;
  float* running;  // [rows, D], of this block
  int rows, first_row, dimension;
  bool has_dimensions;
  int spans = 0;      // number of spans written so far
  float log[2] = {};  // log of the earlier spans

  // Normalises a span, writes it, and clears it. `is_last`: it is the item's last span.
  GPU_DEVICE void add(Span<S::kDimensions>& span, bool is_last) {
    bool const sums_up = output.item.sums_up;
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const row = first_row + 8 * i;
      float const total = span.total[2 * i], inverse = total > 0 ? 1 / total : 0;
      float const log_of_span = total > 0 ? span.largest[i] + log2_fast(total) : -kInfinity;
      Sum const sum(spans > 0 ? log[i] : -kInfinity, log_of_span);
      log[i] = sums_up ? sum.log : log_of_span;
      GPU_UNROLL
      for (int n = 0; n < S::kDimensions / 8; ++n) {
        if (row >= rows || !has_dimensions) continue;
        constexpr int kOfPart = S::kPartDimensions / 8;
        int const d =
            n / kOfPart * Layout<D, kFp8>::kPartWidth + dimension + Dimensions<kFp8>::of(n % kOfPart);
        Float2 const pair = Dimensions<kFp8>::pair(span.sums, n, i);
        Float2* const before = reinterpret_cast<Float2*>(running + row * D + d);
        Float2 x{{multiply_rounded(pair.at[0], inverse), multiply_rounded(pair.at[1], inverse)}};
        if (sums_up && spans > 0) x = sum.of(load(before), x);
        if (sums_up && !is_last)
          store(before, x);
        else
          output.write(spans, row, d, x, log[i]);
      }
      span.clear(i);
    }
    ++spans;
  }
};

// Computes one item: its rows from `begin` on, as many as the variant has, against its positions, tile by
// tile and span by span.
template <int D, bool kFew, bool kFp8>
GPU_DEVICE void attend(Attention const& a, AttentionItem const& item, int begin) {
  using L = Layout<D, kFp8>;
  using S = Shape<D, kFew, kFp8>;
  constexpr bool kOneStage = L::kStages == 1;
  static_assert(kFew || !kOneStage);
  int const group = a.query_heads / a.kv.kv_heads, rows = item.tokens * group;
  Output<D> const output{a, item, group};
  Shared<Vec> const shared{0}, queries = shared, probabilities = shared + L::kProbabilities;
  Shared<float> const largest_of = (shared + L::kLargest).template as<float>();

  fetch_queries<D, kFp8, S::kRows>(queries, a.q, rows - begin,
                                   [&](int row) { return output.head_of(begin + row); });
  Ring<D, kFp8> ring{a, item, shared};
  ring.begin();

  int const warp_row = kFew ? 0 : warp() * 16, warp_key = kFew ? warp() * S::kKeys : 0;
  int const warp_dimension = kFew ? warp() * S::kPartDimensions : 0,
            first_row = begin + warp_row + lane() / 4;
  bool const has_dimensions = S::kDimensions * kWarps <= D || warp_dimension < D;
  Seen const seen(a, item, group, first_row);
  Row<D> const query_row(queries, warp_row + lane() % 16, lane() / 16);
  float const factor = a.scale * kLog2E;
  Span<S::kDimensions> span;
  SpanResults<D, kFew, kFp8> results{output,         a.running + int64_t(block_index()) * kManyRows * D,
                                     rows,           first_row,
                                     warp_dimension, has_dimensions};
  int end_of_span = span_end(item.kv_begin);
  for (int tile = 0; tile < ring.tiles; ++tile) {
    int const first_key = item.kv_begin + tile * kTileKeys;
    float scores[S::kKeys / 8][4] = {}, top[2];
    GPU_KEEP_LOOP  // there are not enough registers for the addresses of two parts
        for (int part = 0; part < L::kParts; ++part) {
      copy_wait<kOneStage ? 1 : L::kStages - 2>();
      // Waits until the tile, or part of its keys, is complete and no thread reads the stage to fill next.
      block_sync();
      if constexpr (!kOneStage) ring.fetch(tile + L::kStages - 1);
      Row<L::kPartWidth> const key_row(ring.keys(tile, part), warp_key + lane() / 16 * 8 + lane() % 8,
                                       lane() / 8 % 2);
      score<D, kFp8, S::kKeys>(scores, query_row, part, key_row,
                               ring.multipliers(tile) + warp_key + lane() / 4);
      if (part == L::kParts - 1) break;
      block_sync();  // no thread reads this part after this barrier
      ring.fetch_piece(tile, part + 2);
    }
    if (a.cap > 0) cap_scores(scores, a.scale, a.cap);
    seen.template mask<S::kKeys>(scores, top, first_key + warp_key, factor);
    if constexpr (kFew) exchange_largest(top, largest_of);
    if constexpr (kOneStage) ring.fetch_piece(tile, L::kParts + 1);  // no thread reads the keys here

    uint32_t pairs[S::kKeys / 8][2];
    span.template take<S::kKeys>(scores, top, pairs);
    if constexpr (kOneStage) copy_wait<1>();
    if constexpr (kFew) {
      share_probabilities<S::kKeys>(pairs, probabilities, warp_key);
      GPU_UNROLL
      for (int part = 0; part < L::kParts; ++part) {
        if (has_dimensions)
          add_few<D, kFp8>(span, part, probabilities, ring.values(tile, part), warp_dimension,
                           ring.multipliers(tile));
        if (part == L::kParts - 1) break;
        block_sync();  // no thread reads this part after this barrier
        ring.fetch_piece(tile, L::kParts + part + 2);
        copy_wait<1>();
        block_sync();  // the next part is complete after this barrier
      }
    } else {
      add_many<D, kFp8>(span, pairs, ring.values(tile), ring.multipliers(tile));
    }
    bool const is_last = tile == ring.tiles - 1;
    if (kOneStage && !is_last) {
      block_sync();  // no thread reads the values after this barrier
      ring.fetch_piece(tile, 2 * L::kParts + 1);
    }

    if (!is_last && first_key + kTileKeys < end_of_span) continue;
    results.add(span, is_last);
    end_of_span = span_end(end_of_span);
  }
}

// Merges the partial results of one token and KV head.
template <int D>
GPU_DEVICE void merge(Attention const& a, int token, int kv_head) {
  int const group = a.query_heads / a.kv.kv_heads, pair = token * a.kv.kv_heads + kv_head;
  int const begin = load(a.merge_begin + pair), end = load(a.merge_begin + pair + 1);
  for (int i = thread_index(); i < group * (D / 2); i += kThreads) {
    int const head = i / (D / 2), d = i % (D / 2) * 2;
    float log = -kInfinity;
    Float2 x{};
    for (int m = begin; m < end; ++m) {
      int64_t const row = load(a.merge_rows + m) + head;
      Sum const sum(log, load(a.partial_log + row));
      x = sum.of(x, load(reinterpret_cast<Float2 const*>(a.partial_out + row * D + d)));
      log = sum.log;
    }
    int const query_head = kv_head * group + head;
    int64_t const out = (int64_t(token) * a.query_heads + query_head) * D + d;
    store(reinterpret_cast<uint32_t*>(a.out + out), result_of(a, query_head, x, log));
  }
}

// Adds the item's results to its tokens' arrival counters, and merges those for which it arrives last.
template <int D, bool kFp8>
GPU_DEVICE void arrive(Attention const& a, AttentionItem const& item) {
  Shared<int32_t> const is_last = (Shared<Vec>{0} + Layout<D, kFp8>::kFlags).template as<int32_t>();
  int const results = item.sums_up ? 1 : spans_in(item.kv_begin, item.kv_end);
  block_sync();  // waits until all of the item's results are written
  for (int i = thread_index(); i < item.tokens; i += kThreads) {
    int const pair = (item.first_token + i) * a.kv.kv_heads + item.kv_head;
    int const wanted = load(a.merge_begin + pair + 1) - load(a.merge_begin + pair);
    bool const last = add_acquire_release(a.arrived + pair, results) == wanted - results;
    if (last) store(a.arrived + pair, 0);
    is_last.set(i, last);
  }
  block_sync();
  for (int i = 0; i < item.tokens; ++i)
    if (is_last.get(i)) merge<D>(a, item.first_token + i, item.kv_head);
}

template <int D, bool kFp8>
GPU_KERNEL(kThreads, kAttentionBlocks)
attention_kernel(Attention const a) {
  int const end = load(a.item_begin + block_index() + 1);
  for (int i = load(a.item_begin + block_index()); i < end; ++i) {
    AttentionItem const item = load(a.items + i);
    if constexpr (Layout<D, kFp8>::kStages == 1) {
      int const rows = item.tokens * (a.query_heads / a.kv.kv_heads);
      for (int begin = 0; begin < rows; begin += kFewRows) {
        if (begin > 0) block_sync();  // these rows reuse the shared memory
        attend<D, true, kFp8>(a, item, begin);
      }
    } else if (item.many_rows) {
      attend<D, false, kFp8>(a, item, 0);
    } else {
      attend<D, true, kFp8>(a, item, 0);
    }
    if (item.partial >= 0) arrive<D, kFp8>(a, item);
    block_sync();  // the next item reuses the shared memory
  }
}

template <int D, bool kFp8>
LaunchShape shape_of(int32_t blocks) {
  return {blocks, kThreads, Layout<D, kFp8>::kBytes};
}

// Calls `use` with a kernel as a template: `use.template operator()<D, kFp8>()`.
template <class Use>
auto with_kernel(int32_t head_size, bool is_fp8, Use const& use) {
  if (is_fp8) {
    if (head_size == 64) return use.template operator()<64, true>();
    if (head_size == 96) return use.template operator()<96, true>();
    if (head_size == 128) return use.template operator()<128, true>();
    fail(BUNTING_INVALID, "attention has no kernel for heads of %d in e4m3", head_size);
  }
  switch (head_size) {
    case 32:
      return use.template operator()<32, false>();
    case 64:
      return use.template operator()<64, false>();
    case 96:
      return use.template operator()<96, false>();
    case 128:
      return use.template operator()<128, false>();
    case 256:
      return use.template operator()<256, false>();
    case 512:
      return use.template operator()<512, false>();
    default:
      fail(BUNTING_INVALID, "attention has no kernel for heads of %d", head_size);
  }
}

}  // namespace

void attention(Stream& stream, Attention const& a) {
  with_kernel(a.kv.head_size, a.kv.fp8, [&]<int D, bool kFp8>() {
    stream.launch("attention", attention_kernel<D, kFp8>, shape_of<D, kFp8>(a.blocks), a);
  });
}

int32_t attention_blocks_resident(int32_t head_size, bool is_fp8) {
  return with_kernel(head_size, is_fp8, [&]<int D, bool kFp8>() {
    return resident_blocks(attention_kernel<D, kFp8>, shape_of<D, kFp8>(1));
  });
}

}  // namespace bunting::cuda
