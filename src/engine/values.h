// Values of a graph by a plan of its own, for checks.
#pragma once

#include "ir/graph.h"

#include <kiln/device.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kiln::engine {

/// Plans and runs a graph whose arguments lie at these addresses of the device; its roots' values, row-major
/// in host memory. Throws what planning and running throw.
std::vector<std::vector<std::byte>> values_of(const ir::Graph& graph, Device device,
                                              std::span<std::byte* const> args,
                                              std::span<const std::uint64_t> slots);

}  // namespace kiln::engine
