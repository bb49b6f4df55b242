// Facts of a kernel by walks over its statements: uses, indices, and which parts of kernels_templates it
// needs.
//
// Invariant: a part is needed exactly where the emitter would spell a call of it. The walk over Vector loops
// therefore goes the way of CudaEmitter::lane: what is on all lanes, and is not an index of a whole vector.
#include "codegen/cuda/cuda_facts.h"

#include "kernel/monoid.h"
#include "kernel/placement.h"

#include <algorithm>
#include <optional>

namespace kiln::codegen {

using namespace kernel::nouns;
using Lanes = kernel::Placement::Lanes;

namespace {

constexpr int kUnrollBelow = 60;  // expressions of a short loop body, …
constexpr int kOfResult = 10;     // and these for each further result of a tile
constexpr int kLong = 10;         // expressions that a function counts for

bool is_long(Prim p) {
  return p == Prim::Div || p == Prim::Rem || p == Prim::Sqrt || p == Prim::Native || p == Prim::Call1 ||
         p == Prim::Call2 || p == Prim::Philox;
}

std::vector<int> count_uses(const Kernel& k, std::span<const ExprId> results) {
  std::vector<int> uses(k.pool.size(), 0);
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (e == kNoExpr || ++uses[e] > 1) return;
    each_operand(k.pool[e], [&](ExprId o) { self(self, o); });
  };
  auto block = [&](auto&& self, const std::vector<Stmt>& body) -> void {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::Loop) {
        visit(visit, k.loops[s.target].extent);
        visit(visit, k.loops[s.target].condition);
        visit(visit, k.loops[s.target].early);
        for (ExprId init : k.loops[s.target].inits) visit(visit, init);
        self(self, k.loops[s.target].body);
        continue;
      }
      visit(visit, s.value);
      visit(visit, s.index);
    }
  };
  for (const auto* section : {&k.body, &k.link, &k.second, &k.finish}) block(block, *section);
  for (const ExprId e : results) visit(visit, e);
  return uses;
}

std::vector<bool> find_added(const Kernel& k, const std::vector<int>& uses) {
  std::vector<bool> added(k.pool.size());
  for (const LoopDecl& l : k.loops)
    for (const Stmt& s : l.body) {
      if (s.kind != Stmt::Kind::Update || s.value == kNoExpr || uses[s.value] != 1) continue;
      const Monoid m = k.accs[s.target].monoid;
      added[s.value] = m == Monoid::Sum || m == Monoid::Min || m == Monoid::Max;
    }
  return added;
}

/// Operands come before what is made of them.
std::vector<bool> find_indices(const Kernel& k) {
  std::vector<bool> index(k.pool.size());
  for (ExprId e = 0; e < k.pool.size(); ++e) {
    const ExprNode& n = k.pool[e];
    const bool leaf = n.prim == Prim::Const || n.prim == Prim::Param || n.prim == Prim::Var;
    const bool arithmetic = n.prim == Prim::Add || n.prim == Prim::Sub || n.prim == Prim::Mul ||
                            n.prim == Prim::Neg || n.prim == Prim::Min || n.prim == Prim::Max ||
                            n.prim == Prim::IndexDiv;
    const bool loaded = n.prim == Prim::CastInRange && is_int(k.pool[n.a].type),
               chosen = n.prim == Prim::Select;
    bool i = n.type == DType::Int64 && (leaf || arithmetic || loaded || (chosen && index[n.b] && index[n.c]));
    if (arithmetic) each_operand(n, [&](ExprId o) { i = i && index[o]; });
    index[e] = i;
  }
  return index;
}

/// What cuda_primitive calls for an expression. Divisions of integers and indices take the mathematics along.
void add_primitive(CudaPreludes& p, const ExprNode& n, bool index) {
  const bool f32 = n.type == DType::Float32;
  const bool wraps = !index && !is_float(n.type) && !is_bool(n.type);
  switch (n.prim) {
    case Prim::Neg:
    case Prim::Abs:
      // an index is no operand of Abs
      p.integer |= n.prim == Prim::Abs ? !is_float(n.type) && !is_bool(n.type) : wraps;
      return;
    case Prim::Add:
    case Prim::Sub:
    case Prim::Mul: p.integer |= wraps; return;
    case Prim::Shl:
    case Prim::Rem: p.integer = true; return;
    case Prim::IndexDiv: p.integer = p.math = true; return;
    case Prim::Div:
      p.integer |= !is_float(n.type);
      p.math |= f32 || !is_float(n.type);
      return;
    case Prim::Sqrt: p.math |= f32; return;
    case Prim::DivBounded:
    case Prim::Scale:
    case Prim::Exponent:
    case Prim::Mantissa: p.math = true; return;
    case Prim::Native: {
      const auto fn = static_cast<kernel::NativeFn>(n.imm);
      p.math |= fn == kernel::NativeFn::Exp4Fast || fn == kernel::NativeFn::ReciprocalFast ||
                fn == kernel::NativeFn::SqrtFast;
      return;
    }
    case Prim::Philox: p.philox = true; return;
    case Prim::Const:
    case Prim::Param:
    case Prim::Slot:
    case Prim::Var:
    case Prim::Acc:
    case Prim::Running:
    case Prim::Before:
    case Prim::Earlier:
    case Prim::Later:
    case Prim::Load:
    case Prim::FromIndex:
    case Prim::Floor:
    case Prim::Ceil:
    case Prim::Trunc:
    case Prim::RoundEven:
    case Prim::Not:
    case Prim::Cast:
    case Prim::CastInRange:
    case Prim::Bitcast:
    case Prim::Min:
    case Prim::Max:
    case Prim::And:
    case Prim::Or:
    case Prim::Xor:
    case Prim::Shr:
    case Prim::Eq:
    case Prim::Ne:
    case Prim::Lt:
    case Prim::Le:
    case Prim::Fma:
    case Prim::Select:
    case Prim::Call1:
    case Prim::Call2: return;
  }
}

void add_primitives(CudaFacts& facts, const Kernel& k) {
  for (ExprId e = 0; e < k.pool.size(); ++e)
    if (facts.uses[e] > 0) add_primitive(facts.preludes, k.pool[e], facts.index[e]);
  std::vector<bool> seen(k.pool.size());
  const auto visit = [&](auto&& self, ExprId e) -> void {
    if (seen[e]) return;
    seen[e] = true;
    add_primitive(facts.preludes, k.pool[e], false);
    each_operand(k.pool[e], [&](ExprId o) { self(self, o); });
  };
  for (const CustomMonoid& c : k.customs) {
    for (const auto* parts : {&c.lift, &c.merge})
      for (const ExprId e : *parts) visit(visit, e);
    visit(visit, c.show);
  }
}

/// Walks the loops as the emitter does, for what depends on where lanes are.
class LoopWalk {
 public:
  LoopWalk(const Kernel& kernel, CudaFacts& facts) : k_(kernel), at_(kernel), facts_(facts) {}

  void run() {
    for (const auto* section : {&k_.body, &k_.link, &k_.second, &k_.finish}) block(*section);
  }

 private:
  void block(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::Loop) {
        loop(k_.loops[s.target]);
        continue;
      }
      if (s.kind == Stmt::Kind::Update) update(s);
      facts_.preludes.reduce |= s.kind == Stmt::Kind::Across;
      if (at_.lanes_depth() > 0 && lanes_ > 1) on_lanes(s);
    }
  }

  void loop(const LoopDecl& l) {
    at_.begin_accs(l);
    for (const std::uint32_t a : l.accs) combined(l, a);
    const bool vector = l.kind == LoopKind::Vector;
    facts_.preludes.memory |=
        l.kind == LoopKind::Serial && l.steps > 1;  // loads that iterations have together
    if (vector) {
      lanes_ = l.lanes;
      const bool ragged = l.ragged && lanes_ > 1;
      masked_ = rows_inside(k_, l) > 1 || (l.steps > 0 && ragged && k_.accs.empty() && !unrolls(k_, l));
      seen_.assign(k_.pool.size(), false);
    }
    at_.open(l);
    block(l.body);
    at_.close(l);
    if (vector) lanes_ = 1;
  }

  /// Where the values of an accumulator's lanes and threads come together.
  void combined(const LoopDecl& l, std::uint32_t id) {
    const AccDecl& a = k_.accs[id];
    if (a.monoid == Monoid::State) return;
    const bool team = at_.lanes_of(id) == Lanes::Inside && !facts_.is_scan(k_, id);
    const bool block = team && combines_in_block(k_.threads);
    const bool warp = team && !block && k_.threads.team > 1;
    facts_.turn |= block;
    facts_.members |= warp;
    facts_.preludes.reduce |= block || warp || l.rows > 1 || a.compensated || kernel::positional(a.monoid);
  }

  void update(const Stmt& s) {
    const AccDecl& a = k_.accs[s.target];
    if (a.monoid == Monoid::State) return;
    const bool scan = facts_.is_scan(k_, s.target);
    facts_.preludes.reduce |= scan || !(a.monoid == Monoid::Sum && is_float(a.type));
    if (!scan || at_.lanes_of(s.target) != Lanes::Inside) return;
    facts_.preludes.scan = true;
    facts_.members |= k_.threads.team > 1 && !combines_in_block(k_.threads);
  }

  void on_lanes(const Stmt& s) {
    lane(s.value);
    if (s.kind == Stmt::Kind::Update) {
      if (s.index != kNoExpr) lane(s.index);
    } else if (s.kind == Stmt::Kind::Across) {
      return;  // its place is no lane's
    } else if (k_.buffers[s.target].role == BufferDecl::Role::Scratch && k_.buffers[s.target].shared == 0) {
      return;  // a register has no index
    } else if (whole(s.target, s.index)) {
      facts_.preludes.memory = true;
    } else {
      lane(s.index);
    }
  }

  void lane(ExprId e) {
    if (facts_.preludes.memory || seen_[e] || !at_.varying(e)) return;
    seen_[e] = true;
    const ExprNode& n = k_.pool[e];
    if (n.prim == Prim::Load) {
      const BufferDecl& b = k_.buffers[n.imm];
      if (b.role == BufferDecl::Role::Scratch && b.shared == 0) return;
      if ((n.b == kNoExpr || !at_.varying(n.b)) && whole(n.imm, n.a)) {
        facts_.preludes.memory = true;
        return;
      }
    }
    each_operand(n, [&](ExprId o) { lane(o); });
  }

  bool whole(std::uint64_t buffer, ExprId index) {
    if (!k_.buffers[buffer].vector) return false;
    const std::optional<std::int64_t> stride = kernel::known(at_.lane_stride(index));
    return stride == 1 || (stride == -1 && !masked_);
  }

  const Kernel& k_;
  kernel::Placement at_;
  CudaFacts& facts_;
  int lanes_ = 1;
  bool masked_ = false;  // lanes of the open Vector loop may be missing
  std::vector<bool> seen_;
};

}  // namespace

CudaFacts::CudaFacts(const Kernel& k, std::span<const ExprId> results)
    : uses(count_uses(k, results)),
      index(find_indices(k)),
      added(find_added(k, uses)),
      reads_running(k.accs.size()),
      reads_before(k.accs.size()) {
  for (ExprId e = 0; e < k.pool.size(); ++e) {
    if (k.pool[e].prim == Prim::Running) reads_running[k.pool[e].imm] = true;
    if (k.pool[e].prim == Prim::Before) reads_before[k.pool[e].imm] = true;
  }
  add_primitives(*this, k);
  if (!k.finish.empty()) preludes.integer = preludes.math = true;  // the item's group is a quotient
  LoopWalk(k, *this).run();
}

bool unrolls(const Kernel& k, const LoopDecl& l) {
  int count = 0, results = 0;
  std::vector<bool> seen(k.pool.size());
  auto visit = [&](auto&& self, ExprId e) -> void {
    if (e == kNoExpr || seen[e]) return;
    seen[e] = true;
    count += is_long(k.pool[e].prim) ? kLong : 1;
    each_operand(k.pool[e], [&](ExprId o) { self(self, o); });
  };
  const auto body = [&](auto&& self, const LoopDecl& loop) -> bool {
    return std::all_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::Loop)
        return l.rows > 1 && k.loops[s.target].steps == 1 && self(self, k.loops[s.target]);
      visit(visit, s.value);
      ++results;
      return true;
    });
  };
  return body(body, l) && count < kUnrollBelow + kOfResult * (results - 1);
}

int rows_inside(const Kernel& k, const LoopDecl& l) {
  int rows = l.kind == LoopKind::Vector ? 1 : l.rows;
  for (const Stmt& s : l.body)
    if (s.kind == Stmt::Kind::Loop) rows = std::max(rows, rows_inside(k, k.loops[s.target]));
  return rows;
}

}  // namespace kiln::codegen
