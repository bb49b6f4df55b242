// How a value that is written where another one stands meets it.
#pragma once

#include <cstdint>

namespace kiln {

enum class Combine : std::uint8_t { Set, Add, Multiply, Max, Min };

}  // namespace kiln
