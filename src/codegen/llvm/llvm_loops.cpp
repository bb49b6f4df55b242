// FunctionEmitter: loops and their scopes.
//
// Tails: a small vector body is emitted twice (full, then masked); a large one once, always masked, because
// compile time grows with emitted instructions and an all-true mask costs little. Where iterations may be
// made again the last vector begins early instead, and the body is emitted once without masks.
#include "codegen/llvm/llvm_function.h"

#include "support/check.h"

#include <llvm/IR/InlineAsm.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace kiln::codegen {

// vector primitives up to which full and masked bodies are both emitted
constexpr std::size_t kTwoBodies = 70;
// … where accumulators would be masked: spilled for it without registers of masks, and with them every
// operand of two bytes would be loaded under a mask and taken apart
constexpr std::size_t kTwoReductions = 160;

// addresses of a loop inside the Vector loop that registers have room for
constexpr std::size_t kMostPointers = 12;

/// Vector primitives up to which a body is emitted twice. Without registers of masks a mask takes
/// instructions of its own wherever it is made, kept or used.
static std::size_t most_of_two_bodies(const LoopDecl& l, bool masks) {
  return l.accs.empty() && masks ? kTwoBodies : kTwoReductions;
}

void FunctionEmitter::block(const std::vector<Stmt>& body) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Stmt& s = body[i];
    switch (s.kind) {
      case Stmt::Kind::Loop: loop(k_.loops[s.target]); break;
      case Stmt::Kind::Update: {
        const Marked mark(*this, {kernel::Mark::Of::Update, s.target});
        update(s);
        break;
      }
      case Stmt::Kind::Store: {
        const Marked mark(*this, {kernel::Mark::Of::Store, s.target});
        store(s, std::span(body).subspan(i + 1));
        break;
      }
      case Stmt::Kind::Across: KILN_CHECK_THAT(false, "values of lanes come together on a GPU alone"); break;
    }
  }
}

/// Loads what later statements read where `s` stores: a result may take the memory of an argument
/// (plan/reuse.h), and what was loaded on a branch, or by an address that was chosen, is not known beyond it.
void FunctionEmitter::load_before(const Stmt& s, std::span<const Stmt> later) {
  const auto known = [&](ExprId e) { return scalar_[e] || vector_[e]; };
  llvm::SmallVector<ExprId, 32> stack;
  llvm::SmallDenseSet<ExprId, 32> seen;
  for (const Stmt& other : later)
    if (other.kind == Stmt::Kind::Store) stack.push_back(other.value);
  while (!stack.empty()) {
    const ExprId e = stack.pop_back_val();
    if (known(e) || !seen.insert(e).second) continue;
    const ExprNode n = pool_[e];
    const bool there = n.prim == Prim::Load && n.a == s.index && n.imm != s.target &&
                       size_of(k_.buffers[n.imm].dtype) == size_of(k_.buffers[s.target].dtype);
    if (there)
      at_.lanes_depth() ? vector(e) : scalar(e);
    else
      each_operand(n, [&](ExprId o) { stack.push_back(o); });
  }
}

void FunctionEmitter::open_scope(const LoopDecl& l, Value* index, llvm::Instruction* preheader_end) {
  scopes_.push_back({&l, index, preheader_end, {}});
  at_.open(l);
}

void FunctionEmitter::close_scope(const LoopDecl& l) {
  forget(scopes_.back());
  scopes_.pop_back();
  std::erase_if(any_lane_, [&](const AnyLane& known) { return known.depth >= scopes_.size(); });
  at_.close(l);
}

/// while (condition) body, all lanes together until none goes on; or as often as the loop has an extent.
void FunctionEmitter::while_loop(const LoopDecl& l) {
  std::vector<Value*> inits;
  for (ExprId e : l.inits) inits.push_back(at_.lanes_depth() ? vector(e) : scalar(e));
  for (std::size_t i = 0; i < inits.size(); ++i) b_.CreateStore(inits[i], accs_[l.accs[i]].parts[0]);
  BasicBlock* head = BasicBlock::Create(c_, "while", fn_);
  BasicBlock* inside = BasicBlock::Create(c_, "body", fn_);
  BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
  Value* end = l.extent == kNoExpr ? nullptr : scalar(l.extent);
  BasicBlock* before = b_.GetInsertBlock();
  llvm::Instruction* preheader_end = b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(i64(), 2, "i" + std::to_string(l.var));
  i->addIncoming(b_.getInt64(0), before);
  open_scope(l, i, preheader_end);
  for (std::uint32_t a : l.accs) {
    AccState& s = accs_[a];
    s.before = load_parts(s)[0];
    at_.show_running(a);
  }
  Value* goes_on = nullptr;
  if (end) {
    goes_on = b_.CreateICmpSLT(i, end);
  } else if (at_.lanes_depth()) {
    Value* active = combine(vector(l.condition), mask_at(depth()));
    scopes_.back().active = active;
    goes_on = b_.CreateICmpNE(b_.CreateBitCast(active, b_.getIntNTy(static_cast<unsigned>(lanes_))),
                              b_.getIntN(static_cast<unsigned>(lanes_), 0));
  } else {
    goes_on = scalar(l.condition);
  }
  b_.CreateCondBr(goes_on, inside, after);
  b_.SetInsertPoint(inside);
  block(l.body);
  close_scope(l);
  i->addIncoming(b_.CreateNSWAdd(i, b_.getInt64(1)), b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}

void FunctionEmitter::loop(const LoopDecl& l) {
  begin_accs(l);
  if (l.kind == LoopKind::While) {
    while_loop(l);
  } else if (l.kind == LoopKind::Vector) {
    vector_loop(l);
  } else if (l.rows > 1) {
    loop_side_by_side(l);
  } else if (const std::vector<ExprId> cuts = waists_inside(l); !cuts.empty()) {
    loop_in_stages(l, cuts);
  } else if (l.kind == LoopKind::Grid || !inner_loop(l)) {
    Value* first = l.kind == LoopKind::Grid ? static_cast<Value*>(fn_->getArg(1)) : b_.getInt64(0);
    Value* end = l.kind == LoopKind::Grid ? static_cast<Value*>(fn_->getArg(2)) : scalar(l.extent);
    counted(l, first, end, b_.getInt64(1), [&](Value*) { block(l.body); });
  }
  end_accs(l);
}

/// for (i = first; i < end; i += step) body(i). Returns the value of i after it. `preheader_end`: where code
/// for the scope around it may be placed, if not just before the loop.
Value* FunctionEmitter::counted(const LoopDecl& l, Value* first, Value* end, Value* step,
                                llvm::function_ref<void(Value*)> body, llvm::Instruction* preheader_end) {
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* head = BasicBlock::Create(c_, "loop", fn_);
  BasicBlock* inside = BasicBlock::Create(c_, "body", fn_);
  BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
  llvm::Instruction* enter = b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(i64(), 2, "i" + std::to_string(l.var));
  i->addIncoming(first, before);
  b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after);
  b_.SetInsertPoint(inside);
  open_scope(l, i, preheader_end ? preheader_end : enter);
  if (at_.lanes_depth() > 0 && depth() > at_.lanes_depth() && addresses_in(l) > kMostPointers)
    scopes_.back().index = opaque(i);
  body(i);
  close_scope(l);
  i->addIncoming(b_.CreateNSWAdd(i, step), b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
  return i;
}

/// A number of which LLVM knows nothing. It would keep a pointer for each load of a loop, and where these are
/// more than registers add to each of them in memory; an address from one index needs a load of its base.
Value* FunctionEmitter::opaque(Value* number) {
  auto* type = llvm::FunctionType::get(number->getType(), {number->getType()}, false);
  return b_.CreateCall(type, llvm::InlineAsm::get(type, "", "=r,0", false), {number});
}

/// Addresses that the loads of a loop's own statements read in each iteration: of elements apart two and
/// more.
std::size_t FunctionEmitter::addresses_in(const LoopDecl& l) {
  std::vector<bool> seen(pool_.size());
  std::size_t count = 0;
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (e == kNoExpr || e >= seen.size() || seen[e]) return;
    seen[e] = true;
    const ExprNode n = pool_[e];
    if (n.prim == Prim::Load && at_.depth_of(e) == depth()) {
      const std::optional<std::int64_t> stride = kernel::known(at_.lane_stride(n.a));
      count += stride && std::abs(*stride) <= 1 ? 1 : 2;
    }
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    if (s.kind == Stmt::Kind::Loop) continue;
    visit(visit, s.value);
    visit(visit, s.index);
  }
  sync();
  return count;
}

bool FunctionEmitter::contains_loop(const LoopDecl& l) const {
  return std::any_of(l.body.begin(), l.body.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::Loop; });
}

/// Vector instructions a body will take, roughly: distinct expressions its statements reach.
std::size_t FunctionEmitter::body_size(const LoopDecl& l) {
  std::vector<bool> seen(pool_.size());
  std::size_t count = 0;
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (e == kNoExpr || seen[e]) return;
    seen[e] = true;
    const ExprNode n = pool_[e];
    if (n.prim != Prim::Const && n.prim != Prim::Param && n.prim != Prim::Slot && n.prim != Prim::Var)
      ++count;
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body) {
    if (s.kind == Stmt::Kind::Loop) continue;
    visit(visit, s.value);
    visit(visit, s.index);
  }
  return count * static_cast<std::size_t>(std::max(1, l.lanes * 4 / target_.vector_bytes));
}

/// Chooses what a vector body leaves to the divider, which takes 10 cycles or more for a 512-bit register,
/// beside two ports for the rest. Square roots stay, unless there are quotients, too, and both would take
/// longer there than the rest with the instructions of a root. Of bounded quotients one stays for every 20
/// other instructions, less what needs the divider anyway.
void FunctionEmitter::share_divider(const LoopDecl& l) {
  constexpr int kCycles = 10, kOfRoot = 11;
  std::vector<bool> seen(pool_.size());
  int others = 0, quotients = 0, roots = 0;
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (seen[e] || !at_.varying(e)) return;
    seen[e] = true;
    const ExprNode n = pool_[e];
    if (n.prim == Prim::Load) return;
    if (n.prim == Prim::Sqrt)
      ++roots;
    else if (n.prim == Prim::Div && at_.varying(n.b))
      ++quotients;
    else if (n.prim != Prim::DivBounded && n.prim != Prim::Bitcast)
      others += n.prim == Prim::Scale ? 2 : 1;
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  for (const Stmt& s : l.body)
    if (s.kind != Stmt::Kind::Loop) visit(visit, s.value);
  const bool keep =
      k_.exact || quotients == 0 || 2 * kCycles * (quotients + roots) <= others + kOfRoot * roots;
  const int divider = keep ? quotients + roots : quotients;
  v_.keep_on_divider(std::max(0, (others + 4) / 20 - divider), keep);
}

/// Vectors made for loops of other widths, outside them, are no longer of use.
void FunctionEmitter::set_lanes(int lanes) {
  if (lanes != lanes_) std::fill(vector_.begin(), vector_.end(), nullptr);
  lanes_ = lanes;
}

/// The body of a Vector loop. `rest`: the elements left, of which it masks the lanes beyond; null: all lanes
/// are on. `is_last`: there are fewer than lanes.
void FunctionEmitter::lane_body(const LoopDecl& l, Value* rest, bool is_last,
                                llvm::function_ref<void()> inside) {
  lane_offsets_.clear();
  windows_.clear();
  any_lane_.clear();
  share_divider(l);
  if (rest) set_mask(rest);
  is_last_ = is_last;
  inside ? inside() : block(l.body);
  mask_ = remaining_ = early_ = nullptr;
  lane_offsets_.clear();
}

/// Whether a loop that has loops inside is emitted twice, too: without registers of masks, masked stores take
/// long.
bool FunctionEmitter::splits_tail(const LoopDecl& l) {
  if (target_.avx512) return false;
  return std::all_of(l.body.begin(), l.body.end(), [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::Loop) return true;
    const LoopDecl& inner = k_.loops[s.target];
    return inner.kind == LoopKind::Serial && splits_tail(inner) &&
           body_size(inner) <= most_of_two_bodies(inner, false);
  });
}

void FunctionEmitter::vector_loop(const LoopDecl& l) {
  set_lanes(l.lanes);
  if (guarded_loop(l)) return;
  if (const std::vector<ExprId> cuts = waists(l); !cuts.empty()) return loop_in_stages(l, cuts);
  Value* end = scalar(l.extent);
  Value* step = b_.getInt64(static_cast<std::uint64_t>(lanes_));
  if (l.again) {
    counted(l, b_.getInt64(0), end, step, [&](Value* i) {
      scopes_.back().index = capped(i, end, step);
      lane_body(l, nullptr, false);
    });
    return;
  }
  if (const ExprId index = ragged_rows(l); index != kNoExpr) return loop_from_line(l, index);
  const std::size_t most = most_of_two_bodies(l, target_.avx512);
  if ((contains_loop(l) && !splits_tail(l)) || body_size(l) > most) {
    counted(l, b_.getInt64(0), end, step, [&](Value* i) { lane_body(l, b_.CreateSub(end, i), false); });
    return;
  }
  Value* i = counted(l, b_.getInt64(0), whole_vectors(end, b_.getInt64(0)), step,
                     [&](Value*) { lane_body(l, nullptr, false); });
  // The remaining lanes, if any.
  BasicBlock* tail = BasicBlock::Create(c_, "tail", fn_);
  BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
  Value* rest = b_.CreateSub(end, i);
  llvm::Instruction* branch = b_.CreateCondBr(b_.CreateICmpSGT(rest, b_.getInt64(0)), tail, after);
  b_.SetInsertPoint(tail);
  open_scope(l, i, branch);
  lane_body(l, rest, true);
  close_scope(l);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

/// Where a loop stores rows past the caches that begin anywhere in a line, or kNoExpr.
ExprId FunctionEmitter::ragged_rows(const LoopDecl& l) {
  if (contains_loop(l)) return kNoExpr;
  const auto store = std::ranges::find_if(l.body, [&](const Stmt& s) {
    return s.kind == Stmt::Kind::Store && k_.buffers[s.target].stream && k_.buffers[s.target].ragged;
  });
  if (store == l.body.end()) return kNoExpr;
  // A scan's prefixes are those of all lanes.
  std::vector<bool> seen(pool_.size());
  const auto scans = [&](auto&& self, ExprId e) -> bool {
    if (e == kNoExpr || seen[e]) return false;
    seen[e] = true;
    const ExprNode n = pool_[e];
    bool found = n.prim == Prim::Running || n.prim == Prim::Before;
    each_operand(n, [&](ExprId o) { found = found || self(self, o); });
    return found;
  };
  if (std::ranges::any_of(l.body, [&](const Stmt& s) { return scans(scans, s.value); })) return kNoExpr;
  return store->index;
}

/// The iteration, at most 0, whose element begins a line.
Value* FunctionEmitter::line_before(const LoopDecl& l, ExprId index, llvm::Instruction* before) {
  std::int64_t line = lanes_;
  for (const Stmt& s : l.body)
    if (s.kind == Stmt::Kind::Store && s.index == index)
      line = std::min(line, 64 / size_of(k_.buffers[s.target].dtype));
  open_scope(l, b_.getInt64(0), before);
  Value* behind = b_.CreateAnd(scalar(index), b_.getInt64(static_cast<std::uint64_t>(line - 1)));
  close_scope(l);
  return b_.CreateNeg(behind);
}

/// A loop that stores a row past the caches: it begins before the row, where a line does, and what is before
/// the row is masked. The first and the last vector have one body.
void FunctionEmitter::loop_from_line(const LoopDecl& l, ExprId index) {
  const auto block_named = [&](const char* name) { return BasicBlock::Create(c_, name, fn_); };
  Value *end = scalar(l.extent), *lanes = b_.getInt64(static_cast<std::uint64_t>(lanes_));
  BasicBlock *setup = block_named("line"), *main = block_named("lanes"), *after = block_named("after");
  llvm::Instruction* before = b_.CreateBr(setup);
  b_.SetInsertPoint(setup);
  Value* first = line_before(l, index, before);
  from_line_ = index;
  const auto masked = [&](Value* i, bool is_last) {
    early_ = b_.CreateNeg(i);
    lane_body(l, b_.CreateSub(end, i), is_last);
  };
  if (body_size(l) > most_of_two_bodies(l, target_.avx512)) {
    b_.CreateBr(main);
    b_.SetInsertPoint(main);
    counted(l, first, end, lanes, [&](Value* i) { masked(i, false); }, before);
    b_.CreateBr(after);
  } else {
    BasicBlock* edge = block_named("edge");
    b_.CreateBr(edge);
    b_.SetInsertPoint(edge);
    llvm::PHINode* i = b_.CreatePHI(i64(), 2, "edge" + std::to_string(l.var));
    i->addIncoming(first, setup);
    open_scope(l, i, before);
    masked(i, false);
    close_scope(l);
    b_.CreateCondBr(b_.CreateICmpEQ(i, first), main, after);
    b_.SetInsertPoint(main);
    Value* second = b_.CreateAdd(first, lanes);
    Value* whole = whole_vectors(end, second);
    Value* rest = counted(l, second, whole, lanes, [&](Value*) { lane_body(l, nullptr, false); }, before);
    i->addIncoming(rest, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(rest, end), edge, after);
  }
  from_line_ = kNoExpr;
  b_.SetInsertPoint(after);
}

/// A loop whose iterations go side by side, each a line of a tile: as many lines are loaded, lanes along
/// them, as make a piece across them that is stored at once. The last iterations and lanes are made again
/// rather than masked: they store the same. Of lines that are shorter than that all lanes are loaded at once
/// where there are registers of masks. Other small tiles are written element by element.
void FunctionEmitter::loop_side_by_side(const LoopDecl& l) {
  constexpr std::uint64_t kLeastShare = 8;  // of the lanes, that a short line has
  const LoopDecl& inner = k_.loops[l.body.front().target];
  Value *count = scalar(l.extent), *length = scalar(inner.extent);
  Value *together = b_.getInt64(l.rows), *lanes = b_.getInt64(inner.lanes);
  Value *many = b_.CreateICmpSGE(count, together), *whole = b_.CreateICmpSGE(length, lanes);
  const auto block_named = [&](const char* name) { return BasicBlock::Create(c_, name, fn_); };
  BasicBlock *pieces = block_named("pieces"), *elements = block_named("elements"),
             *after = block_named("after");
  BasicBlock* others = target_.avx512 ? block_named("others") : elements;
  llvm::Instruction* branch = b_.CreateCondBr(b_.CreateAnd(many, whole), pieces, others);
  const auto lines = [&](bool masked) {
    counted(
        l, b_.getInt64(0), count, together,
        [&](Value* i) {
          const std::size_t serial_depth = scopes_.size() - 1;
          std::vector<Value*> iterations{capped(i, count, together)};
          for (std::uint16_t u = 1; u < l.rows; ++u)
            iterations.push_back(b_.CreateNSWAdd(iterations[0], b_.getInt64(u)));
          set_lanes(inner.lanes);
          counted(inner, b_.getInt64(0), length, lanes, [&](Value* lane) {
            if (!masked) scopes_.back().index = capped(lane, length, lanes);
            lane_body(inner, masked ? length : nullptr, false, [&] {
              for (const Stmt& s : inner.body)
                store_transposed(s, serial_depth, iterations, masked ? length : nullptr);
            });
          });
        },
        branch);
    b_.CreateBr(after);
  };
  b_.SetInsertPoint(pieces);
  lines(false);
  if (others != elements) {
    BasicBlock* shorter = block_named("short");
    b_.SetInsertPoint(others);
    Value* worth = b_.CreateICmpSGE(length, b_.getInt64(inner.lanes / kLeastShare));
    b_.CreateCondBr(b_.CreateAnd(many, worth), shorter, elements);
    b_.SetInsertPoint(shorter);
    lines(true);
  }
  b_.SetInsertPoint(elements);
  counted(l, b_.getInt64(0), count, b_.getInt64(1), [&](Value*) { block(l.body); }, branch);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

/// The place at which `step` iterations begin that would begin at i, or early enough to end with the loop.
Value* FunctionEmitter::capped(Value* i, Value* end, Value* step) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, i, b_.CreateSub(end, step));
}

/// Lanes below `rest` are on, but for early_ ones. Pre: rest >= 1.
void FunctionEmitter::set_mask(Value* rest) {
  remaining_ = rest;
  const auto count = static_cast<unsigned>(lanes_);
  if (target_.avx512 && lanes_ >= 8 && lanes_ <= 64) {  // one bit a lane, made in a scalar register
    llvm::Type* bits = b_.getIntNTy(count);
    Value* all = llvm::Constant::getAllOnesValue(i64());
    Value* capped = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.getInt64(count));
    Value* ones = b_.CreateLShr(all, b_.CreateSub(b_.getInt64(64), capped));
    if (early_)
      ones = b_.CreateAnd(
          ones, b_.CreateShl(all, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, early_, b_.getInt64(0))));
    mask_ = b_.CreateBitCast(count == 64 ? ones : b_.CreateTrunc(ones, bits),
                             FixedVectorType::get(b_.getInt1Ty(), count));
    return;
  }
  mask_ = lanes_below(rest);
  if (early_) mask_ = b_.CreateAnd(mask_, b_.CreateNot(lanes_below(early_)));
}

/// A mask of the lanes below any number. Lanes are counted in elements of 4 bytes: half the instructions of
/// a comparison of positions, which have 8.
Value* FunctionEmitter::lanes_below(Value* end) {
  const auto count = static_cast<unsigned>(lanes_);
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (unsigned l = 0; l < count; ++l) steps.push_back(b_.getInt32(l));
  Value* positive = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, end, b_.getInt64(0));
  Value* capped = b_.CreateTrunc(
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, positive, b_.getInt64(count)), b_.getInt32Ty());
  return b_.CreateICmpULT(llvm::ConstantVector::get(steps), b_.CreateVectorSplat(count, capped));
}

}  // namespace kiln::codegen
