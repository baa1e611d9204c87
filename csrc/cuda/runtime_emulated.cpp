// runtime_emulated.cpp - driver.h on the CPU: memory is mapped, streams execute their work at once, with
// random delays, and kernels run in the emulator.
#include "cuda/runtime_emulated.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "boundary/error.h"
#include "cuda/device_use.h"
#include "cuda/driver.h"
#include "emulator/device_memory.h"
#include "emulator/grid.h"

namespace bunting::cuda {
namespace {

constexpr int32_t kMultiprocessors = 4;
// Every kernel has as many blocks there as the largest one, so that tests cut attention alike.
constexpr int32_t kResidentBlocks = 2;
constexpr uint64_t kMemoryBytes = uint64_t(1) << 30;
constexpr double kStepDeadlineMs = 60'000, kCallDeadlineMs = 20'000;
constexpr int kDelayOneIn = 8;
constexpr int kDelayUsMax = 200;

// Parses a list like "17,4".
std::vector<int32_t> words_of(std::string const& text) {
  std::vector<int32_t> words;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) words.push_back(std::atoi(part.c_str()));
  return words;
}

// Reads mishaps from the environment: BUNTING_EMULATOR_MISHAPS="lose_device=500 step_deadline_ms=2000".
Mishaps mishaps_asked_for() {
  Mishaps mishaps;
  char const* const text = std::getenv("BUNTING_EMULATOR_MISHAPS");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    size_t const equals = word.find('=');
    std::string const name = word.substr(0, equals);
    long long const value = equals == word.npos ? -1 : std::atoll(word.c_str() + equals + 1);
    if (name == "fail_allocation")
      mishaps.fail_allocation = value;
    else if (name == "resets_before")
      mishaps.resets_before = value;
    else if (name == "lose_device")
      mishaps.lose_device = value;
    else if (name == "hang")
      mishaps.hang = value;
    else if (name == "lose_on_words")
      mishaps.lose_on_words = words_of(word.substr(equals + 1));
    else if (name == "hang_in")
      mishaps.hang_in = word.substr(equals + 1);
    else if (name == "fail_in")
      mishaps.fail_in = word.substr(equals + 1);
    else if (name == "no_memory_in")
      mishaps.no_memory_in = word.substr(equals + 1);
    else if (name == "break_kernel")
      mishaps.break_kernel = word.substr(equals + 1);
    else if (name == "calls_before")
      mishaps.calls_before = value;
    else if (name == "devices")
      mishaps.devices = int32_t(value);
    else if (name == "memory_bytes")
      mishaps.memory_bytes = uint64_t(value);
    else if (name == "copy_ms")
      mishaps.copy_ms = int32_t(value);
    else if (name == "step_deadline_ms")
      mishaps.step_deadline_ms = double(value);
    else if (name == "call_deadline_ms")
      mishaps.call_deadline_ms = double(value);
    else if (name == "seed")
      mishaps.seed = uint64_t(value);
    else
      fail(BUNTING_INVALID, "BUNTING_EMULATOR_MISHAPS: there is no mishap \"%s\"", word.c_str());
  }
  return mishaps;
}

// Work of a stream, recorded to be repeated.
using Recording = std::vector<std::function<driver::Outcome()>>;

struct EmulatedStream {
  int32_t device;
  std::unique_ptr<Recording> recording = nullptr;
};

struct Allocation {
  size_t bytes;
  bool is_device;  // counts as the device's memory; else it is the host's
  std::unique_ptr<emulator::GlobalRange> range;
};

struct Device {
  std::string lost;  // reason, once the device is lost
  uint64_t allocated_bytes = 0;
  std::map<char*, Allocation> allocations;
  std::vector<std::unique_ptr<EmulatedStream>> streams;
  std::vector<std::unique_ptr<Recording>> graphs;
  int64_t running = 0;      // stream operations and kernels
  uint64_t generation = 0;  // calls that hang since an older one end
};

// Devices of the process.
struct Machine {
  std::mutex mutex;
  std::condition_variable changed;
  Mishaps mishaps = mishaps_asked_for();
  uint64_t random = mishaps.seed;
  std::deque<Device> devices;
  uint64_t generation = 0;  // of the mishaps
  int64_t hanging = 0;      // calls that hang

  Machine() { add_devices(); }
  void add_devices() {
    while (devices.size() < size_t(std::clamp(mishaps.devices, 1, kDevicesMax))) devices.emplace_back();
  }
  uint64_t memory_bytes() const { return mishaps.memory_bytes > 0 ? mishaps.memory_bytes : kMemoryBytes; }
};

Machine& machine() {
  static Machine& the_machine = *new Machine;  // threads outlive main()
  return the_machine;
}

thread_local int32_t selected = 0;

uint64_t next_random() {
  std::lock_guard lock(machine().mutex);
  uint64_t z = machine().random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  return z ^ (z >> 31);
}

bool is_due(int64_t& countdown) {
  return countdown >= 0 && countdown-- == 0;
}

// Loses the device for a reason, as every later call then reports. The caller holds the mutex.
driver::Outcome lose(Device& device, std::string const& why) {
  if (device.lost.empty()) device.lost = why;
  return {driver::Outcome::Kind::failed, device.lost};
}

// Hangs until the device is reset or the mishaps change; `is_reset`: until the mishaps change.
void hang(std::unique_lock<std::mutex>& lock, Device const& device, bool is_reset) {
  uint64_t const mishaps = machine().generation, life = device.generation;
  ++machine().hanging;
  machine().changed.notify_all();
  machine().changed.wait(
      lock, [&] { return machine().generation != mishaps || (!is_reset && device.generation != life); });
  --machine().hanging;
}

// Begins a driver call: it hangs or fails if a mishap says so, and fails if the device is lost.
driver::Outcome enter(std::unique_lock<std::mutex>& lock, int32_t index, char const* name) {
  Device& device = machine().devices[size_t(index)];
  bool const is_reset = std::strcmp(name, "reset") == 0;
  Mishaps& mishaps = machine().mishaps;
  if (index == 0 && mishaps.resets_before <= 0 &&
      (mishaps.hang_in == name || mishaps.fail_in == name || mishaps.no_memory_in == name) &&
      is_due(mishaps.calls_before)) {
    if (mishaps.no_memory_in == name) return {driver::Outcome::Kind::no_memory, "out of memory"};
    if (mishaps.fail_in == name) return {driver::Outcome::Kind::failed, std::string(name) + " failed"};
    hang(lock, device, is_reset);
    return {driver::Outcome::Kind::failed, "the device was reset"};
  }
  if (device.lost.empty() || is_reset) return {};
  return {driver::Outcome::Kind::failed, device.lost};
}

// Returns true if a mishap breaks this launch of a kernel.
bool is_broken(int32_t index, char const* kernel) {
  std::lock_guard lock(machine().mutex);
  Mishaps& mishaps = machine().mishaps;
  return index == 0 && mishaps.break_kernel == kernel && is_due(mishaps.calls_before);
}

int32_t copy_ms() {
  std::lock_guard lock(machine().mutex);
  return machine().mishaps.copy_ms;
}

bool has_words_to_lose_on(void const* bytes, size_t count) {
  std::lock_guard lock(machine().mutex);
  std::vector<int32_t> const& words = machine().mishaps.lose_on_words;
  if (words.empty()) return false;
  std::vector<int32_t> copied(count / sizeof(int32_t));
  std::memcpy(copied.data(), bytes, copied.size() * sizeof(int32_t));
  return std::search(copied.begin(), copied.end(), words.begin(), words.end()) != copied.end();
}

size_t mapped_bytes(size_t bytes) {
  return (bytes + 4095) / 4096 * 4096 + 4096;
}

// Maps memory before an unmapped guard page, so that an access past its end outside checked kernels is a
// segmentation fault.
driver::Outcome map_memory(char const* call, size_t bytes, bool is_device, void*& data) {
  std::unique_lock lock(machine().mutex);
  if (driver::Outcome const outcome = enter(lock, selected, call); !outcome) return outcome;
  Device& device = machine().devices[size_t(selected)];
  driver::Outcome const no_memory{driver::Outcome::Kind::no_memory, "out of memory"};
  Mishaps& mishaps = machine().mishaps;
  if ((selected == 0 && mishaps.resets_before <= 0 && is_due(mishaps.fail_allocation)) ||
      (is_device && device.allocated_bytes + bytes > machine().memory_bytes()))
    return no_memory;
  void* const memory = mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return no_memory;
  char* const start = static_cast<char*>(memory);
  mprotect(start + mapped_bytes(bytes) - 4096, 4096, PROT_NONE);
  if (is_device) device.allocated_bytes += bytes;
  device.allocations[start] = {bytes, is_device, std::make_unique<emulator::GlobalRange>(start, bytes)};
  data = start;
  return {};
}

// Unmaps memory. The caller holds the mutex.
void unmap(Device& device, char* data) {
  auto const at = device.allocations.find(data);
  if (at == device.allocations.end()) return;
  size_t const bytes = at->second.bytes;
  if (at->second.is_device) device.allocated_bytes -= bytes;
  device.allocations.erase(at);
  munmap(data, mapped_bytes(bytes));
}

driver::Outcome release_memory(char const* call, void* data) {
  std::unique_lock lock(machine().mutex);
  driver::Outcome const outcome = enter(lock, selected, call);
  if (outcome) unmap(machine().devices[size_t(selected)], static_cast<char*>(data));
  return outcome;
}

template <class Object>
void drop(std::vector<std::unique_ptr<Object>>& objects, void const* object) {
  std::erase_if(objects, [&](auto const& owned) { return owned.get() == object; });
}

// Executes an operation, maybe delayed; a mishap may drop it or let it hang.
driver::Outcome execute(int32_t index, std::function<driver::Outcome()> const& operation) {
  uint64_t const random = next_random();
  if (random % kDelayOneIn == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(random / kDelayOneIn % kDelayUsMax));
  Device& device = machine().devices[size_t(index)];
  std::unique_lock lock(machine().mutex);
  if (!device.lost.empty()) return {driver::Outcome::Kind::failed, device.lost};
  if (index == 0 && is_due(machine().mishaps.lose_device)) return lose(device, "a mishap that was asked for");
  if (index == 0 && is_due(machine().mishaps.hang)) {
    hang(lock, device, false);
    return {driver::Outcome::Kind::failed, "the device was reset"};
  }
  ++device.running;
  lock.unlock();
  driver::Outcome const outcome = operation();
  lock.lock();
  --device.running;
  machine().changed.notify_all();
  return outcome ? outcome : lose(device, outcome.text);
}

// Records or executes an operation of a stream.
driver::Outcome take(void* stream, std::function<driver::Outcome()> operation) {
  EmulatedStream& of = *static_cast<EmulatedStream*>(stream);
  if (!of.recording) return execute(of.device, operation);
  of.recording->push_back(std::move(operation));
  return {};
}

}  // namespace

void set_mishaps(Mishaps const& mishaps) {
  std::lock_guard lock(machine().mutex);
  machine().mishaps = mishaps;
  machine().random = mishaps.seed;
  machine().add_devices();
  for (size_t i = 0; i < machine().devices.size(); ++i) {
    machine().devices[i].lost.clear();
    forget_loss(int32_t(i));
  }
  ++machine().generation;
  machine().changed.notify_all();
}

bool wait_for_hang(double deadline_ms) {
  std::unique_lock lock(machine().mutex);
  return machine().changed.wait_for(lock, std::chrono::duration<double, std::milli>(deadline_ms),
                                    [] { return machine().hanging > 0; });
}

namespace driver {

Deadlines deadlines() {
  std::lock_guard lock(machine().mutex);
  Mishaps const& mishaps = machine().mishaps;
  double const call_ms = mishaps.call_deadline_ms > 0 ? mishaps.call_deadline_ms : kCallDeadlineMs;
  return {call_ms, call_ms, mishaps.step_deadline_ms > 0 ? mishaps.step_deadline_ms : kStepDeadlineMs};
}

int32_t count(std::string&) {
  std::lock_guard lock(machine().mutex);
  return machine().mishaps.devices;
}

Outcome select(int32_t device) {
  selected = device;
  return {};
}

Outcome describe(int32_t index, DeviceInfo& info) {
  std::unique_lock lock(machine().mutex);
  if (Outcome const outcome = enter(lock, index, "describe"); !outcome) return outcome;
  uint64_t const total = machine().memory_bytes();
  info = {"emulated GPU",
          80,
          kMultiprocessors,
          99 * 1024,
          total,
          total - machine().devices[size_t(index)].allocated_bytes,
          "no driver: kernels run on the CPU, slowly"};
  return {};
}

Outcome reset(int32_t index) {
  std::unique_lock lock(machine().mutex);
  if (Outcome const outcome = enter(lock, index, "reset"); !outcome) return outcome;
  Device& device = machine().devices[size_t(index)];
  ++device.generation;
  machine().changed.notify_all();
  machine().changed.wait(lock, [&] { return device.running == 0; });
  while (!device.allocations.empty()) unmap(device, device.allocations.begin()->first);
  device.streams.clear();
  device.graphs.clear();
  device.lost.clear();
  if (index == 0) --machine().mishaps.resets_before;
  return {};
}

Outcome allocate(size_t bytes, void*& data) {
  return map_memory("allocate", bytes, true, data);
}

Outcome release(void* data, size_t) {
  return release_memory("release", data);
}

Outcome allocate_mapped(size_t bytes, void*& data) {
  return map_memory("allocate_mapped", bytes, false, data);
}

Outcome release_mapped(void* data, size_t) {
  return release_memory("release_mapped", data);
}

Outcome resident_blocks(void const*, LaunchShape, int32_t& blocks) {
  blocks = kResidentBlocks;
  return {};
}

Outcome open_stream(void*& stream) {
  std::unique_lock lock(machine().mutex);
  if (Outcome const outcome = enter(lock, selected, "open_stream"); !outcome) return outcome;
  auto& streams = machine().devices[size_t(selected)].streams;
  streams.push_back(std::make_unique<EmulatedStream>(selected));
  stream = streams.back().get();
  return {};
}

Outcome close_stream(void* stream) {
  std::unique_lock lock(machine().mutex);
  Outcome const outcome = enter(lock, selected, "close_stream");
  if (outcome) drop(machine().devices[size_t(selected)].streams, stream);
  return outcome;
}

Outcome copy(void* stream, void* to, void const* from, size_t bytes) {
  return take(stream, [=]() -> Outcome {
    std::this_thread::sleep_for(std::chrono::milliseconds(copy_ms()));
    std::memcpy(to, from, bytes);
    if (!has_words_to_lose_on(from, bytes)) return {};
    return {Outcome::Kind::failed, "a mishap that was asked for, for certain words"};
  });
}

Outcome fill(void* stream, void* to, int value, size_t bytes) {
  return take(stream, [=]() -> Outcome {
    std::memset(to, value, bytes);
    return {};
  });
}

Outcome launch(void* stream, Launch const& launch) {
  struct Call {
    void (*call)(void const*, void const*);
    void (*kernel)();
    std::vector<char> argument;
    bool is_broken = false;
  };
  auto const what = std::make_shared<Call>();
  what->call = launch.call;
  std::memcpy(&what->kernel, launch.kernel, sizeof what->kernel);
  char const* const argument = static_cast<char const*>(launch.argument);
  what->argument.assign(argument, argument + launch.argument_bytes);
  int32_t const device = static_cast<EmulatedStream*>(stream)->device;
  return take(stream, [what, device, name = launch.name, shape = launch.shape]() -> Outcome {
    what->is_broken = is_broken(device, name);
    auto const body = [](void* bytes) {
      Call const& c = *static_cast<Call*>(bytes);
      if (c.is_broken) emulator::check_store(nullptr, 4, 4, "store");
      c.call(&c.kernel, c.argument.data());
    };
    emulator::Grid const grid{name, shape.blocks, shape.threads, shape.shared_bytes};
    std::string const fault = emulator::run_grid(grid, body, what.get(), next_random());
    if (fault.empty()) return {};
    return {Outcome::Kind::failed, fault};
  });
}

Outcome call(void* stream, std::function<std::string(void* native)> const& work) {
  return take(stream, [work]() -> Outcome {
    std::string const failure = work(nullptr);
    if (failure.empty()) return {};
    return {Outcome::Kind::failed, failure};
  });
}

Outcome begin_recording(void* stream) {
  EmulatedStream& of = *static_cast<EmulatedStream*>(stream);
  std::unique_lock lock(machine().mutex);
  if (Outcome const outcome = enter(lock, of.device, "begin_recording"); !outcome) return outcome;
  of.recording = std::make_unique<Recording>();
  return {};
}

Outcome end_recording(void* stream, void*& graph) {
  EmulatedStream& of = *static_cast<EmulatedStream*>(stream);
  std::unique_lock lock(machine().mutex);
  std::unique_ptr<Recording> recording = std::move(of.recording);
  if (!recording) return {Outcome::Kind::failed, "nothing is recorded"};
  if (Outcome const outcome = enter(lock, of.device, "end_recording"); !outcome) return outcome;
  auto& graphs = machine().devices[size_t(of.device)].graphs;
  graphs.push_back(std::move(recording));
  graph = graphs.back().get();
  return {};
}

Outcome launch_graph(void* stream, void* graph) {
  int32_t const device = static_cast<EmulatedStream*>(stream)->device;
  for (auto const& operation : *static_cast<Recording*>(graph))
    if (Outcome const outcome = execute(device, operation); !outcome) return outcome;
  return {};
}

Outcome close_graph(void* graph) {
  std::unique_lock lock(machine().mutex);
  Outcome const outcome = enter(lock, selected, "close_graph");
  if (outcome) drop(machine().devices[size_t(selected)].graphs, graph);
  return outcome;
}

Outcome finish(void* stream) {
  std::unique_lock lock(machine().mutex);
  return enter(lock, static_cast<EmulatedStream*>(stream)->device, "finish");
}

}  // namespace driver
}  // namespace bunting::cuda
