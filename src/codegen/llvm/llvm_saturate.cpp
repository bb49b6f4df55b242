#include "codegen/llvm/llvm_saturate.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cstdint>

namespace kiln::codegen {

using llvm::Type;
using llvm::Value;

Value* rounded_operand(Value* v) {
  const auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(v);
  return call && call->getIntrinsicID() == llvm::Intrinsic::roundeven ? call->getArgOperand(0) : nullptr;
}

Value* round_to_low_bits(llvm::IRBuilderBase& b, Value* x, Value* holds) {
  const bool wide = x->getType()->getScalarType()->isDoubleTy();
  Value* const rounder = llvm::ConstantFP::get(x->getType(), wide ? 0x1.8p52 : 0x1.8p23);
  Value* const sum = b.CreateSelect(holds, b.CreateFAdd(x, rounder), rounder);
  Type* const bits = wide ? b.getInt64Ty() : b.getInt32Ty();
  return b.CreateBitCast(sum, x->getType()->getWithNewType(bits));
}

/// The instruction answers with the least integer to what is out of range and to NaN.
static Value* truncate_register(llvm::IRBuilder<>& b, Value* v) {
  if (llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements() == 8)
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx_cvtt_ps2dq_256, {}, {v});
  constexpr std::uint64_t kCurrentRounding = 4;
  Value* none = llvm::Constant::getNullValue(v->getType()->getWithNewType(b.getInt32Ty()));
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvttps2dq_512, {},
                           {v, none, b.getInt16(0xffff), b.getInt32(kCurrentRounding)});
}

Value* saturate_avx512(llvm::IRBuilder<>& b, Value* v) {
  constexpr unsigned kLanes = 16;
  const unsigned n = llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements();
  llvm::SmallVector<Value*, 8> out;
  for (unsigned first = 0; first < n; first += kLanes) {
    Value* x = n <= kLanes ? v : b.CreateShuffleVector(v, llvm::createSequentialMask(first, kLanes, 0));
    Value* whole = truncate_register(b, x);
    whole = b.CreateSelect(b.CreateFCmpORD(x, x), whole, llvm::Constant::getNullValue(whole->getType()));
    Value* above = b.CreateFCmpOGE(x, llvm::ConstantFP::get(x->getType(), 0x1p31));
    out.push_back(b.CreateSelect(above, llvm::ConstantInt::get(whole->getType(), INT32_MAX), whole));
  }
  return n <= kLanes ? out.front() : llvm::concatenateVectors(b, out);
}

}  // namespace kiln::codegen
