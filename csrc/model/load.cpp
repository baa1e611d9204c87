// load.cpp - a model's tensors from files, one by one, into the places that model.cpp gives them.
//
// Work:    every number read once and packed once, by panels on all threads.
// Checked: against matrices packed from the same numbers by themselves (tests/test_model.cpp).
#include <algorithm>
#include <cmath>

#include "boundary/error.h"
#include "model/model.h"
#include "model/stored_layout.h"
#include "model/tensor_file.h"
#include "model/tensor_kinds.h"

namespace bunting {

namespace {

bool is_layer_tensor(int32_t tensor) {
  return tensor >= kFirstLayerTensor;
}

}  // namespace

// Index into loaded_: the tensors outside the layers, then those of each layer and expert.
size_t Model::tensor_slot(int32_t tensor, int32_t layer) const {
  if (!is_layer_tensor(tensor)) return size_t(tensor);
  int32_t const kind = tensor % BUNTING_EXPERT, expert = tensor / BUNTING_EXPERT;
  size_t const place = size_t(layer) * size_t(std::max(1, shape_.experts)) + size_t(expert);
  return size_t(kFirstLayerTensor) + place * kLayerTensors + size_t(kind - kFirstLayerTensor);
}

std::string Model::describe(int32_t tensor, int32_t layer) const {
  TensorKind const& kind = *tensor_kind(tensor);
  if (!is_layer_tensor(tensor)) return kind.name;
  bool const is_expert = has_experts(layer) && kind.traits & kPerExpert;
  return kind.name + (is_expert ? " of expert " + std::to_string(tensor / BUNTING_EXPERT) : "") +
         " of layer " + std::to_string(layer);
}

TensorTarget Model::target(int32_t tensor, int32_t layer) const {
  TensorKind const* const kind = tensor_kind(tensor);
  if (!kind) return {};
  int32_t const expert = tensor / BUNTING_EXPERT;
  return target_of(*kind, {*this, layers_[size_t(layer)], embedding_, lm_head_, final_norm_, embedding_norm_,
                           positions_, token_types_, layer, expert});
}

void Model::load(int32_t tensor, int32_t layer, char const* path, uint64_t offset, int32_t dtype,
                 int64_t rows, int64_t cols) {
  std::unique_ptr<TensorFile> file;
  load_from(tensor, layer, path, dtype, rows, cols, [&](Dtype, uint64_t bytes) {
    file = std::make_unique<TensorFile>(path, offset, bytes);
    return file->data();
  });
}

void Model::load_quantised(int32_t tensor, int32_t layer, QuantisedMatrix const& matrix, char const* path,
                           int32_t dtype, int64_t rows, int64_t cols) {
  std::vector<char> stored;  // the whole of it: a few per cent of a model
  load_from(tensor, layer, path, dtype, rows, cols, [&](Dtype blocks, uint64_t bytes) {
    int64_t const row_bytes = int64_t(bytes) / rows;
    if (row_bytes * rows != int64_t(bytes) || !matrix.can_be(blocks))
      fail(BUNTING_INVALID, "%s: %s cannot become blocks of type %d", path, describe(tensor, layer).c_str(),
           dtype);
    stored.resize(size_t(bytes));
    pool_->run((rows + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end, int) {
      int64_t const first = begin * kPanel;
      matrix.read(blocks, first, std::min(end * kPanel, rows), stored.data() + first * row_bytes);
    });
    return static_cast<char const*>(stored.data());
  });
}

void Model::load_from(int32_t tensor, int32_t layer, char const* path, int32_t dtype, int64_t rows,
                      int64_t cols, std::function<char const*(Dtype, uint64_t)> const& source) {
  if (sealed_) fail(BUNTING_INVALID, "%s: the model is sealed", path);
  TensorKind const* const kind = tensor_kind(tensor);
  if (!kind) fail(BUNTING_INVALID, "%s: there is no tensor kind %d", path, tensor);
  int32_t const layers = is_layer_tensor(tensor) ? shape_.layers : 1;
  if (layer < 0 || layer >= layers)
    fail(BUNTING_INVALID, "%s: %s: layer %d of %d", path, kind->name, layer, layers);
  std::string const name = describe(tensor, layer), where = path + (": " + name);
  TensorTarget const to = target(tensor, layer);
  if (to.rows == 0) fail(BUNTING_INVALID, "%s: a model of this shape has no %s", path, name.c_str());
  if (rows != to.rows || cols != to.cols)
    fail(BUNTING_INVALID, "%s is [%lld, %lld], expected [%lld, %lld]", where.c_str(), (long long)rows,
         (long long)cols, (long long)to.rows, (long long)to.cols);
  StoredLayout const layout(dtype, to, *this, layer, is_layer_tensor(tensor));
  layout.validate(*kind, to, where);
  uint8_t& loaded = loaded_[tensor_slot(tensor, layer)];
  if (loaded) fail(BUNTING_INVALID, "%s is loaded already", where.c_str());

  char const* const from = source(Dtype(layout.dtype), layout.bytes());
  if (!(to.part.data ? layout.pack(*kernels_, to.part, from, *pool_) : layout.is_finite(from, *pool_)))
    fail(BUNTING_INVALID, "%s has a number that is not finite", where.c_str());
  if (!to.part.data) layout.read(from, to.vector);
  if (tensor == BUNTING_T_ROUTER_NORM)  // the router reads norm(x) / sqrt(H)
    for (int64_t i = 0; i < cols; i++) to.vector[i] /= std::sqrt(float(shape_.hidden));
  loaded = 1;
}

void Model::seal() {
  auto const require = [&](int32_t tensor, int32_t layer) {
    if (target(tensor, layer).rows > 0 && !loaded_[tensor_slot(tensor, layer)])
      fail(BUNTING_INVALID, "the model is not complete: %s is missing", describe(tensor, layer).c_str());
  };
  for (int32_t tensor = 0; tensor < kFirstLayerTensor; tensor++) require(tensor, 0);
  for (int32_t layer = 0; layer < shape_.layers; layer++)
    for (int32_t expert = 0; expert < (has_experts(layer) ? shape_.experts : 1); expert++)
      for (int32_t i = 0; i < kLayerTensors; i++)
        require(kFirstLayerTensor + i + expert * BUNTING_EXPERT, layer);
  pool_.reset();
  sealed_ = true;
}

}  // namespace bunting
