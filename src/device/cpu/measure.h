// Measured ceilings of this machine: what a kernel's time is compared with. Each takes a fraction of a
// second; run them when nothing else runs. Not for planning: the planner's rates come from a fixed table.
#pragma once

#include <memory>

namespace kiln::cpu {

/// Work at one of the machine's rates, to be run beside other work and timed.
class Probe {
 public:
  virtual ~Probe() = default;
  /// The rate of one pass: GB/s or GFLOP/s.
  virtual double rate() = 0;
};
/// A copy with streaming stores between arrays of `bytes` in all, at most 512 MiB. Bytes read and written
/// count.
std::unique_ptr<Probe> copy_probe(double bytes);
/// A sum over an array of `bytes`, at most 256 MiB.
std::unique_ptr<Probe> read_probe(double bytes);
/// float32 multiply-adds (two operations each) with every accumulator in a register.
std::unique_ptr<Probe> multiply_add_probe();

/// The best of a few passes of each, on arrays far larger than the caches: what the machine can do, not what
/// it did while something else ran. `threads` as in thread_count(); 0: all.
double copy_bandwidth(int threads = 0);
double read_bandwidth(int threads = 0);
double fma_rate(int threads = 0);

/// All of them, measured once a process.
struct Ceilings {
  double copy_gbps = 0, read_gbps = 0, fma_gflops = 0;        // all threads
  double copy_gbps_1 = 0, read_gbps_1 = 0, fma_gflops_1 = 0;  // one thread
};
const Ceilings& ceilings();

}  // namespace kiln::cpu
