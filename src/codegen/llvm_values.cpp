#include "codegen/llvm_values.h"

#include "support/check.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace kiln::codegen {

using kernel::Prim;
using llvm::Intrinsic::ID;
using llvm::Type;
using llvm::Value;

Type* register_type(llvm::LLVMContext& c, DType type) {
  if (is_bool(type)) return Type::getInt1Ty(c);
  if (type == DType::Float32) return Type::getFloatTy(c);
  if (type == DType::Float64) return Type::getDoubleTy(c);
  return Type::getIntNTy(c, static_cast<unsigned>(8 * size_of(type)));
}

Type* memory_type(llvm::LLVMContext& c, DType type) {
  return is_bool(type) ? Type::getInt8Ty(c) : register_type(c, type);
}

llvm::Constant* constant_of(llvm::LLVMContext& c, DType type, std::uint64_t bits) {
  Type* t = register_type(c, type);
  if (type == DType::Float32)
    return llvm::ConstantFP::get(c, llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, bits & 0xffffffffu)));
  if (type == DType::Float64)
    return llvm::ConstantFP::get(c, llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, bits)));
  return llvm::ConstantInt::get(t, is_bool(type) ? bits & 1 : bits);
}

Type* ValueBuilder::like(Value* v, Type* scalar) const {
  if (auto* vec = llvm::dyn_cast<llvm::VectorType>(v->getType()))
    return llvm::VectorType::get(scalar, vec->getElementCount());
  return scalar;
}

Value* ValueBuilder::splat(Type* type, std::uint64_t bits) const { return llvm::ConstantInt::get(type, bits); }

Value* ValueBuilder::max(Value* a, Value* b, DType type, bool greatest) {
  if (is_bool(type)) return greatest ? b_.CreateOr(a, b) : b_.CreateAnd(a, b);
  if (!is_float(type)) {
    const ID id = is_signed_int(type) ? (greatest ? llvm::Intrinsic::smax : llvm::Intrinsic::smin)
                                      : (greatest ? llvm::Intrinsic::umax : llvm::Intrinsic::umin);
    return b_.CreateBinaryIntrinsic(id, a, b);
  }
  // The compare and select are one max instruction (b when equal or unordered); then a NaN in a wins.
  Value* best = b_.CreateSelect(greatest ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, best);
}

Value* ValueBuilder::divide(Prim prim, Value* a, Value* b, DType type) {
  Type* t = a->getType();
  Value* zero = splat(t, 0);
  Value* one = splat(t, 1);
  Value* by_zero = b_.CreateICmpEQ(b, zero);
  Value* safe = b_.CreateSelect(by_zero, one, b);
  Value* out;
  if (is_signed_int(type)) {
    Value* minus_one = b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(t));
    safe = b_.CreateSelect(minus_one, one, safe);  // MIN / -1 traps: x / -1 is -x, x % -1 is 0
    out = prim == Prim::Div ? b_.CreateSelect(minus_one, b_.CreateNeg(a), b_.CreateSDiv(a, safe))
                            : b_.CreateSRem(a, safe);
  } else {
    out = prim == Prim::Div ? b_.CreateUDiv(a, safe) : b_.CreateURem(a, safe);
  }
  return b_.CreateSelect(by_zero, zero, out);
}

Value* ValueBuilder::rcp_approx(Value* v) {
  auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  if (!target_.avx512 || !vec || vec->getNumElements() % 16 != 0)
    return b_.CreateFDiv(llvm::ConstantFP::get(v->getType(), 1.0), v);
  const unsigned n = vec->getNumElements();
  llvm::Function* rcp = llvm::Intrinsic::getDeclaration(b_.GetInsertBlock()->getModule(), llvm::Intrinsic::x86_avx512_rcp14_ps_512);
  Value* none = llvm::Constant::getNullValue(llvm::FixedVectorType::get(vec->getElementType(), 16));
  Value* every = llvm::ConstantInt::get(b_.getInt16Ty(), 0xffff);
  Value* out = nullptr;
  for (unsigned first = 0; first < n; first += 16) {
    llvm::SmallVector<int, 16> lanes;
    for (int i = 0; i < 16; ++i) lanes.push_back(static_cast<int>(first) + i);
    Value* part = n == 16 ? v : b_.CreateShuffleVector(v, lanes);
    part = b_.CreateCall(rcp, {part, none, every});
    if (!out) {
      out = part;
    } else {  // widen `part` to the length so far, then join
      const unsigned have = llvm::cast<llvm::FixedVectorType>(out->getType())->getNumElements();
      llvm::SmallVector<int, 64> widen, join;
      for (unsigned i = 0; i < have; ++i) widen.push_back(i < 16 ? static_cast<int>(i) : -1);
      Value* wide = have == 16 ? part : b_.CreateShuffleVector(part, widen);
      for (unsigned i = 0; i < have; ++i) join.push_back(static_cast<int>(i));
      for (unsigned i = 0; i < 16; ++i) join.push_back(static_cast<int>(have + i));
      out = b_.CreateShuffleVector(out, wide, join);
    }
  }
  return out;
}

/// Float32 to the bits of a half type, rounding to nearest even.
Value* ValueBuilder::float_to_half(Value* v, DType to) {
  Type* i16 = like(v, b_.getInt16Ty());
  if (to == DType::Float16) return b_.CreateBitCast(b_.CreateFPTrunc(v, like(v, b_.getHalfTy())), i16);
  Type* i32 = like(v, b_.getInt32Ty());
  Value* bits = b_.CreateBitCast(v, i32);
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), splat(i32, 1));
  Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, splat(i32, 0x7fff)));
  Value* quiet = b_.CreateOr(bits, splat(i32, 0x400000));
  Value* out = b_.CreateSelect(b_.CreateFCmpUNO(v, v), quiet, rounded);
  return b_.CreateTrunc(b_.CreateLShr(out, 16), i16);
}

/// Float64 to Float32 rounding to odd, so that a second rounding to a half type is right.
Value* ValueBuilder::double_to_odd_float(Value* v) {
  Type* f32 = like(v, b_.getFloatTy());
  Type* i32 = like(v, b_.getInt32Ty());
  Value* near = b_.CreateFPTrunc(v, f32);
  Value* back = b_.CreateFPExt(near, v->getType());
  Value* inexact = b_.CreateFCmpUNE(back, v);
  Value* above = b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                  b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v));
  Value* bits = b_.CreateBitCast(near, i32);
  bits = b_.CreateSub(bits, b_.CreateZExt(above, i32));
  bits = b_.CreateOr(bits, b_.CreateZExt(inexact, i32));
  return b_.CreateBitCast(bits, f32);
}

Value* ValueBuilder::cast(Value* v, DType to, DType from, bool in_range) {
  if (to == from) return v;
  llvm::LLVMContext& c = b_.getContext();
  Type* t = like(v, register_type(c, to));
  if (is_half(from)) {
    Value* f;
    if (from == DType::Float16) {
      f = b_.CreateFPExt(b_.CreateBitCast(v, like(v, b_.getHalfTy())), like(v, b_.getFloatTy()));
    } else {
      Type* i32 = like(v, b_.getInt32Ty());
      f = b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(v, i32), 16), like(v, b_.getFloatTy()));
    }
    return cast(f, to, DType::Float32, in_range);
  }
  if (is_half(to)) {
    if (from == DType::Float32) return float_to_half(v, to);
    if (from == DType::Float64) return float_to_half(double_to_odd_float(v), to);
    return cast(cast(v, DType::Float64, from, false), to, DType::Float64, false);
  }
  if (is_bool(to)) {
    if (is_float(from)) return b_.CreateFCmpUNE(v, llvm::Constant::getNullValue(v->getType()));
    return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
  }
  if (is_float(from)) {
    if (is_float(to)) return to == DType::Float64 ? b_.CreateFPExt(v, t) : b_.CreateFPTrunc(v, t);
    if (in_range) return is_signed_int(to) ? b_.CreateFPToSI(v, t) : b_.CreateFPToUI(v, t);
    const ID id = is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {t, v->getType()}, {v});
  }
  if (is_float(to)) return is_signed_int(from) ? b_.CreateSIToFP(v, t) : b_.CreateUIToFP(v, t);
  return is_signed_int(from) ? b_.CreateSExtOrTrunc(v, t) : b_.CreateZExtOrTrunc(v, t);
}

Value* ValueBuilder::compute(Prim prim, DType type, DType from, Value* a, Value* b, Value* c) {
  const bool fp = is_float(from);
  const bool is_signed = is_signed_int(from);
  auto unary = [&](ID id) { return b_.CreateUnaryIntrinsic(id, a); };
  switch (prim) {
    case Prim::Const: case Prim::Param: case Prim::Slot: case Prim::Var: case Prim::Acc: case Prim::Load:
    case Prim::Call1: case Prim::Call2:
      break;
    case Prim::Neg: return fp ? b_.CreateFNeg(a) : is_bool(type) ? a : b_.CreateNeg(a);
    case Prim::Abs:
      if (fp) return unary(llvm::Intrinsic::fabs);
      return is_signed ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse()) : a;
    case Prim::Sqrt: return unary(llvm::Intrinsic::sqrt);
    case Prim::Floor: return unary(llvm::Intrinsic::floor);
    case Prim::Ceil: return unary(llvm::Intrinsic::ceil);
    case Prim::Trunc: return unary(llvm::Intrinsic::trunc);
    case Prim::RoundEven: return unary(llvm::Intrinsic::roundeven);
    case Prim::Not: return b_.CreateNot(a);
    case Prim::Cast: return cast(a, type, from, false);
    case Prim::CastInRange: return cast(a, type, from, true);
    case Prim::Bitcast: return b_.CreateBitCast(a, like(a, register_type(b_.getContext(), type)));
    case Prim::Add: return fp ? b_.CreateFAdd(a, b) : is_bool(type) ? b_.CreateOr(a, b) : b_.CreateAdd(a, b);
    case Prim::Sub: return fp ? b_.CreateFSub(a, b) : b_.CreateSub(a, b);
    case Prim::Mul: return fp ? b_.CreateFMul(a, b) : is_bool(type) ? b_.CreateAnd(a, b) : b_.CreateMul(a, b);
    case Prim::Div: return fp ? b_.CreateFDiv(a, b) : divide(prim, a, b, type);
    case Prim::Rem: return divide(prim, a, b, type);
    case Prim::Min: return max(a, b, type, false);
    case Prim::Max: return max(a, b, type, true);
    case Prim::And: return b_.CreateAnd(a, b);
    case Prim::Or: return b_.CreateOr(a, b);
    case Prim::Xor: return b_.CreateXor(a, b);
    case Prim::Shl: return b_.CreateShl(a, b);
    case Prim::Shr: return is_signed ? b_.CreateAShr(a, b) : b_.CreateLShr(a, b);
    case Prim::Eq: return fp ? b_.CreateFCmpOEQ(a, b) : b_.CreateICmpEQ(a, b);
    case Prim::Ne: return fp ? b_.CreateFCmpUNE(a, b) : b_.CreateICmpNE(a, b);
    case Prim::Lt: return fp ? b_.CreateFCmpOLT(a, b) : is_signed ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
    case Prim::Le: return fp ? b_.CreateFCmpOLE(a, b) : is_signed ? b_.CreateICmpSLE(a, b) : b_.CreateICmpULE(a, b);
    case Prim::Fma: return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
    case Prim::Select: return b_.CreateSelect(a, b, c);
    case Prim::RcpApprox: return rcp_approx(a);
  }
  KILN_CHECK_THAT(false, kernel::name(prim), " is not computed here");
  return nullptr;
}

}  // namespace kiln::codegen
