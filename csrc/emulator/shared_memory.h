// shared_memory.h - a block's shared memory, and the access state of every two bytes of it.
//
// An access must lie inside the block's memory, at a multiple of its size. It may only read bytes that this
// block wrote, and must not touch bytes of a cp.async that was not waited for. It must be ordered with every
// other thread's access to the same bytes if one of the two writes: by a block barrier, or within a warp by a
// warp barrier. Everything is ordered across two block barriers. So two numbers per access, the barrier
// counts of block and warp, decide it exactly. The check misses no race on the executed path, in whatever
// order the threads ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bunting::emulator {

// Progress of the accessing thread: barriers passed by its block (never reset) and by its warp.
struct Access {
  char const* operation;  // "load", "ldmatrix", ...
  int32_t thread;
  uint32_t block_epoch, warp_epoch;
};

class SharedMemory {
 public:
  static constexpr size_t kBytesMax = 228 * 1024;  // the largest of any GPU

  SharedMemory();
  ~SharedMemory();

  // Starts a block with `bytes` of NaN; state from before `block_epoch` does not count. Blocks of one launch
  // get separate memory where possible, because for ThreadSanitizer they run at the same time.
  void begin_block(size_t bytes, uint32_t block_epoch, int32_t block);
  char* data() const { return data_; }

  // Each reports a fault (grid.h) and does not return if the access is wrong.
  void read(uint32_t at, uint32_t bytes, Access const& access);
  void write(uint32_t at, uint32_t bytes, Access const& access);
  // Checks an atomic read-modify-write, which is unordered with others of its kind.
  void update(uint32_t at, uint32_t bytes, Access const& access);
  // Starts an asynchronous copy; until it ends, its bytes are NaN and no thread may access them.
  void copy_begins(uint32_t at, uint32_t bytes, Access const& access);
  void copy_ends(uint32_t at, uint32_t bytes, Access const& access);

 private:
  struct Cell;  // access state of two bytes
  Cell* cells(uint32_t at, uint32_t bytes, Access const& access);

  char* arenas_;
  char* data_;
  size_t bytes_ = 0;
  uint32_t first_epoch_ = 0;
  std::unique_ptr<Cell[]> cells_;
};

}  // namespace bunting::emulator
