// FunctionEmitter: what loops inside a Vector loop find out once for all their iterations.
//
// An index is split into a base, equal on all lanes, and offsets, which the inner loop does not change. So a
// gather adds nothing to its offsets in the loop, and where they are near each other it becomes two loads of
// adjacent elements and a permutation, which is prepared before the loop.
#include "codegen/llvm/llvm_function.h"

#include <algorithm>
#include <cstdlib>

namespace kiln::codegen {

constexpr std::int64_t kRegisterBytes = 64;
constexpr std::size_t kMostInnerGuards = 16;  // of a loop: more are compared lane by lane
constexpr std::size_t kMostInnerSize = 400;   // of a body that is emitted for what is known of it
constexpr std::size_t kSmallInnerSize = 120;  // of one that is emitted for windows of one register, too

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

/// Whether windows of elements of a type are whole registers, under registers of masks; else they have parts.
bool FunctionEmitter::has_registers(DType type) const {
  return target_.avx512 && (target_.avx512_vbmi || size_of(type) >= 2);
}

/// Whether a load's elements may be looked for in a window: all that decides which they are is known before
/// the inner loop.
bool FunctionEmitter::takes_window(const ExprNode& n, const LaneSplit& split, ExprId predicate) {
  const std::int64_t size = is_bool(n.type) ? 1 : size_of(n.type);
  const auto known_before = [&](ExprId e) { return at_.depth_of(e) <= at_.lanes_depth(); };
  const bool fits = target_.vector_bytes >= 32 && lanes_ >= (target_.avx512 ? 8 : 4);
  return fits && lanes_ * size <= 4 * kRegisterBytes && at_.varying(split.lanes.id) &&
         known_before(split.lanes.id) && (predicate == kNoExpr || known_before(predicate));
}

FunctionEmitter::Window& FunctionEmitter::window_of(const ExprNode& n, const LaneSplit& split,
                                                    ExprId predicate) {
  for (Window& w : windows_)
    if (w.lanes == split.lanes.id && w.predicate == predicate && size_of(w.type) == size_of(n.type)) return w;
  if (predicate == kNoExpr && known_at_entry(n.type, split)) {
    windows_.push_back(moved_window(n.type, split));
    return windows_.back();
  }
  Value* offsets = vector(split.lanes.id);
  Value* on = predicate == kNoExpr ? nullptr : vector(predicate);
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  if (depth() > at_.lanes_depth())
    b_.SetInsertPoint(scopes_[static_cast<std::size_t>(at_.lanes_depth()) + 1].preheader_end);
  Value* active = combine(mask_at(at_.lanes_depth()), on);
  Window w{split.lanes.id, predicate, n.type};
  if (has_registers(n.type))
    add_pieces(w, offsets, active);
  else
    add_parts(w, offsets, active);
  windows_.push_back(w);
  return windows_.back();
}

/// The elements of a window, 0 where `n` has a predicate that is false; a gather where they are not in one.
Value* FunctionEmitter::window_load(const ExprNode& n, const LaneSplit& split, const Condition& on,
                                    Value* mask) {
  const bool known = reach_ != Reach::Unknown && window_of(n, split, on.lanes).asked;
  if (!known && has_registers(n.type)) ask_about_four(window_of(n, split, on.lanes));
  const Window w = window_of(n, split, on.lanes);
  prefetch_jump(n, split, w);
  llvm::Type* t = memory_type(c_, n.type);
  if (!has_registers(n.type)) {
    const auto parts = [&] { return parts_load(n, split, w, bit_of(on)); };
    if (known) return parts();
    scalar(split.base.id);
    const auto each = [&] {
      Value* many =
          b_.CreateGEP(t, b_.CreateGEP(t, buffers_[n.imm], scalar(split.base.id)), vector(split.lanes.id));
      return gather(many, t, n.type, mask);
    };
    return branch(w.fits, parts, each);
  }
  Value* predicate = on.lanes == kNoExpr ? nullptr : vector(on.lanes);
  const auto where_on = [&](Value* out) {
    if (predicate) out = b_.CreateSelect(predicate, out, llvm::Constant::getNullValue(out->getType()));
    return b_.CreateBitCast(out, vec(t));
  };
  if (known) return where_on(known_window_load(n, split, w, bit_of(on)));
  Value *offsets = vector(split.lanes.id), *base = b_.CreateGEP(t, buffers_[n.imm], scalar(split.base.id));
  if (const BufferDecl& d = k_.buffers[n.imm]; d.stream && d.ahead_param >= 0)
    for (const WindowPieces& p : w.four)
      for (Value* start : p.starts)
        prefetch(b_.CreateGEP(t, base, b_.CreateAdd(p.first, start)), 1, d.ahead_param, false);
  const auto from_window = [&] { return where_on(from_registers(w.four, base, bit_of(on), n.type)); };
  return branch(w.fits_four, from_window,
                [&] { return gather(b_.CreateGEP(t, base, offsets), t, n.type, mask); });
}

/// Whether a value changes by the same in each iteration of the loop inside the Vector loop.
bool FunctionEmitter::is_linear(ExprId e) {
  if (at_.depth_of(e) <= at_.lanes_depth()) return true;
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Var) return true;
  if (n.prim == Prim::Neg) return is_linear(n.a);
  if (n.prim == Prim::Add || n.prim == Prim::Sub) return is_linear(n.a) && is_linear(n.b);
  if (n.prim != Prim::Mul) return false;
  const bool by_b = at_.depth_of(n.b) <= at_.lanes_depth();
  return (by_b || at_.depth_of(n.a) <= at_.lanes_depth()) && is_linear(by_b ? n.a : n.b);
}

/// A comparison of positions that a loop inside the Vector loop changes, with its lanes' side apart.
std::optional<FunctionEmitter::InnerGuard> FunctionEmitter::inner_guard(ExprId e, const ExprNode& n) {
  if ((n.prim != Prim::Lt && n.prim != Prim::Le) || pool_[n.a].type != DType::Int64) return std::nullopt;
  if (!at_.varying(e) || at_.depth_of(e) <= at_.lanes_depth() || !is_position(n.a) || !is_position(n.b))
    return std::nullopt;
  const auto a = lane_split(n.a), b = a ? lane_split(n.b) : std::nullopt;
  if (!b) return std::nullopt;
  const E bound = b->base - a->base;
  if (!is_linear(bound.id)) return std::nullopt;
  return InnerGuard{e, bound.id, {bound, a->lanes - b->lanes}, n.prim == Prim::Le};
}

/// What is found out about a loop inside the Vector loop, and of the loops inside it, before it is emitted.
void FunctionEmitter::examine(const LoopDecl& l, InnerLoop& found) {
  open_scope(l, b_.getInt64(0), nullptr);
  std::vector<bool> seen(pool_.size());
  const bool own = depth() == at_.lanes_depth() + 1 && !contains_loop(l);
  const auto visit = [&](const auto& self, ExprId e) -> void {
    if (e == kNoExpr || e >= seen.size() || seen[e]) return;
    seen[e] = true;
    if (!at_.varying(e)) {
      if (own && is_bool(pool_[e].type)) find_steps(e, found.steps);
      return;
    }
    const ExprNode n = pool_[e];
    if (n.prim == Prim::Load && at_.depth_of(e) > at_.lanes_depth() &&
        (has_registers(n.type) || size_of(n.type) >= 4)) {
      const std::optional<std::int64_t> stride = kernel::known(at_.lane_stride(n.a));
      const std::optional<ExprId> predicate = lanes_part(n.b);
      if (predicate && (!stride || (*stride != 0 && std::abs(*stride) != 1)))
        if (const auto split = lane_split(n.a); split && takes_window(n, *split, *predicate))
          found.windows.push_back({e, *predicate, *split});
    }
    if (!target_.avx512 && n.prim == Prim::Select) find_fixed(n.a, found.fixed);
    if (!target_.avx512 && n.prim == Prim::Load) find_fixed(n.b, found.fixed);
    if (const auto guard = own ? inner_guard(e, n) : std::nullopt) found.guards.push_back(*guard);
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    if (s.kind == Stmt::Kind::Loop) {
      at_.begin_accs(k_.loops[s.target]);
      examine(k_.loops[s.target], found);
      continue;
    }
    visit(visit, s.value);
    visit(visit, s.index);
  }
  close_scope(l);
}

/// The least and the greatest of the lanes' side, of the lanes that are on.
void FunctionEmitter::find_reach(InnerGuard& guard) {
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  Value *lanes = vector(guard.lanes.lanes.id), *mask = mask_at(at_.lanes_depth());
  const auto or_else = [&](std::int64_t x) {
    Value* all =
        b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.getInt64(static_cast<std::uint64_t>(x)));
    return mask ? b_.CreateSelect(mask, lanes, all) : lanes;
  };
  guard.least = b_.CreateIntMinReduce(or_else(kFar), true);
  guard.most = b_.CreateIntMaxReduce(or_else(-kFar), true);
}

/// The body of a loop inside the Vector loop. Where all guards are equal on all lanes, which is asked once an
/// iteration, each is one bit.
void FunctionEmitter::inner_body(const LoopDecl& l, const std::vector<InnerGuard>& guards) {
  if (guards.empty()) return block(l.body);
  std::vector<std::pair<ExprId, Value*>> bits;
  Value* equal = b_.getTrue();
  for (const InnerGuard& g : guards) {
    Value* bound = scalar(g.bound);
    Value *all = g.or_equal ? b_.CreateICmpSLE(g.most, bound) : b_.CreateICmpSLT(g.most, bound),
          *some = g.or_equal ? b_.CreateICmpSLE(g.least, bound) : b_.CreateICmpSLT(g.least, bound);
    bits.emplace_back(g.expression, all);
    equal = b_.CreateAnd(equal, b_.CreateICmpEQ(all, some));
  }
  BasicBlock *uniform = BasicBlock::Create(c_, "uniform", fn_), *mixed = BasicBlock::Create(c_, "mixed", fn_),
             *joined = BasicBlock::Create(c_, "joined", fn_);
  b_.CreateCondBr(equal, uniform, mixed);
  for (BasicBlock* at : {uniform, mixed}) {
    b_.SetInsertPoint(at);
    if (at == uniform) uniform_ = bits;
    block(l.body);
    uniform_.clear();
    forget(scopes_.back());
    b_.CreateBr(joined);
  }
  b_.SetInsertPoint(joined);
}

/// Where the guards of a loop inside the Vector loop are the same in its first and its last iteration, they
/// are in all: their bits, and whether that is so.
Value* FunctionEmitter::find_bits(const LoopDecl& l, const InnerLoop& found, Value* end,
                                  llvm::Instruction* before, std::vector<std::pair<ExprId, Value*>>& bits) {
  const std::vector<InnerGuard>& guards = found.guards;
  Value* same = b_.getTrue();
  for (Value* at : {static_cast<Value*>(b_.getInt64(0)), b_.CreateNSWSub(end, b_.getInt64(1))}) {
    open_scope(l, at, before);
    for (std::size_t i = 0; i < guards.size(); ++i) {
      const InnerGuard& g = guards[i];
      const auto compare = g.or_equal ? llvm::CmpInst::ICMP_SLE : llvm::CmpInst::ICMP_SLT;
      Value *bound = scalar(g.bound), *all = b_.CreateICmp(compare, g.most, bound),
            *some = b_.CreateICmp(compare, g.least, bound);
      same = b_.CreateAnd(same, b_.CreateICmpEQ(all, some));
      if (bits.size() == i)
        bits.emplace_back(g.expression, all);
      else
        same = b_.CreateAnd(same, b_.CreateICmpEQ(all, bits[i].second));
    }
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
      Value* bit = scalar(found.steps[i]);
      if (bits.size() == guards.size() + i)
        bits.emplace_back(found.steps[i], bit);
      else
        same = b_.CreateAnd(same, b_.CreateICmpEQ(bit, bits[guards.size() + i].second));
    }
    close_scope(l);
  }
  return same;
}

/// The comparisons of positions, equal on all lanes, that such a condition is made of and the loop changes.
void FunctionEmitter::find_steps(ExprId condition, std::vector<ExprId>& found) {
  if (at_.depth_of(condition) < depth()) return;
  const ExprNode n = pool_[condition];
  if (n.prim == Prim::And || n.prim == Prim::Or || n.prim == Prim::Not) {
    find_steps(n.a, found);
    if (n.prim != Prim::Not) find_steps(n.b, found);
  } else if ((n.prim == Prim::Lt || n.prim == Prim::Le) && pool_[n.a].type == DType::Int64 &&
             is_position(n.a) && is_position(n.b) && is_linear(n.a) && is_linear(n.b) &&
             std::find(found.begin(), found.end(), condition) == found.end()) {
    found.push_back(condition);
  }
}

/// The conditions, or parts of one, that differ between lanes and are known before the loop inside.
void FunctionEmitter::find_fixed(ExprId condition, std::vector<ExprId>& found) {
  if (condition == kNoExpr || !at_.varying(condition)) return;
  const ExprNode n = pool_[condition];
  if (at_.depth_of(condition) <= at_.lanes_depth()) {
    if (std::find(found.begin(), found.end(), condition) == found.end()) found.push_back(condition);
  } else if (n.prim == Prim::And || n.prim == Prim::Or || n.prim == Prim::Not) {
    find_fixed(n.a, found);
    find_fixed(n.b, found);
  }
}

/// Whether each of these conditions is equal on all lanes that are on, and what it is there.
Value* FunctionEmitter::equal_lanes(const std::vector<ExprId>& conditions,
                                    std::vector<std::pair<ExprId, Value*>>& bits) {
  Value *equal = b_.getTrue(), *on = mask_at(at_.lanes_depth());
  for (const ExprId e : conditions) {
    Value* lanes = vector(e);
    Value* all = b_.CreateAndReduce(on ? b_.CreateOr(lanes, b_.CreateNot(on)) : lanes);
    bits.emplace_back(e, all);
    equal = b_.CreateAnd(equal, b_.CreateICmpEQ(all, any(on ? b_.CreateAnd(lanes, on) : lanes)));
  }
  return equal;
}

/// Such a condition as one bit, in the body where all of them are; null elsewhere.
Value* FunctionEmitter::fixed(ExprId condition) {
  for (const auto& [id, bit] : fixed_)
    if (id == condition) return bit;
  if (fixed_.empty() || condition == kNoExpr) return nullptr;
  const ExprNode n = pool_[condition];
  if (n.prim != Prim::And) return nullptr;
  Value *a = fixed(n.a), *b = a ? fixed(n.b) : nullptr;
  return b ? b_.CreateAnd(a, b) : nullptr;
}

/// Of a large body, and of many conditions, nothing is asked before the loop.
void FunctionEmitter::InnerLoop::keep_few(std::size_t body_size) {
  if (guards.size() > kMostInnerGuards || body_size > kMostInnerSize) guards.clear();
  if (body_size > kMostInnerSize) steps.clear();
  if (body_size > kMostInnerSize) windows.clear();
  // Windows are asked about alone: conditions of pairs are equal on no vector's lanes.
  if (!windows.empty() || fixed.size() > kMostInnerGuards || body_size > kMostInnerSize) fixed.clear();
}

/// A loop whose windows are not known to fit: their last pieces are found before it, and nowhere else.
void FunctionEmitter::unknown_loop(llvm::function_ref<void()> loop) {
  BasicBlock* unknown = BasicBlock::Create(c_, "unknown", fn_);
  unknown_at_ = b_.CreateBr(unknown);
  b_.SetInsertPoint(unknown);
  loop();
  unknown_at_ = nullptr;
  for (Window& w : windows_)
    if (!w.moved) w.four.clear(), w.fits_four = nullptr;
}

/// A loop inside the Vector loop with windows or guards: whether all windows fit into one register each, or
/// two, and no guard changes, is asked once before it. Emits nothing and returns false where there are none.
bool FunctionEmitter::inner_loop(const LoopDecl& l) {
  if (!at_.lanes_depth() || depth() != at_.lanes_depth() || uniform_at_) return false;
  if (std::any_of(accs_.begin(), accs_.end(), [](const AccState& s) { return s.scan; })) return false;
  InnerLoop found;
  examines_ = true;
  examine(l, found);
  examines_ = false;
  sync();
  const std::size_t size = body_size(l);
  found.keep_few(size);
  if (found.windows.empty() && found.guards.empty() && found.fixed.empty() && found.steps.empty())
    return false;
  std::vector<std::pair<ExprId, Value*>> fixed;
  Value* all_equal = equal_lanes(found.fixed, fixed);
  for (InnerGuard& g : found.guards) find_reach(g);
  Value *one = b_.getTrue(), *two = b_.getTrue(), *end = scalar(l.extent);
  for (Window& w : windows_) w.asked = false;
  for (const WindowedLoad& load : found.windows) {
    Window& w = window_of(pool_[load.load], load.split, load.predicate);
    w.asked = true;
    one = b_.CreateAnd(one, b_.CreateNot(w.second));
    two = b_.CreateAnd(two, w.fits);
  }
  const auto block_named = [&](const char* name) { return BasicBlock::Create(c_, name, fn_); };
  BasicBlock *after = block_named("after"), *setup = block_named("guards");
  llvm::Instruction* before = b_.CreateBr(setup);
  b_.SetInsertPoint(setup);
  std::vector<std::pair<ExprId, Value*>> bits;
  const bool moves = !found.guards.empty() || !found.steps.empty();
  Value* same = moves ? find_bits(l, found, end, before, bits) : b_.getTrue();
  same = b_.CreateAnd(same, all_equal);
  const auto loop_of = [&](llvm::function_ref<void()> body) {
    counted(l, b_.getInt64(0), end, b_.getInt64(1), [&](Value*) { body(); }, before);
  };
  const auto loop_if = [&](Value* condition, Reach reach, llvm::function_ref<void()> body) {
    BasicBlock *known = block_named("known"), *otherwise = block_named("otherwise");
    b_.CreateCondBr(condition, known, otherwise);
    b_.SetInsertPoint(known);
    reach_ = reach;
    loop_of(body);
    b_.CreateBr(after);
    reach_ = Reach::Unknown;
    b_.SetInsertPoint(otherwise);
  };
  const bool small = found.windows.empty() || size <= kSmallInnerSize;
  loop_if(b_.CreateAnd(small ? one : two, same), small ? Reach::One : Reach::Two, [&] {
    uniform_ = bits, fixed_ = fixed;
    block(l.body);
    uniform_.clear(), fixed_.clear();
  });
  if (found.windows.empty()) {
    loop_of([&] { inner_body(l, found.guards); });
  } else {
    if (small) loop_if(two, Reach::Two, [&] { inner_body(l, found.guards); });
    unknown_loop([&] { loop_of([&] { small ? block(l.body) : inner_body(l, found.guards); }); });
  }
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  return true;
}

}  // namespace kiln::codegen
