#include "host/memory_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "boundary/error.h"

namespace bunting {
namespace {

// Asks for huge pages. A hint only: small pages work too.
void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
}

size_t os_page() {
  return size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryRegion MemoryRegion::of_addresses(size_t bytes, char const* what) {
  MemoryRegion region;
  region.bytes_ = bytes;
  region.mapping_bytes_ = bytes + kHugePage;
  region.mapping_ =
      mmap(nullptr, region.mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region.mapping_ == MAP_FAILED) {
    region.mapping_ = nullptr;
    fail(BUNTING_NO_MEMORY, "cannot reserve %.1f MiB of addresses for %s", double(bytes) / (1 << 20), what);
  }
  uintptr_t const address = reinterpret_cast<uintptr_t>(region.mapping_);
  region.data_ = reinterpret_cast<char*>((address + kHugePage - 1) / kHugePage * kHugePage);
  return region;
}

void MemoryRegion::back_by_memory(size_t offset, size_t bytes) const {
  size_t const begin = offset / os_page() * os_page();
  if (bytes > 0 && mprotect(data_ + begin, offset + bytes - begin, PROT_READ | PROT_WRITE) != 0)
    fail(BUNTING_NO_MEMORY, "cannot allocate %.1f MiB", double(bytes) / (1 << 20));
}

void MemoryRegion::let_go(size_t offset, size_t bytes) const {
  size_t const page = os_page(), begin = (offset + page - 1) / page * page,
               end = std::min(offset + bytes, file_bytes_) / page * page;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

MemoryRegion::MemoryRegion(size_t bytes, char const* what) : bytes_(bytes) {
  if (bytes == 0) return;
  // A region smaller than a huge page needs no huge-page alignment.
  size_t const slack = bytes >= kHugePage ? kHugePage : 0;
  mapping_bytes_ = bytes + slack;
  void* const mapping =
      mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    fail(BUNTING_NO_MEMORY, "cannot allocate %.1f MiB for %s", double(bytes) / (1 << 20), what);
  mapping_ = mapping;
  uintptr_t const address = reinterpret_cast<uintptr_t>(mapping);
  uintptr_t const aligned = slack ? (address + kHugePage - 1) / kHugePage * kHugePage : address;
  data_ = static_cast<char*>(mapping) + (aligned - address);
  if (slack) ask_for_huge_pages(data_, bytes);
}

bool MemoryRegion::map_file(int file, int64_t offset, size_t bytes) {
  if (bytes > 0 && mmap(data_, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, off_t(offset)) == MAP_FAILED)
    return false;
  file_bytes_ = bytes;
  return true;
}

void MemoryRegion::unmap_file(size_t bytes) {
  if (bytes == 0) return;
  file_bytes_ = 0;
  int const flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(data_, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
    fail(BUNTING_NO_MEMORY, "cannot allocate %.1f MiB again", double(bytes) / (1 << 20));
  ask_for_huge_pages(data_, bytes);
}

void MemoryRegion::populate(size_t offset, size_t bytes) const {
#ifdef MADV_POPULATE_WRITE
  size_t const begin = offset / kHugePage * kHugePage, end = std::min(offset + bytes, bytes_);
  if (begin < end) madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE);
#else
  (void)offset, (void)bytes;
#endif
}

MemoryRegion::~MemoryRegion() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

}  // namespace bunting
