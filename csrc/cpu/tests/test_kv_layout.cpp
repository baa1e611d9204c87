// Tests of the KV layout: it is a bijection, and page copies move exactly the tokens that they should.
#include <set>

#include "tests/kv_test.h"

namespace bunting::test {

TEST(kv_layout_gives_every_element_a_place_of_its_own) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (int32_t d : {16, 48, 128}) {
      std::set<size_t> k, v;
      int32_t const places = dtype == Dtype::q4 ? d / 2 : d;
      for (int32_t t = 0; t < kPageTokens; ++t)
        for (int32_t i = 0; i < places; ++i) {
          k.insert(k_index(dtype, t, i));
          v.insert(v_index(dtype, d, t, i));
        }
      size_t const count = size_t(kPageTokens * places);
      CHECK(k.size() == count && *k.rbegin() == count - 1, "keys of %s D=%d", name_of(dtype), d);
      CHECK(v.size() == count && *v.rbegin() == count - 1, "values of %s D=%d", name_of(dtype), d);
      CHECK(kv_page_bytes(dtype, 3, d) ==
                3 * 2 * (count * dtype_bytes(dtype) + (has_kv_scales(dtype) ? 64 : 0)),
            "page of %s D=%d", name_of(dtype), d);
      CHECK(kv_page_bytes(dtype, 3, d) % 64 == 0, "page of %s D=%d is not whole cache lines", name_of(dtype),
            d);
    }
}

TEST(copy_page_copies_the_first_tokens_and_nothing_else) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (int32_t count : {0, 1, 2, 7, 15, 16}) {
      constexpr int32_t kHeads = 3, kSize = 48;
      Random random{uint64_t(count)};
      Pages pages(dtype, kHeads, kSize, 4);
      Sequence const sequence(random, kPageTokens, kHeads, kHeads, kSize);
      sequence.append(pages.kv, {1}, 0, kPageTokens);
      std::vector<char> const before(pages.kv.pages, pages.kv.pages + 4 * pages.kv.page_bytes);
      copy_page(pages.kv, 1, 2, count);
      bool same = true;
      for (int32_t t = 0; t < count; ++t)
        for (int32_t head = 0; head < kHeads; ++head)
          for (int32_t d = 0; d < kSize; ++d)
            same &= reference::key(pages.kv, 2, head, t, d) == reference::key(pages.kv, 1, head, t, d) &&
                    reference::value(pages.kv, 2, head, t, d) == reference::value(pages.kv, 1, head, t, d);
      CHECK(same, "%s: %d tokens are not what they were", name_of(dtype), count);
      for (int32_t page : {0, 1, 3})
        CHECK(std::memcmp(pages.kv.pages + size_t(page) * pages.kv.page_bytes,
                          before.data() + size_t(page) * pages.kv.page_bytes, pages.kv.page_bytes) == 0,
              "%s: copying %d tokens changed page %d", name_of(dtype), count, page);
    }
}

}  // namespace bunting::test
