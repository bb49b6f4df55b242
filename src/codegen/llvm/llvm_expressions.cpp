// FunctionEmitter: values on one lane and on all lanes.
#include "codegen/llvm/llvm_function.h"

#include "codegen/llvm/legalize_vector.h"
#include "codegen/llvm/vector_math.h"
#include "kernel/halves.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <algorithm>

namespace kiln::codegen {

static int lanes_in(const Value* v) {
  return static_cast<int>(llvm::cast<FixedVectorType>(v->getType())->getNumElements());
}

/// floor(x / d) of indices on lanes, where no instruction converts 64-bit integers of lanes: see spelled_out.
/// The bits of 2^52 + x are those of 2^52 with x among them, for 0 <= x < 2^52; so are those of the quotient.
static Value* divide_lanes(llvm::IRBuilder<>& b, Value* x, Value* reciprocal) {
  Value* bits = llvm::ConstantInt::get(x->getType(), 0x4330000000000000);
  const auto lit = [&](double v) { return llvm::ConstantFP::get(reciprocal->getType(), v); };
  Value* above = b.CreateBitCast(b.CreateOr(x, bits), reciprocal->getType());
  Value* quotient = b.CreateFMul(b.CreateFSub(above, lit(0x1p52 - 0.5)), reciprocal);
  Value* whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, quotient);
  return b.CreateXor(b.CreateBitCast(b.CreateFAdd(whole, lit(0x1p52)), x->getType()), bits);
}

/// The value on one lane: for a varying index, that of lane 0.
Value* FunctionEmitter::scalar(ExprId e) {
  sync();
  if (scalar_[e]) return scalar_[e];
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Const) return constant_of(c_, n.type, n.imm);
  if (n.prim == Prim::Var) return scopes_[static_cast<std::size_t>(at_.depth_of(e))].index;
  if (n.prim == Prim::Acc) return accs_[n.imm].result;
  const Marked mark(*this, {kernel::Mark::Of::Expression, e});
  if (const ExprId same = spelled_out(n); same != kNoExpr) return scalar(same);
  if (n.prim == Prim::Running) return accs_[n.imm].running;
  if (n.prim == Prim::Before) return accs_[n.imm].before;
  // Operands first: each is placed at its own depth.
  Value* in[3] = {};
  int i = 0;
  if (n.prim != Prim::Load) each_operand(n, [&](ExprId o) { in[i++] = scalar(o); });
  Value* at = n.prim == Prim::Load ? scalar(n.a) : nullptr;
  Value* predicate = n.prim == Prim::Load && n.b != kNoExpr ? scalar(n.b) : nullptr;
  return place(at_.depth_of(e), e, scalar_, [&]() -> Value* {
    switch (n.prim) {
      case Prim::Param: return param(n.imm);
      case Prim::Slot: {
        Value* p = b_.CreateConstGEP1_64(i64(), slots_, n.imm);
        return from_memory(b_.CreateAlignedLoad(memory_type(c_, n.type), p, llvm::Align(8)), n.type);
      }
      case Prim::Load: return scalar_load(n, at, predicate);
      case Prim::Call1:
      case Prim::Call2: return call(n, in);
      default:
        return v_.compute(n.prim, n.type, pool_[n.prim == Prim::Select ? n.b : n.a].type, in[0], in[1],
                          in[2]);
    }
  });
}

/// The same value in primitives that have instructions, or kNoExpr when `n` has one.
ExprId FunctionEmitter::spelled_out(const ExprNode& n) {
  if (n.prim == Prim::FromIndex) return n.a;
  if (n.prim != Prim::IndexDiv) return kNoExpr;
  // By a reciprocal: (x + 1/2)/d is at least 1/(2d) away from every integer, which is more than the product's
  // rounding error.
  const E x{&pool_, n.a}, d{&pool_, n.b};
  const E reciprocal = x.lit(DType::Float64, 1.0) / kernel::cast(d, DType::Float64);
  return kernel::cast_in_range((kernel::cast(x, DType::Float64) + 0.5) * reciprocal, DType::Int64).id;
}

/// The values on all lanes of the current Vector loop.
Value* FunctionEmitter::vector(ExprId e) {
  sync();
  if (vector_[e]) return vector_[e];
  const ExprNode n = pool_[e];
  const auto count = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
  if (!at_.varying(e)) {
    Value* s = scalar(e);
    if (auto* constant = llvm::dyn_cast<llvm::Constant>(s))
      return llvm::ConstantVector::getSplat(count, constant);
    return place(at_.depth_of(e), e, vector_, [&] { return b_.CreateVectorSplat(count, s); });
  }
  if (n.prim == Prim::Acc) return accs_[n.imm].result;
  const Marked mark(*this, {kernel::Mark::Of::Expression, e});
  if (n.prim == Prim::IndexDiv && !target_.avx512 && target_.vector_bytes >= 32 && !at_.varying(n.b)) {
    const E d{&pool_, n.b}, reciprocal = d.lit(DType::Float64, 1.0) / kernel::cast(d, DType::Float64);
    Value *x = vector(n.a), *r = vector(reciprocal.id);
    return place(at_.depth_of(e), e, vector_, [&] { return divide_lanes(b_, x, r); });
  }
  if (const ExprId same = spelled_out(n); same != kNoExpr) return vector(same);
  if (n.prim == Prim::Running) return accs_[n.imm].running;
  if (n.prim == Prim::Before) return accs_[n.imm].before;
  if (n.prim == Prim::Var) {
    return place(at_.depth_of(e), e, vector_, [&] {
      llvm::SmallVector<llvm::Constant*, 64> steps;
      for (int l = 0; l < lanes_; ++l) steps.push_back(b_.getInt64(static_cast<std::uint64_t>(l)));
      return b_.CreateAdd(b_.CreateVectorSplat(count, scalar(e)), llvm::ConstantVector::get(steps));
    });
  }
  if (n.prim == Prim::Load) return vector_load(e, n);
  if (n.prim == Prim::Div && n.type == DType::Float32 && target_.fma && !k_.exact && lanes_ >= 8 &&
      !at_.varying(n.b))
    return divide_by_uniform(e, n);
  if (n.prim == Prim::Philox)
    if (Value* shared = philox_run(e, n)) return shared;
  if (const E legal = legalize_vector(pool_, e, n.b == kNoExpr || !at_.varying(n.b))) return vector(legal.id);
  if (const VectorFunction f = vector_function_of(n, lanes_); f.value)
    return f.in_range ? function_in_range(e, n, f) : vector(f.value.id);
  if ((n.prim == Prim::Lt || n.prim == Prim::Le) && !uniform_at_ && !uniform_.empty())
    if (Value* bit = uniform(e)) return uniform_mask(bit);
  if (n.prim == Prim::Lt || n.prim == Prim::Le)
    if (Value* mask = compare_lanes(e, n); mask || (mask = compare_split(e, n))) return mask;
  if (n.prim == Prim::Select)
    if (Value* chosen = choose(e, n)) return chosen;
  Value* in[3] = {};
  int i = 0;
  each_operand(n, [&](ExprId o) { in[i++] = vector(o); });
  return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
    if (n.prim == Prim::Call1 || n.prim == Prim::Call2) return call(n, in);
    if (takes_memory(n))
      for (Value*& v : in)
        if (v) v = from_constants(v);
    if (n.prim == Prim::Cast && n.type == DType::BFloat16 && kernel::is_widened(pool_, n.a, n.type))
      return v_.upper_half(in[0]);
    return v_.compute(n.prim, n.type, pool_[n.prim == Prim::Select ? n.b : n.a].type, in[0], in[1], in[2]);
  });
}

/// Whether an instruction of the target takes one of its operands, a constant of all lanes, from memory, but
/// only a whole register of it: AVX2, which broadcasts constants in instructions of their own. AVX-512
/// broadcasts them on the way; with less, LLVM keeps whole registers of them by itself.
bool FunctionEmitter::takes_memory(const ExprNode& n) const {
  const bool arithmetic =
      n.prim == Prim::Fma || n.prim == Prim::Mul || n.prim == Prim::Add || n.prim == Prim::Sub;
  return arithmetic && is_float(n.type) && target_.vector_bytes == 32 && target_.fma &&
         lanes_ * static_cast<int>(size_of(n.type)) % 32 == 0;
}

/// A constant of all lanes as loads of whole registers, each from an address of its own in a run of equal
/// numbers: LLVM makes a load that is read once an operand of its reader, and would make equal loads one.
Value* FunctionEmitter::from_constants(Value* v) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  auto* element = constant ? llvm::dyn_cast_or_null<llvm::ConstantFP>(constant->getSplatValue()) : nullptr;
  if (!element) return v;
  llvm::Type* t = element->getType();
  const unsigned lanes = static_cast<unsigned>(lanes_in(v)), bytes = t->getScalarSizeInBits() / 8;
  const unsigned width = 32 / bytes, registers = lanes / width;
  llvm::GlobalVariable*& run = runs_[element];
  if (!run) {
    const llvm::SmallVector<llvm::Constant*, 16> equal(64 / bytes, element);
    auto* type = llvm::ArrayType::get(t, equal.size());
    run = new llvm::GlobalVariable(module_, type, true, llvm::GlobalValue::PrivateLinkage,
                                   llvm::ConstantArray::get(type, equal), "run");
    run->setAlignment(llvm::Align(64));
    run->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  }
  llvm::SmallVector<Value*, 8> parts;
  for (unsigned r = 0; r < registers; ++r) {
    Value* at = b_.CreateConstGEP1_32(t, run, r % (width + 1));
    auto* part = b_.CreateAlignedLoad(FixedVectorType::get(t, width), at, llvm::Align(bytes));
    part->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(c_, {}));
    parts.push_back(part);
  }
  return llvm::concatenateVectors(b_, parts);
}

/// The bound that decides a comparison of positions whose difference grows, or falls, by one from lane to
/// lane. None: another comparison.
std::optional<FunctionEmitter::LaneBound> FunctionEmitter::lane_bound(const ExprNode& n) {
  if ((n.prim != Prim::Lt && n.prim != Prim::Le) || pool_[n.a].type != DType::Int64) return std::nullopt;
  const std::optional<std::int64_t> left = kernel::known(at_.lane_stride(n.a)),
                                    right = kernel::known(at_.lane_stride(n.b));
  sync();
  if (!left || !right || (*left - *right != 1 && *right - *left != 1)) return std::nullopt;
  const bool or_equal = n.prim == Prim::Le;
  if (*left > *right) return LaneBound{n.a, n.b, or_equal ? 1 : 0, true};  // a + l < b + 0
  return LaneBound{n.b, n.a, or_equal ? 0 : 1, false};                     // a + 0 < b + l
}

Value* FunctionEmitter::bound_of(const LaneBound& bound) {
  Value* to = scalar(bound.to);
  Value* room = b_.CreateSub(to, scalar(bound.from));
  return bound.more ? b_.CreateAdd(room, b_.getInt64(static_cast<std::uint64_t>(bound.more))) : room;
}

Value* FunctionEmitter::compare_lanes(ExprId e, const ExprNode& n) {
  const std::optional<LaneBound> bound = lane_bound(n);
  if (!bound) return nullptr;
  if (Value* bit = uniform(e)) return uniform_mask(bit);
  scalar(bound->from), scalar(bound->to);
  return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
    Value* first = lanes_below(bound_of(*bound));
    return bound->below ? first : b_.CreateNot(first);
  });
}

/// x / d with one d for all lanes: q = x·r with r = 1/d, corrected by its remainder. That is the rounded
/// quotient (Markstein, "IA-64 and Elementary Functions", 2000, theorem 8.4) as long as d and r are normal
/// numbers, which is asked once where d is computed; other divisors take the divider, which needs five times
/// as long. An infinite or NaN q is the quotient already.
Value* FunctionEmitter::divide_by_uniform(ExprId e, const ExprNode& n) {
  const E d{&pool_, n.b};
  const E r = d.lit(1.0) / d;
  const E magnitude = kernel::abs(d);
  const E normal = (magnitude >= 0x1p-125) & (magnitude <= 0x1p125);
  Value* x = vector(n.a);
  Value* divisor = vector(d.id);
  Value* reciprocal = vector(r.id);
  Value* fast = scalar(normal.id);
  return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
    if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(fast); constant && constant->isZero())
      return b_.CreateFDiv(x, divisor);
    auto corrected = [&] {
      Value* q = b_.CreateFMul(x, reciprocal);
      Value* rest = v_.compute(Prim::Fma, n.type, n.type, b_.CreateFNeg(q), divisor, x);
      Value* better = v_.compute(Prim::Fma, n.type, n.type, rest, reciprocal, q);
      return b_.CreateSelect(b_.CreateFCmpORD(better, better), better, q);
    };
    if (llvm::isa<llvm::ConstantInt>(fast)) return corrected();
    return branch(fast, corrected, [&] { return b_.CreateFDiv(x, divisor); });
  });
}

/// A Float64 function in primitives, where the target's library does not have it. Without the instruction
/// each Fma would be a call too.
VectorFunction FunctionEmitter::vector_function_of(const ExprNode& n, int lanes) {
  if (n.prim != Prim::Call1 && n.prim != Prim::Call2) return {};
  if (!target_.fma || k_.exact || !library_symbol(n, lanes).empty()) return {};
  return vector_function(static_cast<kernel::MathFn>(n.imm), {&pool_, n.a}, {&pool_, n.b});
}

/// f where it holds on all lanes, else the function itself lane by lane.
Value* FunctionEmitter::function_in_range(ExprId e, const ExprNode& n, const VectorFunction& f) {
  Value* const in[] = {vector(n.a), n.prim == Prim::Call2 ? vector(n.b) : nullptr};
  Value* fast = vector(f.value.id);
  Value* holds = vector(f.in_range.id);
  return place(at_.depth_of(e), e, vector_, [&] {
    return branch(b_.CreateAndReduce(holds), [&] { return fast; }, [&] { return call(n, in); });
  });
}

/// One of two values of equal type, each computed on its own branch.
Value* FunctionEmitter::branch(Value* condition, llvm::function_ref<Value*()> then_value,
                               llvm::function_ref<Value*()> else_value) {
  // The builder may stand at the end of an open block or before a loop's branch: split there.
  llvm::Instruction *then_end, *else_end;
  llvm::Instruction* at =
      b_.GetInsertPoint() == b_.GetInsertBlock()->end() ? b_.CreateUnreachable() : &*b_.GetInsertPoint();
  const bool open = llvm::isa<llvm::UnreachableInst>(at);
  llvm::SplitBlockAndInsertIfThenElse(condition, at->getIterator(), &then_end, &else_end);
  b_.SetInsertPoint(then_end);
  Value* first = then_value();
  b_.SetInsertPoint(else_end);
  Value* second = else_value();
  BasicBlock* joined = at->getParent();
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

Value* FunctionEmitter::call(const ExprNode& n, Value* const* in) {
  llvm::Type* t = reg(n.type);
  const bool two = n.prim == Prim::Call2;
  auto* type = two ? llvm::FunctionType::get(t, {t, t}, false) : llvm::FunctionType::get(t, {t}, false);
  llvm::FunctionCallee fn =
      module_.getOrInsertFunction(kernel::symbol(static_cast<kernel::MathFn>(n.imm)), type);
  auto one = [&](Value* a, Value* b) { return two ? b_.CreateCall(fn, {a, b}) : b_.CreateCall(fn, {a}); };
  if (!in[0]->getType()->isVectorTy()) return one(in[0], in[1]);
  if (Value* whole = vector_call(n, in[0], two ? in[1] : nullptr)) return whole;
  const int lanes = lanes_in(in[0]);
  Value* out = llvm::PoisonValue::get(vec_of(t, lanes));
  for (int l = 0; l < lanes; ++l) {
    const auto lane = static_cast<std::uint64_t>(l);
    out = b_.CreateInsertElement(
        out, one(b_.CreateExtractElement(in[0], lane), two ? b_.CreateExtractElement(in[1], lane) : nullptr),
        lane);
  }
  return out;
}

/// Float64 lanes of a register, and a function's symbol in the target's library for so many; empty where it
/// has none.
int FunctionEmitter::register_lanes(int lanes) const { return std::min(lanes, target_.vector_bytes / 8); }

std::string FunctionEmitter::library_symbol(const ExprNode& n, int lanes) const {
  return target_.vector_math && !k_.exact
             ? vector_symbol(static_cast<kernel::MathFn>(n.imm), register_lanes(lanes))
             : std::string();
}

/// A Float64 function of whole registers, where the target's library has it.
Value* FunctionEmitter::vector_call(const ExprNode& n, Value* x, Value* y) {
  const int lanes = lanes_in(x), width = register_lanes(lanes);
  const std::string name = library_symbol(n, lanes);
  if (name.empty()) return nullptr;
  llvm::Type* t = FixedVectorType::get(b_.getDoubleTy(), static_cast<unsigned>(width));
  auto* type = y ? llvm::FunctionType::get(t, {t, t}, false) : llvm::FunctionType::get(t, {t}, false);
  const llvm::FunctionCallee callee = module_.getOrInsertFunction(name, type);
  llvm::SmallVector<Value*, 8> parts;
  for (int first = 0; first < lanes; first += width) {
    llvm::SmallVector<Value*, 2> args;
    for (Value* v : {x, y})
      if (v)
        args.push_back(
            width == lanes ? v : b_.CreateShuffleVector(v, llvm::createSequentialMask(first, width, 0)));
    parts.push_back(b_.CreateCall(callee, args));
  }
  return llvm::concatenateVectors(b_, parts);
}

}  // namespace kiln::codegen
