// LoRA adapters through the C boundary: refusals, and the slots that chunks name. Numbers are
// compared with merged weights in tests/device/adapters.test.ts.
#include <cmath>
#include <limits>

#include "include/adapters.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

struct CloseAdapter {
  void operator()(bunting_adapter* adapter) const { bunting_adapter_close(adapter); }
};
using AdapterPointer = std::unique_ptr<bunting_adapter, CloseAdapter>;

constexpr int32_t kRank = 3;

AdapterPointer open_adapter(bunting_model const* model) {
  bunting_adapter* adapter = nullptr;
  CHECK(bunting_adapter_open(model, &adapter) == BUNTING_OK, "%s", bunting_last_error());
  return AdapterPointer(adapter);
}

// Loads factors whose numbers are those of a file from its beginning on.
bunting_status load(bunting_adapter* adapter, TinyFile const& file, int32_t tensor, int32_t layer,
                    float scale = 0.5f, int32_t rank = kRank, int32_t dtype = BUNTING_F32,
                    uint64_t offset = 0) {
  bunting_factor const a{file.path().c_str(), offset, dtype, 0}, b{file.path().c_str(), 256, dtype, 0};
  return bunting_adapter_load(adapter, tensor, layer, rank, scale, &a, &b);
}

AdapterPointer sealed_adapter(bunting_model const* model, TinyFile const& file, float scale) {
  AdapterPointer adapter = open_adapter(model);
  for (int32_t const tensor : {BUNTING_T_Q, BUNTING_T_V, BUNTING_T_GATE, BUNTING_T_UP, BUNTING_T_DOWN})
    CHECK(load(adapter.get(), file, tensor, 0, scale) == BUNTING_OK, "%s", bunting_last_error());
  uint64_t bytes = 0;
  CHECK(bunting_adapter_seal(adapter.get(), &bytes) == BUNTING_OK && bytes > 0, "%s", bunting_last_error());
  return adapter;
}

TEST(an_adapter_refuses_what_is_not_its_models) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  AdapterPointer const adapter = open_adapter(model.get());
  auto const refused = [&](bunting_status status, char const* what) {
    CHECK(status == BUNTING_INVALID, "%s: %d", what, status);
  };
  refused(load(adapter.get(), file, BUNTING_T_EMBED, 0), "the embedding");
  refused(load(adapter.get(), file, BUNTING_T_ATTN_NORM, 0), "a norm");
  refused(load(adapter.get(), file, BUNTING_T_ROUTER, 0), "a matrix that the model does not have");
  refused(load(adapter.get(), file, 9999, 0), "no tensor");
  refused(load(adapter.get(), file, BUNTING_T_Q, tiny_shape().layers), "a layer too many");
  refused(load(adapter.get(), file, BUNTING_T_Q, -1), "layer -1");
  refused(load(adapter.get(), file, BUNTING_T_Q, 0, 1, 0), "rank 0");
  refused(load(adapter.get(), file, BUNTING_T_Q, 0, 1, BUNTING_ADAPTER_RANK_MAX + 1), "a rank too high");
  refused(load(adapter.get(), file, BUNTING_T_Q, 0, std::numeric_limits<float>::infinity()),
          "an infinite scale");
  uint64_t bytes = 0;
  refused(bunting_adapter_seal(adapter.get(), &bytes), "an adapter that changes nothing");
  CHECK(load(adapter.get(), file, BUNTING_T_Q, 0) == BUNTING_OK, "%s", bunting_last_error());
  refused(load(adapter.get(), file, BUNTING_T_Q, 0), "a matrix twice");

  AdapterPointer const blocks = open_adapter(model.get());
  CHECK(load(blocks.get(), file, BUNTING_T_Q, 0, 1, 32, BUNTING_Q8_0) == BUNTING_OK, "%s",
        bunting_last_error());
  refused(bunting_adapter_seal(blocks.get(), &bytes), "factors in blocks");
  AdapterPointer const beyond = open_adapter(model.get());
  CHECK(load(beyond.get(), file, BUNTING_T_Q, 0, 1, kRank, BUNTING_F32, uint64_t(1) << 40) == BUNTING_OK,
        "%s", bunting_last_error());
  CHECK(bunting_adapter_seal(beyond.get(), &bytes) != BUNTING_OK, "factors behind the end of the file");
}

TEST(an_adapter_with_a_number_that_is_not_finite_is_refused) {
  TinyFile const file(tiny_shape()), broken(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  TinyFile::Tensor const& first = broken.tensors().front();
  broken.poke(first.tensor, first.layer, 5, std::nanf(""));
  AdapterPointer const adapter = open_adapter(model.get());
  CHECK(load(adapter.get(), broken, BUNTING_T_O, 0) == BUNTING_OK, "%s", bunting_last_error());
  uint64_t bytes = 0;
  CHECK(bunting_adapter_seal(adapter.get(), &bytes) == BUNTING_INVALID, "NaN in A");
}

TEST(chunks_are_computed_with_the_adapter_in_their_slot) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file), other = load_model(tiny_shape(), file);
  REQUIRE(model && other, "no model");
  AdapterPointer const weak = sealed_adapter(model.get(), file, 0.25f),
                       strong = sealed_adapter(model.get(), file, 2),
                       foreign = sealed_adapter(other.get(), file, 1), open = open_adapter(model.get());
  bunting_engine_limits limits = tiny_limits();
  limits.adapters_max = 2, limits.adapter_rank_max = kRank;
  EnginePointer const engine = open_engine(model.get(), limits);
  REQUIRE(engine, "no engine");
  auto const put = [&](int32_t slot, bunting_adapter const* adapter) {
    return bunting_engine_put_adapter(engine.get(), slot, adapter);
  };
  auto const logits = [&](int32_t slot) {
    ChunkSpec const chunk{.tokens = random_tokens(3, 9, tiny_shape().vocab), .pages = {1}, .adapter = slot};
    return run_step(engine.get(), encode(StepSpec{.chunks = {chunk}}), 1);
  };
  CHECK(put(0, weak.get()) == BUNTING_INVALID, "slot 0");
  CHECK(put(3, weak.get()) == BUNTING_INVALID, "a slot too many");
  CHECK(put(1, open.get()) == BUNTING_INVALID, "an adapter that is not sealed");
  CHECK(put(1, foreign.get()) == BUNTING_INVALID, "an adapter of another model");
  CHECK(logits(1).status == BUNTING_INVALID, "an empty slot");
  CHECK(logits(3).status == BUNTING_INVALID, "a slot that does not exist");
  CHECK(logits(-1).status == BUNTING_INVALID, "slot -1");

  CHECK(put(1, weak.get()) == BUNTING_OK && put(2, strong.get()) == BUNTING_OK, "%s", bunting_last_error());
  std::vector<float> const none = logits(0).logits, first = logits(1).logits, second = logits(2).logits;
  CHECK(none != first && first != second && none != second, "two slots with the same logits");
  CHECK(put(1, strong.get()) == BUNTING_OK && logits(1).logits == second, "the other adapter in the slot");
  CHECK(put(1, nullptr) == BUNTING_OK && logits(1).status == BUNTING_INVALID, "a slot that was emptied");
  CHECK(logits(0).logits == none && logits(2).logits == second, "the other slots");

  bunting_engine_limits too_low = limits;
  too_low.adapter_rank_max = kRank - 1;
  EnginePointer const narrow = open_engine(model.get(), too_low);
  CHECK(bunting_engine_put_adapter(narrow.get(), 1, weak.get()) == BUNTING_INVALID, "a rank above the limit");
}

}  // namespace
}  // namespace bunting::test
