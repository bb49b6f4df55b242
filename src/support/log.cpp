// spdlog, and the only file that names it. The logger is our own, outside spdlog's registry (a host program
// may use spdlog too), and immortal (exit handlers and detached threads may still log).
#include "support/log.h"

#include "support/installed_config.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <mutex>
#include <set>

namespace kiln {
namespace {

spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("kiln", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[kiln] %v");
    return made;
  }();
  return *instance;
}

void print(std::string_view message) { logger().info(spdlog::string_view_t(message.data(), message.size())); }

}  // namespace

bool log_enabled(Topic topic) {
  try {
    return installed_config().log_topics >> static_cast<unsigned>(topic) & 1u;
  } catch (...) {
    return false;  // a bad environment is reported by the API call that needs it, not by logging
  }
}

void log(Topic topic, std::string_view message) {
  if (log_enabled(topic)) print(message);
}

void warn(std::string_view message) { print("warning: " + std::string(message)); }

void warn_once(std::string_view key, std::string_view message) {
  struct Seen {
    std::mutex mutex;
    std::set<std::string, std::less<>> keys;
  };
  static Seen* const seen = new Seen;
  {
    const std::lock_guard lock(seen->mutex);
    if (!seen->keys.emplace(key).second) return;
  }
  warn(message);
}

}  // namespace kiln
