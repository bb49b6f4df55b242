// Opening a library at run time: every part of CUDA is optional, so none is linked.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace kiln::cuda {

/// A library that was opened; it stays open for the life of the process.
struct SharedLibrary {
  void* handle = nullptr;
  std::string path;     ///< where it was found, as the loader tells it
  std::string failure;  ///< when handle is null: what was tried, and the loader's first complaint
};

/// Opens the first that can be opened. Names without a slash go through the loader's own search.
SharedLibrary open_first(std::span<const std::string> names);

/// What to try for a part of the toolkit, best first. For each of `names` in turn: by the loader's own search
/// (which finds a library that another part of the process has loaded), in the directory of Kiln's own
/// library and the `lib` beside it, under CUDA_HOME and CUDA_PATH, in toolkits under /usr/local.
std::vector<std::string> toolkit_candidates(std::span<const std::string> names);

/// Directories that may hold the toolkit's programs (nvdisasm, cuobjdump), best first, $PATH before all.
std::vector<std::string> toolkit_program_directories();

/// Address of a symbol, or null.
void* find_symbol(const SharedLibrary& library, const char* name);

}  // namespace kiln::cuda
