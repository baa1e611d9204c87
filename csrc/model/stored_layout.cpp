#include "model/stored_layout.h"

#include <algorithm>
#include <vector>

#include "boundary/error.h"

namespace bunting {

namespace {

constexpr int32_t kFlags = BUNTING_PAIRED_ROWS | BUNTING_ONE_LESS | BUNTING_EVERY_SECOND |
                           BUNTING_TRANSPOSED | BUNTING_GROUPED_HEADS | BUNTING_HALF_ROWS |
                           BUNTING_KEYS_WITH_VALUES | BUNTING_GATED_HEADS | BUNTING_NEGATED_EXP |
                           BUNTING_ROW_PER_HEAD;

}  // namespace

StoredLayout::StoredLayout(int32_t dtype_and_flags, TensorKind const& kind, TensorTarget const& to,
                           Model const& model, int32_t layer)
    : dtype(dtype_and_flags & ~kFlags),
      type(stored_type(dtype)),
      is_paired(dtype_and_flags & BUNTING_PAIRED_ROWS),
      is_one_less(dtype_and_flags & BUNTING_ONE_LESS),
      is_every_second(dtype_and_flags & BUNTING_EVERY_SECOND),
      is_transposed(dtype_and_flags & BUNTING_TRANSPOSED),
      is_half_rows(dtype_and_flags & BUNTING_HALF_ROWS),
      is_grouped(dtype_and_flags & BUNTING_GROUPED_HEADS),
      is_gated(dtype_and_flags & BUNTING_GATED_HEADS),
      is_negated_exp(dtype_and_flags & BUNTING_NEGATED_EXP),
      is_row_per_head(dtype_and_flags & BUNTING_ROW_PER_HEAD),
      is_with_values(dtype_and_flags & BUNTING_KEYS_WITH_VALUES),
      is_vector(!to.part.data),
      rows(to.rows),
      cols(to.cols) {
  bunting_layer_shape const& has = model.layer_shape(layer);
  bunting_model_shape const& shape = model.shape();
  if (RopeTable const* const rope = is_paired ? model.rope(layer) : nullptr) {
    order.head_size = has.head_size;
    order.rotated = rope->dimensions;
    if (model.is_latent(layer)) {
      order.unrotated = kind.kind == BUNTING_T_Q ? shape.key_size : shape.latent_rank;
      order.head_size = order.unrotated + order.rotated;
    }
  }
  if (is_with_values) {
    heads = shape.query_heads;
    order.run_step = shape.key_size + shape.value_size;
    if (kind.kind == BUNTING_T_LATENT_KEYS) turned = shape.latent_rank;
    if (kind.kind == BUNTING_T_LATENT_VALUES) order.run = shape.value_size, order.run_first = shape.key_size;
  }
  if (is_every_second) order.step = 2;
  if (is_row_per_head) order.repeats = has.head_size;
  if (is_gated) {
    runs = shape.query_heads;
    order.run_step = 2 * has.head_size;
  } else if (is_grouped && kind.traits & kGroupedHeads) {
    runs = has.kv_heads;
    order.run_step = (shape.query_heads / has.kv_heads + 2) * has.head_size;
  } else if (is_grouped && kind.traits & (kStateHeads | kGateHeads)) {
    runs = shape.state_key_heads;
    int64_t const heads_each = shape.state_heads / std::max(1, shape.state_key_heads);
    order.run_step =
        2 *
        (kind.traits & kGateHeads ? heads_each : shape.state_key_size + heads_each * shape.state_value_size);
  }
  if (is_in_runs()) order.run = (is_vector ? cols : rows) / std::max<int64_t>(1, runs);
}

void StoredLayout::validate(TensorKind const& kind, TensorTarget const& to, std::string const& where) const {
  auto const refuse = [&](char const* why) { fail(BUNTING_INVALID, "%s %s", where.c_str(), why); };
  if (!type) fail(BUNTING_INVALID, "%s has unknown element type %d", where.c_str(), dtype);
  if (is_paired && !(kind.traits & kRotated)) refuse("cannot have its rows in pairs");
  if (is_one_less && !(kind.traits & kNormWeights)) refuse("cannot be stored less 1");
  if (is_grouped && (!(kind.traits & (kGroupedHeads | kStateHeads | kGateHeads)) || runs == 0))
    refuse("cannot have its rows grouped by head");
  if (is_with_values && !(kind.traits & kOfLatent)) refuse("cannot be in one matrix with values");
  if (is_gated && !(kind.traits & kGatedHeads)) refuse("cannot alternate with a gate");
  if (is_in_runs() && (is_paired || is_every_second || (is_grouped && is_gated)))
    refuse("cannot be grouped by head and in another order");
  if (is_row_per_head && (kind.kind != BUNTING_T_Q_GATE || is_gated)) refuse("cannot have a row per head");
  if (is_negated_exp && !(kind.traits & kDecay)) refuse("cannot be stored as its negated exponential");
  if ((is_every_second || is_transposed) && !(kind.traits & kPerExpert))
    refuse("cannot be interleaved or transposed");
  if (is_half_rows && (!is_transposed || is_every_second)) refuse("has half rows, but is not transposed");
  if (is_transposed && (type->block > 1 || is_vector))
    refuse("cannot be transposed: it is not plain numbers");
  if (stored_cols() % type->block != 0)
    fail(BUNTING_INVALID, "%s has rows of %lld, no whole number of %s blocks of %lld", where.c_str(),
         (long long)stored_cols(), type->name, (long long)type->block);
  if (to.part.grouped() && !is_rounded_to(to.part.dtype) && int32_t(to.part.dtype) != dtype)
    fail(BUNTING_INVALID, "%s is to stay in %s, but is stored in %s", where.c_str(),
         stored_type(int32_t(to.part.dtype))->name, type->name);
}

// Numbers of the file up to the last one of this tensor.
int64_t StoredLayout::numbers() const {
  int64_t const row = is_vector ? 1 : cols;
  if (is_with_values) return stored_rows() * stored_cols();
  if (is_in_runs()) return ((runs - 1) * order.run_step + order.run) * row;
  if (is_row_per_head) return stored_rows() * cols;
  if (is_half_rows) return (2 * cols - 1) * rows;
  if (!is_every_second) return rows * cols;
  if (is_transposed) return 2 * rows * cols - 1;
  return is_vector ? 2 * cols - 1 : (2 * rows - 1) * cols;
}

bool StoredLayout::read(char const* from, float* to) const {
  std::vector<float> stored(static_cast<size_t>(numbers()));
  int64_t const blocks = numbers() / type->block;
  if (!type->is_finite(from, blocks)) return false;
  type->decode(from, blocks, stored.data());
  for (int64_t i = 0; i < rows * cols; i++)
    to[i] = stored[size_t(order.source(i))] + (is_one_less ? 1.0f : 0.0f);
  return true;
}

// A kernel packs plain numbers, and blocks of the matrix's own type, as they are. Others become Q8_0 from
// Q4_0 where a matrix has both, or f32.
bool StoredLayout::pack(Kernels const& kernels, PackedMatrix const& to, char const* rows, char* converted,
                        float factor) const {
  int64_t const blocks = to.n * to.k / type->block;
  if (!type->is_finite(rows, blocks)) return false;
  if (factor != 1) {
    float* const numbers = reinterpret_cast<float*>(converted);
    type->decode(rows, blocks, numbers);
    for (int64_t i = 0; i < to.n * to.k; i++) numbers[i] *= factor;
    kernels.pack(to, converted, Dtype::f32, 0, 1);
  } else if (type->block == 1 || int32_t(to.dtype) == dtype) {
    kernels.pack(to, rows, Dtype(dtype), 0, 1);
  } else if (to.dtype == Dtype::q8 && dtype == BUNTING_Q4_0) {
    widen_q4_0(rows, blocks, converted);
    kernels.pack(to, converted, Dtype::q8, 0, 1);
  } else {
    type->decode(rows, blocks, reinterpret_cast<float*>(converted));
    kernels.pack(to, converted, Dtype::f32, 0, 1);
  }
  return true;
}

// Copies columns [first, first + count) of a row of the file, which lie in one block, into a column of `to`.
bool StoredLayout::copy_columns(char const* row, int64_t first, int64_t count, float* to) const {
  float numbers[256];
  int64_t const length = std::max<int64_t>(type->block, kPanel), begin = first / length * length;
  char const* const from = row + type->bytes_of(begin);
  if (!type->is_finite(from, length / type->block)) return false;
  type->decode(from, length / type->block, numbers);
  for (int64_t i = 0; i < count; i++) to[i * cols] = numbers[first - begin + i];
  return true;
}

bool StoredLayout::pack_columns(Kernels const& kernels, PackedMatrix const& to, int64_t panel,
                                char const* from, float* converted) const {
  int64_t const step = order.step, stored_row = rows * (is_half_rows ? 2 : step), first = panel * kPanel;
  float numbers[2 * kPanel];
  for (int64_t k = 0; k < to.k; k++) {
    char const* const column = from + type->bytes_of(k * stored_row + first * step);
    int64_t const count = (to.n - 1) * step + 1;
    if (!type->is_finite(column, count)) return false;
    type->decode(column, count, numbers);
    for (int64_t i = 0; i < to.n; i++) converted[i * to.k + k] = numbers[i * step];
  }
  kernels.pack(to, converted, Dtype::f32, 0, 1);
  return true;
}

}  // namespace bunting
