// expand: one elementwise op over scalar expressions, from the expansion column of ops.def.
#pragma once

#include "ir/op.h"
#include "kernel/expr.h"
#include "schedule/target.h"

namespace kiln::lower {

/// Type an operation on `dtype` is computed in: half types compute in Float32.
constexpr DType compute_type(DType dtype) { return is_half(dtype) ? DType::Float32 : dtype; }

/// Pre: operands have their compute types (unused ones are empty); `type` is the dtype they were recorded
/// with. Post: the result in its compute type.
kernel::E expand(ir::Op op, kernel::E x, kernel::E y, kernel::E z, DType type);

/// The same for a GPU, where it has Float32 functions of its own. `rough`: an error of 2^-17 vanishes in what
/// is stored.
kernel::E expand_gpu(ir::Op op, bool rough, kernel::E x, kernel::E y, kernel::E z, DType type);

/// The same for a CPU, and for one with AVX-512, where an instruction makes y - floor(y) and another puts
/// floor(y) on as an exponent.
kernel::E expand_cpu(ir::Op op, bool rough, kernel::E x, kernel::E y, kernel::E z, DType type);
kernel::E expand_avx512(ir::Op op, bool rough, kernel::E x, kernel::E y, kernel::E z, DType type);

/// tanh(x) of a Float32 on a GPU, within 2^-22 as such: for what is added to numbers near 1 and above.
kernel::E expand_tanh_beside_one(kernel::E x);

/// e^x where -87 <= x <= 88: Float32 and Float64, the same bits as Op::exp.
kernel::E expand_exp_in_range(kernel::E x);

/// e^x of a Float32 where -87 <= x <= 88 or x is NaN, with 2^n by one shift: a CPU's. The errors of Op::exp.
kernel::E expand_exp_by_shift(kernel::E x);

/// Float32 functions, where no instruction puts on an exponent: the bits of Op::sigmoid, Op::silu, Op::gelu
/// and Op::gelu_tanh but for subnormal results, which are rounded once here.
kernel::E expand_sigmoid_by_shift(kernel::E x);
kernel::E expand_silu_by_shift(kernel::E x);
kernel::E expand_gelu_by_shift(kernel::E x);
kernel::E expand_gelu_tanh_by_shift(kernel::E x);

/// log x of a Float32 that is at least 1 and finite, or NaN, with the errors of Op::log; some finite number
/// where x is 0.
kernel::E expand_log_from_one(kernel::E x);

/// e^x of a Float32 where x <= 0 or NaN, a CPU's: the bits of Op::exp. `roughly`: an error of 2^-17.
kernel::E expand_exp_to_one(kernel::E x);
kernel::E expand_exp_to_one_roughly(kernel::E x);
/// The same with AVX-512.
kernel::E expand_exp_to_one_avx512(kernel::E x);
kernel::E expand_exp_to_one_roughly_avx512(kernel::E x);

/// e^x where -87 <= x <= 0, for a sum that has an e^0: 2^-23 relative to the sum; of a Float64 (-700) 2^-52.
kernel::E expand_exp_of_sum(kernel::E x);
/// e^x and 2^x of a Float32 where x <= 0, likewise for a sum, with AVX-512; infinite where x is.
kernel::E expand_exp_of_sum_avx512(kernel::E x);
kernel::E expand_exp2_of_sum_avx512(kernel::E x);
/// What halves x and the greatest of them, `base`, are multiplied by, so that 2^(x - base) serves a sum like
/// e^(x - base): log2(e), or 1 where halves lie so far apart that all others vanish beside the greatest.
kernel::E scale_of_halves(kernel::E base);

/// Primitives each op expands to (Float32 where the op allows it), for Target::op_cost.
std::vector<float> op_costs(bool gpu);

}  // namespace kiln::lower
