// The device that a bench runs on: how time is taken there, and what it allows.
#pragma once

#include "workload.h"

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kiln::tool {

/// Below this many bytes caches and launches, not memory, set the pace.
inline constexpr double kMemoryBound = 32 << 20;

struct Row {
  std::string workload, device, dtype, mode;
  double median_ms = 0, min_ms = 0, max_ms = 0;
  int runs = 0;         // timed samples
  double floor_ms = 0;  // 0: none
  double bytes = 0;     // the traffic that the floor and gbps count
  double gbps = 0;
  std::uint64_t kernels = 0, nodes = 0;
  std::optional<double> cold_ms;    // first evaluation, nothing cached
  std::optional<double> disk_ms;    // the same with the disk cache
  std::uint64_t disk_compiles = 0;  // kernels compiled in spite of the disk cache
  double host_us = 0;
  double max_err = 0, tolerance = 0;
  std::string remark;
  bool right() const { return max_err <= tolerance; }
};

/// Milliseconds of one evaluation.
struct Timing {
  double median = 0, min = 0, max = 0;
  int samples = 0;
};

struct TimeAndFloor {
  Timing timing;
  double floor_ms = 0;  // the least time that rates measured in the same minutes allow; 0: none
};

/// Beside a copy that was timed alternately.
struct TimeAndCopy {
  Timing timing;
  double copy_ms = 0;
};

/// Milliseconds that a row at a random place takes: `row`, and `byte` for each of its bytes.
struct RandomRate {
  double row = 0, byte = 0;
  double of(double bytes) const { return row + bytes * byte; }
};

/// What bounds programs besides the rate of copies.
struct Chip {
  double slab_bytes = 0;   // that one unit of work holds on chip: a core, or a cluster of blocks
  double own_bytes = 0;    // that one core or multiprocessor holds; 0: what follows is not known
  double cache_bytes = 0;  // that all of them share or have together
  double line_bytes = 0;   // the least stretch that is read from memory
  RandomRate read, add;    // in that cache: rows that are read; rows of sums that are added to
  double per_ms = 0;       // float32 additions, products, or both in one, on single elements
  // The time of other instructions, in those: a float32 minimum or maximum, and the same of float64.
  double extreme = 1, doubled = 2, doubled_extreme = 2;
  double function = 8, doubled_function = 16;  // likewise an exponential, of either type
  double launch_ms = 0;
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;

  /// As KILN_DEVICE writes it.
  virtual std::string name() const = 0;
  virtual std::vector<Workload> workloads() const = 0;
  /// Why it cannot run one; empty: it can.
  virtual std::string refusal(const Workload& workload) const = 0;
  virtual Timing time(const Program& program) const = 0;
  virtual void wait() const = 0;
  /// Fills cold_ms and disk_ms. `program` is the workload's, evaluated before.
  virtual void measure_first(const Workload& workload, const Program& program, Row& row) const = 0;
  /// Of a row whose mode and bytes are there.
  virtual TimeAndFloor time_beside_floor(const Workload& workload, const Program& program,
                                         const Row& row) = 0;

  /// A copy that reads and writes `bytes` in all between runs of the program. Pre: the program has run.
  virtual TimeAndCopy time_beside_copy(const Program& program, double bytes) = 0;
  virtual Chip chip() = 0;
  /// Gives freed memory back to the system.
  virtual void trim() const = 0;

  /// One line each: what it is; its rates; how to read floors and first evaluations.
  virtual std::string title() const = 0;
  virtual std::string rates() const = 0;
  virtual std::string legend() const = 0;
  /// The same for programs: names to texts and numbers.
  virtual nlohmann::ordered_json facts() const = 0;
};

std::unique_ptr<BenchDevice> cpu_bench();
/// DeviceError or CompileError, saying why, when the device cannot be used.
std::unique_ptr<BenchDevice> gpu_bench(int index);

/// Records, evaluates and frees. On a GPU it returns when the work is enqueued.
void run(const Program& program);
double seconds();
/// By the clock of the calling thread: short programs are repeated within a sample. `beside` is called
/// between every few of the samples, if there is one.
Timing time_on_host(const Program& program, const std::function<void()>& beside = {});

}  // namespace kiln::tool
