// bench_kernels_contact.cpp - first contact: bits of seeded products, and a fault on purpose.
#include <cstdio>

#include "cuda/tests/bench_kernels.h"
#if defined(BUNTING_BENCH_EMULATED)
#include "emulator/matrix_sums.h"
#endif

namespace bunting::cuda::bench {
namespace {

constexpr int kProducts = 20;

// Numbers that any machine makes from the same seed (SplitMix64).
class Seeded {
 public:
  explicit Seeded(uint64_t seed) : state_(seed) {}
  uint32_t below(uint32_t n) { return uint32_t(next() >> 33) % n; }
  // A bf16 from 2^-8 to 2^8, of either sign; signless numbers keep sums from cancelling.
  uint16_t bf16_number(bool has_sign) {
    uint32_t const sign = has_sign ? below(2) << 15 : 0;
    return uint16_t(sign | (119 + below(17)) << 7 | below(128));
  }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// Weights whose bytes are finite numbers in every format.
std::vector<uint16_t> weight_words(Seeded& random, Format format, size_t bytes) {
  std::vector<uint16_t> words((bytes + 1) / 2);
  for (uint16_t& word : words)
    // In e4m3 only 0x7f is not a number.
    word = format == Format::plain ? random.bf16_number(true) : uint16_t(random.below(0x10000) & 0xbfbf);
  return words;
}

// Scales from 2^-8 to 2^-6: f16, bf16 for MXFP4, f32 for rows in fp8.
std::vector<uint16_t> scale_words(Seeded& random, Format format, size_t bytes) {
  std::vector<uint16_t> words((bytes + 1) / 2);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = format == Format::fp8     ? uint16_t(i % 2 ? 0x3b80 + random.below(128) : 0)
               : format == Format::mxfp4 ? mxfp4_scale(uint8_t(119 + random.below(3)))
                                         : uint16_t(0x1c00 + random.below(0x800));
  return words;
}

uint64_t hash_of(char const* bytes, size_t count) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < count; ++i) hash = (hash ^ uint8_t(bytes[i])) * 0x100000001b3u;
  return hash;
}

}  // namespace

void print_bits([[maybe_unused]] std::string const& part) {
#if defined(BUNTING_BENCH_EMULATED)
  emulator::use_matrix_sums(part == "ampere" ? emulator::kAmpereSums : emulator::kHopperSums);
#endif
  for (int i = 0; i < kProducts; ++i) {
    Seeded random(uint64_t(1000 + i));
    Format const format = Format(i % int(std::size(kFormatNames)));
    bool const has_sign = i % 2 == 0;
    int32_t const tokens = int32_t(1 + random.below(80)), n = int32_t(16 * (1 + random.below(6))),
                  k = int32_t(128 * (1 + random.below(5)));
    std::vector<uint16_t> x(size_t(tokens * k));
    for (uint16_t& value : x) value = random.bf16_number(has_sign);
    DeviceMemory const input = upload(x),
                       weights = upload(weight_words(random, format, size_t(n) * row_bytes(format, k))),
                       scales = upload(scale_words(random, format, size_t(n) * row_scale_bytes(format, k))),
                       output = upload(std::vector<float>(size_t(tokens * n))),
                       partial = upload(std::vector<float>(8 * size_t(tokens * n))),
                       arrived = upload(std::vector<int32_t>(kGemmArrived));
    MappedMemory result(output.bytes(), "a product");
    Stream stream;
    gemm(stream, {at<bf16>(input),
                  {format, weights.data(), scales.data()},
                  nullptr,
                  at<float>(output),
                  tokens,
                  n,
                  k,
                  at<float>(partial),
                  at<int32_t>(arrived)});
    stream.copy(result.data(), output.data(), output.bytes());
    finish(stream);
    std::printf("{\"bits\":%d,\"format\":\"%s\",\"tokens\":%d,\"n\":%d,\"k\":%d,\"hash\":\"%016llx\"}\n", i,
                kFormatNames[int(format)], tokens, n, k,
                static_cast<unsigned long long>(hash_of(result.data(), result.bytes())));
  }
}

void fault_on_purpose(std::string const&) {
  std::string why;
  try {
    Buffer const from(64), to(64);
    DeviceMemory const rows = upload(std::vector<int32_t>{1 << 30});
    Stream stream;
    gather(stream, {from.as<char>(), to.as<char>(), at<int32_t>(rows), 1, 64});
    finish(stream);
  } catch (Error const& error) {
    if (error.status() == BUNTING_LOST) why = error.what();
  }
  if (why.empty()) fail(BUNTING_INVALID, "a read where nothing is was not noticed");
  // A new device of this process, if it can be reset, is worth knowing about and not required.
  std::string after = "usable";
  try {
    Buffer const again(64);
  } catch (Error const& error) {
    after = error.what();
  }
  auto const quoted = [](std::string text) {
    for (char& c : text)
      if (c == '"' || c == '\\' || c == '\n') c = '\'';
    return text;
  };
  std::printf("{\"fault\":\"%s\",\"afterwards\":\"%s\"}\n", quoted(why).c_str(), quoted(after).c_str());
}

}  // namespace bunting::cuda::bench
