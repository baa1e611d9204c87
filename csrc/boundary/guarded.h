// guarded.h - the frame of every function at the C boundary: it turns exceptions into a status, and keeps the
// sentence for bunting_last_error().
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "boundary/error.h"
#include "include/engine.h"

namespace bunting {

// A fixed buffer, so that reporting a failure cannot fail.
inline thread_local char last_error[kErrorBytes] = "";

inline bunting_status failed(bunting_status status, char const* text) {
  std::snprintf(last_error, sizeof last_error, "%s", text);
  return status;
}

template <typename Body>
bunting_status guarded(Body const& body) noexcept {
  try {
    body();
    return BUNTING_OK;
  } catch (Error const& error) {
    return failed(error.status(), error.what());
  } catch (std::bad_alloc const&) {
    return failed(BUNTING_NO_MEMORY, "out of memory");
  } catch (std::system_error const& error) {
    return failed(BUNTING_NO_MEMORY, error.what());  // the system could not create a thread
  } catch (std::exception const& error) {
    return failed(BUNTING_INVALID, error.what());
  }
}

template <typename Pointer>
void require(Pointer const* pointer, char const* name) {
  if (!pointer) fail(BUNTING_INVALID, "%s must not be null", name);
}

}  // namespace bunting
