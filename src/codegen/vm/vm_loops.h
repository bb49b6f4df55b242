// The ahead-of-time compiled loops of the vm: one function a primitive and dtype, compiled once for every
// instruction set in vm_loops_impl.h and chosen when the program runs.
//
// Vectors are processed in strips of kStrip lanes. An operand that is the same on all lanes is one strip,
// read again and again; so no loop needs a second form for it. Bool is one byte, 0 or 1; half types are their
// bits.
#pragma once

#include "kernel/kernel.h"

#include <cstddef>
#include <cstdint>

namespace kiln::codegen {

inline constexpr std::int64_t kStrip = 64;
inline constexpr int kPrimCount = 0
#define KILN_PRIM(Name, Operands) +1
#include "kernel/prims.def"
#undef KILN_PRIM
    ;
inline constexpr int kMonoidCount = static_cast<int>(kernel::Monoid::ArgMin) + 1;

/// Bit k of `steps` is set when operand k advances from strip to strip. `out` may be an operand of the same
/// element size; otherwise operands and result do not overlap.
using ApplyFn = void (*)(std::int64_t strips, void* out, const void* a, const void* b, const void* c,
                         unsigned steps);
/// acc[i mod lanes] = merge(acc[i mod lanes], x[i]) for i < n in ascending order; `lanes` is a power of two.
/// Of a sum of products (x y) with one rounding when y is given.
using ReduceFn = void (*)(std::int64_t n, std::int64_t lanes, void* acc, const void* x, const void* y,
                          unsigned steps);
/// The same for (value, position) pairs: the better value, NaN best of all, of equals the lesser position.
using ArgReduceFn = void (*)(std::int64_t n, std::int64_t lanes, void* acc, std::int64_t* acc_position,
                             const void* x, const std::int64_t* position, unsigned steps);
/// out[i] = p[i · stride] for i < n.
using StridedFn = void (*)(std::int64_t n, void* out, const void* p, std::int64_t stride);

struct VmLoops {
  const char* name;
  ApplyFn apply[kPrimCount][kDTypeCount] =
      {};  // by type of the first operand that carries a value; may be null
  ApplyFn convert[kDTypeCount][kDTypeCount] = {};  // [to][from]; may be null
  ReduceFn reduce[kMonoidCount][kDTypeCount] = {};
  ReduceFn sum_of_products[kDTypeCount] = {};   // floats
  ArgReduceFn arg_reduce[2][kDTypeCount] = {};  // ArgMax, ArgMin
};

/// For any CPU; for x86-64 with AVX2, FMA and F16C; for x86-64 with AVX-512 F, BW, DQ and VL. The latter two
/// are null on other architectures.
const VmLoops* vm_loops_base();
const VmLoops* vm_loops_avx2();
const VmLoops* vm_loops_avx512();

}  // namespace kiln::codegen
