// CudaEmitter: maps whose loads begin anywhere, or are there for a part of the points (stencils, rolls,
// joins, pads, slices, turned pairs).
//
// Inside a row such a load still reads adjacent elements in adjacent iterations, and all of them or none. So
// a run of iterations (LoopDecl::rows) is tested first: every quotient and comparison that its loads depend
// on must be the same in its first iteration and in its last. These only grow or only fall from one iteration
// to the next, so that they are the same in all of them then, and are evaluated once. Iterations of a run
// that fails are computed one by one.
//
// A run is a vector, which is loaded and stored as one; or, where an access of one element a thread is wide
// enough, a few rounds of a warp, of which a thread has every 32nd iteration: then the elements' addresses
// differ by constants.
//
// Invariant: both ways compute the same values; the test says nothing about sizes, only about the run.
#include "codegen/cuda/cuda_function.h"

#include <algorithm>

namespace kiln::codegen {

constexpr int kWarp = 32;

/// How an index, or a comparison of indices, changes along the lanes.
CudaEmitter::Along CudaEmitter::along(ExprId e) {
  using Kind = Along::Kind;
  if (!at_.varying(e) || same_.contains(e)) return {Kind::Same, 0};
  const ExprNode n = pool_[e];
  const bool compares = n.prim == Prim::Lt || n.prim == Prim::Le;
  if (!is_index(e) && !(compares && is_index(n.a) && is_index(n.b))) return {};
  if (n.prim == Prim::Var) return {Kind::Line, 1};
  const Along a = along(n.a), b = n.b == kNoExpr ? Along{Kind::Same, 0} : along(n.b);
  if (a.kind == Kind::Any || b.kind == Kind::Any) return {};
  const auto sign = [](const Along& x) -> std::int64_t { return (x.step > 0) - (x.step < 0); };
  const auto monotone = [](std::int64_t x, std::int64_t y) -> Along {
    if (x * y < 0) return {};
    return x + y == 0 ? Along{Kind::Same, 0} : Along{Kind::Monotone, x + y > 0 ? 1 : -1};
  };
  const bool lines = a.kind != Kind::Monotone && b.kind != Kind::Monotone;
  const auto line = [](std::int64_t step) -> Along { return {step == 0 ? Kind::Same : Kind::Line, step}; };
  if (n.prim == Prim::Add) return lines ? line(a.step + b.step) : monotone(sign(a), sign(b));
  if (n.prim == Prim::Sub) return lines ? line(a.step - b.step) : monotone(sign(a), -sign(b));
  if (n.prim == Prim::Neg) return {a.kind, -a.step};
  if (n.prim == Prim::Mul) {
    if (a.kind == Kind::Same && b.kind == Kind::Same) return a;
    const auto by = kernel::known(E{&at_.pool(), a.kind == Kind::Same ? n.a : n.b});
    if (!by || (a.kind != Kind::Same && b.kind != Kind::Same)) return {};
    const Along& x = a.kind == Kind::Same ? b : a;
    return lines ? line(x.step * *by) : monotone(sign(x) * ((*by > 0) - (*by < 0)), 0);
  }
  if (n.prim == Prim::IndexDiv) return b.kind == Kind::Same ? monotone(sign(a), 0) : Along{};
  if (n.prim == Prim::Min || n.prim == Prim::Max) return monotone(sign(a), sign(b));
  return compares ? monotone(sign(a), -sign(b)) : Along{};
}

/// The same after every quotient and comparison that it is made of was put among what the test compares.
CudaEmitter::Along CudaEmitter::settle(ExprId e) {
  using Kind = Along::Kind;
  if (!at_.varying(e) || same_.contains(e)) return {Kind::Same, 0};
  const ExprNode n = pool_[e];
  const auto same = [&](bool ends) -> Along {
    settled_.emplace_back(e, ends);
    same_.insert(e);
    return {Kind::Same, 0};
  };
  const bool linear =
      n.prim == Prim::Add || n.prim == Prim::Sub || n.prim == Prim::Neg || n.prim == Prim::Mul;
  if (n.prim == Prim::Var || (linear && is_index(e))) {
    each_operand(n, [&](ExprId o) { settle(o); });
    const Along found = along(e);
    return found.kind == Kind::Same ? same(false) : found;
  }
  if (n.prim == Prim::IndexDiv || n.prim == Prim::Lt || n.prim == Prim::Le || n.prim == Prim::Min ||
      n.prim == Prim::Max) {
    const auto inside = [&](auto& self, ExprId o) -> void {  // limits count as a whole
      const ExprNode& x = pool_[o];
      if (!is_index(o) || (x.prim != Prim::Min && x.prim != Prim::Max)) return void(settle(o));
      each_operand(x, [&](ExprId p) { self(self, p); });
    };
    each_operand(n, [&](ExprId o) { inside(inside, o); });
    const Along found = along(e);
    if (found.kind == Kind::Same) return same(false);
    return found.kind == Kind::Monotone ? same(true) : Along{};
  }
  bool all = true;
  each_operand(n, [&](ExprId o) { all = settle(o).kind == Kind::Same && all; });
  return all ? same(false) : Along{};
}

/// Finds the loads that are windows, and what must be compared for them, in a value and what it is made of.
void CudaEmitter::find_windows(ExprId e) {
  if (e == kNoExpr || !visited_.insert(e).second || !at_.varying(e)) return;
  const ExprNode n = pool_[e];
  const std::size_t before = settled_.size();
  const auto forget = [&] {
    for (; settled_.size() > before; settled_.pop_back()) same_.erase(settled_.back().first);
  };
  const bool load = n.prim == Prim::Load && k_.buffers[n.imm].role == BufferDecl::Role::In;
  if (load && (n.b != kNoExpr || !whole_vectors(n.imm, n.a))) {
    const Along at = settle(n.a);
    const bool there = n.b == kNoExpr || settle(n.b).kind == Along::Kind::Same;
    const bool adjacent = at.kind == Along::Kind::Line && (rounds_ > 0 || at.step == 1 || at.step == -1);
    if (there && adjacent)
      windows_.insert(e);
    else if (there && at.kind == Along::Kind::Same)
      settle(e);
    else
      forget();
  } else if (n.prim == Prim::Select && settle(n.a).kind != Along::Kind::Same) {
    forget();
  }
  each_operand(n, [&](ExprId o) { find_windows(o); });
}

/// The test of the run at hand, as a name; empty where every run passes.
std::string CudaEmitter::find_whole(const LoopDecl& l) {
  std::string tests;
  same_.clear();
  for (const auto& [e, ends] : settled_) {
    if (ends) {
      in_run_ = true;
      const std::string last = lane(e);
      in_run_ = false;
      tests += cat(" && ", value(e), " == ", last);
    }
    same_.insert(e);
  }
  const std::string on_last = std::exchange(run_text_, {});
  run_memo_.clear();
  const bool cut = l.ragged;
  if (tests.empty() && !cut) return {};
  const std::string whole = fresh("whole"), i = here().var;
  line(cat("bool ", whole, " = ", cut ? cat(i, " + ", l.rows, " <= ", extent_) : "true", ';'));
  if (!tests.empty())
    line(cat("{\nconst int v = ", l.rows - 1, ";\n", on_last, whole, " = ", whole, tests, ";\n}"));
  return whole;
}

/// A store of a run that passed. A choice that is the same in all of it is made before what is chosen is
/// loaded.
void CudaEmitter::store_run(const Stmt& s) {
  const ExprNode n = pool_[s.value];
  if (n.prim != Prim::Select || (at_.varying(n.a) && !same_.contains(n.a))) return run_of(std::span(&s, 1));
  const std::string chosen = value(n.a), before = std::exchange(here().text, {});
  const auto way = [&](ExprId of) {
    const auto memo = here().memo, divisors = here().divisors;
    const std::vector<Span> spans = spans_;
    Stmt part = s;
    part.value = of;
    store_run(part);
    here().memo = memo;
    here().divisors = divisors;
    spans_ = spans;
    return std::exchange(here().text, {});
  };
  const std::string yes = way(n.b), no = way(n.c);
  here().text = cat(before, "if (", chosen, ") {\n", yes, "} else {\n", no, "}\n");
}

/// Groups the windows of the run at hand by what they lie beside; one alone is no span.
void CudaEmitter::find_spans() {
  spans_.clear();
  if (rounds_ > 0) return;
  for (ExprId e = 0; e < pool_.size(); ++e) {
    if (!visited_.contains(e) || pool_[e].prim != Prim::Load) continue;
    const ExprNode n = pool_[e];
    if (!takes_vector(e) || along(n.a).step != 1) continue;
    const auto [base, by] = beside(n.a);
    auto span = std::ranges::find_if(spans_, [&](const Span& s) {
      return s.buffer == n.imm && s.base == base && by - s.low <= lanes_ && s.high - by <= lanes_;
    });
    if (span == spans_.end()) span = spans_.insert(span, {n.imm, base, by, by, {}, {}});
    span->low = std::min(span->low, by);
    span->high = std::max(span->high, by);
    span->loads.push_back(e);
  }
  std::erase_if(spans_, [](const Span& s) { return s.loads.size() < 2; });
}

/// What the loads of spans depend on, where that is more than the run's test: they are there. They are taken
/// to be from here on.
std::string CudaEmitter::enter_spans() {
  std::vector<ExprId> conditions;
  for (const Span& s : spans_)
    for (const ExprId load : s.loads)
      if (const ExprId there = pool_[load].b;
          there != kNoExpr && std::ranges::find(conditions, there) == conditions.end())
        conditions.push_back(there);
  std::string all;
  for (const ExprId there : conditions) all += cat(all.empty() ? "" : " && ", value(there));
  for (const ExprId there : conditions)
    scopes_[static_cast<std::size_t>(at_.depth_of(there))].memo[there] = "true";
  return all;
}

/// The element on lane `v` of a load that is a part of a span; empty where it is none.
std::string CudaEmitter::of_span(ExprId load) {
  if (!in_spans_) return {};
  const auto span =
      std::ranges::find_if(spans_, [&](const Span& s) { return std::ranges::count(s.loads, load) > 0; });
  if (span == spans_.end()) return {};
  const DType type = pool_[load].type;
  if (span->name.empty()) {
    span->name = fresh("x");
    const bool was_in_run = std::exchange(in_run_, false);
    const std::string base = index_text(span->base), from = cat(buffer_name(span->buffer), " + ", base);
    const auto elements = lanes_ + span->high - span->low;
    here().text +=
        cat("const vec<", cuda_memory_type(type), ", ", elements, "> ", span->name, " = ",
            k_.buffers[span->buffer].vector
                ? cat("load_around<", lanes_, ", ", span->low, ", ", span->high, ">(", from, ");\n")
                : cat("load_span<", elements, ">(", from, " + ", span->low, ");\n"));
    in_run_ = was_in_run;
  }
  const std::string part = cat(span->name, ".at[v + ", beside(pool_[load].a).second - span->low, ']');
  return is_bool(type) ? cat('(', part, " != 0)") : part;
}

/// The body for the run at hand, whose scope is open.
std::string CudaEmitter::window_run(const LoopDecl& l) {
  for (const Stmt& s : l.body) find_windows(s.value);
  const std::string whole = find_whole(l);
  find_spans();
  std::string before = std::exchange(here().text, {});
  const auto memos = [&] {
    std::vector<std::unordered_map<ExprId, std::string>> all;
    for (const Scope& s : scopes_) all.push_back(s.memo);
    return all;
  }();
  const auto divisors = here().divisors;
  const auto again = [&] {
    for (std::size_t i = 0; i < scopes_.size(); ++i) scopes_[i].memo = memos[i];
    here().divisors = divisors;
  };
  reach_ = Reach::Whole;
  const auto stored = [&] {
    for (const Stmt& s : l.body) store_run(s);
    return std::exchange(here().text, {});
  };
  std::string at_once, by_spans, there;
  if (!spans_.empty()) {
    there = enter_spans();
    before += std::exchange(here().text, {});
    in_spans_ = true;
    by_spans = stored();
    in_spans_ = false;
    again();
  }
  if (spans_.empty() || !there.empty()) at_once = stored();
  settled_.clear();
  same_.clear();
  windows_.clear();
  visited_.clear();
  spans_.clear();
  std::string text = at_once.empty()    ? by_spans
                     : by_spans.empty() ? at_once
                                        : cat("if (", there, ") {\n", by_spans, "} else {\n", at_once, "}\n");
  if (whole.empty()) return before + text;
  again();
  reach_ = Reach::Ragged;
  block(l.body);
  const std::string by_lanes = std::exchange(here().text, {});
  return cat(before, "if (", whole, ") {\n", text, "} else {\n", by_lanes, "}\n");
}

/// A Vector loop whose runs are tested. Its variable is a run's first iteration.
std::string CudaEmitter::tested_runs(const LoopDecl& l) {
  KILN_CHECK_THAT(width_ % kWarp == 0 && l.rows == (lanes_ > 1 ? lanes_ * steps_ : kWarp * steps_),
                  "runs that threads have no share of");
  const std::string i = cat('i', l.var);
  rounds_ = lanes_ > 1 ? 0 : steps_;
  open_scope(l, i);
  const std::string body = window_run(l);
  close_scope();
  const std::string first = rounds_ > 0 ? cat(lane_, " / ", kWarp) : lane_;
  rounds_ = 0;
  return cat("{\nconst ", index_type(), ' ', i, " = ", first, " * ", l.rows, ";\nif (", i, " < ", extent_,
             ") {\n", body, "}\n}\n");
}

/// The loop over a thread's iterations of the run at hand. A run by vectors has one vector a thread.
std::string CudaEmitter::over_rounds(const std::string& body) const {
  const bool one_by_one = reach_ == Reach::Ragged;
  return cat(one_by_one ? "#pragma unroll 1" : "#pragma unroll", "\nfor (int k = 0; k < ", rounds_,
             "; ++k) {\n", "const int v = k * ", kWarp, " + ", lane_, " % ", kWarp, ";\n",
             one_by_one ? cat("if (", scopes_[static_cast<std::size_t>(at_.lanes_depth())].var, " + v < ",
                              extent_, ") {\n", body, "}\n")
                        : body,
             "}\n");
}

}  // namespace kiln::codegen
