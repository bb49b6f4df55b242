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

/// What the bench runs on the CPU, in the order of the table.
std::vector<Workload> cpu_workloads();

// The parts of the list that are in files of their own; empty when the real inputs are not there.
std::vector<Workload> image_workloads();
std::vector<Workload> digits_workloads();
/// Attention with several masks.
std::vector<Workload> attention_workloads(bool gpu);
/// With its gradients.
std::vector<Workload> attention_gradient_workloads(bool gpu);
/// Blocks of convolutional networks.
std::vector<Workload> convolution_workloads();
/// Few rows against large weights.
std::vector<Workload> decode_workloads();
/// Whole layers of networks.
std::vector<Workload> layer_workloads();

/// What the bench runs on a GPU.
std::vector<Workload> gpu_workloads();

// Programs of both lists, by size.

/// tanh(a b + 1) sigmoid(a - b) + relu(a) / 2 - |b|
Workload chain10(const std::string& name, std::int64_t n);
/// `ops` cheap operations in a row.
Workload chain(int ops, std::int64_t n);
Workload layernorm(std::int64_t rows, std::int64_t columns);
/// Calls and puts on n assets.
Workload black_scholes(std::int64_t n);
Workload sum_of_squares(const std::string& name, std::int64_t n);
/// Sums of squares down columns.
Workload sum_of_columns();
/// A transposed matrix, plus 1.
Workload transposed();
/// Running sums: read once, written once.
Workload cumulative_sum();
/// Rows of a table, scaled, and their sums: one kernel.
Workload gather_row_sum();
/// Rows added to those of a table that indices name: what the gradient of an embedding is.
Workload scatter_add_rows();
Workload sorted();

}  // namespace kiln::tool
