// fiber.h - a stack of its own and the place where it stopped: what a GPU thread is to the emulator.
//
// On x86-64 a switch is a dozen instructions; elsewhere ucontext does it, ten times slower.
// AddressSanitizer and ThreadSanitizer are told of every switch. To ThreadSanitizer each fiber is a thread,
// and a switch orders nothing: only what calls __tsan_acquire and __tsan_release does.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) || defined(BUNTING_FIBER_UCONTEXT)
#define BUNTING_FIBER_PORTABLE 1
#include <ucontext.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define BUNTING_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BUNTING_ASAN 1
#endif

namespace bunting::emulator {

class Fiber {
 public:
  // The fiber of the code that is already running on this OS thread.
  Fiber() = default;
  Fiber(Fiber const&) = delete;
  Fiber& operator=(Fiber const&) = delete;

  // Gives it a stack, which the caller owns. Again after it was left for good in the middle of something.
  void take_stack(char* stack, size_t bytes);
  // To be called before the caller takes the stack back, or the fiber ends.
  void leave_stack();
  // The next switch to this fiber calls `entry`, whatever it was doing before. `entry` must not return.
  void restart(void (*entry)());
  // Stops here and goes on with `next`, until another fiber switches back. `for_good`: none will.
  void switch_to(Fiber& next, bool for_good = false);

 private:
  static void begin();
  void arrived();

  void (*entry_)() = nullptr;
  char* stack_ = nullptr;
  size_t stack_bytes_ = 0;
#ifdef BUNTING_FIBER_PORTABLE
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;
#endif
#ifdef BUNTING_TSAN
  void* tsan_ = nullptr;
#endif
#ifdef BUNTING_ASAN
  void* fake_stack_ = nullptr;
  Fiber* came_from_ = nullptr;
#endif
};

}  // namespace bunting::emulator
