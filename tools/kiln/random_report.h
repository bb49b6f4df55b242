// What a person and a program read of random programs: distributions, the worst ones, JSON; and the
// comparison with the oracle.
#pragma once

#include "bench_adapt.h"
#include "bench_device.h"
#include "random_program.h"
#include "temporary_directory.h"

#include <kiln/config.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::tool {

/// So many of the worst programs are explained.
inline constexpr int kExplained = 10;

struct RandomRow {
  RandomProgram program;
  Timing timing;
  double copy_ms = 0;      // a copy of as many bytes as inputs and outputs have, timed alternately
  double floor_ms = 0;     // of the best legal plan
  double least_bytes = 0;  // that it moves
  std::uint64_t kernels = 0;
  bool fell_back = false;  // a kernel did not compile
  std::string failure;     // empty: it ran
  std::string explanation;
  Adapted adapted;
  double together_ms = 0, apart_ms = 0;  // 0: not timed by turns with products and maps apart
  double ratio() const { return timing.median / floor_ms; }
};

/// The rows that ran and are furthest from their floors, worst first.
std::vector<RandomRow*> worst_of(std::vector<RandomRow>& rows, int count);

std::string random_text(std::vector<RandomRow>& rows, const BenchDevice& device, std::uint64_t seed,
                        std::int64_t elements);
std::string random_json(const std::vector<RandomRow>& rows, const BenchDevice& device, std::uint64_t seed,
                        std::int64_t elements);

/// Asks an evaluation for its plan and kernels, and reads them.
class Explanation {
 public:
  void ask(Config& config) const;
  std::string read() const;

 private:
  TemporaryDirectory directory_;
};

/// Runs the program as configured and by the interpreter; where their results differ, or empty.
std::string difference_from_oracle(const RandomProgram& program);

}  // namespace kiln::tool
