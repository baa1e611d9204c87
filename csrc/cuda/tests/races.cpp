#include "cuda/tests/races.h"

#include <atomic>

#include "tests/test.h"

namespace bunting::test {
namespace {
std::atomic<bool> expected = false;
std::atomic<int> races = 0;
}  // namespace

int races_of(std::function<void()> const& run) {
  expected = true;
  races = 0;
  run();
  expected = false;
  return races;
}

}  // namespace bunting::test

#if defined(__SANITIZE_THREAD__)
extern "C" [[gnu::visibility("default")]] void __tsan_on_report(void*) {
  ++bunting::test::races;
  if (!bunting::test::expected) bunting::test::failed(__FILE__, __LINE__, "a data race");
}
// Only the tests decide the exit code.
extern "C" [[gnu::visibility("default")]] char const* __tsan_default_options() {
  return "exitcode=0";
}
#endif
