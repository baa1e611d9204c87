// adapter.cpp - finds the matrices that an adapter changes, and packs its factors.
#include "model/adapter.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "boundary/error.h"
#include "model/stored_tensor.h"
#include "model/tensor_kinds.h"

namespace bunting {
namespace {

// Finds the matrix that has the panels of `part`, among those of a layer that adapters may change; null:
// none.
PackedMatrix const* matrix_with(PackedMatrix const& part, Model const& model, int32_t layer) {
  LayerWeights const& has = model.layer(layer);
  std::vector<PackedMatrix const*> matrices{&has.qkv,     &has.v,           &has.o,
                                            &has.q_gate,  &has.beside_down, &has.state_in,
                                            &has.state_z, &has.state_o,     &has.state_gates};
  // A sparse gate needs all gates of a row before the product is complete.
  if (!model.layer_shape(layer).sparse_gate) matrices.push_back(&has.beside_gate_up);
  if (!model.layer_shape(layer).sparse_gate && !model.has_experts(layer)) matrices.push_back(&has.gate_up);
  if (!model.has_experts(layer)) matrices.push_back(&has.down);
  for (PackedMatrix const* matrix : matrices) {
    char const* const begin = static_cast<char const*>(matrix->data);
    char const* const at = static_cast<char const*>(part.data);
    if (begin && at >= begin && at < begin + matrix->bytes()) return matrix;
  }
  return nullptr;
}

}  // namespace

void Adapter::load(int32_t tensor, int32_t layer, int32_t rank, float scale, bunting_factor const& a,
                   bunting_factor const& b) {
  if (sealed_) fail(BUNTING_INVALID, "the adapter is sealed");
  TensorKind const* const kind = tensor_kind(tensor);
  if (!kind || tensor < kFirstLayerTensor || layer < 0 || layer >= model_.body_layers())
    fail(BUNTING_INVALID, "%s: an adapter cannot change tensor %d of layer %d", b.path, tensor, layer);
  if (rank < 1 || rank > BUNTING_ADAPTER_RANK_MAX || !std::isfinite(scale))
    fail(BUNTING_INVALID, "%s: %s has rank %d and scale %g; ranks are 1 to %d", b.path, kind->name, rank,
         double(scale), BUNTING_ADAPTER_RANK_MAX);
  TensorTarget const to = model_.target(tensor, layer);
  PackedMatrix const* const matrix = to.part.data ? matrix_with(to.part, model_, layer) : nullptr;
  if (!matrix)
    fail(BUNTING_INVALID, "%s: an adapter cannot change %s of layer %d", b.path, kind->name, layer);
  for (Source const& other : sources_)
    if (other.tensor == tensor && other.layer == layer)
      fail(BUNTING_INVALID, "%s: %s of layer %d is there twice", b.path, kind->name, layer);
  int64_t const at = static_cast<char const*>(to.part.data) - static_cast<char const*>(matrix->data);
  sources_.push_back({tensor, layer, rank, scale, a.path, b.path, a.offset, b.offset, a.dtype, b.dtype,
                      matrix, at / matrix->panel_bytes(), to.rows});
  rank_ = std::max(rank_, rank);
}

Dtype Adapter::type_of(Source const& source) const {
  return source.matrix->grouped() ? model_.dtype() : source.matrix->dtype;
}

// Lays out the factors from `base` on; with a null base it only measures.
void Adapter::place(char* base) {
  Carver carver(base);
  terms_.clear();
  for (Source const& source : sources_) {
    LowRankTerm& term = terms_[source.matrix->data];
    LowRankTerm::Part part{
        source.first_panel, term.a.n, term.columns, {type_of(source), source.rows, source.rank}};
    part.b.data = carver.take<char>(part.b.bytes());
    term.a.n += round_up(source.rank, kPanel);
    term.columns += part.b.kp();
    term.parts.push_back(part);
  }
  for (Source const& source : sources_) {
    LowRankTerm& term = terms_[source.matrix->data];
    if (term.a.k > 0) continue;
    term.a.dtype = type_of(source);
    term.a.k = source.matrix->k;
    term.a.data = carver.take<char>(term.a.bytes());
  }
  used_ = carver.used();
}

void Adapter::seal() {
  if (sealed_) fail(BUNTING_INVALID, "the adapter is sealed already");
  if (sources_.empty()) fail(BUNTING_INVALID, "the adapter changes no matrix");
  place(nullptr);
  region_ = MemoryRegion(used_, "an adapter");
  place(region_.data());
  ThreadPool pool(model_.shape().threads, ThreadPool::Cores::any, ThreadPool::Manner::yielding);
  for (Source const& source : sources_) pack(source, pool);
  sources_.clear();
  sealed_ = true;
}

void Adapter::pack(Source const& source, ThreadPool& pool) {
  TensorKind const& kind = *tensor_kind(source.tensor);
  LowRankTerm const& term = terms_.at(source.matrix->data);
  auto const part = std::find_if(term.parts.begin(), term.parts.end(), [&](LowRankTerm::Part const& of) {
    return of.first_panel == source.first_panel;
  });
  std::string const name = std::string(kind.name) + " of layer " + std::to_string(source.layer);
  auto const pack_factor = [&](char const* factor, std::string const& path, uint64_t offset, int32_t dtype,
                               PackedMatrix const& to, float scale) {
    TensorTarget const target{to.n, to.k, to, nullptr};
    StoredLayout const layout(dtype, kind, target, model_, source.layer);
    std::string const where = path + ": " + factor + " of " + name;
    layout.validate(kind, target, where);
    if (layout.type->block > 1) fail(BUNTING_INVALID, "%s is not plain numbers", where.c_str());
    StoredTensor stored{path, factor + (" of " + name), offset, target, layout, {}};
    stored.factor = scale;
    stored.check_files();
    TensorReader const reader(stored);
    std::vector<PanelScratch> scratch(static_cast<size_t>(pool.threads()));
    std::atomic<bool> is_finite{true};
    pool.run(to.panels(), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t panel = begin; panel < end && is_finite; panel++)
        if (!reader.pack(model_.kernels(), panel, to.panel(panel), scratch[size_t(thread)]))
          is_finite = false;
    });
    if (!is_finite) reader.refuse();
  };
  PackedMatrix const a = panels_of(term.a, part->rank_row / kPanel, source.rank);
  pack_factor("A", source.a_path, source.a_offset, source.a_dtype, a, source.scale);
  pack_factor("B", source.b_path, source.b_offset, source.b_dtype, part->b, 1);
}

}  // namespace bunting
