// kiln bench --random: programs drawn at random, each beside a copy of as many bytes.
#pragma once

#include "bench_device.h"

#include <cstdint>
#include <string>

namespace kiln::tool {

struct RandomOptions {
  int count = 0;
  std::uint64_t seed = 1;
  std::int64_t elements = 0;  // 0: 2^23 on a CPU, 2^26 on a GPU, 2^12 with `check`
  std::string family;         // empty: all
  int only = -1;              // an index, or -1
  bool check = false, list = false;
  bool adapt = false;  // settle each program by adaptive mode, and compare
  bool apart = false;  // time each program with products by the library and maps by other kernels, too
  std::string json;    // a file, or empty
};

/// UserError for a family or a number of elements that there is not.
void validate(const RandomOptions& options);

/// Prints the programs and runs none.
void list_random(const RandomOptions& options);
/// Runs each program on a few elements and compares the results with the oracle. Error: results differ.
void check_random(const RandomOptions& options);
/// Measures and prints the distribution. Error: programs failed.
void bench_random(BenchDevice& device, const RandomOptions& options);

}  // namespace kiln::tool
