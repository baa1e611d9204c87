// shared_memory.h - a block's shared memory, and what is known of every two bytes of it.
//
// An access must lie inside the block's memory on a multiple of its size, read only what was written in
// this block, leave alone what a cp.async that is not waited for may still be writing, and be ordered with
// every other thread's access to the same bytes if one of the two writes: by a block barrier between them,
// or, inside a warp, by a warp barrier. Two block barriers apart everything is ordered, so two numbers per
// access, the block's and the warp's count of barriers, decide it exactly: no race is missed that the
// executed path contains, whatever order the threads ran in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bunting::emulator {

// The accessing thread's progress: barriers passed by its block (never reset) and by its warp.
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

  // A new block with `bytes` of NaN; nothing before `block_epoch` counts. Blocks of one launch get memory
  // of their own as far as there is some, because to ThreadSanitizer they run at the same time.
  void begin_block(size_t bytes, uint32_t block_epoch, int32_t block);
  char* data() const { return data_; }

  // Each reports a fault (grid.h) instead of returning when the access is wrong.
  void read(uint32_t at, uint32_t bytes, Access const& access);
  void write(uint32_t at, uint32_t bytes, Access const& access);
  // An atomic read-modify-write, unordered with others of its kind.
  void update(uint32_t at, uint32_t bytes, Access const& access);
  // An asynchronous copy begins; until it ends, its bytes are NaN and no thread may touch them.
  void copy_begins(uint32_t at, uint32_t bytes, Access const& access);
  void copy_ends(uint32_t at, uint32_t bytes, Access const& access);

 private:
  struct Cell;  // what is known of two bytes
  Cell* cells(uint32_t at, uint32_t bytes, Access const& access);

  char* arenas_;
  char* data_;
  size_t bytes_ = 0;
  uint32_t first_epoch_ = 0;
  std::unique_ptr<Cell[]> cells_;
};

}  // namespace bunting::emulator
