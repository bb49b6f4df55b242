// What of the options a plan depends on, as a part of its key.
#pragma once

#include <kiln/device.h>

#include <cstdint>

namespace kiln::engine {

/// Everything outside the graph that a plan on this device depends on.
std::uint64_t plan_salt(Device device);

}  // namespace kiln::engine
