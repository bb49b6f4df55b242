// lower_pair_pass: kernels with the main loop pair_sums_mma for sums over pairs on a GPU, whose hooks are
// made of the sums' terms.
//
// Sums over columns and reductions of rows are launches whose rows are those of the pairs; of sums over rows
// they are the columns of the pairs. So each result has one block that makes it, and no order of additions
// depends on chance. Each pass makes the products and weights that it needs again.
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
    Sums
  } kind = Kind::Sums;
  bool over_rows = false;         // rows of the launch are the columns of the pairs
  int level = 0;                  // Statistics
  std::vector<std::size_t> sums;  // into PairSums::sums
  int flags = -1;       // the number of the memory with the flags of tiles; -1: none may be left out
  bool checks = false;  // Sums: finds its flags itself, there is no pass before it
};

/// In the order in which they run. Pre: plan::refuse_on_gpu says nothing.
std::vector<PairPass> pair_passes(const plan::Graph& graph, const plan::PairSums& sums,
                                  const schedule::Target& target);

/// Buffers with Kind::Partial are memory that passes share: BufferSource::id is its number.
Lowered lower_pair_pass(const plan::Graph& graph, const plan::PairSums& sums, const PairPass& pass,
                        const schedule::Target& target);

}  // namespace kiln::lower
