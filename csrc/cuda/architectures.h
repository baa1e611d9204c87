// architectures.h - GPUs that can run the machine code of a library.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

namespace bunting::cuda {

// Returns true if one of `architectures`, a list like "80, 86, 90a", runs on the GPU. Code for x.y runs on
// GPUs of x.y and of x.z with a larger z; with an "a" it runs on GPUs of x.y only. `capability` is 90 for
// 9.0.
inline bool runs_on(std::string const& architectures, int32_t capability) {
  std::istringstream list(architectures);
  for (std::string name; std::getline(list, name, ',');) {
    int32_t const own = std::atoi(name.c_str());
    if (name.back() == 'a' ? capability == own : capability >= own && capability / 10 == own / 10)
      return true;
  }
  return false;
}

}  // namespace bunting::cuda
