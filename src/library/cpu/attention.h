// Attentions on the CPU: blocks of rows meet tiles of columns, and no array of rows × columns exists.
//
// A unit of work is a block of as many rows as the micro-kernel of matrix products has columns. Tiles are
// transposed, so that rows of a block lie on lanes: the micro-kernel's result is a tile, the generated kernel
// reduces it without shuffling lanes, and the weights it writes are a packed operand of the second product.
// k and v are packed once for all blocks that read them.
//
// A tile whose exponentials are all 0 is left out, if its part of v is finite: 0 · NaN is NaN.
#pragma once

#include "library/attention.h"

namespace kiln::cpu {

const library::AttentionRoutine& attention();

}  // namespace kiln::cpu
