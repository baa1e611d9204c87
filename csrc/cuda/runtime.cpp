// runtime.cpp - runtime.h on the calls of a driver: which thread makes them, and for how long.
#include "cuda/runtime.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "boundary/error.h"
#include "cuda/device_use.h"
#include "cuda/driver.h"

namespace bunting::cuda {
namespace {

using driver::Outcome;

std::string gpu(int32_t device) {
  return "GPU " + std::to_string(device);
}

// Allocates with `call`, on the current device.
char* allocate(int32_t device, std::string const& no_memory, Outcome (*call)(size_t, void*&), size_t bytes,
               char const* what) {
  auto const data = std::make_shared<void*>(nullptr);
  bounded_or_throw(device, what, driver::deadlines().open_ms, no_memory, [=] { return call(bytes, *data); });
  take_on(device);
  return static_cast<char*>(*data);
}

}  // namespace

int32_t device_count(std::string& why_none) {
  struct Found {
    int32_t count = 0;
    std::string why_none;
  };
  auto const found = std::make_shared<Found>();
  std::optional<Outcome> const answer = in_time(driver::deadlines().open_ms, [found] {
    found->count = driver::count(found->why_none);
    return Outcome();
  });
  if (answer && found->count > 0) return std::min(found->count, kDevicesMax);
  why_none = answer ? found->why_none : "the GPU's driver does not answer";
  return 0;
}

void use_device(int32_t device) {
  std::string why_none;
  int32_t const count = device_count(why_none);
  if (count == 0) fail(BUNTING_INVALID, "%s", why_none.c_str());
  if (device < 0 || device >= count)
    fail(BUNTING_INVALID, "there is no GPU %d: this machine has %d, counted from 0", device, count);
  begin_anew_if_unused(device);
  throw_if_lost(device);
  bounded_or_throw(device, "selecting the device", driver::deadlines().open_ms, "", [] { return Outcome(); });
  set_current_device(device);
}

DeviceInfo device_info(int32_t device) {
  use_device(device);
  auto const info = std::make_shared<DeviceInfo>();
  bounded_or_throw(device, "asking for the device", driver::deadlines().open_ms, "",
                   [=] { return driver::describe(device, *info); });
  return *info;
}

void lose_device(int32_t device, std::string const& why) {
  mark_lost(device, why);
  throw_if_lost(device);
  std::abort();  // unreachable: throw_if_lost throws
}

bool steps_through_kernels() {
  char const* const text = std::getenv("BUNTING_CUDA_SYNC");
  return text && std::strcmp(text, "1") == 0;
}

double step_deadline_ms() {
  return driver::deadlines().step_ms;
}

int32_t resident_blocks_of(void const* kernel, LaunchShape shape) {
  void* function;
  std::memcpy(&function, kernel, sizeof function);
  auto const blocks = std::make_shared<int32_t>(0);
  bounded_or_throw(current_device(), "asking for a kernel", driver::deadlines().open_ms, "",
                   [=] { return driver::resident_blocks(&function, shape, *blocks); });
  return *blocks < 1 ? 1 : *blocks;
}

DeviceMemory::DeviceMemory(size_t bytes, char const* what) : bytes_(bytes), device_(current_device()) {
  if (bytes == 0) return;
  std::string const no_memory = gpu(device_) + " has no " + std::to_string(bytes) + " bytes left for " + what;
  data_ = allocate(device_, no_memory, driver::allocate, bytes, "allocating device memory");
}

DeviceMemory::~DeviceMemory() {
  if (data_ && give_back(device_))
    bounded_or_lost(device_, "freeing device memory",
                    [data = data_, bytes = bytes_] { return driver::release(data, bytes); });
}

MappedMemory::MappedMemory(size_t bytes, char const* what, Kind kind)
    : bytes_(bytes), device_(current_device()) {
  if (bytes == 0) return;
  std::string const no_memory =
      "the host has no " + std::to_string(bytes) + " bytes of pinned memory left for " + what;
  try {
    data_ = allocate(device_, no_memory, driver::allocate_mapped, bytes, "allocating pinned memory");
  } catch (Error const& error) {
    if (kind == Kind::pinned || error.status() != BUNTING_NO_MEMORY) throw;
    data_ = static_cast<char*>(std::calloc(bytes, 1));
    if (!data_) throw;
    is_pinned_ = false;
    take_on(device_);
  }
}

MappedMemory::~MappedMemory() {
  if (!data_ || !give_back(device_)) return;
  if (!is_pinned_)
    std::free(data_);
  else
    bounded_or_lost(device_, "freeing pinned memory",
                    [data = data_, bytes = bytes_] { return driver::release_mapped(data, bytes); });
}

struct Graph::Work {
  int32_t device;
  void* graph;
  Work(int32_t of, void* made) : device(of), graph(made) { take_on(device); }
  ~Work() {
    if (give_back(device))
      bounded_or_lost(device, "freeing a graph", [of = graph] { return driver::close_graph(of); });
  }
};

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

// Work of a stream on its way to the driver. The stream's thread executes it in order; nobody else enters the
// driver for this stream.
struct Stream::Queue {
  using Operation = std::function<Outcome(void* stream)>;

  int32_t const device = current_device();
  bool const steps_through = steps_through_kernels();
  void* stream = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation> operations;
  int64_t queued = 0, done = 0;
  bool is_closing = false, has_ended = false;
  bool is_busy = false;       // an operation is under way, or about to enter the driver
  bool is_left = false;       // the device was lost before the stream closed, and may be reset at any time
  bool is_recording = false;  // seen by the caller's thread only
  std::string recording_failure;  // seen by the stream's thread only

  int64_t push(Operation operation) {
    throw_if_lost(device);
    std::lock_guard lock(mutex);
    operations.push_back(std::move(operation));
    changed.notify_all();
    return ++queued;
  }

  // Pushes work that becomes part of the graph while recording, and whose failure then fails the recording.
  void push_work(Operation operation) {
    if (!is_recording) {
      push(std::move(operation));
      return;
    }
    push([this, operation = std::move(operation)](void* native) {
      if (!recording_failure.empty()) return Outcome();
      if (Outcome const outcome = operation(native); !outcome) recording_failure = outcome.text;
      return Outcome();
    });
  }

  // Waits until the operation is done; returns false if that takes longer than `deadline_ms`.
  bool wait_for(int64_t operation, double deadline_ms) {
    std::unique_lock lock(mutex);
    bool const in_time = changed.wait_for(lock, std::chrono::duration<double, std::milli>(deadline_ms),
                                          [&] { return done >= operation; });
    lock.unlock();
    throw_if_lost(device);
    return in_time;
  }

  // Runs on the stream's thread until the stream closes. Once the device is lost, work is dropped.
  void work() {
    std::string failure = driver::select(device).text;
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return is_closing || !operations.empty(); });
      if (operations.empty()) break;
      Operation operation = std::move(operations.front());
      operations.pop_front();
      is_busy = true;
      bool const is_dropped = is_left || !failure.empty() || is_lost(device);
      lock.unlock();
      if (!is_dropped) failure = operation(stream).text;
      operation = nullptr;
      lock.lock();
      is_busy = false;
      // A stream that is left must not blame the device, which may work again.
      if (!failure.empty() && !is_left) mark_lost(device, failure);
      ++done;
      changed.notify_all();
    }
    bool const is_dead = is_left || is_lost(device);
    lock.unlock();
    if (!is_dead) driver::close_stream(stream);
    lock.lock();
    has_ended = true;
    changed.notify_all();
  }
};

Stream::Stream() : queue_(std::make_shared<Queue>()) {
  bounded_or_throw(queue_->device, "making a stream", driver::deadlines().open_ms,
                   gpu(queue_->device) + " has no memory left for a stream",
                   [queue = queue_] { return driver::open_stream(queue->stream); });
  std::thread([queue = queue_] { queue->work(); }).detach();
  take_on(queue_->device);
}

Stream::~Stream() {
  std::unique_lock lock(queue_->mutex);
  queue_->is_closing = true;
  queue_->is_left = !give_back(queue_->device);
  queue_->changed.notify_all();
  if (queue_->is_left) {
    // An operation that enters the driver after the device's reset would use memory that is gone. One that
    // does not end soon is in a call that may never end.
    constexpr auto kSoon = std::chrono::milliseconds(200);
    queue_->changed.wait_for(lock, kSoon, [&] { return !queue_->is_busy; });
    return;
  }
  std::chrono::duration<double, std::milli> const deadline(driver::deadlines().call_ms);
  if (!queue_->changed.wait_for(lock, deadline, [&] { return queue_->has_ended; }))
    mark_lost(queue_->device, "closing a stream: the driver has not answered");
}

void Stream::copy(void* to, void const* from, size_t bytes) {
  if (bytes == 0) return;
  queue_->push_work([=](void* stream) { return driver::copy(stream, to, from, bytes); });
}

void Stream::fill(void* to, int value, size_t bytes) {
  if (bytes == 0) return;
  queue_->push_work([=](void* stream) { return driver::fill(stream, to, value, bytes); });
}

void Stream::launch_any(char const* name, LaunchShape shape, void (*call)(void const*, void const*),
                        void const* kernel, void const* argument, size_t argument_bytes) {
  char const* const bytes = static_cast<char const*>(argument);
  void* function;
  std::memcpy(&function, kernel, sizeof function);
  bool const waits = queue_->steps_through && !queue_->is_recording;
  queue_->push_work([=, bytes = std::vector<char>(bytes, bytes + argument_bytes)](void* stream) {
    driver::Launch const launch{name, shape, call, &function, bytes.data(), bytes.size()};
    Outcome outcome = driver::launch(stream, launch);
    if (outcome && waits) outcome = driver::finish(stream);
    if (!outcome && !outcome.text.starts_with(name)) outcome.text = std::string(name) + ": " + outcome.text;
    return outcome;
  });
}

void Stream::begin_recording() {
  queue_->is_recording = true;
  queue_->push([queue = queue_.get()](void* stream) {
    queue->recording_failure = driver::begin_recording(stream).text;
    return Outcome();
  });
}

Graph Stream::end_recording() {
  queue_->is_recording = false;
  struct Made {
    void* graph = nullptr;
    std::string failure;
  };
  auto const made = std::make_shared<Made>();
  int64_t const end = queue_->push([made, queue = queue_.get()](void* stream) {
    std::string const first = std::exchange(queue->recording_failure, {});
    Outcome const outcome = driver::end_recording(stream, made->graph);
    made->failure = first.empty() ? outcome.text : first;
    if (first.empty() || !outcome) return Outcome();
    return driver::close_graph(std::exchange(made->graph, nullptr));
  });
  if (!queue_->wait_for(end, driver::deadlines().open_ms))
    lose_device(queue_->device, "recording a graph: the driver has not answered");
  if (!made->failure.empty()) fail(BUNTING_INVALID, "%s", made->failure.c_str());
  Graph graph;
  graph.work_ = std::make_unique<Graph::Work>(queue_->device, made->graph);
  return graph;
}

void Stream::launch(Graph const& graph) {
  queue_->push([of = graph.work_->graph](void* stream) { return driver::launch_graph(stream, of); });
}

void Stream::call(std::function<std::string(void* native)> work) {
  queue_->push_work([work = std::move(work)](void* stream) { return driver::call(stream, work); });
}

int64_t Stream::mark() {
  return queue_->push([](void* stream) { return driver::finish(stream); });
}

bool Stream::wait(double deadline_ms) {
  return queue_->wait_for(mark(), deadline_ms);
}

void Stream::finish(double deadline_ms, char const* what) {
  finish(mark(), deadline_ms, what);
}

void Stream::finish(int64_t mark, double deadline_ms, char const* what) {
  if (!queue_->wait_for(mark, deadline_ms))
    lose_device(queue_->device,
                std::string("it ") + what + " after " + std::to_string(int64_t(deadline_ms)) + " ms");
}

}  // namespace bunting::cuda
