// grid.h - runs a kernel's grid on one OS thread: blocks one after the other, their threads as fibers.
//
// A thread runs until it has to wait for others: at a block barrier, or at a warp operation that the rest
// of its warp has not reached. Which one goes on then, and in which order blocks and threads start, is
// drawn from a seed. What a GPU would do silently wrong ends the launch with a sentence: kernel, block,
// thread, operation.
//
// Not modelled: time, bank conflicts, registers, and blocks that wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/fiber.h"
#include "emulator/shared_memory.h"

namespace bunting::emulator {

inline constexpr int32_t kWarp = 32;
inline constexpr int32_t kThreadsMax = 1024;

struct Grid {
  char const* kernel;
  int32_t blocks, threads;  // threads per block: a multiple of kWarp
  size_t shared_bytes;
};

// Calls body(argument) once per thread of the grid. Returns "" or the first fault, after which nothing of
// the grid runs any more.
std::string run_grid(Grid const& grid, void (*body)(void*), void* argument, uint64_t seed);

// ---- sabotage: do the checks find a fault? --------------------------------------------------------------

// A place in a kernel's source that orders something, or begins to fill a ring. `line` is that of the call.
struct Site {
  enum class Kind { block_barrier, warp_barrier, copy_wait, copy } kind;
  int32_t line;
  bool operator==(Site const&) const = default;
};

// Until the next call of this, grids do not do what `site` says: a barrier is passed without waiting, a
// wait for copies leaves one group more under way, a copy goes where the thread's copy before it went: a
// wrong slot. Line 0: nothing is sabotaged. No grid may be running.
void sabotage(Site site);
// The sites that grids have passed since the last call of this. No grid may be running.
std::vector<Site> take_sites();

// ---- for gpu.h, on a thread of a running grid -----------------------------------------------------------

struct Self {
  int32_t thread, threads, block, blocks;
};
Self const& self();

// Which thread touches global memory, and when: block barriers that its block has passed. `launch` is never
// 0.
struct Moment {
  uint32_t launch;
  int32_t block;
  uint32_t epoch;
  int32_t thread;
};
Moment moment_of_self();
// From now on other blocks may touch what this thread wrote, or any of its block before the last barrier.
void hand_over();
// Whether that is so of something that a block of this launch wrote then.
bool was_handed_over(Moment const& written);

// Ends the launch with a sentence about the calling thread.
[[noreturn, gnu::format(printf, 1, 2)]] void fault(char const* format, ...);

// Waits until every lane of the warp has called this with the same operation; the last to come runs
// `combine` on what all have brought (by lane) before any goes on. Orders no memory.
using Combine = void (*)(void* const* brought);
void warp_collective(char const* operation, void* brought, Combine combine);
// These two order memory as well.
void warp_barrier(int32_t line);
void block_barrier(int32_t line);

SharedMemory& shared_memory();
Access access_by_self(char const* operation);

// Asynchronous copies of 16 bytes from global to shared memory, of which the first `bytes` (16 or 0) come
// from the source and the rest are zeros. They happen as late as they may: when the thread waits for their
// group.
struct AsyncCopy {
  uint32_t to;
  uint32_t bytes;
  void const* from;
  int32_t group;
};
void begin_copy(uint32_t to, void const* from, uint32_t bytes);
// Where a copy to `to` goes: there, unless its site is sabotaged.
uint32_t copy_destination(uint32_t to, int32_t line);
void commit_copies();
// The next copy to perform before at most `groups` groups are still under way; null when there is none.
AsyncCopy const* next_copy_to_finish(int32_t groups, int32_t line);

}  // namespace bunting::emulator
