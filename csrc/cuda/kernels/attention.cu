// attention.cu - softmax(scale * q k^T) v over paged keys and values; one launch for decodes, prompt chunks
// and shared prefixes alike, after a plan (attention_plan.h).
//
//   q, out  [T, Hq*D] bf16     pages  one layer of the KV pages, bf16 or e4m3     sums and softmax in f32
//
// An item is a tile of query rows (token, head of the group; the heads of a token lie together) against a
// range of positions. Keys and values pass in tiles of 64 positions through a ring in shared memory; the
// softmax is computed online (arXiv:2205.14135). Many rows (64): each of the four warps takes 16 rows. Few
// rows (16): for the scores each warp takes 16 keys of a tile, for the sums a quarter of the dimensions; in
// between they exchange what is largest in a row and the probabilities. What a row sees is decided by
// absolute positions alone.
//
// A row's arithmetic is the same in every item: tiles lie at multiples of 64 positions; a span of positions
// (span_end) is one chain, in which 64 scores are compared with what was largest, then four times 16 values
// are added; spans are summed up in rising order (Sum). Tiles and spans of which a row sees nothing change no
// bit. So results do not depend on how the step was composed and cut.
//
// Items that see only part of what their tokens see leave partial results and count themselves arrived for
// each of their tokens; the block that comes last for a token and KV head sums up all of them in this launch.
// So nobody waits, and it does not matter who came last.
//
// Keys and values in e4m3 become bf16 on the way to the instruction. Four neighbouring bytes are what a lane
// gets where it would get two bf16, so the order of dimensions within sixteen is another one, for the queries
// too: d, d + 2 and d + 1, d + 3 of each four, d rising by four from lane to lane (Dimensions).
//
// Slots of pages that nobody has written may hold any bits: rows from kv_end on are zeros.
//
// Work:     a persistent block per entry of item_begin.
// Roofline: decodes by memory, 4*D bytes per position and KV head; chunks by arithmetic, 4*D flops per
//           position and query row.
// Checked:  against reference::attention in double, two bf16 roundings; plans that split, share and permute
//           against each other, bit for bit.
#include "boundary/error.h"
#include "cuda/kernels/device.h"
#include "cuda/kernels/formats.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr float kLog2E = 1.44269504f;
constexpr float kInfinity = __builtin_inff();
constexpr int kPageShift = 4;           // pages of 16 tokens
constexpr uint32_t kOnes = 0x3f803f80;  // two of bf16

// A row of D elements is D/8 chunks of sixteen bytes. They are permuted so that the same chunk of eight
// neighbouring rows lies in eight different bank groups, whatever D / 16 is.
template <int D>
GPU_DEVICE int twist_of(int row) {
  return D % 64 == 0 ? row % 8 : D % 32 == 0 ? row / 2 % 4 : row / 4 % 2;
}
template <int D>
GPU_DEVICE int chunk_at(int row, int chunk) {
  return row * (D / 8) + (chunk ^ twist_of<D>(row));
}

// A row's chunks: [c] is chunk c ^ `other`. Where rows are as long as a power of two, a constant c costs one
// exclusive or, and rows a constant number of rows further cost nothing.
template <int D>
struct Row {
  uint32_t first;
  int twist;
  GPU_DEVICE Row(Shared<Vec> matrix, int row, int other)
      : first(matrix.at + uint32_t(row * D) * uint32_t(sizeof(bf16))), twist(twist_of<D>(row) ^ other) {}
  GPU_DEVICE Shared<Vec> operator[](int chunk) const {
    constexpr uint32_t kBytes = sizeof(Vec);
    if constexpr ((D & (D - 1)) == 0)
      return {(first + uint32_t(twist) * kBytes) ^ uint32_t(chunk) * kBytes};
    else
      return {first + uint32_t(chunk ^ twist) * kBytes};
  }
};

// Shared memory, in vectors: queries, then the ring of keys and values, then their multipliers if they are
// e4m3, then a flag per token. Few rows leave room behind the queries: for the probabilities of a tile, and
// for what is largest in a row, by warp.
template <int D, bool kFp8>
struct Layout {
  static constexpr int kChunks = D / 8;              // of a query
  static constexpr int kKvWidth = kFp8 ? D / 2 : D;  // of a key or value, in units of two bytes
  static constexpr int kKvChunks = kKvWidth / 8;
  static constexpr int kStages = kKvWidth <= 64 ? 3 : 2;
  static constexpr int kMatrix = kTileKeys * kKvChunks;  // keys or values of one stage
  static constexpr int kProbabilities = kFewRows * kChunks;
  static constexpr int kLargest = kProbabilities + kFewRows * kTileKeys / 8;
  static constexpr int kRing = kManyRows * kChunks;
  static constexpr int kMultipliers = kRing + kStages * 2 * kMatrix;
  static constexpr int kFlags = kMultipliers + (kFp8 ? kStages * kTileKeys / 4 : 0);
  static constexpr size_t kBytes = kFlags * sizeof(Vec) + kManyRows * sizeof(int32_t);
  static_assert(kLargest * sizeof(Vec) + kWarps * kFewRows * sizeof(float) <= kRing * sizeof(Vec));
};

// Two bf16 of a query in each word, eight of sixteen dimensions in the order in which e4m3 are read.
GPU_DEVICE Vec even_of_four(Vec const& a, Vec const& b) {
  constexpr uint32_t kLowHalves = 0x5410;
  return {{pick_bytes(a.word[0], a.word[1], kLowHalves), pick_bytes(a.word[2], a.word[3], kLowHalves),
           pick_bytes(b.word[0], b.word[1], kLowHalves), pick_bytes(b.word[2], b.word[3], kLowHalves)}};
}
GPU_DEVICE Vec odd_of_four(Vec const& a, Vec const& b) {
  constexpr uint32_t kHighHalves = 0x7632;
  return {{pick_bytes(a.word[0], a.word[1], kHighHalves), pick_bytes(a.word[2], a.word[3], kHighHalves),
           pick_bytes(b.word[0], b.word[1], kHighHalves), pick_bytes(b.word[2], b.word[3], kHighHalves)}};
}

// Pairs n = 0, 1, .. of neighbouring dimensions that a lane has of the sums: which, and where. In bf16
// sums[n] has one pair of each of two rows; in e4m3 sums[2c] and sums[2c + 1] have two.
template <bool kFp8>
struct Dimensions {
  GPU_DEVICE static int of(int n) {
    return kFp8 ? n / 2 * 16 + lane() % 4 * 4 + n % 2 * 2 : 8 * n + lane() % 4 * 2;
  }
  GPU_DEVICE static Float2 pair(float const (*sums)[4], int n, int row) {
    if constexpr (kFp8)
      return {{sums[n / 2 * 2][2 * row + n % 2], sums[n / 2 * 2 + 1][2 * row + n % 2]}};
    else
      return {{sums[n][2 * row], sums[n][2 * row + 1]}};
  }
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
  // Dimensions d and d + 1 of a row, d even. `span`: of the item, if it does not sum up its spans.
  GPU_DEVICE void write(int span, int row, int d, Float2 x, float log) const {
    if (item.partial < 0) {
      store(reinterpret_cast<uint32_t*>(a.out + head_of(row) * D + d), narrow(x.at[0], x.at[1]));
      return;
    }
    int64_t const partial = item.partial + (item.sums_up ? 0 : span * item.tokens * group) + row;
    store(reinterpret_cast<Float2*>(a.partial_out + partial * D + d), x);
    if (d == 0) store(a.partial_log + partial, log);
  }
};

// exp2 of x - largest where the largest may be -infinity, because nothing was seen.
GPU_DEVICE float relative_exp2(float x, float largest) {
  return largest == -kInfinity ? 0 : exp2_fast(x - largest);
}

// How results of some positions and of those that follow make one: each is normalised, and `log` is the log2
// of what it was divided by, -infinity if nothing was seen, which adds nothing.
struct Sum {
  float before = 1, after = 0, inverse = 1, log;

  GPU_DEVICE Sum(float log_before, float log_after) {
    log = log_before;
    if (log_after == -kInfinity) return;
    if (log_before == -kInfinity) {
      before = 0;
      after = 1;
      log = log_after;
      return;
    }
    float const top = fmaxf(log_before, log_after);
    before = exp2_fast(log_before - top);
    after = exp2_fast(log_after - top);
    inverse = 1 / (before + after);
    log = top + log2_fast(before + after);
  }
  GPU_DEVICE float of(float x, float y) const {
    return multiply_rounded(multiply_rounded(before, x) + multiply_rounded(after, y), inverse);
  }
  GPU_DEVICE Float2 of(Float2 x, Float2 y) const { return {{of(x.at[0], y.at[0]), of(x.at[1], y.at[1])}}; }
};

// sums[0], sums[1] += probabilities of sixteen keys times sixteen dimensions of values in e4m3, of the first
// eight keys and the second ones.
GPU_DEVICE void add_values(float (*sums)[4], Vec const& left, uint32_t first, uint32_t second,
                           uint32_t first_multipliers, uint32_t second_multipliers) {
  PairOfWords const low = widen_e4m3(first, first_multipliers, first_multipliers);
  PairOfWords const high = widen_e4m3(second, second_multipliers, second_multipliers);
  multiply_add(sums[0], left, low.even, high.even);
  multiply_add(sums[1], left, low.odd, high.odd);
}

template <int D, bool kFew, bool kFp8>
GPU_DEVICE void attend(Attention const& a, AttentionItem const& item) {
  using L = Layout<D, kFp8>;
  constexpr int kRows = kFew ? kFewRows : kManyRows;
  constexpr int kKeys = kFew ? kTileKeys / kWarps : kTileKeys;  // of a tile, for one warp
  constexpr int kCopies = L::kMatrix / kThreads;
  // Of the sums, for one warp: whole loads of values. Where these do not come out even, the last warp has
  // none.
  constexpr int kLoad = kFp8 ? 16 : 8;
  constexpr int kDimensions = kFew ? (D / kWarps + kLoad - 1) / kLoad * kLoad : D;
  int const group = a.query_heads / a.kv.kv_heads, rows = item.tokens * group;
  Output<D> const output{a, item, group};
  Shared<Vec> const queries{0}, probabilities = queries + L::kProbabilities, ring = queries + L::kRing;
  Shared<float> const largest_of = (queries + L::kLargest).template as<float>();  // [warp][row]

  if constexpr (kFp8) {
    for (int i = thread_index(); i < kRows * L::kChunks / 2; i += kThreads) {
      int const row = i / (L::kChunks / 2), chunk = i % (L::kChunks / 2) * 2;
      int64_t const head = output.head_of(row < rows ? row : 0);
      Vec const* const from = reinterpret_cast<Vec const*>(a.q + head * D) + chunk;
      Vec const first = row < rows ? load(from) : Vec{}, second = row < rows ? load(from + 1) : Vec{};
      queries.set(chunk_at<D>(row, chunk), even_of_four(first, second));
      queries.set(chunk_at<D>(row, chunk + 1), odd_of_four(first, second));
    }
  } else {
    for (int i = thread_index(); i < kRows * L::kChunks; i += kThreads) {
      int const row = i / L::kChunks, chunk = i % L::kChunks;
      int64_t const head = output.head_of(row < rows ? row : 0);
      copy_async(queries + chunk_at<D>(row, chunk), reinterpret_cast<Vec const*>(a.q + head * D) + chunk,
                 row < rows);
    }
  }

  // Page ids are looked up one tile ahead, so that copies do not wait for them: each lane one of the tile.
  int const tiles = (item.kv_end - item.kv_begin + kTileKeys - 1) / kTileKeys;
  int page_of_lane = 0;
  auto const look_up = [&](int tile) {
    int const page = ((item.kv_begin + tile * kTileKeys) >> kPageShift) + lane();
    if (page <= (item.kv_end - 1) >> kPageShift) page_of_lane = load(a.pages + item.pages_at + page);
  };
  auto const keys_of = [&](int tile) { return ring + tile % L::kStages * 2 * L::kMatrix; };
  [[maybe_unused]] auto const multipliers_of = [&](int tile) {
    return (queries + L::kMultipliers).template as<uint32_t>() + tile % L::kStages * kTileKeys;
  };
  auto const fetch = [&](int tile) {
    if (tile < tiles) {
      Shared<Vec> const keys = keys_of(tile);
      int const first_key = item.kv_begin + tile * kTileKeys;
      GPU_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        // Where it can be, a thread copies the same chunk of rows that lie equally far apart.
        int const at = thread_index() + i * kThreads;
        int const row = kThreads % L::kKvChunks == 0
                            ? thread_index() / L::kKvChunks + i * (kThreads / L::kKvChunks)
                            : at / L::kKvChunks;
        int const chunk = at % L::kKvChunks;
        int const slot = row & ((1 << kPageShift) - 1), page = shuffle(page_of_lane, row >> kPageShift);
        bool const inside = first_key + row < item.kv_end;
        bf16 const* const from = a.kv.layer + page * a.kv.page_stride +
                                 (int64_t(item.kv_head << kPageShift) + slot) * L::kKvWidth + 8 * chunk;
        copy_async(keys + chunk_at<L::kKvWidth>(row, chunk), reinterpret_cast<Vec const*>(from), inside);
        copy_async(keys + L::kMatrix + chunk_at<L::kKvWidth>(row, chunk),
                   reinterpret_cast<Vec const*>(from + a.kv.values), inside);
      }
      if constexpr (kFp8) {
        int const row = thread_index() % kTileKeys, slot = row & ((1 << kPageShift) - 1);
        int const page = shuffle(page_of_lane, row >> kPageShift);
        bf16 const* const from = a.kv.layer + page * a.kv.page_stride + a.kv.multipliers +
                                 2 * ((item.kv_head << kPageShift) + slot);
        if (thread_index() < kTileKeys)
          copy_async(multipliers_of(tile) + row, reinterpret_cast<uint32_t const*>(from),
                     first_key + row < item.kv_end);
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
  int const warp_dimension = kFew ? warp() * kDimensions : 0, in_quad = lane() % 4;
  bool const has_dimensions = kDimensions * kWarps <= D || warp_dimension < D;
  int first[2], last[2];
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    int const row = warp_row + lane() / 4 + 8 * i;
    int const position = row < rows ? load(a.positions + item.first_token + row / group) : -1;
    last[i] = position < item.kv_end ? position : item.kv_end - 1;
    first[i] = a.sliding_window > 0 ? position - a.sliding_window + 1 : 0;
  }

  Row<D> const query_row(queries, warp_row + lane() % 16, lane() / 16);
  float const factor = a.scale * kLog2E;
  float* const running = a.running + int64_t(block_index()) * kManyRows * D;
  float sums[kDimensions / 8][4] = {}, total[4] = {};  // total: of the probabilities, twice for each row
  float largest[2] = {-kInfinity, -kInfinity};         // of scores in powers of two
  float log[2];                                        // of the spans before
  int span = 0, end_of_span = span_end(item.kv_begin);
  for (int tile = 0; tile < tiles; ++tile) {
    copy_wait<L::kStages - 2>();
    block_sync();  // the tile is there for all, and nobody reads the stage that is filled next
    fetch(tile + L::kStages - 1);
    Shared<Vec> const keys = keys_of(tile), values = keys + L::kMatrix;

    Row<L::kKvWidth> const key_row(keys, warp_key + lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
    float scores[kKeys / 8][4] = {};
    if constexpr (kFp8) {
      Shared<uint32_t> const multipliers = multipliers_of(tile) + warp_key + lane() / 4;
      GPU_UNROLL
      for (int k = 0; k < D / 32; ++k) {
        Vec const left[2] = {load_matrices<false>(query_row[4 * k]),
                             load_matrices<false>(query_row[4 * k + 2])};
        GPU_UNROLL
        for (int n = 0; n < kKeys / 16; ++n) {
          Vec const bytes = load_matrices<false>(key_row[2 * k] + 16 * n * L::kKvChunks);
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
      for (int k = 0; k < D / 16; ++k) {
        Vec const left = load_matrices<false>(query_row[2 * k]);
        GPU_UNROLL
        for (int n = 0; n < kKeys / 16; ++n) {
          Vec const right = load_matrices<false>(key_row[2 * k] + 16 * n * L::kKvChunks);
          multiply_add(scores[2 * n], left, right.word[0], right.word[1]);
          multiply_add(scores[2 * n + 1], left, right.word[2], right.word[3]);
        }
      }
    }

    int const first_key = item.kv_begin + tile * kTileKeys, base = first_key + warp_key;
    float top[2];
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      bool const all_seen = base >= first[i] && base + kKeys - 1 <= last[i];
      top[i] = -kInfinity;
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        GPU_UNROLL
        for (int j = 0; j < 2; ++j) {
          int const position = base + 8 * n + 2 * in_quad + j;
          float& score = scores[n][2 * i + j];
          bool const seen = all_seen || (position >= first[i] && position <= last[i]);
          score = seen ? multiply_rounded(score, factor) : -kInfinity;
          top[i] = fmaxf(top[i], score);
        }
      }
      top[i] = fmaxf(top[i], shuffle_xor(top[i], 1));
      top[i] = fmaxf(top[i], shuffle_xor(top[i], 2));
      if (kFew && in_quad == 0) largest_of.set(warp() * kFewRows + lane() / 4 + 8 * i, top[i]);
    }
    if constexpr (kFew) {
      block_sync();  // what is largest of each warp's keys is there
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        GPU_UNROLL
        for (int w = 0; w < kWarps; ++w)
          top[i] = fmaxf(top[i], largest_of.get(w * kFewRows + lane() / 4 + 8 * i));
      }
    }
    float rescale[2];
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      top[i] = fmaxf(top[i], largest[i]);
      rescale[i] = relative_exp2(largest[i], top[i]);
      largest[i] = top[i];
    }
    uint32_t pairs[kKeys / 8][2];  // of probabilities
    GPU_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 2; ++i)
        pairs[n][i] =
            narrow(relative_exp2(scores[n][2 * i], top[i]), relative_exp2(scores[n][2 * i + 1], top[i]));
    }
    GPU_UNROLL
    for (int n = 0; n < kDimensions / 8; ++n) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) sums[n][j] *= rescale[j / 2];
    }
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) total[j] *= rescale[j / 2];

    // Of the values of keys 2t and 2t + 1 behind `key`.
    [[maybe_unused]] auto const value_multipliers = [&](int key) {
      Shared<uint32_t> const at = multipliers_of(tile) + key + 2 * in_quad;
      return pick_bytes(at.get(0), at.get(1), 0x7632);
    };
    if constexpr (kFew) {
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) {
          Shared<Vec> const at = probabilities + chunk_at<kTileKeys>(lane() / 4 + 8 * i, warp_key / 8 + n);
          at.template as<uint32_t>().set(in_quad, pairs[n][i]);
        }
      }
      block_sync();  // the probabilities of all keys are there
      GPU_UNROLL
      for (int k = 0; k < kTileKeys / 16 && has_dimensions; k += 2) {
        Vec left[2];
        GPU_UNROLL
        for (int j = 0; j < 2; ++j) {
          left[j] = load_matrices<false>(probabilities +
                                         chunk_at<kTileKeys>(lane() % 16, 2 * (k + j) ^ lane() / 16));
          multiply_add(total, left[j], kOnes, kOnes);
        }
        if constexpr (kFp8) {
          uint32_t of_values[4];
          GPU_UNROLL
          for (int j = 0; j < 4; ++j) of_values[j] = value_multipliers(16 * k + 8 * j);
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
                load_matrices<true>(values + chunk_at<D>(16 * k + lane(), warp_dimension / 8 + n));
            multiply_add(sums[n], left[0], right.word[0], right.word[1]);
            multiply_add(sums[n], left[1], right.word[2], right.word[3]);
          }
        }
      }
    } else {
      Row<L::kKvWidth> const value_row(values, lane() % 16, lane() / 16);
      GPU_UNROLL
      for (int k = 0; k < kTileKeys / 16; ++k) {
        // The probabilities lie as the left operand wants them.
        Vec const left{{pairs[2 * k][0], pairs[2 * k][1], pairs[2 * k + 1][0], pairs[2 * k + 1][1]}};
        multiply_add(total, left, kOnes, kOnes);
        if constexpr (kFp8) {
          uint32_t const first_values = value_multipliers(16 * k),
                         second_values = value_multipliers(16 * k + 8);
          GPU_UNROLL
          for (int n = 0; n < kDimensions / 32; ++n) {
            Vec const bytes = load_matrices<true>(value_row[2 * n] + 16 * k * L::kKvChunks);
            GPU_UNROLL
            for (int j = 0; j < 2; ++j)
              add_values(&sums[4 * n + 2 * j], left, bytes.word[2 * j], bytes.word[2 * j + 1], first_values,
                         second_values);
          }
        } else {
          GPU_UNROLL
          for (int n = 0; n < kDimensions / 16; ++n) {
            Vec const right = load_matrices<true>(value_row[2 * n] + 16 * k * L::kKvChunks);
            multiply_add(sums[2 * n], left, right.word[0], right.word[1]);
            multiply_add(sums[2 * n + 1], left, right.word[2], right.word[3]);
          }
        }
      }
    }

    bool const is_last = tile == tiles - 1;
    if (!is_last && first_key + kTileKeys < end_of_span) continue;
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const row = warp_row + lane() / 4 + 8 * i;
      float const inverse = total[2 * i] > 0 ? 1 / total[2 * i] : 0;
      float const log_of_span = total[2 * i] > 0 ? largest[i] + log2_fast(total[2 * i]) : -kInfinity;
      Sum const sum(span > 0 ? log[i] : -kInfinity, log_of_span);
      log[i] = item.sums_up ? sum.log : log_of_span;
      GPU_UNROLL
      for (int n = 0; n < kDimensions / 8; ++n) {
        if (row >= rows || !has_dimensions) continue;
        int const d = warp_dimension + Dimensions<kFp8>::of(n);
        Float2 const pair = Dimensions<kFp8>::pair(sums, n, i);
        Float2* const before = reinterpret_cast<Float2*>(running + row * D + d);
        Float2 x{{multiply_rounded(pair.at[0], inverse), multiply_rounded(pair.at[1], inverse)}};
        if (item.sums_up && span > 0) x = sum.of(load(before), x);
        if (item.sums_up && !is_last)
          store(before, x);
        else
          output.write(span, row, d, x, log[i]);
      }
      GPU_UNROLL
      for (int n = 0; n < kDimensions / 8; ++n) sums[n][2 * i] = sums[n][2 * i + 1] = 0;
      total[2 * i] = total[2 * i + 1] = 0;
      largest[i] = -kInfinity;
    }
    ++span;
    end_of_span = span_end(end_of_span);
  }
}

// Sums up the partial results of one token and KV head.
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
    int64_t const out = (int64_t(token) * a.query_heads + kv_head * group + head) * D + d;
    store(reinterpret_cast<uint32_t*>(a.out + out), narrow(x.at[0], x.at[1]));
  }
}

// Counts the item's results arrived for its tokens, and merges those for which they are the last.
template <int D, bool kFp8>
GPU_DEVICE void arrive(Attention const& a, AttentionItem const& item) {
  Shared<int32_t> const is_last = (Shared<Vec>{0} + Layout<D, kFp8>::kFlags).template as<int32_t>();
  int const results = item.sums_up ? 1 : spans_in(item.kv_begin, item.kv_end);
  block_sync();  // all of the item's results are written
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
    if (item.many_rows)
      attend<D, false, kFp8>(a, item);
    else
      attend<D, true, kFp8>(a, item);
    if (item.partial >= 0) arrive<D, kFp8>(a, item);
    block_sync();  // the next item takes the shared memory
  }
}

template <int D, bool kFp8 = false>
void launch(Stream& stream, Attention const& a) {
  stream.launch("attention", attention_kernel<D, kFp8>, {a.blocks, kThreads, Layout<D, kFp8>::kBytes}, a);
}

}  // namespace

void attention(Stream& stream, Attention const& a) {
  if (a.kv.fp8) {
    if (a.kv.head_size == 64) return launch<64, true>(stream, a);
    if (a.kv.head_size == 96) return launch<96, true>(stream, a);
    if (a.kv.head_size == 128) return launch<128, true>(stream, a);
    fail(BUNTING_INVALID, "attention has no kernel for heads of %d in e4m3", a.kv.head_size);
  }
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
