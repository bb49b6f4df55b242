// FunctionEmitter: long bodies of maps in stages.
//
// The primitives of a long chain wait for each other, and of an iteration that is as long as what a processor
// looks ahead nothing runs beside the next one. So a loop whose body has a waist, a value that all that comes
// later is made of, becomes two over a piece of its elements: one leaves the value in memory, the first
// cache, and the other goes on from there. Their iterations are short, and several are under way at once.
// Stages may be shorter with AVX-512: elsewhere each costs its masks, and its constants one by one.
#include "codegen/llvm/llvm_function.h"

#include <algorithm>

namespace kiln::codegen {
namespace {

struct StageSizes {
  int stage;       // primitives of a stage, at least
  int least_long;  // … of a body in stages
};
constexpr StageSizes kStages{26, 60}, kStagesAvx512{15, 30};
constexpr int kCall = 20;  // primitives that a function of Float64 counts for
constexpr int kPieceBytes = 4096;

int cost_of(const ExprNode& n) {
  switch (n.prim) {
    case Prim::Load:
    case Prim::Bitcast:
    case Prim::Neg: return 0;
    case Prim::Scale: return 4;
    case Prim::Exponent: return 8;
    case Prim::Call1:
    case Prim::Call2: return kCall;
    default: return 1;
  }
}

}  // namespace

/// The expressions of a body that its stored values vary in, operands first; none where it is not to be cut.
std::vector<ExprId> FunctionEmitter::chain_of(const LoopDecl& l, std::vector<ExprId>& last_reader) {
  std::vector<ExprId> chain;
  enum class Seen : char { No, Varies, Equal };
  std::vector<Seen> seen(pool_.size(), Seen::No);
  bool plain = true;
  const auto visit = [&](auto&& self, ExprId e) -> bool {
    if (seen[e] != Seen::No) return seen[e] == Seen::Varies;
    const ExprNode n = pool_[e];
    bool varies = n.prim == Prim::Var && n.imm == l.var;
    if (n.prim == Prim::Load && n.b != kNoExpr) plain = false;
    each_operand(n, [&](ExprId o) { varies = self(self, o) || varies; });
    seen[e] = varies ? Seen::Varies : Seen::Equal;
    // Places in memory are found anew in each stage.
    if (varies && n.type != DType::Int64) chain.push_back(e);
    return varies;
  };
  for (const Stmt& s : l.body) {
    if (s.kind != Stmt::Kind::Store) return {};
    visit(visit, s.value);
  }
  if (!plain) return {};
  std::sort(chain.begin(), chain.end());
  last_reader.assign(pool_.size(), 0);
  for (const ExprId e : chain) {
    const ExprNode n = pool_[e];
    if (n.prim != Prim::Load)
      each_operand(n, [&](ExprId o) { last_reader[o] = std::max(last_reader[o], e); });
  }
  for (const Stmt& s : l.body) last_reader[s.value] = kNoExpr;
  return chain;
}

/// The waists at which a loop is cut, in order. They have one type, so that each stage may write where it
/// read.
std::vector<ExprId> FunctionEmitter::waists(const LoopDecl& l) {
  if (!l.accs.empty()) return {};
  std::vector<ExprId> last_reader, cuts, alive;
  const std::vector<ExprId> chain = chain_of(l, last_reader);
  int left = 0, stage = 0;
  for (const ExprId e : chain) left += cost_of(pool_[e]);
  const StageSizes sizes = target_.avx512 ? kStagesAvx512 : kStages;
  if (left < sizes.least_long) return {};
  for (const ExprId e : chain) {
    alive.push_back(e);
    std::erase_if(alive, [&](ExprId v) { return last_reader[v] <= e; });
    stage += cost_of(pool_[e]);
    left -= cost_of(pool_[e]);
    if (alive.size() != 1 || stage < sizes.stage || left < sizes.stage) continue;
    const DType type = pool_[alive[0]].type;
    if (!is_float(type) || pool_[alive[0]].prim == Prim::Load) continue;
    if (!cuts.empty() && type != pool_[cuts[0]].type) continue;
    // The stage after a bounded exponent may read past the bounds.
    cuts.push_back(read_of_exponent(alive[0]));
    stage = 0;
  }
  return cuts;
}

/// Those of a loop inside that on lanes.
std::vector<ExprId> FunctionEmitter::waists_inside(const LoopDecl& l) {
  const bool inside = l.kind == LoopKind::Serial && at_.lanes_depth() && depth() == at_.lanes_depth();
  return inside && !uniform_at_ && !contains_loop(l) ? waists(l) : std::vector<ExprId>();
}

/// A loop on lanes, or one inside it, each of whose iterations has a vector.
void FunctionEmitter::loop_in_stages(const LoopDecl& l, const std::vector<ExprId>& cuts) {
  const bool on_lanes = l.kind == LoopKind::Vector;
  const std::int64_t size = size_of(pool_[cuts[0]].type), elements = kPieceBytes / size;
  const std::int64_t iterations = on_lanes ? elements : elements / lanes_;
  const llvm::Align align(static_cast<std::uint64_t>(std::min<std::int64_t>(64, lanes_ * size)));
  llvm::Type* t = reg(pool_[cuts[0]].type);
  llvm::IRBuilder<> first(entry_, entry_->begin());
  auto* values = first.CreateAlloca(llvm::ArrayType::get(t, static_cast<std::uint64_t>(elements)));
  values->setAlignment(llvm::Align(64));
  Value *end = scalar(l.extent), *step = b_.getInt64(on_lanes ? static_cast<std::uint64_t>(lanes_) : 1);
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* head = BasicBlock::Create(c_, "pieces", fn_);
  BasicBlock* inside = BasicBlock::Create(c_, "piece", fn_);
  BasicBlock* after = BasicBlock::Create(c_, "after", fn_);
  llvm::Instruction* enter = b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* from = b_.CreatePHI(i64(), 2);
  from->addIncoming(b_.getInt64(0), before);
  b_.CreateCondBr(b_.CreateICmpSLT(from, end), inside, after);
  b_.SetInsertPoint(inside);
  Value* next = b_.CreateNSWAdd(from, b_.getInt64(static_cast<std::uint64_t>(iterations)));
  Value* to = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, next, end);
  for (std::size_t stage = 0; stage <= cuts.size(); ++stage) {
    const auto body = [&](Value* i) {
      Value* number = b_.CreateSub(i, from);
      if (!on_lanes) number = b_.CreateMul(number, b_.getInt64(static_cast<std::uint64_t>(lanes_)));
      Value* place = b_.CreateGEP(t, values, number);
      const auto inside_stage = [&] {
        if (stage > 0) {
          vector_[cuts[stage - 1]] = b_.CreateAlignedLoad(vec(t), place, align);
          scopes_.back().memoized.push_back(cuts[stage - 1]);
        }
        if (stage < cuts.size())
          b_.CreateAlignedStore(vector(cuts[stage]), place, align);
        else
          block(l.body);
      };
      on_lanes ? lane_body(l, b_.CreateSub(end, i), false, inside_stage) : inside_stage();
    };
    counted(l, from, to, step, body, enter);
  }
  from->addIncoming(next, b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}

}  // namespace kiln::codegen
