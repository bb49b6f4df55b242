#include "kernel/specialise.h"

#include "support/check.h"

namespace kiln::kernel {

Kernel specialise(const Kernel& kernel, std::span<const std::int64_t> params) {
  KILN_CHECK_THAT(params.size() == kernel.n_params);
  Kernel out = kernel;
  out.pool = ExprPool();
  out.pool.exact = kernel.pool.exact;
  std::vector<ExprId> now(kernel.pool.size());
  const auto moved = [&](ExprId e) { return e == kNoExpr ? kNoExpr : now[e]; };
  for (ExprId id = 0; id < kernel.pool.size(); ++id) {
    ExprNode n = kernel.pool[id];
    if (n.prim == Prim::Param)
      n = {.prim = Prim::Const, .type = DType::Int64, .imm = static_cast<std::uint64_t>(params[n.imm])};
    n.a = moved(n.a);
    n.b = moved(n.b);
    n.c = moved(n.c);
    now[id] = out.pool.intern(n);
  }
  const auto move_all = [&](std::vector<Stmt>& body) {
    for (Stmt& s : body) {
      s.index = moved(s.index);
      s.value = moved(s.value);
    }
  };
  for (auto* section : {&out.body, &out.link, &out.second, &out.finish}) move_all(*section);
  for (CustomMonoid& c : out.customs) {
    for (auto* part : {&c.lift, &c.merge})
      for (ExprId& e : *part) e = moved(e);
    c.show = moved(c.show);
  }
  for (LoopDecl& l : out.loops) {
    l.extent = moved(l.extent);
    l.condition = moved(l.condition);
    l.early = moved(l.early);
    for (ExprId& e : l.inits) e = moved(e);
    move_all(l.body);
  }
  return out;
}

}  // namespace kiln::kernel
