#include "emulator/grid.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#ifdef BUNTING_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace bunting::emulator {
namespace {

// Sanitized frames are several times larger.
#if defined(BUNTING_ASAN) || defined(BUNTING_TSAN)
constexpr size_t kStackBytes = 512 * 1024;
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif
constexpr size_t kGuardBytes = 4096;  // below each stack: an overflow becomes a segmentation fault
constexpr int32_t kWarpsMax = kThreadsMax / kWarp;
constexpr int32_t kSwitchWarpOneIn = 8;
constexpr size_t kFaultBytes = 2048;
constexpr int32_t kCopiesMax = 256;  // in flight per thread
constexpr int32_t kSitesMax = 512;

void happens_before([[maybe_unused]] void* what) {
#ifdef BUNTING_TSAN
  __tsan_release(what);
#endif
}
void happens_after([[maybe_unused]] void* what) {
#ifdef BUNTING_TSAN
  __tsan_acquire(what);
#endif
}

struct Random {
  uint64_t state;
  uint32_t below(uint32_t n) {  // SplitMix64
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return uint32_t((z ^ (z >> 31)) >> 32) % n;
  }
  void shuffle(int32_t* values, int32_t count) {
    for (int32_t i = count - 1; i > 0; --i) std::swap(values[i], values[below(uint32_t(i) + 1)]);
  }
};

enum class State : uint8_t { ready, at_warp_operation, at_block_barrier, finished };

struct Thread {
  Fiber fiber;
  Self self;
  State state;
  void* brought;
  int32_t group;                      // current group of cp.async, not closed yet
  int32_t copies_begun, copies_done;  // copy i is at pending[i % kCopiesMax], by rising group
  AsyncCopy pending[kCopiesMax];
  int64_t sabotaged_to;  // proper destination of the last copy at the sabotaged site; -1: none yet
};

struct Warp {
  char const* operation;  // operation at which some lanes wait, or null
  int32_t first_lane;     // first lane that arrived
  int32_t arrived;
  int32_t ready;  // number of ready lanes
  uint32_t epoch;
  int32_t order[kWarp];
  char barrier[2];  // addresses for ThreadSanitizer, by the epoch's parity
};

class Machine {
 public:
  Machine();
  ~Machine();
  std::string run(Grid const& grid, void (*body)(void*), void* argument, uint64_t seed);

  Thread& current() { return threads_[current_]; }
  Warp& warp_of_current() { return warps_[current_ / kWarp]; }
  SharedMemory& shared() { return shared_; }
  Access access(char const* operation) {
    return {operation, current().self.thread, block_epoch_, warp_of_current().epoch};
  }
  Moment moment() { return {launch_number_, current().self.block, block_epoch_, current().self.thread}; }
  Moment& handed_over_by(int32_t block) { return handed_over_[size_t(block)]; }
  void wait_at_warp(char const* operation, void* brought, Combine combine);
  void wait_at_block();
  void warp_barrier();
  [[noreturn]] void stop(char const* sentence);

 private:
  static void thread_main();
  void start_block(int32_t block);
  void run_block();
  int32_t next_warp();
  void run_lane_of(int32_t warp);
  void yield();
  void make_ready(Thread& thread);
  void release_block_barrier();
  std::string describe_deadlock() const;

  std::unique_ptr<Thread[]> threads_{new Thread[kThreadsMax]};
  std::unique_ptr<Warp[]> warps_{new Warp[kWarpsMax]};
  char* stacks_;
  Fiber scheduler_;
  SharedMemory shared_;
  Random random_{0};

  Grid grid_{};
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  char launch_ = 0, end_ = 0, barrier_[2] = {};  // addresses for ThreadSanitizer
  int32_t current_ = 0;
  int32_t fibers_ = 0;  // number of threads that have a stack
  int32_t warp_order_[kWarpsMax];
  int32_t running_warp_ = 0;
  int32_t at_barrier_ = 0, finished_ = 0;
  uint32_t block_epoch_ = 1;
  uint32_t launch_number_ = 0;
  std::vector<Moment> handed_over_;  // by block: last hand-over; launch 0: never
  char fault_[kFaultBytes] = "";
};

thread_local Machine* machine = nullptr;
std::atomic<uint32_t> launches{0};

// Shared by all OS threads; a launch and the wait for it order the accesses.
Site sabotaged{};
Site sites[kSitesMax];
int32_t site_count = 0;

// Records that a thread passes a site; returns true if the site is sabotaged.
bool passes(Site site) {
  if (std::find(sites, sites + site_count, site) == sites + site_count && site_count < kSitesMax)
    sites[site_count++] = site;
  return site == sabotaged;
}

Machine::Machine() {
  size_t const bytes = (kStackBytes + kGuardBytes) * kThreadsMax;
  void* const memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  stacks_ = static_cast<char*>(memory);
}

Machine::~Machine() {
  for (int32_t i = 0; i < kThreadsMax; ++i) threads_[i].fiber.leave_stack();
  munmap(stacks_, (kStackBytes + kGuardBytes) * kThreadsMax);
}

std::string Machine::run(Grid const& grid, void (*body)(void*), void* argument, uint64_t seed) {
  grid_ = grid;
  body_ = body;
  argument_ = argument;
  random_.state = seed;
  if (fault_[0]) fibers_ = 0;  // all threads get new stacks
  fault_[0] = '\0';
  if (grid.threads <= 0 || grid.threads > kThreadsMax || grid.threads % kWarp != 0 || grid.blocks <= 0 ||
      grid.shared_bytes > SharedMemory::kBytesMax)
    return std::string(grid.kernel) + ": a grid of " + std::to_string(grid.blocks) + " blocks of " +
           std::to_string(grid.threads) + " threads with " + std::to_string(grid.shared_bytes) +
           " bytes of shared memory cannot be launched";
  for (; fibers_ < grid.threads; ++fibers_) {
    char* const stack = stacks_ + (kStackBytes + kGuardBytes) * size_t(fibers_) + kGuardBytes;
    if (mprotect(stack, kStackBytes, PROT_READ | PROT_WRITE) != 0) std::abort();
    threads_[fibers_].fiber.take_stack(stack, kStackBytes);
  }
  while ((launch_number_ = ++launches) == 0) {
  }
  handed_over_.assign(size_t(grid.blocks), Moment{});
  std::unique_ptr<int32_t[]> const order(new int32_t[grid.blocks]);
  for (int32_t i = 0; i < grid.blocks; ++i) order[i] = i;
  random_.shuffle(order.get(), grid.blocks);
  happens_before(&launch_);
  for (int32_t i = 0; i < grid.blocks && !fault_[0]; ++i) {
    start_block(order[i]);
    run_block();
  }
  happens_after(&end_);
  return fault_;
}

void Machine::thread_main() {
  happens_after(&machine->launch_);
  machine->body_(machine->argument_);
  Thread& thread = machine->current();
  if (thread.copies_begun != thread.copies_done)
    fault("leaves the kernel with a cp.async that it has not waited for");
  thread.state = State::finished;
  ++machine->finished_;
  machine->yield();
  std::abort();
}

void Machine::start_block(int32_t block) {
  at_barrier_ = finished_ = 0;
  ++block_epoch_;
  shared_.begin_block(grid_.shared_bytes, block_epoch_, block);
  int32_t const warps = grid_.threads / kWarp;
  for (int32_t w = 0; w < warps; ++w) {
    warp_order_[w] = w;
    warps_[w] = Warp{};
    warps_[w].ready = kWarp;
    for (int32_t i = 0; i < kWarp; ++i) warps_[w].order[i] = w * kWarp + i;
    random_.shuffle(warps_[w].order, kWarp);
  }
  random_.shuffle(warp_order_, warps);
  running_warp_ = warp_order_[0];
  for (int32_t i = 0; i < grid_.threads; ++i) {
    Thread& thread = threads_[i];
    thread.self = {i, grid_.threads, block, grid_.blocks};
    thread.state = State::ready;
    thread.group = 0;
    thread.copies_begun = thread.copies_done = 0;
    thread.sabotaged_to = -1;
    thread.fiber.restart(thread_main);
  }
}

void Machine::run_block() {
  while (finished_ < grid_.threads && !fault_[0]) {
    int32_t const warp = next_warp();
    if (warp >= 0) {
      run_lane_of(warp);
    } else if (at_barrier_ == grid_.threads) {
      release_block_barrier();
    } else {
      std::snprintf(fault_, sizeof fault_, "%s, block %d: %s", grid_.kernel, threads_[0].self.block,
                    describe_deadlock().c_str());
    }
  }
}

// Returns the next warp to run: mostly the last one, so that warps run far ahead of each other.
int32_t Machine::next_warp() {
  if (warps_[running_warp_].ready > 0 && random_.below(kSwitchWarpOneIn * kWarp) != 0) return running_warp_;
  int32_t const warps = grid_.threads / kWarp, first = int32_t(random_.below(uint32_t(warps)));
  for (int32_t i = 0; i < warps; ++i) {
    int32_t const warp = warp_order_[(first + i) % warps];
    if (warps_[warp].ready > 0) return running_warp_ = warp;
  }
  return -1;
}

void Machine::run_lane_of(int32_t warp) {
  for (int32_t thread : warps_[warp].order) {
    if (threads_[thread].state != State::ready) continue;
    current_ = thread;
    scheduler_.switch_to(threads_[thread].fiber);
    if (threads_[thread].state != State::ready) --warps_[warp].ready;
    return;
  }
}

// This may be the last time that this thread runs, so it releases the end of the launch each time.
void Machine::yield() {
  happens_before(&end_);
  current().fiber.switch_to(scheduler_, current().state == State::finished);
}

void Machine::make_ready(Thread& thread) {
  thread.state = State::ready;
  ++warps_[thread.self.thread / kWarp].ready;
}

void Machine::wait_at_warp(char const* operation, void* brought, Combine combine) {
  Thread& thread = current();
  Warp& warp = warp_of_current();
  if (warp.arrived == 0) {
    warp.operation = operation;
    warp.first_lane = thread.self.thread % kWarp;
  } else if (warp.operation != operation) {
    fault("calls %s while lane %d of its warp waits at %s", operation, warp.first_lane, warp.operation);
  }
  thread.brought = brought;
  ++warp.arrived;
  if (warp.arrived < kWarp) {
    thread.state = State::at_warp_operation;
    yield();
    return;
  }
  int32_t const first = current_ / kWarp * kWarp;
  void* all[kWarp];
  for (int32_t i = 0; i < kWarp; ++i) all[i] = threads_[first + i].brought;
  if (combine) combine(all);
  warp.arrived = 0;
  for (int32_t i = 0; i < kWarp; ++i)
    if (first + i != current_) make_ready(threads_[first + i]);
}

void Machine::warp_barrier() {
  Warp& warp = warp_of_current();
  char* const barrier = &warp.barrier[warp.epoch % 2];
  happens_before(barrier);
  wait_at_warp("the warp barrier", nullptr, [](void* const*) { ++machine->warp_of_current().epoch; });
  happens_after(barrier);
}

void Machine::wait_at_block() {
  char* const barrier = &barrier_[block_epoch_ % 2];
  happens_before(barrier);
  ++at_barrier_;
  current().state = State::at_block_barrier;
  yield();
  happens_after(barrier);
}

void Machine::release_block_barrier() {
  at_barrier_ = 0;
  ++block_epoch_;
  for (int32_t i = 0; i < grid_.threads; ++i) make_ready(threads_[i]);
  for (int32_t w = 0; w < grid_.threads / kWarp; ++w) random_.shuffle(warps_[w].order, kWarp);
  random_.shuffle(warp_order_, grid_.threads / kWarp);
}

// Describes where the threads wait, warp by warp.
std::string Machine::describe_deadlock() const {
  std::string text = "no thread can go on:";
  for (int32_t w = 0; w < grid_.threads / kWarp; ++w) {
    uint32_t at_operation = 0, at_barrier = 0, gone = 0;
    for (int32_t i = 0; i < kWarp; ++i) {
      State const state = threads_[w * kWarp + i].state;
      (state == State::at_warp_operation  ? at_operation
       : state == State::at_block_barrier ? at_barrier
                                          : gone) |= 1u << i;
    }
    auto const tell = [&](uint32_t lanes, char const* where) {
      char line[128];
      if (!lanes) return;
      std::snprintf(line, sizeof line, " warp %d lanes %08x %s;", w, lanes, where);
      text += line;
    };
    tell(at_operation, warps_[w].operation ? warps_[w].operation : "");
    tell(at_barrier, "the block barrier");
    tell(gone, "have left the kernel");
  }
  text.pop_back();
  return text;
}

void Machine::stop(char const* sentence) {
  Thread const& thread = current();
  std::snprintf(fault_, sizeof fault_, "%s, block %d, thread %d (warp %d, lane %d): %s", grid_.kernel,
                thread.self.block, thread.self.thread, thread.self.thread / kWarp, thread.self.thread % kWarp,
                sentence);
  happens_before(&end_);
  current().fiber.switch_to(scheduler_, true);
  std::abort();
}

}  // namespace

std::string run_grid(Grid const& grid, void (*body)(void*), void* argument, uint64_t seed) {
  static thread_local std::unique_ptr<Machine> mine;
  if (!mine) mine.reset(new Machine);
  machine = mine.get();
  return machine->run(grid, body, argument, seed);
}

Self const& self() {
  return machine->current().self;
}

Moment moment_of_self() {
  return machine->moment();
}

void hand_over() {
  Moment const now = machine->moment();
  machine->handed_over_by(now.block) = now;
}

bool was_handed_over(Moment const& written) {
  Moment const& last = machine->handed_over_by(written.block);
  return last.launch != 0 && (written.epoch < last.epoch || written.thread == last.thread);
}

void fault(char const* format, ...) {
  char text[kFaultBytes / 2];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  machine->stop(text);
}

void warp_collective(char const* operation, void* brought, Combine combine) {
  machine->wait_at_warp(operation, brought, combine);
}

void sabotage(Site site) {
  sabotaged = site;
}

std::vector<Site> take_sites() {
  return {sites, sites + std::exchange(site_count, 0)};
}

void warp_barrier(int32_t line) {
  if (!passes({Site::Kind::warp_barrier, line})) machine->warp_barrier();
}

void block_barrier(int32_t line) {
  if (!passes({Site::Kind::block_barrier, line})) machine->wait_at_block();
}

SharedMemory& shared_memory() {
  return machine->shared();
}

Access access_by_self(char const* operation) {
  return machine->access(operation);
}

void begin_copy(uint32_t to, void const* from, uint32_t bytes) {
  Thread& thread = machine->current();
  if (thread.copies_begun - thread.copies_done == kCopiesMax)
    fault("begins a cp.async while %d are under way", kCopiesMax);
  thread.pending[thread.copies_begun++ % kCopiesMax] = {to, bytes, from, thread.group};
}

uint32_t copy_destination(uint32_t to, int32_t line) {
  if (!passes({Site::Kind::copy, line})) return to;
  int64_t const before = std::exchange(machine->current().sabotaged_to, to);
  return before < 0 ? to : uint32_t(before);
}

void commit_copies() {
  ++machine->current().group;
}

AsyncCopy const* next_copy_to_finish(int32_t groups, int32_t line) {
  if (passes({Site::Kind::copy_wait, line})) ++groups;
  Thread& thread = machine->current();
  if (thread.copies_begun == thread.copies_done) return nullptr;
  AsyncCopy const* const next = &thread.pending[thread.copies_done % kCopiesMax];
  if (next->group >= thread.group - groups) return nullptr;
  ++thread.copies_done;
  return next;
}

}  // namespace bunting::emulator
