// Walks a Kernel's loops and writes each expression into the outermost loop that has its operands, like the LLVM
// emitter. A Vector loop becomes a loop over the vectors of a thread (`i` is a vector's first element), and inside it
// each run of stores and updates becomes a loop over the lanes `v` of one vector; what runs along the lanes and is
// aligned is loaded and stored as a whole vector.
//
// Invariant: text goes to the innermost open scope, or to an enclosing one whose loop has not been closed yet; so it
// stands before everything that may use it.
#include "codegen/cuda_c.h"

#include "codegen/cuda_expr.h"
#include "kernel/monoid.h"
#include "kernels_templates.h"
#include "support/check.h"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

namespace kiln::codegen {
namespace {

using kernel::AccDecl;
using kernel::BufferDecl;
using kernel::ExprId;
using kernel::ExprNode;
using kernel::Kernel;
using kernel::kNoExpr;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Monoid;
using kernel::Prim;
using kernel::Stmt;

constexpr std::size_t kLongest = 72;   // characters of an expression written in place
constexpr int kUnrollBelow = 60;       // expressions of a loop body that is unrolled four times


/// Element type in memory: a byte that is not 0 is true.
const char* memory_type(DType t) { return is_bool(t) ? "uint8" : cuda_type(t); }

class Emitter {
 public:
  Emitter(const Kernel& kernel, const std::string& symbol) : k_(kernel), pool_(kernel.pool), symbol_(symbol) {
    KILN_CHECK_THAT(k_.threads.block > 0 && k_.threads.team > 0, "a kernel without threads");
    var_scope_.assign(k_.n_vars, -1);
    depth_.assign(pool_.size(), -1);
    varying_.assign(pool_.size(), -1);
    index_.assign(pool_.size(), -1);
    accs_.resize(k_.accs.size());
    count_uses();
  }

  std::string run() {
    team_ = k_.threads.team;
    scopes_.push_back({});
    block(k_.body);
    return assemble(here().text);
  }

 private:
  struct Scope {
    const LoopDecl* loop = nullptr;
    std::string var;  // value of its variable; of a Vector loop: on lane 0
    std::string text;
    std::unordered_map<ExprId, std::string> memo, divisors;
  };
  struct AccState {
    std::string name, result;
    bool lanes = false;       // an array, one a lane
    bool horizontal = false;  // combined over lanes and threads when its loop ends
    int depth = 0;
  };
  /// What is known inside a Vector loop of the vector at hand.
  enum class Reach : std::uint8_t {
    Whole,    // all of its lanes are inside the extent
    Guarded,  // all or none
    Ragged,   // any number
  };
  /// Loads of all steps of a Vector loop, made before its first step computes.
  struct Stage {
    std::string arrays, text;
    std::unordered_map<ExprId, std::string> memo;    // of what the loads' addresses need
    std::unordered_map<ExprId, std::string> loaded;
  };

  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  Scope& here() { return scopes_.back(); }
  void line(const std::string& text) { (in_run_ ? run_text_ : here().text) += text + "\n"; }
  std::string fresh(const char* prefix) { return cat(prefix, counter_++); }
  const char* index_type() const { return k_.threads.narrow ? "int" : "int64"; }

  // ---- facts about expressions -----------------------------------------------------------------------------------

  template <class F>
  static void each_operand(const ExprNode& n, F f) {
    for (ExprId o : {n.a, n.b, n.c})
      if (o != kNoExpr) f(o);
  }

  void count_uses() {
    uses_.assign(pool_.size(), 0);
    auto visit = [&](auto&& self, ExprId e) -> void {
      if (e == kNoExpr || ++uses_[e] > 1) return;
      each_operand(pool_[e], [&](ExprId o) { self(self, o); });
    };
    auto block = [&](auto&& self, const std::vector<Stmt>& body) -> void {
      for (const Stmt& s : body) {
        if (s.kind == Stmt::Kind::Loop) {
          visit(visit, k_.loops[s.target].extent);
          self(self, k_.loops[s.target].body);
          continue;
        }
        visit(visit, s.value);
        visit(visit, s.index);
      }
    };
    block(block, k_.body);
    block(block, k_.finish);
  }

  int depth_of(ExprId e) {
    if (depth_[e] >= 0) return depth_[e];
    const ExprNode& n = pool_[e];
    int d = 0;
    if (n.prim == Prim::Var)
      d = var_scope_[n.imm];
    else if (n.prim == Prim::Acc)
      d = accs_[n.imm].depth;
    else
      each_operand(n, [&](ExprId o) { d = std::max(d, depth_of(o)); });
    KILN_CHECK_THAT(d >= 0, "expression used outside its loop");
    return depth_[e] = d;
  }

  /// Whether the value differs between the lanes of the open Vector loop.
  bool varying(ExprId e) {
    if (vector_scope_ == 0) return false;
    if (varying_[e] >= 0) return varying_[e];
    const ExprNode& n = pool_[e];
    bool v = false;
    if (n.prim == Prim::Var)
      v = var_scope_[n.imm] == vector_scope_;
    else if (n.prim == Prim::Acc)
      v = !accs_[n.imm].horizontal && accs_[n.imm].depth >= vector_scope_;
    else
      each_operand(n, [&](ExprId o) { v |= varying(o); });
    varying_[e] = v;
    return v;
  }

  /// Whether it is arithmetic on indices, which has their width and never overflows.
  bool is_index(ExprId e) {
    if (index_[e] >= 0) return index_[e];
    const ExprNode& n = pool_[e];
    bool i = n.type == DType::Int64;
    switch (n.prim) {
      case Prim::Const: case Prim::Param: case Prim::Var: break;
      case Prim::Add: case Prim::Sub: case Prim::Mul: case Prim::Neg: case Prim::Min: case Prim::Max: case Prim::IndexDiv:
        each_operand(n, [&](ExprId o) { i = i && is_index(o); });
        break;
      default: i = false;
    }
    return index_[e] = i;
  }

  /// Whether it is another one in another iteration of the grid.
  bool varies_by_item(ExprId e) const {
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Var) return scopes_[1].loop->var == n.imm;
    bool any = false;
    each_operand(n, [&](ExprId o) { any = any || varies_by_item(o); });
    return any;
  }

  void forget_facts() {
    std::fill(depth_.begin(), depth_.end(), -1);
    std::fill(varying_.begin(), varying_.end(), -1);
  }

  /// d(index)/d(lane), when that is 0 or 1.
  std::optional<int> lane_stride(ExprId e) {
    if (!varying(e)) return 0;
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Var) return 1;
    if (n.prim != Prim::Add && n.prim != Prim::Sub) return std::nullopt;
    const auto a = lane_stride(n.a), b = lane_stride(n.b);
    if (!a || !b) return std::nullopt;
    if (*b == 0) return a;
    return n.prim == Prim::Add && *a == 0 ? b : std::nullopt;
  }

  // ---- expressions -----------------------------------------------------------------------------------------------

  const char* type_of(ExprId e) { return is_index(e) ? index_type() : cuda_type(pool_[e].type); }

  /// A constant as an operand of arithmetic on indices or on values.
  std::string constant(ExprId e, bool index) const {
    const ExprNode& n = pool_[e];
    if (!index) return cuda_constant(n.type, n.imm);
    const auto v = static_cast<std::int64_t>(n.imm);
    const char* suffix = k_.threads.narrow ? "" : "ll";
    return v < 0 ? cat('(', v, suffix, ')') : cat(v, suffix);
  }

  template <class F>
  std::string spell(ExprId e, F operand) {
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Div && n.type == DType::Float32 && depth_of(n.b) < depth_of(e))
      return cat("divide(", pool_[n.a].prim == Prim::Const ? constant(n.a, false) : operand(n.a), ", ", divisor(n.b), ')');
    bool of_indices = false;  // its operands are indices
    each_operand(n, [&](ExprId o) { of_indices |= pool_[o].prim != Prim::Const && is_index(o); });
    each_operand(n, [&](ExprId o) { of_indices = of_indices && is_index(o); });
    const bool index = is_index(e);
    std::string in[3];
    int i = 0;
    each_operand(n, [&](ExprId o) {
      if (pool_[o].prim == Prim::Const)
        in[i++] = constant(o, of_indices);
      else
        in[i++] = is_index(o) && !of_indices ? cat("int64(", operand(o), ')') : operand(o);
    });
    return cuda_primitive(n, pool_[n.prim == Prim::Select ? n.b : n.a].type, index, in[0], in[1], in[2]);
  }

  /// What a divisor that serves many divisions is prepared into, where it is computed.
  std::string divisor(ExprId e) {
    Scope& scope = scopes_[static_cast<std::size_t>(depth_of(e))];
    if (const auto it = scope.divisors.find(e); it != scope.divisors.end()) return it->second;
    const bool was_in_run = std::exchange(in_run_, false);
    const std::string d = value(e), name = fresh("d");
    in_run_ = was_in_run;
    scope.text += cat("const Divisor ", name, " = divisor(", d, ");\n");
    return scope.divisors[e] = name;
  }

  /// Keeps `text` under a name unless it is short and used once.
  std::string keep(ExprId e, const std::string& text, bool in_place, std::string& into,
                   std::unordered_map<ExprId, std::string>& memo) {
    if (in_place && uses_[e] <= 1 && text.size() < kLongest && pool_[e].prim != Prim::Load) return text;
    const std::string name = fresh("t");
    into += cat("const ", type_of(e), ' ', name, " = ", text, ";\n");
    return memo[e] = name;
  }

  std::string element(const ExprNode& n, const std::string& index, const std::string& predicate) const {
    std::string text = cat(buffer_name(n.imm), '[', index, ']');
    if (is_bool(n.type)) text = cat('(', text, " != 0)");
    return predicate.empty() ? text : cat('(', predicate, " ? ", text, " : ", cuda_constant(n.type, 0), ')');
  }

  /// The value on one lane: of what varies, that of lane 0.
  std::string value(ExprId e) {
    const ExprNode& n = pool_[e];
    switch (n.prim) {
      case Prim::Const: return constant(e, false);
      case Prim::Var: return scopes_[static_cast<std::size_t>(var_scope_[n.imm])].var;
      case Prim::Param: return cat('p', n.imm);
      case Prim::Slot: return cat('s', n.imm);
      case Prim::Acc: return accs_[n.imm].result;
      default: break;
    }
    if (n.prim == Prim::Load && is_register(n.imm)) return scratch(n.imm, n.a);
    const auto d = static_cast<std::size_t>(depth_of(e));
    if (const auto it = scopes_[d].memo.find(e); it != scopes_[d].memo.end()) return it->second;
    const std::string text = n.prim == Prim::Load
                                 ? element(n, index_text(n.a), n.b == kNoExpr ? std::string() : value(n.b))
                                 : spell(e, [&](ExprId o) { return value(o); });
    return keep(e, text, static_cast<int>(d) == depth(), scopes_[d].text, scopes_[d].memo);
  }

  /// The same where a plain integer may stand.
  std::string index_text(ExprId e) { return pool_[e].prim == Prim::Const ? constant(e, true) : value(e); }
  std::string lane_index_text(ExprId e) { return pool_[e].prim == Prim::Const ? constant(e, true) : lane(e); }

  /// The value on lane `v`, inside a run.
  std::string lane(ExprId e) {
    if (!in_run_ || !varying(e)) return value(e);
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Acc) return accs_[n.imm].result;
    if (n.prim == Prim::Var) return cat('(', value(e), " + v)");
    if (const auto it = run_memo_.find(e); it != run_memo_.end()) return it->second;
    if (n.prim == Prim::Load) {
      if (is_register(n.imm)) return scratch(n.imm, n.a);
      if (n.b == kNoExpr && whole_vectors(n.imm, n.a)) {
        const std::string text = cat(loaded_vector(e), ".at[v]");
        return run_memo_[e] = is_bool(n.type) ? cat('(', text, " != 0)") : text;
      }
      const std::string predicate = n.b == kNoExpr ? std::string() : lane(n.b);
      return keep(e, element(n, lane_index_text(n.a), predicate), true, run_text_, run_memo_);
    }
    return keep(e, spell(e, [&](ExprId o) { return lane(o); }), true, run_text_, run_memo_);
  }

  // ---- memory ----------------------------------------------------------------------------------------------------

  std::string buffer_name(std::uint64_t b) const {
    switch (k_.buffers[b].role) {
      case BufferDecl::Role::In: return cat("in", b);
      case BufferDecl::Role::Out: return cat("out", b);
      case BufferDecl::Role::Partial: return cat("part", b);
      case BufferDecl::Role::Scratch: return cat("kept", b);
    }
    return {};
  }

  bool is_register(std::uint64_t b) const { return k_.buffers[b].role == BufferDecl::Role::Scratch; }

  /// The register that belongs to the vector and lane at hand.
  std::string scratch(std::uint64_t b, ExprId index) {
    KILN_CHECK_THAT(vector_scope_ > 0 && steps_ > 0 && pool_[index].prim == Prim::Var &&
                        var_scope_[pool_[index].imm] == vector_scope_,
                    "scratch memory that registers cannot be");
    const std::string step = steps_ > 1 ? lanes_ > 1 ? cat("k * ", lanes_, " + ") : "k" : "";
    return cat(buffer_name(b), '[', step, lanes_ > 1 ? "v" : steps_ > 1 ? "" : "0", ']');
  }

  bool whole_vectors(std::uint64_t buffer, ExprId index) {
    return lanes_ > 1 && reach_ != Reach::Ragged && k_.buffers[buffer].vector && lane_stride(index) == 1;
  }

  std::string vector_type(DType t) const { return cat("vec<", memory_type(t), ", ", lanes_, '>'); }

  /// Name of the vector that a load along the lanes gives.
  std::string loaded_vector(ExprId e) {
    const ExprNode& n = pool_[e];
    const auto d = static_cast<std::size_t>(depth_of(e));
    // What every row reads comes from a cache: fetching it ahead would only take registers.
    const bool staged = steps_ > 1 && static_cast<int>(d) == vector_scope_ && varies_by_item(n.a);
    auto& known = staged ? stage_.loaded : scopes_[d].memo;
    if (const auto it = known.find(e); it != known.end()) return it->second;
    const std::string name = fresh("x"), type = vector_type(n.type);
    const bool was_in_run = std::exchange(in_run_, false);
    auto load = [&] { return cat("load<", lanes_, ">(", buffer_name(n.imm), " + ", index_text(n.a), ")"); };
    if (staged) {
      Scope& scope = scopes_[d];
      std::swap(scope.text, stage_.text);
      std::swap(scope.memo, stage_.memo);
      const std::string text = load();
      scope.text += cat(name, "[k] = ", text, ";\n");
      std::swap(scope.text, stage_.text);
      std::swap(scope.memo, stage_.memo);
      stage_.arrays += cat(type, ' ', name, '[', steps_, "];\n");
    } else {
      const std::string text = load();
      scopes_[d].text += cat("const ", type, ' ', name, " = ", text, ";\n");
    }
    in_run_ = was_in_run;
    return known[e] = staged ? name + "[k]" : name;
  }

  void store(const Stmt& s) {
    const BufferDecl& d = k_.buffers[s.target];
    const auto in_memory = [&](const std::string& x) { return is_bool(d.dtype) ? cat("uint8(", x, ')') : x; };
    if (d.role == BufferDecl::Role::Scratch) {
      const std::string x = lane(s.value);
      line(cat(scratch(s.target, s.index), " = ", x, ';'));
      return;
    }
    if (vector_scope_ == 0) {
      const std::string x = in_memory(value(s.value)), at = index_text(s.index);
      line(cat(team_ > 1 ? "if (lane == 0) " : "", buffer_name(s.target), '[', at, "] = ", x, ';'));
      return;
    }
    const std::string x = in_memory(lane(s.value));
    if (in_run_ && whole_vectors(s.target, s.index)) {
      const std::string name = fresh("y");
      line(cat(name, ".at[v] = ", x, ';'));
      before_run_ += cat(vector_type(d.dtype), ' ', name, ";\n");
      in_run_ = false;
      const std::string at = index_text(s.index);
      in_run_ = true;
      after_run_ += cat("store(", buffer_name(s.target), " + ", at, ", ", name, ");\n");
      return;
    }
    const std::string at = lane_index_text(s.index);
    line(cat(buffer_name(s.target), '[', at, "] = ", x, ';'));
  }

  // ---- accumulators ----------------------------------------------------------------------------------------------

  const LoopDecl* vector_loop_in(const LoopDecl& l) const {
    if (l.kind == LoopKind::Vector) return &l;
    for (const Stmt& s : l.body)
      if (s.kind == Stmt::Kind::Loop)
        if (const LoopDecl* v = vector_loop_in(k_.loops[s.target])) return v;
    return nullptr;
  }

  std::string acc_type(const AccDecl& a) const {
    return kernel::positional(a.monoid) ? cat("Best<", cuda_type(a.type), '>') : cuda_type(a.type);
  }

  void begin_accs(const LoopDecl& l) {
    if (l.accs.empty()) return;
    const LoopDecl* inside = vector_scope_ ? nullptr : vector_loop_in(l);
    const int lanes = inside ? inside->lanes : vector_scope_ ? lanes_ : 1;
    for (std::uint32_t id : l.accs) {
      const AccDecl& a = k_.accs[id];
      AccState& s = accs_[id];
      s.name = fresh("a");
      s.horizontal = inside != nullptr;
      s.lanes = lanes > 1;
      s.depth = depth();
      std::string start = cuda_constant(a.type, kernel::identity(a));
      if (kernel::positional(a.monoid)) start = cat('{', start, ", 0x7fffffffffffffffll}");
      if (!s.lanes) {
        line(cat(acc_type(a), ' ', s.name, " = ", start, ';'));
        continue;
      }
      std::string all = start;
      for (int v = 1; v < lanes; ++v) all += ", " + start;
      line(cat(acc_type(a), ' ', s.name, '[', lanes, "] = {", all, "};"));
    }
  }

  void update(const Stmt& st) {
    const AccDecl& a = k_.accs[st.target];
    const AccState& s = accs_[st.target];
    const std::string acc = s.lanes ? s.name + "[v]" : s.name;
    const ExprNode& product = pool_[st.value];
    if (a.monoid == Monoid::Sum && is_float(a.type) && product.prim == Prim::Mul && k_.fma) {
      const std::string x = lane(product.a), y = lane(product.b);
      line(cat(acc, a.type == DType::Float32 ? " = __fmaf_rn(" : " = __fma_rn(", x, ", ", y, ", ", acc, ");"));
      return;
    }
    const std::string x = lane(st.value);
    if (kernel::positional(a.monoid)) {
      const std::string at = lane_index_text(st.index);
      line(cat(acc, " = ", cuda_monoid(a.monoid), "::of(", acc_type(a), '{', x, ", int64(", at, ")}, ", acc, ");"));
    } else if (a.monoid == Monoid::Sum && is_float(a.type)) {
      line(cat(acc, " += ", x, ';'));
    } else {
      line(cat(acc, " = ", cuda_monoid(a.monoid), "::of(", x, ", ", acc, ");"));
    }
  }

  /// Final values: over the lanes by halves, then over the team.
  void end_accs(const LoopDecl& l) {
    const LoopDecl* inside = vector_scope_ ? nullptr : vector_loop_in(l);
    for (std::uint32_t id : l.accs) {
      const AccDecl& a = k_.accs[id];
      AccState& s = accs_[id];
      std::string v = s.name;
      if (s.horizontal) {
        if (s.lanes) v = combine_lanes(a, s.name, 0, inside->lanes);
        const std::string op = cuda_monoid(a.monoid);
        if (team_ > 32 || team_ == k_.threads.block)
          v = cat("reduce_block<", op, ", ", k_.threads.block, ">(", v, ')');
        else if (team_ > 1)
          v = cat("reduce_lanes<", op, ", ", team_, ">(", v, ", members)");
        const std::string name = fresh("r");
        line(cat("const ", acc_type(a), ' ', name, " = ", v, ';'));
        v = name;
      } else if (s.lanes) {
        v += "[v]";
      }
      s.result = kernel::positional(a.monoid) ? v + ".position" : v;
    }
  }

  std::string combine_lanes(const AccDecl& a, const std::string& name, int first, int count) const {
    if (count == 1) return cat(name, '[', first, ']');
    const std::string x = combine_lanes(a, name, first, count / 2), y = combine_lanes(a, name, first + count / 2, count / 2);
    return a.monoid == Monoid::Sum && is_float(a.type) ? cat('(', x, " + ", y, ')')
                                                       : cat(cuda_monoid(a.monoid), "::of(", x, ", ", y, ')');
  }

  // ---- statements and loops ----------------------------------------------------------------------------------------

  void block(const std::vector<Stmt>& body) {
    for (std::size_t i = 0; i < body.size();) {
      if (body[i].kind == Stmt::Kind::Loop) {
        loop(k_.loops[body[i++].target]);
        continue;
      }
      std::size_t end = i;
      while (end < body.size() && body[end].kind != Stmt::Kind::Loop) ++end;
      run_of(std::span(body).subspan(i, end - i));
      i = end;
    }
  }

  void statements(std::span<const Stmt> list) {
    for (const Stmt& s : list) s.kind == Stmt::Kind::Store ? store(s) : update(s);
  }

  /// Stores and updates without a loop between them.
  void run_of(std::span<const Stmt> list) {
    if (vector_scope_ == 0 || lanes_ == 1) return statements(list);
    in_run_ = true;
    statements(list);
    in_run_ = false;
    std::string& out = here().text;
    out += before_run_;
    const bool ragged = reach_ == Reach::Ragged;
    out += cat(unroll(), "\nfor (int v = 0; v < ", lanes_, "; ++v) {\n");
    if (ragged) out += cat("if (", scopes_[static_cast<std::size_t>(vector_scope_)].var, " + v < ", extent_, ") {\n");
    out += run_text_;
    if (ragged) out += "}\n";
    out += "}\n" + after_run_;
    run_text_.clear();
    before_run_.clear();
    after_run_.clear();
    run_memo_.clear();
  }

  /// Arrays in registers need unrolled loops. Cut vectors are rare: without arrays they are not worth compiling at length.
  const char* unroll() const {
    const bool arrays = !k_.accs.empty() || std::any_of(k_.buffers.begin(), k_.buffers.end(), [](const BufferDecl& b) {
      return b.role == BufferDecl::Role::Scratch;
    });
    return reach_ == Reach::Ragged && !arrays ? "#pragma unroll 1" : "#pragma unroll";
  }

  void open_scope(const LoopDecl& l, std::string var) {
    scopes_.push_back({&l, std::move(var), {}, {}});
    var_scope_[l.var] = depth();
    forget_facts();
  }
  std::string close_scope() {
    var_scope_[here().loop->var] = -1;
    std::string text = std::move(here().text);
    scopes_.pop_back();
    forget_facts();
    return text;
  }

  void loop(const LoopDecl& l) {
    if (l.kind == LoopKind::Grid) return grid_loop(l);
    std::string extent = index_text(l.extent);
    if (extent.find('(') != std::string::npos) {
      const std::string name = fresh("n");
      line(cat("const ", index_type(), ' ', name, " = ", extent, ';'));
      extent = name;
    }
    begin_accs(l);
    l.kind == LoopKind::Vector ? vector_loop(l, extent) : serial_loop(l, extent);
    end_accs(l);
  }

  void grid_loop(const LoopDecl& l) {
    const std::string i = cat('i', l.var), items = index_text(l.extent);
    open_scope(l, i);
    declare_registers();
    block(l.body);
    if (!k_.finish.empty()) finish(i, items);
    const std::string body = close_scope();
    const int teams = k_.threads.block / team_;
    const std::string first =
        teams == 1 ? cat(index_type(), "(blockIdx.x)")
                   : cat(index_type(), "(blockIdx.x) * ", teams, " + ", index_type(), "(threadIdx.x / ", team_, ')');
    line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", items, "; ", i, " += gridDim.x * ", teams, ") {"));
    here().text += body;
    line("}");
  }

  /// After an iteration of the body: if it was its group's last, the group's iteration of the finish section.
  void finish(const std::string& item, const std::string& items) {
    KILN_CHECK_THAT(team_ == k_.threads.block && k_.finish.size() == 1, "a finish section that a block cannot run");
    const LoopDecl& l = k_.loops[k_.finish.front().target];
    const std::string group = cat('i', l.var), count = fresh("n");
    line(cat("const ", index_type(), ' ', count, " = index_div(", items, ", ", index_text(l.extent), ");"));
    line(cat("const ", index_type(), ' ', group, " = index_div(", item, ", ", count, ");"));
    open_scope(l, group);
    block(l.body);
    const std::string body = close_scope();
    line(cat("if (last_of(arrivals + ", group, ", ", count, ")) {"));
    here().text += body;
    line("}");
  }

  void serial_loop(const LoopDecl& l, const std::string& extent) {
    const std::string i = cat('i', l.var);
    open_scope(l, i);
    block(l.body);
    const std::string body = close_scope();
    if (unrolls(l)) line("#pragma unroll 4");
    line(cat("for (", index_type(), ' ', i, " = 0; ", i, " < ", extent, "; ++", i, ") {"));
    here().text += body;
    line("}");
  }

  /// Whether a loop of unknown length does so little that several iterations should be in flight.
  bool unrolls(const LoopDecl& l) const {
    int count = 0;
    std::vector<bool> seen(pool_.size());
    auto visit = [&](auto&& self, ExprId e) -> void {
      if (e == kNoExpr || seen[e]) return;
      seen[e] = true;
      ++count;
      each_operand(pool_[e], [&](ExprId o) { self(self, o); });
    };
    for (const Stmt& s : l.body) {
      if (s.kind == Stmt::Kind::Loop) return false;
      visit(visit, s.value);
    }
    return count < kUnrollBelow;
  }

  void vector_loop(const LoopDecl& l, const std::string& extent) {
    KILN_CHECK_THAT(vector_scope_ == 0, "nested vector loops");
    lanes_ = l.lanes;
    steps_ = l.steps;
    extent_ = extent;
    const bool ragged = l.ragged && lanes_ > 1;
    if (steps_ > 0) {
      if (!ragged) {
        here().text += steps(l, Reach::Guarded);
      } else {
        const std::string whole = steps(l, Reach::Whole), rest = steps(l, Reach::Ragged);
        here().text += cat("if (", extent, " == ", team_ * lanes_ * steps_, ") {\n", whole, "} else {\n", rest, "}\n");
      }
    } else {
      const std::string i = cat('i', l.var);
      std::string body = vectors(l, i, Reach::Whole);
      if (ragged)
        body = cat("if (", i, " + ", lanes_, " <= ", extent, ") {\n", body, "} else {\n", vectors(l, i, Reach::Ragged), "}\n");
      if (unrolls(l)) line("#pragma unroll 4");
      const std::string first = lanes_ > 1 ? cat("lane * ", lanes_) : std::string("lane");
      line(cat("for (", index_type(), ' ', i, " = ", first, "; ", i, " < ", extent, "; ", i, " += ", team_ * lanes_, ") {"));
      here().text += body;
      line("}");
    }
    lanes_ = 1;
    steps_ = 0;
  }

  /// The body of a Vector loop for the vector that begins at `i`.
  std::string vectors(const LoopDecl& l, const std::string& i, Reach reach) {
    reach_ = reach;
    open_scope(l, i);
    vector_scope_ = depth();
    forget_facts();
    block(l.body);
    vector_scope_ = 0;
    return close_scope();
  }

  /// A Vector loop of known steps, unrolled: first all loads, then the rest.
  std::string steps(const LoopDecl& l, Reach reach) {
    stage_ = {};
    const std::string i = cat('i', l.var);
    const std::string body = vectors(l, i, reach);
    std::string first = team_ > 1 ? "lane" : "0";
    if (steps_ > 1) first = team_ > 1 ? cat("(k * ", team_, " + lane)") : "k";
    if (lanes_ > 1) first += cat(" * ", lanes_);
    auto wrap = [&](const std::string& text) {
      std::string out;
      if (steps_ > 1) out += cat(unroll(), "\nfor (int k = 0; k < ", steps_, "; ++k) {\n");
      out += cat("const ", index_type(), ' ', i, " = ", first, ";\n");
      if (reach == Reach::Guarded) out += cat("if (", i, " < ", extent_, ") {\n");
      if (reach == Reach::Ragged) out += cat("if (", i, " < ", extent_, ") {\n");
      out += text;
      if (reach != Reach::Whole) out += "}\n";
      return out + (steps_ > 1 ? "}\n" : "");
    };
    const std::string staged = stage_.text.empty() ? std::string() : stage_.arrays + wrap(stage_.text);
    const std::string rest = wrap(body);
    return steps_ > 1 ? staged + rest : cat("{\n", rest, "}\n");
  }

  /// Registers for Scratch buffers, for the life of a grid iteration.
  void declare_registers() {
    int per_thread = 0;
    for (const LoopDecl& l : k_.loops)
      if (l.kind == LoopKind::Vector) per_thread = std::max(per_thread, l.steps * l.lanes);
    for (std::size_t b = 0; b < k_.buffers.size(); ++b)
      if (is_register(b)) line(cat(cuda_type(k_.buffers[b].dtype), ' ', buffer_name(b), '[', per_thread, "];"));
  }

  // ---- the file --------------------------------------------------------------------------------------------------

  std::string parameters() const {
    std::string out;
    auto add = [&](const std::string& p) { out += (out.empty() ? "\n    " : ",\n    ") + p; };
    for (std::size_t b = 0; b < k_.buffers.size(); ++b) {
      const BufferDecl& d = k_.buffers[b];
      const char* t = memory_type(d.dtype);
      if (d.role == BufferDecl::Role::In) add(cat("const ", t, "* __restrict__ ", buffer_name(b)));
      if (d.role == BufferDecl::Role::Out) add(cat(t, "* __restrict__ ", buffer_name(b)));
      if (d.role == BufferDecl::Role::Partial) add(cat(t, "* ", buffer_name(b)));
    }
    if (!k_.finish.empty()) add("unsigned int* arrivals");
    for (std::uint32_t p = 0; p < k_.n_params; ++p) add(cat("const ", index_type(), " p", p));
    for (std::size_t s = 0; s < k_.slots.size(); ++s) add(cat("const ", cuda_type(k_.slots[s]), " s", s));
    return out;
  }

  std::string assemble(const std::string& all) const {
    std::string fn = cat("extern \"C\" __global__ void __launch_bounds__(", k_.threads.block, ") ", symbol_, '(',
                         parameters(), ") {\n");
    const int team = k_.threads.team;
    if (team > 1) fn += cat("const int lane = threadIdx.x", team == k_.threads.block ? "" : cat(" % ", team), ";\n");
    if (all.find("members)") != std::string::npos)
      fn += team == 32 ? "const unsigned int members = 0xffffffffu;\n"
                       : cat("const unsigned int members = ", (1u << team) - 1, "u << (threadIdx.x % 32 / ", team, " * ", team, ");\n");
    fn += all + "}\n";

    auto uses = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(), [&](const char* n) { return all.find(n) != std::string::npos; });
    };
    std::string out = templates::types;
    if (uses({"load<", "store(", "vec<"})) out += templates::memory;
    if (uses({"wrap_", "int_div(", "int_rem(", "index_div("})) out += templates::integer;
    if (uses({"philox_"})) out += templates::philox;
    if (uses({"max_of(", "min_of(", "div", "scale(", "exponent(", "mantissa(", "exp2_fast("})) out += templates::math;
    if (uses({"::of(", "reduce_", "Best<"})) out += templates::reduce;
    if (!k_.finish.empty()) out += templates::finish;
    return out + "\n" + indented(fn);
  }

  /// Two spaces a brace.
  static std::string indented(const std::string& text) {
    std::string out;
    int level = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string row = text.substr(at, end - at);
      at = end + 1;
      if (row.starts_with('}')) --level;
      if (!row.starts_with('#')) out.append(static_cast<std::size_t>(2 * level), ' ');
      out += row + "\n";
      if (row.ends_with('{')) ++level;
    }
    return out;
  }

  const Kernel& k_;
  const kernel::ExprPool& pool_;
  std::string symbol_;
  int team_ = 1;
  int counter_ = 0;

  std::vector<Scope> scopes_;
  std::vector<int> var_scope_;        // per variable: depth of its loop, or -1
  std::vector<int> depth_, uses_;
  std::vector<signed char> varying_, index_;
  std::vector<AccState> accs_;

  // The open Vector loop.
  int vector_scope_ = 0;              // its depth, or 0
  int lanes_ = 1, steps_ = 0;
  std::string extent_;
  Reach reach_ = Reach::Whole;
  Stage stage_;

  // The open run.
  bool in_run_ = false;
  std::string run_text_, before_run_, after_run_;
  std::unordered_map<ExprId, std::string> run_memo_;
};

}  // namespace

std::string emit_cuda(const Kernel& kernel, const std::string& symbol) {
  if (kernel::reads_running_values(kernel)) throw CompileError(cat("[cuda] ", kernel.label, ": no scans and loops here"));
  return Emitter(kernel, symbol).run();
}

}  // namespace kiln::codegen
