// Primitives as LLVM instructions, on scalars and vectors alike. The meaning of each is in kernel/prims.def.
#pragma once

#include "kernel/expr.h"

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>

#include <utility>

namespace kiln::codegen {

/// What the generated code may use. `vector_bytes` is the register width that kernels were scheduled for.
struct LlvmTarget {
  int vector_bytes = 16;
  bool avx512 = false;
  bool fma = false;
  bool f16c = false;
  bool vector_math = false;  // codegen/vector_math.h's functions are there
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;  // permutes the bytes of a register
};

/// Register type: Bool is i1, the half types are their bits (i16).
llvm::Type* register_type(llvm::LLVMContext& context, DType type);
/// Memory type: as above but Bool is i8.
llvm::Type* memory_type(llvm::LLVMContext& context, DType type);
llvm::Constant* constant_of(llvm::LLVMContext& context, DType type, std::uint64_t bits);

class ValueBuilder {
 public:
  ValueBuilder(llvm::IRBuilder<>& builder, const LlvmTarget& target) : b_(builder), target_(target) {}

  /// One primitive that computes (not a leaf, load or call). `from` is the type of operand a.
  llvm::Value* compute(kernel::Prim prim, DType type, DType from, llvm::Value* a, llvm::Value* b,
                       llvm::Value* c);
  llvm::Value* cast(llvm::Value* v, DType to, DType from, bool in_range);
  llvm::Value* upper_half(llvm::Value* v);
  llvm::Value* above_floor(llvm::Value* y);
  llvm::Value* saturate(llvm::Value* v, DType from, DType to);
  llvm::Value* max(llvm::Value* a, llvm::Value* b, DType type, bool greatest);

  /// The words of a Philox 4x32-10 block under a key, in the low halves of 64-bit values (what stands above
  /// them is anything), lane by lane.
  struct Block {
    llvm::Value* word[4];
  };
  using RoundKey = llvm::function_ref<llvm::Value*(int round, int half)>;  // like `block`, below 2^32
  Block philox_block(llvm::Value* block, RoundKey key);
  /// Words 0 and 1, and 2 and 3, as whole 64-bit values.
  std::pair<llvm::Value*, llvm::Value*> philox_pairs(const Block& b);
  /// The key of a round as an expression of the kernel's key.
  llvm::Value* philox_key(llvm::Value* key, int round, int half);

  /// One of two values of equal type, each computed on its own branch. `likely`: the first, mostly.
  llvm::Value* branch(llvm::Value* condition, llvm::function_ref<llvm::Value*()> then_value,
                      llvm::function_ref<llvm::Value*()> else_value, bool likely = false);

  /// Bounded quotients of vectors that may still use the divider; the others multiply by a reciprocal.
  /// `roots`: square roots may not, either.
  void keep_on_divider(int quotients, bool roots) { on_divider_ = quotients, multiply_roots_ = !roots; }

 private:
  llvm::Type* like(llvm::Value* v, llvm::Type* scalar) const;
  llvm::Value* splat(llvm::Type* type, std::uint64_t bits) const;
  llvm::Value* divide(kernel::Prim prim, llvm::Value* a, llvm::Value* b, DType type);
  llvm::Value* half_to_float(llvm::Value* v);
  llvm::Value* float_to_half(llvm::Value* v);
  llvm::Value* float_to_bfloat(llvm::Value* v);
  llvm::Value* round_to_bfloat(llvm::Value* v);
  llvm::Value* bfloat_to_float(llvm::Value* v);
  llvm::Value* double_to_odd_float(llvm::Value* v);
  bool has_intrinsics(llvm::Value* v) const;
  template <class F>
  llvm::Value* by_register(llvm::ArrayRef<llvm::Value*> in, unsigned lanes, F one);
  llvm::Value* fix_up(llvm::Value* v, llvm::Value* x, std::uint64_t classes);
  llvm::Value* keep_nan(llvm::Value* v, llvm::Value* x);
  llvm::Value* fma(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
  }
  llvm::Value* approximate(llvm::Value* x, llvm::Intrinsic::ID half, llvm::Intrinsic::ID full);
  llvm::Value* root(llvm::Value* x);
  llvm::Value* divide_bounded(llvm::Value* a, llvm::Value* b);
  llvm::Value* scale(llvm::Value* a, llvm::Value* b);
  llvm::Value* exponent(llvm::Value* a);
  llvm::Value* mantissa(llvm::Value* a);
  llvm::Value* philox(llvm::Value* index, llvm::Value* key, DType type);

  llvm::IRBuilder<>& b_;
  const LlvmTarget& target_;
  int on_divider_ = 0;
  bool multiply_roots_ = false;
  llvm::Value* spread_words_ = nullptr;  // of a register's upper halves (bfloat_to_float)
};

}  // namespace kiln::codegen
