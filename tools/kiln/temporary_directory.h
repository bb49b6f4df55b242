// A directory that goes with its object, contents and all.
#pragma once

#include <kiln/error.h>

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace kiln::tool {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_((std::filesystem::temp_directory_path() / "kiln-bench-XXXXXX").string()) {
    if (!mkdtemp(path_.data())) throw Error("[bench] cannot make a directory like " + path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kiln::tool
