// tensor_kinds.h - every kind of tensor that a model may have: its name and its place.
#pragma once

#include <cstdint>

#include "model/model.h"

namespace bunting {

constexpr int32_t kFirstLayerTensor = BUNTING_T_ATTN_NORM;
constexpr int32_t kLayerTensors = BUNTING_EXPERT - kFirstLayerTensor;

// The place of a tensor: whole panels of a matrix, or a vector or table in f32.
struct TensorTarget {
  int64_t rows = 0, cols = 0;  // as in the file; rows = 0: the model has no such tensor
  PackedMatrix part;           // the panels that the tensor fills; data null: a vector
  float* vector = nullptr;
};

// The memory of a model and the sizes of one layer, as the table below reads them.
struct TensorPlace {
  Model const& model;
  LayerWeights const& weights;  // of `layer`
  PackedMatrix const &embedding, &lm_head;
  float *final_norm, *embedding_norm, *positions, *token_types;
  int32_t layer, expert;

  bunting_model_shape const& shape() const { return model.shape(); }
  bunting_layer_shape const& has() const { return model.layer_shape(layer); }
};

// A place in memory: a matrix from one of its rows on, or a vector.
struct TensorStart {
  PackedMatrix const* matrix = nullptr;
  int64_t first_row = 0;
  float* vector = nullptr;
  int64_t cols = 0;  // of a table in f32; 0: a matrix or a vector
};

// Freedoms that a file has with a kind of tensor.
enum TensorTrait : uint32_t {
  kPerExpert = 1,     // each expert of a layer has its own; may be interleaved or transposed
  kRotated = 2,       // rows of a head may come in pairs
  kGroupedHeads = 4,  // rows may be grouped by key-value head
  kNormWeights = 8,   // may be stored less 1
  kOfLatent = 16,     // keys and values of latents may be in one matrix
  kGatedHeads = 32,   // rows of a head may alternate with those of a gate
  kDecay = 64,        // may be stored as its negated exponential
  kStateHeads = 128,  // rows may be grouped by key head of a state: those of q, k, v and z
  kGateHeads = 256,   // likewise: those of b and a
};

struct TensorKind {
  int32_t kind;  // BUNTING_T_*
  char const* name;
  TensorStart (*where)(TensorPlace const&);
  int64_t (*size)(TensorPlace const&);  // rows of a matrix, numbers of a vector
  bool (*exists)(TensorPlace const&);   // whether the model has it
  uint32_t traits = 0;                  // TensorTrait
};

// The row of a tensor, whichever expert it is of; null: there is no such kind.
TensorKind const* tensor_kind(int32_t tensor);

// Finds the place of a kind of tensor in a model.
TensorTarget target_of(TensorKind const& kind, TensorPlace const& place);

// `rows` rows of a matrix from panel `begin` on, as a matrix of its own.
PackedMatrix panels_of(PackedMatrix const& whole, int64_t begin, int64_t rows);

}  // namespace bunting
