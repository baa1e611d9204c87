// races.h - what ThreadSanitizer reports, where it is built in: races that a test provokes are counted, all
// others fail it.
#pragma once

#include <functional>

namespace bunting::test {

// Races reported while `run` runs; 0 without ThreadSanitizer.
int races_of(std::function<void()> const& run);

}  // namespace bunting::test
