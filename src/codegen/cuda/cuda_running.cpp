// CudaEmitter: accumulators that are read inside their loops. While loops are one thread's own; a scan goes
// over the lanes of a thread, and over its team where a Vector loop walks the scanned axis.
//
// Invariant: in such a Vector loop every thread of the team makes every step, since all take part in a scan.
// A thread beyond the end works on the last vector, counts for nothing in accumulators and stores nothing
// (`on`).
#include "codegen/cuda/cuda_function.h"

#include "kernel/monoid.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace kiln::codegen {

/// Whether a Vector loop walks the axis of a scan.
bool CudaEmitter::scans(const LoopDecl& l) const {
  return std::any_of(l.body.begin(), l.body.end(), [&](const Stmt& s) {
    return s.kind == Stmt::Kind::Update && is_scan(s.target) && at_.lanes_of(s.target) == Lanes::Inside;
  });
}

/// Steps of a loop with a scan whose elements are loaded together, 0 of another loop. Scans down columns are
/// few threads, which have as much under way as many would.
int CudaEmitter::steps_of_scan(const LoopDecl& l) const {
  constexpr int kLeast = 4, kMost = 16, kRegisters = 24;
  if (std::ranges::none_of(l.accs, [&](std::uint32_t acc) { return is_scan(acc); })) return 0;
  int registers = 0;
  std::unordered_map<ExprId, bool> varies;  // along the loop
  const auto visit = [&](auto& self, ExprId e) -> bool {
    if (e == kNoExpr) return false;
    if (const auto known = varies.find(e); known != varies.end()) return known->second;
    const ExprNode& n = pool_[e];
    bool any = n.prim == Prim::Var && n.imm == l.var;
    each_operand(n, [&](ExprId o) { any |= self(self, o); });
    if (n.prim == Prim::Load && any) registers += std::max(1, lanes_ * static_cast<int>(size_of(n.type)) / 4);
    return varies[e] = any;
  };
  for (const Stmt& s : l.body)
    if (s.kind != Stmt::Kind::Loop) visit(visit, s.value);
  const int most = kRegisters / std::max(registers, 1);
  return most >= kMost ? kMost : most >= 2 * kLeast ? 2 * kLeast : kLeast;
}

// ---- While loops ----

void CudaEmitter::while_loop(const LoopDecl& l) {
  KILN_CHECK_THAT(lanes_ == 1, "a loop for several elements of a thread");
  at_.begin_accs(l);
  for (std::size_t i = 0; i < l.accs.size(); ++i) {
    AccState& s = accs_[l.accs[i]];
    s = {};
    const std::string init = value(l.inits[i]);
    s.name = s.before = s.result = fresh("a");
    line(cat(cuda_type(k_.accs[l.accs[i]].type), ' ', s.name, " = ", init, ';'));
  }
  const std::string i = cat('i', l.var), end = l.extent == kNoExpr ? std::string() : index_text(l.extent);
  open_scope(l, i);
  for (std::uint32_t a : l.accs) at_.show_running(a);
  if (l.condition != kNoExpr) {
    const std::string goes_on = value(l.condition);
    line(cat("if (!", goes_on, ") break;"));
  }
  block(l.body);
  for (const auto& [state, next] : here().nexts) line(cat(state, " = ", next, ';'));
  const std::string body = close_scope();
  line(end.empty() ? std::string("for (;;) {")
                   : cat("for (", index_type(), ' ', i, " = 0; ", i, " < ", end, "; ++", i, ") {"));
  here().text += body;
  line("}");
}

/// All states change together, at the end of the body.
void CudaEmitter::update_state(const Stmt& s) {
  const std::string x = value(s.value), name = fresh("t");
  line(cat("const ", cuda_type(k_.accs[s.target].type), ' ', name, " = ", x, ';'));
  here().nexts.push_back({accs_[s.target].name, name});
}

// ---- scans ----

/// An accumulator that a thread, or a lane, has for itself: its running value is the accumulator.
void CudaEmitter::scan_alone(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  AccState& s = accs_[st.target];
  const std::string acc = s.lanes ? s.name + "[v]" : s.name, x = lane(st.value);
  if (facts_.reads_before[st.target]) {
    s.before = fresh("b");
    line(cat("const ", cuda_type(a.type), ' ', s.before, " = ", shown(a, acc, is_shown_roughly(st.target)),
             ';'));
  }
  line(cat(acc, " = ", op_of(a), "::of(", lifted(a, x), ", ", acc, ");"));
  s.running = shown(a, acc, is_shown_roughly(st.target));
  at_.show_running(st.target);
}

/// A step of a scan over the team.
void CudaEmitter::scan_step(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  AccState& s = accs_[st.target];
  const std::string type = acc_type(a), x = fresh("x"), first = fresh("first");
  const std::string typed = start_with_type(a), none = has_parts(a) ? typed : start_of(a);
  line(cat(type, ' ', x, '[', lanes_, "], ", first, ';'));
  const std::string on = std::exchange(on_, std::string());
  KILN_CHECK_THAT(!in_run_, "a scan inside a run");
  if (lanes_ > 1) {
    in_run_ = true;
    const std::string v = lane(st.value);
    const std::string there = lanes_there();
    line(cat(x, "[v] = ", on, there.empty() ? "" : " && " + there, " ? ", lifted(a, v), " : ", none, ';'));
    end_run();
  } else {
    const std::string v = value(st.value);
    line(cat(x, "[0] = ", on, " ? ", lifted(a, v), " : ", none, ';'));
  }
  on_ = on;
  const std::string op = op_of(a);
  const std::string operands = cat(x, ", ", typed, ", ", s.name, ", ", first);
  if (team_ == 1)
    line(cat("scan_thread<", op, ">(", operands, ");"));
  else if (combines_in_block(k_.threads))
    line(cat("scan_team<", op, ", ", k_.threads.block, ">(", operands, ");"));
  else
    line(cat("scan_team<", op, ", ", team_, ">(", operands, ", members);"));
  const bool roughly = is_shown_roughly(st.target);
  s.running = shown(a, cat(x, lanes_ > 1 ? "[v]" : "[0]"), roughly);
  s.before = shown(a, lanes_ > 1 ? cat("(v > 0 ? ", x, "[v - 1] : ", first, ')') : first, roughly);
  at_.show_running(st.target);
}

/// A Vector loop along the axis of a scan: steps by the batch, all of whose loads come first, then one by
/// one.
std::string CudaEmitter::scanning(const LoopDecl& l, const std::string& extent) {
  constexpr int kBatch = 4, kRegisters = 16;  // steps, and registers of a thread for what they load
  const std::string i = cat('i', l.var), base = fresh("n"), at = team_ == 1 ? base : fresh("n"),
                    on = fresh("on");
  const char* const type = index_type();
  const int across = team_ * lanes_;
  const std::string end = early_.empty() ? extent : cat(extent, " + ", early_);
  const auto body = [&] {
    on_ = on;
    const std::string text = vectors(l, i, early_.empty() ? Reach::Whole : Reach::Cut);
    on_.clear();
    return text;
  };
  const auto step = [&](const std::string& first, const std::string& text) {
    std::string out;
    if (team_ > 1)
      out += cat("const ", type, ' ', at, " = ", first, " + ", type, "(lane)",
                 lanes_ > 1 ? cat(" * ", lanes_) : "", early_.empty() ? "" : " - " + early_, ";\n");
    const std::string& here = team_ > 1 ? at : first;
    out += cat("const bool ", on, " = ", here, " < ", extent, ";\n");
    const std::string other = early_.empty() ? cat(extent, " - ", lanes_) : cat('-', early_);
    out += cat("const ", type, ' ', i, " = ", on, " ? ", here, " : ", other, ";\n");
    return out + (early_.empty() ? "" : cut_lanes(i, false)) + text;
  };
  const bool is_short = unrolls(k_, l) && std::ranges::none_of(l.body, [&](const Stmt& s) {
                          return s.kind == Stmt::Kind::Update && k_.accs[s.target].monoid == Monoid::Custom;
                        });
  std::string out;
  if (team_ > 1 && is_short) {
    stage_ = {depth() + 1, kBatch, kRegisters, {}, {}, {}};
    const std::string text = body();
    const Stage all = std::exchange(stage_, {});
    if (!all.loaded.empty()) {
      const auto each = [&](const std::string& part) {
        return cat("#pragma unroll\nfor (int k = 0; k < ", kBatch, "; ++k) {\n",
                   step(cat('(', base, " + k * ", across, ')'), part), "}\n");
      };
      out += cat(type, ' ', base, " = 0;\nfor (; ", base, " + ", (kBatch - 1) * across, " < ", end, "; ",
                 base, " += ", kBatch * across, ") {\n", all.declarations());
      for (const Stage::Level& level : all.levels)
        if (!level.text.empty()) out += each(level.text);
      out += each(text) + "}\n";
    }
  }
  const std::string first = out.empty() ? cat(type, ' ', base, " = 0") : std::string();
  if (!out.empty()) out += "#pragma unroll 1\n";
  return out + cat("for (", first, "; ", base, " < ", end, "; ", base, " += ", across, ") {\n",
                   step(base, body()), "}\n");
}

}  // namespace kiln::codegen
