// thread_pool.h - parallel sections of a step over a fixed set of threads.
//
//   ThreadPool pool(4);              // the calling thread and three helpers
//   {
//     ThreadPool::Step step(pool);   // helpers stay awake while it lives, and use no processor otherwise
//     pool.run(panels, 8, [&](int64_t begin, int64_t end) { kernels.gemm(g, begin, end); });
//     pool.run(items, 4, [&](int64_t begin, int64_t end, int thread) { ... scratch[thread] ... });
//   }
//
// A section is [0, total) in pieces of `grain`, which free threads fetch in rising order. run() returns when
// all pieces are done, and their writes are visible then. `thread` is in [0, threads()), and no two pieces
// run at once with the same number, so it can index scratch memory. The caller of run() works too, as thread
// 0. The assignment of pieces to threads varies, so pieces must not depend on it.
//
// Inside a step an idle thread spins for some microseconds, then yields, and after about a millisecond sleeps
// on a futex. This is fast if every thread has a core, and harmless otherwise. Outside a step run() must
// first wake the helpers.
//
// A pool with Manner::yielding gives way to steps of other pools (right_of_way.h): while there are any, the
// caller works alone, and rests between pieces.
//
// The pool has one caller at a time. Pieces must not throw and must not call run(). Only the constructor
// allocates.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace bunting {

class ThreadPool {
 public:
  enum class Cores { any, own };
  enum class Manner { steady, yielding };
  // Starts threads - 1 helpers; threads >= 1 includes the caller. Throws std::system_error if the system
  // refuses a thread. With Cores::own the pool binds each helper to one core, if it uses all cores of the
  // process or all but one. A smaller pool binds none, because several pools would bind to the same cores.
  // The caller is never bound, so that it can make room for other threads.
  explicit ThreadPool(int threads, Cores cores = Cores::any, Manner manner = Manner::steady);
  ~ThreadPool();
  ThreadPool(ThreadPool const&) = delete;
  ThreadPool& operator=(ThreadPool const&) = delete;

  int threads() const { return int(helpers_.size()) + 1; }

  // Scope in which helpers do not sleep between sections.
  class Step {
   public:
    explicit Step(ThreadPool& pool) : pool_(pool) { pool_.in_step_.store(true, std::memory_order_relaxed); }
    ~Step() { pool_.in_step_.store(false, std::memory_order_relaxed); }
    Step(Step const&) = delete;
    Step& operator=(Step const&) = delete;

   private:
    ThreadPool& pool_;
  };

  // Runs a section. `piece` is void(int64_t begin, int64_t end) or void(int64_t begin, int64_t end, int
  // thread); grain >= 1.
  template <class Piece>
  void run(int64_t total, int64_t grain, Piece&& piece) {
    using Callable = std::remove_reference_t<Piece>;
    Call const call = [](void* context, int64_t begin, int64_t end, int thread) {
      if constexpr (std::is_invocable_v<Callable&, int64_t, int64_t, int>)
        (*static_cast<Callable*>(context))(begin, end, thread);
      else
        (*static_cast<Callable*>(context))(begin, end);
    };
    run_section(total, grain, call, const_cast<void*>(static_cast<void const*>(&piece)));
  }

  // Runs a section in about four pieces per thread.
  template <class Piece>
  void run(int64_t total, Piece&& piece) {
    int64_t const pieces = 4 * int64_t(threads());
    run(total, total > pieces ? (total + pieces - 1) / pieces : 1, static_cast<Piece&&>(piece));
  }

  // Calls part(int32_t) once for each of [0, threads()).
  template <class Part>
  void run_parts(Part&& part) {
    run(threads(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) part(int32_t(i));
    });
  }

 private:
  using Call = void (*)(void* context, int64_t begin, int64_t end, int thread);

  void run_section(int64_t total, int64_t grain, Call call, void* context);
  void help(int thread);
  static void bind_helpers(std::vector<std::thread>& helpers);
  void work(int thread);
  bool must_leave(int thread) const;
  void sleep_until_changed(std::atomic<uint32_t>& word, uint32_t seen, std::atomic<uint32_t>& sleepers);
  void stop();

  Manner const manner_;

  // Section being run. The caller writes it while no piece is left, and only threads that hold a piece read
  // it.
  Call call_ = nullptr;
  void* context_ = nullptr;
  int64_t total_ = 0, grain_ = 1;
  uint32_t pieces_ = 0;

  // On separate cache lines, so that waiting on one does not slow down the others.
  alignas(64) std::atomic<uint32_t> left_{0};  // pieces that no thread has fetched
  alignas(64) std::atomic<uint32_t> done_{0};  // pieces that are done
  std::atomic<uint32_t> caller_sleeps_{0};
  // Number of sections published; helpers wait for it to change.
  alignas(64) std::atomic<uint32_t> sections_{0};
  std::atomic<uint32_t> helpers_asleep_{0};
  std::atomic<bool> in_step_{false};
  std::atomic<bool> stopping_{false};

  std::vector<std::thread> helpers_;
};

}  // namespace bunting
