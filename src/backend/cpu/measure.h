// Measured ceilings of this machine: what a kernel's time is compared with. Each takes a fraction of a
// second; run them when nothing else runs. Not for planning: the planner's rates come from a fixed table.
#pragma once

namespace kiln::cpu {

/// Bytes read plus bytes written per second by a copy with streaming stores, between buffers far larger than
/// the caches (GB/s). `threads` as in thread_count(); 0: all.
double copy_bandwidth(int threads = 0);
/// Bytes read per second by a sum over such a buffer (GB/s).
double read_bandwidth(int threads = 0);
/// float32 multiply-add rate with every accumulator in a register (GFLOP/s, two per multiply-add).
double fma_rate(int threads = 0);

/// All of them, measured once a process.
struct Ceilings {
  double copy_gbps = 0, read_gbps = 0, fma_gflops = 0;        // all threads
  double copy_gbps_1 = 0, read_gbps_1 = 0, fma_gflops_1 = 0;  // one thread
};
const Ceilings& ceilings();
/// Measures the rates of all threads again and keeps the better: on a shared machine one measurement may be
/// slow.
void refine(Ceilings& ceilings);

}  // namespace kiln::cpu
