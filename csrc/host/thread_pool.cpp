#include "host/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include <climits>
#include <optional>

#include "host/right_of_way.h"

namespace bunting {
namespace {

// Pauses for some microseconds, then yields for about a millisecond on a busy machine.
constexpr int kSpins = 1500;
constexpr int kYields = 500;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

#if defined(__linux__)

// Returns on a wake, on a signal, and at once if the word is not `expected`. Callers check again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  static_assert(sizeof(word) == 4, "a futex is 32 bits");
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

#else

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  word.wait(expected);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  word.notify_all();
}

#endif

}  // namespace

ThreadPool::ThreadPool(int threads, Cores cores, Manner manner) : manner_(manner) {
  // Helpers inherit a mask that blocks all signals, so that the process's other threads receive them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    helpers_.reserve(size_t(threads > 1 ? threads - 1 : 0));
    for (int thread = 1; thread < threads; ++thread) {
      helpers_.emplace_back([this, thread] { help(thread); });
#if defined(__linux__)
      pthread_setname_np(helpers_.back().native_handle(), "bunting-compute");
#endif
    }
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    stop();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (cores == Cores::own) bind_helpers(helpers_);
}

// Binds helpers to the cores of the process except the first. If the system refuses, or has no such call as
// macOS, a helper stays unbound, which is only slower.
void ThreadPool::bind_helpers([[maybe_unused]] std::vector<std::thread>& helpers) {
#if defined(__linux__)
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;  // more than 1024 cores
  int const count = CPU_COUNT(&usable), threads = int(helpers.size()) + 1;
  if (threads > count || threads < count - 1) return;
  size_t core = 0;
  while (!CPU_ISSET(core, &usable)) ++core;
  for (std::thread& helper : helpers) {
    do ++core;
    while (!CPU_ISSET(core, &usable));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(helper.native_handle(), sizeof one, &one);
  }
#endif
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  sections_.fetch_add(1);
  futex_wake_all(sections_);
  for (std::thread& helper : helpers_) helper.join();
  helpers_.clear();
}

// Announces itself as a sleeper and then lets the kernel compare the word; the waker changes the word and
// then looks for sleepers. Sequential consistency (the default order) guarantees that one of the two sees the
// other.
void ThreadPool::sleep_until_changed(std::atomic<uint32_t>& word, uint32_t seen,
                                     std::atomic<uint32_t>& sleepers) {
  sleepers.fetch_add(1);
  while (word.load() == seen) futex_wait(word, seen);
  sleepers.fetch_sub(1);
}

// True for a helper of a yielding pool while steps are computed.
bool ThreadPool::must_leave(int thread) const {
  return thread > 0 && manner_ == Manner::yielding && steps_are_computed();
}

// Runs pieces until none is left.
void ThreadPool::work(int thread) {
  uint32_t left = left_.load(std::memory_order_relaxed);
  while (left != 0 && !must_leave(thread)) {
    // Success means that this thread owns a piece of the section now running, even if it came for an earlier
    // section. That section cannot end, and its description cannot change, before this thread counts the
    // piece as done. Acquire pairs with the release in run_section().
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed))
      continue;
    int64_t const begin = int64_t(pieces_ - left) * grain_;
    int64_t const end = begin + grain_ < total_ ? begin + grain_ : total_;
    std::optional<YieldingWork> yielding;
    if (manner_ == Manner::yielding) yielding.emplace();
    call_(context_, begin, end, thread);
    done_.fetch_add(1);
    if (caller_sleeps_.load() != 0) futex_wake_all(done_);
    left = left_.load(std::memory_order_relaxed);
  }
}

void ThreadPool::help(int thread) {
  uint32_t seen = 0;
  int waited = 0;
  for (;;) {
    if (sections_.load(std::memory_order_acquire) == seen) {
      if (!in_step_.load(std::memory_order_relaxed) || waited >= kSpins + kYields)
        sleep_until_changed(sections_, seen, helpers_asleep_);
      else if (waited++ < kSpins)
        pause();
      else
        sched_yield();
      continue;
    }
    seen = sections_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    waited = 0;
    work(thread);
  }
}

void ThreadPool::run_section(int64_t total, int64_t grain, Call call, void* context) {
  if (total <= 0) return;
  int64_t const pieces = (total + grain - 1) / grain;
  bool const is_alone = helpers_.empty() && manner_ == Manner::steady;
  if (is_alone || pieces == 1) return call(context, 0, total, 0);
  call_ = call;
  context_ = context;
  total_ = total;
  grain_ = grain;
  pieces_ = uint32_t(pieces);
  done_.store(0, std::memory_order_relaxed);
  left_.store(pieces_, std::memory_order_release);
  sections_.fetch_add(1);
  if (helpers_asleep_.load() != 0) futex_wake_all(sections_);

  work(0);

  int waited = 0;
  for (uint32_t done = done_.load(std::memory_order_acquire); done != pieces_;
       done = done_.load(std::memory_order_acquire)) {
    if (waited < kSpins)
      pause();
    else if (waited < kSpins + kYields)
      sched_yield();
    else
      sleep_until_changed(done_, done, caller_sleeps_);
    ++waited;
  }
}

}  // namespace bunting
