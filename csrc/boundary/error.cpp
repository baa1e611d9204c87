#include "boundary/error.h"

#include <cstdio>

namespace bunting {

void fail(bunting_status status, char const* format, ...) {
  char text[kErrorBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Error(status, text);
}

}  // namespace bunting
