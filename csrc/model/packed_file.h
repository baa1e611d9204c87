// packed_file.h - packed weights on disk, so that a second start converts and copies nothing.
//
//   bytes     what
//   0         "BUNTPACK", u32 version, u32 0
//   16        key: what was packed, by the caller's account
//   48        u64 bytes of data, u64 checksum of the data, u64 checksum of the bytes before
//   2 MiB     the data
//
// Little-endian. The data is what lies in memory, the same for every instruction set; the version goes up
// with every change of a layout in cpu/kernels/kernels.h. Checksums are sums of 64-bit words by chunks of 4
// MiB: any single damaged word shows.
//
// Weights that come from such a file stay the file's: they are mapped, not read, so that a start takes no
// fresh memory, and several processes share one copy (decision 0013).
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "include/engine.h"

namespace bunting {

inline constexpr size_t kPackedKeyBytes = 32;

// Both tell `progress`, which may be null, after pieces of a few MiB, and at the end; on the calling thread.

// Writes a file beside `path` and renames it. Throws BUNTING_IO, also when another process is about to; then
// there is no new file. What is left of a process that is killed meanwhile is written over by the next.
void save_packed(char const* path, uint8_t const* key, char const* data, size_t bytes,
                 bunting_progress progress);

// Maps all data where `region` begins, or reads it where a file cannot be mapped, and checks it on the pool's
// threads. Throws BUNTING_IO when there is no file or it cannot be read, BUNTING_INVALID when it is not the
// file that was asked for or is damaged; the region can then be written, and what is in it is unspecified.
void restore_packed(char const* path, uint8_t const* key, MemoryRegion& region, size_t bytes,
                    ThreadPool& pool, bunting_progress progress);

}  // namespace bunting
