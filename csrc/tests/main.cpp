// main.cpp - runs the registered tests; see test.h.
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "tests/test.h"

namespace bunting::test {
namespace {

struct Test {
  std::string name;
  Body body;
};

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

constexpr int kPrintedFailures = 5;  // per test
std::mutex mutex;
int failures = 0;
bool skipping = false;

bool selected(std::string const& name, std::vector<std::string> const& words) {
  if (words.empty()) return true;
  return std::any_of(words.begin(), words.end(),
                     [&](std::string const& word) { return name.find(word) != std::string::npos; });
}

}  // namespace

Register::Register(char const* name, Body body) {
  tests().push_back({name, body});
}

void failed(char const* file, int line, char const* format, ...) {
  std::lock_guard lock(mutex);
  if (++failures > kPrintedFailures) return;
  char const* slash = std::strrchr(file, '/');
  std::printf("  %s:%d: ", slash ? slash + 1 : file, line);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

void skipped(char const* reason) {
  skipping = true;
  std::printf("  skipped: %s\n", reason);
}

uint64_t Random::next() {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float Random::uniform(float low, float high) {
  return low + (high - low) * (float(next() >> 40) * (1.0f / float(1 << 24)));
}

}  // namespace bunting::test

int main(int count, char** arguments) {
  using namespace bunting::test;
  std::vector<std::string> words(arguments + 1, arguments + count);
  auto& all = tests();
  std::sort(all.begin(), all.end(), [](Test const& a, Test const& b) { return a.name < b.name; });
  if (!words.empty() && words[0] == "--list") {
    words.erase(words.begin());
    for (Test const& test : all)
      if (selected(test.name, words)) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  int part = 0, parts = 1;
  if (!words.empty() && std::sscanf(words[0].c_str(), "--part=%d/%d", &part, &parts) == 2) {
    if (parts < 1 || part < 0 || part >= parts) {
      std::printf("%s: wanted 0 to N - 1, of N parts\n", words[0].c_str());
      return 2;
    }
    words.erase(words.begin());
  }
  int passed_tests = 0, failed_tests = 0, skipped_tests = 0, number = 0;
  for (Test const& test : all) {
    if (!selected(test.name, words) || number++ % parts != part) continue;
    failures = 0;
    skipping = false;
    auto const start = std::chrono::steady_clock::now();
    try {
      test.body();
    } catch (std::exception const& error) {
      failed(__FILE__, __LINE__, "it ends with an exception: %s", error.what());
    }
    double const ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (failures > kPrintedFailures) std::printf("  ... and %d more\n", failures - kPrintedFailures);
    char const* verdict = failures ? "FAILED" : skipping ? "skipped" : "ok";
    std::printf("%-7s %s (%.0f ms)\n", verdict, test.name.c_str(), ms);
    (failures ? failed_tests : skipping ? skipped_tests : passed_tests)++;
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed", passed_tests, failed_tests);
  if (skipped_tests) std::printf(", %d skipped", skipped_tests);
  std::printf("\n");
  // A filter without matches is probably a typing error, so it fails.
  return failed_tests || number == 0 ? 1 : 0;
}
