// FunctionEmitter: reductions and scans. Lanes are combined by halves: a tree of fixed shape.
#include "codegen/llvm/llvm_function.h"

#include "codegen/llvm/legalize_vector.h"
#include "kernel/monoid.h"
#include "support/check.h"

#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>
#include <unordered_map>

namespace kiln::codegen {

/// What combines two values, or their parts.
Parts FunctionEmitter::merge(const AccDecl& a, const Parts& x, const Parts& acc) {
  switch (a.monoid) {
    case Monoid::Sum: return {v_.compute(Prim::Add, a.type, a.type, acc[0], x[0], nullptr)};
    case Monoid::Prod: return {v_.compute(Prim::Mul, a.type, a.type, acc[0], x[0], nullptr)};
    case Monoid::Max: return {v_.max(x[0], acc[0], a.type, true)};
    case Monoid::Min: return {v_.max(x[0], acc[0], a.type, false)};
    case Monoid::Custom: return with_parts(k_.customs[a.custom].merge, x, acc);
    case Monoid::ArgMax:
    case Monoid::ArgMin:
    case Monoid::State: break;
  }
  KILN_CHECK_THAT(false, "no monoid of plain values");
  return {};
}

Parts FunctionEmitter::lift(const AccDecl& a, Value* x) {
  return a.monoid == Monoid::Custom ? with_parts(k_.customs[a.custom].lift, {x}, {}) : Parts{x};
}

Value* FunctionEmitter::show(const AccDecl& a, const Parts& parts) {
  return a.monoid == Monoid::Custom ? with_parts({k_.customs[a.custom].show}, {}, parts)[0] : parts[0];
}

/// Expressions of a custom monoid, on one lane or on as many as the parts have.
Parts FunctionEmitter::with_parts(llvm::ArrayRef<ExprId> roots, const Parts& later, const Parts& earlier) {
  auto* vector = llvm::dyn_cast<FixedVectorType>((later.empty() ? earlier : later)[0]->getType());
  std::unordered_map<ExprId, Value*> made;
  const auto make = [&](auto& self, ExprId e) -> Value* {
    if (const auto it = made.find(e); it != made.end()) return it->second;
    const ExprNode n = pool_[e];
    if (n.prim == Prim::Later) return later[n.imm];
    if (n.prim == Prim::Earlier) return earlier[n.imm];
    if (n.prim == Prim::Const) {
      llvm::Constant* c = constant_of(c_, n.type, n.imm);
      return vector ? llvm::ConstantVector::getSplat(vector->getElementCount(), c) : c;
    }
    if (const E legal = vector ? legalize_vector(pool_, e, false) : E{})
      return made[e] = self(self, legal.id);
    if (const VectorFunction f =
            vector ? vector_function_of(n, static_cast<int>(vector->getNumElements())) : VectorFunction{};
        f.value && !f.in_range)
      return made[e] = self(self, f.value.id);
    Value* in[3] = {};
    int i = 0;
    each_operand(n, [&](ExprId o) { in[i++] = self(self, o); });
    return made[e] = n.prim == Prim::Call1 || n.prim == Prim::Call2
                         ? call(n, in)
                         : v_.compute(n.prim, n.type, pool_[n.prim == Prim::Select ? n.b : n.a].type, in[0],
                                      in[1], in[2]);
  };
  Parts out;
  for (ExprId root : roots) out.push_back(make(make, root));
  return out;
}

/// Whether a value beats the best of those before it, whose positions are less: NaN first, then the better
/// value.
Value* FunctionEmitter::better(const AccDecl& a, Value* x, Value* best) {
  const bool greatest = a.monoid == Monoid::ArgMax;
  if (is_float(a.type))
    return b_.CreateAnd(greatest ? b_.CreateFCmpUGT(x, best) : b_.CreateFCmpULT(x, best),
                        b_.CreateFCmpORD(best, best));
  if (is_signed_int(a.type)) return greatest ? b_.CreateICmpSGT(x, best) : b_.CreateICmpSLT(x, best);
  return greatest ? b_.CreateICmpUGT(x, best) : b_.CreateICmpULT(x, best);
}

llvm::AllocaInst* FunctionEmitter::alloca_of(llvm::Type* t) {
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(entry_, entry_->begin());
  allocas_.push_back(b_.CreateAlloca(t));
  return allocas_.back();
}

/// The types of what an accumulator keeps, and the bits of their identities.
std::vector<std::pair<DType, std::uint64_t>> FunctionEmitter::kept(const AccDecl& a) const {
  if (a.monoid != Monoid::Custom) return {{a.type, kernel::identity(a)}};
  const kernel::CustomMonoid& c = k_.customs[a.custom];
  std::vector<std::pair<DType, std::uint64_t>> out;
  for (std::size_t p = 0; p < c.types.size(); ++p) out.push_back({c.types[p], c.identity[p]});
  return out;
}

void FunctionEmitter::begin_accs(const LoopDecl& l) {
  at_.begin_accs(l);
  for (std::uint32_t id : l.accs) {
    const LoopDecl* inside = kernel::vector_loop_of(k_, l, id);
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    const bool lanes = at_.lanes_of(id) != Lanes::None;
    const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(inside ? inside->lanes : lanes_));
    const auto begin = [&](llvm::Constant* start) {
      if (lanes) start = llvm::ConstantVector::getSplat(count, start);
      llvm::AllocaInst* kept = alloca_of(start->getType());
      b_.CreateStore(start, kept);
      return kept;
    };
    s.parts.clear();
    s.none.clear();
    for (const auto& [type, bits] : kept(a)) {
      llvm::Constant* start = constant_of(c_, type, bits);
      s.parts.push_back(begin(start));
      if (s.scan && at_.lanes_of(id) == Lanes::Inside)
        s.none.push_back(opaque(llvm::ConstantVector::getSplat(count, start)));
    }
    // A lane that meets nothing better than the identity keeps position 0: the answer if no lane does.
    if (kernel::positional(a.monoid))
      s.position = begin(llvm::ConstantInt::get(lanes ? position_type(a) : i64(), 0));
  }
}

Parts FunctionEmitter::load_parts(const AccState& s) {
  Parts out;
  for (llvm::AllocaInst* p : s.parts) out.push_back(b_.CreateLoad(p->getAllocatedType(), p));
  return out;
}

void FunctionEmitter::store_parts(const AccState& s, const Parts& parts) {
  for (std::size_t p = 0; p < parts.size(); ++p) b_.CreateStore(parts[p], s.parts[p]);
}

void FunctionEmitter::update(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  AccState& s = accs_[st.target];
  const bool lanes = at_.lanes_of(st.target) != Lanes::None;
  if (a.monoid == Monoid::State) {
    Value* next = lanes ? vector(st.value) : scalar(st.value);
    Value* active = lanes ? mask_at(depth()) : nullptr;
    b_.CreateStore(active ? b_.CreateSelect(active, next, s.before) : next, s.parts[0]);
    return;
  }
  if (s.scan) return scan(st);
  // lanes that are never stored may hold anything
  Value* mask = at_.lanes_of(st.target) == Lanes::Inside ? mask_ : nullptr;
  const ExprNode product = pool_[st.value];
  if (a.monoid == Monoid::Sum && is_float(a.type) && product.prim == Prim::Mul && k_.fma && target_.fma) {
    Value* x = lanes ? vector(product.a) : scalar(product.a);
    Value* y = lanes ? vector(product.b) : scalar(product.b);
    Value* acc = load_parts(s)[0];
    Value* next = v_.compute(Prim::Fma, a.type, a.type, x, y, acc);
    b_.CreateStore(mask ? b_.CreateSelect(mask, next, acc) : next, s.parts[0]);
    return;
  }
  Value* x = lanes ? vector(st.value) : scalar(st.value);
  const Parts acc = load_parts(s);
  if (kernel::positional(a.monoid)) {
    Value* p = lanes ? positions(a, st.index) : scalar(st.index);
    return keep_better(a, s, x, p, mask);
  }
  Parts next = has_magnitudes(st.target) ? Parts{greater_magnitude(x, acc[0])} : merge(a, lift(a, x), acc);
  if (mask)
    for (std::size_t p = 0; p < next.size(); ++p) next[p] = b_.CreateSelect(mask, next[p], acc[p]);
  store_parts(s, next);
}

/// Whether an accumulator is the greatest of absolute values in Float32, and nothing else is combined into
/// it.
bool FunctionEmitter::has_magnitudes(std::uint32_t acc) const {
  if (k_.accs[acc].monoid != Monoid::Max || k_.accs[acc].type != DType::Float32) return false;
  bool all = true;
  const auto look = [&](auto& self, const std::vector<Stmt>& body) -> void {
    for (const Stmt& s : body)
      if (s.kind == Stmt::Kind::Loop)
        self(self, k_.loops[s.target].body);
      else if (s.kind == Stmt::Kind::Update && s.target == acc)
        all = all && pool_[s.value].prim == Prim::Abs;
  };
  for (const auto* section : {&k_.body, &k_.link, &k_.second, &k_.finish}) look(look, *section);
  return all;
}

/// The greater of two numbers without signs, the second of which may also be minus infinity: as integers, of
/// which those of NaN are the greatest. An instruction where Monoid::Max takes two or more.
Value* FunctionEmitter::greater_magnitude(Value* x, Value* acc) {
  llvm::Type* bits = x->getType()->getWithNewType(b_.getInt32Ty());
  Value* greater =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b_.CreateBitCast(x, bits), b_.CreateBitCast(acc, bits));
  return b_.CreateBitCast(greater, x->getType());
}

/// Positions on lanes have as many bits as the values where they are narrow: masks of both are the same.
llvm::Type* FunctionEmitter::position_type(const AccDecl& a) {
  return a.narrow && size_of(a.type) <= 4 ? b_.getInt32Ty() : i64();
}

Value* FunctionEmitter::positions(const AccDecl& a, ExprId index) {
  llvm::Type* t = position_type(a);
  const std::optional<std::int64_t> stride = kernel::known(at_.lane_stride(index));
  sync();
  if (t == i64() || !stride) return b_.CreateTrunc(vector(index), vec(t));
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (std::int64_t l = 0; l < lanes_; ++l)
    steps.push_back(llvm::ConstantInt::get(t, static_cast<std::uint64_t>(l * *stride)));
  Value* first = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.CreateTrunc(scalar(index), t));
  return b_.CreateAdd(first, llvm::ConstantVector::get(steps));
}

/// The better of what an accumulator has and x at p. Register by register: the masks of several registers
/// would be joined and taken apart again.
void FunctionEmitter::keep_better(const AccDecl& a, AccState& s, Value* x, Value* p, Value* mask) {
  Value* best = b_.CreateLoad(s.parts[0]->getAllocatedType(), s.parts[0]);
  Value* at = b_.CreateLoad(s.position->getAllocatedType(), s.position);
  const auto keep = [&](Value* x, Value* p, Value* mask, Value*& best, Value*& at) {
    Value* wins = better(a, x, best);
    if (mask) wins = b_.CreateAnd(wins, mask);
    best = b_.CreateSelect(wins, x, best);
    at = b_.CreateSelect(wins, p, at);
  };
  auto* type = llvm::dyn_cast<FixedVectorType>(x->getType());
  const unsigned bytes = std::max<unsigned>(static_cast<unsigned>(size_of(a.type)),
                                            p->getType()->getScalarSizeInBits() / 8),
                 part = static_cast<unsigned>(target_.vector_bytes) / bytes;
  if (!type || type->getNumElements() <= part) {
    keep(x, p, mask, best, at);
  } else {
    llvm::SmallVector<Value*, 8> values, places;
    for (unsigned first = 0; first < type->getNumElements(); first += part) {
      const auto of = [&](Value* v) {
        return v ? b_.CreateShuffleVector(v, llvm::createSequentialMask(first, part, 0)) : nullptr;
      };
      values.push_back(of(best));
      places.push_back(of(at));
      keep(of(x), of(p), of(mask), values.back(), places.back());
    }
    best = llvm::concatenateVectors(b_, values);
    at = llvm::concatenateVectors(b_, places);
  }
  b_.CreateStore(best, s.parts[0]);
  b_.CreateStore(at, s.position);
}

/// One update of an accumulator that is read inside its loop. On lanes: prefixes by doubling, a tree of fixed
/// shape, then what the earlier vectors hand on; only that last step waits for them.
void FunctionEmitter::scan(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  AccState& s = accs_[st.target];
  Parts x = lift(a, at_.lanes_depth() ? vector(st.value) : scalar(st.value)), acc = load_parts(s), next;
  at_.show_running(st.target);
  if (at_.lanes_of(st.target) != Lanes::Inside) {
    next = merge(a, x, acc);
    s.running = s.reads_running ? show(a, next) : nullptr;
    s.before = s.reads_before ? show(a, acc) : nullptr;
  } else {
    const auto each_part = [&](Parts parts, auto f) {
      for (std::size_t p = 0; p < parts.size(); ++p) parts[p] = f(parts[p], p);
      return parts;
    };
    if (mask_)
      x = each_part(x, [&](Value* v, std::size_t p) { return b_.CreateSelect(mask_, v, s.none[p]); });
    Parts running;
    const auto prefixes = [&] {
      for (int d = 1; d < lanes_; d *= 2)
        x = merge(a, x, each_part(x, [&](Value* v, std::size_t p) { return moved_up(v, s.none[p], d); }));
      next = merge(a, each_part(x, [&](Value* v, std::size_t) { return last_lane(v); }), acc);
      running = merge(a, x, acc);
    };
    if (a.monoid == Monoid::Custom && !k_.exact && kernel::sums_relative(pool_, k_.customs[a.custom]))
      scan_relative(a, x, acc, s.none, prefixes, next, running);
    else
      prefixes();
    s.running = s.reads_running ? show(a, running) : nullptr;
    s.before =
        s.reads_before
            ? show(a, each_part(running, [&](Value* v, std::size_t p) { return moved_up(v, acc[p], 1); }))
            : nullptr;
  }
  store_parts(s, next);
}

/// Prefixes of a maximum and a sum relative to it. Where no lane exceeds the maximum so far, which is most
/// vectors of most data, that stays the maximum of all of them, and the sums relative to it are added: one
/// exponential a lane instead of one for each step. `prefixes` is the other way, and the only one of exact
/// kernels: other engines merge in pairs, which rounds elsewhere.
void FunctionEmitter::scan_relative(const AccDecl& a, Parts x, const Parts& acc, const Parts& none,
                                    llvm::function_ref<void()> prefixes, Parts& next, Parts& running) {
  const auto block_named = [&](const char* name) { return BasicBlock::Create(c_, name, fn_); };
  BasicBlock *greater = block_named("greater"), *below = block_named("below"),
             *joined = block_named("joined");
  b_.CreateCondBr(any(b_.CreateFCmpUGT(x[0], acc[0])), greater, below);
  b_.SetInsertPoint(greater);
  prefixes();
  BasicBlock* greater_end = b_.GetInsertBlock();
  b_.CreateBr(joined);
  b_.SetInsertPoint(below);
  Value* sum = merge(a, x, {acc[0], none[1]})[1];
  const auto added = [&](Value* to) { return v_.compute(Prim::Add, a.type, a.type, to, sum, nullptr); };
  for (int d = 1; d < lanes_; d *= 2) sum = added(moved_up(sum, none[1], d));
  sum = added(acc[1]);
  const Parts here{acc[0], sum}, last{acc[0], last_lane(sum)};
  BasicBlock* below_end = b_.GetInsertBlock();
  b_.CreateBr(joined);
  b_.SetInsertPoint(joined);
  const auto join = [&](Parts& parts, const Parts& others) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      llvm::PHINode* value = b_.CreatePHI(parts[p]->getType(), 2);
      value->addIncoming(parts[p], greater_end);
      value->addIncoming(others[p], below_end);
      parts[p] = value;
    }
  };
  join(next, last);
  join(running, here);
}

/// On every lane the last one's value.
Value* FunctionEmitter::last_lane(Value* v) {
  return b_.CreateShuffleVector(v, llvm::SmallVector<int, 64>(static_cast<std::size_t>(lanes_), lanes_ - 1));
}

/// v's lanes moved d places up, the first d lanes from the last ones of `fill`: one instruction where
/// registers can be aligned.
Value* FunctionEmitter::moved_up(Value* v, Value* fill, int d) {
  llvm::SmallVector<int, 64> lanes;
  for (int i = 0; i < lanes_; ++i) lanes.push_back(i < d ? 2 * lanes_ - d + i : i - d);
  return b_.CreateShuffleVector(v, fill, lanes);
}

/// A constant that code generation does not see through: moving lanes up past known zeros it would do by
/// expansion under a mask, which takes three times as long.
Value* FunctionEmitter::opaque(llvm::Constant* value) {
  auto* memory =
      new llvm::GlobalVariable(module_, value->getType(), false, llvm::GlobalValue::PrivateLinkage, value);
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

/// The position of the best of all lanes: the least of those that have it, NaN being best of all.
Value* FunctionEmitter::best_position(const AccDecl& a, Value* values, Value* positions) {
  Value* best = values;
  unsigned n = llvm::cast<FixedVectorType>(values->getType())->getNumElements();
  llvm::Type* word = positions->getType()->getScalarType();
  Value* all = b_.CreateVectorSplat(
      n, llvm::ConstantInt::get(word, llvm::APInt::getSignedMaxValue(word->getIntegerBitWidth())));
  for (; n > 1; n /= 2)
    best = v_.max(upper_half(best, n), lower_half(best, n), a.type, a.monoid == Monoid::ArgMax);
  const auto count = llvm::cast<FixedVectorType>(values->getType())->getElementCount();
  best = b_.CreateVectorSplat(count, b_.CreateExtractElement(best, std::uint64_t{0}));
  Value* has = is_float(a.type)
                   ? b_.CreateOr(b_.CreateFCmpOEQ(values, best),
                                 b_.CreateAnd(b_.CreateFCmpUNO(values, values), b_.CreateFCmpUNO(best, best)))
                   : b_.CreateICmpEQ(values, best);
  return b_.CreateIntMinReduce(b_.CreateSelect(has, positions, all), true);
}

/// Final values, combined over lanes by halves: a tree of fixed shape.
void FunctionEmitter::end_accs(const LoopDecl& l) {
  for (std::uint32_t id : l.accs) {
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    Parts v = load_parts(s);
    const bool inside = at_.lanes_of(id) == Lanes::Inside;
    if (kernel::positional(a.monoid)) {
      Value* p = b_.CreateLoad(s.position->getAllocatedType(), s.position);
      if (inside) p = best_position(a, v[0], p);
      s.result = b_.CreateSExt(p, p->getType()->isVectorTy() ? vec(i64()) : i64());
      continue;
    }
    if (inside && !s.scan) {
      unsigned n = llvm::cast<FixedVectorType>(v[0]->getType())->getNumElements();
      for (; n > 1; n /= 2) {
        Parts x, y;
        for (Value* part : v) {
          x.push_back(upper_half(part, n));
          y.push_back(lower_half(part, n));
        }
        v = merge(a, x, y);
      }
    }
    if (inside)
      for (Value*& part : v) part = b_.CreateExtractElement(part, std::uint64_t{0});
    s.result = show(a, v);
  }
}

}  // namespace kiln::codegen
