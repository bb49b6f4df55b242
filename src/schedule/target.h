// Target: what the planner and the scheduler need to know of a device. Capabilities and rates, a leaf header.
// Rates come from a fixed table, never from timing at start-up: the same program gives the same plan.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln::schedule {

struct Target {
  int threads = 1;
  int vector_bytes = 16;
  bool fma = true;
  std::int64_t l1_bytes = 32 << 10;
  std::int64_t l2_bytes = 1 << 20;
  std::int64_t llc_bytes = 32 << 20;
  double bytes_per_ns = 10;          // memory, all threads
  double prims_per_ns = 8;           // primitive operations, all threads
  double launch_ns = 300;            // fixed cost of one more kernel
  std::int64_t stream_bytes = 8 << 20;  // outputs of at least this size are stored past the caches
  int max_prims = 600;               // a kernel's cap, in primitives (compile time and registers)
  std::vector<float> op_cost;        // primitives of each ir::Op, indexed by it
  float cost_of(int op) const { return op_cost.empty() ? 1.0f : op_cost[static_cast<std::size_t>(op)]; }
};

}  // namespace kiln::schedule
