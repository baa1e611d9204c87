// error.h - the library's only exception type: a status of engine.h with a readable sentence.
#pragma once

#include <cstdarg>
#include <stdexcept>
#include <string>

#include "include/engine.h"

namespace bunting {

// Size of the buffer for a sentence, which may contain a long path.
inline constexpr int kErrorBytes = 6144;

class Error : public std::runtime_error {
 public:
  Error(bunting_status status, std::string const& message) : std::runtime_error(message), status_(status) {}
  bunting_status status() const { return status_; }

 private:
  bunting_status status_;
};

// Throws an Error with a printf-style sentence.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(bunting_status status, char const* format, ...);

}  // namespace bunting
