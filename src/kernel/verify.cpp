// Checks a Kernel: operands and types of every reachable expression, and that each one is used only where its
// loop variables are bound and its accumulators final. An expression found valid in a scope stays valid in it
// and in the scopes inside, so each is visited once a scope.
#include "kernel/kernel.h"
#include "kernel/monoid.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <span>

namespace kiln::kernel {
namespace {

constexpr int kMathArity[] = {
#define KILN_MATH_FN(Name, Symbol, Arity) Arity,
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
};

class Verifier {
 public:
  explicit Verifier(const Kernel& k)
      : k_(k), valid_(k.pool.size()), bound_(k.n_vars), accs_(k.accs.size()), updated_(k.accs.size()) {}

  void run() {
    for (const BufferDecl& b : k_.buffers) {
      KILN_CHECK_THAT(std::has_single_bit(b.alignment) && b.alignment <= 64, "alignment ", int{b.alignment});
      KILN_CHECK_THAT(b.role != BufferDecl::Role::Scratch || b.offset_param < k_.n_params, "scratch offset p",
                      b.offset_param);
      KILN_CHECK_THAT(b.ahead_param < static_cast<std::int32_t>(k_.n_params), "bytes ahead p", b.ahead_param);
    }
    for (const AccDecl& a : k_.accs) {
      KILN_CHECK_THAT(a.monoid != Monoid::Custom || a.custom < k_.customs.size(), "custom monoid ", a.custom);
      KILN_CHECK_THAT(!a.compensated || (a.monoid == Monoid::Sum && a.type == DType::Float32),
                      "a compensated ", name(a.type));
      KILN_CHECK_THAT(!a.narrow || positional(a.monoid), "narrow positions of ", name(a.monoid));
    }
    for (const CustomMonoid& c : k_.customs) custom(c);
    if (k_.tally) tally(*k_.tally);
    visited_.assign(k_.loops.size(), false);
    KILN_CHECK_THAT(k_.link.empty() == k_.second.empty(),
                    "a link without a second section, or the other way round");
    for (const auto* body : {&k_.body, &k_.link, &k_.second, &k_.finish}) section(*body);
    if (k_.main_loop) main_loop(*k_.main_loop);
  }

 private:
  enum class AccState : std::uint8_t { Unborn, Open, Final, Dead };

  void tally(const Tally& t) {
    const auto is = [&](std::uint32_t buffer, BufferDecl::Role role) {
      return buffer < k_.buffers.size() && k_.buffers[buffer].role == role &&
             is_int(k_.buffers[buffer].dtype);
    };
    KILN_CHECK_THAT(is(t.indices, BufferDecl::Role::Out) && !k_.buffers[t.indices].vector,
                    "indices that are counted");
    KILN_CHECK_THAT(is(t.counts, BufferDecl::Role::Out) && is(t.number, BufferDecl::Role::In) &&
                        k_.buffers[t.counts].dtype == k_.buffers[t.number].dtype &&
                        size_of(k_.buffers[t.counts].dtype) >= 4,
                    "what indices count for");
    KILN_CHECK_THAT(t.places < k_.n_params && (t.log_copies == 0 || !t.halves), "counters of a block");
    KILN_CHECK_THAT(k_.threads.block > 0 && !k_.main_loop && k_.finish.empty() && k_.link.empty(),
                    "a kernel that cannot count");
  }

  void custom(const CustomMonoid& c) {
    const std::size_t n = c.types.size();
    KILN_CHECK_THAT(n > 0 && c.identity.size() == n && c.lift.size() == n && c.merge.size() == n,
                    "parts of a custom monoid");
    KILN_CHECK_THAT(c.show < k_.pool.size(), "expression ", c.show);
    const DType value = k_.pool[c.show].type;
    const auto typed = [&](ExprId e, DType type, std::span<const DType> earlier,
                           std::span<const DType> later) {
      std::fill(valid_.begin(), valid_.end(), false);
      in_monoid_ = true;
      earlier_ = earlier;
      later_ = later;
      KILN_CHECK_THAT(use(e) == type, "a part of a custom monoid is ", name(type));
      in_monoid_ = false;
      earlier_ = later_ = {};
    };
    for (std::size_t p = 0; p < n; ++p) {
      typed(c.lift[p], c.types[p], {}, {&value, 1});
      typed(c.merge[p], c.types[p], c.types, c.types);
    }
    typed(c.show, value, c.types, {});
  }

  void section(const std::vector<Stmt>& body) {
    std::fill(valid_.begin(), valid_.end(), false);
    bool may_have_grid = true;
    for (const Stmt& s : body)
      if (s.kind == Stmt::Kind::Loop && s.target < k_.loops.size() &&
          k_.loops[s.target].kind == LoopKind::Grid) {
        KILN_CHECK_THAT(may_have_grid, "a second grid loop");
        may_have_grid = false;
      }
    scope(body, 0);
  }

  void main_loop(const Template& t) {
    KILN_CHECK_THAT(!t.name.empty() && k_.body.empty() && k_.link.empty() && k_.finish.empty(),
                    "a main loop beside sections");
    for (const Hook& h : t.hooks) {
      for (const std::uint32_t p : h.params)
        KILN_CHECK_THAT(p < k_.n_params, "parameter p", p, " of ", h.name);
      for (const std::uint32_t b : h.buffers)
        KILN_CHECK_THAT(b < k_.buffers.size() && k_.buffers[b].role != BufferDecl::Role::Partial, "buffer ",
                        b, " of ", h.name);
      for (const Stmt& s : h.body)
        KILN_CHECK_THAT(s.kind != Stmt::Kind::Loop || k_.loops[s.target].kind != LoopKind::Grid,
                        "a grid loop inside ", h.name);
      section(h.body);
      std::fill(valid_.begin(), valid_.end(), false);
      for (const ExprId e : h.results) use(e);
      if (h.address < 0) continue;
      KILN_CHECK_THAT(static_cast<std::size_t>(h.address) < k_.buffers.size() && h.results.size() == 1 &&
                          k_.pool[h.results[0]].type == DType::Int64,
                      "the address that ", h.name, " returns");
    }
  }

  /// Statements of one scope; `depth` 0 is the section itself.
  void scope(const std::vector<Stmt>& body, int depth, ExprId condition = kNoExpr) {
    const std::size_t first_valid = valid_here_.size(), first_acc = final_here_.size();
    if (condition != kNoExpr) KILN_CHECK_THAT(use(condition) == DType::Bool, "condition ", condition);
    for (const Stmt& s : body) {
      switch (s.kind) {
        case Stmt::Kind::Loop: loop(s, depth); break;
        case Stmt::Kind::Update: update(s); break;
        case Stmt::Kind::Store: store(s); break;
        case Stmt::Kind::Across: across(s); break;
      }
    }
    for (; valid_here_.size() > first_valid; valid_here_.pop_back()) valid_[valid_here_.back()] = false;
    for (; final_here_.size() > first_acc; final_here_.pop_back()) accs_[final_here_.back()] = AccState::Dead;
    for (const Stmt& s : body)
      if (s.kind == Stmt::Kind::Update) updated_[s.target] = false;
  }

  void loop(const Stmt& s, int depth) {
    KILN_CHECK_THAT(s.target < k_.loops.size() && !visited_[s.target], "loop ", s.target,
                    " is missing or used twice");
    visited_[s.target] = true;
    const LoopDecl& l = k_.loops[s.target];
    KILN_CHECK_THAT(l.var < k_.n_vars && !bound_[l.var], "variable i", l.var, " of loop ", s.target);
    KILN_CHECK_THAT(l.kind != LoopKind::Grid || depth == 0, "the grid loop is inside another");
    KILN_CHECK_THAT(l.kind == LoopKind::Vector ? std::has_single_bit(l.lanes) : l.lanes == 1, int{l.lanes},
                    " lanes");
    KILN_CHECK_THAT(l.rows == 1 || (l.kind == LoopKind::Vector && l.steps > 0 && k_.accs.empty()) ||
                        (l.kind == LoopKind::Serial && std::has_single_bit(l.rows)),
                    int{l.rows}, " rows of threads");
    KILN_CHECK_THAT(l.rows == 1 || k_.threads.block > 0 || holds_stores(l),
                    "iterations side by side of loop ", s.target);
    KILN_CHECK_THAT(l.kind != LoopKind::Vector || !in_vector_, "a vector loop inside another");
    KILN_CHECK_THAT(!l.again || (l.kind == LoopKind::Vector && (l.accs.empty() || k_.threads.block > 0)) ||
                        (l.kind == LoopKind::Serial && k_.threads.block > 0 && in_vector_ && l.rows == 1),
                    "iterations of loop ", s.target, " that may not be made again");
    KILN_CHECK_THAT(l.kind != LoopKind::Grid || l.accs.empty(), "grid iterations are independent");
    const bool is_while = l.kind == LoopKind::While;
    if (is_while)
      KILN_CHECK_THAT((l.extent == kNoExpr) != (l.condition == kNoExpr), "loop ", s.target,
                      " has no one end");
    if (l.kind != LoopKind::Grid && l.extent != kNoExpr)
      KILN_CHECK_THAT(use(l.extent) == DType::Int64, "extent of loop ", s.target);
    if (l.early != kNoExpr)
      KILN_CHECK_THAT(
          l.kind == LoopKind::Vector && l.ragged && k_.threads.block > 0 && use(l.early) == DType::Int64,
          "where the vectors of loop ", s.target, " begin");
    KILN_CHECK_THAT(l.inits.size() == l.accs.size() || (l.inits.empty() && !is_while), "loop ", s.target,
                    " has other initial values");
    KILN_CHECK_THAT(l.inits.empty() || is_while || k_.threads.block > 0,
                    "what comes before the scans of loop ", s.target);
    for (std::size_t i = 0; i < l.inits.size(); ++i) {
      if (l.inits[i] == kNoExpr && !is_while) continue;
      KILN_CHECK_THAT(l.accs[i] < accs_.size() && use(l.inits[i]) == k_.accs[l.accs[i]].type,
                      "initial value of state ", i);
      KILN_CHECK_THAT(is_while || k_.accs[l.accs[i]].monoid == Monoid::Custom, "what comes before scan ", i);
    }
    for (std::uint32_t a : l.accs) {
      KILN_CHECK_THAT(a < accs_.size() && accs_[a] == AccState::Unborn, "accumulator ", a, " of loop ",
                      s.target);
      accs_[a] = AccState::Open;
      KILN_CHECK_THAT((k_.accs[a].monoid == Monoid::State) == is_while, "accumulator ", a, " in loop ",
                      s.target);
    }
    bound_[l.var] = true;
    in_vector_ |= l.kind == LoopKind::Vector;
    scope(l.body, depth + 1, is_while ? l.condition : kNoExpr);
    in_vector_ &= l.kind != LoopKind::Vector;
    bound_[l.var] = false;
    for (std::uint32_t a : l.accs) {
      accs_[a] = AccState::Final;
      final_here_.push_back(a);
    }
  }

  /// Whether a loop holds a Vector loop, and that one nothing but stores.
  bool holds_stores(const LoopDecl& l) const {
    if (l.body.size() != 1 || !l.accs.empty() || l.body[0].kind != Stmt::Kind::Loop ||
        l.body[0].target >= k_.loops.size())
      return false;
    const LoopDecl& inside = k_.loops[l.body[0].target];
    return inside.kind == LoopKind::Vector && inside.accs.empty() &&
           std::all_of(inside.body.begin(), inside.body.end(),
                       [&](const Stmt& s) { return s.kind == Stmt::Kind::Store; });
  }

  void update(const Stmt& s) {
    KILN_CHECK_THAT(s.target < accs_.size() && accs_[s.target] == AccState::Open, "update of accumulator ",
                    s.target);
    const AccDecl& a = k_.accs[s.target];
    KILN_CHECK_THAT(use(s.value) == a.type, "update of a ", name(a.type), " accumulator");
    KILN_CHECK_THAT(positional(a.monoid) == (s.index != kNoExpr), "position for ", name(a.monoid));
    if (s.index != kNoExpr) KILN_CHECK_THAT(use(s.index) == DType::Int64, "a position is Int64");
    updated_[s.target] = true;
  }

  void store(const Stmt& s) {
    KILN_CHECK_THAT(s.target < k_.buffers.size(), "store to buffer ", s.target);
    const BufferDecl& b = k_.buffers[s.target];
    KILN_CHECK_THAT(b.role != BufferDecl::Role::In, "store to input ", s.target);
    KILN_CHECK_THAT(use(s.index) == DType::Int64, "store index");
    KILN_CHECK_THAT(use(s.value) == b.dtype, "store to buffer ", s.target, " of ", name(b.dtype));
  }

  void across(const Stmt& s) {
    KILN_CHECK_THAT(in_vector_ && k_.threads.block > 0, "values combined across no lanes");
    KILN_CHECK_THAT(s.acc < accs_.size() && accs_[s.acc] == AccState::Unborn &&
                        !positional(k_.accs[s.acc].monoid) && k_.accs[s.acc].monoid != Monoid::State,
                    "values combined across lanes by accumulator ", s.acc);
    KILN_CHECK_THAT(s.target < k_.buffers.size() && k_.buffers[s.target].role != BufferDecl::Role::In &&
                        k_.buffers[s.target].dtype == k_.accs[s.acc].type,
                    "values combined across lanes to buffer ", s.target);
    KILN_CHECK_THAT(use(s.index) == DType::Int64 && use(s.value) == k_.accs[s.acc].type,
                    "a value combined across lanes");
  }

  /// Type of an expression used here.
  DType use(ExprId root) {
    KILN_CHECK_THAT(root < k_.pool.size(), "expression ", root);
    stack_.push_back(root);
    while (!stack_.empty()) {
      const ExprId id = stack_.back();
      const ExprNode& n = k_.pool[id];
      const std::size_t height = stack_.size();
      if (!valid_[id])
        each_operand(n, [&](ExprId o) {
          KILN_CHECK_THAT(o < id, name(n.prim), " ", id, " uses a later expression");
          if (!valid_[o]) stack_.push_back(o);
        });
      if (stack_.size() != height) continue;
      stack_.pop_back();
      if (valid_[id]) continue;
      check(id, n);
      valid_[id] = true;
      valid_here_.push_back(id);
    }
    return k_.pool[root].type;
  }

  void check(ExprId id, const ExprNode& n) const {
    const int have = (n.a != kNoExpr) + (n.b != kNoExpr) + (n.c != kNoExpr), want = operand_count(n.prim);
    const bool in_order = (n.b == kNoExpr || n.a != kNoExpr) && (n.c == kNoExpr || n.b != kNoExpr);
    KILN_CHECK_THAT(in_order && (have == want || (n.prim == Prim::Load && have == 1)), name(n.prim), " ", id,
                    " has ", have, " operands");
    const auto type_of = [&](ExprId e) { return e == kNoExpr ? n.type : k_.pool[e].type; };
    const DType a = type_of(n.a), b = type_of(n.b), c = type_of(n.c);
    KILN_CHECK_THAT(well_typed(n, a, b, c), name(n.prim), " ", id, " of type ", name(n.type), " on ", name(a),
                    ", ", name(b), ", ", name(c), ", imm ", n.imm);
  }

  bool well_typed(const ExprNode& n, DType a, DType b, DType c) const {
    const bool same = n.type == a && a == b && b == c;  // absent operands count as n.type
    if (in_monoid_ && n.prim <= Prim::Load && n.prim != Prim::Const && n.prim != Prim::Earlier &&
        n.prim != Prim::Later)
      return false;
    switch (n.prim) {
      case Prim::Const: return size_of(n.type) == 8 || n.imm >> (8 * size_of(n.type)) == 0;
      case Prim::Param: return n.type == DType::Int64 && n.imm < k_.n_params;
      case Prim::Slot: return n.imm < k_.slots.size() && n.type == k_.slots[n.imm];
      case Prim::Var: return n.type == DType::Int64 && n.imm < k_.n_vars && bound_[n.imm];
      case Prim::Acc:
        return n.imm < accs_.size() && accs_[n.imm] == AccState::Final &&
               n.type == (positional(k_.accs[n.imm].monoid) ? DType::Int64 : k_.accs[n.imm].type);
      case Prim::Running:
      case Prim::Before:
        if (n.imm >= accs_.size() || accs_[n.imm] != AccState::Open || n.type != k_.accs[n.imm].type)
          return false;
        if (k_.accs[n.imm].monoid == Monoid::State) return n.prim == Prim::Before;
        return updated_[n.imm] && !positional(k_.accs[n.imm].monoid);
      case Prim::Earlier: return n.imm < earlier_.size() && n.type == earlier_[n.imm];
      case Prim::Later: return n.imm < later_.size() && n.type == later_[n.imm];
      case Prim::Load:
        return n.imm < k_.buffers.size() && n.type == k_.buffers[n.imm].dtype && a == DType::Int64 &&
               (n.b == kNoExpr || b == DType::Bool);
      case Prim::Neg:
      case Prim::Abs:
      case Prim::Add:
      case Prim::Sub:
      case Prim::Mul:
      case Prim::Div:
      case Prim::Min:
      case Prim::Max: return same;
      case Prim::Sqrt:
      case Prim::Floor:
      case Prim::Ceil:
      case Prim::Trunc:
      case Prim::RoundEven:
      case Prim::Fma: return same && is_float(n.type);
      case Prim::Not:
      case Prim::Rem:
      case Prim::And:
      case Prim::Or:
      case Prim::Xor:
      case Prim::Shl:
      case Prim::Shr: return same && !is_float(n.type);
      case Prim::FromIndex:
      case Prim::IndexDiv: return same && n.type == DType::Int64;
      case Prim::Cast: return true;
      case Prim::CastInRange:
        return is_float(a) ? is_int(n.type) : is_int(a) && size_of(a) <= 4 && n.type == DType::Int64;
      case Prim::Bitcast: return size_of(a) == size_of(n.type);
      case Prim::Eq:
      case Prim::Ne:
      case Prim::Lt:
      case Prim::Le: return n.type == DType::Bool && a == b;
      case Prim::Select: return a == DType::Bool && b == n.type && c == n.type;
      case Prim::Call1:
      case Prim::Call2:
        return same && n.type == DType::Float64 && n.imm < std::size(kMathArity) &&
               kMathArity[n.imm] == operand_count(n.prim);
      case Prim::Philox:
        return a == DType::UInt64 && b == a && (n.type == DType::UInt32 || n.type == DType::UInt64);
      case Prim::DivBounded:
      case Prim::Scale:
      case Prim::Exponent:
      case Prim::Mantissa:
      case Prim::Native: return same && n.type == DType::Float32;
    }
    return false;
  }

  const Kernel& k_;
  std::vector<bool> valid_;  // checked, and its variables and accumulators are usable here
  std::vector<bool> bound_, visited_;
  std::vector<AccState> accs_;
  std::vector<bool> updated_;  // in a scope that is open now
  std::vector<ExprId> valid_here_, stack_;
  std::vector<std::uint32_t> final_here_;
  bool in_vector_ = false;
  bool in_monoid_ = false;  // in an expression of a custom monoid, which has no more than these parts to read
  std::span<const DType> earlier_, later_;
};

}  // namespace

void verify(const Kernel& kernel) { Verifier(kernel).run(); }

}  // namespace kiln::kernel
