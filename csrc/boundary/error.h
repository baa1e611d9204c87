// error.h - the one exception type of the library: a status of engine.h with a sentence for people.
#pragma once

#include <cstdarg>
#include <stdexcept>
#include <string>

#include "include/engine.h"

namespace bunting {

// Room for a sentence with a long path in it.
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
