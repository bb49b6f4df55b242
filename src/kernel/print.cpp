// Readable loop IR: one statement a line. A value gets a name (`let`) where it is used more than once, is
// computed outside the loop that uses it, or would make a line too long; its line stands in the loop that
// computes it, which is where emitters place it.
#include "kernel/kernel.h"
#include "kernel/marks.h"
#include "kernel/monoid.h"
#include "support/check.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace kiln::kernel {
namespace {

constexpr std::size_t kLongest = 80;  // characters of an expression written in place

std::string float_text(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  for (int d = 1; d <= digits; ++d) {  // the shortest text that reads back equal
    std::snprintf(text, sizeof text, "%.*g", d, value);
    const double back = digits == 17 ? std::strtod(text, nullptr) : double{std::strtof(text, nullptr)};
    if (back == value) break;
  }
  return text;
}

std::string const_text(DType type, std::uint64_t bits) {
  return dispatch(type, [&]<class T>() -> std::string {
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    if constexpr (std::is_same_v<T, bool>)
      return (bits & 1) ? "true" : "false";
    else if constexpr (std::is_same_v<T, double>)
      return float_text(value, 17);
    else if constexpr (std::is_integral_v<T>)
      return std::to_string(value);
    else
      return float_text(static_cast<float>(value), 9);
  });
}

const char* infix(Prim p) {
  switch (p) {
    case Prim::Add: return " + ";
    case Prim::Sub: return " - ";
    case Prim::Mul: return " * ";
    case Prim::Div: return " / ";
    case Prim::Rem: return " % ";
    case Prim::And: return " & ";
    case Prim::Or: return " | ";
    case Prim::Xor: return " ^ ";
    case Prim::Shl: return " << ";
    case Prim::Shr: return " >> ";
    case Prim::Eq: return " == ";
    case Prim::Ne: return " != ";
    case Prim::Lt: return " < ";
    case Prim::Le: return " <= ";
    default: return nullptr;  // written as a call
  }
}

bool is_leaf(Prim p) { return p < Prim::Load; }

class Printer {
 public:
  explicit Printer(const Kernel& kernel, bool marked = false) : k_(kernel), marked_(marked) {
    uses_.assign(k_.pool.size(), 0);
    depth_.assign(k_.pool.size(), -1);
    text_.resize(k_.pool.size());
    seen_.assign(k_.pool.size(), 0);
    compound_.assign(k_.pool.size(), false);
    var_depth_.assign(k_.n_vars, 0);
    acc_depth_.assign(k_.accs.size(), 0);
    update_depth_.assign(k_.accs.size(), 0);
  }

  std::string run() {
    header();
    for (std::size_t c = 0; c < k_.customs.size(); ++c) custom(c);
    section(k_.body);
    named_section("link", k_.link);
    named_section("second", k_.second);
    named_section("finish", k_.finish);
    if (k_.main_loop) main_loop(*k_.main_loop);
    return std::move(out_);
  }

 private:
  void line(const std::string& text) {
    out_.append(2 * static_cast<std::size_t>(indent_), ' ');
    out_ += text;
    out_ += '\n';
  }

  std::string buffer_name(std::uint64_t b) const {
    static constexpr const char* kNames[] = {"in", "out", "partial", "scratch"};
    return cat(kNames[static_cast<int>(k_.buffers[b].role)], b);
  }

  void header() {
    line(cat("kernel", k_.label.empty() ? "" : " ", k_.label, k_.fma ? "" : " (no fma)",
             k_.exact ? " (exact)" : ""));
    std::string args = cat("params ", k_.n_params);
    for (std::size_t i = 0; i < k_.slots.size(); ++i)
      args += cat(i ? ", " : "   slots ", "s", i, ": ", info(k_.slots[i]).short_name);
    line(args);
    for (std::size_t b = 0; b < k_.buffers.size(); ++b) {
      const BufferDecl& d = k_.buffers[b];
      std::string text = cat(buffer_name(b), ": ", info(d.dtype).short_name, " align ", int{d.alignment});
      if (d.stream) text += d.ragged ? " stream ragged" : " stream";
      if (d.ahead_param >= 0) text += cat(" p", d.ahead_param, " ahead");
      if (d.role == BufferDecl::Role::Scratch) text += cat(" at p", d.offset_param);
      if (d.shared > 0) text += cat(" shared ", d.shared);
      line(text);
    }
    if (const auto& t = k_.tally)
      line(cat("counts ", buffer_name(t->indices), " in ", buffer_name(t->counts), "[p", t->places,
               "] times ", buffer_name(t->number),
               t->halves ? ", by halves" : cat(", copies ", 1 << t->log_copies)));
  }

  // ---- statements ----

  void named_section(const char* name, const std::vector<Stmt>& body) {
    if (body.empty()) return;
    line(cat(name, " {"));
    ++indent_;
    section(body);
    --indent_;
    line("}");
  }

  void main_loop(const Template& t) {
    std::string head = cat("template ", t.name, " of ", info(t.element).short_name);
    for (const Constant& c : t.config) head += cat(", ", c.name, " = ", c.value);
    line(head);
    for (const Hook& h : t.hooks) {
      std::string given;
      for (const std::uint32_t p : h.params) given += cat(given.empty() ? "p" : ", p", p);
      for (const std::uint32_t b : h.buffers) given += cat(given.empty() ? "" : ", ", buffer_name(b));
      line(cat("hook ", h.name, "(", given, ") {"));
      ++indent_;
      section(h.body);
      if (!h.results.empty()) {
        if (!h.body.empty()) forget();
        parts(h.address < 0 ? "return"
                            : cat("return address in ", buffer_name(static_cast<std::uint64_t>(h.address))),
              h.results);
      }
      --indent_;
      line("}");
    }
  }

  void custom(std::size_t index) {
    const CustomMonoid& c = k_.customs[index];
    std::string from;
    for (std::size_t p = 0; p < c.types.size(); ++p)
      from += cat(p ? ", " : "", info(c.types[p]).short_name, " ", const_text(c.types[p], c.identity[p]));
    line(cat("custom", index, " from (", from, ") {"));
    ++indent_;
    parts("lift", c.lift);
    parts("merge", c.merge);
    parts("show", {c.show});
    --indent_;
    line("}");
  }

  void parts(const std::string& name, const std::vector<ExprId>& all) {
    forget();
    for (ExprId e : all) count(e, 0);
    needed_.clear();
    ++epoch_;
    for (ExprId e : all) collect(e, 0);
    write_lets();
    std::string text;
    for (ExprId e : all) text += cat(text.empty() ? "" : ", ", text_[e]);
    line(cat(name, ": ", text));
  }

  static std::string monoid_name(const AccDecl& a) {
    if (a.monoid == Monoid::Custom) return cat("custom", a.custom);
    return cat(a.compensated ? "compensated_" : a.narrow ? "narrow_" : "", name(a.monoid));
  }

  void section(const std::vector<Stmt>& body) {
    forget();
    count_block(body, 0);
    block(body, 0);
  }

  void forget() {
    std::fill(uses_.begin(), uses_.end(), 0);
    std::fill(depth_.begin(), depth_.end(), -1);
    // a section is a function of its own: it shares nothing with the others
    for (std::string& t : text_) t.clear();
    std::fill(compound_.begin(), compound_.end(), false);
  }

  /// Depth at which an expression can be computed; a use deeper than that counts twice, which names it.
  int depth_of(ExprId id) {
    if (depth_[id] >= 0) return depth_[id];
    const ExprNode& n = k_.pool[id];
    int d = 0;
    if (n.prim == Prim::Var) d = var_depth_[n.imm];
    if (n.prim == Prim::Acc) d = acc_depth_[n.imm];
    if (n.prim == Prim::Running || n.prim == Prim::Before) d = update_depth_[n.imm];
    each_operand(n, [&](ExprId o) { d = std::max(d, depth_of(o)); });
    return depth_[id] = d;
  }

  void count(ExprId id, int depth) {
    if (id == kNoExpr) return;
    const bool fresh = uses_[id] == 0;
    uses_[id] += depth > depth_of(id) ? 2 : 1;
    if (fresh) each_operand(k_.pool[id], [&](ExprId o) { count(o, depth_of(id)); });
  }

  void count_block(const std::vector<Stmt>& body, int depth) {
    for (const Stmt& s : body) {
      if (s.kind != Stmt::Kind::Loop) {
        if (s.kind == Stmt::Kind::Update && k_.accs[s.target].monoid != Monoid::State)
          update_depth_[s.target] = depth;
        count(s.index, depth);
        count(s.value, depth);
        continue;
      }
      const LoopDecl& l = k_.loops[s.target];
      if (l.extent != kNoExpr && l.kind != LoopKind::Grid) count(l.extent, depth);
      if (l.early != kNoExpr) count(l.early, depth);
      var_depth_[l.var] = depth + 1;
      for (ExprId e : l.inits) count(e, depth);
      if (l.kind == LoopKind::While) {
        for (std::uint32_t a : l.accs) update_depth_[a] = depth + 1;
        if (l.condition != kNoExpr) count(l.condition, depth + 1);
      }
      count_block(l.body, depth + 1);
      for (std::uint32_t a : l.accs) acc_depth_[a] = depth;
    }
  }

  void block(const std::vector<Stmt>& body, int depth) {
    for (const Stmt& s : body) {
      define(s, depth);
      if (s.kind == Stmt::Kind::Store) {
        line(cat(buffer_name(s.target), "[", text_[s.index], "] = ", text_[s.value],
                 mark(Mark::Of::Store, s.target)));
      } else if (s.kind == Stmt::Kind::Update) {
        const AccDecl& a = k_.accs[s.target];
        line(cat("a", s.target, " = ", monoid_name(a), "(a", s.target, ", ", text_[s.value],
                 positional(a.monoid) ? " at " + text_[s.index] : "", ")", mark(Mark::Of::Update, s.target)));
      } else if (s.kind == Stmt::Kind::Across) {
        line(cat(buffer_name(s.target), "[", text_[s.index], "] = ", monoid_name(k_.accs[s.acc]), " across(",
                 text_[s.value], ")", mark(Mark::Of::Store, s.target)));
      } else {
        loop(k_.loops[s.target], depth);
      }
    }
  }

  void while_loop(const LoopDecl& l, int depth) {
    std::string head = "while";
    for (std::size_t i = 0; i < l.accs.size(); ++i)
      head += cat(i ? ", a" : " a", l.accs[i], ": ", info(k_.accs[l.accs[i]].type).short_name, " = ",
                  text_[l.inits[i]]);
    if (l.extent != kNoExpr) head += cat(" for i", l.var, " < ", operand(l.extent));
    line(head + " {");
    ++indent_;
    if (l.condition != kNoExpr) {
      needed_.clear();
      ++epoch_;
      collect(l.condition, depth + 1);
      write_lets();
      line("while " + text_[l.condition]);
    }
    block(l.body, depth + 1);
    --indent_;
    line("}");
  }

  void loop(const LoopDecl& l, int depth) {
    if (l.kind == LoopKind::While) return while_loop(l, depth);
    static constexpr const char* kNames[] = {"grid", "for", "vector"};
    std::string head = kNames[static_cast<int>(l.kind)];
    if (l.kind == LoopKind::Vector) head += cat("x", l.lanes);
    if (l.rows > 1) head += cat("/", l.rows);
    if (l.kind == LoopKind::Serial && l.steps > 1) head += cat(l.again ? " of " : " by ", l.steps);
    head += cat(" i", l.var);
    if (l.kind != LoopKind::Grid) head += " < " + operand(l.extent);
    if (l.again && l.kind == LoopKind::Vector) head += " again";
    if (l.early != kNoExpr) head += " early " + operand(l.early);
    for (std::size_t i = 0; i < l.accs.size(); ++i) {
      const AccDecl& a = k_.accs[l.accs[i]];
      head += cat(i ? ", a" : "  reducing a", l.accs[i], ": ", monoid_name(a), " ", info(a.type).short_name);
      if (!l.inits.empty() && l.inits[i] != kNoExpr) head += " behind " + text_[l.inits[i]];
    }
    line(head + " {");
    ++indent_;
    block(l.body, depth + 1);
    --indent_;
    line("}");
  }

  /// Writes the `let` lines of this depth that a statement (with the loops inside it) needs, operands first.
  void define(const Stmt& s, int depth) {
    needed_.clear();
    ++epoch_;
    collect(s, depth);
    write_lets();
  }

  void write_lets() {
    std::sort(needed_.begin(), needed_.end());
    for (ExprId id : needed_) {
      const ExprNode& n = k_.pool[id];
      text_[id] = render(n);
      if (is_leaf(n.prim)) continue;
      text_[id] += mark(Mark::Of::Expression, id);
      if (uses_[id] > 1 || shown_length(text_[id]) > kLongest) {
        const std::string x = cat("x", next_name_++);
        line(cat("let ", x, ": ", info(n.type).short_name, " = ", text_[id]));
        text_[id] = x;
      } else {
        compound_[id] = infix(n.prim) != nullptr;
      }
    }
  }

  void collect(const Stmt& s, int depth) {
    if (s.kind != Stmt::Kind::Loop) {
      collect(s.index, depth);
      collect(s.value, depth);
      return;
    }
    const LoopDecl& l = k_.loops[s.target];
    if (l.extent != kNoExpr && l.kind != LoopKind::Grid) collect(l.extent, depth);
    for (ExprId e : l.inits) collect(e, depth);
    collect(l.condition, depth);
    collect(l.early, depth);
    for (const Stmt& inner : l.body) collect(inner, depth);
  }

  void collect(ExprId id, int depth) {
    if (id == kNoExpr || !text_[id].empty() || seen_[id] == epoch_) return;
    seen_[id] = epoch_;
    if (depth_of(id) == depth) needed_.push_back(id);
    each_operand(k_.pool[id], [&](ExprId o) { collect(o, depth); });
  }

  // ---- expressions ----

  std::string operand(ExprId id) const { return compound_[id] ? "(" + text_[id] + ")" : text_[id]; }

  std::string render(const ExprNode& n) const {
    switch (n.prim) {
      case Prim::Const: return const_text(n.type, n.imm);
      case Prim::Param: return cat("p", n.imm);
      case Prim::Slot: return cat("s", n.imm);
      case Prim::Var: return cat("i", n.imm);
      case Prim::Acc: return cat("a", n.imm);
      case Prim::Running: return cat("running(a", n.imm, ")");
      case Prim::Before: return cat("before(a", n.imm, ")");
      case Prim::Earlier: return cat("earlier", n.imm);
      case Prim::Later: return cat("later", n.imm);
      case Prim::Load:
        return cat(buffer_name(n.imm), "[", text_[n.a], n.b == kNoExpr ? "" : " if " + text_[n.b], "]");
      case Prim::Neg: return "-" + operand(n.a);
      case Prim::Not: return "~" + operand(n.a);
      default: break;  // an infix operator or a call
    }
    if (const char* op = infix(n.prim)) return operand(n.a) + op + operand(n.b);
    std::string text = cat(call_name(n), "(");
    const char* comma = "";
    each_operand(n, [&](ExprId o) {
      text += comma + text_[o];
      comma = ", ";
    });
    return text + ")";
  }

  static std::string call_name(const ExprNode& n) {
    const std::string type(info(n.type).short_name);
    if (n.prim == Prim::Call1 || n.prim == Prim::Call2) return symbol(static_cast<MathFn>(n.imm));
    if (n.prim == Prim::Native) return symbol(static_cast<NativeFn>(n.imm));
    if (n.prim == Prim::Cast) return type;
    if (n.prim == Prim::CastInRange) return type + "_in_range";
    if (n.prim == Prim::Bitcast) return type + "_bits";
    std::string lower = name(n.prim);
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    return lower;
  }

  std::string mark(Mark::Of of, std::uint32_t number) const {
    return marked_ ? word_of({of, number}) : std::string();
  }

  const Kernel& k_;
  const bool marked_;
  std::string out_;
  int indent_ = 0, next_name_ = 0;
  std::vector<int> uses_, depth_;    // per expression
  std::vector<std::string> text_;    // how a user spells it; empty until its loop was reached
  std::vector<bool> compound_;       // an infix expression written in place
  std::vector<std::uint32_t> seen_;  // last `define` that visited it
  std::uint32_t epoch_ = 0;
  std::vector<int> var_depth_, acc_depth_, update_depth_;
  std::vector<ExprId> needed_;
};

}  // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).run(); }
std::string print_marked(const Kernel& kernel) { return Printer(kernel, true).run(); }

}  // namespace kiln::kernel
