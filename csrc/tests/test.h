// test.h - the whole test harness: register, check, report.
//
//   TEST(norm_matches_reference) {
//     for (int h : {1, 15, 16, 17}) CHECK(close, "h=%d: %g differs from %g", h, got, want);
//   }
//   TEST(...) { if (...) SKIP("no AMX here"); ... }
//
// A failed CHECK is counted, and the first few per test are printed. The test continues, because kernels fail
// for many shapes at once and their list shows the cause. REQUIRE leaves the test. `bunting_tests gemm pool`
// runs the tests whose name contains one of the words. `--part=0/2` before them runs every second test,
// `--part=1/2` the others; `--list` before them prints the names only. The last line is "N passed, N failed"
// or "N passed, N failed, N skipped".
#pragma once

#include <cstdint>

namespace bunting::test {

using Body = void (*)();

struct Register {
  Register(char const* name, Body body);
};

// Counts and prints one failed check of the running test. Thread-safe.
[[gnu::format(printf, 3, 4)]] void failed(char const* file, int line, char const* format, ...);
// Marks the running test as skipped; the caller must return right after.
void skipped(char const* reason);

// Deterministic random values for inputs, the same on every machine (SplitMix64).
struct Random {
  uint64_t state;
  uint64_t next();
  int below(int n) { return int(next() % uint64_t(n)); }
  float uniform(float low, float high);
};

}  // namespace bunting::test

#define TEST(name)                                                            \
  static void test_##name();                                                  \
  static ::bunting::test::Register const register_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition, ...)                                                   \
  do {                                                                          \
    if (!(condition)) ::bunting::test::failed(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

#define REQUIRE(condition, ...)                                 \
  do {                                                          \
    if (!(condition)) {                                         \
      ::bunting::test::failed(__FILE__, __LINE__, __VA_ARGS__); \
      return;                                                   \
    }                                                           \
  } while (0)

#define SKIP(reason)                  \
  do {                                \
    ::bunting::test::skipped(reason); \
    return;                           \
  } while (0)
