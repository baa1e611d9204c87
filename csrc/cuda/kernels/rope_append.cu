// rope_append.cu - steps between the QKV product and attention: norm of q and k heads, rotation, append.
//
//   qkv  [T, (Hq + 2*Hk) * D] f32     q  [T, Hq*D] bf16     pages  bf16 or e4m3, see KvPages
//
//   x = x / sqrt(mean(x^2) + epsilon) * norm                       (if there is a norm; v has no weights)
//   x[i], x[i + R/2] = x[i] cos[i] - x[i + R/2] sin[i], x[i + R/2] cos[i] + x[i] sin[i]
//                                                      (i < R/2; q and k, if there are angles)
//   (the norm of heads may come after the rotation instead)
//   x = x * query_scale[position]                                                (q, if there is one)
//
// Work:     one warp per token and head. Per turn a lane holds two adjacent pairs: (i, i + R/2) in the
//           rotated part; in the rest a pair is half the rest's length apart.
// Roofline: memory, 6 * D bytes per head. For a norm over all heads each head's warp adds up all of them,
//           from L1 and L2.
// Checked:  against reference::rope_append in double, one rounding to bf16 or e4m3.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4;
constexpr int kTurnDimensions = 4 * kWarp;            // dimensions of a head that a warp processes per turn
constexpr int kExponentMin = -100, kExponentMax = 7;  // range of the exponents of e4m3 multipliers
constexpr float kInfinity = __builtin_inff();

// Place in a head of the pairs with numbers i and i + 1, i even: index of their first elements, and distance
// to their second elements.
struct Place {
  int low, apart;
  GPU_DEVICE Place(int i, int d, int rotated)
      : low(i < rotated / 2 ? i : i + rotated / 2), apart((i < rotated / 2 ? rotated : d - rotated) / 2) {}
};

// Returns the factor of a norm over all heads of q, or of k, in a row.
GPU_DEVICE float wide_scale(RopeAppend const& a, float const* row, bool is_q) {
  int const d = a.kv.head_size, heads = is_q ? a.query_heads : a.kv.kv_heads;
  if (!is_q) row += a.query_heads * d;
  float squares = 0;
  for (int i = lane(); i < heads * d / 4; i += kWarp) {
    Float4 const v = load(reinterpret_cast<Float4 const*>(row) + i);
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) squares += v.at[j] * v.at[j];
  }
  return reciprocal_sqrt(warp_sum(squares) / float(heads * d) + a.norm_epsilon);
}

// Writes a head's numbers in e4m3, and their multiplier.
template <int kTurns>
GPU_DEVICE void append_e4m3(Float2 const (&low)[kTurns], Float2 const (&high)[kTurns], int d, int rotated,
                            bf16* out, bf16* multiplier) {
  float largest = 0;
  bool finite = true;
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    if (2 * lane() + turn * 2 * kWarp >= d / 2) continue;
    GPU_UNROLL
    for (int j = 0; j < 2; ++j) {
      float const x = fabsf(low[turn].at[j]), y = fabsf(high[turn].at[j]);
      finite = finite && x < kInfinity && y < kInfinity;
      largest = fmaxf(largest, fmaxf(x, y));
    }
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
  finite = ballot(finite) == ~0u;

  // largest / 2^exponent is at most 448, 1.75 * 2^8, and the exponent is the smallest such one.
  uint32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  int exponent = int(bits >> 23) - 127 - ((bits & 0x7fffff) > 0x600000 ? 7 : 8);
  exponent = exponent < kExponentMin ? kExponentMin : exponent > kExponentMax ? kExponentMax : exponent;
  uint32_t const factor_bits = uint32_t(127 - exponent) << 23;
  float factor;
  memcpy(&factor, &factor_bits, sizeof factor);
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    int const i = 2 * lane() + turn * 2 * kWarp;
    if (i >= d / 2) continue;
    auto const pair = [&](Float2 const& x) {
      return uint16_t(narrow_e4m3(x.at[0] * factor) | narrow_e4m3(x.at[1] * factor) << 8);
    };
    Place const place(i, d, rotated);
    store(out + place.low / 2, pair(low[turn]));
    store(out + (place.low + place.apart) / 2, pair(high[turn]));
  }
  if (lane() == 0) store(multiplier, finite ? bf16((120 + 127 + exponent) << 7) : bf16(0x7fc0));
}

template <int kTurns>
GPU_KERNEL(kWarps* kWarp, 12 / kTurns)
rope_append_kernel(RopeAppend const a) {
  int const d = a.kv.head_size, heads = a.query_heads + 2 * a.kv.kv_heads;
  int64_t const task = int64_t(block_index()) * kWarps + warp();
  if (task >= int64_t(a.tokens) * heads) return;
  int const token = int(task / heads), head = int(task % heads);
  bool const is_q = head < a.query_heads, is_v = head >= a.query_heads + a.kv.kv_heads;
  int const rotated = a.cos ? a.rotated : d;

  float const* const row = a.qkv + int64_t(token) * (heads - (a.values_are_keys ? a.kv.kv_heads : 0)) * d;
  float const* const in = row + (is_v && a.values_are_keys ? head - a.kv.kv_heads : head) * d;
  Float2 low[kTurns], high[kTurns];
  float squares = 0;
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    int const i = 2 * lane() + turn * 2 * kWarp;
    if (i >= d / 2) continue;
    Place const place(i, d, rotated);
    low[turn] = load(reinterpret_cast<Float2 const*>(in + place.low));
    high[turn] = load(reinterpret_cast<Float2 const*>(in + place.low + place.apart));
    GPU_UNROLL
    for (int j = 0; j < 2; ++j)
      squares += low[turn].at[j] * low[turn].at[j] + high[turn].at[j] * high[turn].at[j];
  }
  float const* norm = is_v ? nullptr : is_q ? a.q_norm : a.k_norm;
  float scale = 1;
  if (norm && a.has_wide_norms) {
    scale = wide_scale(a, row, is_q);
    norm += (is_q ? head : head - a.query_heads) * d;
  } else if (norm || (is_v ? a.has_value_norm : a.has_unit_norms)) {
    scale = reciprocal_sqrt(warp_sum(squares) / float(d) + a.norm_epsilon);
  }

  int const position = load(a.positions + token);
  int64_t const angles = int64_t(token) * (rotated / 2);
  float growth = is_v || a.has_unit_norms ? scale : 1;
  if (is_q && a.query_scale) growth *= load(a.query_scale + position);
  bool const is_after = norm && a.norms_after;
  float rotated_squares = 0;
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    int const i = 2 * lane() + turn * 2 * kWarp;
    if (i >= d / 2) continue;
    Place const place(i, d, rotated);
    Float2 &x = low[turn], &y = high[turn];
    if (norm && !is_after) {
      Float2 const first = load(reinterpret_cast<Float2 const*>(norm + place.low));
      Float2 const second = load(reinterpret_cast<Float2 const*>(norm + place.low + place.apart));
      GPU_UNROLL
      for (int j = 0; j < 2; ++j) {
        x.at[j] *= scale * first.at[j];
        y.at[j] *= scale * second.at[j];
      }
    }
    if (!is_v && a.cos && i < rotated / 2) {
      Float2 const cos = load(reinterpret_cast<Float2 const*>(a.cos + angles + i));
      Float2 const sin = load(reinterpret_cast<Float2 const*>(a.sin + angles + i));
      GPU_UNROLL
      for (int j = 0; j < 2; ++j) {
        float const before = x.at[j];
        x.at[j] = before * cos.at[j] - y.at[j] * sin.at[j];
        y.at[j] = y.at[j] * cos.at[j] + before * sin.at[j];
      }
    }
    GPU_UNROLL
    for (int j = 0; j < 2; ++j) {
      rotated_squares += x.at[j] * x.at[j] + y.at[j] * y.at[j];
      x.at[j] *= growth;
      y.at[j] *= growth;
    }
  }
  if (is_after) {
    scale = reciprocal_sqrt(warp_sum(rotated_squares) / float(d) + a.norm_epsilon);
    GPU_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      int const i = 2 * lane() + turn * 2 * kWarp;
      if (i >= d / 2) continue;
      Place const place(i, d, rotated);
      Float2 const first = load(reinterpret_cast<Float2 const*>(norm + place.low));
      Float2 const second = load(reinterpret_cast<Float2 const*>(norm + place.low + place.apart));
      GPU_UNROLL
      for (int j = 0; j < 2; ++j) {
        low[turn].at[j] *= scale * first.at[j];
        high[turn].at[j] *= scale * second.at[j];
      }
    }
  }

  bf16* out = a.q + (int64_t(token) * a.query_heads + head) * d;
  if (!is_q) {
    int const slot = load(a.slots + token), kv_head = (head - a.query_heads) % a.kv.kv_heads;
    if (slot == kNoSlot) return;
    int64_t const page = slot / a.kv.page_tokens * a.kv.page_stride;
    int const slot_row = kv_head * a.kv.page_tokens + slot % a.kv.page_tokens;
    out = a.kv.layer + page + (is_v ? a.kv.values : 0) + slot_row * int64_t(a.kv.fp8 ? d / 2 : d);
    if (a.kv.fp8)
      return append_e4m3(low, high, d, rotated, out,
                         a.kv.layer + page + a.kv.multipliers + 2 * slot_row + (is_v ? 1 : 0));
  }
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    int const i = 2 * lane() + turn * 2 * kWarp;
    if (i >= d / 2) continue;
    Place const place(i, d, rotated);
    store(reinterpret_cast<uint32_t*>(out + place.low), narrow(low[turn].at[0], low[turn].at[1]));
    store(reinterpret_cast<uint32_t*>(out + place.low + place.apart),
          narrow(high[turn].at[0], high[turn].at[1]));
  }
}

}  // namespace

void rope_append(Stream& stream, RopeAppend const& a) {
  int64_t const tasks = int64_t(a.tokens) * (a.query_heads + 2 * a.kv.kv_heads);
  int32_t const blocks = int32_t((tasks + kWarps - 1) / kWarps);
  auto* const kernel = a.kv.head_size <= 2 * kTurnDimensions ? rope_append_kernel<2> : rope_append_kernel<4>;
  if (blocks > 0) stream.launch("rope_append", kernel, {blocks, kWarps * kWarp, 0}, a);
}

}  // namespace bunting::cuda
