#include "cuda/failed_step.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

namespace bunting::cuda {

std::string keep_step_block(void const* block, uint64_t bytes) noexcept {
  try {
    std::string path = (std::filesystem::temp_directory_path() / "bunting-step-XXXXXX").string();
    int const file = mkstemp(path.data());
    if (file < 0) return "";
    bool const is_whole = write(file, block, bytes) == ssize_t(bytes);
    close(file);
    if (is_whole) return path;
    unlink(path.c_str());
  } catch (std::exception const&) {
    // The step is lost as it would be without the file.
  }
  return "";
}

}  // namespace bunting::cuda
