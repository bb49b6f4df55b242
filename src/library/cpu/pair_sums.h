// Sums over pairs on the CPU: blocks of rows meet tiles of columns, and no array of rows × columns exists.
//
// A unit of work is a matrix of the batch, or a chunk of its rows. It takes blocks of as many rows as the
// micro-kernel of matrix products has columns. For a block, the products of all columns are in memory of the
// thread (rows of a block × columns, for each product), so that statistics and weights are made of them in as
// many sweeps as there are levels. Tiles are transposed, with rows on lanes, as in attention.cpp. Sums over
// columns end with their block; sums over rows are added up block by block, in one order, and those of chunks
// in the order of the chunks: the bits do not depend on which thread ran what.
//
// A tile is left out where interval arithmetic, with the greatest magnitudes of the operands, knows that all
// weights are 0 and what they multiply is finite.
#pragma once

#include "library/pair_sums.h"

namespace kiln::cpu {

const library::PairSumsRoutine& pair_sums();

}  // namespace kiln::cpu
