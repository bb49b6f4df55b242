// Target: what the planner and the scheduler need to know of a device. Capabilities and rates, a leaf header.
// Rates come from a fixed table, never from timing at start-up: the same program gives the same plan.
#pragma once

#include <kiln/dtype.h>

#include <cstdint>
#include <vector>

namespace kiln::schedule {

struct Target {
  bool gpu = false;
  int threads = 1;       // of a GPU: multiprocessors
  int architecture = 0;  // of a GPU: 90 for compute capability 9.0
  int vector_bytes = 16;
  bool fma = true;
  bool strict =
      false;  // the numeric promise: every recorded operation rounds, orders depend on extents alone
  bool epilogues = false;  // the library's matrix products take the maps of their results along
  /// A GPU's matrix products that hand-written main loops do instead of the library, with those maps. Few:
  /// those of integers, and those of few rows, which take the time of reading one operand.
  enum class Templates : std::uint8_t { None, Integers, Few, All } templates = Templates::None;
  bool attentions = false;  // the device runs them (plan/attention.h)
  bool pair_sums = false;   // and these (plan/pair_sums.h)
  bool exact = false;       // every engine gives functions the same bits (strict and deterministic)
  bool tf32 = false;        // a GPU's products of float32 may read 11 bits of each number (Config::tf32)
  std::int64_t l2_bytes = 1 << 20;  // of one core
  double bytes_per_ns = 10;         // memory traffic, all threads together
  double cached_bytes_per_ns = 40;  // the same while the data fits the cores' caches
  double prims_per_ns = 64;         // primitive operations, all threads together
  double launch_ns = 300;           // fixed cost of one more kernel
  double run_bytes = 32;            // adjacent bytes that are read as fast as longer runs
  std::int64_t scans = 0;       // side by side that keep it busy, each a thread's; 0: it runs them otherwise
  std::int64_t held = 1 << 17;  // elements of a row that a kernel keeps near while it reads them again
  std::int64_t stream_bytes = 8 << 20;  // outputs of at least this size are stored past the caches, …
  std::int64_t last_cache_bytes = 0;    // … unless this holds all that a kernel of a CPU reads and writes
  int max_prims = 600;                  // a kernel's cap, in primitives (compile time and registers)
  /// What options switch off (Config::fuse, fuse_least, fuse_off).
  struct Off {
    bool all = false, norm = false, nest = false, siblings = false, recompute = false, epilogue = false,
         attention = false, blocks = false;
  } off;
  std::int64_t fuse_least = 0;  // elements from which operations share a kernel
  std::vector<float> op_cost;   // primitives of each ir::Op, indexed by it

  double traffic_ns(double bytes) const {
    return bytes / (bytes <= static_cast<double>(l2_bytes) * threads ? cached_bytes_per_ns : bytes_per_ns);
  }
  /// Whether a GPU's tensor cores multiply floats of a dtype, where a main loop asks them.
  bool on_tensor_cores(DType dtype) const { return is_half(dtype) || (tf32 && dtype == DType::Float32); }
  float cost_of(int op) const { return op_cost.empty() ? 1.0f : op_cost[static_cast<std::size_t>(op)]; }
};

}  // namespace kiln::schedule
