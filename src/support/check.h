// Internal assertions (on in every build: they guard rare paths, never the per-operation fast path) and the
// helper that builds error messages.
#pragma once

#include <kiln/error.h>

#include <sstream>
#include <string>
#include <string_view>

namespace kiln {

/// Concatenates anything streamable.
template <class... Args>
std::string cat(Args&&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// Text from outside as part of a one-line message: no control characters, at most 80 bytes.
std::string printable(std::string_view text);

[[noreturn]] void internal_error(const char* file, int line, const std::string& what);

}  // namespace kiln

#define KILN_CHECK_THAT(cond, ...)                                                                      \
  do {                                                                                                  \
    if (!(cond)) [[unlikely]]                                                                           \
      ::kiln::internal_error(__FILE__, __LINE__, ::kiln::cat("`" #cond "` is false. ", ##__VA_ARGS__)); \
  } while (false)
