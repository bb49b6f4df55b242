// lower_pair_pass: kernels with the main loop pair_sums_mma for sums over pairs on a GPU, whose hooks are
// made of the sums' terms.
//
// Sums over columns and reductions of rows are launches whose rows are those of the pairs; of sums over rows
// they are the columns of the pairs. So each result has one block that makes it, and no order of additions
// depends on chance. Each pass makes the products and weights that it needs again. On Hopper, outside of the
// strict and the deterministic mode, a launch may add to one sum along the other axis from all its blocks, in
// the order in which they come (PairPass::adds): that saves the launch that would make all products again.
#pragma once

#include "lower/lower.h"
#include "plan/pair_sums.h"

#include <cstddef>
#include <vector>

namespace kiln::lower {

/// One launch of those that sums over pairs are.
struct PairPass {
  enum class Kind : std::uint8_t {
    Statistics,  // of `level`
    Flags,       // which tiles of columns Sums may leave out
    Zeros,       // begins the sum that a launch adds to beside its own
    Sums,
    Stores  // makes a result of the sum that was added to
  } kind = Kind::Sums;
  bool over_rows = false;         // rows of the launch are the columns of the pairs
  int level = 0;                  // Statistics
  std::vector<std::size_t> sums;  // into PairSums::sums
  int flags = -1;       // the number of the memory with the flags of tiles; -1: none may be left out
  bool checks = false;  // Sums: finds its flags itself, there is no pass before it
  int adds = -1;        // Sums: the sum along the other axis to which it adds, into PairSums::sums
  int added = -1;       // the number of that sum's memory, of Float32; Zeros and Stores have it too
  int row_flags = -1;   // with `adds`: of the flags of what it multiplies, which is rows of this launch
};

/// In the order in which they run. Pre: plan::refuse_on_gpu says nothing.
std::vector<PairPass> pair_passes(const plan::Graph& graph, const plan::PairSums& sums,
                                  const schedule::Target& target);

/// Buffers with Kind::Partial are memory that passes share: BufferSource::id is its number.
Lowered lower_pair_pass(const plan::Graph& graph, const plan::PairSums& sums, const PairPass& pass,
                        const schedule::Target& target);

}  // namespace kiln::lower
