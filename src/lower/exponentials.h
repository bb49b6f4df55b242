// exponentials: what is known of an exponential from how its operand is made.
#pragma once

#include "kernel/expr.h"
#include "lower/pull.h"
#include "schedule/target.h"

namespace kiln::lower {

/// Whether exponentials may count on AVX-512's instructions, which split an exponent and scale by it.
inline bool scales_by_instruction(const schedule::Target& t) { return !t.gpu && t.vector_bytes >= 64; }

/// e^x for an entry of a CPU's kernel that is e^(a - m), where m is the greatest a or the greatest of some
/// with it, as in a softmax: none is above 1, so that 2^n is put on by one shift. Empty where the entry is
/// anything else. Post: the bits of Op::exp. `rough`: an error of 2^-17 vanishes in what is stored. `avx512`:
/// scales_by_instruction.
kernel::E exp_to_one(const ir::Graph& g, const Pulled& p, EntryId id, kernel::E x, bool rough, bool avx512);

}  // namespace kiln::lower
