// Logging: spdlog behind four functions, so that no other file names it. One line a message, to stderr.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

enum class Topic { Trace, Plan, Kernel, Cache, Memory };

/// True when KILN_LOG names the topic (or KILN_DEBUG is high enough: Kernel at 2, Plan at 3, Trace and Cache
/// at 4, Memory at 5).
bool log_enabled(Topic topic);
void log(Topic topic, std::string_view message);
void warn(std::string_view message);
/// Warns the first time `key` is seen in this process.
void warn_once(std::string_view key, std::string_view message);

}  // namespace kiln
