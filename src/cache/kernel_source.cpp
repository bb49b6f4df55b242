#include "cache/kernel_source.h"

#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace kiln::engine {

std::string symbol_of(const Hash128& key) { return "kiln_" + key.hex(); }

std::string short_name(const Hash128& key) { return key.hex().substr(0, 10); }

std::optional<device::EditedSource> edited_source(const Hash128& key, const device::Compiler& compiler) {
  const std::string& directory = config().override_dir;
  if (directory.empty() || compiler.edited_extension().empty()) [[likely]]
    return std::nullopt;
  const std::string ending = cat("-", short_name(key), compiler.edited_extension());
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error), end;
  if (error)
    warn_once("override", cat("KILN_OVERRIDE_DIR=", directory, " cannot be read: ", error.message()));
  for (; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!path.ends_with(ending)) continue;
    std::ifstream file(path, std::ios::binary);
    device::EditedSource out{path, {std::istreambuf_iterator<char>(file), {}}};
    if (!file.is_open() || file.bad()) throw CompileError(cat("[compile] ", path, " cannot be read"));
    return out;
  }
  return std::nullopt;
}

}  // namespace kiln::engine
