// KILN_TRACE: a list with commas of who is told what runs: a file for a timeline, and tools by name.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

/// Tools that KILN_TRACE may name beside a file.
inline constexpr std::string_view kTraceTools[] = {"perf", "gdb", "nvtx"};

/// Calls f with each part of the list.
template <class F>
void each_trace_part(std::string_view list, F f) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    f(list.substr(0, comma));
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
  }
}

inline bool trace_has(std::string_view list, std::string_view tool) {
  bool found = false;
  each_trace_part(list, [&](std::string_view part) { found |= part == tool; });
  return found;
}

/// The file for the timeline, or nothing.
inline std::string_view trace_file(std::string_view list) {
  std::string_view file;
  each_trace_part(list, [&](std::string_view part) {
    if (part.ends_with(".json")) file = part;
  });
  return file;
}

}  // namespace kiln
