#include "model/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "boundary/error.h"
#include "host/right_of_way.h"

namespace bunting {
namespace {

constexpr char kMagic[8] = {'B', 'U', 'N', 'T', 'P', 'A', 'C', 'K'};
constexpr uint32_t kVersion = 4;
constexpr size_t kDataAt = kHugePage, kChunk = size_t(4) << 20;

struct Header {
  char magic[8];
  uint32_t version, reserved;
  uint8_t key[kPackedKeyBytes];
  uint64_t bytes, data_checksum, checksum;  // checksum: of all bytes before it
};
static_assert(sizeof(Header) == 72 && sizeof(Header) <= kDataAt);

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

// Returns a mix of four sums of every fourth word. Each step is a bijection of the sum, so any changed word
// changes it.
uint64_t checksum(char const* data, size_t bytes) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  uint64_t sums[4] = {1, 2, 3, bytes};
  auto const add = [](uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * kOdd;
    return sum ^ sum >> 32;
  };
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    uint64_t words[4];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < 4; i++) sums[i] = add(sums[i], words[i]);
  }
  uint64_t rest[4] = {};
  std::memcpy(rest, data + at, bytes - at);
  for (uint64_t word : rest) sums[0] = add(sums[0], word);
  return add(add(add(sums[0], sums[1]), sums[2]), sums[3]);
}

uint64_t checksum(std::vector<uint64_t> const& chunks) {
  return checksum(reinterpret_cast<char const*>(chunks.data()), chunks.size() * sizeof(uint64_t));
}

uint64_t header_checksum(Header const& header) {
  return checksum(reinterpret_cast<char const*>(&header), offsetof(Header, checksum));
}

bool write_all(int file, char const* data, size_t bytes) {
  while (bytes > 0) {
    ssize_t const written = write(file, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    bytes -= size_t(written);
  }
  return true;
}

// Returns false on failure and at the end of the file.
bool read_all(int file, char* data, size_t bytes, size_t at) {
  while (bytes > 0) {
    ssize_t const read = pread(file, data, bytes, off_t(at));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    data += read;
    at += size_t(read);
    bytes -= size_t(read);
  }
  return true;
}

// Loads mapped pages at once. Returns false if they cannot be read; touching them would then kill the
// process.
bool bring_in(char* data, size_t bytes) {
  madvise(data, bytes, MADV_WILLNEED);
#ifdef MADV_POPULATE_READ
  if (madvise(data, bytes, MADV_POPULATE_READ) != 0) return errno == EINVAL;  // kernels before 5.14
#endif
  return true;
}

// Returns true if the open file still has this name.
bool is_named(int file, std::string const& name) {
  struct stat own, named;
  return fstat(file, &own) == 0 && stat(name.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

std::vector<uint64_t> chunk_sums(size_t bytes) {
  return std::vector<uint64_t>((bytes + kChunk - 1) / kChunk);
}

}  // namespace

void save_packed(char const* path, uint8_t const* key, size_t bytes, PackedData const& data,
                 bunting_progress progress) {
  std::string const temporary = std::string(path) + ".part";
  auto const give_up = [&](char const* what) {
    int const error = errno;
    unlink(temporary.c_str());
    fail(BUNTING_IO, "%s: cannot be %s: %s", path, what, std::strerror(error));
  };
  // All processes write to one name, each while it holds the lock. A file left by a killed process is
  // overwritten.
  Descriptor const file{open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)};
  if (file.number < 0) fail(BUNTING_IO, "%s: cannot be created: %s", path, std::strerror(errno));
  bool const is_locked = flock(file.number, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  if (!is_locked || !is_named(file.number, temporary))
    fail(BUNTING_IO, "%s: another process writes it", path);
  if (ftruncate(file.number, 0) != 0) give_up("written");
  // Allocates space first, so that a full disk shows before anything is written. If the file system cannot
  // tell, writing will.
#if defined(__linux__)
  if (int const error = posix_fallocate(file.number, 0, off_t(kDataAt + bytes)); error == ENOSPC) {
    errno = error;
    give_up("written");
  }
#endif
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  std::memcpy(header.key, key, kPackedKeyBytes);
  header.bytes = bytes;
  std::vector<uint64_t> sums = chunk_sums(bytes);
  if (lseek(file.number, kDataAt, SEEK_SET) < 0) give_up("written");
  auto const read = [&](size_t at, size_t count) {
    try {
      return data(at, count);
    } catch (...) {
      unlink(temporary.c_str());
      throw;
    }
  };
  for (size_t i = 0; i < sums.size(); i++) {
    YieldingWork const yielding;
    size_t const count = std::min(kChunk, bytes - i * kChunk);
    char const* const chunk = read(i * kChunk, count);
    sums[i] = checksum(chunk, count);
    if (!write_all(file.number, chunk, count)) give_up("written");
    if (progress) progress(i * kChunk + count, bytes);
  }
  header.data_checksum = checksum(sums);
  header.checksum = header_checksum(header);
  if (lseek(file.number, 0, SEEK_SET) < 0 ||
      !write_all(file.number, reinterpret_cast<char const*>(&header), sizeof header))
    give_up("written");
  if (rename(temporary.c_str(), path) != 0) give_up("named");
}

void restore_packed(char const* path, uint8_t const* key, MemoryRegion& region, size_t bytes,
                    ThreadPool& pool, bunting_progress progress, bool lets_go) {
  Descriptor const file{open(path, O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) fail(BUNTING_IO, "%s: cannot be opened: %s", path, std::strerror(errno));
  struct stat status;
  if (fstat(file.number, &status) != 0) fail(BUNTING_IO, "%s: %s", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(BUNTING_IO, "%s: not a regular file", path);

  Header header;
  if (!read_all(file.number, reinterpret_cast<char*>(&header), sizeof header, 0) ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    fail(BUNTING_INVALID, "%s: not a file of packed weights", path);
  if (header.version != kVersion)
    fail(BUNTING_INVALID, "%s: version %u, wanted %u", path, header.version, kVersion);
  if (header.checksum != header_checksum(header)) fail(BUNTING_INVALID, "%s: its head is damaged", path);
  if (std::memcmp(header.key, key, kPackedKeyBytes) != 0)
    fail(BUNTING_INVALID, "%s: made from other files or for other settings", path);
  if (header.bytes != bytes || uint64_t(status.st_size) != kDataAt + bytes)
    fail(BUNTING_INVALID, "%s: %llu bytes of weights in a file of %llu, wanted %llu", path,
         (unsigned long long)header.bytes, (unsigned long long)status.st_size, (unsigned long long)bytes);

  char* const data = region.data();
  size_t const page = size_t(sysconf(_SC_PAGESIZE)), whole_pages = bytes / page * page;
  size_t const mapped = region.map_file(file.number, kDataAt, whole_pages) ? whole_pages : 0;
  std::vector<uint64_t> sums = chunk_sums(bytes);
  std::atomic<bool> is_readable = true;
  std::atomic<size_t> done = 0;
  pool.run(int64_t(sums.size()), 1, [&](int64_t begin, int64_t end, int thread) {
    for (size_t i = size_t(begin); i < size_t(end); i++) {
      size_t const at = i * kChunk, count = std::min(kChunk, bytes - at);
      size_t const of_mapped = std::min(at + count, std::max(at, mapped)) - at;
      if ((of_mapped > 0 && !bring_in(data + at, of_mapped)) ||
          !read_all(file.number, data + at + of_mapped, count - of_mapped, kDataAt + at + of_mapped))
        is_readable = false;
      else
        sums[i] = checksum(data + at, count);
      if (lets_go) region.let_go(at, count);
      size_t const done_by_all = done.fetch_add(count) + count;
      if (progress && thread == 0 && done_by_all < bytes) progress(done_by_all, bytes);
    }
  });
  if (is_readable && checksum(sums) == header.data_checksum) {
    if (progress) progress(bytes, bytes);
    return;
  }
  region.unmap_file(mapped);
  if (!is_readable) fail(BUNTING_IO, "%s: cannot be read to its end", path);
  fail(BUNTING_INVALID, "%s: its weights are damaged", path);
}

}  // namespace bunting
