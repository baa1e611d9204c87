// test_packed_file.cpp - tests of packed files: packed weights return from disk unchanged, and no other file
// is accepted for them.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/machine.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr uint8_t kFormats[17] = {1, 0, 2, 2, 5, 0, 2, 0, 0, 0, 4, 2, 4, 1, 0, 0, 0};
constexpr uint8_t kKey[32] = {1, 2, 3};
constexpr int64_t kDataAt = 2 << 20;  // offset in a file

bunting_model_shape mixed_shape() {
  bunting_model_shape shape = tiny_shape();
  shape.formats = kFormats;
  return shape;
}

std::vector<float> logits_of(bunting_model const* model) {
  EnginePointer const engine = open_engine(model, tiny_limits());
  ChunkSpec const chunk{
      .start = 0, .tokens = random_tokens(1, 30, tiny_shape().vocab), .pages = pages_from(0, 2)};
  return run_step(engine.get(), StepSpec{{}, {chunk}}).logits;
}

// An open, empty model.
ModelPointer open_model(bunting_model_shape const& shape) {
  bunting_model* opened = nullptr;
  if (bunting_model_open(&shape, &opened) != BUNTING_OK)
    failed(__FILE__, __LINE__, "model_open: %s", bunting_last_error());
  return ModelPointer(opened);
}

void load_all(bunting_model* model, TinyFile const& file) {
  for (TinyFile::Tensor const& t : file.tensors())
    CHECK(bunting_model_load(model, t.tensor, t.layer, file.path().c_str(), t.offset, file.dtype(), t.rows,
                             t.cols) == BUNTING_OK,
          "%s", bunting_last_error());
  CHECK(bunting_model_seal(model) == BUNTING_OK, "%s", bunting_last_error());
}

// Saved model and its path; the file is removed with the object.
struct Saved {
  explicit Saved(bunting_model_shape const& shape) : path(file.path() + ".packed") {
    ModelPointer const model = load_model(shape, file);
    CHECK(bunting_model_save(model.get(), path.c_str(), kKey, nullptr) == BUNTING_OK, "%s",
          bunting_last_error());
    logits = logits_of(model.get());
    struct stat status;
    stat(path.c_str(), &status);
    bytes = status.st_size;
  }
  ~Saved() { unlink(path.c_str()); }

  // Changes one byte of the file.
  void damage(int64_t at) const {
    std::FILE* const f = std::fopen(path.c_str(), "r+b");
    std::fseek(f, long(at), SEEK_SET);
    int const byte = std::fgetc(f);
    std::fseek(f, long(at), SEEK_SET);
    std::fputc(byte ^ 1, f);
    std::fclose(f);
  }

  TinyFile file{tiny_shape()};
  std::string path;
  std::vector<float> logits;
  int64_t bytes = 0;
};

bool says(char const* words) {
  return std::strstr(bunting_last_error(), words) != nullptr;
}

TEST(packed_file_comes_back_on_every_level) {
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= usable_isa(); isa++) {
    if (!kernels_for(isa)) continue;  // a build without this level
    bunting_model_shape shape = mixed_shape();
    shape.isa = isa;
    Saved const saved(shape);
    // A file packed on one level and read on another equals one packed there.
    shape.isa = usable_isa();
    ModelPointer const model = open_model(shape);
    REQUIRE(bunting_model_restore(model.get(), saved.path.c_str(), kKey, nullptr) == BUNTING_OK, "%s",
            bunting_last_error());
    REQUIRE(bunting_model_seal(model.get()) == BUNTING_OK, "%s", bunting_last_error());
    ModelPointer const packed = load_model(shape, saved.file);
    CHECK(logits_of(model.get()) == logits_of(packed.get()), "packed on level %d, read on %d", isa,
          shape.isa);
  }
}

#ifdef __linux__
bool is_mapped(std::string const& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(path) != std::string::npos) return true;
  return false;
}

TEST(packed_file_is_the_memory_of_the_weights) {
  Saved const saved(mixed_shape());
  CHECK(!is_mapped(saved.path), "after saving");
  {
    ModelPointer const model = open_model(mixed_shape());
    REQUIRE(bunting_model_restore(model.get(), saved.path.c_str(), kKey, nullptr) == BUNTING_OK, "%s",
            bunting_last_error());
    CHECK(is_mapped(saved.path), "it was copied");
  }
  CHECK(!is_mapped(saved.path), "it stays when the model has gone");
}
#endif

// Record of the calls of `note_progress` since the last `begin_progress`.
struct Progress {
  uint64_t calls, done, total;
  bool rises;
} progress;

void begin_progress() {
  progress = {0, 0, 0, true};
}

void note_progress(uint64_t done, uint64_t total) {
  progress.rises &= done > progress.done && (progress.calls == 0 || total == progress.total);
  progress = {progress.calls + 1, done, total, progress.rises};
}

TEST(packed_file_tells_how_far_it_is) {
  // The packed embedding alone has three pieces of 4 MiB.
  bunting_model_shape shape = tiny_shape();
  shape.vocab = (9 << 20) / 2 / shape.hidden;
  TinyFile const file(shape);
  std::string const path = file.path() + ".packed";
  begin_progress();
  CHECK(bunting_model_save(load_model(shape, file).get(), path.c_str(), kKey, note_progress) == BUNTING_OK,
        "%s", bunting_last_error());
  CHECK(progress.calls >= 3 && progress.rises && progress.done == progress.total,
        "saving: %d calls, %d of %d", int(progress.calls), int(progress.done), int(progress.total));
  uint64_t const total = progress.total;
  begin_progress();
  shape.threads = 1;
  CHECK(bunting_model_restore(open_model(shape).get(), path.c_str(), kKey, note_progress) == BUNTING_OK, "%s",
        bunting_last_error());
  unlink(path.c_str());
  CHECK(progress.calls >= 3 && progress.rises && progress.done == total && progress.total == total,
        "restoring: %d calls, %d of %d", int(progress.calls), int(progress.done), int(progress.total));
}

TEST(packed_file_that_is_damaged_is_refused_and_packed_anew) {
  Saved const saved(mixed_shape());
  for (int64_t const at : {int64_t{0}, int64_t{9}, int64_t{20}, int64_t{47}, int64_t{48}, int64_t{57},
                           int64_t{70}, kDataAt, kDataAt + 904, saved.bytes - 1}) {
    saved.damage(at);
    ModelPointer const model = open_model(mixed_shape());
    CHECK(bunting_model_restore(model.get(), saved.path.c_str(), kKey, nullptr) == BUNTING_INVALID, "byte %d",
          int(at));
    load_all(model.get(), saved.file);
    CHECK(logits_of(model.get()) == saved.logits, "byte %d: what was refused shows", int(at));
    saved.damage(at);
  }
  ModelPointer const model = open_model(mixed_shape());
  CHECK(bunting_model_restore(model.get(), saved.path.c_str(), kKey, nullptr) == BUNTING_OK, "%s",
        bunting_last_error());
}

TEST(packed_file_of_something_else_is_refused) {
  Saved const saved(mixed_shape());
  auto const restore = [&](bunting_model_shape const& shape, std::string const& path, uint8_t const* key) {
    return bunting_model_restore(open_model(shape).get(), path.c_str(), key, nullptr);
  };
  uint8_t const other[32] = {1, 2, 4};
  CHECK(restore(mixed_shape(), saved.path, other) == BUNTING_INVALID && says("made from other files"), "%s",
        bunting_last_error());
  CHECK(restore(tiny_shape(), saved.path, kKey) == BUNTING_INVALID && says("wanted"), "%s",
        bunting_last_error());
  CHECK(restore(mixed_shape(), saved.file.path(), kKey) == BUNTING_INVALID && says("not a file of packed"),
        "%s", bunting_last_error());
  CHECK(restore(mixed_shape(), saved.path + "x", kKey) == BUNTING_IO && says("cannot be opened"), "%s",
        bunting_last_error());
  CHECK(restore(mixed_shape(), "/", kKey) == BUNTING_IO, "a folder");
  for (int64_t const bytes : {saved.bytes - 1, kDataAt, int64_t{71}, int64_t{0}}) {
    CHECK(truncate(saved.path.c_str(), bytes) == 0, "truncated");
    CHECK(restore(mixed_shape(), saved.path, kKey) == BUNTING_INVALID, "%d bytes of it", int(bytes));
  }
}

TEST(packed_file_wants_a_whole_or_an_empty_model) {
  Saved const saved(mixed_shape());
  ModelPointer const model = open_model(mixed_shape());
  CHECK(bunting_model_save(model.get(), saved.path.c_str(), kKey, nullptr) == BUNTING_INVALID &&
            says("not sealed"),
        "%s", bunting_last_error());
  TinyFile::Tensor const& t = saved.file.tensors()[0];
  bunting_model_load(model.get(), t.tensor, t.layer, saved.file.path().c_str(), t.offset, BUNTING_F32, t.rows,
                     t.cols);
  CHECK(bunting_model_restore(model.get(), saved.path.c_str(), kKey, nullptr) == BUNTING_INVALID &&
            says("loaded already"),
        "%s", bunting_last_error());
}

TEST(packed_file_that_cannot_be_written_leaves_nothing) {
  Saved const saved(mixed_shape());
  ModelPointer const model = load_model(mixed_shape(), saved.file);
  CHECK(bunting_model_save(model.get(), "/no such folder/x", kKey, nullptr) == BUNTING_IO &&
            says("cannot be created"),
        "%s", bunting_last_error());
  // A folder has the name of the file: the last step fails, and the written data is removed.
  std::string const folder = saved.path + ".folder";
  REQUIRE(mkdir(folder.c_str(), 0700) == 0, "no folder");
  CHECK(
      bunting_model_save(model.get(), folder.c_str(), kKey, nullptr) == BUNTING_IO && says("cannot be named"),
      "%s", bunting_last_error());
  std::string const part = folder + ".part";
  CHECK(access(part.c_str(), F_OK) != 0, "%s is left", part.c_str());
  rmdir(folder.c_str());
}

TEST(packed_file_that_is_half_written_is_written_over_once_nobody_writes_it) {
  Saved const saved(mixed_shape());
  ModelPointer const model = load_model(mixed_shape(), saved.file);
  std::string const path = saved.path + ".again", part = path + ".part";
  auto const save = [&] { return bunting_model_save(model.get(), path.c_str(), kKey, nullptr); };
  int const writer = open(part.c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(writer >= 0 && pwrite(writer, "half", 4, 64 << 20) == 4 && flock(writer, LOCK_EX) == 0, "no file");
  CHECK(save() == BUNTING_IO && says("another process writes it"), "%s", bunting_last_error());
  CHECK(access(part.c_str(), F_OK) == 0 && access(path.c_str(), F_OK) != 0, "the other's file is gone");
  close(writer);  // as the end of its process would
  REQUIRE(save() == BUNTING_OK, "%s", bunting_last_error());
  CHECK(access(part.c_str(), F_OK) != 0, "%s is left", part.c_str());
  ModelPointer const again = open_model(mixed_shape());
  CHECK(bunting_model_restore(again.get(), path.c_str(), kKey, nullptr) == BUNTING_OK, "%s",
        bunting_last_error());
  unlink(path.c_str());
}

}  // namespace
}  // namespace bunting::test
