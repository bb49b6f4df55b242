// Results whose size depends on values: counted and written on the host.
#pragma once

#include "record/node.h"

namespace kiln::engine {

/// The positions of the bytes that are not 0, ascending, as int64 in a buffer with one reference.
struct Positions {
  ir::Buffer* buffer;
  std::int64_t count;
};
Positions nonzero_positions(const std::uint8_t* mask, std::int64_t n);

}  // namespace kiln::engine
