// One line on a terminal that says how far a command is; nothing elsewhere.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace kiln::tool {

class Progress {
 public:
  explicit Progress(std::size_t whole) : whole_(whole), shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void at(std::size_t done, const std::string& what) const {
    if (!shown_) return;
    constexpr std::size_t kWidth = 30;
    const std::size_t full = whole_ ? kWidth * done / whole_ : kWidth;
    std::fprintf(stderr, "\r\033[K[%s%s] %zu/%zu %s", std::string(full, '#').c_str(),
                 std::string(kWidth - full, '.').c_str(), done, whole_, what.c_str());
    std::fflush(stderr);
  }

 private:
  std::size_t whole_;
  bool shown_;
};

}  // namespace kiln::tool
