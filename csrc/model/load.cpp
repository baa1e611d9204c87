// load.cpp - a model's tensors, one by one: packed into the places that model.cpp gives them, or noted for
// the engines that will read them from their files.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "boundary/error.h"
#include "model/model.h"
#include "model/stored_tensor.h"
#include "model/tensor_kinds.h"

namespace bunting {

namespace {

constexpr int64_t kElementsPerPiece = 1 << 18;  // packed at a time by one thread

char const* place_of(TensorTarget const& to) {
  return to.part.data ? static_cast<char const*>(to.part.data) : reinterpret_cast<char const*>(to.vector);
}

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

void Model::set_factor(int32_t tensor, int32_t layer, float factor) {
  if (!tensor_kind(tensor) || !std::isfinite(factor))
    fail(BUNTING_INVALID, "tensor %d of layer %d cannot be multiplied by %g", tensor, layer, double(factor));
  factors_[{tensor, layer}] = factor;
}

void Model::load(int32_t tensor, int32_t layer, char const* path, uint64_t offset, int32_t dtype,
                 int64_t rows, int64_t cols, QuantisedSource const* quantised) {
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
  StoredLayout const layout(dtype, *kind, to, *this, layer);
  layout.validate(*kind, to, where);
  uint8_t& loaded = loaded_[tensor_slot(tensor, layer)];
  if (loaded) fail(BUNTING_INVALID, "%s is loaded already", where.c_str());

  StoredTensor stored{path, name, offset, to, layout, {}};
  if (quantised) stored.quantised = *quantised;
  // The router reads norm(x) / sqrt(H).
  if (tensor == BUNTING_T_ROUTER_NORM) stored.divisor = std::sqrt(float(shape_.hidden));
  stored.negates_exp = tensor == BUNTING_T_STATE_A_LOG && !layout.is_negated_exp;
  if (auto const found = factors_.find({tensor, layer}); found != factors_.end()) {
    stored.factor = found->second;
    if (stored.quantised || layout.type->block > 1 || layout.is_transposed || layout.turned > 0)
      fail(BUNTING_INVALID, "%s has a factor, which goes with plain numbers in rows", where.c_str());
  }
  stored.check_files();
  if (is_deferred_)
    stored_.emplace(place_of(to), std::move(stored));
  else
    pack(stored);
  loaded = 1;
}

// Reads and packs a tensor to its place, its panels on all threads.
void Model::pack(StoredTensor const& tensor) {
  TensorReader const reader(tensor);
  PackedMatrix const& part = tensor.to.part;
  if (!part.data) return reader.read(tensor.to.vector);
  std::vector<PanelScratch> scratch(static_cast<size_t>(pool_->threads()));
  std::atomic<bool> is_finite{true};
  int64_t const grain = std::max<int64_t>(1, kElementsPerPiece / (part.kp() * kPanel));
  pool_->run(part.panels(), grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t panel = begin; panel < end && is_finite; panel++)
      if (!reader.pack(*kernels_, panel, part.panel(panel), scratch[size_t(thread)])) is_finite = false;
  });
  if (!is_finite) reader.refuse();
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
