// `kiln cache warm`: kernels of common operations, compiled before a program needs them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kiln::tool {

struct WarmOptions {
  std::vector<std::string> dtypes = {"float32"};
  std::vector<std::string> only;  // parts of the suite; empty: all
  int threads = 0;                // that ask for kernels; 0: one for each core
};

/// The parts of the suite, in order.
const std::vector<std::string>& warm_parts();

struct Warmed {
  std::size_t programs = 0, compiled = 0, there = 0;  // kernels
  double seconds = 0;
};
/// Evaluates the suite on config().device. UserError for a word that there is not, or when there is no disk
/// cache to fill; Error when a kernel does not compile.
Warmed warm(const WarmOptions& options);

}  // namespace kiln::tool
