// model.h - a transformer's weights in the reading order of the kernels.
//
// All weights are in one MemoryRegion: matrices packed (cpu/kernels/kernels.h), vectors as f32. Q, K and V
// are one matrix, and so are gate and up, so that a layer has four GEMMs. It has five if a file keeps V in
// another format, as Q4_K_M does. A model is filled tensor by tensor while loading, or from a packed file at
// once. It is read-only once sealed.
//
// A deferred model, as GPU engines have it, keeps no weights in memory. It knows where each tensor is in the
// files, and engines read them piece by piece (panel_reader.h). The addresses of its weights have no memory
// behind them: they name places in the order above. Once it maps a packed file, its weights are there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "include/engine.h"
#include "model/model_shape.h"
#include "model/rope_table.h"

namespace bunting {

struct TensorTarget;     // tensor_kinds.h
struct QuantisedSource;  // stored_tensor.h
struct StoredTensor;

// Weights of a layer. Vectors that a layer does not have are null. Norms of x with biases have them behind
// their weights: [2 H].
struct LayerWeights {
  float* attention_norm = nullptr;  // [H]
  // Rows of Q, and of K and V if the layer has them; V only in the same format.
  PackedMatrix qkv;
  PackedMatrix v;  // V in another format: [Hk D, H]; else n = 0
  // In a latent layer qkv is Q, v has the rows of QUERY_LATENT and K, and these two follow. They are plain:
  // products with them are per head, and files quantise one of them along the other dimension.
  PackedMatrix keys;                     // [Hq latent_rank, key_size]
  PackedMatrix values;                   // [Hq value_size, latent_rank]
  float* qkv_bias = nullptr;             // [(Hq + 2 Hk) D]
  float* q_norm = nullptr;               // [D] or [Hq D]
  float* k_norm = nullptr;               // [D] or [Hk D]
  float* sinks = nullptr;                // [Hq]
  PackedMatrix o;                        // [H, Hq D]
  float* o_bias = nullptr;               // [H]
  float* attention_post_norm = nullptr;  // [H]
  float* mlp_norm = nullptr;             // [H]; in a parallel layer the attention's
  float* gate_up_bias = nullptr;         // [2 Fp], in the order of the rows of gate_up
  PackedMatrix router;                   // [E, H] in f32, in layers with experts
  float* router_bias = nullptr;          // [E]
  float* choice_bias = nullptr;          // [E] added to scores for the choice
  // In layers with experts gate_up, down and their biases have all experts, one after the other. Rows of down
  // and its bias are padded to Hp = round_up(H, 16) per expert.
  // [2 Fp, H]: F rows of gate, zeros to Fp, F rows of up, zeros to 2 Fp. [Fp, H] in a plain MLP, of up.
  PackedMatrix gate_up;
  PackedMatrix down;               // [H, F]
  float* down_bias = nullptr;      // [H]
  float* mlp_post_norm = nullptr;  // [H]
  float* xielu = nullptr;          // [4] alpha_p, alpha_n, beta, eps
  // Weights of an MLP beside experts, laid out like those above, its gate, and the norms around both.
  PackedMatrix beside_gate_up, beside_down;
  PackedMatrix shared_gate;                                                                  // [1, H] in f32
  float *beside_post_norm = nullptr, *experts_norm = nullptr, *experts_post_norm = nullptr;  // [H]
  float* router_norm = nullptr;      // [H], divided by sqrt(H)
  float* expert_scales = nullptr;    // [E]
  PackedMatrix input_gate;           // [P, H], with per-layer inputs; plain, as is the next
  PackedMatrix input_out;            // [H, P]
  float* input_post_norm = nullptr;  // [H]
  float* scale = nullptr;            // [1]
  PackedMatrix q_gate;               // [Hq D, H], with a gated output
  // Weights of a recurrent mixer. Each part of state_in begins at a panel.
  PackedMatrix state_in;        // rows of q, k and v, and of z if there is one and its format is the same
  PackedMatrix state_z;         // z in another format; else n = 0
  PackedMatrix state_gates;     // [.., H] in f32: rows of a, and of b if there is one
  PackedMatrix state_o;         // [H, Gv Dv]
  float* state_conv = nullptr;  // [channels, K]
  float* state_conv_bias = nullptr;  // [channels]
  float* state_dt_bias = nullptr;    // [Gv]
  float* state_decay = nullptr;      // [Gv] -exp(A_log)
  float* state_skip = nullptr;       // [Gv]
  float* state_norm = nullptr;       // [Dv] or [Gv Dv]
  // Weights of several residual streams (engine.h). The matrices, plain, are those of stream `layer` + 1.
  PackedMatrix stream_in, stream_out;  // [H, H]
  float* stream_router = nullptr;      // [A, H]
  float* stream_norm = nullptr;        // [H]
  float* stream_predict = nullptr;     // [A A, A]
  float* stream_correct = nullptr;     // [A, A]
  float* stream_scale = nullptr;       // [H]
  PackedMatrix laurel_in, laurel_out;  // [R, H] and [H, R], plain
  float* laurel_norm = nullptr;        // [H]
  PackedMatrix head_projection;        // [H, 2 H], plain; of the layer of a head, as all that follow
  float *head_embed_norm = nullptr, *head_hidden_norm = nullptr, *head_norm = nullptr;  // [H]
};

// Weights of the per-layer inputs.
struct LayerInputWeights {
  PackedMatrix embedding;   // [V, layers P]
  PackedMatrix projection;  // [layers P, H], plain
  float* norm = nullptr;    // [P]
};

// Returns the type of a matrix in a format of engine.h; nothing if there is no such format. `plain`: the type
// of plain matrices.
std::optional<Dtype> matrix_type(int32_t format, Dtype plain);

class Model {
 public:
  // Checks the shape and measures; allocates nothing yet. Throws BUNTING_INVALID.
  explicit Model(bunting_model_shape const& shape);

  ~Model();

  // Allocates the weights, or defers their loading, and computes the rope tables; once, before the first
  // load.
  enum class Loading { now, deferred };
  void allocate(Loading loading = Loading::now);
  // See bunting_model_load and bunting_model_load_quantised, for which `path` is for messages.
  void load(int32_t tensor, int32_t layer, char const* path, uint64_t offset, int32_t dtype, int64_t rows,
            int64_t cols, QuantisedSource const* quantised = nullptr);
  // See bunting_model_factor.
  void set_factor(int32_t tensor, int32_t layer, float factor);
  void seal();
  // Returns the place of a tensor; without rows if the model has no such tensor.
  TensorTarget target(int32_t tensor, int32_t layer) const;
  // See bunting_model_save and bunting_model_restore. The keys have kPackedKeyBytes. A deferred model then
  // maps the file.
  void save(char const* path, uint8_t const* key, bunting_progress progress);
  void restore(char const* path, uint8_t const* key, bunting_progress progress);

  bool sealed() const { return sealed_; }
  // True if weights are to be read from the model's files. Else they are in memory, or mapped.
  bool is_in_files() const { return !stored_.empty(); }
  // Tensors of a deferred model by the addresses of their places, each from its first panel or number on.
  std::map<char const*, StoredTensor> const& stored() const { return stored_; }
  // Takes weights that were read out of this process's memory, where a packed file is mapped.
  void let_go(char const* from, size_t bytes) const;
  bunting_model_shape const& shape() const { return shape_; }  // without its pointers
  bunting_layer_shape const& layer_shape(int32_t index) const { return layer_shapes_[size_t(index)]; }
  Kernels const& kernels() const { return *kernels_; }
  Dtype dtype() const { return dtype_; }  // type of activations, plain weights, and plain keys and values
  Dtype kv_dtype() const {
    return shape_.kv == BUNTING_KV_INT8 ? Dtype::q8 : shape_.kv == BUNTING_KV_INT4 ? Dtype::q4 : dtype_;
  }
  // True if matrix `index` (engine.h, `formats`) is e4m3 in an engine's copy; and if any matrix is.
  bool is_fp8(int32_t index) const { return formats_[size_t(index)] == BUNTING_FORMAT_FP8; }
  bool has_fp8() const;
  // True if any matrix is in a CPU-only format; and if any layer has V in a different format from Q and K.
  bool is_for_cpus() const;
  bool has_apart_v() const;
  // Index of a layer's first format.
  static int32_t first_format(int32_t layer) { return 2 + 7 * layer; }
  // Padded input width of the widest grouped matrix; 0 if all are plain.
  int64_t grouped_width() const { return grouped_width_; }

  int64_t query_width(int32_t layer) const {
    return int64_t(shape_.query_heads) * layer_shape(layer).head_size;
  }
  int64_t kv_width(int32_t layer) const {
    return int64_t(layer_shape(layer).kv_heads) * layer_shape(layer).head_size;
  }
  // Numbers per token from the beginning of a layer's q to the end of its v.
  int64_t qkv_width(int32_t layer) const { return query_width(layer) + 2 * kv_width(layer); }
  bool is_latent(int32_t layer) const { return layer_shape(layer).mixer == BUNTING_MIXER_LATENT; }
  bool is_latent() const;  // any layer
  // Rows of a layer's projection of q; and the width of its attention's output, as O reads it.
  int64_t q_rows(int32_t layer) const;
  int64_t mixed_width(int32_t layer) const;
  // Numbers of a token's key that are its values in a latent layer; 0 in others.
  int32_t latent(int32_t layer) const { return is_latent(layer) ? shape_.latent_rank : 0; }
  // Widths of the widest layer.
  int64_t query_width() const { return int64_t(shape_.query_heads) * shape_.head_size; }
  int64_t qkv_width() const;
  // True if a layer's mixer has attention, and if it has a recurrent state.
  bool has_attention(int32_t layer) const { return mixes_attention(layer_shape(layer).mixer); }
  bool has_state(int32_t layer) const { return bunting::has_state(layer_shape(layer).mixer); }
  bool has_states() const { return shape_.state_conv > 0; }  // in any layer
  // True if a layer has its own keys and values; and if it has a projection of v.
  bool has_keys(int32_t layer) const {
    return has_attention(layer) && layer_shape(layer).kv_layers_back == 0;
  }
  bool has_v(int32_t layer) const {
    return has_keys(layer) && !is_latent(layer) && !(layer_shape(layer).values & BUNTING_VALUES_KEYS);
  }
  // Rows of a layer's projections of q, and of k and v if it has them.
  int64_t projected_width(int32_t layer) const {
    return query_width(layer) + (has_keys(layer) + has_v(layer)) * kv_width(layer);
  }
  // True if the last layer is that of a head that drafts; the number of the other layers.
  bool has_head() const { return shape_.head != 0; }
  bool is_head(int32_t layer) const { return layer >= body_layers(); }
  int32_t body_layers() const { return shape_.layers - has_head(); }
  int32_t last_layer_with_memory() const;  // with keys or a state, apart from a head's
  // Layer whose keys and values a layer reads.
  int32_t kv_layer(int32_t layer) const { return layer - layer_shape(layer).kv_layers_back; }
  // Bytes of one page of a layer with keys and values.
  uint64_t page_bytes(int32_t layer) const;
  bool has_experts(int32_t layer) const;
  bool has_mlp(int32_t layer) const { return layer_shape(layer).mlp != BUNTING_MLP_NONE; }
  bool has_gate(int32_t layer) const {
    int32_t const mlp = layer_shape(layer).mlp;
    return has_mlp(layer) && mlp != BUNTING_MLP_PLAIN && mlp != BUNTING_MLP_SHARED_PLAIN;
  }
  bool has_both(int32_t layer) const { return layer_shape(layer).mlp == BUNTING_MLP_BOTH; }
  bool has_shared_gate(int32_t layer) const { return layer_shape(layer).mlp == BUNTING_MLP_SHARED_GATED; }
  bool has_shared(int32_t layer) const {
    int32_t const mlp = layer_shape(layer).mlp;
    return mlp == BUNTING_MLP_SHARED || mlp == BUNTING_MLP_SHARED_PLAIN || has_shared_gate(layer);
  }
  // True if a layer has an MLP beside its experts.
  bool has_beside(int32_t layer) const { return has_both(layer) || has_shared(layer); }
  bool has_beside() const;  // in any layer
  // True if tokens see those behind them.
  bool is_bidirectional() const { return shape_.attention == BUNTING_ATTENTION_BIDIRECTIONAL; }
  bool has_experts() const;  // in any layer
  // Residual streams of a token; and true if the layer has a projection from and to one.
  int32_t streams() const { return shape_.streams > 1 ? shape_.streams : 1; }
  bool has_stream(int32_t layer) const { return layer + 1 < streams(); }
  bool has_qk_weights(int32_t layer) const {
    int32_t const norm = layer_shape(layer).qk_norm;
    return norm != BUNTING_QK_NORM_NONE && norm != BUNTING_QK_NORM_UNIT && !is_latent(layer);
  }
  // F of a layer, or of each of its experts; and the same rounded up to whole panels, so that `up` begins on
  // one.
  int64_t feed_forward(int32_t layer) const {
    return has_experts(layer) ? shape_.expert_feed_forward : layer_shape(layer).feed_forward;
  }
  int64_t padded_feed_forward(int32_t layer) const { return round_up(feed_forward(layer), kPanel); }
  int64_t padded_hidden() const { return round_up(shape_.hidden, kPanel); }

  PackedMatrix const& embedding() const { return embedding_; }
  PackedMatrix const& vocabulary_projection() const { return shape_.tied_embeddings ? embedding_ : lm_head_; }
  float const* final_norm() const { return final_norm_; }          // null: the model has none
  float const* embedding_norm() const { return embedding_norm_; }  // null likewise
  float const* positions() const { return positions_; }            // [positions, H]; null likewise
  float const* token_types() const { return token_types_; }        // [token_types, H]; null likewise
  LayerInputWeights const& layer_inputs() const { return layer_inputs_; }
  LayerWeights const& layer(int32_t index) const { return layers_[size_t(index)]; }
  std::vector<RopeTable> const& ropes() const { return ropes_; }
  // Rope of a layer; null if its q and k are not rotated.
  RopeTable const* rope(int32_t layer) const {
    int32_t const index = layer_shape(layer).rope;
    return index < 0 ? nullptr : &ropes_[size_t(index)];
  }

  bool has_query_scale(size_t rope) const { return rope_shapes_[rope].query_growth > 0; }

  uint64_t weight_bytes() const { return weight_bytes_; }
  // Bytes of a deferred model's tables, which are in memory.
  uint64_t table_bytes() const { return weight_bytes_ - packed_bytes_; }
  // Widest padded input of a matrix.
  int64_t width_max() const { return width_max_; }
  uint64_t page_bytes() const;  // one KV page over all layers with keys
  // Widths of q and k, and of v, of recurrent layers.
  int64_t state_key_width() const {
    return shape_.state_heads > 0 ? int64_t(shape_.state_key_heads) * shape_.state_key_size : shape_.hidden;
  }
  int64_t state_value_width() const {
    return shape_.state_heads > 0 ? int64_t(shape_.state_heads) * shape_.state_value_size : shape_.hidden;
  }
  // First columns of the projections of v and z in a row of a recurrent layer's projections, and its width.
  int64_t state_v_column() const { return 2 * round_up(state_key_width(), kPanel); }
  int64_t state_z_column() const { return state_v_column() + round_up(state_value_width(), kPanel); }
  // An odd number of cache lines, so that a column of many rows does not fall into few sets of a cache.
  int64_t state_in_width() const {
    int64_t const width =
        state_v_column() + (has_state_heads() ? 2 : 1) * round_up(state_value_width(), kPanel);
    return width % 32 == 0 ? width + kPanel : width;
  }
  // The same of a row of outputs.
  int64_t state_out_width() const {
    int64_t const width = round_up(state_value_width(), kPanel);
    return width % 32 == 0 ? width + kPanel : width;
  }
  // First row of b behind a.
  int64_t state_b_row() const { return round_up(shape_.state_heads, kPanel); }
  // Index of a recurrent layer's first format in `formats` of engine.h.
  int32_t first_state_format(int32_t layer) const { return 3 + 7 * shape_.layers + 3 * layer; }
  bool has_gated_output() const;  // in any layer
  bool is_delta(int32_t layer) const { return layer_shape(layer).mixer == BUNTING_MIXER_DELTA; }
  // True if recurrent layers have heads with matrices for states, false with short convolutions.
  bool has_state_heads() const { return shape_.state_heads > 0; }
  // Channels of the convolution of a recurrent layer.
  int64_t conv_channels() const {
    return shape_.state_heads > 0 ? 2 * state_key_width() + state_value_width() : shape_.hidden;
  }
  // Numbers of a recurrent layer's state, a multiple of 16: the conv's last inputs [K-1, channels], then S
  // [Gv, Dk, Dv].
  int64_t layer_state_numbers() const;
  int64_t conv_state_numbers() const { return round_up((shape_.state_conv - 1) * conv_channels(), kPanel); }
  int64_t state_norm_width() const;  // 0: the output has no norm
  uint64_t state_bytes() const;      // one slot over all recurrent layers

 private:
  void pack(StoredTensor const& tensor);
  size_t tensor_slot(int32_t tensor, int32_t layer) const;
  std::string describe(int32_t tensor, int32_t layer) const;
  void read_format(uint8_t format, char const* name, PackedMatrix& matrix) const;
  void read_formats();
  void read_ropes();
  size_t place(char* base);
  template <class Matrix, class Vector>
  void place_state(int32_t index, Matrix const& matrix, Vector const& vector);

  bunting_model_shape shape_;  // without its pointers, which are the caller's
  std::vector<bunting_layer_shape> layer_shapes_;
  std::vector<uint8_t> formats_;  // [3 + 7 L], with states [3 + 10 L] BUNTING_FORMAT_*
  Kernels const* kernels_ = nullptr;
  Dtype dtype_ = Dtype::bf16;
  int64_t grouped_width_ = 0, width_max_ = 0;
  uint64_t weight_bytes_ = 0;
  // Part of weight_bytes_ that is loaded; the rest is computed from the shape.
  size_t packed_bytes_ = 0;
  PackedMatrix embedding_, lm_head_;  // [V, H]
  float* final_norm_ = nullptr;       // [H]
  float *embedding_norm_ = nullptr, *positions_ = nullptr, *token_types_ = nullptr;
  LayerInputWeights layer_inputs_;
  std::vector<LayerWeights> layers_;
  std::vector<RopeTable> ropes_;
  std::vector<bunting_rope> rope_shapes_;  // their `frequencies` point into rope_frequencies_
  std::vector<std::vector<double>> rope_frequencies_;
  MemoryRegion region_;
  bool is_deferred_ = false;
  std::map<char const*, StoredTensor> stored_;
  std::unique_ptr<ThreadPool> pool_;                      // packs; freed once sealed
  std::vector<uint8_t> loaded_;                           // indexed by tensor_slot()
  std::map<std::pair<int32_t, int32_t>, float> factors_;  // by tensor and layer; absent: 1
  bool sealed_ = false;
};

}  // namespace bunting
