// test_model.cpp - tests of loading: rejected data, and independence from the file's element type and
// offsets.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "model/stored_type.h"
#include "model/tensor_kinds.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

// Returns logits of one prompt on an f32 model.
std::vector<float> logits_of(bunting_model const* model) {
  if (!model) return {};
  EnginePointer const engine = open_engine(model, tiny_limits());
  ChunkSpec const chunk{
      .start = 0, .tokens = random_tokens(1, 30, tiny_shape().vocab), .pages = pages_from(0, 2)};
  return run_step(engine.get(), StepSpec{{}, {chunk}}).logits;
}

TEST(model_refuses_impossible_shapes) {
  auto const refused = [](char const* name, auto const& change) {
    bunting_model_shape shape = tiny_shape();
    change(shape);
    bunting_model* model = nullptr;
    uint64_t weights, page, state;
    CHECK(bunting_model_open(&shape, &model) == BUNTING_INVALID, "opened: %s", name);
    CHECK(bunting_model_plan(&shape, 16, &weights, &page, &state) == BUNTING_INVALID, "planned: %s", name);
  };
  using Shape = bunting_model_shape;
  refused("no layers", [](Shape& s) { s.layers = 0; });
  refused("negative hidden", [](Shape& s) { s.hidden = -8; });
  refused("huge vocabulary", [](Shape& s) { s.vocab = 0x7fffffff; });
  refused("head size 24", [](Shape& s) { s.head_size = 24; });
  refused("3 key-value heads for 4", [](Shape& s) { s.kv_heads = 3; });
  refused("more key-value heads", [](Shape& s) { s.kv_heads = 8; });
  refused("int8", [](Shape& s) { s.compute = 7; });
  refused("f16", [](Shape& s) { s.compute = BUNTING_F16; });
  refused("unknown kind of keys", [](Shape& s) { s.kv = 2; });
  refused("int8 keys with f32", [](Shape& s) { s.kv = BUNTING_KV_INT8, s.compute = BUNTING_F32; });
  refused("int4 keys with f32", [](Shape& s) { s.kv = BUNTING_KV_INT4, s.compute = BUNTING_F32; });
  refused("no threads", [](Shape& s) { s.threads = 0; });
  refused("future instruction set", [](Shape& s) { s.isa = 99; });
  refused("epsilon 0", [](Shape& s) { s.norm_epsilon = 0; });
  refused("an unknown mixer", [](Shape& s) { s.layer = tiny_layers([](auto& layer) { layer.mixer = 9; }); });
  auto const of_latents = [&](char const* name, auto const& change) {
    refused(name, [&](Shape& s) {
      s = tiny_latent_shape(s, 16);
      change(s);
    });
  };
  of_latents("a latent of 40", [](Shape& s) { s.latent_rank = 40, s.head_size = 56; });
  of_latents("another latent than a head's", [](Shape& s) { s.latent_rank = 64; });
  of_latents("two key heads of latents", [](Shape& s) { s.kv_heads = 2; });
  of_latents("values of 24", [](Shape& s) { s.value_size = 24; });
  of_latents("queries' latent of 8", [](Shape& s) { s.query_rank = 8; });
  of_latents("no norm of latents", [](Shape& s) { s.latent_norm_epsilon = 0; });
  of_latents("latents in int8", [](Shape& s) { s.kv = BUNTING_KV_INT8; });
  refused("an unknown MLP", [](Shape& s) { s.layer = tiny_layers([](auto& layer) { layer.mlp = 9; }); });
  refused("a rope that is not there",
          [](Shape& s) { s.layer = tiny_layers([](auto& layer) { layer.rope = 1; }); });
  refused("xIELU in a gated MLP", [](Shape& s) { s.activation = BUNTING_ACTIVATION_XIELU; });
  refused("streams without inputs of layers", [](Shape& s) {
    s = tiny_streams_shape(s);
    s.layer_inputs = 0;
  });
  refused("more streams than layers and 1", [](Shape& s) {
    s = tiny_streams_shape(s);
    s.streams = 5;
  });
  refused("streams without LAuReL", [](Shape& s) { s.streams = 2, s.layer_inputs = 16; });
  refused("LAuReL without norms around",
          [](Shape& s) { s.layer = tiny_layers([](auto& layer) { layer.laurel_rank = 16; }); });
  refused("sparse gates without a gate", [](Shape& s) {
    s.layer = tiny_layers([](auto& layer) { layer.mlp = BUNTING_MLP_PLAIN, layer.sparse_gate = 1; });
  });
  refused("biases of norms beside experts", [](Shape& s) {
    s = tiny_mixed_shape(s, 64);
    s.norm = BUNTING_NORM_LAYER, s.norm_biases = 1;
  });
  refused("a parallel MLP with a norm of its own",
          [](Shape& s) { s.layer = tiny_layers([](auto& layer) { layer.parallel = 1; }); });
  auto const with = [](auto const& change) { return [change](Shape& s) { s.layer = tiny_layers(change); }; };
  refused("a layer's heads wider than the model's", with([](auto& layer) { layer.head_size = 32; }));
  refused("a layer's heads of 8", with([](auto& layer) { layer.head_size = 8; }));
  refused("more key-value heads of a layer", with([](auto& layer) { layer.kv_heads = 4; }));
  refused("a layer's MLP of an odd width", with([](auto& layer) { layer.feed_forward = 17; }));
  refused("a rope wider than a layer's head", [](Shape& s) {
    s.head_size = 32;
    s.rope = tiny_rope(32);
    s.layer = tiny_layers([](auto& layer) { layer.head_size = 16; });
  });
  refused("keys of a layer before the first", with([](auto& layer) { layer.kv_layers_back = 1; }));
  refused("values of an unknown kind", with([](auto& layer) { layer.values = 4; }));
  refused("an MLP and experts, and no experts",
          with([](auto& layer) { layer.mlp = BUNTING_MLP_BOTH, layer.norms = 15, layer.biases = 0; }));
  refused("an MLP and experts without norms of their own", [&](Shape& s) {
    s.experts = 4, s.experts_used = 2, s.expert_feed_forward = 32, s.router_groups = s.router_groups_used = 1,
    s.router_scale = 1;
    s.layer = tiny_layers([](auto& layer) { layer.mlp = BUNTING_MLP_BOTH, layer.biases = 0; });
  });
  refused("inputs of layers of 24", [](Shape& s) { s.layer_inputs = 24; });
  refused("no layers' shapes", [](Shape& s) { s.layer = nullptr; });
  refused("a rope wider than a head", [](Shape& s) { s.rope = tiny_rope(s.head_size + 2); });
  refused("a negative cap", [](Shape& s) { s.logit_cap = -1; });
  refused("unknown format", [](Shape& s) {
    static uint8_t const formats[] = {0, 0, 1, 1, 2, 1, 0, 0, 0, 4, 4, 2, 10, 0, 0, 0, 0};
    s.formats = formats;
  });
  refused("no scale", [](Shape& s) { s.attention_scale = 0; });
}

TEST(model_names_what_is_wrong_with_a_tensor) {
  bunting_model_shape const shape = tiny_shape();
  TinyFile const file(shape);
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  TinyFile::Tensor const& embed = file.tensors()[0];
  auto const load = [&](int32_t tensor, int32_t layer, std::string const& path, uint64_t offset,
                        int64_t rows) {
    return bunting_model_load(opened, tensor, layer, path.c_str(), offset, BUNTING_F32, rows, embed.cols);
  };
  auto const says = [](char const* word) { return std::strstr(bunting_last_error(), word) != nullptr; };
  CHECK(load(3, 0, file.path(), 0, 1) == BUNTING_INVALID, "unknown tensor");
  CHECK(load(BUNTING_T_Q, 2, file.path(), 0, 64) == BUNTING_INVALID && says("layer 2 of 2"), "%s",
        bunting_last_error());
  CHECK(load(BUNTING_T_EMBED, 0, file.path(), 0, 130) == BUNTING_INVALID && says("[131, 40]"), "%s",
        bunting_last_error());
  CHECK(load(BUNTING_T_EMBED, 0, file.path() + "x", 0, 131) == BUNTING_IO && says("cannot be opened"), "%s",
        bunting_last_error());
  CHECK(load(BUNTING_T_EMBED, 0, "/", 0, 131) == BUNTING_IO, "a folder");
  CHECK(load(BUNTING_T_EMBED, 0, file.path(), 1u << 30, 131) == BUNTING_INVALID && says("leave the file"),
        "%s", bunting_last_error());
  CHECK(load(BUNTING_T_EMBED, 0, file.path(), UINT64_MAX - 3, 131) == BUNTING_INVALID, "offset near 2^64");
  CHECK(load(BUNTING_T_EMBED, 0, file.path(), 0, 131) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(load(BUNTING_T_EMBED, 0, file.path(), 0, 131) == BUNTING_INVALID && says("already"), "%s",
        bunting_last_error());
  CHECK(bunting_model_seal(opened) == BUNTING_INVALID && says("final norm is missing"), "%s",
        bunting_last_error());
  bunting_engine* engine = nullptr;
  bunting_engine_limits const limits = tiny_limits();
  CHECK(bunting_engine_open(opened, nullptr, &limits, nullptr, &engine) == BUNTING_INVALID &&
            says("not sealed"),
        "%s", bunting_last_error());
}

TEST(model_names_the_missing_layer) {
  bunting_model_shape const shape = tiny_shape();
  TinyFile const file(shape);
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  for (TinyFile::Tensor const& t : file.tensors())
    if (t.tensor != BUNTING_T_UP || t.layer != 1)
      bunting_model_load(opened, t.tensor, t.layer, file.path().c_str(), t.offset, BUNTING_F32, t.rows,
                         t.cols);
  CHECK(bunting_model_seal(opened) == BUNTING_INVALID, "sealed");
  CHECK(std::strstr(bunting_last_error(), "up of layer 1 is missing"), "%s", bunting_last_error());
}

TEST(model_has_no_tensors_beyond_its_shape) {
  bunting_model_shape shape = tiny_shape();
  shape.layer = tiny_layers([](auto& layer) { layer.biases = layer.qk_norm = 0; });
  shape.tied_embeddings = 1;
  TinyFile const file(tiny_shape());
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  for (int32_t tensor : {BUNTING_T_LM_HEAD, BUNTING_T_Q_BIAS, BUNTING_T_V_BIAS, BUNTING_T_K_NORM,
                         BUNTING_T_SINKS, BUNTING_T_DOWN_BIAS, BUNTING_T_MLP_POST_NORM})
    CHECK(bunting_model_load(opened, tensor, 0, file.path().c_str(), 0, BUNTING_F32, 1, 1) == BUNTING_INVALID,
          "took tensor %d", tensor);
}

// LFM3's files have one row of the gate for each head.
TEST(model_takes_a_row_of_the_gate_for_each_head) {
  bunting_model_shape shape = tiny_shape();
  shape.layer = tiny_layers([](auto& layer) { layer.gated_output = 1; });
  TinyFile const file(shape);
  std::string const path = file.path() + "-rows";
  std::FILE* const from = std::fopen(file.path().c_str(), "rb");
  std::FILE* const to = std::fopen(path.c_str(), "wb");
  REQUIRE(from && to, "no files");
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  auto const load = [&](TinyFile::Tensor const& t, std::string const& at, uint64_t offset, int32_t flag) {
    return bunting_model_load(opened, t.tensor, t.layer, at.c_str(), offset, BUNTING_F32 + flag, t.rows,
                              t.cols);
  };
  int64_t const head_size = shape.head_size;
  std::vector<std::pair<TinyFile::Tensor, uint64_t>> gates;
  for (TinyFile::Tensor const& t : file.tensors()) {
    bool const is_gate = t.tensor == BUNTING_T_Q_GATE;
    if (!is_gate) {
      CHECK(load(t, file.path(), t.offset, BUNTING_ROW_PER_HEAD) == BUNTING_INVALID, "tensor %d", t.tensor);
      CHECK(load(t, file.path(), t.offset, 0) == BUNTING_OK, "%s", bunting_last_error());
      continue;
    }
    std::vector<float> numbers(size_t(t.rows * t.cols));
    std::fseek(from, long(t.offset), SEEK_SET);
    CHECK(std::fread(numbers.data(), 4, numbers.size(), from) == numbers.size(), "a short file");
    gates.push_back({t, uint64_t(std::ftell(to))});
    for (int64_t row = 0; row < t.rows; row++) {
      float const* const of_head = numbers.data() + row / head_size * head_size * t.cols;
      if (row % head_size == 0) std::fwrite(of_head, 4, size_t(t.cols), to);
      for (int64_t i = 0; i < t.cols; i++) file.poke(t.tensor, t.layer, row * t.cols + i, of_head[i]);
    }
  }
  std::fclose(from);
  std::fclose(to);
  CHECK(!gates.empty(), "no gates");
  for (auto const& [t, offset] : gates)
    CHECK(load(t, path, offset, BUNTING_ROW_PER_HEAD) == BUNTING_OK, "%s", bunting_last_error());
  REQUIRE(bunting_model_seal(opened) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(logits_of(opened) == logits_of(load_model(shape, file).get()), "the logits differ");
  unlink(path.c_str());  // GPU engines read it when they open
}

TEST(model_takes_every_element_type_at_any_offset) {
  bunting_model_shape shape = tiny_shape();
  shape.compute = BUNTING_F32;
  std::vector<float> const expected = logits_of(load_model(shape, TinyFile(shape)).get());
  REQUIRE(!expected.empty(), "no logits");
  std::vector<float> const skewed = logits_of(load_model(shape, TinyFile(shape, BUNTING_F32, 5)).get());
  CHECK(skewed == expected, "an odd offset changes the logits");
  for (int32_t const dtype : {BUNTING_F16, BUNTING_BF16}) {
    std::vector<float> const aligned = logits_of(load_model(shape, TinyFile(shape, dtype)).get());
    std::vector<float> const odd = logits_of(load_model(shape, TinyFile(shape, dtype, 4099)).get());
    CHECK(aligned == odd, "type %d: an odd offset changes the logits", dtype);
    double product = 0, a = 0, b = 0;
    for (size_t i = 0; i < expected.size() && i < aligned.size(); i++) {
      product += double(aligned[i]) * double(expected[i]);
      a += double(aligned[i]) * double(aligned[i]);
      b += double(expected[i]) * double(expected[i]);
    }
    CHECK(product > 0.999 * std::sqrt(a * b), "type %d: cosine %g", dtype, product / std::sqrt(a * b));
  }
}

TEST(model_undoes_paired_rows) {
  bunting_model_shape shape = tiny_shape();
  shape.threads = 3;
  TinyFile const plain(shape), paired(shape);
  // Both files have the same random rows; in `paired`, rows j and j + D/2 of a head are adjacent.
  int64_t const half = shape.head_size / 2;
  Random random{7};
  auto const may_be_paired = [](int32_t tensor) {
    return tensor == BUNTING_T_Q || tensor == BUNTING_T_K || tensor == BUNTING_T_Q_BIAS ||
           tensor == BUNTING_T_K_BIAS;
  };
  for (TinyFile::Tensor const& t : plain.tensors()) {
    if (!may_be_paired(t.tensor)) continue;
    bool const is_bias = t.rows == 1;
    int64_t const rows = is_bias ? t.cols : t.rows, cols = is_bias ? 1 : t.cols;
    for (int64_t row = 0; row < rows; row++) {
      int64_t const in_head = row % shape.head_size;
      int64_t const stored = row - in_head + 2 * (in_head % half) + in_head / half;
      for (int64_t col = 0; col < cols; col++) {
        float const value = random.uniform(-0.4f, 0.4f);
        plain.poke(t.tensor, t.layer, row * cols + col, value);
        paired.poke(t.tensor, t.layer, stored * cols + col, value);
      }
    }
  }
  for (uint8_t const format :
       {BUNTING_FORMAT_PLAIN, BUNTING_FORMAT_INT8, BUNTING_FORMAT_INT6, BUNTING_FORMAT_INT4}) {
    std::vector<uint8_t> const formats(17, format);
    shape.formats = formats.data();
    bunting_model* opened = nullptr;
    REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
    ModelPointer const model(opened);
    auto const load = [&](TinyFile::Tensor const& t, int32_t dtype) {
      return bunting_model_load(opened, t.tensor, t.layer, paired.path().c_str(), t.offset, dtype, t.rows,
                                t.cols);
    };
    for (TinyFile::Tensor const& t : paired.tensors()) {
      bool const is_paired = may_be_paired(t.tensor);
      if (!is_paired)
        CHECK(load(t, BUNTING_F32 + int32_t{BUNTING_PAIRED_ROWS}) == BUNTING_INVALID, "tensor %d in pairs",
              t.tensor);
      REQUIRE(load(t, is_paired ? BUNTING_F32 + int32_t{BUNTING_PAIRED_ROWS} : BUNTING_F32) == BUNTING_OK,
              "%s", bunting_last_error());
    }
    REQUIRE(bunting_model_seal(opened) == BUNTING_OK, "%s", bunting_last_error());
    std::vector<float> const expected = logits_of(load_model(shape, plain).get());
    REQUIRE(!expected.empty(), "no logits");
    CHECK(logits_of(opened) == expected, "format %d: paired rows change the logits", format);
  }
}

// A file has the rotated rows of q and k in pairs, the last ones of a head, and keys and values in one
// matrix.
TEST(model_takes_latents_as_folders_have_them) {
  bunting_model_shape const shape = tiny_latent_shape(tiny_shape(), 16);
  TinyFile const file(shape);
  int64_t const rank = shape.latent_rank, keys = shape.key_size, values = shape.value_size, half = 8;
  std::string const path = file.path() + "-folder";
  std::FILE* const from = std::fopen(file.path().c_str(), "rb");
  std::FILE* const to = std::fopen(path.c_str(), "wb");
  REQUIRE(from && to, "no files");
  auto const read = [&](TinyFile::Tensor const& t) {
    std::vector<float> numbers(size_t(t.rows * t.cols));
    std::fseek(from, long(t.offset), SEEK_SET);
    CHECK(std::fread(numbers.data(), 4, numbers.size(), from) == numbers.size(), "a short file");
    return numbers;
  };
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  struct Load {
    TinyFile::Tensor tensor;
    int32_t flags;
    uint64_t offset;
  };
  std::vector<Load> loads;
  for (size_t i = 0; i < file.tensors().size(); i++) {
    TinyFile::Tensor const& t = file.tensors()[i];
    std::vector<float> const numbers = read(t);
    std::vector<float> stored = numbers;
    int32_t flags = 0;
    if (t.tensor == BUNTING_T_LATENT_VALUES) continue;  // beside the keys, which come before
    if (t.tensor == BUNTING_T_Q || t.tensor == BUNTING_T_K) {
      flags = BUNTING_PAIRED_ROWS;
      int64_t const plain = t.tensor == BUNTING_T_Q ? keys : rank, head = plain + 2 * half;
      for (int64_t row = 0; row < t.rows; row++) {
        int64_t const in_head = row % head - plain;
        if (in_head < 0) continue;
        int64_t const place = row - in_head + 2 * (in_head % half) + in_head / half;
        for (int64_t col = 0; col < t.cols; col++)
          stored[size_t(place * t.cols + col)] = numbers[size_t(row * t.cols + col)];
      }
    }
    if (t.tensor == BUNTING_T_LATENT_KEYS) {
      flags = BUNTING_KEYS_WITH_VALUES;
      std::vector<float> const of_values = read(file.tensors()[i + 1]);
      stored.assign(size_t(shape.query_heads * (keys + values) * rank), 0);
      for (int64_t head = 0; head < shape.query_heads; head++) {
        float* const rows = stored.data() + head * (keys + values) * rank;
        for (int64_t j = 0; j < keys; j++)
          for (int64_t c = 0; c < rank; c++)
            rows[j * rank + c] = numbers[size_t((head * rank + c) * keys + j)];
        std::copy_n(of_values.data() + head * values * rank, values * rank, rows + keys * rank);
      }
    }
    uint64_t const offset = uint64_t(std::ftell(to));
    std::fwrite(stored.data(), 4, stored.size(), to);
    loads.push_back({t, flags, offset});
    if (t.tensor == BUNTING_T_LATENT_KEYS) loads.push_back({file.tensors()[i + 1], flags, offset});
  }
  std::fclose(from);
  std::fclose(to);
  for (Load const& load : loads)
    REQUIRE(bunting_model_load(opened, load.tensor.tensor, load.tensor.layer, path.c_str(), load.offset,
                               BUNTING_F32 + load.flags, load.tensor.rows, load.tensor.cols) == BUNTING_OK,
            "%s", bunting_last_error());
  unlink(path.c_str());
  REQUIRE(bunting_model_seal(opened) == BUNTING_OK, "%s", bunting_last_error());
  std::vector<float> const expected = logits_of(load_model(shape, file).get());
  REQUIRE(!expected.empty(), "no logits");
  CHECK(logits_of(opened) == expected, "the logits differ");
}

TEST(model_has_a_row_for_every_kind_of_tensor) {
  for (int32_t kind = 0; kind < BUNTING_EXPERT; kind++) {
    bool const is_kind = kind <= BUNTING_T_TOKEN_TYPES ||
                         (kind >= BUNTING_T_ATTN_NORM && kind <= BUNTING_T_LATENT_VALUES) ||
                         (kind >= BUNTING_T_Q_GATE && kind <= BUNTING_T_STATE_O) ||
                         (kind >= BUNTING_T_XIELU_ALPHA_P && kind <= BUNTING_T_HEAD_NORM);
    TensorKind const* const row = tensor_kind(kind);
    CHECK((row != nullptr) == is_kind, "kind %d", kind);
    if (row) CHECK(row->kind == kind && tensor_kind(kind + 3 * BUNTING_EXPERT) == row, "kind %d", kind);
  }
  CHECK(!tensor_kind(-1), "kind -1");
}

TEST(model_refuses_layouts_that_a_tensor_cannot_have) {
  bunting_model_shape const shape = tiny_shape();
  TinyFile const file(shape);
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  auto const refused = [&](int32_t tensor, int32_t flags, char const* why) {
    for (TinyFile::Tensor const& t : file.tensors()) {
      if (t.tensor != tensor || t.layer != 0) continue;
      bunting_status const status = bunting_model_load(opened, tensor, 0, file.path().c_str(), t.offset,
                                                       BUNTING_F32 + flags, t.rows, t.cols);
      CHECK(status == BUNTING_INVALID && std::strstr(bunting_last_error(), why), "tensor %d: %s", tensor,
            bunting_last_error());
      return;
    }
    CHECK(false, "the file has no tensor %d", tensor);
  };
  refused(BUNTING_T_O, BUNTING_PAIRED_ROWS, "o of layer 0 cannot have its rows in pairs");
  refused(BUNTING_T_Q, BUNTING_ONE_LESS, "q of layer 0 cannot be stored less 1");
  refused(BUNTING_T_UP, BUNTING_GROUPED_HEADS, "up of layer 0 cannot have its rows grouped by head");
  refused(BUNTING_T_K, BUNTING_GROUPED_HEADS + int32_t{BUNTING_PAIRED_ROWS}, "and in another order");
  refused(BUNTING_T_V, BUNTING_EVERY_SECOND, "v of layer 0 cannot be interleaved or transposed");
  refused(BUNTING_T_K, BUNTING_KEYS_WITH_VALUES, "k of layer 0 cannot be in one matrix with values");
  refused(BUNTING_T_EMBED, BUNTING_TRANSPOSED, "embedding cannot be interleaved or transposed");
}

TEST(model_takes_whole_blocks_only) {
  bunting_model_shape const shape = tiny_shape();
  TinyFile const file(shape);
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  CHECK(bunting_model_load(opened, BUNTING_T_Q, 0, file.path().c_str(), 0, BUNTING_Q8_0, 64, 40) ==
            BUNTING_INVALID,
        "rows of 40");
  CHECK(std::strstr(bunting_last_error(), "rows of 40, no whole number of Q8_0 blocks of 32"), "%s",
        bunting_last_error());
}

// File with given bytes, removed with the object.
struct BytesFile {
  explicit BytesFile(std::vector<char> const& bytes) {
    char const* const folder = std::getenv("TMPDIR");
    path = std::string(folder ? folder : "/tmp") + "/bunting-blocks-XXXXXX";
    int const file = mkstemp(path.data());
    if (write(file, bytes.data(), bytes.size()) != ssize_t(bytes.size())) std::abort();
    close(file);
  }
  ~BytesFile() { unlink(path.c_str()); }
  std::string path;
};

// A matrix in int8 as stored keeps the integers of Q4_0 exactly.
TEST(model_keeps_q4_0_exactly_in_stored_int8) {
  bunting_model_shape shape = tiny_shape();
  shape.hidden = 64;
  uint8_t const formats[17] = {0, 0, BUNTING_FORMAT_Q8_0};
  shape.formats = formats;
  TinyFile const file(shape);
  int64_t const rows = int64_t(shape.query_heads) * shape.head_size, blocks = rows * 2;
  std::vector<char> narrow(size_t(blocks) * 18), wide(size_t(blocks) * 34);
  Random random{3};
  for (char& byte : narrow) byte = char(random.next());
  for (int64_t i = 0; i < blocks; i++) std::memcpy(&narrow[size_t(i) * 18], "\x66\x28", 2);  // 0.034
  widen_q4_0(narrow.data(), blocks, wide.data());
  auto const logits = [&](std::vector<char> const& stored, int32_t dtype) -> std::vector<float> {
    BytesFile const q(stored);
    bunting_model* opened = nullptr;
    if (bunting_model_open(&shape, &opened) != BUNTING_OK) return {};
    ModelPointer const model(opened);
    for (TinyFile::Tensor const& t : file.tensors()) {
      bool const is_ours = t.tensor == BUNTING_T_Q && t.layer == 0;
      bunting_model_load(opened, t.tensor, t.layer, (is_ours ? q.path : file.path()).c_str(),
                         is_ours ? 0 : t.offset, is_ours ? dtype : BUNTING_F32, t.rows, t.cols);
    }
    if (bunting_model_seal(opened) != BUNTING_OK) return {};
    return logits_of(opened);
  };
  std::vector<float> const want = logits(wide, BUNTING_Q8_0), got = logits(narrow, BUNTING_Q4_0);
  REQUIRE(!want.empty(), "%s", bunting_last_error());
  CHECK(got == want, "Q4_0 and the same in Q8_0 differ");
}

TEST(model_plan_counts_what_is_there) {
  bunting_model_shape shape = tiny_shape();
  uint64_t weights = 0, page = 0, state = 0, more = 0, workspace = 0;
  REQUIRE(bunting_model_plan(&shape, 16, &weights, &page, &state) == BUNTING_OK, "%s", bunting_last_error());
  // K and V of 16 tokens, 2 heads of 16, 2 layers, 2 bytes per number.
  CHECK(page == 2 * 16 * 2 * 16 * 2 * 2, "a page has %llu bytes", (unsigned long long)page);
  uint64_t latents = 0;
  bunting_model_shape const of_latents = tiny_latent_shape(shape, 16);
  REQUIRE(bunting_model_plan(&of_latents, 16, &more, &latents, &state) == BUNTING_OK, "%s",
          bunting_last_error());
  // The latent of 32 and 16 rotated numbers of 16 tokens, 2 layers.
  CHECK(latents == 16 * 48 * 2 * 2, "a page of latents has %llu bytes", (unsigned long long)latents);
  shape.vocab += 16;  // one panel more of embedding and vocabulary projection, K padded to 64
  REQUIRE(bunting_model_plan(&shape, 16, &more, &page, &state) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(more - weights == 2 * 16 * 64 * 2, "16 more tokens take %llu bytes",
        (unsigned long long)(more - weights));
  CHECK(bunting_model_plan(&shape, 32, &weights, &page, &state) == BUNTING_INVALID, "pages of 32");
  // The embedding: 10 panels of one block of 64 k, each with 32 scales of 2 bytes.
  uint64_t const plain = more;
  for (auto const& [format, bits] : {std::pair(BUNTING_FORMAT_INT8, 8), std::pair(BUNTING_FORMAT_INT6, 6),
                                     std::pair(BUNTING_FORMAT_INT4, 4)}) {
    uint8_t const formats[17] = {uint8_t(format)};
    shape.formats = formats;
    REQUIRE(bunting_model_plan(&shape, 16, &more, &page, &state) == BUNTING_OK, "%s", bunting_last_error());
    uint64_t const expected = 10 * (64 + 64 * 16 * uint64_t(bits) / 8);
    CHECK(more == plain - 10 * 16 * 64 * 2 + expected, "format %d: %llu bytes after %llu", format,
          (unsigned long long)more, (unsigned long long)plain);
  }
  shape.formats = nullptr;
  bunting_engine_limits const limits = tiny_limits();
  uint64_t copy = 1, host = 1;
  REQUIRE(bunting_engine_plan(&shape, &limits, &workspace, &copy, &host) == BUNTING_OK, "%s",
          bunting_last_error());
  CHECK(workspace > uint64_t(limits.step_tokens_max) * 40 * 4, "workspace of %llu bytes",
        (unsigned long long)workspace);
  CHECK(copy == 0, "a copy of %llu bytes", (unsigned long long)copy);
  CHECK(host == 0, "%llu bytes beside the weights", (unsigned long long)host);
}

}  // namespace
}  // namespace bunting::test
