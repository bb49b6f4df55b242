#include "codegen/llvm/llvm_values.h"

#include "codegen/llvm/llvm_saturate.h"
#include "support/check.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <cmath>

namespace kiln::codegen {

using kernel::Prim;
using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

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
    return llvm::ConstantFP::get(
        c, llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, bits & 0xffffffffu)));
  if (type == DType::Float64)
    return llvm::ConstantFP::get(c, llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, bits)));
  return llvm::ConstantInt::get(t, is_bool(type) ? bits & 1 : bits);
}

Type* ValueBuilder::like(Value* v, Type* scalar) const {
  if (auto* vec = llvm::dyn_cast<llvm::VectorType>(v->getType()))
    return llvm::VectorType::get(scalar, vec->getElementCount());
  return scalar;
}

Value* ValueBuilder::splat(Type* type, std::uint64_t bits) const {
  return llvm::ConstantInt::get(type, bits);
}

/// 1 for a single value.
static int lanes_of(Value* v) {
  auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return vec ? static_cast<int>(vec->getNumElements()) : 1;
}

Value* ValueBuilder::max(Value* a, Value* b, DType type, bool greatest) {
  if (is_bool(type)) return greatest ? b_.CreateOr(a, b) : b_.CreateAnd(a, b);
  if (!is_float(type)) {
    const ID id = is_signed_int(type) ? (greatest ? llvm::Intrinsic::smax : llvm::Intrinsic::smin)
                                      : (greatest ? llvm::Intrinsic::umax : llvm::Intrinsic::umin);
    return b_.CreateBinaryIntrinsic(id, a, b);
  }
  // The compare and select are one max instruction (b when equal or unordered); then a NaN in a wins.
  Value* best = b_.CreateSelect(greatest ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
  if (!llvm::isa<llvm::Constant>(a) && has_intrinsics(a)) return keep_nan(best, a);
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

Value* ValueBuilder::branch(Value* condition, llvm::function_ref<Value*()> then_value,
                            llvm::function_ref<Value*()> else_value, bool likely) {
  // The builder may stand at the end of an open block or before a loop's branch: split there.
  llvm::Instruction *then_end, *else_end;
  llvm::Instruction* at =
      b_.GetInsertPoint() == b_.GetInsertBlock()->end() ? b_.CreateUnreachable() : &*b_.GetInsertPoint();
  const bool open = llvm::isa<llvm::UnreachableInst>(at);
  llvm::MDNode* weights = likely ? llvm::MDBuilder(b_.getContext()).createLikelyBranchWeights() : nullptr;
  llvm::SplitBlockAndInsertIfThenElse(condition, at->getIterator(), &then_end, &else_end, weights);
  b_.SetInsertPoint(then_end);
  Value* first = then_value();
  b_.SetInsertPoint(else_end);
  Value* second = else_value();
  llvm::BasicBlock* joined = at->getParent();
  b_.SetInsertPoint(at);
  llvm::PHINode* out = b_.CreatePHI(first->getType(), 2);
  out->addIncoming(first, then_end->getParent());
  out->addIncoming(second, else_end->getParent());
  if (open) {
    at->eraseFromParent();
    b_.SetInsertPoint(joined);
  }
  return out;
}

/// Whether the AVX-512 forms of scale, above_floor, exponent, mantissa and reciprocal take this vector, whole
/// or in parts.
bool ValueBuilder::has_intrinsics(Value* v) const {
  auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return target_.avx512 && vec && (vec->getNumElements() == 8 || vec->getNumElements() % 16 == 0);
}

/// one(parts of at most so many lanes), joined.
template <class F>
Value* ValueBuilder::by_register(llvm::ArrayRef<Value*> in, unsigned lanes, F one) {
  const unsigned n = llvm::cast<llvm::FixedVectorType>(in[0]->getType())->getNumElements();
  if (n <= lanes) return one(in);
  llvm::SmallVector<Value*, 4> out;
  for (unsigned first = 0; first < n; first += lanes) {
    llvm::SmallVector<Value*, 3> part;
    for (Value* v : in)
      part.push_back(b_.CreateShuffleVector(v, llvm::createSequentialMask(first, lanes, 0)));
    out.push_back(one(part));
  }
  return llvm::concatenateVectors(b_, out);
}

namespace {

constexpr std::uint64_t kCurrentRounding = 4;
// vgetmantps: normalise to [3/4, 3/2) and take the magnitude; a negative operand gives NaN.
constexpr std::uint64_t kMantissaFrom34 = 3 | 3 << 2;

/// The 256- or 512-bit form of an AVX-512 instruction, unmasked: `in`, then what a masked-out lane would get,
/// the mask and, at 512 bits only, the rounding.
Value* avx512_call(llvm::IRBuilder<>& b, ID half, ID full, llvm::ArrayRef<Value*> in, bool rounds) {
  llvm::Type* t = in[0]->getType();
  const bool wide = llvm::cast<llvm::FixedVectorType>(t)->getNumElements() == 16;
  llvm::SmallVector<Value*, 6> args(in.begin(), in.end());
  args.push_back(llvm::Constant::getNullValue(t));
  args.push_back(wide ? b.getInt16(0xffff) : b.getInt8(0xff));
  if (wide && rounds) args.push_back(b.getInt32(kCurrentRounding));
  return b.CreateCall(llvm::Intrinsic::getDeclaration(b.GetInsertBlock()->getModule(), wide ? full : half),
                      args);
}

}  // namespace

/// `v`, or x where the four bits of x's class are 1: one instruction (vfixupimm).
Value* ValueBuilder::fix_up(Value* v, Value* x, std::uint64_t classes) {
  const bool wide = v->getType()->getScalarType()->isDoubleTy();
  llvm::Type* word = wide ? b_.getInt64Ty() : b_.getInt32Ty();
  return by_register({v, x}, wide ? 8 : 16, [&](llvm::ArrayRef<Value*> in) -> Value* {
    const unsigned n = llvm::cast<llvm::FixedVectorType>(in[0]->getType())->getNumElements();
    const bool full = n * word->getIntegerBitWidth() == 512;
    Value* answers = b_.CreateVectorSplat(n, llvm::ConstantInt::get(word, classes));
    llvm::SmallVector<Value*, 6> args{in[0], in[1], answers, b_.getInt32(0), b_.getIntN(n, (1u << n) - 1)};
    if (full) args.push_back(b_.getInt32(kCurrentRounding));
    const ID id = wide   ? llvm::Intrinsic::x86_avx512_mask_fixupimm_pd_512
                  : full ? llvm::Intrinsic::x86_avx512_mask_fixupimm_ps_512
                         : llvm::Intrinsic::x86_avx512_mask_fixupimm_ps_256;
    return b_.CreateCall(llvm::Intrinsic::getDeclaration(b_.GetInsertBlock()->getModule(), id), args);
  });
}

/// `v`, or x where that is NaN: instead of a comparison, which one port alone has, and a choice.
Value* ValueBuilder::keep_nan(Value* v, Value* x) { return fix_up(v, x, 0x11); }  // quiet, signalling

/// 1 / x within 2^-14 of itself, or of the square root of x.
Value* ValueBuilder::approximate(Value* x, ID half, ID full) {
  return by_register({x}, 16,
                     [&](llvm::ArrayRef<Value*> in) { return avx512_call(b_, half, full, in, false); });
}

/// The square root, without the divider where a loop has quotients for that: from about 1 / sqrt(x) a step of
/// Goldschmidt's leads to s = sqrt(x) and h = 1 / (2 sqrt(x)), and the remainder x - s s, exact from 2^-110
/// on, to the rounded root: of all 2^24 mantissas, also by approximations 2^-15 off the processor's. Below it
/// is within 1 ulp. (Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990.)
Value* ValueBuilder::root(Value* x) {
  if (!multiply_roots_ || !x->getType()->getScalarType()->isFloatTy() || !has_intrinsics(x))
    return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
  Value* half = llvm::ConstantFP::get(x->getType(), 0.5);
  Value* y =
      approximate(x, llvm::Intrinsic::x86_avx512_rsqrt14_ps_256, llvm::Intrinsic::x86_avx512_rsqrt14_ps_512);
  Value *s = b_.CreateFMul(x, y), *h = b_.CreateFMul(y, half);
  Value* off = fma(b_.CreateFNeg(s), h, half);
  s = fma(s, off, s), h = fma(h, off, h);
  return fix_up(fma(fma(b_.CreateFNeg(s), s, x), h, s), x, 0x100100);  // zeros, and infinity
}

Value* ValueBuilder::divide_bounded(Value* a, Value* b) {
  if (!has_intrinsics(a)) return b_.CreateFDiv(a, b);
  if (on_divider_ > 0) {
    --on_divider_;
    return b_.CreateFDiv(a, b);
  }
  Value* r =
      approximate(b, llvm::Intrinsic::x86_avx512_rcp14_ps_256, llvm::Intrinsic::x86_avx512_rcp14_ps_512);
  // The remainder is exact, so that one correction leaves 2^-28 beside the last rounding.
  Value* q = b_.CreateFMul(a, r);
  return fma(fma(b_.CreateFNeg(q), b, a), r, q);
}

/// y - floor(y), rounded down; a zero has y's sign. Pre: has_intrinsics; no lane is infinite.
Value* ValueBuilder::above_floor(Value* y) {
  constexpr std::uint64_t kBelow = 1 | 8;  // by the floor, without exceptions
  return by_register({y}, 16, [&](llvm::ArrayRef<Value*> in) {
    return avx512_call(b_, llvm::Intrinsic::x86_avx512_mask_reduce_ps_256,
                       llvm::Intrinsic::x86_avx512_mask_reduce_ps_512, {in[0], b_.getInt32(kBelow)}, true);
  });
}

Value* ValueBuilder::scale(Value* a, Value* b) {
  if (has_intrinsics(a)) {
    return by_register({a, b}, 16, [&](llvm::ArrayRef<Value*> in) {
      return avx512_call(b_, llvm::Intrinsic::x86_avx512_mask_scalef_ps_256,
                         llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, in, true);
    });
  }
  // Two factors of half the exponent, so that only the second product rounds. Adding 1.5 * 2^23 leaves b in
  // the low bits: unlike a conversion, that is defined for the NaN which comes with a NaN `a`. Twice the bias
  // of an exponent is added with it, and the shifts drop everything else.
  Type* i32 = like(a, b_.getInt32Ty());
  Value* n = b_.CreateBitCast(b_.CreateFAdd(b, llvm::ConstantFP::get(a->getType(), 0x1.8p23 + 2 * 127)), i32);
  Value* half = b_.CreateAShr(n, 1);
  auto power = [&](Value* e) { return b_.CreateBitCast(b_.CreateShl(e, 23), a->getType()); };
  return b_.CreateFMul(b_.CreateFMul(a, power(half)), power(b_.CreateSub(n, half)));
}

namespace {

/// Exponent and mantissa in integer arithmetic, common to both primitives: code generation merges the two
/// copies.
struct Split {
  Value *subnormal, *exponent_bits, *mantissa;
};

Split split(llvm::IRBuilder<>& b, Value* a, Type* i32) {
  Type* t = a->getType();
  auto lit = [&](double v) { return llvm::ConstantFP::get(t, v); };
  Split s;
  s.subnormal = b.CreateFCmpOLT(a, lit(0x1p-126));
  Value* bits = b.CreateBitCast(b.CreateSelect(s.subnormal, b.CreateFMul(a, lit(0x1p23)), a), i32);
  s.exponent_bits = b.CreateAnd(b.CreateSub(bits, llvm::ConstantInt::get(i32, 0x3f400000)),
                                llvm::ConstantInt::get(i32, 0xff800000u));
  s.mantissa = b.CreateBitCast(b.CreateSub(bits, s.exponent_bits), t);
  return s;
}

}  // namespace

Value* ValueBuilder::mantissa(Value* a) {
  if (!has_intrinsics(a)) return split(b_, a, like(a, b_.getInt32Ty())).mantissa;
  return by_register({a}, 16, [&](llvm::ArrayRef<Value*> in) {
    return avx512_call(b_, llvm::Intrinsic::x86_avx512_mask_getmant_ps_256,
                       llvm::Intrinsic::x86_avx512_mask_getmant_ps_512, {in[0], b_.getInt32(kMantissaFrom34)},
                       true);
  });
}

Value* ValueBuilder::exponent(Value* a) {
  Type* t = a->getType();
  if (has_intrinsics(a)) {
    // getexp is the floor of log2: one too few where the mantissa is below 1, whose own getexp is -1.
    auto getexp = [&](Value* v) {
      return by_register({v}, 16, [&](llvm::ArrayRef<Value*> in) {
        return avx512_call(b_, llvm::Intrinsic::x86_avx512_mask_getexp_ps_256,
                           llvm::Intrinsic::x86_avx512_mask_getexp_ps_512, in, true);
      });
    };
    return b_.CreateFSub(getexp(a), getexp(mantissa(a)));
  }
  auto lit = [&](double v) { return llvm::ConstantFP::get(t, v); };
  const Split s = split(b_, a, like(a, b_.getInt32Ty()));
  Value* n = b_.CreateFMul(b_.CreateSIToFP(s.exponent_bits, t), lit(0x1p-23));
  n = b_.CreateFAdd(n, b_.CreateSelect(s.subnormal, lit(-23), lit(0)));
  n = b_.CreateSelect(b_.CreateFCmpOLT(a, lit(HUGE_VAL)), n, a);
  n = b_.CreateSelect(b_.CreateFCmpOEQ(a, lit(0)), lit(-HUGE_VAL), n);
  return b_.CreateSelect(b_.CreateFCmpOLT(a, lit(0)), lit(NAN), n);
}

// The multiplications take 64-bit lanes, whose instruction reads their low halves only: no word needs its
// upper half cleared on the way.
ValueBuilder::Block ValueBuilder::philox_block(Value* block, RoundKey key) {
  constexpr std::uint64_t kLow = 0xffffffffu, kFirst = 0xd2511f53u, kSecond = 0xcd9e8d57u;
  Type* t = block->getType();
  Value* none = llvm::Constant::getNullValue(t);
  Value* c[4] = {block, b_.CreateLShr(block, 32), none, none};
  for (int round = 0; round < 10; ++round) {
    Value* p = b_.CreateMul(b_.CreateAnd(c[0], splat(t, kLow)), splat(t, kFirst));
    Value* q = round == 0 ? none : b_.CreateMul(b_.CreateAnd(c[2], splat(t, kLow)), splat(t, kSecond));
    c[0] = b_.CreateXor(b_.CreateXor(b_.CreateLShr(q, 32), c[1]), key(round, 0));
    c[2] = b_.CreateXor(b_.CreateXor(b_.CreateLShr(p, 32), c[3]), key(round, 1));
    c[1] = q;
    c[3] = p;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

std::pair<Value*, Value*> ValueBuilder::philox_pairs(const Block& b) {
  auto join = [&](Value* low, Value* high) {
    return b_.CreateOr(b_.CreateAnd(low, splat(low->getType(), 0xffffffffu)), b_.CreateShl(high, 32));
  };
  return {join(b.word[0], b.word[1]), join(b.word[2], b.word[3])};
}

Value* ValueBuilder::philox_key(Value* key, int round, int half) {
  constexpr std::uint64_t kSteps[] = {0x9e3779b9u, 0xbb67ae85u};
  Type* t = key->getType();
  Value* word = half ? b_.CreateLShr(key, 32) : key;
  return b_.CreateAnd(b_.CreateAdd(word, splat(t, kSteps[half] * static_cast<std::uint64_t>(round))),
                      splat(t, 0xffffffffu));
}

/// Every lane's own block, of which it takes a word or two.
Value* ValueBuilder::philox(Value* index, Value* key, DType type) {
  Type* t = index->getType();
  const bool single = type == DType::UInt32;
  const auto [low, high] =
      philox_pairs(philox_block(b_.CreateLShr(index, single ? 2 : 1),
                                [&](int round, int half) { return philox_key(key, round, half); }));
  Value* upper = b_.CreateICmpNE(b_.CreateAnd(index, splat(t, single ? 2 : 1)), splat(t, 0));
  Value* pair = b_.CreateSelect(upper, high, low);
  if (!single) return pair;
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(index, splat(t, 1)), splat(t, 0));
  return b_.CreateTrunc(b_.CreateSelect(odd, b_.CreateLShr(pair, 32), pair), like(index, b_.getInt32Ty()));
}

/// Float16 bits to Float32. Without the instruction LLVM would call the compiler's runtime library, which a
/// process need not have: 13 bits to the left the fields are in place but for the exponent, 112 too small.
/// Subnormals are added to the exponent of 2^-14, which is then subtracted: that never touches a subnormal
/// Float32.
Value* ValueBuilder::half_to_float(Value* v) {
  Type* f32 = like(v, b_.getFloatTy());
  if (target_.f16c) return b_.CreateFPExt(b_.CreateBitCast(v, like(v, b_.getHalfTy())), f32);
  Type* i32 = like(v, b_.getInt32Ty());
  constexpr std::uint64_t kRebias = 112u << 23;
  Value* bits = b_.CreateZExt(v, i32);
  Value* magnitude = b_.CreateShl(b_.CreateAnd(bits, splat(i32, 0x7fff)), 13);
  Value* normal = b_.CreateAdd(magnitude, splat(i32, kRebias));
  Value* special = b_.CreateAdd(normal, splat(i32, kRebias));  // infinities and NaN: exponent 255
  Value* shifted = b_.CreateBitCast(b_.CreateOr(magnitude, splat(i32, 113u << 23)), f32);
  Value* subnormal = b_.CreateBitCast(b_.CreateFSub(shifted, llvm::ConstantFP::get(f32, 0x1p-14)), i32);
  Value* out = b_.CreateSelect(b_.CreateICmpULT(magnitude, splat(i32, 1u << 23)), subnormal, normal);
  out = b_.CreateSelect(b_.CreateICmpULT(magnitude, splat(i32, 0x7c00u << 13)), out, special);
  Value* sign = b_.CreateShl(b_.CreateAnd(bits, splat(i32, 0x8000)), 16);
  return b_.CreateBitCast(b_.CreateOr(out, sign), f32);
}

/// Float32 to Float16 bits, rounding to nearest even; in integers where the instruction is missing.
Value* ValueBuilder::float_to_half(Value* v) {
  Type* i16 = like(v, b_.getInt16Ty());
  if (target_.f16c) return b_.CreateBitCast(b_.CreateFPTrunc(v, like(v, b_.getHalfTy())), i16);
  Type* i32 = like(v, b_.getInt32Ty());
  Value* bits = b_.CreateBitCast(v, i32);
  Value* magnitude = b_.CreateAnd(bits, splat(i32, 0x7fffffff));
  Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, 13), splat(i32, 1));
  Value* rounded =
      b_.CreateAdd(b_.CreateSub(magnitude, splat(i32, 112u << 23)), b_.CreateAdd(odd, splat(i32, 0xfff)));
  Value* out = b_.CreateLShr(rounded, 13);
  // Below 2^-14: adding 1/2 leaves the subnormal's digits, rounded, in the low bits.
  Type* f32 = v->getType();
  Value* half = llvm::ConstantFP::get(f32, 0.5);
  Value* small = b_.CreateBitCast(b_.CreateFAdd(b_.CreateBitCast(magnitude, f32), half), i32);
  out = b_.CreateSelect(b_.CreateICmpULT(magnitude, splat(i32, 113u << 23)),
                        b_.CreateSub(small, splat(i32, 0x3f000000)), out);
  Value* nan = b_.CreateOr(b_.CreateAnd(b_.CreateLShr(magnitude, 13), splat(i32, 0x3ff)), splat(i32, 0x7e00));
  Value* beyond =
      b_.CreateSelect(b_.CreateICmpUGT(magnitude, splat(i32, 0x7f800000)), nan, splat(i32, 0x7c00));
  out = b_.CreateSelect(b_.CreateICmpULT(magnitude, splat(i32, 143u << 23)), out, beyond);
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, 16), splat(i32, 0x8000));
  return b_.CreateTrunc(b_.CreateOr(out, sign), i16);
}

/// Float32 to BFloat16 bits, rounding to nearest even, in integers.
Value* ValueBuilder::round_to_bfloat(Value* v) {
  Type* i16 = like(v, b_.getInt16Ty());
  Type* i32 = like(v, b_.getInt32Ty());
  Value* bits = b_.CreateBitCast(v, i32);
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), splat(i32, 1));
  Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, splat(i32, 0x7fff)));
  Value* quiet = b_.CreateOr(bits, splat(i32, 0x400000));
  Value* out = b_.CreateSelect(b_.CreateFCmpUNO(v, v), quiet, rounded);
  return b_.CreateTrunc(b_.CreateLShr(out, 16), i16);
}

/// The same by the instruction for whole registers, or for two at once, where there is one. It takes
/// subnormal numbers for zeros: vectors that hold one are rounded in integers.
Value* ValueBuilder::float_to_bfloat(Value* v) {
  if (!target_.avx512_bf16 || lanes_of(v) % 16 != 0) return round_to_bfloat(v);
  constexpr std::uint32_t kSubnormal = 0x20;
  const unsigned n = static_cast<unsigned>(lanes_of(v));
  const auto part = [&](unsigned first) {
    return n == 16 ? v : b_.CreateShuffleVector(v, llvm::createSequentialMask(first, 16, 0));
  };
  const auto intrinsic = [&](ID id, llvm::ArrayRef<Value*> in) { return b_.CreateIntrinsic(id, {}, in); };
  Value* subnormal = nullptr;
  for (unsigned first = 0; first < n; first += 16) {
    Value* found =
        intrinsic(llvm::Intrinsic::x86_avx512_fpclass_ps_512, {part(first), b_.getInt32(kSubnormal)});
    subnormal = subnormal ? b_.CreateOr(subnormal, found) : found;
  }
  Value* none = b_.CreateICmpEQ(b_.CreateBitCast(subnormal, b_.getInt16Ty()), b_.getInt16(0));
  const auto at_once = [&] {
    llvm::SmallVector<Value*, 4> out;
    for (unsigned first = 0; first < n; first += 32)
      out.push_back(
          first + 16 < n
              ? intrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {part(first + 16), part(first)})
              : intrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {part(first)}));
    return b_.CreateBitCast(llvm::concatenateVectors(b_, out), like(v, b_.getInt16Ty()));
  };
  return branch(none, at_once, [&] { return round_to_bfloat(v); }, true);
}

/// BFloat16 bits to Float32. With AVX-512 one permutation puts the bits of a register's lanes into their
/// upper halves, and zeros below. Its order comes from memory: code generation would make two instructions of
/// a permutation that it knows, as of widening and shifting.
Value* ValueBuilder::bfloat_to_float(Value* v) {
  Type *f32 = like(v, b_.getFloatTy()), *i32 = like(v, b_.getInt32Ty());
  const unsigned n = static_cast<unsigned>(lanes_of(v));
  if (!target_.avx512 || n % 16 != 0) return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(v, i32), 16), f32);
  llvm::Module* module = b_.GetInsertBlock()->getModule();
  constexpr std::uint16_t kZero = 16;
  if (!spread_words_) {
    llvm::SmallVector<llvm::Constant*, 32> order;
    for (std::uint16_t l = 0; l < 16; ++l) order.append({b_.getInt16(kZero), b_.getInt16(l)});
    auto* memory =
        new llvm::GlobalVariable(*module, llvm::FixedVectorType::get(b_.getInt16Ty(), 32), false,
                                 llvm::GlobalValue::PrivateLinkage, llvm::ConstantVector::get(order));
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> first(&entry, entry.getFirstInsertionPt());
    spread_words_ = first.CreateAlignedLoad(memory->getValueType(), memory, llvm::Align(1));
  }
  llvm::Value* zeros = llvm::Constant::getNullValue(v->getType());
  llvm::SmallVector<Value*, 4> out;
  for (unsigned first = 0; first < n; first += 16) {
    llvm::SmallVector<int, 32> lanes(32, static_cast<int>(n));
    for (unsigned l = 0; l < 16; ++l) lanes[l] = static_cast<int>(first + l);
    Value* spread = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_hi_512, {},
                                       {b_.CreateShuffleVector(v, zeros, lanes), spread_words_});
    out.push_back(b_.CreateBitCast(spread, llvm::FixedVectorType::get(b_.getFloatTy(), 16)));
  }
  return llvm::concatenateVectors(b_, out);
}

/// A Float32 that is a BFloat16, as one.
Value* ValueBuilder::upper_half(Value* v) {
  Value* bits = b_.CreateBitCast(v, like(v, b_.getInt32Ty()));
  return b_.CreateTrunc(b_.CreateLShr(bits, 16), like(v, b_.getInt16Ty()));
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
    Value* f = from == DType::Float16 ? half_to_float(v) : bfloat_to_float(v);
    return cast(f, to, DType::Float32, in_range);
  }
  if (is_half(to)) {
    if (from == DType::Float64) v = double_to_odd_float(v);
    if (is_float(from)) return to == DType::Float16 ? float_to_half(v) : float_to_bfloat(v);
    return cast(cast(v, DType::Float64, from, false), to, DType::Float64, false);
  }
  if (is_bool(to)) {
    if (is_float(from)) return b_.CreateFCmpUNE(v, llvm::Constant::getNullValue(v->getType()));
    return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
  }
  if (is_float(from)) {
    if (is_float(to)) return to == DType::Float64 ? b_.CreateFPExt(v, t) : b_.CreateFPTrunc(v, t);
    if (in_range) return is_signed_int(to) ? b_.CreateFPToSI(v, t) : b_.CreateFPToUI(v, t);
    if (size_of(to) <= 2 || v->getType()->isVectorTy()) return saturate(v, from, to);
    const ID id = is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b_.CreateIntrinsic(id, {t, v->getType()}, {v});
  }
  if (is_float(to)) return is_signed_int(from) ? b_.CreateSIToFP(v, t) : b_.CreateUIToFP(v, t);
  return is_signed_int(from) ? b_.CreateSExtOrTrunc(v, t) : b_.CreateZExtOrTrunc(v, t);
}

/// A float as an integer: clamped to the integer's range, then truncated; NaN becomes 0. LLVM converts
/// vectors so element by element, and vectors to narrow integers in any way: those go by way of 32 bits.
/// Where the float type lacks the greatest integer, the clamp ends at the float below it.
Value* ValueBuilder::saturate(Value* v, DType from, DType to) {
  if (from == DType::Float32 && to == DType::Int32 && has_intrinsics(v)) return saturate_avx512(b_, v);
  const int bits = static_cast<int>(8 * size_of(to));
  const bool is_signed = is_signed_int(to), narrow = bits < 32;
  const double beyond = std::ldexp(1.0, is_signed ? bits - 1 : bits), low = is_signed ? -beyond : 0;
  const int digits = from == DType::Float64 ? 53 : 24, magnitude = is_signed ? bits - 1 : bits;
  const bool exact = magnitude <= digits;
  const double high = exact ? beyond - 1 : beyond - std::ldexp(1.0, magnitude - digits);
  Value* const near = narrow ? rounded_operand(v) : nullptr;  // the ends of the range are integers
  if (near) v = near;
  Value *most = llvm::ConstantFP::get(v->getType(), high), *least = llvm::ConstantFP::get(v->getType(), low);
  Value* x = b_.CreateSelect(b_.CreateFCmpOLT(v, most), v, most);
  x = b_.CreateSelect(b_.CreateFCmpOGT(x, least), x, least);
  Type* t = like(v, register_type(b_.getContext(), to));
  if (near) return b_.CreateTrunc(round_to_low_bits(b_, x, b_.CreateFCmpORD(v, v)), t);
  Type* wide_type = narrow ? like(v, b_.getInt32Ty()) : t;
  Value* wide = is_signed || narrow ? b_.CreateFPToSI(x, wide_type) : b_.CreateFPToUI(x, wide_type);
  if (!exact) {
    const llvm::APInt greatest = is_signed ? llvm::APInt::getSignedMaxValue(static_cast<unsigned>(bits))
                                           : llvm::APInt::getMaxValue(static_cast<unsigned>(bits));
    Value* above = b_.CreateFCmpOGE(v, llvm::ConstantFP::get(v->getType(), beyond));
    wide = b_.CreateSelect(above, llvm::ConstantInt::get(wide_type, greatest), wide);
  }
  wide = b_.CreateSelect(b_.CreateFCmpORD(v, v), wide, llvm::Constant::getNullValue(wide->getType()));
  return narrow ? b_.CreateTrunc(wide, t) : wide;
}

Value* ValueBuilder::compute(Prim prim, DType type, DType from, Value* a, Value* b, Value* c) {
  const bool fp = is_float(from);
  const bool is_signed = is_signed_int(from);
  auto unary = [&](ID id) { return b_.CreateUnaryIntrinsic(id, a); };
  switch (prim) {
    case Prim::Const:
    case Prim::Param:
    case Prim::Slot:
    case Prim::Var:
    case Prim::Acc:
    case Prim::Running:
    case Prim::Before:
    case Prim::Earlier:
    case Prim::Later:
    case Prim::Load:
    case Prim::Call1:
    case Prim::Call2:
    case Prim::FromIndex:
    case Prim::IndexDiv: break;
    case Prim::Neg: return fp ? b_.CreateFNeg(a) : is_bool(type) ? a : b_.CreateNeg(a);
    case Prim::Abs:
      if (fp) return unary(llvm::Intrinsic::fabs);
      return is_signed ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse()) : a;
    case Prim::Sqrt: return root(a);
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
    case Prim::Lt:
      return fp ? b_.CreateFCmpOLT(a, b) : is_signed ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
    case Prim::Le:
      return fp ? b_.CreateFCmpOLE(a, b) : is_signed ? b_.CreateICmpSLE(a, b) : b_.CreateICmpULE(a, b);
    case Prim::Fma: return fma(a, b, c);
    case Prim::Select: return b_.CreateSelect(a, b, c);
    case Prim::DivBounded: return divide_bounded(a, b);
    case Prim::Scale: return scale(a, b);
    case Prim::Exponent: return exponent(a);
    case Prim::Mantissa: return mantissa(a);
    case Prim::Philox: return philox(a, b, type);
    case Prim::Native: break;  // a GPU's
  }
  KILN_CHECK_THAT(false, kernel::name(prim), " is not computed here");
  return nullptr;
}

}  // namespace kiln::codegen
