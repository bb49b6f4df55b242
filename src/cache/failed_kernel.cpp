#include "cache/failed_kernel.h"

#include "support/check.h"

#include <kiln/config.h>

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

namespace kiln::engine {

std::string write_failed_kernel(const device::Unit& unit, const device::Compiler& compiler) noexcept {
  try {
    const kernel::Kernel& kernel = *unit.kernel;
    std::string text = cat("# ", kernel.label, "\n", kernel::print(kernel), "\n");
    try {
      text += compiler.source(unit);
    } catch (const std::exception& e) {
      text += cat("# no more of it: ", e.what(), "\n");
    }
    std::error_code error;
    const std::string& dump = config().dump;
    const std::filesystem::path directory = dump.empty() || dump == "stdout"
                                                ? std::filesystem::temp_directory_path(error)
                                                : std::filesystem::path(dump);
    // A fresh name: what lies in a directory that others write to is neither followed nor overwritten.
    std::string path = (directory / ("kiln-failed-" + unit.symbol.substr(0, 15) + "-XXXXXX")).string();
    const int file = mkstemp(path.data());
    if (file < 0) return "no file: " + path + " cannot be made";
    const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(file);
    return whole ? path : path + " (incomplete)";
  } catch (...) {
    return "no file";
  }
}

}  // namespace kiln::engine
