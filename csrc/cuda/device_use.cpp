#include "cuda/device_use.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "boundary/error.h"

namespace bunting::cuda {
namespace {

struct Use {
  std::mutex mutex;   // never held over a driver call
  std::string lost;   // reason, once the device is lost
  std::string unset;  // why the last reset failed
  int64_t objects = 0;
  bool is_resetting = false, is_given_up = false;
};

Use& use_of(int32_t device) {
  static std::array<Use, kDevicesMax>& uses = *new std::array<Use, kDevicesMax>;  // threads outlive main()
  return uses[size_t(device)];
}

thread_local int32_t device_of_thread = 0;

// Makes this process end without the driver's own clean-up, which would wait for a call that never returns.
void end_without_clean_up() {
  auto const end = [](int status, void*) {
    std::fflush(nullptr);
    _exit(status);
  };
  static int const registered = on_exit(end, nullptr);
  (void)registered;
}

// Driver call on a thread of its own, shared by that thread and the one that waits.
struct Call {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  driver::Outcome outcome;
};

std::string unanswered(char const* what, double deadline_ms) {
  return std::string(what) + ": the driver has not answered after " + std::to_string(int64_t(deadline_ms)) +
         " ms";
}

}  // namespace

int32_t current_device() {
  return device_of_thread;
}

void set_current_device(int32_t device) {
  device_of_thread = device;
}

bool is_lost(int32_t device) {
  std::lock_guard lock(use_of(device).mutex);
  return !use_of(device).lost.empty();
}

void throw_if_lost(int32_t device) {
  Use& use = use_of(device);
  std::lock_guard lock(use.mutex);
  if (use.lost.empty()) return;
  std::string const unset = use.unset.empty() ? "" : "; it cannot be reset: " + use.unset;
  fail(BUNTING_LOST, "GPU %d is lost: %s%s", device, use.lost.c_str(), unset.c_str());
}

void mark_lost(int32_t device, std::string const& why) {
  std::lock_guard lock(use_of(device).mutex);
  if (use_of(device).lost.empty()) use_of(device).lost = why.empty() ? "its driver failed" : why;
}

void forget_loss(int32_t device) {
  Use& use = use_of(device);
  std::lock_guard lock(use.mutex);
  use.lost.clear();
  use.unset.clear();
  use.is_given_up = false;
}

void take_on(int32_t device) {
  std::lock_guard lock(use_of(device).mutex);
  ++use_of(device).objects;
}

bool give_back(int32_t device) {
  std::lock_guard lock(use_of(device).mutex);
  --use_of(device).objects;
  return use_of(device).lost.empty();
}

std::optional<driver::Outcome> in_time(double deadline_ms, std::function<driver::Outcome()> call) {
  auto const shared = std::make_shared<Call>();
  std::thread([shared, call = std::move(call)] {
    driver::Outcome outcome = call();
    std::lock_guard lock(shared->mutex);
    shared->outcome = std::move(outcome);
    shared->is_done = true;
    shared->changed.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (shared->changed.wait_for(lock, std::chrono::duration<double, std::milli>(deadline_ms),
                               [&] { return shared->is_done; }))
    return std::move(shared->outcome);
  end_without_clean_up();
  return std::nullopt;
}

driver::Outcome bounded(int32_t device, char const* what, double deadline_ms,
                        std::function<driver::Outcome()> call) {
  std::optional<driver::Outcome> outcome = in_time(deadline_ms, [device, call = std::move(call)] {
    driver::Outcome const selected = driver::select(device);
    return selected ? call() : selected;
  });
  if (outcome) return std::move(*outcome);
  mark_lost(device, unanswered(what, deadline_ms));
  return {driver::Outcome::Kind::failed, unanswered(what, deadline_ms)};
}

void bounded_or_throw(int32_t device, char const* what, double deadline_ms, std::string const& no_memory,
                      std::function<driver::Outcome()> call) {
  throw_if_lost(device);
  driver::Outcome const outcome = bounded(device, what, deadline_ms, std::move(call));
  if (outcome) return;
  if (outcome.kind == driver::Outcome::Kind::no_memory) fail(BUNTING_NO_MEMORY, "%s", no_memory.c_str());
  if (outcome.kind == driver::Outcome::Kind::unsupported)
    fail(BUNTING_INVALID, "GPU %d %s", device, outcome.text.c_str());
  mark_lost(device, outcome.text);
  throw_if_lost(device);
}

void bounded_or_lost(int32_t device, char const* what, std::function<driver::Outcome()> call) noexcept {
  try {
    driver::Outcome const outcome = bounded(device, what, driver::deadlines().call_ms, std::move(call));
    if (!outcome) mark_lost(device, outcome.text);
  } catch (std::exception const&) {
    // The system has no thread or memory for the call: the object stays allocated.
  }
}

void begin_anew_if_unused(int32_t device) {
  Use& use = use_of(device);
  {
    std::lock_guard lock(use.mutex);
    if (use.lost.empty() || use.objects > 0 || use.is_resetting || use.is_given_up) return;
    use.is_resetting = true;
  }
  driver::Deadlines const deadlines = driver::deadlines();
  std::optional<driver::Outcome> outcome;
  bool hangs = false;
  try {
    outcome = in_time(deadlines.call_ms, [device] { return driver::reset(device); });
    hangs = !outcome;
    // A device is slow to start, so selecting it has more time.
    if (outcome && *outcome)
      outcome = in_time(deadlines.open_ms, [device] { return driver::select(device); });
  } catch (std::exception const&) {
    // The system has no thread for the call; the next start tries again.
  }
  std::lock_guard lock(use.mutex);
  use.is_resetting = false;
  use.is_given_up = hangs;
  if (outcome && *outcome)
    use.lost.clear();
  else if (outcome)
    use.unset = outcome->text;
  else
    use.unset = unanswered("resetting it", deadlines.call_ms) + "; only a new process gets it back";
}

}  // namespace bunting::cuda
