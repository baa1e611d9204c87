// fiber.h - a stack and the point where execution stopped. The emulator runs each GPU thread as a fiber.
//
// On x86-64 a switch is a dozen instructions; elsewhere the much slower ucontext implements it. The fiber
// announces every switch to AddressSanitizer and ThreadSanitizer. For ThreadSanitizer each fiber is a thread,
// and a switch orders nothing: only __tsan_acquire and __tsan_release do.
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
  // Makes a fiber for the code that is already running on this OS thread.
  Fiber() = default;
  Fiber(Fiber const&) = delete;
  Fiber& operator=(Fiber const&) = delete;

  // Assigns a stack, which the caller owns. Also reassigns one after the fiber was abandoned in the middle of
  // a call.
  void take_stack(char* stack, size_t bytes);
  // Must be called before the caller reuses the stack, or before the fiber ends.
  void leave_stack();
  // Makes the next switch to this fiber call `entry`, wherever it stopped before. `entry` must not return.
  void restart(void (*entry)());
  // Stops here and continues `next`, until another fiber switches back. `for_good`: none will.
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
