// kiln bench --random --adapt: programs as planned beside the same as adaptive mode settles them.
#pragma once

#include "bench_device.h"
#include "support/paired.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kiln::tool {

/// What became of one program.
struct Adapted {
  Interval gain{};  // time as planned / time once settled, of pairs measured afterwards; an interval of 95 %
  std::size_t pairs = 0;   // 0: not measured
  double first_ratio = 0;  // time as planned / floor
  std::uint64_t tried = 0, won = 0;
  std::string taken;  // variants, empty: none
};

/// Settles a program and measures it in pairs, A B B A. Pre: the program has run as planned.
Adapted adapt(const Program& program, BenchDevice& device);

/// The comparison over all programs.
std::string adapt_text(const std::vector<Adapted>& all);

}  // namespace kiln::tool
