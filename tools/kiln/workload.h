// What `kiln bench` runs: programs a user would write, each with its inputs, its floor and its float64 check.
#pragma once

#include <kiln/kiln.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kiln::tool {

/// One program over given inputs.
struct Program {
  std::function<std::vector<Tensor>()> record;                    // records; evaluates nothing
  std::function<double(const std::vector<Tensor>&)> max_error;    // of evaluated results against float64
  std::function<std::string(const std::vector<Tensor>&)> remark;  // may be empty: what the result means
};

struct Workload {
  /// What bounds it from below.
  enum class Floor { Copy, Read, Flops } floor = Floor::Copy;
  std::string name;
  std::string dtype = "float32";
  double bytes = 0;      // every input read once, every output written once
  double flops = 0;      // for Floor::Flops
  double tolerance = 0;  // of max_error
  /// tiny: the same operations on a few elements, which shows the cost of the host alone.
  std::function<Program(bool tiny)> make;
};

/// Everything, in the order of the table.
std::vector<Workload> all_workloads();

// The parts of the list that are in files of their own; empty when the real inputs are not there.
std::vector<Workload> image_workloads();
std::vector<Workload> digits_workloads();

/// `shape` float32 numbers, evenly spread over [low, high), the same in every run.
Tensor uniform(const Shape& shape, double low, double high, std::uint32_t seed);

/// max |got - expected| / max(1, |expected|) over all indices of [0, n), or half a million spread over them.
double elementwise_error(const float* got, std::int64_t n,
                         const std::function<double(std::int64_t)>& expected);

}  // namespace kiln::tool
