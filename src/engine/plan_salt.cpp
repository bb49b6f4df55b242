#include "engine/plan_salt.h"

#include "inspect/explain.h"
#include "record/node.h"
#include "transform/user_patterns.h"

#include <kiln/config.h>

#include <functional>
#include <string>

namespace kiln::engine {
namespace {

std::uint64_t target_salt(const std::string& name) {
  return name.empty() ? 0 : std::uint64_t{std::hash<std::string>{}(name)};
}

/// What of the options steers fusion: 0 as long as all have their defaults. Plans that keep reports are other
/// plans.
std::uint64_t steering_salt(const Config& c) {
  constexpr std::uint64_t kReported = 0x9e3779b97f4a7c15u;
  std::uint64_t salt = (explaining() ? kReported : 0) + transform::patterns_salt();
  if (c.fuse && c.fuse_least == 0 && c.fuse_off.empty() && c.adapt == Adapt::Off && c.memory_budget == 0)
      [[likely]]
    return salt;
  salt += c.memory_budget * kReported + c.fuse + 2 * static_cast<std::uint64_t>(c.fuse_least);
  for (const std::string& word : c.fuse_off) salt = salt * kReported + target_salt(word);
  return (salt + static_cast<std::uint64_t>(c.adapt)) * kReported;
}

}  // namespace

std::uint64_t plan_salt(Device device) {
  const Config& c = config();
  return std::uint64_t{ir::device_code(device)} << 56 | static_cast<std::uint64_t>(c.mode) |
         std::uint64_t{c.tf32} << 3 | static_cast<std::uint64_t>(c.tier) << 4 | std::uint64_t{c.strict} << 6 |
         std::uint64_t{c.deterministic} << 7 | std::uint64_t{static_cast<std::uint16_t>(c.num_threads)} << 8 |
         (target_salt(c.cpu_target) ^ target_salt(c.null_target) ^ steering_salt(c)) << 24;
}

}  // namespace kiln::engine
