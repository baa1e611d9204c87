// Tests of rope_append against the reference; page slots that are not written must stay unchanged.
#include "cuda/tests/device_test.h"
#include "reference/attention.h"

namespace bunting::test {

TEST(cuda_rope_angles_are_those_of_the_cpu) {
  Random random{18};
  constexpr int32_t kPairs = 24;
  RopeTable rope{.dimensions = 2 * kPairs, .magnitude = 1.25f};
  std::vector<Turn> far(size_t(rope.far_turns(5000))), near(size_t(rope.near_turns()));
  for (std::vector<Turn>* turns : {&far, &near})
    for (Turn& turn : *turns) {
      double const angle = random.uniform(-3, 3);
      turn = {std::cos(angle), std::sin(angle)};
    }
  rope.far = far.data(), rope.near = near.data();
  std::vector<int32_t> positions(30);
  for (int32_t& position : positions) position = random.below(5000);
  std::vector<float> cos(positions.size() * kPairs), sin(cos);
  rope_angles(rope, positions.data(), 0, int64_t(positions.size()), cos.data(), sin.data());
  DeviceArray<Turn> const device_far(far), device_near(near);
  DeviceArray<int32_t> const device_positions(positions);
  DeviceArray<float> const device_cos(cos.size()), device_sin(sin.size());
  RUNS(cuda::rope_angles(stream,
                         {device_far.data(), device_near.data(), device_positions.data(), device_cos.data(),
                          device_sin.data(), int32_t(positions.size()), kPairs, rope.magnitude}));
  CHECK(device_cos.get() == cos && device_sin.get() == sin, "other angles");
}

TEST(cuda_rope_append_matches_the_reference) {
  Random random{7};
  constexpr int32_t kContext = 40, kPages = 5, kLayers = 2, kTokens = 5;
  struct Head {
    int32_t size, rotated, kv_heads = 2;
    bool values_are_keys = false, has_value_norm = false;
  };
  constexpr int kNoNorms = 0, kWide = 2;
  for (auto const [d, rotated, hk, values_are_keys, has_value_norm] : {Head{16, 16},
                                                                       {32, 24},
                                                                       {64, 64},
                                                                       {96, 96, 2, false, true},
                                                                       {128, 64},
                                                                       {128, 128, 0},
                                                                       {256, 256},
                                                                       {512, 512, 2, true, true}})
    for (int norms : {kNoNorms, 1, kWide}) {
      int32_t const hq = 6, width = (hq + (values_are_keys ? 1 : 2) * hk) * d;
      std::vector<float> const qkv = random_floats(random, size_t(kTokens * width), 2);
      std::vector<float> const q_norm = random_floats(random, size_t(d * (norms == kWide ? hq : 1))),
                               k_norm = random_floats(random, size_t(d * (norms == kWide ? hq : 1)));
      std::vector<float> cos(size_t(kContext * rotated / 2)), sin(cos.size());
      for (size_t i = 0; i < cos.size(); ++i) {
        float const angle = random.uniform(-3, 3);
        cos[i] = std::cos(angle);
        sin[i] = std::sin(angle);
      }
      std::vector<int32_t> const positions = {7, 8, 39, 0, 16},
                                 slots = {3 * 16 + 7, 3 * 16 + 8, 15, 4 * 16, 16};

      RopeAppend wanted{};
      wanted.qkv = const_cast<float*>(qkv.data());
      wanted.ldqkv = width;
      wanted.query_heads = hq;
      wanted.q_norm = norms ? q_norm.data() : nullptr;
      wanted.k_norm = norms ? k_norm.data() : nullptr;
      wanted.has_wide_norms = norms == kWide;
      wanted.values_are_keys = values_are_keys;
      wanted.has_value_norm = has_value_norm;
      wanted.norm_epsilon = 1e-6f;
      wanted.rotated = rotated;
      wanted.cos = cos.data();
      wanted.sin = sin.data();
      wanted.positions = positions.data();
      wanted.kv.kv_heads = hk;
      wanted.kv.head_size = d;
      std::vector<double> q(size_t(kTokens * hq * d)), k(size_t(kTokens * hk * d)), v(k.size());
      reference::rope_append(wanted, 0, kTokens, q.data(), k.data(), v.data());

      int64_t const part = int64_t(hk) * 16 * d, page = 2 * kLayers * part;
      DeviceArray<uint16_t> const pages(size_t(kPages * page)), device_q(q.size());
      DeviceArray<float> const device_qkv(qkv), device_cos(cos), device_sin(sin), device_q_norm(q_norm),
          device_k_norm(k_norm);
      DeviceArray<int32_t> const device_positions(positions), device_slots(slots);
      cuda::KvPages const kv{pages.data() + 2 * part, page, part, hk, d, 16};  // layer 1
      RUNS(cuda::rope_append(
          stream, {device_qkv.data(), device_q.data(), hq, norms ? device_q_norm.data() : nullptr,
                   norms ? device_k_norm.data() : nullptr, 1e-6f, device_cos.data(), device_sin.data(),
                   nullptr, device_positions.data(), device_slots.data(), kv, kTokens, rotated,
                   norms == kWide, values_are_keys, has_value_norm}));

      std::vector<uint16_t> const got_q = device_q.get();
      for (size_t i = 0; i < q.size(); ++i)
        CHECK(is_rounded(got_q[i], q[i]), "D=%d norms=%d q %zu: %g, wanted %g", d, norms, i,
              double(reference::widen(got_q[i])), q[i]);
      std::vector<uint16_t> const got = pages.get();
      size_t written = 0;
      for (uint16_t value : got) written += value != 0xffff;
      CHECK(written == k.size() + v.size(), "D=%d: %zu elements of pages are written", d, written);
      for (int32_t t = 0; t < kTokens; ++t)
        for (int32_t head = 0; head < hk; ++head)
          for (int32_t i = 0; i < d; ++i) {
            int64_t const at =
                slots[size_t(t)] / 16 * page + 2 * part + (head * 16 + slots[size_t(t)] % 16) * d + i;
            size_t const from = size_t((t * hk + head) * d + i);
            CHECK(is_rounded(got[size_t(at)], k[from]), "D=%d norms=%d k of token %d head %d at %d", d, norms,
                  t, head, i);
            CHECK(is_rounded(got[size_t(at + part)], v[from]), "D=%d norms=%d v of token %d head %d at %d", d,
                  norms, t, head, i);
          }
    }
}

}  // namespace bunting::test
