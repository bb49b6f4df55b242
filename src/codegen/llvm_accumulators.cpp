// FunctionEmitter: reductions and scans. Lanes are combined by halves: a tree of fixed shape.
#include "codegen/llvm_function.h"

#include "kernel/monoid.h"
#include "support/check.h"

namespace kiln::codegen {

Value* FunctionEmitter::merge(const AccDecl& a, Value* x, Value* acc) {
  switch (a.monoid) {
    case Monoid::Sum: return v_.compute(Prim::Add, a.type, a.type, acc, x, nullptr);
    case Monoid::Prod: return v_.compute(Prim::Mul, a.type, a.type, acc, x, nullptr);
    case Monoid::Max: return v_.max(x, acc, a.type, true);
    case Monoid::Min: return v_.max(x, acc, a.type, false);
    case Monoid::ArgMax:
    case Monoid::ArgMin:
    case Monoid::State: break;
  }
  KILN_CHECK_THAT(false, "no monoid of plain values");
  return nullptr;
}

/// Whether (x, p) beats (best, q): NaN first, then the better value, then the smaller position.
Value* FunctionEmitter::beats(const AccDecl& a, Value* x, Value* p, Value* best, Value* q) {
  const bool greatest = a.monoid == Monoid::ArgMax;
  Value* earlier = b_.CreateICmpSLT(p, q);
  if (is_float(a.type)) {
    Value* better = greatest ? b_.CreateFCmpOGT(x, best) : b_.CreateFCmpOLT(x, best);
    Value* tie = b_.CreateAnd(b_.CreateFCmpOEQ(x, best), earlier);
    Value* nan = b_.CreateAnd(b_.CreateFCmpUNO(x, x), b_.CreateOr(b_.CreateFCmpORD(best, best), earlier));
    return b_.CreateOr(b_.CreateAnd(b_.CreateOr(better, tie), b_.CreateFCmpORD(best, best)), nan);
  }
  const bool is_signed = is_signed_int(a.type);
  Value* better = greatest ? (is_signed ? b_.CreateICmpSGT(x, best) : b_.CreateICmpUGT(x, best))
                           : (is_signed ? b_.CreateICmpSLT(x, best) : b_.CreateICmpULT(x, best));
  return b_.CreateOr(better, b_.CreateAnd(b_.CreateICmpEQ(x, best), earlier));
}

llvm::AllocaInst* FunctionEmitter::alloca_of(llvm::Type* t) {
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(entry_, entry_->begin());
  allocas_.push_back(b_.CreateAlloca(t));
  return allocas_.back();
}

void FunctionEmitter::begin_accs(const LoopDecl& l) {
  at_.begin_accs(l);
  for (std::uint32_t id : l.accs) {
    const LoopDecl* inside = kernel::vector_loop_of(k_, l, id);
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    llvm::Type* t = reg(a.type);
    llvm::Constant* start = constant_of(c_, a.type, kernel::identity(a));
    llvm::Constant* far = b_.getInt64(0x7fffffffffffffffull);
    llvm::Type* pt = i64();
    if (at_.lanes_of(id) != Lanes::None) {
      const unsigned n = static_cast<unsigned>(inside ? inside->lanes : lanes_);
      t = FixedVectorType::get(t, n);
      pt = FixedVectorType::get(pt, n);
      start = llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(n), start);
      far = llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(n), far);
    }
    s.value = alloca_of(t);
    b_.CreateStore(start, s.value);
    if (s.scan && at_.lanes_of(id) == Lanes::Inside) s.none = opaque(start);
    if (kernel::positional(a.monoid)) {
      s.position = alloca_of(pt);
      b_.CreateStore(far, s.position);
    }
  }
}

void FunctionEmitter::update(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  AccState& s = accs_[st.target];
  const bool lanes = at_.lanes_of(st.target) != Lanes::None;
  if (a.monoid == Monoid::State) {
    Value* next = lanes ? vector(st.value) : scalar(st.value);
    Value* active = lanes ? mask_at(depth()) : nullptr;
    b_.CreateStore(active ? b_.CreateSelect(active, next, s.before) : next, s.value);
    return;
  }
  if (s.scan) return scan(st);
  Value* mask = at_.lanes_of(st.target) == Lanes::Inside ? mask_ : nullptr;  // lanes that are never stored may hold anything
  const ExprNode product = pool_[st.value];
  if (a.monoid == Monoid::Sum && is_float(a.type) && product.prim == Prim::Mul && k_.fma && target_.fma) {
    Value* x = lanes ? vector(product.a) : scalar(product.a);
    Value* y = lanes ? vector(product.b) : scalar(product.b);
    Value* acc = b_.CreateLoad(s.value->getAllocatedType(), s.value);
    Value* next = v_.compute(Prim::Fma, a.type, a.type, x, y, acc);
    b_.CreateStore(mask ? b_.CreateSelect(mask, next, acc) : next, s.value);
    return;
  }
  Value* x = lanes ? vector(st.value) : scalar(st.value);
  Value* acc = b_.CreateLoad(s.value->getAllocatedType(), s.value);
  if (kernel::positional(a.monoid)) {
    Value* p = lanes ? vector(st.index) : scalar(st.index);
    Value* q = b_.CreateLoad(s.position->getAllocatedType(), s.position);
    Value* wins = beats(a, x, p, acc, q);
    if (mask) wins = b_.CreateAnd(wins, mask);
    b_.CreateStore(b_.CreateSelect(wins, x, acc), s.value);
    b_.CreateStore(b_.CreateSelect(wins, p, q), s.position);
    return;
  }
  Value* next = merge(a, x, acc);
  b_.CreateStore(mask ? b_.CreateSelect(mask, next, acc) : next, s.value);
}

/// One update of an accumulator that is read inside its loop. On lanes: prefixes by doubling, a tree of fixed shape,
/// then what the earlier vectors hand on; only that last step waits for them.
void FunctionEmitter::scan(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  AccState& s = accs_[st.target];
  Value* x = at_.lanes_depth() ? vector(st.value) : scalar(st.value);
  Value* acc = b_.CreateLoad(s.value->getAllocatedType(), s.value);
  at_.show_running(st.target);
  Value* next = nullptr;
  if (at_.lanes_of(st.target) != Lanes::Inside) {
    next = s.running = merge(a, x, acc);
    s.before = acc;
  } else {
    if (mask_) x = b_.CreateSelect(mask_, x, s.none);
    for (int d = 1; d < lanes_; d *= 2) x = merge(a, x, moved_up(x, s.none, d));
    next = merge(a, b_.CreateShuffleVector(x, llvm::SmallVector<int, 64>(static_cast<std::size_t>(lanes_), lanes_ - 1)), acc);
    s.running = merge(a, x, acc);
    s.before = moved_up(s.running, acc, 1);
  }
  b_.CreateStore(next, s.value);
}

/// v's lanes moved d places up, the first d lanes from the last ones of `fill`: one instruction where registers can be
/// aligned.
Value* FunctionEmitter::moved_up(Value* v, Value* fill, int d) {
  llvm::SmallVector<int, 64> lanes;
  for (int i = 0; i < lanes_; ++i) lanes.push_back(i < d ? 2 * lanes_ - d + i : i - d);
  return b_.CreateShuffleVector(v, fill, lanes);
}

/// A constant that code generation does not see through: moving lanes up past known zeros it would do by expansion
/// under a mask, which takes three times as long.
Value* FunctionEmitter::opaque(llvm::Constant* value) {
  auto* memory = new llvm::GlobalVariable(module_, value->getType(), false, llvm::GlobalValue::PrivateLinkage, value);
  return b_.CreateAlignedLoad(value->getType(), memory, llvm::Align(1));
}

Value* FunctionEmitter::upper_half(Value* v, unsigned n) {
  llvm::SmallVector<int, 64> lanes;
  for (unsigned i = n / 2; i < n; ++i) lanes.push_back(static_cast<int>(i));
  return b_.CreateShuffleVector(v, lanes);
}

Value* FunctionEmitter::lower_half(Value* v, unsigned n) {
  llvm::SmallVector<int, 64> lanes;
  for (unsigned i = 0; i < n / 2; ++i) lanes.push_back(static_cast<int>(i));
  return b_.CreateShuffleVector(v, lanes);
}

/// Final values, combined over lanes by halves: a tree of fixed shape.
void FunctionEmitter::end_accs(const LoopDecl& l) {
  for (std::uint32_t id : l.accs) {
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    Value* v = b_.CreateLoad(s.value->getAllocatedType(), s.value);
    Value* p = kernel::positional(a.monoid) ? b_.CreateLoad(s.position->getAllocatedType(), s.position) : nullptr;
    const bool inside = at_.lanes_of(id) == Lanes::Inside;
    if (inside && s.scan) {
      v = b_.CreateExtractElement(v, std::uint64_t{0});
    } else if (inside) {
      unsigned n = llvm::cast<FixedVectorType>(v->getType())->getNumElements();
      for (; n > 1; n /= 2) {
        Value *x = upper_half(v, n), *y = lower_half(v, n);
        if (p) {
          Value *px = upper_half(p, n), *py = lower_half(p, n);
          Value* wins = beats(a, x, px, y, py);
          v = b_.CreateSelect(wins, x, y);
          p = b_.CreateSelect(wins, px, py);
        } else {
          v = merge(a, x, y);
        }
      }
      v = b_.CreateExtractElement(v, std::uint64_t{0});
      if (p) p = b_.CreateExtractElement(p, std::uint64_t{0});
    }
    s.result = p ? p : v;
  }
}

}  // namespace kiln::codegen
