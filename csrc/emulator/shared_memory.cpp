#include "emulator/shared_memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "emulator/fiber.h"
#include "emulator/grid.h"

namespace bunting::emulator {
namespace {

constexpr uint32_t kCellBytes = 2;
constexpr int32_t kMany = -kWarp;  // stands for several threads or warps

#ifdef BUNTING_TSAN
constexpr size_t kArenas = 64;
#else
constexpr size_t kArenas = 1;
#endif
constexpr size_t kAlignment = 128;

constexpr int32_t warp_of(int32_t thread) {
  return thread / kWarp;
}

}  // namespace

struct SharedMemory::Cell {
  enum class Writer : uint8_t { store, atomic, pending_copy };

  // Last write; epoch 0: none.
  uint32_t write_epoch, write_warp_epoch;
  int32_t writer;
  Writer kind;

  // Readers in the latest block epoch with reads: the warp or kMany, and for one warp the thread or kMany in
  // its latest warp epoch.
  uint32_t read_epoch, read_warp_epoch;
  int32_t reader_warp, reader;

  bool written_before(Access const& access) const {
    return write_epoch < access.block_epoch || writer == access.thread ||
           (warp_of(writer) == warp_of(access.thread) && write_warp_epoch < access.warp_epoch);
  }
  bool read_before(Access const& access) const {
    if (read_epoch < access.block_epoch) return true;
    if (reader_warp != warp_of(access.thread)) return false;
    return read_warp_epoch < access.warp_epoch || reader == access.thread;
  }
  void note_read(Access const& access) {
    int32_t const warp = warp_of(access.thread);
    if (read_epoch < access.block_epoch) {
      read_epoch = access.block_epoch;
      reader_warp = warp;
      read_warp_epoch = access.warp_epoch;
      reader = access.thread;
    } else if (reader_warp != warp) {
      reader_warp = kMany;
    } else if (read_warp_epoch < access.warp_epoch) {
      read_warp_epoch = access.warp_epoch;
      reader = access.thread;
    } else if (reader != access.thread) {
      reader = kMany;
    }
  }
  void note_write(Access const& access, Writer how) {
    write_epoch = access.block_epoch;
    write_warp_epoch = access.warp_epoch;
    writer = access.thread;
    kind = how;
  }
};

SharedMemory::SharedMemory() : cells_(new Cell[kBytesMax / kCellBytes]()) {
  void* const memory = mmap(nullptr, kBytesMax * kArenas, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  arenas_ = data_ = static_cast<char*>(memory);
}

SharedMemory::~SharedMemory() {
  munmap(arenas_, kBytesMax * kArenas);
}

void SharedMemory::begin_block(size_t bytes, uint32_t block_epoch, int32_t block) {
  bytes_ = bytes;
  first_epoch_ = block_epoch;
  size_t const own = (bytes / kAlignment + 1) * kAlignment, fit = kArenas > 1 ? kArenas * kBytesMax / own : 1;
  data_ = arenas_ + size_t(block) % fit * own;
  // Volatile, so that it does not become a memset.
  uint64_t volatile* const words = reinterpret_cast<uint64_t*>(data_);
  for (size_t i = 0; i < (bytes + 7) / 8; ++i) words[i] = ~uint64_t(0);
}

SharedMemory::Cell* SharedMemory::cells(uint32_t at, uint32_t bytes, Access const& access) {
  if (at % bytes != 0)
    fault("%s of %u bytes at shared address %u, which is not a multiple of %u", access.operation, bytes, at,
          bytes);
  if (bytes % kCellBytes != 0)
    fault("%s of %u bytes of shared memory: the smallest access is %u bytes", access.operation, bytes,
          kCellBytes);
  if (at + size_t(bytes) > bytes_)
    fault("%s of %u bytes at shared address %u, but the block has %zu", access.operation, bytes, at, bytes_);
  return &cells_[at / kCellBytes];
}

void SharedMemory::read(uint32_t at, uint32_t bytes, Access const& access) {
  Cell* const first = cells(at, bytes, access);
  for (Cell* cell = first; cell < first + bytes / kCellBytes; ++cell) {
    if (cell->write_epoch < first_epoch_)
      fault("%s of shared address %u, which was never written", access.operation, at);
    if (cell->kind == Cell::Writer::pending_copy)
      fault("%s of shared address %u, which a cp.async of thread %d may still be writing", access.operation,
            at, cell->writer);
    if (!cell->written_before(access))
      fault("race: %s of shared address %u, which thread %d wrote with no barrier in between",
            access.operation, at, cell->writer);
    cell->note_read(access);
  }
}

void SharedMemory::write(uint32_t at, uint32_t bytes, Access const& access) {
  Cell* const first = cells(at, bytes, access);
  for (Cell* cell = first; cell < first + bytes / kCellBytes; ++cell) {
    if (cell->write_epoch >= first_epoch_) {
      if (cell->kind == Cell::Writer::pending_copy)
        fault("%s to shared address %u, which a cp.async of thread %d may still be writing", access.operation,
              at, cell->writer);
      if (!cell->written_before(access))
        fault("race: %s to shared address %u, which thread %d wrote with no barrier in between",
              access.operation, at, cell->writer);
    }
    if (!cell->read_before(access))
      fault("race: %s to shared address %u, which another thread reads with no barrier in between",
            access.operation, at);
    cell->note_write(access, Cell::Writer::store);
  }
}

void SharedMemory::update(uint32_t at, uint32_t bytes, Access const& access) {
  Cell* const first = cells(at, bytes, access);
  for (Cell* cell = first; cell < first + bytes / kCellBytes; ++cell) {
    bool const in_block = cell->write_epoch >= first_epoch_,
               among_atomics = cell->kind == Cell::Writer::atomic;
    if (!in_block) fault("%s of shared address %u, which was never written", access.operation, at);
    if (cell->kind == Cell::Writer::pending_copy || (!among_atomics && !cell->written_before(access)))
      fault("race: %s of shared address %u, which thread %d wrote with no barrier in between",
            access.operation, at, cell->writer);
    if (!cell->read_before(access))
      fault("race: %s of shared address %u, which another thread reads with no barrier in between",
            access.operation, at);
    bool const alone = !among_atomics || cell->written_before(access);
    cell->note_write(access, Cell::Writer::atomic);
    if (!alone) cell->writer = kMany;
  }
}

void SharedMemory::copy_begins(uint32_t at, uint32_t bytes, Access const& access) {
  write(at, bytes, access);
  Cell* const first = cells(at, bytes, access);
  for (Cell* cell = first; cell < first + bytes / kCellBytes; ++cell) cell->kind = Cell::Writer::pending_copy;
}

void SharedMemory::copy_ends(uint32_t at, uint32_t bytes, Access const& access) {
  Cell* const first = cells(at, bytes, access);
  for (Cell* cell = first; cell < first + bytes / kCellBytes; ++cell)
    cell->note_write(access, Cell::Writer::store);
}

}  // namespace bunting::emulator
