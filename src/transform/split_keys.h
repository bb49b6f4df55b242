// split_keys: attentions of few rows over many keys, a part of the keys at a time.
#pragma once

#include "transform/replacement.h"

#include <cstdint>

namespace kiln::transform {

/// What is worth it for a target.
struct KeyCosts {
  std::int64_t blocks = 0;                          // of a main loop that keep the target busy, …
  std::int64_t small_blocks = 0;                    // … and of few rows and narrow heads, which are small
  std::int64_t few_rows = 32, narrow = 64;          // … at most; of halves some of these …
  std::int64_t narrow_floats = 256;                 // … and of floats wider ones that have several rows
  std::int64_t hardly_rows = 8, narrowest = 32;     // … have at most so many rows, or are so narrow
  std::int64_t most_rows = 64, most_width = 256;    // more rows keep a block busy for long
  std::int64_t least_keys = 512, small_keys = 128;  // of a part
};

/// Attentions, softmax(f(q kᵀ)) v for an f of numbers alone, that have fewer blocks of rows than keep the
/// target busy become a batch of attentions: of each part of the keys with its own greatest score and sum,
/// which are stored beside the result, and a sum over the parts. Parts are equal; where their
/// number does not divide that of the keys, neighbours share a few keys. Values change in the last bits;
/// special values do not: the greatest of a part's scores counts as the least finite number where it is -inf,
/// so that a part of nothing adds nothing. Pre: verify(graph). Post: verify(graph).
Renumbering split_keys(ir::Graph& graph, const KeyCosts& costs);

}  // namespace kiln::transform
