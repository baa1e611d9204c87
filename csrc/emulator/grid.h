// grid.h - runs a kernel's grid on one OS thread: blocks one after the other, their threads as fibers.
//
// A thread runs until it must wait for others: at a block barrier, or at a warp operation that the rest of
// its warp has not reached. A seed determines which thread continues then, and the order in which blocks and
// threads start. An error that a GPU would not detect ends the launch with a sentence: kernel, block, thread,
// operation.
//
// The emulator does not model time, bank conflicts, registers, or blocks that wait for each other.
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

// Calls body(argument) once per thread of the grid. Returns "" or the first fault. After a fault no thread of
// the grid continues.
std::string run_grid(Grid const& grid, void (*body)(void*), void* argument, uint64_t seed);

// ---- sabotage: tests of the checks ------------------------------------------------------------------------

// Place in a kernel's source that orders memory or starts a copy into a ring. `line` is that of the call.
struct Site {
  enum class Kind { block_barrier, warp_barrier, copy_wait, copy } kind;
  int32_t line;
  bool operator==(Site const&) const = default;
};

// Disables `site` in all grids until the next call. Threads pass a barrier without waiting. A wait for copies
// leaves one more group in flight. A copy goes to the slot of the thread's previous copy. Line 0 disables
// nothing. No grid may be running.
void sabotage(Site site);
// Returns the sites that grids have passed since the last call. No grid may be running.
std::vector<Site> take_sites();

// ---- for gpu.h, on a thread of a running grid -----------------------------------------------------------

struct Self {
  int32_t thread, threads, block, blocks;
};
Self const& self();

// Thread and time of an access to global memory; the time is the number of block barriers that its block has
// passed. `launch` is never 0.
struct Moment {
  uint32_t launch;
  int32_t block;
  uint32_t epoch;
  int32_t thread;
};
Moment moment_of_self();
// Allows other blocks to access earlier writes of this thread, and of its block before the last barrier.
void hand_over();
// Returns true if a write of this launch was handed over.
bool was_handed_over(Moment const& written);

// Ends the launch with a sentence about the calling thread.
[[noreturn, gnu::format(printf, 1, 2)]] void fault(char const* format, ...);

// Waits until every lane of the warp has called it with the same operation. The last lane to arrive runs
// `combine` on the arguments of all lanes before any continues. Orders no memory.
using Combine = void (*)(void* const* brought);
void warp_collective(char const* operation, void* brought, Combine combine);
// Barriers, which also order memory.
void warp_barrier(int32_t line);
void block_barrier(int32_t line);

SharedMemory& shared_memory();
Access access_by_self(char const* operation);

// Asynchronous copy of 16 bytes from global to shared memory: the first `bytes` (16 or 0) from the source,
// the rest zeros. It happens as late as possible: when the thread waits for its group.
struct AsyncCopy {
  uint32_t to;
  uint32_t bytes;
  void const* from;
  int32_t group;
};
void begin_copy(uint32_t to, void const* from, uint32_t bytes);
// Returns the destination of a copy: `to`, unless its site is sabotaged.
uint32_t copy_destination(uint32_t to, int32_t line);
void commit_copies();
// Returns the next copy to perform until at most `groups` groups are in flight; null if there is none.
AsyncCopy const* next_copy_to_finish(int32_t groups, int32_t line);

}  // namespace bunting::emulator
