// What the CUDA emitter knows of a kernel before it writes: computed once from the kernel, never from text.
#pragma once

#include "kernel/kernel.h"
#include "kernel/nouns.h"

#include <span>
#include <vector>

namespace kiln::codegen {

/// Parts of kernels_templates that a kernel's text calls, beside those that every kernel has.
struct CudaPreludes {
  bool memory = false, integer = false, philox = false, math = false, reduce = false, scan = false;
  void add(const CudaPreludes& p) {
    memory |= p.memory;
    integer |= p.integer;
    philox |= p.philox;
    math |= p.math;
    reduce |= p.reduce;
    scan |= p.scan;
  }
};

struct CudaFacts {
  /// `results`: expressions that are needed besides those of statements.
  explicit CudaFacts(const kernel::Kernel& kernel, std::span<const kernel::ExprId> results = {});

  // By expression.
  std::vector<int> uses;    // by statements, loops and other expressions
  std::vector<bool> index;  // arithmetic on indices, which has their width and never overflows
  std::vector<bool> added;  // nothing but what a sum, a minimum or a maximum is updated with
  // By accumulator: whether its values are read inside its loop.
  std::vector<bool> reads_running, reads_before;

  CudaPreludes preludes;
  bool members = false;  // threads of a warp that share a team are told which they are
  bool turn = false;     // a block combines values in shared memory, in two places by turns

  bool is_scan(const kernel::Kernel& kernel, std::uint32_t acc) const {
    return kernel.accs[acc].monoid != kernel::Monoid::State && (reads_running[acc] || reads_before[acc]);
  }
};

/// Whether a loop of unknown length does so little that several iterations should be in flight.
bool unrolls(const kernel::Kernel& kernel, const kernel::LoopDecl& loop);
/// Into how many parts a team is cut for the loops inside a loop.
int rows_inside(const kernel::Kernel& kernel, const kernel::LoopDecl& loop);
/// Whether a team of that kernel combines values through the block's memory rather than in a warp.
inline bool combines_in_block(const kernel::Threads& threads) {
  return threads.team > 32 || threads.team == threads.block;
}

}  // namespace kiln::codegen
