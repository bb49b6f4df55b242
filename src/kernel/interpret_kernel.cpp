#include "kernel/interpret_kernel.h"

#include "kernel/monoid.h"
#include "support/check.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace kiln::kernel {
namespace {

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, const KernelMemory& memory)
      : k_(kernel),
        m_(memory),
        value_(kernel.pool.size()),
        order_(kernel.pool.size()),
        vars_(kernel.n_vars),
        accs_(kernel.accs.size()) {
    KILN_CHECK_THAT(m_.buffers.size() == k_.buffers.size() && m_.params.size() >= k_.n_params &&
                        m_.slots.size() >= k_.slots.size(),
                    "a launch of another kernel");
  }

  void block(const std::vector<Stmt>& body, std::int64_t grid) {
    for (const Stmt& s : body) {
      switch (s.kind) {
        case Stmt::Kind::Loop: loop(k_.loops[s.target], grid); break;
        case Stmt::Kind::Update: update(s); break;
        case Stmt::Kind::Store: store(s); break;
        case Stmt::Kind::Across: across(s); break;
      }
    }
  }

 private:
  struct Acc {
    std::uint64_t value;
    std::int64_t position;
    std::uint64_t before = 0;
    std::vector<std::uint64_t> parts{};  // of a custom monoid
  };

  void while_loop(const LoopDecl& l, std::int64_t grid) {
    for (std::size_t i = 0; i < l.accs.size(); ++i) accs_[l.accs[i]] = {evaluate(l.inits[i]), 0};
    const auto n = l.extent == kNoExpr ? std::numeric_limits<std::int64_t>::max()
                                       : static_cast<std::int64_t>(evaluate(l.extent));
    for (std::int64_t i = 0; i < n; ++i) {
      vars_[l.var] = i;
      for (std::uint32_t a : l.accs) accs_[a].before = accs_[a].value;
      if (l.condition != kNoExpr && evaluate(l.condition) == 0) return;
      block(l.body, grid);
    }
  }

  void loop(const LoopDecl& l, std::int64_t grid) {
    if (l.kind == LoopKind::While) return while_loop(l, grid);
    const std::int64_t n = l.kind == LoopKind::Grid ? grid : static_cast<std::int64_t>(evaluate(l.extent));
    for (std::uint32_t a : l.accs) begin(accs_[a], k_.accs[a]);
    for (std::size_t i = 0; i < l.inits.size(); ++i)
      if (l.inits[i] != kNoExpr)
        merge_parts(k_.customs[k_.accs[l.accs[i]].custom], accs_[l.accs[i]], evaluate(l.inits[i]));
    for (std::int64_t i = 0; i < n; ++i) {
      vars_[l.var] = i;
      if (l.kind == LoopKind::Vector) first_lane_ = i == 0;
      block(l.body, grid);
    }
  }

  void begin(Acc& acc, const AccDecl& a) {
    if (a.monoid != Monoid::Custom) {
      acc = {identity(a), std::numeric_limits<std::int64_t>::max()};
      return;
    }
    const CustomMonoid& c = k_.customs[a.custom];
    earlier_ = c.identity;
    acc = {evaluate(c.show), 0, 0, c.identity};
  }

  std::vector<std::uint64_t> evaluate(const std::vector<ExprId>& all) {
    std::vector<std::uint64_t> out;
    for (ExprId e : all) out.push_back(evaluate(e));
    return out;
  }

  void merge_parts(const CustomMonoid& c, Acc& acc, std::uint64_t x) {
    later_ = {x};
    later_ = evaluate(c.lift);
    earlier_ = acc.parts;
    earlier_ = acc.parts = evaluate(c.merge);
    acc.value = evaluate(c.show);
  }

  void update(const Stmt& s) {
    const AccDecl& a = k_.accs[s.target];
    const std::uint64_t x = evaluate(s.value);
    if (a.monoid == Monoid::State)
      accs_[s.target].value = x;
    else
      combine(s.target, x, s.index);
  }

  void combine(std::uint32_t id, std::uint64_t x, ExprId index = kNoExpr) {
    const AccDecl& a = k_.accs[id];
    Acc& acc = accs_[id];
    acc.before = acc.value;
    const auto prim = [&](Prim p, DType type, std::uint64_t u, std::uint64_t v) {
      return eval_prim(p, type, a.type, 0, u, v, 0);
    };
    switch (a.monoid) {
      case Monoid::Sum: acc.value = prim(Prim::Add, a.type, acc.value, x); return;
      case Monoid::Prod: acc.value = prim(Prim::Mul, a.type, acc.value, x); return;
      case Monoid::Max: acc.value = prim(Prim::Max, a.type, x, acc.value); return;
      case Monoid::Min: acc.value = prim(Prim::Min, a.type, x, acc.value); return;
      case Monoid::Custom: merge_parts(k_.customs[a.custom], acc, x); return;
      case Monoid::ArgMax:
      case Monoid::ArgMin:
      case Monoid::State: break;
    }
    // NaN is best of all; of equals the first position.
    const auto position = static_cast<std::int64_t>(evaluate(index));
    const auto holds = [&](Prim p, std::uint64_t u, std::uint64_t v) {
      return prim(p, DType::Bool, u, v) != 0;
    };
    const bool x_nan = holds(Prim::Ne, x, x), best_nan = holds(Prim::Ne, acc.value, acc.value);
    const bool earlier = position < acc.position;
    const bool better = greatest(a.monoid) ? holds(Prim::Lt, acc.value, x) : holds(Prim::Lt, x, acc.value);
    const bool tie = holds(Prim::Eq, x, acc.value) || (x_nan && best_nan);
    if ((x_nan && !best_nan) || (better && !best_nan) || (tie && earlier)) acc = {x, position};
  }

  void store(const Stmt& s) {
    const std::uint64_t value = evaluate(s.value);
    const auto index = static_cast<std::int64_t>(evaluate(s.index));
    std::memcpy(element(s.target, index), &value,
                static_cast<std::size_t>(size_of(k_.buffers[s.target].dtype)));
  }

  /// The first lane's value begins what the others add to in memory.
  void across(const Stmt& s) {
    std::uint64_t before = 0;
    const auto size = static_cast<std::size_t>(size_of(k_.buffers[s.target].dtype));
    std::byte* const at = element(s.target, static_cast<std::int64_t>(evaluate(s.index)));
    begin(accs_[s.acc], k_.accs[s.acc]);
    std::memcpy(&before, at, size);
    if (!first_lane_) combine(s.acc, before);
    combine(s.acc, evaluate(s.value));
    std::memcpy(at, &accs_[s.acc].value, size);
  }

  std::byte* element(std::uint64_t buffer, std::int64_t index) const {
    const BufferDecl& d = k_.buffers[buffer];
    const std::int64_t size = size_of(d.dtype);
    const BufferMemory& b = m_.buffers[buffer];
    const bool own = d.role == BufferDecl::Role::Scratch;
    std::byte* const p = (own ? m_.scratch.data() + m_.params[d.offset_param] : b.element0) + index * size;
    const std::span<const std::byte> all = own ? std::span<const std::byte>(m_.scratch) : b.bytes;
    const std::less_equal<const std::byte*> le;
    KILN_CHECK_THAT(le(all.data(), p) && le(p + size, all.data() + all.size()), "element ", index,
                    " of buffer ", buffer, " is outside its memory");
    return p;
  }

  /// Everything `root` needs, operands first; found once.
  const std::vector<ExprId>& order_of(ExprId root) {
    std::vector<ExprId>& order = order_[root];
    if (!order.empty()) return order;
    std::vector<bool> needed(root + 1, false);
    needed[root] = true;
    for (ExprId id = root + 1; id-- > 0;) {
      if (!needed[id]) continue;
      each_operand(k_.pool[id], [&](ExprId o) { needed[o] = true; });
    }
    for (ExprId id = 0; id <= root; ++id)
      if (needed[id]) order.push_back(id);
    return order;
  }

  /// Bits of `root` now: nothing is remembered from one statement to the next.
  std::uint64_t evaluate(ExprId root) {
    for (ExprId id : order_of(root)) value_[id] = compute(k_.pool[id]);
    return value_[root];
  }

  std::uint64_t compute(const ExprNode& n) const {
    switch (n.prim) {
      case Prim::Const: return n.imm;
      case Prim::Param: return static_cast<std::uint64_t>(m_.params[n.imm]);
      case Prim::Slot: return m_.slots[n.imm];
      case Prim::Var: return static_cast<std::uint64_t>(vars_[n.imm]);
      case Prim::Acc: {
        const Acc& a = accs_[n.imm];
        return positional(k_.accs[n.imm].monoid) ? static_cast<std::uint64_t>(a.position) : a.value;
      }
      case Prim::Running: return accs_[n.imm].value;
      case Prim::Before: return accs_[n.imm].before;
      case Prim::Earlier: return earlier_[n.imm];
      case Prim::Later: return later_[n.imm];
      case Prim::Load: {
        if (n.b != kNoExpr && value_[n.b] == 0) return 0;
        std::uint64_t bits = 0;
        std::memcpy(&bits, element(n.imm, static_cast<std::int64_t>(value_[n.a])),
                    static_cast<std::size_t>(size_of(n.type)));
        return is_bool(n.type) ? bits != 0 : bits;
      }
      default: break;  // computed from operands
    }
    const auto operand = [&](ExprId id) { return id == kNoExpr ? 0 : value_[id]; };
    return eval_prim(n.prim, n.type, k_.pool[n.a].type, n.imm, operand(n.a), operand(n.b), operand(n.c));
  }

  const Kernel& k_;
  const KernelMemory& m_;
  std::vector<std::uint64_t> value_;
  std::vector<std::vector<ExprId>> order_;
  std::vector<std::int64_t> vars_;
  std::vector<Acc> accs_;
  bool first_lane_ = false;
  std::vector<std::uint64_t> earlier_, later_;  // parts that a custom monoid combines
};

}  // namespace

void interpret(const Kernel& kernel, const KernelMemory& memory, std::int64_t grid,
               std::int64_t finish_grid) {
  for (const auto* section : {&kernel.body, &kernel.link, &kernel.second})
    if (!section->empty()) Interpreter(kernel, memory).block(*section, grid);
  if (!kernel.finish.empty()) Interpreter(kernel, memory).block(kernel.finish, finish_grid);
}

}  // namespace kiln::kernel
