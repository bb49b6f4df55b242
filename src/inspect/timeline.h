// KILN_TRACE: a timeline of the process in the Trace Event Format, which Perfetto and chrome://tracing open.
// An event is a line; the file's array stays open, as the format allows, so that a program that is killed
// leaves a file that opens.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::engine {

/// Whether KILN_TRACE has a file. Cheap.
bool tracing();

using TraceTime = std::chrono::steady_clock::time_point;
/// Adds an event of the calling thread that lasted from `begin` to now, or to `end`. `detail`: one more text
/// for it; empty: none.
void trace_event(std::string_view category, std::string_view name, TraceTime begin,
                 std::string_view detail = {});
void trace_event(std::string_view category, std::string_view name, TraceTime begin, TraceTime end,
                 std::string_view detail);
/// Writes what was added to the file.
void flush_trace();

/// An event from its construction to its destruction. The texts must outlive it. Does nothing without
/// KILN_TRACE.
class TraceSpan {
 public:
  TraceSpan(std::string_view category, std::string_view name, std::string_view detail = {})
      : on_(tracing()), category_(category), name_(name), detail_(detail) {
    if (on_) [[unlikely]]
      begin_ = std::chrono::steady_clock::now();
  }
  ~TraceSpan() {
    if (on_) [[unlikely]]
      trace_event(category_, name_, begin_, detail_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  bool on_;
  std::string_view category_, name_, detail_;
  TraceTime begin_;
};

}  // namespace kiln::engine
