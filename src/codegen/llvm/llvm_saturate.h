// llvm_saturate: conversions of floats to integers of which every float has one.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace kiln::codegen {

/// What is rounded to the nearest integer, ties to even; null: the value is made in another way.
llvm::Value* rounded_operand(llvm::Value* v);

/// A float within 16 bits, or 0 where `holds` is false, as the nearest integer, ties to even: the low bits of
/// its sum with a number whose last bit is a one. That is one addition for the rounding and the conversion.
llvm::Value* round_to_low_bits(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* holds);

/// Float32 as Int32 with AVX-512, 8 lanes or multiples of 16: truncated, the nearest integer where it is out
/// of range, 0 of NaN.
llvm::Value* saturate_avx512(llvm::IRBuilder<>& b, llvm::Value* v);

}  // namespace kiln::codegen
