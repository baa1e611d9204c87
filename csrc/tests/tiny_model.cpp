#include "tests/tiny_model.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "boundary/step_block.h"
#include "tests/test.h"

namespace bunting::test {

bunting_layer_shape const* tiny_layers(std::function<void(bunting_layer_shape&)> const& change) {
  static std::deque<std::vector<bunting_layer_shape>> kept;
  static std::mutex mutex;
  std::lock_guard const lock(mutex);
  bunting_layer_shape layer{};
  layer.norms = BUNTING_NORM_ATTN | BUNTING_NORM_MLP;
  layer.biases = BUNTING_BIAS_QKV;
  layer.qk_norm = BUNTING_QK_NORM_HEAD;
  if (change) change(layer);
  return kept.emplace_back(64, layer).data();
}

bunting_rope const* tiny_rope(int32_t head_size) {
  static std::map<int32_t, std::pair<std::vector<double>, bunting_rope>> kept;
  static std::mutex mutex;
  std::lock_guard const lock(mutex);
  auto& [frequencies, rope] = kept[head_size];
  if (frequencies.empty())
    for (int32_t i = 0; i < head_size / 2; i++) frequencies.push_back(std::pow(10000, -2.0 * i / head_size));
  rope = {head_size, 1, frequencies.data(), 0, 0, 0, 0};
  return &rope;
}

bunting_model_shape tiny_shape() {
  bunting_model_shape shape{};
  shape.layers = 2;
  shape.hidden = 40;
  shape.feed_forward = 72;
  shape.query_heads = 4;
  shape.kv_heads = 2;
#ifdef BUNTING_CUDA
  shape.head_size = 32;  // the smallest size with a kernel
#else
  shape.head_size = 16;
#endif
  shape.vocab = 131;
  shape.context_max = 200;
  shape.ropes = 1;
  static bunting_layer_shape const* const layers = tiny_layers({});
  shape.layer = layers;
  shape.rope = tiny_rope(shape.head_size);
  shape.attention_scale = 1 / std::sqrt(float(shape.head_size));
  shape.embedding_scale = shape.residual_scale = shape.logit_scale = 1;
  shape.compute = BUNTING_BF16;
  shape.isa = BUNTING_ISA_AUTO;
  shape.threads = 2;
  shape.norm_epsilon = 1e-6f;
  return shape;
}

bunting_model_shape tiny_mixed_shape(bunting_model_shape const& plain, int32_t head_size) {
  static std::vector<bunting_layer_shape> const layers = [] {
    bunting_layer_shape const* const first = tiny_layers([](bunting_layer_shape& layer) {
      layer.mlp = BUNTING_MLP_BOTH;
      layer.norms = 15;
      layer.biases = 0;
      layer.values = BUNTING_VALUES_NORMED;
      layer.scaled = 1;
    });
    std::vector<bunting_layer_shape> three(first, first + 3);
    three[0].head_size = 32, three[0].sliding_window = 30, three[0].feed_forward = 64;
    three[1].kv_heads = three[2].kv_heads = 1;
    three[1].values |= BUNTING_VALUES_KEYS;
    three[2].kv_layers_back = 1;
    return three;
  }();
  bunting_model_shape shape = plain;
  shape.layers = 3, shape.layer = layers.data();
  shape.head_size = head_size, shape.rope = tiny_rope(32);
  shape.layer_inputs = 16;
  shape.experts = 5, shape.experts_used = 2, shape.expert_feed_forward = 40;
  shape.router_groups = shape.router_groups_used = 1, shape.router_scale = 1;
  return shape;
}

bunting_model_shape tiny_latent_shape(bunting_model_shape const& plain, int32_t query_rank) {
  static bunting_layer_shape const* const layers = tiny_layers([](bunting_layer_shape& layer) {
    layer.mixer = BUNTING_MIXER_LATENT;
    layer.biases = 0;
    layer.qk_norm = BUNTING_QK_NORM_NONE;
  });
  bunting_model_shape shape = plain;
  shape.layer = layers, shape.rope = tiny_rope(16);
  shape.latent_rank = 32, shape.query_rank = query_rank, shape.key_size = 48, shape.value_size = 16;
  shape.latent_norm_epsilon = 1e-5f;
  shape.kv_heads = 1, shape.head_size = 48;
  shape.attention_scale = 1 / std::sqrt(64.0f);
  return shape;
}

bunting_model_shape tiny_streams_shape(bunting_model_shape const& plain) {
  static std::vector<bunting_layer_shape> const layers = [] {
    bunting_layer_shape const* const first = tiny_layers([](bunting_layer_shape& layer) {
      layer.norms = 15;
      layer.biases = 0;
      layer.laurel_rank = 16;
    });
    std::vector<bunting_layer_shape> three(first, first + 3);
    three[0].sparse_gate = 1, three[0].gate_cutoff = 0.5f;
    return three;
  }();
  bunting_model_shape shape = plain;
  shape.layers = 3, shape.layer = layers.data();
  shape.layer_inputs = 16, shape.streams = 3;
  return shape;
}

bunting_engine_limits tiny_limits() {
  return {.threads = 2,
          .pages = 64,
          .page_tokens = 16,
          .step_tokens_max = 128,
          .step_chunks_max = 8,
          .step_draws_max = 24,
          .step_hidden_max = 40,
          .top_logprobs_max = 5,
          .gemm = BUNTING_GEMM_OWN,
#ifdef BUNTING_CUDA
          .device_count = 1,
#else
          .device_count = 0,
#endif
          .devices = {},
          .states = 0,
          .drafts_max = 0,
          .adapters_max = 0,
          .adapter_rank_max = 0};
}

namespace {

// Truncates, which is accurate enough for random weights.
uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return uint16_t(bits >> 16);
}

uint16_t to_f16(float value) {  // |value| in [2^-14, 2), or 0
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  int32_t const exponent = int32_t(bits >> 23 & 0xff) - 112;
  if (exponent <= 0) return 0;
  return uint16_t((bits >> 16 & 0x8000) | uint32_t(exponent) << 10 | (bits >> 13 & 0x3ff));
}

// Adds the tensors of a recurrent mixer.
template <typename Add>
void add_state(bunting_model_shape const& s, int32_t layer, Add const& add) {
  int32_t const mixer = s.layer[layer].mixer, options = s.state_options;
  if (mixer < BUNTING_MIXER_DELTA || mixer > BUNTING_MIXER_ATTENTION_SSM) return;
  bool const has_heads = s.state_heads > 0, has_biases = options & BUNTING_STATE_CONV_BIAS;
  int64_t const hidden = s.hidden, keys = has_heads ? s.state_key_heads * s.state_key_size : hidden,
                values = has_heads ? s.state_heads * s.state_value_size : hidden;
  add(BUNTING_T_STATE_Q, layer, keys, hidden);
  add(BUNTING_T_STATE_K, layer, keys, hidden);
  add(BUNTING_T_STATE_V, layer, values, hidden);
  add(BUNTING_T_STATE_CONV_Q, layer, keys, s.state_conv);
  if (has_biases) add(BUNTING_T_STATE_CONV_Q_BIAS, layer, 1, keys);
  add(BUNTING_T_STATE_O, layer, hidden, values);
  if (!has_heads) return;
  add(BUNTING_T_STATE_Z, layer, values, hidden);
  add(BUNTING_T_STATE_A, layer, s.state_heads, hidden);
  if (mixer == BUNTING_MIXER_DELTA) add(BUNTING_T_STATE_B, layer, s.state_heads, hidden);
  add(BUNTING_T_STATE_CONV_K, layer, keys, s.state_conv);
  add(BUNTING_T_STATE_CONV_V, layer, values, s.state_conv);
  if (has_biases) add(BUNTING_T_STATE_CONV_K_BIAS, layer, 1, keys);
  if (has_biases) add(BUNTING_T_STATE_CONV_V_BIAS, layer, 1, values);
  add(BUNTING_T_STATE_DT_BIAS, layer, 1, s.state_heads);
  add(BUNTING_T_STATE_A_LOG, layer, 1, s.state_heads);
  if (options & BUNTING_STATE_SKIP) add(BUNTING_T_STATE_D, layer, 1, s.state_heads);
  if (options & BUNTING_STATE_NORM_HEADS)
    add(BUNTING_T_STATE_NORM, layer, 1, s.state_value_size);
  else if (options & (BUNTING_STATE_NORM_GROUPS | BUNTING_STATE_NORM_WIDE))
    add(BUNTING_T_STATE_NORM, layer, 1, values);
}

}  // namespace

TinyFile::TinyFile(bunting_model_shape const& s, int32_t dtype, uint64_t skew) : dtype_(dtype) {
  char const* const folder = std::getenv("TMPDIR");
  path_ = std::string(folder ? folder : "/tmp") + "/bunting-tiny-\xc3\xa4-XXXXXX";  // not all ASCII
  int const descriptor = mkstemp(path_.data());
  std::FILE* const file = descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
  if (!file) {
    failed(__FILE__, __LINE__, "cannot write %s", path_.c_str());
    return;
  }
  for (uint64_t i = 0; i < skew; i++) std::fputc(0, file);
  uint64_t offset = skew;
  Random random{42};
  auto const add = [&](int32_t tensor, int32_t layer, int64_t rows, int64_t cols) {
    tensors_.push_back({tensor, layer, rows, cols, offset});
    bool const is_norm = rows == 1 && tensor < BUNTING_EXPERT && tensor != BUNTING_T_SINKS &&
                         tensor != BUNTING_T_ROUTER_BIAS &&
                         (tensor < BUNTING_T_Q_BIAS || tensor > BUNTING_T_V_BIAS) &&
                         (tensor < BUNTING_T_O_BIAS || tensor > BUNTING_T_DOWN_BIAS);
    for (int64_t i = 0; i < rows * cols; i++) {
      float const value = is_norm ? random.uniform(0.5f, 1.5f) : random.uniform(-0.4f, 0.4f);
      uint16_t const half = dtype == BUNTING_BF16 ? to_bf16(value) : to_f16(value);
      if (dtype == BUNTING_F32)
        std::fwrite(&value, 4, 1, file);
      else
        std::fwrite(&half, 2, 1, file);
    }
    offset += uint64_t(rows * cols) * (dtype == BUNTING_F32 ? 4 : 2);
  };
  int64_t const hidden = s.hidden;
  add(BUNTING_T_EMBED, 0, s.vocab, hidden);
  add(BUNTING_T_FINAL_NORM, 0, 1, hidden);
  if (s.norm_biases) add(BUNTING_T_FINAL_NORM_BIAS, 0, 1, hidden);
  if (!s.tied_embeddings) add(BUNTING_T_LM_HEAD, 0, s.vocab, hidden);
  if (s.layer_inputs > 0) {
    add(BUNTING_T_LAYER_EMBED, 0, s.vocab, s.layers * s.layer_inputs);
    add(BUNTING_T_LAYER_PROJECTION, 0, s.layers * s.layer_inputs, hidden);
    add(BUNTING_T_LAYER_INPUT_NORM, 0, 1, s.layer_inputs);
  }
  for (int32_t layer = 0; layer < s.layers; layer++) {
    bunting_layer_shape const& has = s.layer[layer];
    auto const own = [](int32_t size, int32_t of_model) { return size > 0 ? size : of_model; };
    int64_t const head_size = own(has.head_size, s.head_size), q = s.query_heads * head_size,
                  kv = own(has.kv_heads, s.kv_heads) * head_size,
                  width = own(has.feed_forward, s.feed_forward);
    bool const has_attention = has.mixer == BUNTING_MIXER_ATTENTION || has.mixer == BUNTING_MIXER_LATENT ||
                               has.mixer == BUNTING_MIXER_ATTENTION_SSM;
    bool const has_keys = has_attention && has.kv_layers_back == 0;
    bool const is_wide = has.qk_norm == BUNTING_QK_NORM_WIDE;
    if (has.norms & BUNTING_NORM_ATTN) add(BUNTING_T_ATTN_NORM, layer, 1, hidden);
    if (has.mixer == BUNTING_MIXER_LATENT) {
      int64_t const heads = s.query_heads, rank = s.latent_rank, rotated = s.rope[has.rope].dimensions;
      if (s.query_rank > 0) add(BUNTING_T_QUERY_LATENT, layer, s.query_rank, hidden);
      if (s.query_rank > 0) add(BUNTING_T_Q_NORM, layer, 1, s.query_rank);
      add(BUNTING_T_Q, layer, heads * (s.key_size + rotated), s.query_rank > 0 ? s.query_rank : hidden);
      add(BUNTING_T_K, layer, rank + rotated, hidden);
      add(BUNTING_T_K_NORM, layer, 1, rank);
      add(BUNTING_T_LATENT_KEYS, layer, heads * rank, s.key_size);
      add(BUNTING_T_LATENT_VALUES, layer, heads * s.value_size, rank);
      add(BUNTING_T_O, layer, hidden, heads * s.value_size);
    } else if (has_attention) {
      add(BUNTING_T_Q, layer, q, hidden);
      if (has.gated_output) add(BUNTING_T_Q_GATE, layer, q, hidden);
      if (has_keys) add(BUNTING_T_K, layer, kv, hidden);
      if (has_keys && !(has.values & BUNTING_VALUES_KEYS)) add(BUNTING_T_V, layer, kv, hidden);
      add(BUNTING_T_O, layer, hidden, q);
    }
    add_state(s, layer, add);
    if (has.biases & BUNTING_BIAS_QKV) {
      add(BUNTING_T_Q_BIAS, layer, 1, q);
      add(BUNTING_T_K_BIAS, layer, 1, kv);
      add(BUNTING_T_V_BIAS, layer, 1, kv);
    }
    if (has.qk_norm) {
      add(BUNTING_T_Q_NORM, layer, 1, is_wide ? q : head_size);
      if (has_keys) add(BUNTING_T_K_NORM, layer, 1, is_wide ? kv : head_size);
    }
    if (has.sinks) add(BUNTING_T_SINKS, layer, 1, s.query_heads);
    if (has.biases & BUNTING_BIAS_O) add(BUNTING_T_O_BIAS, layer, 1, hidden);
    if (has.norms & BUNTING_NORM_ATTN_POST) add(BUNTING_T_ATTN_POST_NORM, layer, 1, hidden);
    if (has.norms & BUNTING_NORM_MLP) add(BUNTING_T_MLP_NORM, layer, 1, hidden);
    if (has.norms & BUNTING_NORM_MLP_POST) add(BUNTING_T_MLP_POST_NORM, layer, 1, hidden);
    bool const has_gate = has.mlp != BUNTING_MLP_PLAIN, has_mlp = has.mlp != BUNTING_MLP_NONE;
    bool const is_mixture = has_mlp && has.mlp != BUNTING_MLP_GATED && has_gate;
    int64_t const feed_forward = is_mixture ? s.expert_feed_forward : width;
    if (is_mixture) add(BUNTING_T_ROUTER, layer, s.experts, hidden);
    if (has.biases & BUNTING_BIAS_ROUTER) add(BUNTING_T_ROUTER_BIAS, layer, 1, s.experts);
    for (int32_t expert = 0; expert < (is_mixture ? s.experts : has_mlp); expert++) {
      int32_t const of = expert * BUNTING_EXPERT;
      if (has.biases & BUNTING_BIAS_GATE_UP) {
        if (has_gate) add(BUNTING_T_GATE_BIAS + of, layer, 1, feed_forward);
        add(BUNTING_T_UP_BIAS + of, layer, 1, feed_forward);
      }
      if (has.biases & BUNTING_BIAS_DOWN) add(BUNTING_T_DOWN_BIAS + of, layer, 1, hidden);
      if (has_gate) add(BUNTING_T_GATE + of, layer, feed_forward, hidden);
      add(BUNTING_T_UP + of, layer, feed_forward, hidden);
      add(BUNTING_T_DOWN + of, layer, hidden, feed_forward);
    }
    if (has.mlp == BUNTING_MLP_BOTH) {
      for (int32_t norm : {BUNTING_T_ROUTER_NORM, BUNTING_T_EXPERTS_NORM, BUNTING_T_EXPERTS_POST_NORM,
                           BUNTING_T_BESIDE_POST_NORM})
        add(norm, layer, 1, hidden);
      add(BUNTING_T_EXPERT_SCALES, layer, 1, s.experts);
      add(BUNTING_T_BESIDE_GATE, layer, width, hidden);
      add(BUNTING_T_BESIDE_UP, layer, width, hidden);
      add(BUNTING_T_BESIDE_DOWN, layer, hidden, width);
    }
    if (s.layer_inputs > 0) {
      add(BUNTING_T_INPUT_GATE, layer, s.layer_inputs, hidden);
      add(BUNTING_T_INPUT_OUT, layer, hidden, s.layer_inputs);
      add(BUNTING_T_INPUT_POST_NORM, layer, 1, hidden);
    }
    if (has.scaled) add(BUNTING_T_LAYER_SCALE, layer, 1, 1);
    bool const has_streams = s.streams > 1;
    if (has_streams && layer + 1 < s.streams) {
      add(BUNTING_T_STREAM_IN, layer, hidden, hidden);
      add(BUNTING_T_STREAM_OUT, layer, hidden, hidden);
    }
    if (has_streams) {
      add(BUNTING_T_STREAM_ROUTER, layer, s.streams, hidden);
      add(BUNTING_T_STREAM_NORM, layer, 1, hidden);
      add(BUNTING_T_STREAM_PREDICT, layer, s.streams * s.streams, s.streams);
      add(BUNTING_T_STREAM_CORRECT, layer, s.streams, s.streams);
      add(BUNTING_T_STREAM_SCALE, layer, 1, hidden);
    }
    if (has.laurel_rank > 0) {
      add(BUNTING_T_LAUREL_IN, layer, has.laurel_rank, hidden);
      add(BUNTING_T_LAUREL_OUT, layer, hidden, has.laurel_rank);
      add(BUNTING_T_LAUREL_NORM, layer, 1, hidden);
    }
    if (s.head != 0 && layer == s.layers - 1) {
      add(BUNTING_T_HEAD_EMBED_NORM, layer, 1, hidden);
      add(BUNTING_T_HEAD_HIDDEN_NORM, layer, 1, hidden);
      add(BUNTING_T_HEAD_PROJECTION, layer, hidden, 2 * hidden);
      add(BUNTING_T_HEAD_NORM, layer, 1, hidden);
    }
    for (int32_t i = 0; i < 4 && s.activation == BUNTING_ACTIVATION_XIELU; i++)
      add(BUNTING_T_XIELU_ALPHA_P + i, layer, 1, 1);
    for (int32_t i = 0; i < 2 && s.norm_biases; i++) add(BUNTING_T_ATTN_NORM_BIAS + i, layer, 1, hidden);
  }
  std::fclose(file);
}

TinyFile::~TinyFile() {
  unlink(path_.c_str());
}

void TinyFile::poke(int32_t tensor, int32_t layer, int64_t element, float value) const {
  for (Tensor const& t : tensors_) {
    if (t.tensor != tensor || t.layer != layer) continue;
    std::FILE* const file = std::fopen(path_.c_str(), "r+b");
    std::fseek(file, long(t.offset) + long(element) * 4, SEEK_SET);
    std::fwrite(&value, 4, 1, file);
    std::fclose(file);
  }
}

ModelPointer load_model(bunting_model_shape const& shape, TinyFile const& file) {
  bunting_model* opened = nullptr;
  if (bunting_model_open(&shape, &opened) != BUNTING_OK) {
    failed(__FILE__, __LINE__, "model_open: %s", bunting_last_error());
    return nullptr;
  }
  ModelPointer model(opened);
  for (TinyFile::Tensor const& t : file.tensors()) {
    if (bunting_model_load(opened, t.tensor, t.layer, file.path().c_str(), t.offset, file.dtype(), t.rows,
                           t.cols)) {
      failed(__FILE__, __LINE__, "model_load: %s", bunting_last_error());
      return nullptr;
    }
  }
  if (bunting_model_seal(opened) != BUNTING_OK) {
    failed(__FILE__, __LINE__, "model_seal: %s", bunting_last_error());
    return nullptr;
  }
  return model;
}

EnginePointer open_engine(bunting_model const* model, bunting_engine_limits const& limits,
                          bunting_model const* draft) {
  bunting_engine* engine = nullptr;
  if (bunting_engine_open(model, draft, &limits, nullptr, &engine) != BUNTING_OK)
    failed(__FILE__, __LINE__, "engine_open: %s", bunting_last_error());
  return EnginePointer(engine);
}

std::vector<uint32_t> encode(StepSpec const& step) {
  std::vector<uint32_t> tokens, chunks, pages, rows, pairs, masks, saves, unread;
  auto const add_row = [&](int32_t token, RowSpec const& r) {
    size_t const at = rows.size();
    rows.resize(at + BUNTING_ROW_WORDS);
    uint32_t* const row_words = rows.data() + at;
    row_words[BUNTING_ROW_AFTER_INDEX] = uint32_t(token);
    row_words[BUNTING_ROW_WANTS] = r.hidden ? BUNTING_WANTS_HIDDEN : BUNTING_WANTS_DRAW;
    if (r.hidden) return;
    float const reals[] = {r.temperature, r.top_p, r.min_p, r.repetition, r.presence, r.frequency};
    std::memcpy(row_words, reals, sizeof reals);
    row_words[BUNTING_ROW_TOP_K] = uint32_t(r.top_k);
    row_words[BUNTING_ROW_SEED_LOW] = uint32_t(r.seed);
    row_words[BUNTING_ROW_SEED_HIGH] = uint32_t(r.seed >> 32);
    row_words[BUNTING_ROW_POSITION] = uint32_t(r.position);
    row_words[BUNTING_ROW_BIAS_AT] = uint32_t(pairs.size() / 2);
    row_words[BUNTING_ROW_BIAS_COUNT] = uint32_t(r.biases.size() / 2);
    pairs.insert(pairs.end(), r.biases.begin(), r.biases.end());
    row_words[BUNTING_ROW_SEEN_AT] = uint32_t(pairs.size() / 2);
    row_words[BUNTING_ROW_SEEN_COUNT] = uint32_t(r.seen.size() / 2);
    pairs.insert(pairs.end(), r.seen.begin(), r.seen.end());
    row_words[BUNTING_ROW_MASK_AT] = r.mask.empty() ? uint32_t(-1) : uint32_t(masks.size());
    masks.insert(masks.end(), r.mask.begin(), r.mask.end());
    row_words[BUNTING_ROW_TOP_LOGPROBS] = uint32_t(r.top_logprobs);
  };
  for (ChunkSpec const& chunk : step.chunks) {
    size_t const second = 0;
    for (size_t const word :
         {tokens.size(), chunk.tokens.size(), size_t(chunk.start), pages.size(), chunk.pages.size(),
          rows.size() / BUNTING_ROW_WORDS, size_t(chunk.rows()), size_t(chunk.adapter), second,
          size_t(chunk.state), size_t(chunk.from), chunk.saves.size() / BUNTING_SAVE_WORDS,
          size_t(chunk.next), size_t(chunk.drafts), chunk.is_read ? chunk.unread.size() : size_t(-1)})
      chunks.push_back(uint32_t(word));
    unread.insert(unread.end(), chunk.unread.begin(), chunk.unread.end());
    saves.insert(saves.end(), chunk.saves.begin(), chunk.saves.end());
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    pages.insert(pages.end(), chunk.pages.begin(), chunk.pages.end());
    for (ChunkSpec::Earlier const& earlier : chunk.earlier) add_row(earlier.token, earlier.row);
    if (chunk.sampled) add_row(int32_t(chunk.tokens.size()) - 1, chunk.row);
  }

  std::vector<uint32_t> block(sizeof(bunting_step_header) / 4);
  auto const append = [&](auto const& words, int32_t width, int32_t* count, int32_t* at) {
    *count = int32_t(words.size()) / width;
    *at = int32_t(block.size());
    block.insert(block.end(), words.begin(), words.end());
  };
  bunting_step_header h{};
  h.magic = BUNTING_STEP_MAGIC;
  std::vector<uint32_t> moves;
  for (size_t i = 0; i < step.copies.size(); i++) {
    moves.push_back(uint32_t(step.copies[i]));
    if (i % 3 == 2) moves.push_back(0);  // the tier
  }
  append(moves, BUNTING_MOVE_WORDS, &h.moves, &h.moves_at);
  append(tokens, 1, &h.tokens, &h.tokens_at);
  append(chunks, BUNTING_CHUNK_WORDS, &h.chunks, &h.chunks_at);
  append(pages, 1, &h.pages, &h.pages_at);
  append(rows, BUNTING_ROW_WORDS, &h.rows, &h.rows_at);
  append(pairs, 2, &h.pairs, &h.pairs_at);
  append(masks, 1, &h.words, &h.words_at);
  append(step.shared, 4, &h.shared, &h.shared_at);
  append(saves, BUNTING_SAVE_WORDS, &h.saves, &h.saves_at);
  append(unread, 1, &h.unread, &h.unread_at);
  h.words_total = uint32_t(block.size());
  std::memcpy(block.data(), &h, sizeof h);
  return block;
}

int32_t ChunkSpec::hidden() const {
  int32_t count = sampled && row.hidden;
  for (Earlier const& each : earlier) count += each.row.hidden;
  return count;
}

std::vector<float> StepOutcome::hidden(int32_t index) const {
  int32_t const* const from = row(rows()) + size_t(index) * size_t(tiny_shape().hidden);
  std::vector<float> state(size_t(tiny_shape().hidden));
  std::memcpy(state.data(), from, state.size() * sizeof(float));
  return state;
}

int32_t const* StepOutcome::row(int32_t index) const {
  size_t const stride = StepReader::draw_words(tiny_limits().top_logprobs_max, drafts_max);
  return result.data() + sizeof(bunting_step_result) / 4 + size_t(index) * stride;
}

StepOutcome run_step(bunting_engine* engine, std::vector<uint32_t> const& block, int32_t draws,
                     int32_t hidden, int32_t drafts_max) {
  StepOutcome outcome;
  outcome.drafts_max = drafts_max;
  outcome.result.resize(StepReader::result_bytes(draws, tiny_limits().top_logprobs_max, drafts_max, hidden,
                                                 tiny_shape().hidden) /
                        4);
  outcome.status = bunting_step_start(engine, block.data(), block.size() * 4, outcome.result.data(),
                                      outcome.result.size() * 4);
  if (outcome.status == BUNTING_OK) outcome.status = bunting_step_wait(engine, nullptr);
  if (outcome.status != BUNTING_OK) return outcome;
  float const* logits = nullptr;
  int32_t count = 0;
  if (bunting_engine_logits(engine, &logits, &count) == BUNTING_OK)
    outcome.logits.assign(logits, logits + int64_t(count) * tiny_shape().vocab);
  return outcome;
}

std::vector<int32_t> StepOutcome::drafts(int32_t index) const {
  int32_t const* const from = row(index) + StepReader::draw_words(tiny_limits().top_logprobs_max, 0);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < *from; i++) tokens.push_back(from[1 + 2 * i]);
  return tokens;
}

StepOutcome run_step(bunting_engine* engine, StepSpec const& step) {
  int32_t rows = 0, hidden = 0;
  for (ChunkSpec const& chunk : step.chunks) rows += chunk.rows(), hidden += chunk.hidden();
  StepOutcome outcome = run_step(engine, encode(step), rows - hidden, hidden, step.drafts_max);
  if (outcome.status != BUNTING_OK) failed(__FILE__, __LINE__, "step: %s", bunting_last_error());
  return outcome;
}

std::vector<int32_t> pages_from(int32_t first, int32_t count) {
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < count; i++) pages.push_back(first + i);
  return pages;
}

std::vector<int32_t> random_tokens(uint64_t seed, int32_t count, int32_t vocab) {
  Random random{seed};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; i++) tokens.push_back(random.below(vocab));
  return tokens;
}

}  // namespace bunting::test
