// runtime_emulated.cpp - runtime.h on the CPU. Each stream is a worker thread that executes its operations in
// order, with random delays. Kernels run in the emulator.
#include "cuda/runtime_emulated.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "boundary/error.h"
#include "cuda/runtime.h"
#include "emulator/device_memory.h"
#include "emulator/grid.h"

namespace bunting::cuda {
namespace {

constexpr int32_t kMultiprocessors = 4;
constexpr uint64_t kMemoryBytes = uint64_t(1) << 30;
constexpr double kStepDeadlineMs = 60'000;
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
    else if (name == "lose_device")
      mishaps.lose_device = value;
    else if (name == "hang")
      mishaps.hang = value;
    else if (name == "lose_on_words")
      mishaps.lose_on_words = words_of(word.substr(equals + 1));
    else if (name == "memory_bytes")
      mishaps.memory_bytes = uint64_t(value);
    else if (name == "step_deadline_ms")
      mishaps.step_deadline_ms = double(value);
    else if (name == "seed")
      mishaps.seed = uint64_t(value);
    else
      fail(BUNTING_INVALID, "BUNTING_EMULATOR_MISHAPS: there is no mishap \"%s\"", word.c_str());
  }
  return mishaps;
}

// Emulated device, shared by the streams of the process.
struct Device {
  std::mutex mutex;
  std::condition_variable changed;
  std::string lost;  // reason, once the device is lost
  Mishaps mishaps = mishaps_asked_for();
  uint64_t random = mishaps.seed;
  uint64_t allocated_bytes = 0;
  int64_t streams = 0;
  uint64_t generation = 0;  // hung operations of an older generation end

  uint64_t memory_bytes() const { return mishaps.memory_bytes > 0 ? mishaps.memory_bytes : kMemoryBytes; }

  // Resets a lost device after its last memory or stream is gone. The caller holds the mutex.
  void begin_anew_if_unused() {
    if (allocated_bytes == 0 && streams == 0 && !lost.empty()) lost.clear();
  }
};

Device& device() {
  static Device the_device;
  return the_device;
}

uint64_t next_random() {
  std::lock_guard lock(device().mutex);
  uint64_t z = device().random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  return z ^ (z >> 31);
}

bool is_due(int64_t& countdown) {
  return countdown >= 0 && countdown-- == 0;
}

void lose(std::string const& why) {
  std::lock_guard lock(device().mutex);
  if (device().lost.empty()) device().lost = why;
  ++device().generation;
  device().changed.notify_all();
}

bool has_words_to_lose_on(void const* bytes, size_t count) {
  std::lock_guard lock(device().mutex);
  std::vector<int32_t> const& words = device().mishaps.lose_on_words;
  if (words.empty()) return false;
  std::vector<int32_t> copied(count / sizeof(int32_t));
  std::memcpy(copied.data(), bytes, copied.size() * sizeof(int32_t));
  return std::search(copied.begin(), copied.end(), words.begin(), words.end()) != copied.end();
}

void throw_if_lost() {
  std::lock_guard lock(device().mutex);
  if (!device().lost.empty()) fail(BUNTING_LOST, "the device is lost: %s", device().lost.c_str());
}

// Maps memory between unmapped guard pages, so that an access past its end outside checked kernels is a
// segmentation fault.
char* map_memory(size_t bytes, char const* what) {
  throw_if_lost();
  {
    std::lock_guard lock(device().mutex);
    if (is_due(device().mishaps.fail_allocation) ||
        device().allocated_bytes + bytes > device().memory_bytes())
      fail(BUNTING_NO_MEMORY, "the device has no %zu bytes left for %s", bytes, what);
    device().allocated_bytes += bytes;
  }
  size_t const mapped = (bytes + 4095) / 4096 * 4096 + 4096;
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(BUNTING_NO_MEMORY, "cannot map %zu bytes for %s", bytes, what);
  mprotect(static_cast<char*>(memory) + mapped - 4096, 4096, PROT_NONE);
  return static_cast<char*>(memory);
}

std::mutex ranges_mutex;
std::vector<std::pair<char*, std::unique_ptr<emulator::GlobalRange>>> ranges;

char* allocate(size_t bytes, char const* what) {
  if (bytes == 0) return nullptr;
  char* const data = map_memory(bytes, what);
  std::lock_guard lock(ranges_mutex);
  ranges.emplace_back(data, std::make_unique<emulator::GlobalRange>(data, bytes));
  return data;
}

void release(char* data, size_t bytes) {
  if (!data) return;
  {
    std::lock_guard lock(ranges_mutex);
    std::erase_if(ranges, [&](auto const& range) { return range.first == data; });
  }
  munmap(data, (bytes + 4095) / 4096 * 4096 + 4096);
  std::lock_guard lock(device().mutex);
  device().allocated_bytes -= bytes;
  device().begin_anew_if_unused();
}

}  // namespace

void set_mishaps(Mishaps const& mishaps) {
  std::lock_guard lock(device().mutex);
  device().mishaps = mishaps;
  device().random = mishaps.seed;
  device().lost.clear();
  ++device().generation;
  device().changed.notify_all();
}

int32_t device_count(std::string&) {
  return 1;
}

DeviceInfo device_info(int32_t index) {
  use_device(index);
  std::lock_guard lock(device().mutex);
  return {"emulated GPU",
          80,
          kMultiprocessors,
          99 * 1024,
          device().memory_bytes(),
          device().memory_bytes() - device().allocated_bytes,
          "no driver: kernels run on the CPU, slowly"};
}

void use_device(int32_t index) {
  if (index != 0) fail(BUNTING_INVALID, "there is no GPU %d: one is emulated", index);
}

void lose_device(std::string const& why) {
  lose(why);
  fail(BUNTING_LOST, "the device is lost: %s", why.c_str());
}

double step_deadline_ms() {
  std::lock_guard lock(device().mutex);
  return device().mishaps.step_deadline_ms > 0 ? device().mishaps.step_deadline_ms : kStepDeadlineMs;
}

DeviceMemory::DeviceMemory(size_t bytes, char const* what) : data_(allocate(bytes, what)), bytes_(bytes) {}
DeviceMemory::~DeviceMemory() {
  release(data_, bytes_);
}

MappedMemory::MappedMemory(size_t bytes, char const* what) : data_(allocate(bytes, what)), bytes_(bytes) {}
MappedMemory::~MappedMemory() {
  release(data_, bytes_);
}

struct Graph::Work {
  std::vector<std::function<void()>> operations;
};

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

struct Stream::Queue {
  std::unique_ptr<Graph::Work> recorded;  // while recording
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> operations;
  int64_t queued = 0, done = 0;
  bool closing = false;
  std::thread worker{[this] { work(); }};

  void push(std::function<void()> operation) {
    throw_if_lost();
    if (recorded) return recorded->operations.push_back(std::move(operation));
    std::lock_guard lock(mutex);
    operations.push_back(std::move(operation));
    ++queued;
    changed.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closing || !operations.empty(); });
      if (operations.empty()) return;
      auto const operation = std::move(operations.front());
      operations.pop_front();
      lock.unlock();
      execute(operation);
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }

  // Executes one operation, maybe delayed; a mishap may drop it or let it hang.
  static void execute(std::function<void()> const& operation) {
    uint64_t const random = next_random();
    if (random % kDelayOneIn == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random / kDelayOneIn % kDelayUsMax));
    {
      std::unique_lock lock(device().mutex);
      if (!device().lost.empty()) return;
      if (is_due(device().mishaps.lose_device)) {
        device().lost = "a mishap that was asked for";
        ++device().generation;
        device().changed.notify_all();
        return;
      }
      if (is_due(device().mishaps.hang)) {
        uint64_t const generation = device().generation;
        device().changed.wait(lock, [&] { return device().generation != generation; });
        return;
      }
    }
    operation();
  }
};

Stream::Stream() {
  throw_if_lost();
  queue_.reset(new Queue);
  std::lock_guard lock(device().mutex);
  ++device().streams;
}

Stream::~Stream() {
  {
    std::lock_guard lock(queue_->mutex);
    queue_->closing = true;
    queue_->changed.notify_all();
  }
  queue_->worker.join();
  std::lock_guard lock(device().mutex);
  --device().streams;
  device().begin_anew_if_unused();
}

void Stream::copy(void* to, void const* from, size_t bytes) {
  if (bytes == 0) return;
  queue_->push([=] {
    std::memcpy(to, from, bytes);
    if (has_words_to_lose_on(from, bytes)) lose("a mishap that was asked for, for certain words");
  });
}

void Stream::fill(void* to, int value, size_t bytes) {
  if (bytes == 0) return;
  queue_->push([=] { std::memset(to, value, bytes); });
}

void Stream::launch_any(char const* name, LaunchShape shape, void (*call)(void const*, void const*),
                        void const* kernel, void const* argument, size_t argument_bytes) {
  struct Call {
    void (*call)(void const*, void const*);
    void (*kernel)();
    std::vector<char> argument;
  };
  auto const what = std::make_shared<Call>();
  what->call = call;
  std::memcpy(&what->kernel, kernel, sizeof what->kernel);
  what->argument.assign(static_cast<char const*>(argument),
                        static_cast<char const*>(argument) + argument_bytes);
  queue_->push([=] {
    auto const body = [](void* bytes) {
      Call const& c = *static_cast<Call*>(bytes);
      c.call(&c.kernel, c.argument.data());
    };
    emulator::Grid const grid{name, shape.blocks, shape.threads, shape.shared_bytes};
    std::string const fault = emulator::run_grid(grid, body, what.get(), next_random());
    if (!fault.empty()) lose(fault);
  });
}

void Stream::begin_recording() {
  queue_->recorded = std::make_unique<Graph::Work>();
}

Graph Stream::end_recording() {
  Graph graph;
  graph.work_ = std::move(queue_->recorded);
  return graph;
}

void Stream::launch(Graph const& graph) {
  for (auto const& operation : graph.work_->operations) queue_->push(operation);
}

void Stream::call(std::function<std::string(void* native)> work) {
  queue_->push([work = std::move(work)] {
    std::string const failure = work(nullptr);
    if (!failure.empty()) lose(failure);
  });
}

bool Stream::wait(double deadline_ms) {
  std::unique_lock lock(queue_->mutex);
  int64_t const until = queue_->queued;
  bool const in_time = queue_->changed.wait_for(lock, std::chrono::duration<double, std::milli>(deadline_ms),
                                                [&] { return queue_->done >= until; });
  lock.unlock();
  throw_if_lost();
  return in_time;
}

}  // namespace bunting::cuda
