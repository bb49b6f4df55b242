// FunctionEmitter: values on one lane and on all lanes.
#include "codegen/llvm/llvm_function.h"

#include "codegen/llvm/legalize_vector.h"
#include "codegen/llvm/vector_math.h"
#include "kernel/halves.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

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
  if ((n.prim == Prim::Lt || n.prim == Prim::Le) && !uniform_at_)
    for (const auto& [id, bit] : uniform_)  // what no iteration of the inner loop changes
      if (id == e) return bit;
  if (n.prim == Prim::Running) return accs_[n.imm].running;
  if (n.prim == Prim::Before) return accs_[n.imm].before;
  if (const auto range = index_range(n)) {
    Value *at = scalar(range->first), *end = scalar(range->second);
    return place(at_.depth_of(e), e, scalar_, [&] { return b_.CreateICmpULT(at, end); });
  }
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

/// x and an end, not below 0, of a condition that says 0 <= x and x < end: one comparison of numbers without
/// a sign.
std::optional<std::pair<ExprId, ExprId>> FunctionEmitter::index_range(const ExprNode& n) {
  if (n.prim != Prim::And) return std::nullopt;
  const ExprNode low = pool_[n.a], high = pool_[n.b];
  if (low.prim != Prim::Le || high.prim != Prim::Lt || low.b != high.a) return std::nullopt;
  const ExprNode zero = pool_[low.a];
  if (zero.prim != Prim::Const || zero.type != DType::Int64 || zero.imm != 0) return std::nullopt;
  const E end{&pool_, high.b};
  return std::pair(high.a, kernel::max(end, end.lit(DType::Int64, 0)).id);
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

/// Registers that a value takes while it is made, if what takes most of them is made first.
int FunctionEmitter::registers_for(ExprId e) {
  constexpr int kMost = 255;
  if (!at_.varying(e)) return 1;
  if (e < registers_.size() && registers_[e] != 0) return registers_[e];
  const ExprNode n = pool_[e];
  llvm::SmallVector<int, 3> needs;
  if (n.prim != Prim::Load) each_operand(n, [&](ExprId o) { needs.push_back(registers_for(o)); });
  llvm::sort(needs, std::greater<>());
  int all = 1;
  for (int i = 0; i < static_cast<int>(needs.size()); ++i)
    all = std::max(all, needs[static_cast<std::size_t>(i)] + i);
  registers_.resize(pool_.size());
  registers_[e] = static_cast<std::uint8_t>(std::min(all, kMost));
  return registers_[e];
}

/// The operands of a node. A sum whose first operand is a load and whose second is a sum of others, and so
/// on, would have all loads at once: there are few registers. Where few values wait for the last operand, the
/// order stays as it is written, which memory is read in.
void FunctionEmitter::vector_operands(const ExprNode& n, Value** values) {
  constexpr int kFewWaiting = 4;
  struct Operand {
    ExprId value;
    int place, registers;
  };
  llvm::SmallVector<Operand, 3> operands;
  each_operand(
      n, [&](ExprId o) { operands.push_back({o, static_cast<int>(operands.size()), registers_for(o)}); });
  int waiting = 0;
  ExprNode at = n;
  for (ExprId last = 0; at.prim != Prim::Load && last != kNoExpr && waiting <= kFewWaiting;) {
    int count = 0;
    last = kNoExpr;
    each_operand(at, [&](ExprId o) { last = o, ++count; });
    waiting += std::max(count - 1, 0);
    if (last != kNoExpr) at = pool_[last];
  }
  if (waiting > kFewWaiting)
    llvm::stable_sort(operands, [](const Operand& a, const Operand& b) { return a.registers > b.registers; });
  for (const Operand& o : operands) values[o.place] = vector(o.value);
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
      (!at_.varying(n.b) || at_.depth_of(n.b) < at_.depth_of(e)))
    return divide_by_known(e, n);
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
  if (Value* split = split_exponent(e, n)) return split;
  if (Value* extreme = extreme_of_halves(e, n)) return extreme;
  Value* in[3] = {};
  vector_operands(n, in);
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

namespace {

/// Widened halves below extremes of one kind, and constants; false: another value is among them.
bool find_halves(const kernel::ExprPool& pool, ExprId e, Prim extreme, DType half,
                 llvm::SmallVectorImpl<ExprId>& found) {
  constexpr std::size_t kMost = 32;
  const ExprNode n = pool[e];
  if (n.prim == extreme)
    return find_halves(pool, n.a, extreme, half, found) && find_halves(pool, n.b, extreme, half, found);
  const bool widened = n.prim == Prim::Cast && pool[n.a].type == half;
  if (widened) found.push_back(n.a);
  return widened && found.size() < kMost;
}

}  // namespace

/// All bits but the sign turned in halves below zero: the order of numbers is that of integers then.
Value* FunctionEmitter::turned_if_negative(Value* v) {
  llvm::Type* t = v->getType();
  const unsigned bits = t->getPrimitiveSizeInBits().getFixedValue();
  Value *signs = b_.CreateAShr(v, 15), *others = llvm::ConstantInt::get(t, 0x7fff);
  if (!target_.avx512 || (bits != 256 && bits != 512)) return b_.CreateXor(v, b_.CreateAnd(signs, others));
  // LLVM would make the second operand by a shift, and take two instructions for this one.
  constexpr std::uint32_t kXorOfAnd = 0x78;
  llvm::Type* words = vec_of(b_.getInt32Ty(), static_cast<int>(bits / 32));
  const auto as_words = [&](Value* x) { return b_.CreateBitCast(x, words); };
  Value* out = b_.CreateIntrinsic(
      bits == 512 ? llvm::Intrinsic::x86_avx512_pternlog_d_512 : llvm::Intrinsic::x86_avx512_pternlog_d_256,
      {}, {as_words(v), as_words(signs), as_words(others), b_.getInt32(kXorOfAnd)});
  return b_.CreateBitCast(out, t);
}

/// The greatest, or least, of three halves and more, as integers that are ordered like the numbers and have
/// NaN beyond infinity: half as many registers as of floats, and no conversions. Of zeros with both signs the
/// floats choose. Null: another value.
Value* FunctionEmitter::extreme_of_halves(ExprId e, const ExprNode& n) {
  constexpr std::size_t kLeast = 3;
  if (n.prim != Prim::Cast || !is_half(n.type) || at_.depth_of(e) != depth()) return nullptr;
  const Prim extreme = pool_[n.a].prim;
  if (extreme != Prim::Max && extreme != Prim::Min) return nullptr;
  llvm::SmallVector<ExprId, 16> halves;
  if (!find_halves(pool_, n.a, extreme, n.type, halves) || halves.size() < kLeast) return nullptr;
  llvm::SmallVector<Value*, 16> values;
  for (const ExprId half : halves) values.push_back(vector(half));
  return place(depth(), e, vector_, [&] {
    llvm::Type* t = values.front()->getType();
    const auto number = [&](std::uint64_t x) { return llvm::ConstantInt::get(t, x); };
    // The order begins, or ends, behind the numbers of NaN with a sign: these are beside the others then.
    const std::uint64_t nans = n.type == DType::BFloat16 ? 0x7f : 0x3ff;
    Value* turn = number(extreme == Prim::Max ? 0x10000 - nans : nans);
    Value* out = nullptr;
    for (Value* v : values) {
      Value* key = b_.CreateAdd(turned_if_negative(v), turn);
      const auto better = extreme == Prim::Max ? llvm::Intrinsic::smax : llvm::Intrinsic::smin;
      out = out ? b_.CreateBinaryIntrinsic(better, out, key) : key;
    }
    out = turned_if_negative(b_.CreateSub(out, turn));
    const auto of_floats = [&] {
      Value* x = vector(n.a);
      return n.type == DType::BFloat16 ? v_.upper_half(x)
                                       : v_.compute(n.prim, n.type, DType::Float32, x, nullptr, nullptr);
    };
    Value* zeros = any(b_.CreateICmpEQ(out, number(extreme == Prim::Max ? 0 : 0x8000)));
    return v_.branch(b_.CreateNot(zeros), [&] { return out; }, [&] { return arm(of_floats); }, true);
  });
}

namespace {

/// A value that is bounded from below, or above, as math::within writes it: a constant is chosen where the
/// value is beyond it. None: another value.
struct Bound {
  ExprId of;
  float at;
};
std::optional<Bound> bound_in(const kernel::ExprPool& pool, ExprId e, bool below) {
  const ExprNode s = pool[e];
  if (s.prim != Prim::Select || s.type != DType::Float32 || pool[s.b].prim != Prim::Const)
    return std::nullopt;
  const ExprNode test = pool[s.a];
  if (test.prim != Prim::Lt || (below ? test.a != s.c || test.b != s.b : test.a != s.b || test.b != s.c))
    return std::nullopt;
  return Bound{s.c, std::bit_cast<float>(static_cast<std::uint32_t>(pool[s.b].imm))};
}

/// An exponent without bounds that vscalef makes unnecessary: it takes every number, and infinities, above
/// whose floor vreduce finds 0. Below the lower bound a power is smaller by less than the least normal number
/// then; at the upper one, 129, any power of at least 1/2 times 2^n is infinite.
ExprId without_bounds(const kernel::ExprPool& pool, ExprId y) {
  if (const auto low = bound_in(pool, y, true); low && low->at <= -126) y = low->of;
  if (const auto high = bound_in(pool, y, false); high && high->at == 129) y = high->of;
  return y;
}

}  // namespace

/// What split_exponent reads of an exponent.
ExprId FunctionEmitter::read_of_exponent(ExprId y) const {
  const bool by_itself = target_.avx512 && (lanes_ == 8 || lanes_ % 16 == 0) && !k_.exact;
  return by_itself ? without_bounds(pool_, y) : y;
}

/// What is above the floor of an exponent, or a scale by that floor, which the instruction takes by itself;
/// null: something else, or the target has no such instructions.
Value* FunctionEmitter::split_exponent(ExprId e, const ExprNode& n) {
  if (!target_.avx512 || (lanes_ != 8 && lanes_ % 16 != 0)) return nullptr;
  const auto exponent = [&](ExprId y) { return vector(read_of_exponent(y)); };
  if (n.prim == Prim::Scale && pool_[n.b].prim == Prim::Floor) {
    Value *x = vector(n.a), *y = exponent(pool_[n.b].a);
    return place(at_.depth_of(e), e, vector_,
                 [&] { return v_.compute(n.prim, n.type, n.type, x, y, nullptr); });
  }
  if (!is_above_floor(n)) return nullptr;
  Value* y = exponent(n.c);
  return place(at_.depth_of(e), e, vector_, [&] { return v_.above_floor(y); });
}

/// Whether this is y - floor(y) as expansions write it (math::above_floor), of a y that is between two
/// numbers, or NaN.
bool FunctionEmitter::is_above_floor(const ExprNode& n) const {
  if (k_.exact || n.prim != Prim::Fma || n.type != DType::Float32) return false;
  if (const ExprNode a = pool_[n.a]; a.prim != Prim::Floor || a.a != n.c) return false;
  if (const ExprNode b = pool_[n.b]; b.prim != Prim::Const || b.imm != std::bit_cast<std::uint32_t>(-1.0f))
    return false;
  const std::optional<Bound> low = bound_in(pool_, n.c, true);
  return low && bound_in(pool_, low->of, false);
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

/// x / d where d is computed outside the loop: x (h + l), where h is a float or two below 1 / d (in
/// magnitude) and l the rest of it, of the same sign, so that no zero loses its sign and no infinity becomes
/// NaN. h + l is off by 2^-43: that is the rounded quotient, unless the exact one is as near as 2^-19 of a
/// unit to the middle between two floats (Brisebarre, Muller and Raina, "Accelerating Correctly Rounded
/// Floating-Point Division When the Divisor Is Known in Advance", 2004). Whether d and h are normal numbers
/// is asked once where d is computed; other divisors take the divider, which needs ten times as long.
Value* FunctionEmitter::divide_by_known(ExprId e, const ExprNode& n) {
  const E d{&pool_, n.b}, reciprocal = d.lit(1.0) / d;
  const E high = reciprocal * (1 - 0x1p-23);
  const E rest = fma(-high, d, d.lit(1.0)), low = rest * high;
  const E magnitude = kernel::abs(d), abnormal = (magnitude < 0x1p-100) | (magnitude > 0x1p100);
  Value *x = vector(n.a), *divisor = vector(d.id), *h = vector(high.id), *l = vector(low.id);
  Value* odd = at_.varying(n.b) ? vector(abnormal.id) : scalar(abnormal.id);
  // Of lanes the bit for all stands for the number of lane 0, which nobody asks for.
  Value* slow = place(at_.depth_of(abnormal.id), abnormal.id, scalar_, [&] { return any(odd); });
  return place(at_.depth_of(e), e, vector_, [&]() -> Value* {
    const auto multiplied = [&] { return v_.compute(Prim::Fma, n.type, n.type, x, h, b_.CreateFMul(x, l)); };
    const auto divided = [&] { return b_.CreateFDiv(x, divisor); };
    if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(slow))
      return constant->isZero() ? multiplied() : divided();
    return branch(b_.CreateNot(slow), multiplied, divided);
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
