#include "engine/nonzero.h"

#include "device/cpu/pool.h"
#include "device/cpu/threads.h"

#include <algorithm>
#include <vector>

namespace kiln::engine {

Positions nonzero_positions(const std::uint8_t* mask, std::int64_t n) {
  constexpr std::int64_t kPart = 65536;
  const std::int64_t parts = (n + kPart - 1) / kPart;
  std::vector<std::int64_t> first(static_cast<std::size_t>(parts) + 1);
  cpu::parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      std::int64_t count = 0;
      for (std::int64_t i = p * kPart, stop = std::min(n, i + kPart); i < stop; ++i) count += mask[i] != 0;
      first[static_cast<std::size_t>(p) + 1] = count;
    }
  });
  for (std::size_t p = 1; p < first.size(); ++p) first[p] += first[p - 1];
  Positions out{cpu::allocate(static_cast<std::uint64_t>(first.back()) * 8), first.back()};
  auto* const to = reinterpret_cast<std::int64_t*>(out.buffer->data);
  cpu::parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t stop = first[static_cast<std::size_t>(p) + 1];
      std::int64_t at = first[static_cast<std::size_t>(p)];
      for (std::int64_t i = p * kPart; at < stop; ++i) {
        to[at] = i;
        at += mask[i] != 0;
      }
    }
  });
  return out;
}

}  // namespace kiln::engine
