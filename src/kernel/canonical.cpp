// Walks the statements in the order of the sections and builds the kernel anew from what it meets.
//
// Invariant: a part gets its number when the first expression or statement that names it is complete, so that
// the order depends on the statements alone. Extents of Grid loops come last: on a CPU the range of a launch
// replaces them, so they must not decide the numbers of anything that the code does use.
#include "kernel/canonical.h"

#include <utility>

namespace kiln::kernel {
namespace {

constexpr std::uint32_t kUnmet = 0xffffffffu;

/// Old numbers to new ones, in the order in which they are met.
class Numbers {
 public:
  explicit Numbers(std::size_t count) : now_(count, kUnmet) {}

  /// The new number, and whether the part has just got it.
  std::pair<std::uint32_t, bool> meet(std::size_t old) {
    if (now_[old] != kUnmet) return {now_[old], false};
    now_[old] = static_cast<std::uint32_t>(old_.size());
    old_.push_back(static_cast<std::uint32_t>(old));
    return {now_[old], true};
  }
  const std::vector<std::uint32_t>& old() const { return old_; }
  std::uint32_t met() const { return static_cast<std::uint32_t>(old_.size()); }

 private:
  std::vector<std::uint32_t> now_, old_;
};

class Canonical {
 public:
  explicit Canonical(const Kernel& kernel)
      : k_(kernel),
        params_(kernel.n_params),
        slots_(kernel.slots.size()),
        vars_(kernel.n_vars),
        accs_(kernel.accs.size()),
        customs_(kernel.customs.size()),
        buffers_(kernel.buffers.size()),
        now_(kernel.pool.size(), kNoExpr) {}

  std::pair<Kernel, OldNumbers> run() {
    out_.pool.exact = k_.pool.exact;
    out_.fma = k_.fma;
    out_.exact = k_.exact;
    out_.threads = k_.threads;
    out_.label = k_.label;
    out_.body = block(k_.body);
    out_.link = block(k_.link);
    out_.second = block(k_.second);
    out_.finish = block(k_.finish);
    if (k_.main_loop) out_.main_loop = main_loop(*k_.main_loop);
    for (const auto& [loop, extent] : grids_) out_.loops[loop].extent = expr(extent);
    // Custom monoids read no other part, so that none is met here.
    for (const std::uint32_t c : customs_.old()) out_.customs.push_back(custom(k_.customs[c]));
    out_.n_params = params_.met();
    out_.n_vars = vars_.met();
    return {std::move(out_), {params_.old(), slots_.old(), buffers_.old(), std::move(now_)}};
  }

 private:
  std::vector<Stmt> block(const std::vector<Stmt>& body) {
    std::vector<Stmt> out;
    out.reserve(body.size());
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::Loop) {
        out.push_back({Stmt::Kind::Loop, loop(k_.loops[s.target])});
        continue;
      }
      const ExprId index = expr(s.index), value = expr(s.value);
      const bool across = s.kind == Stmt::Kind::Across;
      out.push_back({s.kind, across || s.kind == Stmt::Kind::Store ? buffer(s.target) : acc(s.target), index,
                     value, across ? acc(s.acc) : 0});
    }
    return out;
  }

  /// What a call gives comes first, whether statements need it or not: the main loop's text counts on it.
  Template main_loop(Template t) {
    for (Hook& h : t.hooks) {
      for (std::uint32_t& p : h.params) p = params_.meet(p).first;
      for (std::uint32_t& b : h.buffers) b = buffer(b);
      if (h.address >= 0) h.address = static_cast<std::int32_t>(buffer(static_cast<std::size_t>(h.address)));
      h.body = block(h.body);
      for (ExprId& e : h.results) e = expr(e);
    }
    return t;
  }

  std::uint32_t loop(const LoopDecl& l) {
    LoopDecl out = l;
    const bool grid = l.kind == LoopKind::Grid;
    if (!grid) out.extent = expr(l.extent);
    for (ExprId& e : out.inits) e = expr(e);
    out.condition = expr(l.condition);
    out.early = expr(l.early);
    out.var = vars_.meet(l.var).first;
    for (std::uint32_t& a : out.accs) a = acc(a);
    out.body = block(l.body);
    out_.loops.push_back(std::move(out));
    const auto number = static_cast<std::uint32_t>(out_.loops.size() - 1);
    if (grid) grids_.emplace_back(number, l.extent);
    return number;
  }

  std::uint32_t acc(std::size_t old) {
    const auto [number, fresh] = accs_.meet(old);
    if (!fresh) return number;
    AccDecl a = k_.accs[old];
    a.custom = a.monoid == Monoid::Custom ? customs_.meet(a.custom).first : 0;
    out_.accs.push_back(a);
    return number;
  }

  std::uint32_t buffer(std::size_t old) {
    const auto [number, fresh] = buffers_.meet(old);
    if (!fresh) return number;
    BufferDecl b = k_.buffers[old];
    b.offset_param = b.role == BufferDecl::Role::Scratch ? params_.meet(b.offset_param).first : 0;
    if (b.ahead_param >= 0)
      b.ahead_param = static_cast<std::int32_t>(params_.meet(static_cast<std::size_t>(b.ahead_param)).first);
    out_.buffers.push_back(b);
    return number;
  }

  CustomMonoid custom(CustomMonoid c) {
    for (auto* parts : {&c.lift, &c.merge})
      for (ExprId& e : *parts) e = expr(e);
    c.show = expr(c.show);
    return c;
  }

  /// An expression of the new kernel, after its operands. No recursion: chains are as long as programs.
  ExprId expr(ExprId root) {
    if (root == kNoExpr || now_[root] != kNoExpr) return root == kNoExpr ? kNoExpr : now_[root];
    stack_.push_back(root);
    while (!stack_.empty()) {
      const ExprId id = stack_.back();
      const ExprNode& n = k_.pool[id];
      const std::size_t height = stack_.size();
      if (now_[id] == kNoExpr)
        for (ExprId operand : {n.c, n.b, n.a})
          if (operand != kNoExpr && now_[operand] == kNoExpr) stack_.push_back(operand);
      if (stack_.size() != height) continue;
      stack_.pop_back();
      if (now_[id] == kNoExpr) now_[id] = out_.pool.intern(moved(n));
    }
    return now_[root];
  }

  ExprNode moved(ExprNode n) {
    for (ExprId* operand : {&n.a, &n.b, &n.c})
      if (*operand != kNoExpr) *operand = now_[*operand];
    if (n.prim == Prim::Param) n.imm = params_.meet(n.imm).first;
    if (n.prim == Prim::Slot) n.imm = slot(n.imm);
    if (n.prim == Prim::Var) n.imm = vars_.meet(n.imm).first;
    if (n.prim == Prim::Acc || n.prim == Prim::Running || n.prim == Prim::Before) n.imm = acc(n.imm);
    if (n.prim == Prim::Load) n.imm = buffer(n.imm);
    if (n.prim == Prim::IndexDiv && n.imm != 0) n.imm = params_.meet(n.imm - 1).first + 1;
    return n;
  }

  std::uint32_t slot(std::size_t old) {
    const auto [number, fresh] = slots_.meet(old);
    if (fresh) out_.slots.push_back(k_.slots[old]);
    return number;
  }

  const Kernel& k_;
  Kernel out_;
  Numbers params_, slots_, vars_, accs_, customs_, buffers_;
  std::vector<ExprId> now_, stack_;
  std::vector<std::pair<std::uint32_t, ExprId>> grids_;  // new loops, old extents
};

}  // namespace

OldNumbers canonicalise(Kernel& kernel) {
  auto [canonical, numbers] = Canonical(kernel).run();
  kernel = std::move(canonical);
  return std::move(numbers);
}

}  // namespace kiln::kernel
