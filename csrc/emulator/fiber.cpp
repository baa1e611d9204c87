#include "emulator/fiber.h"

#include <cstdint>
#include <cstring>

#ifdef BUNTING_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef BUNTING_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifndef BUNTING_FIBER_PORTABLE
// Saves the registers that a call must preserve, stores the stack pointer at *rdi and continues on stack rsi.
extern "C" void bunting_switch_stack(void** save, void* load);
asm(R"(
.text
.hidden bunting_switch_stack
.globl bunting_switch_stack
.type bunting_switch_stack, @function
bunting_switch_stack:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bunting_switch_stack, .-bunting_switch_stack
)");
#endif

namespace bunting::emulator {
namespace {
thread_local Fiber* running = nullptr;
}

void Fiber::take_stack(char* stack, size_t bytes) {
  stack_ = stack;
  stack_bytes_ = bytes;
#ifdef BUNTING_TSAN
  if (tsan_) __tsan_destroy_fiber(tsan_);  // it still has the abandoned call frames
  tsan_ = __tsan_create_fiber(0);
#endif
}

void Fiber::leave_stack() {
#ifdef BUNTING_ASAN
  // New data at these addresses is not a stack frame.
  if (stack_) __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
#ifdef BUNTING_TSAN
  if (stack_) __tsan_destroy_fiber(tsan_);
  tsan_ = nullptr;
#endif
  stack_ = nullptr;
}

void Fiber::begin() {
  running->arrived();
  running->entry_();
}

void Fiber::restart(void (*entry)()) {
  entry_ = entry;
#ifdef BUNTING_ASAN
  __asan_unpoison_memory_region(stack_, stack_bytes_);  // the frames in which it was stopped are gone
#endif
#ifdef BUNTING_FIBER_PORTABLE
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, begin, 0);
#else
  // Six registers and the address for `ret`, plus one word for the stack alignment that the entry expects
  // after a call.
  uintptr_t* const top = reinterpret_cast<uintptr_t*>(stack_ + stack_bytes_) - 8;
  std::memset(top, 0, 8 * sizeof *top);
  top[6] = reinterpret_cast<uintptr_t>(&Fiber::begin);
  stack_pointer_ = top;
#endif
}

void Fiber::switch_to(Fiber& next, [[maybe_unused]] bool for_good) {
#ifdef BUNTING_TSAN
  if (!tsan_) tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(next.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef BUNTING_ASAN
  next.came_from_ = this;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, next.stack_, next.stack_bytes_);
#endif
  running = &next;
#ifdef BUNTING_FIBER_PORTABLE
  swapcontext(&context_, &next.context_);
#else
  bunting_switch_stack(&stack_pointer_, next.stack_pointer_);
#endif
  arrived();
}

void Fiber::arrived() {
#ifdef BUNTING_ASAN
  void const* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (!came_from_->stack_) {  // the OS thread's own stack: known only after leaving it
    came_from_->stack_ = static_cast<char*>(const_cast<void*>(bottom));
    came_from_->stack_bytes_ = bytes;
  }
#endif
}

}  // namespace bunting::emulator
