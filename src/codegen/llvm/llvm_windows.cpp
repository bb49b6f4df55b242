// FunctionEmitter: what loops inside a Vector loop find out once for all their iterations.
//
// An index is split into a base, equal on all lanes, and offsets, which the inner loop does not change. So a
// gather adds nothing to its offsets in the loop, and where they are near each other it becomes two loads of
// adjacent elements and a permutation, which is prepared before the loop.
#include "codegen/llvm/llvm_function.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace kiln::codegen {

constexpr std::int64_t kRegisterBytes = 64;

std::optional<FunctionEmitter::LaneSplit> FunctionEmitter::lane_split(ExprId e) {
  const int lanes_depth = at_.lanes_depth();
  if (!lanes_depth || depth() <= lanes_depth) return std::nullopt;
  const ExprNode n = pool_[e];
  const E zero = kernel::constant(pool_, DType::Int64, 0), all{&pool_, e};
  if (!at_.varying(e)) return LaneSplit{all, zero};
  if (at_.depth_of(e) <= lanes_depth) return LaneSplit{zero, all};
  if (n.type != DType::Int64) return std::nullopt;
  if (n.prim == Prim::Add || n.prim == Prim::Sub) {
    const auto a = lane_split(n.a), b = a ? lane_split(n.b) : std::nullopt;
    if (!b) return std::nullopt;
    if (n.prim == Prim::Add) return LaneSplit{a->base + b->base, a->lanes + b->lanes};
    return LaneSplit{a->base - b->base, a->lanes - b->lanes};
  }
  if (n.prim != Prim::Mul) return std::nullopt;
  const bool by_b = !at_.varying(n.b);
  const ExprId by = by_b ? n.b : n.a;
  if (at_.varying(by) || at_.depth_of(by) > lanes_depth) return std::nullopt;
  const auto x = lane_split(by_b ? n.a : n.b);
  const E k{&pool_, by};
  return x ? std::optional(LaneSplit{x->base * k, x->lanes * k}) : std::nullopt;
}

/// Whether a value is made of positions and sizes alone: sums of such do not wrap around.
bool FunctionEmitter::is_position(ExprId e) const {
  const ExprNode n = pool_[e];
  switch (n.prim) {
    case Prim::Const:
    case Prim::Param:
    case Prim::Var: return true;
    case Prim::Neg: return is_position(n.a);
    case Prim::Add:
    case Prim::Sub:
    case Prim::Mul:
    case Prim::Min:
    case Prim::Max:
    case Prim::IndexDiv: return is_position(n.a) && is_position(n.b);
    default: return false;
  }
}

/// A comparison of positions in a loop inside the Vector loop: the lanes' side is computed before it.
Value* FunctionEmitter::compare_split(ExprId e, const ExprNode& n) {
  if (pool_[n.a].type != DType::Int64 || at_.depth_of(e) <= at_.lanes_depth()) return nullptr;
  if (!is_position(n.a) || !is_position(n.b)) return nullptr;
  const auto a = lane_split(n.a), b = a ? lane_split(n.b) : std::nullopt;
  if (!b) return nullptr;
  const E lanes = a->lanes - b->lanes, bound = b->base - a->base;
  sync();
  Value *left = vector(lanes.id), *right = scalar(bound.id);
  return place(at_.depth_of(e), e, vector_, [&] {
    Value* all = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), right);
    return v_.compute(n.prim, DType::Bool, DType::Int64, left, all, nullptr);
  });
}

/// Whether a load's elements may be looked for in a window: all that decides which they are is known before
/// the inner loop.
bool FunctionEmitter::takes_window(const ExprNode& n, const LaneSplit& split) {
  const std::int64_t size = is_bool(n.type) ? 1 : size_of(n.type);
  const auto known_before = [&](ExprId e) { return at_.depth_of(e) <= at_.lanes_depth(); };
  return target_.avx512 && size >= 2 && lanes_ >= 8 && lanes_ * size <= 4 * kRegisterBytes &&
         at_.varying(split.lanes.id) && known_before(split.lanes.id) && (n.b == kNoExpr || known_before(n.b));
}

const FunctionEmitter::Window& FunctionEmitter::window_of(const ExprNode& n, const LaneSplit& split) {
  for (const Window& w : windows_)
    if (w.lanes == split.lanes.id && w.predicate == n.b && size_of(w.type) == size_of(n.type)) return w;
  Value* offsets = vector(split.lanes.id);
  Value* on = n.b == kNoExpr ? nullptr : vector(n.b);
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth()) + 1].preheader_end);
  const auto count = static_cast<unsigned>(lanes_);
  const auto each = [&](std::int64_t x) {
    return b_.CreateVectorSplat(count, b_.getInt64(static_cast<std::uint64_t>(x)));
  };
  const std::int64_t size = size_of(n.type), register_elements = kRegisterBytes / size;
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  Value* active = combine(mask_at(at_.lanes_depth()), on);
  const auto or_else = [&](std::int64_t x) {
    return active ? b_.CreateSelect(active, offsets, each(x)) : offsets;
  };
  Value* first = b_.CreateIntMinReduce(or_else(kFar), true);
  Value* length = b_.CreateSub(b_.CreateIntMaxReduce(or_else(-kFar), true), first);
  Window w{split.lanes.id, n.b, n.type, nullptr, first, {}, {nullptr, nullptr}, nullptr, nullptr};
  w.any = b_.CreateICmpSGE(length, b_.getInt64(0));
  w.fits = b_.CreateICmpSLT(length, b_.getInt64(static_cast<std::uint64_t>(2 * register_elements)));
  w.second = b_.CreateICmpSGE(length, b_.getInt64(static_cast<std::uint64_t>(register_elements)));
  llvm::Type* narrow = b_.getIntNTy(static_cast<unsigned>(8 * size));
  Value* order = b_.CreateTrunc(b_.CreateSub(offsets, b_.CreateVectorSplat(count, first)), vec(narrow));
  for (std::int64_t lane = 0; lane < lanes_; lane += register_elements) {
    llvm::SmallVector<int, 64> lanes;
    for (std::int64_t k = 0; k < register_elements; ++k)
      lanes.push_back(static_cast<int>(std::min<std::int64_t>(lane + k, lanes_ - 1)));
    w.order.push_back(b_.CreateShuffleVector(order, lanes));
  }
  // As bits: comparisons would be made again at each use.
  for (std::int64_t half = 0; half < 2; ++half) {
    const auto unused = static_cast<std::uint64_t>(64 - 1 + half * register_elements);
    Value* past = b_.CreateSub(b_.getInt64(unused), length);
    past = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, past,
                                    b_.getInt64(64 - static_cast<std::uint64_t>(register_elements)));
    past = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, past, b_.getInt64(63));
    w.masks[half] = b_.CreateTrunc(b_.CreateLShr(b_.getInt64(~std::uint64_t{0}), past),
                                   b_.getIntNTy(static_cast<unsigned>(register_elements)));
  }
  windows_.push_back(w);
  return windows_.back();
}

/// The elements of a window, 0 where `n` has a predicate that is false; a gather where they are not in one.
Value* FunctionEmitter::window_load(const ExprNode& n, const LaneSplit& split, Value* mask) {
  const Window w = window_of(n, split);
  llvm::Type* t = memory_type(c_, n.type);
  const std::int64_t size = size_of(n.type), register_elements = kRegisterBytes / size;
  Value *offsets = vector(split.lanes.id), *base = b_.CreateGEP(t, buffers_[n.imm], scalar(split.base.id));
  Value* predicate = n.b == kNoExpr ? nullptr : vector(n.b);
  const auto from_window = [&]() -> Value* {
    llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(8 * size));
    llvm::Type* whole = vec_of(bits, static_cast<int>(register_elements));
    Value* at = b_.CreateSelect(w.any, b_.CreateGEP(t, base, w.first), zero_memory());
    // Beyond the buffer even a load of no lanes takes long.
    Value* next = b_.CreateConstGEP1_64(bits, at, static_cast<std::uint64_t>(register_elements));
    next = b_.CreateSelect(w.second, next, zero_memory());
    const auto half = [&](Value* from, Value* bits) {
      Value* lanes = b_.CreateBitCast(bits, vec_of(b_.getInt1Ty(), static_cast<int>(register_elements)));
      return b_.CreateMaskedLoad(whole, from, element_align(n.type), lanes,
                                 llvm::Constant::getNullValue(whole));
    };
    Value* halves[2] = {half(at, w.masks[0]), half(next, w.masks[1])};
    const llvm::Intrinsic::ID permute = size == 2   ? llvm::Intrinsic::x86_avx512_vpermi2var_hi_512
                                        : size == 4 ? llvm::Intrinsic::x86_avx512_vpermi2var_d_512
                                                    : llvm::Intrinsic::x86_avx512_vpermi2var_q_512;
    llvm::Function* permuted = llvm::Intrinsic::getDeclaration(&module_, permute);
    llvm::SmallVector<Value*, 4> parts;
    for (Value* order : w.order) parts.push_back(b_.CreateCall(permuted, {halves[0], order, halves[1]}));
    Value* out = llvm::concatenateVectors(b_, parts);
    if (static_cast<std::int64_t>(w.order.size()) * register_elements != lanes_)
      out = b_.CreateShuffleVector(out, llvm::createSequentialMask(0, static_cast<unsigned>(lanes_), 0));
    if (predicate) out = b_.CreateSelect(predicate, out, llvm::Constant::getNullValue(out->getType()));
    return b_.CreateBitCast(out, vec(t));
  };
  return branch(w.fits, from_window, [&] { return gather(b_.CreateGEP(t, base, offsets), t, n.type, mask); });
}

}  // namespace kiln::codegen
