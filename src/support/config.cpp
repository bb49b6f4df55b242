// The one Config of the process.
//
// Invariant: a Config that was once in force is never changed and never freed, so a reference from config()
// stays good for ever and readers take no lock. Options are replaced rarely (a program's start, a test); the
// old ones are a few hundred bytes each. A bad environment leaves nothing installed: every call throws the
// same line until `configure` sets options.
#include <kiln/config.h>

#include "support/env.h"
#include "support/installed_config.h"
#include "support/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string_view>

namespace kiln {
namespace {

constinit std::atomic<const InstalledConfig*> current{nullptr};

struct History {
  std::mutex mutex;
  std::vector<const InstalledConfig*> all;
  bool helped = false;
};

History& history() {
  static History* const instance = new History;  // immortal: exit handlers may still read options
  return *instance;
}

unsigned topics_of(const Config& config) {
  struct Name {
    Topic topic;
    std::string_view name;
    int debug;  // KILN_DEBUG from which the topic is logged
  };
  static constexpr Name kNames[] = {{Topic::Trace, "trace", 4},
                                    {Topic::Plan, "plan", 3},
                                    {Topic::Kernel, "kernel", 2},
                                    {Topic::Cache, "cache", 4},
                                    {Topic::Memory, "memory", 5}};
  unsigned mask = 0;
  for (const Name& n : kNames) {
    bool on = config.debug >= n.debug;
    for (const std::string& topic : config.log_topics) on |= topic == n.name || topic == "all";
    if (on) mask |= 1u << static_cast<unsigned>(n.topic);
  }
  return mask;
}

const InstalledConfig& install(History& h, Config config) {
  const unsigned topics = topics_of(config);
  h.all.push_back(new InstalledConfig{std::move(config), topics});
  current.store(h.all.back(), std::memory_order_release);
  return *h.all.back();
}

[[gnu::noinline]] const InstalledConfig& install_environment() {
  History& h = history();
  const std::lock_guard lock(h.mutex);
  if (const InstalledConfig* installed = current.load(std::memory_order_acquire)) return *installed;
  const char* help = environment_variable("KILN_HELP");
  if (help && std::string_view(help) == "1" && !h.helped) {
    h.helped = true;
    std::fputs(environment_help().c_str(), stderr);
  }
  return install(h, parse_environment());
}

}  // namespace

const InstalledConfig& installed_config() {
  if (const InstalledConfig* installed = current.load(std::memory_order_acquire)) [[likely]]
    return *installed;
  return install_environment();
}

const Config& config() { return installed_config().config; }

void configure(const Config& options) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (EnvironmentRow& row : environment_rows(options))
    variables.emplace_back(std::move(row.name), std::move(row.value));
  Config checked = parse_environment(variables);
  History& h = history();
  const std::lock_guard lock(h.mutex);
  install(h, std::move(checked));
}

}  // namespace kiln
