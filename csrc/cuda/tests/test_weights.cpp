// Tests of weights on their way to the device: a model that is read from its files piece by piece ends as the
// same bytes as one that was packed in memory, in little memory of the host's.
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <utility>

#include "cuda/tests/device_test.h"
#include "cuda/tests/models.h"
#include "cuda/uploader.h"
#include "cuda/weights.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BUNTING_COUNTS_HEAP 0
#else
#define BUNTING_COUNTS_HEAP 1
#endif

namespace {

std::atomic<int64_t> heap_bytes{0}, heap_bytes_most{0};

}  // namespace

// Counts the bytes of this program that come from new.
#if BUNTING_COUNTS_HEAP
void* operator new(size_t bytes) {
  void* const data = std::malloc(bytes);
  if (!data) throw std::bad_alloc();
  int64_t const now = heap_bytes += int64_t(malloc_usable_size(data));
  for (int64_t most = heap_bytes_most; now > most && !heap_bytes_most.compare_exchange_weak(most, now);) {
  }
  return data;
}
void operator delete(void* data) noexcept {
  heap_bytes -= int64_t(malloc_usable_size(data));
  std::free(data);
}
void operator delete(void* data, size_t) noexcept {
  operator delete(data);
}
#endif

namespace bunting::test {
namespace {

using cuda::DeviceWeights;

// Makes pieces and slots so small that small models need many of them.
struct SmallPieces {
  size_t const slot = std::exchange(cuda::Staging::slot_bytes, size_t(1) << 16);
  size_t const sent = std::exchange(cuda::Uploader::sent_bytes, size_t(3) << 12);
  ~SmallPieces() {
    cuda::Staging::slot_bytes = slot;
    cuda::Uploader::sent_bytes = sent;
  }
};

std::vector<char> bytes_of(DeviceWeights const& weights) {
  cuda::MappedMemory host(weights.memory().bytes(), "a test");
  cuda::Stream stream;
  stream.copy(host.data(), weights.memory().data(), host.bytes());
  stream.finish(kKernelDeadlineMs, "has not copied");
  return {host.data(), host.data() + host.bytes()};
}

std::vector<char> loaded(TinyFile const& file, bunting_model_shape const& shape, Model::Loading loading,
                         FlagsOf flags) {
  Model model(shape);
  load(file, model, loading, flags);
  return bytes_of(DeviceWeights(model));
}

void is_the_same_either_way(bunting_model_shape const& shape, int32_t dtype, FlagsOf flags,
                            char const* what) {
  TinyFile const file(shape, dtype, 3);
  std::vector<char> const packed = loaded(file, shape, Model::Loading::now, flags);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    set_order(seed);
    CHECK(loaded(file, shape, Model::Loading::deferred, flags) == packed, "%s, type %d: other bytes", what,
          dtype);
  }
  set_order(1);
}

int32_t no_flags(int32_t) {
  return 0;
}

// Returns every order of rows that a kind of tensor may have in a file.
int32_t many_flags(int32_t kind) {
  switch (kind) {
    case BUNTING_T_Q:
    case BUNTING_T_K:
    case BUNTING_T_Q_BIAS:
      return BUNTING_PAIRED_ROWS;
    case BUNTING_T_V:
      return BUNTING_GROUPED_HEADS;
    case BUNTING_T_UP:
      return BUNTING_TRANSPOSED;
    case BUNTING_T_GATE:
      return BUNTING_TRANSPOSED + int32_t{BUNTING_EVERY_SECOND};
    case BUNTING_T_ATTN_NORM:
    case BUNTING_T_FINAL_NORM:
      return BUNTING_ONE_LESS;
    default:
      return 0;
  }
}

bunting_model_shape with_formats(bunting_model_shape shape, std::vector<uint8_t>& formats, uint8_t format,
                                 bool is_tied) {
  formats.assign(size_t(3 + 10 * shape.layers), format);
  shape.formats = formats.data();
  shape.tied_embeddings = is_tied;
  return shape;
}

}  // namespace

TEST(cuda_weights_from_files_are_those_from_memory) {
  SmallPieces const small;
  for (int32_t dtype : {BUNTING_F32, BUNTING_BF16, BUNTING_F16})
    for (bunting_model_shape const& shape : shapes_of_all_kinds())
      is_the_same_either_way(shape, dtype, no_flags, "any kind of layer");
}

TEST(cuda_weights_from_files_are_those_from_memory_in_every_format) {
  SmallPieces const small;
  for (bool is_tied : {false, true})
    for (uint8_t format : {BUNTING_FORMAT_PLAIN, BUNTING_FORMAT_INT8, BUNTING_FORMAT_Q8_0,
                           BUNTING_FORMAT_INT6, BUNTING_FORMAT_INT4, BUNTING_FORMAT_FP8})
      for (bunting_model_shape const& shape :
           {shapes_of_all_kinds()[0], shapes_of_all_kinds()[4], recurrent_shapes()[0]}) {
        std::vector<uint8_t> formats;
        std::string const what = "format " + std::to_string(format) + (is_tied ? ", tied" : "");
        bunting_model_shape const stored = with_formats(shape, formats, format, is_tied);
        is_the_same_either_way(stored, BUNTING_BF16, no_flags, what.c_str());
        // A recurrent layer's z may have another format than its q, k and v.
        for (int32_t layer = 0; layer < shape.layers; ++layer)
          formats[size_t(3 + 7 * shape.layers + 3 * layer + 1)] = BUNTING_FORMAT_PLAIN;
        if (shape.state_conv > 0)
          is_the_same_either_way(stored, BUNTING_BF16, no_flags, (what + ", z is plain").c_str());
      }
}

TEST(cuda_weights_from_files_are_those_from_memory_in_every_order_of_rows) {
  SmallPieces const small;
  for (int32_t dtype : {BUNTING_F32, BUNTING_BF16})
    is_the_same_either_way(shape_for_gpu(), dtype, many_flags, "many orders");
}

// A deferred model converts its tensors to a packed file as it would in memory, and then has them there.
TEST(cuda_weights_of_a_deferred_model_can_be_kept) {
  SmallPieces const small;
  uint8_t const key[32] = {1, 2, 3};
  for (bunting_model_shape const& shape : shapes_of_all_kinds()) {
    std::vector<uint8_t> formats;
    bunting_model_shape const rounded = with_formats(shape, formats, BUNTING_FORMAT_INT8, false);
    TinyFile const file(rounded);
    Model packed(rounded), deferred(rounded), restored(rounded);
    load(file, packed);
    load(file, deferred, Model::Loading::deferred);
    std::vector<char> const wanted = bytes_of(DeviceWeights(packed));
    std::string const path = file.path() + ".packed";
    std::vector<std::pair<uint64_t, uint64_t>> static progress;
    progress.clear();
    CHECK(deferred.is_in_files(), "it is in memory");
    deferred.save(path.c_str(), key, [](uint64_t done, uint64_t of) { progress.emplace_back(done, of); });
    CHECK(!deferred.is_in_files() && progress.back().first == progress.back().second, "it is in files still");
    CHECK(bytes_of(DeviceWeights(deferred)) == wanted, "other bytes once it is kept");
    restored.allocate(Model::Loading::deferred);
    restored.restore(path.c_str(), key, nullptr);
    restored.seal();
    CHECK(bytes_of(DeviceWeights(restored)) == wanted, "other bytes from the packed file");
    unlink(path.c_str());
  }
}

TEST(cuda_weights_tell_how_far_they_are) {
  SmallPieces const small;
  TinyFile const file(shape_for_gpu());
  Model model(shape_for_gpu());
  load(file, model, Model::Loading::deferred);
  static std::vector<std::pair<uint64_t, uint64_t>> progress;
  progress.clear();
  DeviceWeights const weights(model, [](uint64_t done, uint64_t of) { progress.emplace_back(done, of); });
  uint64_t last = 0;
  for (auto const& [done, of] : progress) {
    CHECK(done > last && of == DeviceWeights::bytes(model), "%llu of %llu", (unsigned long long)done,
          (unsigned long long)of);
    last = done;
  }
  CHECK(progress.size() > 10 && last == DeviceWeights::bytes(model), "%zu pieces", progress.size());
}

// The host's memory that loading takes follows from the widths of the matrices and the number of threads. The
// count is of all that comes from new. Weights cannot be elsewhere: their addresses have no memory behind
// them.
TEST(cuda_weights_take_host_memory_by_width_alone) {
  SmallPieces const small;
  bunting_model_shape shape = shape_for_gpu();
  shape.hidden = 256, shape.feed_forward = 512;
  auto const most_bytes = [&](int32_t layers, int32_t vocab) {
    shape.layers = layers, shape.vocab = vocab;
    TinyFile const file(shape, BUNTING_F32);
    Model model(shape);
    load(file, model, Model::Loading::deferred);
    std::FILE* const nowhere = std::fopen("/dev/zero", "rb");
    CHECK(read(fileno(nowhere), model.embedding().data, 1) < 0, "there is memory for weights");
    std::fclose(nowhere);
    size_t const bytes = DeviceWeights::bytes(model), bound = DeviceWeights::host_bytes(model);
    int64_t const before = heap_bytes;
    heap_bytes_most = before;
    DeviceWeights const weights(model);
    int64_t const taken = heap_bytes_most - before + int64_t(cuda::Staging::bytes());
    CHECK(weights.host_bytes_used() <= bound, "%zu bytes, planned %zu", weights.host_bytes_used(), bound);
    constexpr int64_t kSlack = 64 << 10;  // threads, names, the lists of the uploader
    CHECK(!BUNTING_COUNTS_HEAP || taken <= int64_t(bound) + kSlack, "%lld bytes, planned %zu",
          (long long)taken, bound);
    CHECK(bound < bytes, "%zu bytes for %zu on the device", bound, bytes);
    return bound;
  };
  // A thread that packs no piece takes less, so it is the bounds of both that are equal.
  CHECK(most_bytes(2, 4000) == most_bytes(9, 17000), "more layers and rows may take more");
}

TEST(cuda_weights_of_several_streams_are_refused) {
  bunting_model_shape const shape = tiny_streams_shape(shape_for_gpu());
  Model const model(shape);
  try {
    cuda::check_shape(model);
    CHECK(false, "accepted");
  } catch (Error const& error) {
    CHECK(error.status() == BUNTING_INVALID && std::string(error.what()).find("AltUp") != std::string::npos,
          "%s", error.what());
  }
}

TEST(cuda_weights_that_are_not_finite_are_refused_by_name) {
  bunting_model_shape const shape = shape_for_gpu();
  for (auto [kind, name] : {std::pair(BUNTING_T_DOWN, "down of layer 1"),
                            std::pair(BUNTING_T_ATTN_NORM, "attention norm of layer 1")}) {
    TinyFile const file(shape);
    file.poke(kind, 1, 7, HUGE_VALF);
    Model model(shape);
    load(file, model, Model::Loading::deferred);
    std::string text;
    try {
      DeviceWeights const weights(model);
    } catch (Error const& error) {
      text = error.what();
      CHECK(error.status() == BUNTING_INVALID, "status %d", error.status());
    }
    CHECK(text == file.path() + ": " + name + " has a number that is not finite", "%s", text.c_str());
  }
}

TEST(cuda_weights_of_files_that_are_gone_or_cut_are_refused) {
  bunting_model_shape const shape = shape_for_gpu();
  TinyFile const file(shape);
  std::string const copy = file.path() + ".copy";
  std::filesystem::copy_file(file.path(), copy);
  Model model(shape);
  model.allocate(Model::Loading::deferred);
  for (TinyFile::Tensor const& t : file.tensors())
    model.load(t.tensor, t.layer, copy.c_str(), t.offset, file.dtype(), t.rows, t.cols);
  model.seal();
  auto const status = [&] {
    try {
      DeviceWeights const weights(model);
      return bunting_status{BUNTING_OK};
    } catch (Error const& error) {
      return error.status();
    }
  };
  CHECK(status() == BUNTING_OK, "whole");
  std::filesystem::resize_file(copy, file.tensors().back().offset);
  CHECK(status() == BUNTING_INVALID, "cut");
  std::filesystem::remove(copy);
  CHECK(status() == BUNTING_IO, "gone");
  std::filesystem::copy_file(file.path(), copy);
  CHECK(status() == BUNTING_OK, "there again");
  std::filesystem::remove(copy);
}

#ifndef BUNTING_ON_GPU
// The device may be lost at every copy; then nothing is left of it, and the next load works.
TEST(cuda_weights_lose_their_device_at_every_copy) {
  SmallPieces const small;
  TinyFile const file(shape_for_gpu());
  Model model(shape_for_gpu());
  load(file, model, Model::Loading::deferred);
  cuda::set_mishaps({});
  std::vector<char> const wanted = bytes_of(DeviceWeights(model));
  bool loads = false;
  int64_t copies = 0;
  for (; !loads; copies += copies < 10 ? 1 : 7) {
    cuda::set_mishaps({.lose_device = copies});
    try {
      DeviceWeights const weights(model);
      loads = true;
    } catch (Error const& error) {
      CHECK(error.status() == BUNTING_LOST, "copy %d: %s", int(copies), error.what());
    }
    cuda::use_device(0);  // resets it
  }
  CHECK(copies > 30, "%d copies", int(copies));
  cuda::set_mishaps({});
  CHECK(bytes_of(DeviceWeights(model)) == wanted, "other bytes afterwards");
}
#endif

}  // namespace bunting::test
