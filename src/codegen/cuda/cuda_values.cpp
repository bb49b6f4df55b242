// CudaEmitter: values on one lane and on all lanes, named where they are used more than once.
#include "codegen/cuda/cuda_function.h"

#include "kernel/monoid.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace kiln::codegen {

constexpr std::size_t kLongest = 72;  // characters of an expression written in place
constexpr int kMostDivisors = 4;      // of a thread, of three registers each

/// Whether it is another one in another iteration of the grid.
bool CudaEmitter::varies_by_item(ExprId e) const {
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Var) return scopes_[1].loop->var == n.imm;
  bool any = false;
  each_operand(n, [&](ExprId o) { any = any || varies_by_item(o); });
  return any;
}

/// A constant as an operand of arithmetic on indices or on values.
std::string CudaEmitter::constant(ExprId e, bool index) const {
  const ExprNode n = pool_[e];
  if (!index) return cuda_constant(n.type, n.imm);
  const auto v = static_cast<std::int64_t>(n.imm);
  const char* suffix = k_.threads.narrow ? "" : "ll";
  return v < 0 ? cat('(', v, suffix, ')') : cat(v, suffix);
}

/// A number of the program's that is hardly 0: a limit, whose zero's sign is not worth two instructions for
/// each element.
bool CudaEmitter::is_number(ExprId e) const {
  while (pool_[e].prim == Prim::Cast) e = pool_[e].a;
  const ExprNode& n = pool_[e];
  return n.prim == Prim::Slot ||
         (n.prim == Prim::Const && n.type == DType::Float32 && static_cast<std::uint32_t>(n.imm) << 1 != 0);
}

template <class F>
std::string CudaEmitter::spell(ExprId e, F operand) {
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Div && n.type == DType::Float32 && !k_.exact && at_.depth_of(n.b) < at_.depth_of(e) &&
      (lanes_ <= kMostDivisors || !at_.varying(n.b)))
    return cat("divide(", pool_[n.a].prim == Prim::Const ? constant(n.a, false) : operand(n.a), ", ",
               divisor(n.b), ')');
  if (n.prim == Prim::Cast && n.type == DType::Float32 && facts_.uses[n.a] <= 1) {
    const ExprNode half = pool_[n.a];  // rounded, and back
    if (half.prim == Prim::Cast && is_half(half.type) && pool_[half.a].type == DType::Float32 &&
        pool_[half.a].prim != Prim::Const)
      return cat(half.type == DType::Float16 ? "round_f16(" : "round_bf16(", operand(half.a), ')');
  }
  if (n.prim == Prim::And && n.type == DType::Bool) {  // 0 <= t < span
    const ExprNode low = pool_[n.a], high = pool_[n.b];
    if (low.prim == Prim::Le && high.prim == Prim::Lt && low.b == high.a &&
        pool_[low.a].prim == Prim::Const && pool_[low.a].imm == 0 && is_index(high.a) && is_index(high.b) &&
        pool_[high.a].prim != Prim::Const) {
      const char* const type = k_.threads.narrow ? "(unsigned int)(" : "(uint64)(";
      return cat('(', type, operand(high.a), ") < ", type, operand(high.b), "))");
    }
  }
  if (n.prim == Prim::Cast && (n.type == DType::Int8 || n.type == DType::UInt8) && facts_.uses[n.a] <= 1) {
    const ExprNode whole = pool_[n.a];
    if (whole.prim == Prim::RoundEven && whole.type == DType::Float32 && pool_[whole.a].prim != Prim::Const)
      return cat("round_to<", cuda_type(n.type), ">(", operand(whole.a), ')');
  }
  const bool index = is_index(e);
  if (index && n.prim == Prim::CastInRange) return cat(index_type(), '(', operand(n.a), ')');
  bool of_indices = false;  // its operands are indices
  each_operand(n, [&](ExprId o) { of_indices |= pool_[o].prim != Prim::Const && is_index(o); });
  each_operand(n, [&](ExprId o) { of_indices = of_indices && is_index(o); });
  of_indices |= index && n.prim == Prim::Select;
  std::string in[3];
  int i = 0;
  each_operand(n, [&](ExprId o) {
    if (pool_[o].prim == Prim::Const)
      in[i++] = constant(o, of_indices);
    else
      in[i++] = is_index(o) && !of_indices ? cat("int64(", operand(o), ')') : operand(o);
  });
  // not what memory held
  if (n.prim == Prim::IndexDiv && n.imm != 0 && index && k_.threads.narrow && pool_[n.b].prim == Prim::Param)
    return cat("index_div(", in[0], ", ", in[1], ", p", n.imm - 1, ')');
  const bool extreme = n.prim == Prim::Min || n.prim == Prim::Max;
  if (extreme && n.type == DType::Float32 && !k_.exact &&
      (facts_.added[e] || std::ranges::count(combined_, e) > 0 || is_number(n.a) ||
       is_number(n.b)))  // the sign of a zero is not seen in a sum
    return cat(n.prim == Prim::Min ? "least(" : "greatest(", in[0], ", ", in[1], ')');
  return cuda_primitive(n, pool_[n.prim == Prim::Select ? n.b : n.a].type, index, in[0], in[1], in[2]);
}

/// What a divisor that serves many divisions is prepared into, where it is computed. One that differs between
/// lanes is one a lane.
std::string CudaEmitter::divisor(ExprId e) {
  Scope& scope = scopes_[static_cast<std::size_t>(at_.depth_of(e))];
  if (const auto it = scope.divisors.find(e); it != scope.divisors.end()) return it->second;
  const bool was_in_run = std::exchange(in_run_, false), on_lanes = was_in_run && at_.varying(e);
  const std::string name = fresh("d");
  if (!on_lanes) {
    const std::string d = value(e);
    scope.text += cat("const Divisor ", name, " = divisor(", d, ");\n");
  } else {
    auto around = std::tuple(std::exchange(run_text_, {}), std::exchange(before_run_, {}),
                             std::exchange(after_run_, {}), std::exchange(run_memo_, {}));
    const std::string inside = std::exchange(here().text, {});
    in_run_ = true;
    const std::string d = lane(e);
    run_text_ += cat(name, "[v] = divisor(", d, ");\n");
    end_run();
    const std::string made = std::exchange(here().text, inside);
    scope.text += cat("Divisor ", name, '[', lanes_, "];\n", made);
    std::tie(run_text_, before_run_, after_run_, run_memo_) = std::move(around);
  }
  in_run_ = was_in_run;
  return scope.divisors[e] = on_lanes ? name + "[v]" : name;
}

/// Keeps `text` under a name unless it is short and used once.
std::string CudaEmitter::keep(ExprId e, std::string text, bool in_place, std::string& into,
                              std::unordered_map<ExprId, std::string>& memo) {
  if (marked_) text += kernel::word_of({kernel::Mark::Of::Expression, e});
  if (in_place && facts_.uses[e] <= 1 && kernel::shown_length(text) < kLongest && pool_[e].prim != Prim::Load)
    return text;
  const std::string name = fresh("t");
  into += cat("const ", type_of(e), ' ', name, " = ", text, ";\n");
  return memo[e] = name;
}

std::string CudaEmitter::element(const ExprNode& n, const std::string& place,
                                 const std::string& predicate) const {
  std::string text = place;
  if (is_bool(n.type)) text = cat('(', text, " != 0)");
  return predicate.empty() ? text : cat('(', predicate, " ? ", text, " : ", cuda_constant(n.type, 0), ')');
}

/// The condition under which an element is there to be loaded.
std::string CudaEmitter::present(ExprId load, bool on_lane) {
  const ExprId b = pool_[load].b;
  const std::string predicate = b == kNoExpr ? std::string() : on_lane ? lane(b) : value(b);
  const bool cut = on_lane && reach_ == Reach::Cut;
  if ((!cut && !masked(at_.depth_of(load))) || !at_.varying(load)) return predicate;
  const std::string here = cut ? lanes_there() : on_lane ? "v < left" : "left > 0";
  return predicate.empty() ? here : cat(here, " && ", predicate);
}

/// The value on one lane: of what varies, that of lane 0.
std::string CudaEmitter::value(ExprId e) {
  const ExprNode n = pool_[e];
  switch (n.prim) {
    case Prim::Const: return constant(e, false);
    case Prim::Var: return scopes_[static_cast<std::size_t>(at_.depth_of(e))].var;
    case Prim::Param: return cat('p', n.imm);
    case Prim::Slot: return cat('s', n.imm);
    case Prim::Acc: return accs_[n.imm].result;
    case Prim::Running: return accs_[n.imm].running;
    case Prim::Before: return accs_[n.imm].before;
    default: break;
  }
  if (n.prim == Prim::Load && is_register(n.imm)) return scratch(n.imm, n.a);
  if (n.prim == Prim::Load)
    if (const std::string part = chained(n.imm, false); !part.empty()) return part;
  const auto d = static_cast<std::size_t>(at_.depth_of(e));
  if (const auto it = scopes_[d].memo.find(e); it != scopes_[d].memo.end()) return it->second;
  if (n.prim == Prim::Load)
    if (std::string part = loaded_together(e); !part.empty()) return part;
  if (n.prim == Prim::Load || n.prim == Prim::Select)
    if (std::string early = loaded_element(e); !early.empty()) return early;
  const std::string text = n.prim == Prim::Load ? element(n, place_of(n.imm, n.a), present(e, false))
                                                : spell(e, [&](ExprId o) { return value(o); });
  return keep(e, text, static_cast<int>(d) == depth(), scopes_[d].text, scopes_[d].memo);
}

/// Whether value(e), which has been called here, is a name or a number rather than something to compute.
bool CudaEmitter::is_name(ExprId e) const {
  const ExprNode& n = pool_[e];
  if (n.prim == Prim::Const) return static_cast<std::int64_t>(n.imm) >= 0;
  if (n.prim == Prim::Acc)
    return !kernel::positional(k_.accs[n.imm].monoid) && k_.accs[n.imm].monoid != Monoid::Custom;
  if (n.prim == Prim::Load || kernel::operand_count(n.prim) == 0) return true;
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.memo.contains(e); });
}

/// The value on lane `v`, inside a run.
std::string CudaEmitter::lane(ExprId e) {
  if (!in_run_ || !at_.varying(e) || same_.contains(e)) return value(e);
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Acc) return accs_[n.imm].result;
  if (n.prim == Prim::Running) return accs_[n.imm].running;
  if (n.prim == Prim::Before) return accs_[n.imm].before;
  if (n.prim == Prim::Var) return cat('(', value(e), " + v)");
  if (const auto it = run_memo_.find(e); it != run_memo_.end()) return it->second;
  if (const std::string one = two_valued(e); !one.empty()) return one;
  if (n.prim == Prim::Load) {
    if (is_register(n.imm)) return scratch(n.imm, n.a);
    if (const std::string part = chained(n.imm, true); !part.empty()) return part;
    if (const std::string part = of_span(e); !part.empty()) return run_memo_[e] = part;
    if (takes_vector(e)) {
      const std::string loaded = cat(loaded_vector(e), vector_lane(n.a));
      const std::string text = rounds_ == 0 || n.b == kNoExpr ? loaded
                                                              : cat('(', value(n.b), " ? ", loaded, " : ",
                                                                    cuda_constant(n.type, 0), ')');
      if (rounds_ > 0)
        return keep(e, is_bool(n.type) ? cat('(', text, " != 0)") : text, true, run_text_, run_memo_);
      return run_memo_[e] = is_bool(n.type) ? cat('(', text, " != 0)") : text;
    }
    return keep(e, element(n, cat(buffer_name(n.imm), '[', lane_index_text(n.a), ']'), present(e, true)),
                true, run_text_, run_memo_);
  }
  return keep(e, spell(e, [&](ExprId o) { return lane(o); }), true, run_text_, run_memo_);
}

}  // namespace kiln::codegen
