#include "kernel/placement.h"

#include "support/check.h"

#include <algorithm>
#include <utility>

namespace kiln::kernel {

Placement::Placement(const Kernel& kernel, bool own_lanes)
    : k_(kernel),
      pool_(kernel.pool),
      own_lanes_(own_lanes),
      var_depth_(kernel.n_vars, -1),
      accs_(kernel.accs.size()) {}

void Placement::begin_accs(const LoopDecl& loop) {
  for (std::uint32_t a : loop.accs)
    accs_[a] = {lanes_depth_                  ? Lanes::Around
                : vector_loop_of(k_, loop, a) ? Lanes::Inside
                                              : Lanes::None,
                depth_, -1};
}

void Placement::open(const LoopDecl& loop) {
  var_depth_[loop.var] = ++depth_;
  if (loop.kind == LoopKind::Vector) {
    KILN_CHECK_THAT(lanes_depth_ == 0, "nested vector loops");
    lanes_depth_ = depth_;
    lanes_ = loop.lanes;
  }
  forget();
}

void Placement::close(const LoopDecl& loop) {
  var_depth_[loop.var] = -1;
  if (lanes_depth_ == depth_) lanes_depth_ = 0;
  --depth_;
  forget();
}

void Placement::show_running(std::uint32_t acc) {
  accs_[acc].running_depth = depth_;
  forget();
}

void Placement::forget() {
  depths_.assign(pool_.size(), -1);
  varying_.assign(pool_.size(), -1);
}

int Placement::depth_of(ExprId e) {
  if (e >= depths_.size()) depths_.resize(pool_.size(), -1);
  if (depths_[e] >= 0) return depths_[e];
  const ExprNode n = pool_[e];
  int d = 0;
  if (n.prim == Prim::Var)
    d = var_depth_[n.imm];
  else if (n.prim == Prim::Acc)
    d = accs_[n.imm].depth;
  else if (n.prim == Prim::Running || n.prim == Prim::Before)
    d = accs_[n.imm].running_depth;
  else
    each_operand(n, [&](ExprId o) { d = std::max(d, depth_of(o)); });
  KILN_CHECK_THAT(d >= 0, "expression used outside its loop");
  return depths_[e] = d;
}

bool Placement::numbers_vectors(const ExprNode& n) const {
  if (n.prim != Prim::IndexDiv || own_lanes_) return false;
  const ExprNode &x = pool_[n.a], &by = pool_[n.b];
  return x.prim == Prim::Var && var_depth_[x.imm] == lanes_depth_ && by.prim == Prim::Const &&
         static_cast<std::int64_t>(by.imm) == lanes_;
}

bool Placement::varying(ExprId e) {
  if (lanes_depth_ == 0) return false;
  if (e >= varying_.size()) varying_.resize(pool_.size(), -1);
  if (varying_[e] >= 0) return varying_[e];
  const ExprNode n = pool_[e];
  bool v = false;
  if (n.prim == Prim::Var)
    v = var_depth_[n.imm] == lanes_depth_;
  else if (numbers_vectors(n))
    v = false;
  else if (n.prim == Prim::Acc)
    v = accs_[n.imm].lanes == Lanes::Around;
  else if (n.prim == Prim::Running || n.prim == Prim::Before)
    v = accs_[n.imm].lanes != Lanes::None;
  else
    each_operand(n, [&](ExprId o) { v |= varying(o); });
  varying_[e] = v;
  return v;
}

E Placement::lane_stride(ExprId index) {
  const auto stride = [&](double v) { return constant(pool_, DType::Int64, v); };
  const ExprNode n = pool_[index];
  if (!varying(index)) return stride(0);
  if (n.prim == Prim::Var) return stride(1);
  if (n.type != DType::Int64) return {};
  if (n.prim == Prim::Neg) {
    const E a = lane_stride(n.a);
    return a ? -a : E{};
  }
  if (n.prim == Prim::Add || n.prim == Prim::Sub) {
    const E a = lane_stride(n.a), b = a ? lane_stride(n.b) : E{};
    if (!a || !b) return {};
    if (known(b) == 0) return a;
    if (known(a) == 0) return n.prim == Prim::Add ? b : -b;
    return n.prim == Prim::Add ? a + b : a - b;
  }
  if (n.prim == Prim::Mul) {
    for (auto [x, k] : {std::pair{n.a, n.b}, std::pair{n.b, n.a}}) {
      if (varying(k)) continue;
      const E s = lane_stride(x);
      if (!s) return {};
      return known(s) == 1 ? E{&pool_, k} : s * E{&pool_, k};
    }
  }
  return {};
}

const LoopDecl* vector_loop_of(const Kernel& kernel, const LoopDecl& loop, std::uint32_t acc) {
  for (const Stmt& s : loop.body) {
    if (s.kind == Stmt::Kind::Update && s.target == acc && loop.kind == LoopKind::Vector) return &loop;
    if (s.kind != Stmt::Kind::Loop) continue;
    const LoopDecl& inner = kernel.loops[s.target];
    if (const LoopDecl* v = vector_loop_of(kernel, inner, acc))
      return loop.kind == LoopKind::Vector ? &loop : v;
  }
  return nullptr;
}

std::optional<std::int64_t> known(E e) {
  if (!e || e.node().prim != Prim::Const) return std::nullopt;
  return static_cast<std::int64_t>(e.node().imm);
}

}  // namespace kiln::kernel
