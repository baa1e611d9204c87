#include "host/cpu_features.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "include/engine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace bunting {
namespace {

#if defined(__x86_64__)

struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros if the leaf does not exist
  return r;
}

bool bit(uint32_t word, int index) {
  return word >> index & 1;
}

// Returns the register states that the operating system saves (XCR0); 0 if none.
uint64_t saved_states() {
  if (!bit(cpuid(1).ecx, 27)) return 0;  // OSXSAVE
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

bool ask_for_tiles() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

bool probe_avx512_vnni() {
  return bit(cpuid(7).ecx, 11);
}

int32_t probe_isa() {
  uint64_t const states = saved_states();
  bool const ymm_saved = (states & 0x06) == 0x06;          // SSE, AVX
  bool const zmm_saved = (states & 0xe6) == 0xe6;          // also opmask, upper halves, upper registers
  bool const tiles_saved = (states & 0x60000) == 0x60000;  // tile configuration and data
  Cpuid const basic = cpuid(1), extended = cpuid(7), more = cpuid(7, 1);

  bool const avx2 =
      ymm_saved && bit(extended.ebx, 5) && bit(basic.ecx, 12) && bit(basic.ecx, 29);  // AVX2, FMA, F16C
  if (!avx2) return BUNTING_ISA_PORTABLE;
  bool const avx512 = zmm_saved && bit(extended.ebx, 16) && bit(extended.ebx, 17) && bit(extended.ebx, 30) &&
                      bit(extended.ebx, 31);  // F, DQ, BW, VL
  if (!avx512) return BUNTING_ISA_AVX2;
  if (!bit(more.eax, 5) || !probe_avx512_vnni()) return BUNTING_ISA_AVX512;  // AVX512_BF16
  bool const amx = tiles_saved && bit(extended.edx, 22) && bit(extended.edx, 24) &&
                   bit(extended.edx, 25);  // AMX-BF16, AMX-TILE, AMX-INT8
  return amx && ask_for_tiles() ? BUNTING_ISA_AMX_BF16 : BUNTING_ISA_AVX512_BF16;
}

bool probe_avx_vnni() {
  return bit(cpuid(7, 1).eax, 4);
}

#else

int32_t probe_isa() {
  return BUNTING_ISA_PORTABLE;
}

bool probe_avx_vnni() {
  return false;
}

bool probe_avx512_vnni() {
  return false;
}

#endif

#if defined(__linux__)

bool read_line(std::string const& path, std::string& line) {
  std::ifstream file(path);
  return bool(std::getline(file, line));
}

// Returns the number in a one-line file; `fallback` if there is none ("max", no such file).
double read_number(std::string const& path, double fallback) {
  std::string line;
  if (!read_line(path, line)) return fallback;
  try {
    return std::stod(line);
  } catch (std::exception const&) {
    return fallback;
  }
}

// Returns true if a comma-separated list has the word; the empty list has only the empty word.
bool has_word(std::string_view list, std::string_view word) {
  for (size_t begin = 0; begin <= list.size();) {
    size_t const comma = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, comma - begin) == word) return true;
    begin = comma + 1;
  }
  return false;
}

// Returns this process's folder in a control group hierarchy: version 2 if `controller` is "", else version
// 1.
std::string group_path(std::string const& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // 4:memory:/a/b   or   0::/a/b
    size_t const first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string_view const controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (has_word(controllers, controller)) return line.substr(second + 1);
  }
  return "";
}

// Calls visit(folder) for this process's control group and every group around it. In a container the path may
// name a folder that is not visible there. Then the root of the mount, visited last, has the limits.
template <class Visit>
void for_each_group(std::string const& controller, Visit visit) {
  std::string const root = controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
  std::string path = group_path(controller);
  while (path.size() > 1) {
    visit(root + path);
    path.resize(path.rfind('/'));
  }
  visit(root);
}

double meminfo_bytes(char const* field) {
  std::ifstream file("/proc/meminfo");
  size_t const length = std::strlen(field);
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, length, field) == 0 && line[length] == ':')
      return std::stod(line.substr(length + 1)) * 1024;
  return 0;
}

// Returns the size of the file cache, which counts as used in a group but is reclaimed when memory is needed.
double reclaimable_bytes(std::string const& stat_path) {
  std::ifstream file(stat_path);
  double bytes = 0;
  for (std::string line; std::getline(file, line);)
    for (char const* field : {"inactive_file ", "total_inactive_file "})
      if (line.rfind(field, 0) == 0) bytes = std::max(bytes, std::stod(line.substr(std::strlen(field))));
  return bytes;
}

#endif

}  // namespace

#if defined(__linux__)

int32_t usable_cores() {
  double cores = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) cores = CPU_COUNT(&set);
  for_each_group("", [&](std::string const& group) {
    std::string line;  // "max 100000" or "150000 100000": microseconds of processor time per period
    long long quota = 0, period = 0;
    if (read_line(group + "/cpu.max", line) && std::sscanf(line.c_str(), "%lld %lld", &quota, &period) == 2 &&
        quota > 0 && period > 0)
      cores = std::min(cores, double(quota) / double(period));
  });
  for_each_group("cpu", [&](std::string const& group) {
    double const quota = read_number(group + "/cpu.cfs_quota_us", -1);
    double const period = read_number(group + "/cpu.cfs_period_us", 0);
    if (quota > 0 && period > 0) cores = std::min(cores, quota / period);
  });
  return std::max(1, int32_t(std::ceil(cores)));
}

Memory usable_memory() {
  double total = meminfo_bytes("MemTotal"), free = meminfo_bytes("MemAvailable");
  auto limit = [&](std::string const& group, char const* limit_file, char const* usage_file) {
    double const bytes = read_number(group + limit_file, -1);
    if (bytes < 0) return;
    double const used = read_number(group + usage_file, 0) - reclaimable_bytes(group + "/memory.stat");
    total = std::min(total, bytes);
    free = std::min(free, bytes - used);
  };
  for_each_group("", [&](std::string const& group) { limit(group, "/memory.max", "/memory.current"); });
  for_each_group("memory", [&](std::string const& group) {
    limit(group, "/memory.limit_in_bytes", "/memory.usage_in_bytes");  // "no limit" is a number near 2^63
  });
  return {.total_bytes = uint64_t(total), .free_bytes = uint64_t(std::max(0.0, free))};
}

#else  // macOS, which has neither affinity masks nor control groups

int32_t usable_cores() {
  return int32_t(std::max(1u, std::thread::hardware_concurrency()));
}

Memory usable_memory() {
  uint64_t total = 0;
  size_t size = sizeof total;
  sysctlbyname("hw.memsize", &total, &size, nullptr, 0);
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  auto* const info = reinterpret_cast<host_info64_t>(&pages);
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, info, &count) != KERN_SUCCESS) return {total, 0};
  uint64_t const usable = uint64_t(pages.free_count) + pages.inactive_count + pages.purgeable_count;
  return {.total_bytes = total, .free_bytes = usable * vm_page_size};
}

#endif

void processor_name(char* out, int32_t size) {
  std::string name;
#if defined(__x86_64__)
  if (cpuid(0x80000000).eax >= 0x80000004) {
    for (uint32_t leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
      Cpuid const r = cpuid(leaf);
      name.append(reinterpret_cast<char const*>(&r), sizeof r);
    }
    name.resize(std::strlen(name.c_str()));
    while (!name.empty() && name.back() == ' ') name.pop_back();
    name.erase(0, name.find_first_not_of(' '));
  }
#elif defined(__APPLE__)
  char brand[128] = "";
  size_t length = sizeof brand - 1;
  if (sysctlbyname("machdep.cpu.brand_string", brand, &length, nullptr, 0) == 0) name = brand;
#endif
  if (name.empty()) name = "unknown processor";
  std::snprintf(out, size_t(size), "%s", name.c_str());
}

int32_t best_isa() {
  static int32_t const isa = probe_isa();
  return isa;
}

bool has_avx_vnni() {
  static bool const has = best_isa() >= BUNTING_ISA_AVX2 && probe_avx_vnni();
  return has;
}

bool has_dotprod() {
#if defined(__aarch64__) && defined(__APPLE__)
  return true;
#elif defined(__aarch64__)
  static bool const has = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return has;
#else
  return false;
#endif
}

bool has_i8mm() {
#if defined(__aarch64__) && defined(__APPLE__)
  static bool const has = [] {
    int32_t is = 0;
    size_t size = sizeof is;
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &is, &size, nullptr, 0) == 0 && is != 0;
  }();
  return has;
#elif defined(__aarch64__)
  static bool const has = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return has;
#else
  return false;
#endif
}

bool has_avx512_vnni() {
  static bool const has = best_isa() >= BUNTING_ISA_AVX512 && probe_avx512_vnni();
  return has;
}

bool is_amd() {
#if defined(__x86_64__)
  static bool const is = [] {
    Cpuid const vendor = cpuid(0);  // "AuthenticAMD" in ebx, edx, ecx
    return vendor.ebx == 0x68747541 && vendor.edx == 0x69746e65 && vendor.ecx == 0x444d4163;
  }();
  return is;
#else
  return false;
#endif
}

}  // namespace bunting
