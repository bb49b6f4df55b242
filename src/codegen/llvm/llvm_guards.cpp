// FunctionEmitter: vector loops whose loads have guards, such as those of a stencil, a pad or a join.
//
// A guard compares two positions whose difference changes by one from lane to lane: it changes its value once
// in the loop. Between two such changes every guard is equal on all lanes. The loop runs from change to
// change in a body without masks, in which a guard is one bit; the vectors in which a guard changes, and the
// last lanes, take a body that masks each lane.
#include "codegen/llvm/llvm_function.h"

#include <algorithm>

namespace kiln::codegen {

constexpr std::int64_t kLeastVectors = 4;  // of a loop that is worth the search for changes
constexpr std::size_t kMostGuards = 40;    // of a loop: more are compared lane by lane
constexpr int kMostArm = 8;                // operations that are made on a branch of their own
constexpr std::size_t kLeastAbsent = 3;    // loads that may be absent, of a loop with a body where none is
constexpr std::size_t kMostThere = 500;    // size of such a body
constexpr std::size_t kMostSize = 500;     // of a body: compile time grows with it

/// The guards in the body of `l`, the innermost open loop.
std::vector<FunctionEmitter::Guard> FunctionEmitter::guards_of(const LoopDecl& l) {
  std::vector<bool> seen(pool_.size());
  std::vector<Guard> out;
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (e == kNoExpr || (e < seen.size() && seen[e]) || !at_.varying(e)) return;
    if (e < seen.size()) seen[e] = true;
    const ExprNode n = pool_[e];
    if (const std::optional<LaneBound> bound = lane_bound(n)) out.push_back({e, *bound, nullptr});
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    visit(visit, s.value);
    visit(visit, s.index);
  }
  return out;
}

/// Emits the loop and returns true if it has guards; else emits nothing.
bool FunctionEmitter::guarded_loop(const LoopDecl& l) {
  if (contains_loop(l) || body_size(l) > kMostSize) return false;
  open_scope(l, b_.getInt64(0), nullptr);
  guards_ = guards_of(l);
  close_scope(l);
  if (guards_.empty() || guards_.size() > kMostGuards) return false;
  set_lanes(l.lanes);
  const auto block_named = [&](const char* name) { return BasicBlock::Create(c_, name, fn_); };
  BasicBlock *setup = block_named("guards"), *head = block_named("stretch"), *begin = block_named("uniform");
  BasicBlock *part = block_named("part"), *after = block_named("after");
  Value* end = scalar(l.extent);
  llvm::Instruction* before = b_.CreateBr(setup);
  b_.SetInsertPoint(setup);
  find_changes(l, before);
  from_line_ = ragged_rows(l);
  const bool early = from_line_ != kNoExpr;
  Value *lanes = b_.getInt64(static_cast<std::uint64_t>(lanes_)), *zero = b_.getInt64(0);
  Value* first = early ? line_before(l, from_line_, before) : zero;
  Value* long_enough = b_.CreateICmpSGE(end, b_.getInt64(static_cast<std::uint64_t>(kLeastVectors * lanes_)));
  Value* whole = b_.CreateSelect(long_enough, whole_vectors(end, first), first);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(i64(), 2, "stretch" + std::to_string(l.var));
  i->addIncoming(first, setup);
  b_.CreateCondBr(b_.CreateICmpSLT(i, end), begin, after);
  b_.SetInsertPoint(begin);
  Value* stop = next_change(i, whole, first);
  if (early) stop = b_.CreateSelect(b_.CreateICmpSLT(i, zero), i, stop);  // masked before the row
  Value* changed = vectors_between_changes(l, i, stop, before);
  b_.CreateCondBr(b_.CreateICmpSLT(changed, end), part, after);
  b_.SetInsertPoint(part);
  open_scope(l, l.again ? capped(changed, end, lanes) : changed, before);
  early_ = early ? b_.CreateNeg(changed) : nullptr;
  lane_body(l, l.again ? nullptr : b_.CreateSub(end, changed), false);
  close_scope(l);
  i->addIncoming(b_.CreateNSWAdd(changed, lanes), b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
  from_line_ = kNoExpr;
  return true;
}

/// The vectors from i to `stop`, in which guards are equal on all lanes. Returns where they end. Where all
/// loads are there, which is the most of an array with a border, nothing asks for it.
Value* FunctionEmitter::vectors_between_changes(const LoopDecl& l, Value* i, Value* stop,
                                                llvm::Instruction* before) {
  const auto block_named = [&](const char* name) { return BasicBlock::Create(c_, name, fn_); };
  const auto bits = uniform_;
  const auto vectors = [&] {
    BasicBlock* loop = block_named("lanes");
    uniform_at_ = b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    Value* step = b_.getInt64(static_cast<std::uint64_t>(lanes_));
    Value* end = counted(l, i, stop, step, [&](Value*) { lane_body(l, nullptr, false); }, before);
    uniform_at_ = nullptr;
    uniform_ = bits;  // the others were computed for this body
    return end;
  };
  Value* changed = nullptr;
  if (Value* everything = find_there(l, before)) {
    BasicBlock *there = block_named("there"), *others = block_named("others"),
               *joined = block_named("joined");
    b_.CreateCondBr(everything, there, others);
    llvm::PHINode* either = llvm::PHINode::Create(i64(), 2, "", joined);
    for (BasicBlock* arm : {there, others}) {
      b_.SetInsertPoint(arm);
      knows_there_ = arm == there;
      Value* end = vectors();
      either->addIncoming(end, b_.GetInsertBlock());
      b_.CreateBr(joined);
    }
    b_.SetInsertPoint(joined);
    changed = either;
  } else {
    changed = vectors();
  }
  uniform_.clear();
  return changed;
}

/// Whether a value is one load, perhaps of another type; the load in `to`.
bool FunctionEmitter::is_load(ExprId e, ExprId& to) const {
  while (pool_[e].prim == Prim::Cast) e = pool_[e].a;
  to = e;
  return pool_[e].prim == Prim::Load;
}

/// Finds what the loads of a loop ask for (there_, either_), and returns whether all that is so in the
/// vectors at hand: a pad's interior, or one of two parts of a roll. Null: such loads are few, or conditions
/// differ between lanes. Where the rolled parts' elements are on lane 0 of the loop's first vector is kept
/// (begins_).
Value* FunctionEmitter::find_there(const LoopDecl& l, llvm::Instruction* before) {
  there_.clear(), absent_.clear(), either_.clear(), begins_.clear();
  if (body_size(l) > kMostThere) return nullptr;
  open_scope(l, b_.getInt64(0), before);
  std::vector<bool> seen(pool_.size());
  std::size_t loads = 0;
  bool known = true;
  const auto visit = [&](const auto& self, ExprId e) -> void {
    if (e == kNoExpr || e >= seen.size() || seen[e] || !at_.varying(e)) return;
    seen[e] = true;
    const ExprNode n = pool_[e];
    ExprId one = kNoExpr, other = kNoExpr;
    if (n.prim == Prim::Select && is_load(n.b, one) && is_load(n.c, other) && pool_[one].b == n.a &&
        pool_[other].b != kNoExpr && kernel::known(at_.lane_stride(pool_[one].a)) == 1 &&
        kernel::known(at_.lane_stride(pool_[other].a)) == 1) {
      ++loads;
      either_.push_back({n.a, pool_[other].b});
      for (const ExprId load : {one, other}) begins_.push_back({pool_[load].a, scalar(pool_[load].a)});
      return;
    }
    if (const auto kept = part_beside_one(n)) {
      ++loads;
      if (*kept == n.b) add_conditions(n.a, there_);
      if (*kept == n.c) absent_.push_back(n.a);
      return self(self, *kept);
    }
    int cost = 0, other_cost = 0;
    if (n.prim == Prim::Select && loads_below(n.b, cost) > 0 && loads_below(n.c, other_cost) > 0)
      known = false;
    if (n.prim == Prim::Load && n.b != kNoExpr) {
      ++loads;
      add_conditions(n.b, there_);
    }
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) visit(visit, s.value);
  sync();
  Value* all = known && loads >= kLeastAbsent ? b_.getTrue() : nullptr;
  const auto bit_of_vectors = [&](ExprId e) {
    return at_.varying(e) || at_.depth_of(e) < depth() ? uniform(e) : nullptr;
  };
  for (const ExprId e : there_)
    all = all && bit_of_vectors(e) ? b_.CreateAnd(all, bit_of_vectors(e)) : nullptr;
  for (const ExprId e : absent_)
    all = all && bit_of_vectors(e) ? b_.CreateAnd(all, b_.CreateNot(bit_of_vectors(e))) : nullptr;
  for (const auto& [one, other] : either_) {
    Value *a = all ? bit_of_vectors(one) : nullptr, *b = a ? bit_of_vectors(other) : nullptr;
    all = b ? b_.CreateAnd(all, b_.CreateOr(a, b)) : nullptr;
  }
  close_scope(l);
  return all;
}

/// Of a choice between adjacent elements and one element, as the part of a roll that comes from the other end
/// may be: the former, which most vectors have.
std::optional<ExprId> FunctionEmitter::part_beside_one(const ExprNode& n) {
  ExprId parts[] = {kNoExpr, kNoExpr};
  if (n.prim != Prim::Select || !is_load(n.b, parts[0]) || !is_load(n.c, parts[1])) return std::nullopt;
  bool adjacent[2], one[2];
  for (int i = 0; i < 2; ++i) {
    const std::optional<std::int64_t> stride = kernel::known(at_.lane_stride(pool_[parts[i]].a));
    adjacent[i] = stride == 1, one[i] = stride == 0;
  }
  sync();
  if (adjacent[0] && one[1]) return n.b;
  return adjacent[1] && one[0] ? std::optional(n.c) : std::nullopt;
}

/// The conditions that such a one is made of: it holds where they all do.
void FunctionEmitter::add_conditions(ExprId condition, std::vector<ExprId>& to) {
  const ExprNode n = pool_[condition];
  if (n.prim == Prim::And) {
    add_conditions(n.a, to);
    add_conditions(n.b, to);
  } else if (std::find(to.begin(), to.end(), condition) == to.end()) {
    to.push_back(condition);
  }
}

/// Whether a condition is known not to hold in the body at hand.
bool FunctionEmitter::is_absent(ExprId condition) const {
  return knows_there_ && uniform_at_ && std::find(absent_.begin(), absent_.end(), condition) != absent_.end();
}

/// Whether a condition is known to hold in the body at hand.
bool FunctionEmitter::is_there(ExprId condition) const {
  if (!knows_there_ || !uniform_at_ || condition == kNoExpr) return false;
  if (std::find(there_.begin(), there_.end(), condition) != there_.end()) return true;
  const ExprNode n = pool_[condition];
  return n.prim == Prim::And && is_there(n.a) && is_there(n.b);
}

/// The value of the loop's variable at which each guard changes.
void FunctionEmitter::find_changes(const LoopDecl& l, llvm::Instruction* before) {
  open_scope(l, b_.getInt64(0), before);
  for (Guard& g : guards_) g.change = bound_of(g.bound);
  close_scope(l);
}

/// The end of the vectors from i on in which no guard changes, and at `uniform_` the guards there.
Value* FunctionEmitter::next_change(Value* i, Value* whole, Value* first) {
  Value* stop = whole;
  for (const Guard& g : guards_) {
    Value* ahead = b_.CreateICmpSLT(i, g.change);
    uniform_.push_back({g.expression, g.bound.below ? ahead : b_.CreateNot(ahead)});
    Value* at = b_.CreateSelect(ahead, whole_vectors(g.change, first), whole);
    stop = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, stop, at);
  }
  return stop;
}

/// The end of the whole vectors from `first` on that end before `end`, or at it.
Value* FunctionEmitter::whole_vectors(Value* end, Value* first) {
  Value* lanes = b_.getInt64(~static_cast<std::uint64_t>(lanes_ - 1));
  return b_.CreateAdd(first, b_.CreateAnd(b_.CreateSub(end, first), lanes));
}

/// A condition that is equal on all lanes as one bit, in the body without masks from outside the loop. Null:
/// it may differ.
Value* FunctionEmitter::uniform(ExprId e) {
  if (is_there(e)) return b_.getTrue();
  if (!at_.varying(e)) return uniform_at_ && at_.depth_of(e) >= depth() ? nullptr : scalar(e);
  for (const auto& [id, value] : uniform_)
    if (id == e) return value;
  const ExprNode n = pool_[e];
  if (uniform_.empty() || !is_bool(n.type) ||
      (n.prim != Prim::And && n.prim != Prim::Or && n.prim != Prim::Not))
    return nullptr;
  Value *a = uniform(n.a), *b = n.prim == Prim::Not ? nullptr : uniform(n.b);
  if (!a || (n.prim != Prim::Not && !b)) return nullptr;
  if (!uniform_at_) return v_.compute(n.prim, n.type, n.type, a, b, nullptr);
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(uniform_at_);
  uniform_.push_back({e, v_.compute(n.prim, n.type, n.type, a, b, nullptr)});
  return uniform_.back().second;
}

/// One bit on all lanes, in the body without masks from outside the loop.
Value* FunctionEmitter::uniform_mask(Value* bit) {
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  if (uniform_at_) b_.SetInsertPoint(uniform_at_);
  return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), bit);
}

/// The part of a predicate that differs between lanes and does not change in the inner loop, or kNoExpr.
/// Nothing where another part differs that the inner loop changes, unless it is uniform.
std::optional<ExprId> FunctionEmitter::lanes_part(ExprId e) {
  if (e == kNoExpr) return kNoExpr;
  // In the body without masks an expression that is made there is no bit, though it is equal on all lanes.
  if (!at_.varying(e)) return examines_ || uniform(e) ? std::optional(kNoExpr) : std::nullopt;
  if (at_.depth_of(e) <= at_.lanes_depth()) return e;
  const ExprNode n = pool_[e];
  if (examines_ ? inner_guard(e, n).has_value() : uniform(e) != nullptr) return kNoExpr;
  if (n.prim != Prim::And) return std::nullopt;
  const auto a = lanes_part(n.a), b = a ? lanes_part(n.b) : std::nullopt;
  if (!b) return std::nullopt;
  if (*a == kNoExpr || *b == kNoExpr) return *a == kNoExpr ? *b : *a;
  return (E{&pool_, *a} & E{&pool_, *b}).id;
}

/// The rest of it, which is equal on all lanes. Pre: lanes_part(e).
void FunctionEmitter::add_bits(ExprId e, Condition& to) {
  if (Value* bit = uniform(e)) return to.bits.push_back(bit);
  if (at_.depth_of(e) <= at_.lanes_depth()) return;
  const ExprNode n = pool_[e];
  add_bits(n.a, to);
  add_bits(n.b, to);
}

FunctionEmitter::Condition FunctionEmitter::condition_of(ExprId e) {
  if (e == kNoExpr || is_there(e)) return {};
  if (Value* bit = uniform(e)) return {kNoExpr, {bit}};
  const std::optional<ExprId> lanes = lanes_part(e);
  sync();
  Condition on{lanes.value_or(e), {}};
  if (lanes && *lanes != e) add_bits(e, on);
  return on;
}

/// What is equal on all lanes as one bit, made here; null: it always holds.
Value* FunctionEmitter::bit_of(const Condition& on) {
  Value* all = nullptr;
  for (Value* bit : on.bits) all = combine(all, bit);
  return all;
}

/// Whether a condition holds on any lane; null: it always does. `lanes`: the values of its part that differs.
Value* FunctionEmitter::any_of(const Condition& on, Value* lanes) {
  return combine(lanes ? any_lane(on.lanes, lanes) : nullptr, bit_of(on));
}

/// The address of adjacent elements that a load, or a choice between loads of one type or numbers, reads in
/// the body without masks. Null: the value is something else.
Value* FunctionEmitter::chosen_address(ExprId e, Chosen& chosen) {
  const ExprNode n = pool_[e];
  if (n.prim != Prim::Select) chosen.casts.push_back(n.type);
  if (n.prim == Prim::Cast) return chosen_address(n.a, chosen);
  if (n.prim == Prim::Load) {
    if (mask_at(depth()) && !masks_loads(n.type)) return nullptr;
    const bool always = n.b == kNoExpr || n.b == chosen.holds || is_there(n.b);
    Value* on = always ? nullptr : uniform(n.b);
    if (!always && !on && at_.depth_of(e) > at_.lanes_depth()) on = fixed(n.b);
    const E stride = at_.lane_stride(n.a);
    sync();
    if ((!always && !on) || kernel::known(stride) != 1) return nullptr;
    chosen.stream |= k_.buffers[n.imm].stream && depth_of_jump(n.a) == 0;
    Value* base = b_.CreateGEP(memory_type(c_, n.type), buffers_[n.imm], scalar(n.a));
    return on ? b_.CreateSelect(on, base, zero_memory()) : base;
  }
  if (n.prim != Prim::Select) return filled_memory(e);
  Value* first = uniform(n.a);
  if (!first) return nullptr;
  Chosen other = chosen;
  chosen.holds = n.a, other.holds = kNoExpr;
  Value* then_address = chosen_address(n.b, chosen);
  Value* else_address = then_address ? chosen_address(n.c, other) : nullptr;
  if (!else_address || chosen.casts != other.casts) return nullptr;
  chosen.stream |= other.stream;
  return b_.CreateSelect(first, then_address, else_address);
}

/// A vector of one number of the function, such as what pads an array, in memory. Null: it is not that.
Value* FunctionEmitter::filled_memory(ExprId e) {
  if (at_.varying(e) || at_.depth_of(e) != 0) return nullptr;
  for (const auto& [id, lanes, memory] : equal_lanes_)
    if (id == e && lanes == lanes_) return memory;
  const DType type = pool_[e].type;
  Value *number = scalar(e), *memory = vector_memory(memory_type(c_, type));
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(scopes_[1].preheader_end);
  Value* all = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), to_memory(number, type));
  b_.CreateAlignedStore(all, memory, element_align(type));
  equal_lanes_.push_back({e, lanes_, memory});
  return memory;
}

/// Where such a value is in memory on lane 0 of the loop's first vector, if it is one of two parts of a roll:
/// chosen once for all vectors of the body without masks. Null: something else.
Value* FunctionEmitter::chosen_part(const ExprNode& n, Chosen& chosen) {
  const auto pair = std::ranges::find(either_, n.a, &std::pair<ExprId, ExprId>::first);
  if (!knows_there_ || !uniform_at_ || pair == either_.end()) return nullptr;
  ExprId one = kNoExpr, other = kNoExpr;
  if (!is_load(n.b, one) || !is_load(n.c, other) || pool_[one].b != n.a || pool_[other].b != pair->second)
    return nullptr;
  const auto casts_of = [&](ExprId e) {
    std::vector<DType> casts{pool_[e].type};
    while (pool_[e].prim == Prim::Cast) casts.push_back(pool_[e = pool_[e].a].type);
    return casts;
  };
  chosen.casts = casts_of(n.b);
  const auto begin_of = [&](ExprId index) {
    return std::ranges::find(begins_, index, &std::pair<ExprId, Value*>::first);
  };
  const auto a = begin_of(pool_[one].a), b = begin_of(pool_[other].a);
  if (chosen.casts != casts_of(n.c) || a == begins_.end() || b == begins_.end()) return nullptr;
  for (const ExprId load : {one, other})
    chosen.stream |= k_.buffers[pool_[load].imm].stream && depth_of_jump(pool_[load].a) == 0;
  llvm::Type* t = memory_type(c_, chosen.casts.back());
  Value* first = uniform(n.a);
  llvm::IRBuilder<>::InsertPointGuard guard(b_);
  b_.SetInsertPoint(uniform_at_);
  return b_.CreateSelect(first, b_.CreateGEP(t, buffers_[pool_[one].imm], a->second),
                         b_.CreateGEP(t, buffers_[pool_[other].imm], b->second));
}

/// Loads of adjacent elements that a value is made of; `cost` grows by the operations.
int FunctionEmitter::loads_below(ExprId e, int& cost) {
  if (!at_.varying(e)) return 0;
  const ExprNode n = pool_[e];
  ++cost;
  if (n.prim == Prim::Load) {
    const std::optional<std::int64_t> stride = kernel::known(at_.lane_stride(n.a));
    sync();
    return stride == 1 || stride == -1;
  }
  int found = 0;
  if (cost < kMostArm) each_operand(n, [&](ExprId o) { found += loads_below(o, cost); });
  return found;
}

/// A value that is computed on one branch: nothing that was computed there is known beyond it.
Value* FunctionEmitter::arm(llvm::function_ref<Value*()> value) {
  const std::size_t before = scopes_.back().memoized.size();
  Value* v = value();
  std::vector<ExprId>& all = scopes_.back().memoized;
  for (std::size_t i = before; i < all.size(); ++i) scalar_[all[i]] = vector_[all[i]] = nullptr;
  all.resize(before);
  return v;
}

/// A choice that is equal on all lanes: of two loads only the one that is wanted is made, by its address or
/// on a branch. Null: the choice differs between lanes in other ways in each iteration, or nothing would be
/// saved.
Value* FunctionEmitter::choose(ExprId e, const ExprNode& n) {
  if (is_there(n.a) || is_absent(n.a)) {
    Value* v = vector(is_there(n.a) ? n.b : n.c);
    return place(at_.depth_of(e), e, vector_, [&] { return v; });
  }
  Value* first = at_.depth_of(e) == depth() ? uniform(n.a) : nullptr;
  if (!first && at_.depth_of(e) == depth()) first = fixed(n.a);
  int cost = 0;
  const int loads = loads_below(n.b, cost);
  if (!first) {
    // Equal in all iterations of the inner loop: what is chosen on no lane is left out.
    const bool same = depth() > at_.lanes_depth() && at_.depth_of(n.a) <= at_.lanes_depth() &&
                      at_.depth_of(e) == depth() && at_.depth_of(n.b) == depth();
    if (!same || loads == 0 || cost >= kMostArm) return nullptr;
    Value *mask = vector(n.a), *other = vector(n.c), *somewhere = any_lane(n.a, mask);
    return place(depth(), e, vector_, [&] {
      const auto both = [&] { return b_.CreateSelect(mask, vector(n.b), other); };
      return branch(somewhere, [&] { return arm(both); }, [&] { return other; });
    });
  }
  Chosen chosen;
  Value* address = chosen_part(n, chosen);
  if (address)
    address = b_.CreateGEP(memory_type(c_, chosen.casts.back()), address, scopes_.back().index);
  else if (chosen = {}; loads > 0 || loads_below(n.c, cost) > 0)
    address = chosen_address(e, chosen);
  if (address) {
    return place(depth(), e, vector_, [&] {
      const DType stored = chosen.casts.back();
      if (chosen.stream) prefetch(address, lanes_ * size_of(stored), -1, false);
      llvm::Type* t = vec(memory_type(c_, stored));
      Value *mask = mask_at(depth()), *v = nullptr;
      if (mask)
        v = b_.CreateMaskedLoad(t, address, element_align(stored), mask, llvm::Constant::getNullValue(t));
      else
        v = b_.CreateAlignedLoad(t, address, element_align(stored));
      v = from_memory(v, stored);
      for (std::size_t k = chosen.casts.size() - 1; k-- > 0;)
        v = v_.compute(Prim::Cast, chosen.casts[k], chosen.casts[k + 1], v, nullptr, nullptr);
      return v;
    });
  }
  if (loads > 0 || loads_below(n.c, cost) > 0)
    return place(depth(), e, vector_, [&] {
      return branch(
          first, [&] { return arm([&] { return vector(n.b); }); },
          [&] { return arm([&] { return vector(n.c); }); });
    });
  if (!uniform_at_) return nullptr;
  Value *a = vector(n.b), *b = vector(n.c), *mask = uniform_mask(first);
  return place(depth(), e, vector_, [&] { return b_.CreateSelect(mask, a, b); });
}

}  // namespace kiln::codegen
