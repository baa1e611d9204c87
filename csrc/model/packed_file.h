// packed_file.h - packed weights on disk, so that a second start converts and copies nothing.
//
//   bytes     contents
//   0         "BUNTPACK", u32 version, u32 0
//   16        key: the caller's identification of the contents
//   48        u64 bytes of data, u64 checksum of the data, u64 checksum of the bytes before
//   2 MiB     the data
//
// Little-endian. The data is the memory image, the same for every instruction set. The version changes with
// every layout change in cpu/kernels/kernels.h. Checksums are sums of 64-bit words by chunks of 4 MiB, which
// detect any single damaged word.
//
// Weights from such a file are mapped, not read. So a start takes no fresh memory, and several processes
// share one copy (decision 0013).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "include/engine.h"

namespace bunting {

inline constexpr size_t kPackedKeyBytes = 32;

// Both call `progress`, which may be null, after pieces of a few MiB and at the end, on the calling thread.

// Writes a file beside `path` and renames it. `data` returns bytes [at, +bytes) of the data, which stay
// unchanged until its next call; it is called by rising `at`. What it throws leaves no file. Throws
// BUNTING_IO, also if another process is writing it; then there is no new file. The next process overwrites
// the remains of a killed one.
using PackedData = std::function<char const*(size_t at, size_t bytes)>;
void save_packed(char const* path, uint8_t const* key, size_t bytes, PackedData const& data,
                 bunting_progress progress);

// Maps all data at the beginning of `region`, or reads it if a file cannot be mapped, and checks it on the
// pool's threads. Throws BUNTING_IO if the file is absent or unreadable. Throws BUNTING_INVALID if its
// identification differs or it is damaged. The region is then writable, with unspecified contents. `lets_go`:
// what was checked leaves this process's memory.
void restore_packed(char const* path, uint8_t const* key, MemoryRegion& region, size_t bytes,
                    ThreadPool& pool, bunting_progress progress, bool lets_go = false);

}  // namespace bunting
