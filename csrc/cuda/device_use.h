// device_use.h - state of this process on its devices, and driver calls with a deadline. No lock is held over
// a driver call.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cuda/driver.h"

namespace bunting::cuda {

inline constexpr int32_t kDevicesMax = 64;

// Device of this OS thread (use_device).
int32_t current_device();
void set_current_device(int32_t device);

bool is_lost(int32_t device);
void throw_if_lost(int32_t device);
// Marks the device as lost unless it already is.
void mark_lost(int32_t device, std::string const& why);
// Makes a lost device usable again, for the emulator's tests.
void forget_loss(int32_t device);

// Count an object on a device, and remove it; give_back returns true if the object may be freed. Objects of a
// lost device are not freed, because freeing might wait forever.
void take_on(int32_t device);
bool give_back(int32_t device);

// Resets a lost device on which this process has no object left. If the reset does not end at its deadline,
// only another process gets the device back.
void begin_anew_if_unused(int32_t device);

// Makes a driver call on a thread of its own and waits for it. Returns nothing if it has not ended after
// `deadline_ms`; the thread is then left in its call. `call` must own all that it uses.
std::optional<driver::Outcome> in_time(double deadline_ms, std::function<driver::Outcome()> call);
// Does the same for a device, which is lost if the call does not end.
driver::Outcome bounded(int32_t device, char const* what, double deadline_ms,
                        std::function<driver::Outcome()> call);
// Does the same; throws BUNTING_NO_MEMORY with `no_memory`, or loses the device and throws BUNTING_LOST.
void bounded_or_throw(int32_t device, char const* what, double deadline_ms, std::string const& no_memory,
                      std::function<driver::Outcome()> call);
// Does the same in a destructor: loses the device and returns.
void bounded_or_lost(int32_t device, char const* what, std::function<driver::Outcome()> call) noexcept;

}  // namespace bunting::cuda
