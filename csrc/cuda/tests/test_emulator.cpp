// Tests that the emulator finds the errors for which it exists: each kernel here has one error that a GPU
// would not report, and runs clean without it.
#include <vector>

#include "cuda/gpu.h"
#include "cuda/tests/races.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using namespace gpu;

constexpr int kThreads = 64;
constexpr size_t kSharedBytes = 4096;

// Runs a kernel of one block and returns the emulator's report.
template <class A>
std::string run(void (*kernel)(A), A argument, uint64_t seed = 1, int32_t blocks = 1) {
  struct Call {
    void (*kernel)(A);
    A argument;
  } call{kernel, argument};
  auto const body = [](void* c) { static_cast<Call*>(c)->kernel(static_cast<Call*>(c)->argument); };
  return emulator::run_grid({"k", blocks, kThreads, kSharedBytes}, body, &call, seed);
}

bool contains(std::string const& text, char const* part) {
  return text.find(part) != std::string::npos;
}

#define FINDS(fault, part)                                                         \
  do {                                                                             \
    std::string const said = fault;                                                \
    CHECK(contains(said, part), "it says \"%s\", not \"%s\"", said.c_str(), part); \
  } while (0)

#define CLEAN(fault)                                       \
  do {                                                     \
    std::string const said = fault;                        \
    CHECK(said.empty(), "it complains: %s", said.c_str()); \
  } while (0)

// ---- barriers -------------------------------------------------------------------------------------------

// Kernel in which thread i reads the value of its neighbour at distance `distance`, twice.
struct Exchange {
  int32_t distance;
  bool before, between;  // true: the kernel has these barriers
  bool warp;             // true: warp barriers; false: block barriers
};
void exchange(Exchange const e) {
  Shared<int32_t> const x{0};
  auto const barrier = [&](bool wanted) {
    if (!wanted) return;
    if (e.warp)
      warp_sync();
    else
      block_sync();
  };
  for (int round = 0; round < 2; ++round) {
    x.set(thread_index(), thread_index() + round);
    barrier(e.before);
    int const from = (thread_index() + e.distance) % kThreads;
    if (x.get(from) != from + round) emulator::fault("wrong value");
    barrier(e.between);
  }
}

}  // namespace

TEST(emulator_finds_missing_barriers_whatever_the_order) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CLEAN(run(exchange, {1, true, true, false}, seed));
    CLEAN(run(exchange, {0, false, false, false}, seed));
    std::string const none = run(exchange, {1, false, true, false}, seed);
    CHECK(
        contains(none, "race: load") || contains(none, "was never written") || contains(none, "race: store"),
        "seed %d: \"%s\"", int(seed), none.c_str());
    FINDS(run(exchange, {1, true, false, false}, seed), "race: ");
    std::string const across = run(exchange, {32, true, true, true}, seed);
    CHECK(contains(across, "race: ") || contains(across, "was never written"), "seed %d: \"%s\"", int(seed),
          across.c_str());
  }
}

namespace {

// Kernel in which lanes of a warp exchange values; a shuffle alone orders nothing.
void exchange_in_warp(int const how) {
  Shared<int32_t> const x{0};
  x.set(thread_index(), 7);
  if (how == 0) warp_sync();
  if (how == 1) shuffle(1, 0);
  (void)x.get(thread_index() ^ 1);
}

void diverge(int const how) {
  if (how == 0 && lane() == 5) return;
  if (how == 1 && thread_index() >= 40) warp_sync();
  if (how == 2 && warp() == 1) return;
  if (how == 3) {
    if (lane() == 3)
      (void)ballot(true);
    else
      (void)shuffle(1.0f, 0);
  }
  if (how == 0) (void)shuffle(1.0f, 5);
  block_sync();
}

}  // namespace

TEST(emulator_knows_that_shuffles_order_no_memory) {
  CLEAN(run(exchange_in_warp, 0));
  std::string const said = run(exchange_in_warp, 1);
  CHECK(contains(said, "race: load of shared address"), "\"%s\"", said.c_str());
}

TEST(emulator_reports_divergence_and_deadlocks_with_lanes_and_operations) {
  FINDS(run(diverge, 0),
        "k, block 0: no thread can go on: warp 0 lanes ffffffdf shuffle; warp 0 lanes 00000020 have");
  FINDS(run(diverge, 1), "warp 1 lanes ffffff00 the warp barrier");
  FINDS(run(diverge, 2), "warp 1 lanes ffffffff have left the kernel");
  std::string const said = run(diverge, 3);
  CHECK(contains(said, "calls ballot while lane") || contains(said, "calls shuffle while lane 3"), "\"%s\"",
        said.c_str());
}

// ---- addresses ------------------------------------------------------------------------------------------

namespace {

struct Addresses {
  float* global;
  int how;
};
void address(Addresses const a) {
  Shared<float> const x{0};
  if (thread_index() != 33) return;
  switch (a.how) {
    case 0:
      x.set(1024, 1.0f);
      break;
    case 1:
      (void)x.get(-1);
      break;
    case 2:
      Shared<float>{2}.set(0, 1.0f);
      break;
    case 3:
      (void)x.get(9);
      break;
    case 4:
      (void)load(a.global + 100);
      break;
    case 5:
      store(a.global - 1, 1.0f);
      break;
    case 6:
      (void)load(reinterpret_cast<Vec const*>(a.global + 1));
      break;
    case 7:
      copy_async({0}, reinterpret_cast<Vec const*>(a.global + 97), true);
      break;
    case 8:
      (void)load(reinterpret_cast<Vec const*>(a.global + 96));
      break;
    case 9:
      store(a.global + 99, load(a.global));
      break;
  }
}

}  // namespace

TEST(emulator_reports_wrong_addresses) {
  alignas(16) float memory[100] = {};
  emulator::GlobalRange const range(memory, sizeof memory);
  FINDS(run(address, {memory, 0}),
        "k, block 0, thread 33 (warp 1, lane 1): store of 4 bytes at shared address 4096");
  FINDS(run(address, {memory, 1}), "but the block has 4096");
  FINDS(run(address, {memory, 2}), "not a multiple of 4");
  FINDS(run(address, {memory, 3}), "which was never written");
  FINDS(run(address, {memory, 4}), "in no allocation");
  FINDS(run(address, {memory, 5}), "in no allocation");
  FINDS(run(address, {memory, 6}), "not a multiple of 16");
  FINDS(run(address, {memory, 7}), "not a multiple of 16");
  CLEAN(run(address, {memory, 8}));
  CLEAN(run(address, {memory, 9}));
}

// ---- asynchronous copies --------------------------------------------------------------------------------

namespace {

enum class Mistake { none, wait, slot, early, no_barrier, unwaited };

// Kernel that sums rows of 64 vectors through a ring of three slots; each thread copies one vector and reads
// its neighbour's.
struct Ring {
  Vec const* rows;
  int32_t count;
  uint32_t* sums;  // one per thread
  Mistake mistake;
};
void ring(Ring const r) {
  constexpr int kSlots = 3;
  auto const slot = [](int row) { return Shared<Vec>{0} + row % kSlots * kThreads / 4; };
  auto const fetch = [&](int row) {
    int const at = r.mistake == Mistake::slot ? row + 1 : row;
    if (thread_index() < kThreads / 4)
      copy_async(slot(at) + thread_index(), r.rows + row * kThreads / 4 + thread_index(), true);
    copy_commit();
  };
  for (int row = 0; row < kSlots - 1; ++row) fetch(row);
  uint32_t sum = 0;
  for (int row = 0; row < r.count; ++row) {
    if (r.mistake == Mistake::wait)
      copy_wait<kSlots - 1>();
    else
      copy_wait<kSlots - 2>();
    if (r.mistake == Mistake::early && row + kSlots - 1 < r.count) fetch(row + kSlots - 1);
    if (r.mistake != Mistake::no_barrier) block_sync();
    if (r.mistake != Mistake::early && row + kSlots - 1 < r.count)
      fetch(row + kSlots - 1);
    else if (r.mistake != Mistake::early)
      copy_commit();
    sum += slot(row).as<uint32_t>().get((thread_index() + 1) % kThreads);
  }
  store(r.sums + thread_index(), sum);
  if (r.mistake != Mistake::unwaited) return;
  fetch(0);
}

}  // namespace

TEST(emulator_finds_every_mistake_of_a_ring_of_copies) {
  constexpr int kRows = 7;
  std::vector<Vec> rows(kRows * kThreads / 4);
  std::vector<uint32_t> sums(kThreads), wanted(kThreads);
  for (int i = 0; i < kRows * kThreads; ++i) {
    rows[size_t(i / 4)].word[i % 4] = uint32_t(i * i);
    wanted[size_t((i + kThreads - 1) % kThreads)] += uint32_t(i * i);
  }
  emulator::GlobalRange const in(rows.data(), rows.size() * sizeof(Vec)), out(sums.data(), sums.size() * 4);
  auto const with = [&](Mistake mistake, uint64_t seed) {
    return run(ring, Ring{rows.data(), kRows, sums.data(), mistake}, seed);
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CLEAN(with(Mistake::none, seed));
    CHECK(sums == wanted, "wrong sums");
    FINDS(with(Mistake::wait, seed), "shared address");
    FINDS(with(Mistake::slot, seed), "shared address");
    FINDS(with(Mistake::early, seed), "cp.async");
    FINDS(with(Mistake::no_barrier, seed), "shared address");
    FINDS(with(Mistake::unwaited, seed), "cp.async");
  }
}

// every_wait_is_needed uses sabotage in the same way on real kernels, which have no switchable mistakes.
TEST(emulator_sabotages_each_place_of_a_ring_of_copies) {
  constexpr int kRows = 7;
  std::vector<Vec> rows(kRows * kThreads / 4);
  std::vector<uint32_t> sums(kThreads);
  emulator::GlobalRange const in(rows.data(), rows.size() * sizeof(Vec)), out(sums.data(), sums.size() * 4);
  Ring const right{rows.data(), kRows, sums.data(), Mistake::none};
  emulator::take_sites();
  CLEAN(run(ring, right));
  int of_kind[4] = {};
  for (emulator::Site const site : emulator::take_sites()) {
    ++of_kind[int(site.kind)];
    emulator::sabotage(site);
    FINDS(run(ring, right), "shared address");
  }
  emulator::sabotage({});
  CHECK(of_kind[int(emulator::Site::Kind::block_barrier)] == 1 &&
            of_kind[int(emulator::Site::Kind::copy_wait)] == 1 &&
            of_kind[int(emulator::Site::Kind::copy)] == 1,
        "not each place of the ring");
  CLEAN(run(ring, right));
}

// ---- matrices -------------------------------------------------------------------------------------------

namespace {

struct Product {
  bf16 const* a;  // [16, 16]
  bf16 const* b;  // [16, 8]: row k, column n
  float* d;       // [16, 8]
};
// Kernel that loads a by ldmatrix and b transposed by ldmatrix.trans, and multiplies.
void product(Product const p) {
  Shared<Vec> const a{0}, b{512};
  if (thread_index() < 32) a.set(thread_index(), load(reinterpret_cast<Vec const*>(p.a) + thread_index()));
  if (thread_index() < 16) b.set(thread_index(), load(reinterpret_cast<Vec const*>(p.b) + thread_index()));
  block_sync();
  if (warp() != 0) return;
  // Matrices of a: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. Matrices of b: rows 0-7, rows
  // 8-15, twice.
  Vec const left = load_matrices<false>(a + lane() % 16 * 2 + lane() / 16);
  Vec const right = load_matrices<true>(b + lane() % 16);
  float d[4] = {};
  multiply_add(d, left, right.word[0], right.word[1]);
  int const g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) store(p.d + (g + i / 2 * 8) * 8 + 2 * t + i % 2, d[i]);
}

}  // namespace

TEST(emulator_multiplies_matrices) {
  alignas(16) bf16 a[256], b[128];
  float d[128];
  Random random{5};
  for (bf16& x : a) x = bf16(narrow(float(random.below(9) - 4), 0));
  for (bf16& x : b) x = bf16(narrow(float(random.below(9) - 4), 0));
  emulator::GlobalRange const ra(a, sizeof a), rb(b, sizeof b), rd(d, sizeof d);
  CLEAN(run(product, Product{a, b, d}));
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += widen(a[r * 16 + k]) * widen(b[k * 8 + c]);
      CHECK(d[r * 8 + c] == sum, "(%d, %d) is %g, not %g", r, c, double(d[r * 8 + c]), double(sum));
    }
}

// ---- global memory between blocks -----------------------------------------------------------------------

namespace {

struct HandOver {
  int32_t* counter;
  int32_t* value;
  bool released;  // true: the counter is updated with acquire and release
};
// The first block leaves a value for the other one.
void hand_over(HandOver const h) {
  if (thread_index() != block_index()) return;
  int32_t const before =
      h.released ? add_acquire_release(h.counter, 1) : __atomic_fetch_add(h.counter, 1, __ATOMIC_RELAXED);
  if (before == 0) store(h.value, 1);
  int32_t const after =
      h.released ? add_acquire_release(h.counter, 1) : __atomic_fetch_add(h.counter, 1, __ATOMIC_RELAXED);
  if (after == 3 && load(h.value) != 1) emulator::fault("nothing was left");
}

struct LeaveAll {
  int32_t* counter;
  int32_t* values;
  bool barrier;  // between the stores of all threads and one thread's counter update
};
void leave_all(LeaveAll const l) {
  Shared<int32_t> const is_last{0};
  store(l.values + block_index() * kThreads + thread_index(), 1);
  if (l.barrier) block_sync();
  if (thread_index() == 0) is_last.set(0, add_acquire_release(l.counter, 1) == block_count() - 1);
  block_sync();
  if (is_last.get(0))
    for (int b = 0; b < block_count(); ++b) (void)load(l.values + b * kThreads + thread_index());
}

}  // namespace

TEST(emulator_finds_results_that_were_not_handed_over) {
  std::vector<int32_t> values(1 + 3 * kThreads);
  emulator::GlobalRange const range(values.data(), values.size() * sizeof(int32_t));
  CLEAN(run(hand_over, HandOver{&values[0], &values[1], true}, 1, 2));
  values.assign(values.size(), 0);
  FINDS(run(hand_over, HandOver{&values[0], &values[1], false}, 1, 2), "did not hand over");
  for (uint64_t seed = 1; seed <= 5; ++seed)
    for (bool barrier : {true, false}) {
      values.assign(values.size(), 0);
      std::string const said = run(leave_all, LeaveAll{&values[0], &values[1], barrier}, seed, 3);
      CHECK(said.empty() == barrier && (barrier || contains(said, "did not hand over")), "seed %d: \"%s\"",
            int(seed), said.c_str());
    }
}

#if defined(__SANITIZE_THREAD__)
namespace {

// Kernel in which each thread of a block reads its neighbour's value.
struct Neighbours {
  int32_t* values;
  bool barrier;
};
void neighbours(Neighbours const n) {
  store(n.values + thread_index(), 1);
  if (n.barrier) block_sync();
  if (load(n.values + (thread_index() + 1) % kThreads) > 1) emulator::fault("no thread wrote that");
}

}  // namespace

TEST(thread_sanitizer_finds_races_in_global_memory) {
  std::vector<int32_t> values(kThreads);
  emulator::GlobalRange const range(values.data(), values.size() * sizeof(int32_t));
  CHECK(races_of([&] { CLEAN(run(hand_over, HandOver{&values[0], &values[1], true}, 1, 2)); }) == 0,
        "a hand-over with acquire and release is a race");
  CHECK(races_of([&] { CLEAN(run(neighbours, Neighbours{values.data(), true})); }) == 0,
        "a barrier is no order");
  CHECK(races_of([&] { CLEAN(run(neighbours, Neighbours{values.data(), false})); }) > 0,
        "no barrier is an order");
}
#endif

// ---- atomics and sabotage -------------------------------------------------------------------------------

namespace {

void count(int const how) {
  Shared<int32_t> const x{0};
  if (thread_index() == 0) x.set(0, 0);
  block_sync();
  x.add(0, 1);
  if (how != 1) block_sync();
  if (thread_index() == 7 && x.get(0) != kThreads) emulator::fault("counted %d", x.get(0));
}

}  // namespace

TEST(emulator_tells_atomic_additions_from_races) {
  CLEAN(run(count, 0));
  std::string const said = run(count, 1);
  CHECK(contains(said, "race: ") || contains(said, "counted"), "\"%s\"", said.c_str());
}

TEST(emulator_sabotages_each_barrier_of_a_kernel) {
  emulator::take_sites();
  CLEAN(run(count, 0));
  std::vector<emulator::Site> const sites = emulator::take_sites();
  CHECK(sites.size() == 2, "%zu sites", sites.size());
  for (emulator::Site const site : sites) {
    emulator::sabotage(site);
    CHECK(!run(count, 0).empty(), "without the barrier of line %d it runs clean", site.line);
  }
  emulator::sabotage({});
  CLEAN(run(count, 0));
}

TEST(emulator_runs_blocks_in_any_order) {
  int32_t order[6] = {};
  int32_t next = 0;
  struct Order {
    int32_t *order, *next;
  };
  emulator::GlobalRange const a(order, sizeof order), b(&next, sizeof next);
  std::vector<std::vector<int32_t>> seen;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    next = 0;
    auto const note = [](Order const o) {
      if (thread_index() == 0) store(o.order + block_index(), add_acquire_release(o.next, 1));
    };
    CLEAN(run<Order>(note, Order{order, &next}, seed, 6));
    seen.emplace_back(order, order + 6);
  }
  CHECK(seen[0] != seen[1] || seen[1] != seen[2], "always the same order");
}

}  // namespace bunting::test
