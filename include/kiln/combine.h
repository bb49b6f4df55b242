// How scatter and put_along_axis combine a written value with the element that is already there.
#pragma once

#include <cstdint>

namespace kiln {

enum class Combine : std::uint8_t { Set, Add, Multiply, Max, Min };

}  // namespace kiln
