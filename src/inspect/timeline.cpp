#include "inspect/timeline.h"

#include "support/check.h"
#include "support/log.h"
#include "support/trace_option.h"

#include <kiln/config.h>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

namespace kiln::engine {
namespace {

struct File {
  std::mutex mutex;
  std::string name;  // of what is open
  std::FILE* out = nullptr;
};
/// Immortal: stdio writes what is left when the process exits, after all destructors.
File& file() {
  static File* const f = new File;
  return *f;
}

int thread_number() {
  static std::atomic<int> threads{0};
  static thread_local const int own = ++threads;
  return own;
}

double microseconds(TraceTime t) {
  return std::chrono::duration<double, std::micro>(t.time_since_epoch()).count();
}

/// The stream of the file in force, begun anew when options name another. The caller holds the mutex.
std::FILE* stream(File& f) {
  const std::string wanted(trace_file(config().trace));
  if (f.out && f.name == wanted) return f.out;
  if (f.out) std::fclose(f.out);
  f.name = wanted;
  f.out = wanted.empty() ? nullptr : std::fopen(wanted.c_str(), "w");
  if (f.out)
    std::fputs("[\n", f.out);
  else if (!wanted.empty())
    warn_once("trace", cat("cannot write to ", wanted));
  return f.out;
}

}  // namespace

bool tracing() {
  const std::string& list = config().trace;
  return !list.empty() && !trace_file(list).empty();
}

void trace_event(std::string_view category, std::string_view name, TraceTime begin, TraceTime end,
                 std::string_view detail) {
  nlohmann::ordered_json event = {{"name", name},
                                  {"cat", category},
                                  {"ph", "X"},
                                  {"ts", microseconds(begin)},
                                  {"dur", microseconds(end) - microseconds(begin)},
                                  {"pid", static_cast<std::int64_t>(getpid())},
                                  {"tid", thread_number()}};
  if (!detail.empty()) event["args"] = {{"detail", detail}};
  const std::string line = event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  File& f = file();
  const std::lock_guard lock(f.mutex);
  if (std::FILE* out = stream(f)) std::fprintf(out, "%s,\n", line.c_str());
}

void trace_event(std::string_view category, std::string_view name, TraceTime begin, std::string_view detail) {
  trace_event(category, name, begin, std::chrono::steady_clock::now(), detail);
}

void flush_trace() {
  File& f = file();
  const std::lock_guard lock(f.mutex);
  if (f.out) std::fflush(f.out);
}

}  // namespace kiln::engine
