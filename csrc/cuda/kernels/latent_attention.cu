// latent_attention.cu - softmax(scale * q k^T) v over paged latents, whose first numbers are the values.
//
//   q  [T, Hq*D] bf16     out  [T, Hq*latent] bf16     pages  [page][..][Tp][D] bf16     softmax in f32
//
// A block has 16 query heads of one token and walks all positions up to the token's, 64 at a time, with the
// online softmax of attention.cu. Each of its four warps computes the scores of 16 positions, then a quarter
// of the output's dimensions, in groups of 16. Keys and values go from global memory to registers; blocks of
// the same sequence find them in L2.
//
// A row's arithmetic depends on its positions alone, as one block has all of them.
//
// Slots from the token's position on may hold any bits: their numbers are replaced by zeros.
//
// Work:     a block per token and 16 heads.
// Roofline: memory, 2*D bytes per position and 16 heads, mostly from L2.
// Checked:  against reference::attention in double, two bf16 roundings.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4, kRows = 16, kKeys = 64;
constexpr int kKeysOfWarp = kKeys / kWarps;
constexpr int kGroups = kLatentMax / 16 / kWarps;  // of 16 dimensions, per warp
constexpr int kRowWords = kKeys / 2 + 4;           // of probabilities; rows begin in other banks
constexpr uint32_t kOnes = 0x3f803f80;             // two bf16
constexpr float kLog2E = 1.44269504f, kInfinity = __builtin_inff();

// Row of a position in its page; null beyond `last`.
GPU_DEVICE bf16 const* row_of(LatentAttention const& a, int32_t const* pages, int position, int last) {
  if (position > last) return nullptr;
  int64_t const page = load(pages + position / a.kv.page_tokens);
  return a.kv.layer + page * a.kv.page_stride + int64_t(position % a.kv.page_tokens) * a.kv.head_size;
}

GPU_DEVICE uint32_t word_at(bf16 const* row, int column) {
  return row ? load(reinterpret_cast<uint32_t const*>(row + column)) : 0;
}

GPU_KERNEL(kWarps* kWarp, 2) latent_attention_kernel(LatentAttention const a) {
  int const d = a.kv.head_size, blocks_of_token = (a.query_heads + kRows - 1) / kRows;
  int const token = block_index() / blocks_of_token, first_head = block_index() % blocks_of_token * kRows;
  if (load(a.slots + token) == kNoSlot) return;
  int const last = load(a.positions + token), row = lane() / 4, pair = 2 * (lane() % 4);
  int32_t const* const pages = a.pages + load(a.pages_at + token);
  Shared<float> const largest_of{0};  // [warp][row]
  Shared<uint32_t> const probabilities = (largest_of + kWarps * kRows).as<uint32_t>();

  bf16 const* q[2];
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    int const head = first_head + row + 8 * i;
    q[i] = head < a.query_heads ? a.q + (int64_t(token) * a.query_heads + head) * d + pair : nullptr;
  }
  float const factor = a.scale * kLog2E;
  float largest[2] = {-kInfinity, -kInfinity}, total[4] = {}, sums[kGroups][2][4] = {};
  for (int first = 0; first <= last; first += kKeys) {
    int const of_warp = first + warp() * kKeysOfWarp;
    bf16 const* keys[2];
    GPU_UNROLL
    for (int n = 0; n < 2; ++n) keys[n] = row_of(a, pages, of_warp + 8 * n + row, last);
    float scores[2][4] = {};
    for (int k = 0; k < d; k += 16) {
      Vec const left{{word_at(q[0], k), word_at(q[1], k), word_at(q[0], k + 8), word_at(q[1], k + 8)}};
      GPU_UNROLL
      for (int n = 0; n < 2; ++n)
        multiply_add(scores[n], left, word_at(keys[n], k + pair), word_at(keys[n], k + pair + 8));
    }
    float top[2] = {-kInfinity, -kInfinity};
    GPU_UNROLL
    for (int n = 0; n < 2; ++n) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) {
        scores[n][j] = of_warp + 8 * n + pair + j % 2 <= last ? scores[n][j] * factor : -kInfinity;
        top[j / 2] = fmaxf(top[j / 2], scores[n][j]);
      }
    }
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      top[i] = fmaxf(top[i], shuffle_xor(top[i], 1));
      top[i] = fmaxf(top[i], shuffle_xor(top[i], 2));
      if (lane() % 4 == 0) largest_of.set(warp() * kRows + row + 8 * i, top[i]);
    }
    block_sync();  // waits for the maxima of all warps, and for the readers of the last tile's probabilities
    float rescale[2];
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      float most = largest[i];
      GPU_UNROLL
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, largest_of.get(w * kRows + row + 8 * i));
      rescale[i] = exp2_fast(largest[i] - most);
      largest[i] = most;
      GPU_UNROLL
      for (int n = 0; n < 2; ++n)
        probabilities.set((row + 8 * i) * kRowWords + (warp() * kKeysOfWarp + 8 * n + pair) / 2,
                          narrow(exp2_fast(scores[n][2 * i] - most), exp2_fast(scores[n][2 * i + 1] - most)));
    }
    block_sync();  // waits for the probabilities of all positions
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      total[j] *= rescale[j / 2];
      GPU_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        sums[g][0][j] *= rescale[j / 2];
        sums[g][1][j] *= rescale[j / 2];
      }
    }
    for (int k = 0; k < kKeys; k += 16) {
      Shared<uint32_t> const at = probabilities + row * kRowWords + (k + pair) / 2;
      Vec const left{{at.get(0), at.get(8 * kRowWords), at.get(4), at.get(8 * kRowWords + 4)}};
      multiply_add(total, left, kOnes, kOnes);
      bf16 const* values[4];
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) values[j] = row_of(a, pages, first + k + pair + j % 2 + j / 2 * 8, last);
      GPU_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        int const dimension = (g * kWarps + warp()) * 16;
        if (dimension >= a.latent) continue;
        uint32_t word[4];
        GPU_UNROLL
        for (int j = 0; j < 4; ++j) word[j] = word_at(values[j], dimension + 2 * row);
        // Column c of the first product is dimension 2c, and of the second dimension 2c + 1.
        multiply_add(sums[g][0], left, pick_bytes(word[0], word[1], 0x5410),
                     pick_bytes(word[2], word[3], 0x5410));
        multiply_add(sums[g][1], left, pick_bytes(word[0], word[1], 0x7632),
                     pick_bytes(word[2], word[3], 0x7632));
      }
    }
  }
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    int const head = first_head + row + 8 * i;
    if (head >= a.query_heads) continue;
    float const inverse = 1 / total[2 * i];
    bf16* const out = a.out + (int64_t(token) * a.query_heads + head) * a.latent + 2 * pair;
    GPU_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      int const dimension = (g * kWarps + warp()) * 16;
      if (dimension >= a.latent) continue;
      GPU_UNROLL
      for (int j = 0; j < 2; ++j)
        store(reinterpret_cast<uint32_t*>(out + dimension + 2 * j),
              narrow(sums[g][0][2 * i + j] * inverse, sums[g][1][2 * i + j] * inverse));
    }
  }
}

}  // namespace

void latent_attention(Stream& stream, LatentAttention const& a) {
  int32_t const blocks = a.tokens * ((a.query_heads + kRows - 1) / kRows);
  constexpr int32_t kSharedBytes = (kWarps * kRows + kRows * kRowWords) * 4;
  if (blocks > 0)
    stream.launch("latent_attention", latent_attention_kernel, {blocks, kWarps * kWarp, kSharedBytes}, a);
}

}  // namespace bunting::cuda
