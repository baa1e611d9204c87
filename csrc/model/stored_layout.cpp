#include "model/stored_layout.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "boundary/error.h"

namespace bunting {

namespace {

constexpr int64_t kElementsPerPiece = 1 << 18;  // handled at a time by one thread
constexpr int32_t kFlags = BUNTING_PAIRED_ROWS | BUNTING_ONE_LESS | BUNTING_EVERY_SECOND |
                           BUNTING_TRANSPOSED | BUNTING_GROUPED_HEADS | BUNTING_HALF_ROWS;

}  // namespace

StoredLayout::StoredLayout(int32_t dtype_and_flags, TensorTarget const& to, Model const& model, int32_t layer,
                           bool is_layer_tensor)
    : dtype(dtype_and_flags & ~kFlags),
      type(stored_type(dtype)),
      is_paired(dtype_and_flags & BUNTING_PAIRED_ROWS),
      is_one_less(dtype_and_flags & BUNTING_ONE_LESS),
      is_every_second(dtype_and_flags & BUNTING_EVERY_SECOND),
      is_transposed(dtype_and_flags & BUNTING_TRANSPOSED),
      is_half_rows(dtype_and_flags & BUNTING_HALF_ROWS),
      is_grouped(dtype_and_flags & BUNTING_GROUPED_HEADS),
      is_vector(!to.part.data),
      rows(to.rows),
      cols(to.cols) {
  bunting_layer_shape const& has = model.layer_shape(layer);
  if (is_layer_tensor) kv_heads = has.kv_heads;
  if (RopeTable const* const rope = is_paired ? model.rope(layer) : nullptr) {
    order.head_size = has.head_size;
    order.rotated = rope->dimensions;
  }
  if (is_every_second) order.step = 2;
  if (is_grouped) {
    order.run = (is_vector ? cols : rows) / kv_heads;
    order.run_step = (model.shape().query_heads / kv_heads + 2) * has.head_size;
  }
}

void StoredLayout::validate(TensorKind const& kind, TensorTarget const& to, std::string const& where) const {
  auto const refuse = [&](char const* why) { fail(BUNTING_INVALID, "%s %s", where.c_str(), why); };
  if (!type) fail(BUNTING_INVALID, "%s has unknown element type %d", where.c_str(), dtype);
  if (is_paired && !(kind.traits & kRotated)) refuse("cannot have its rows in pairs");
  if (is_one_less && !(kind.traits & kNormWeights)) refuse("cannot be stored less 1");
  if (is_grouped && !(kind.traits & kGroupedHeads)) refuse("cannot have its rows grouped by head");
  if (is_grouped && (is_paired || is_every_second)) refuse("cannot be grouped by head and in another order");
  if ((is_every_second || is_transposed) && !(kind.traits & kPerExpert))
    refuse("cannot be interleaved or transposed");
  if (is_half_rows && (!is_transposed || is_every_second)) refuse("has half rows, but is not transposed");
  if (is_transposed && (type->block > 1 || is_vector))
    refuse("cannot be transposed: it is not plain numbers");
  if (cols % type->block != 0)
    fail(BUNTING_INVALID, "%s has rows of %lld, no whole number of %s blocks of %lld", where.c_str(),
         (long long)cols, type->name, (long long)type->block);
  if (to.part.grouped() && !is_rounded_to(to.part.dtype) && int32_t(to.part.dtype) != dtype)
    fail(BUNTING_INVALID, "%s is to stay in %s, but is stored in %s", where.c_str(),
         stored_type(int32_t(to.part.dtype))->name, type->name);
}

// Numbers of the file up to the last one of this tensor.
int64_t StoredLayout::numbers() const {
  int64_t const row = is_vector ? 1 : cols;
  if (is_grouped) return ((kv_heads - 1) * order.run_step + order.run) * row;
  if (is_half_rows) return (2 * cols - 1) * rows;
  if (!is_every_second) return rows * cols;
  if (is_transposed) return 2 * rows * cols - 1;
  return is_vector ? 2 * cols - 1 : (2 * rows - 1) * cols;
}

bool StoredLayout::is_finite(char const* from, ThreadPool& pool) const {
  std::atomic<bool> all{true};
  int64_t const blocks = numbers() / type->block;
  int64_t const piece = std::max<int64_t>(1, kElementsPerPiece / type->block);
  pool.run((blocks + piece - 1) / piece, 1, [&](int64_t begin, int64_t end, int) {
    int64_t const first = begin * piece, last = std::min(end * piece, blocks);
    if (!type->is_finite(from + first * type->bytes, last - first)) all = false;
  });
  return all;
}

void StoredLayout::read(char const* from, float* to) const {
  std::vector<float> stored(static_cast<size_t>(numbers()));
  type->decode(from, numbers() / type->block, stored.data());
  for (int64_t i = 0; i < rows * cols; i++)
    to[i] = stored[size_t(order.source(i))] + (is_one_less ? 1.0f : 0.0f);
}

bool StoredLayout::pack(Kernels const& kernels, PackedMatrix const& to, char const* from,
                        ThreadPool& pool) const {
  bool const is_in_order = order.rotated == 0 && !is_every_second && !is_transposed && !is_grouped;
  if (!is_in_order && !is_finite(from, pool)) return false;
  std::atomic<bool> all{true};
  bool const as_is = is_in_order && is_packable(to);
  int64_t const grain = std::max<int64_t>(1, kElementsPerPiece / (to.kp() * kPanel));
  int64_t const buffer_bytes = kPanel * cols * int64_t(sizeof(float));  // no stored type takes more
  std::vector<char> buffers(as_is ? 0 : size_t(buffer_bytes * pool.threads()));
  pool.run(to.panels(), grain, [&](int64_t begin, int64_t end, int thread) {
    char* const buffer = buffers.data() + thread * buffer_bytes;
    int64_t const first = begin * kPanel * cols, last = std::min(end * kPanel, to.n) * cols;
    // Reads the rows just before they are packed, so that memory is read once.
    if (is_in_order && !type->is_finite(from + type->bytes_of(first), (last - first) / type->block))
      all = false;
    if (as_is)
      kernels.pack(to, from, Dtype(dtype), begin, end);
    else if (is_transposed)
      pack_columns(kernels, to, from, reinterpret_cast<float*>(buffer), begin, end);
    else
      pack_rows(kernels, to, from, buffer, begin, end);
  });
  return all;
}

// True if a kernel packs stored rows as they are: plain numbers, or blocks of the matrix's own type.
bool StoredLayout::is_packable(PackedMatrix const& to) const {
  return type->block == 1 || int32_t(to.dtype) == dtype;
}

// Packs panels [begin, end) of `to` from rows in any order by way of `rows`, room for kPanel rows in f32:
// copied as they are, Q4_0 as Q8_0 where a matrix has both, or decoded to f32.
void StoredLayout::pack_rows(Kernels const& kernels, PackedMatrix const& to, char const* from, char* rows,
                             int64_t begin, int64_t end) const {
  int64_t const stored_bytes = type->bytes_of(to.k);
  bool const as_is = is_packable(to);
  bool const is_widened = to.dtype == Dtype::q8 && dtype == BUNTING_Q4_0;
  Dtype const packed_from = as_is ? Dtype(dtype) : is_widened ? Dtype::q8 : Dtype::f32;
  int64_t row_bytes = to.k * int64_t(sizeof(float));
  if (as_is)
    row_bytes = stored_bytes;
  else if (is_widened)
    row_bytes = stored_type(BUNTING_Q8_0)->bytes_of(to.k);
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t const first = panel * kPanel, count = std::min<int64_t>(kPanel, to.n - first);
    for (int64_t i = 0; i < count; i++) {
      char const* const stored = from + order.source(first + i) * stored_bytes;
      char* const at = rows + i * row_bytes;
      if (as_is)
        std::memcpy(at, stored, size_t(row_bytes));
      else if (is_widened)
        widen_q4_0(stored, to.k / type->block, at);
      else
        type->decode(stored, to.k / type->block, reinterpret_cast<float*>(at));
    }
    kernels.pack(panels_of(to, panel, count), rows, packed_from, 0, 1);
  }
}

// Packs the same panels from a file that has columns where `to` has rows, order.step numbers apart.
void StoredLayout::pack_columns(Kernels const& kernels, PackedMatrix const& to, char const* from, float* rows,
                                int64_t begin, int64_t end) const {
  int64_t const step = order.step, stored_row = to.n * (is_half_rows ? 2 : step);
  float numbers[2 * kPanel];
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t const first = panel * kPanel, count = std::min<int64_t>(kPanel, to.n - first);
    for (int64_t k = 0; k < to.k; k++) {
      type->decode(from + type->bytes_of(k * stored_row + first * step), (count - 1) * step + 1, numbers);
      for (int64_t i = 0; i < count; i++) rows[i * to.k + k] = numbers[i * step];
    }
    kernels.pack(panels_of(to, panel, count), rows, Dtype::f32, 0, 1);
  }
}

}  // namespace bunting
