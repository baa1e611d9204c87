// races.h - reports of ThreadSanitizer, if it is built in. Races that a test provokes are counted; any other
// race fails the test.
#pragma once

#include <functional>

namespace bunting::test {

// Returns the number of races reported while `run` runs; 0 without ThreadSanitizer.
int races_of(std::function<void()> const& run);

}  // namespace bunting::test
