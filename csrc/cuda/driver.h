// driver.h - calls of a GPU driver, plain and blocking. Implementations: CUDA (runtime_cuda.cpp) and the
// emulator (runtime_emulated.cpp). Only runtime.cpp calls them: it decides which thread makes a call, how
// long the call may take, and what its failure means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda/runtime.h"

namespace bunting::cuda::driver {

struct Outcome {
  enum class Kind { done, no_memory, unsupported, failed };
  Kind kind = Kind::done;
  std::string text = {};  // reason, unless done
  explicit operator bool() const { return kind == Kind::done; }
};

// Times after which a call, a start of the device, and a small step count as hung.
struct Deadlines {
  double call_ms, open_ms, step_ms;
};
Deadlines deadlines();

int32_t count(std::string& why_none);
// Selects the device for the calls of this thread. `unsupported`: the library has no kernels for it.
Outcome select(int32_t device);
Outcome describe(int32_t device, DeviceInfo& info);
// Destroys everything that this process has on the device, after a failure too.
Outcome reset(int32_t device);

// Memory is zeroed.
Outcome allocate(size_t bytes, void*& data);
Outcome release(void* data, size_t bytes);
Outcome allocate_mapped(size_t bytes, void*& data);
Outcome release_mapped(void* data, size_t bytes);

// Blocks of a kernel that a multiprocessor runs at a time.
Outcome resident_blocks(void const* kernel, LaunchShape shape, int32_t& blocks);

struct Launch {
  char const* name;
  LaunchShape shape;
  void (*call)(void const* kernel, void const* argument);  // restores the types for the emulator
  void const* kernel;                                      // points to the function pointer
  void const* argument;
  size_t argument_bytes;
};

// The calls for one stream come from one thread.
Outcome open_stream(void*& stream);
Outcome close_stream(void* stream);
Outcome copy(void* stream, void* to, void const* from, size_t bytes);
Outcome fill(void* stream, void* to, int value, size_t bytes);
Outcome launch(void* stream, Launch const& launch);
Outcome call(void* stream, std::function<std::string(void* native)> const& work);
Outcome begin_recording(void* stream);
// Ends a failed recording too; the stream then works as before.
Outcome end_recording(void* stream, void*& graph);
Outcome launch_graph(void* stream, void* graph);
Outcome close_graph(void* graph);
// Blocks until the stream's work is done. Returns the failure of any of it.
Outcome finish(void* stream);

}  // namespace bunting::cuda::driver
