// Translator: expressions, memory and loops.
#include "codegen/vm/vm_translator.h"

#include "kernel/eval.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kiln::codegen {

constexpr std::uint32_t kGridBegin = 0, kGridEnd = 1;  // scalars that receive the launch's range

VmSection Translator::run(const std::vector<Stmt>& section) {
  scopes_.emplace_back();
  block(section);
  emit(depth(), {});
  out_.code = std::move(scopes_.front().code);
  assign_storage(out_, values_, max_lanes_);
  return std::move(out_);
}

/// A uniform strip of a constant.
std::uint32_t Translator::constant_strip(DType type, std::uint64_t bits) {
  const auto [it, fresh] = strips_.try_emplace({size_of(type), bits}, 0u);
  if (!fresh) return it->second;
  it->second = new_value(type, VmLife::Kind::Constant);
  const auto size = static_cast<std::size_t>(size_of(type));
  values_.back().constant = static_cast<std::int64_t>(out_.constants.size());
  out_.constants.resize(out_.constants.size() + size * kStrip);
  std::byte* p = out_.constants.data() + values_.back().constant;
  for (std::int64_t i = 0; i < kStrip; ++i, p += size) std::memcpy(p, &bits, size);
  return it->second;
}

/// The type that picks a primitive's function: that of the first operand which carries a value.
DType Translator::operand_type(const ExprNode& n) const {
  return pool_[n.prim == Prim::Select ? n.b : n.a].type;
}

VmInstr::EachFn Translator::each_fn(const ExprNode& n) const {
  // The general form of DivBounded shows the worst that a machine may give.
  return kernel::array_fn(n.prim == Prim::DivBounded ? Prim::Div : n.prim, n.type, operand_type(n), n.imm);
}

ApplyFn Translator::apply_fn(const ExprNode& n) const {
  const auto type = static_cast<std::size_t>(operand_type(n));
  if (n.prim == Prim::Cast || n.prim == Prim::CastInRange)
    return loops_.convert[static_cast<std::size_t>(n.type)][type];
  return loops_.apply[static_cast<std::size_t>(n.prim)][type];
}

VmInstr Translator::scalar_instr(const ExprNode& n, std::uint32_t out, const std::uint32_t (&in)[3]) const {
  VmInstr i;
  i.op = VmOp::Scalar;
  i.out = out;
  i.a = in[0];
  i.b = in[1] == kVmNone ? in[0] : in[1];
  i.c = in[2] == kVmNone ? in[0] : in[2];
  i.each = each_fn(n);
  return i;
}

VmInstr Translator::apply_instr(const ExprNode& n, std::uint32_t out, const std::uint32_t (&in)[3]) const {
  VmInstr i;
  i.out = out;
  i.a = in[0];
  i.b = in[1] == kVmNone ? in[0] : in[1];
  i.c = in[2] == kVmNone ? in[0] : in[2];
  i.steps = step(i.a, 0) | step(i.b, 1) | step(i.c, 2);
  i.size = static_cast<std::uint8_t>(size_of(n.type));
  if (const ApplyFn fn = apply_fn(n)) {
    i.op = VmOp::Apply;
    i.apply = fn;
  } else {
    i.op = VmOp::Each;
    i.each = each_fn(n);
  }
  return i;
}

/// The value on one lane: for a varying index, that of lane 0.
std::uint32_t Translator::scalar(ExprId e) {
  sync();
  if (scalar_[e] != kVmNone) return scalar_[e];
  const ExprNode n = pool_[e];
  if (n.prim == Prim::Const) return constant(n.imm);
  if (n.prim == Prim::Var) return scopes_[static_cast<std::size_t>(at_.depth_of(e))].index;
  if (n.prim == Prim::Acc) return accs_[n.imm].result;
  if (n.prim == Prim::Running) return accs_[n.imm].running;
  if (n.prim == Prim::Before) return accs_[n.imm].before;
  std::uint32_t in[3] = {kVmNone, kVmNone, kVmNone};
  int k = 0;
  each_operand(n, [&](ExprId o) { in[k++] = scalar(o); });
  const int d = at_.depth_of(e);
  const std::uint32_t out = new_scalar();
  switch (n.prim) {
    case Prim::Param: emit(d, {.op = VmOp::Param, .out = out, .imm = n.imm}); break;
    case Prim::Slot:
      emit(d, {.op = VmOp::Slot, .size = size8(n.type), .truth = is_bool(n.type), .out = out, .imm = n.imm});
      break;
    case Prim::Load:
      emit(d, {.op = VmOp::LoadScalar,
               .size = size8(n.type),
               .truth = is_bool(n.type),
               .out = out,
               .a = in[0],
               .b = in[1],
               .target = static_cast<std::uint32_t>(n.imm)});
      break;
    default: emit(d, scalar_instr(n, out, in));
  }
  return keep(e, scalar_, out);
}

/// The values on all lanes of the current Vector loop.
std::uint32_t Translator::vector(ExprId e) {
  sync();
  if (vector_[e] != kVmNone) return vector_[e];
  const ExprNode n = pool_[e];
  const int d = at_.depth_of(e);
  if (!at_.varying(e)) {
    if (n.prim == Prim::Const) return constant_strip(n.type, n.imm);
    const std::uint32_t s = scalar(e);
    const std::uint32_t out = new_value(n.type, VmLife::Kind::Strip);
    emit(d, {.op = VmOp::Splat, .size = size8(n.type), .out = out, .a = s});
    return keep(e, vector_, out);
  }
  if (n.prim == Prim::Acc) return accs_[n.imm].result;
  if (n.prim == Prim::Running) return accs_[n.imm].running;
  if (n.prim == Prim::Before) return accs_[n.imm].before;
  if (n.prim == Prim::Var) {
    const std::uint32_t first = scalar(e), out = new_value(n.type);
    emit(d, {.op = VmOp::Iota, .out = out, .a = first});
    return keep(e, vector_, out);
  }
  if (n.prim == Prim::Load) return keep(e, vector_, vector_load(n, d));
  std::uint32_t in[3] = {kVmNone, kVmNone, kVmNone};
  int k = 0;
  each_operand(n, [&](ExprId o) { in[k++] = vector(o); });
  const std::uint32_t out = new_value(n.type);
  emit(d, apply_instr(n, out, in));
  return keep(e, vector_, out);
}

std::uint32_t Translator::vector_load(const ExprNode& n, int d) {
  VmInstr i{.size = size8(n.type), .truth = is_bool(n.type), .target = static_cast<std::uint32_t>(n.imm)};
  const bool conditional = n.b != kNoExpr;
  if (conditional) {
    i.c = vector(n.b);
    i.steps = step(i.c, 2);
  }
  const E stride = at_.lane_stride(n.a);
  if (!stride) {
    i.op = conditional ? VmOp::GatherIf : VmOp::Gather;
    i.a = vector(n.a);
  } else {
    i.a = scalar(n.a);
    if (kernel::known(stride) == 1) {
      const bool in_place = !i.truth && !stored_in_loop_[n.imm];
      i.op = conditional ? VmOp::LoadIf : in_place ? VmOp::Load : VmOp::LoadCopy;
    } else {
      i.op = conditional ? VmOp::LoadStridedIf : VmOp::LoadStrided;
      i.b = scalar(stride.id);
    }
  }
  i.out = new_value(n.type);
  emit(d, i);
  return i.out;
}

void Translator::store(const Stmt& s) {
  VmInstr i{.op = VmOp::StoreScalar, .size = size8(k_.buffers[s.target].dtype), .target = s.target};
  if (!at_.lanes_depth()) {
    i.b = scalar(s.value);
    i.a = scalar(s.index);
    return emit(depth(), i);
  }
  const E stride = at_.lane_stride(s.index);
  if (!stride) {
    i.op = VmOp::Scatter;
    i.a = vector(s.index);
  } else {
    i.op = kernel::known(stride) == 1 ? VmOp::Store : VmOp::StoreStrided;
    i.a = scalar(s.index);
    if (kernel::known(stride) != 1) i.b = scalar(stride.id);
  }
  i.c = vector(s.value);
  i.steps = step(i.c, 2);
  if (i.op == VmOp::Store) aim(i);
  emit(depth(), i);
}

/// Lets the instruction just emitted, if it makes what `store` stores, write to memory itself.
void Translator::aim(const VmInstr& store) {
  std::vector<VmInstr>& code = scopes_.back().code;
  if (code.empty() || code.back().op != VmOp::Apply || code.back().out != store.c) return;
  code.insert(code.end() - 1,
              {.op = VmOp::Aim, .size = store.size, .out = store.c, .a = store.a, .target = store.target});
}

void Translator::block(const std::vector<Stmt>& body) {
  for (const Stmt& s : body) {
    switch (s.kind) {
      case Stmt::Kind::Loop: loop(k_.loops[s.target]); break;
      case Stmt::Kind::Update: update(s); break;
      case Stmt::Kind::Store: store(s); break;
      case Stmt::Kind::Across: KILN_CHECK_THAT(false, "values of lanes come together on a GPU alone"); break;
    }
  }
}

void Translator::while_loop(const LoopDecl& l) {
  for (std::size_t i = 0; i < l.accs.size(); ++i) {
    const AccState& s = accs_[l.accs[i]];
    const bool value = s.kind == AccState::Kind::Block;
    copy(value, k_.accs[l.accs[i]].type, s.at, value ? vector(l.inits[i]) : scalar(l.inits[i]));
  }
  const bool counts = l.extent != kNoExpr;
  const std::uint32_t end = counts ? scalar(l.extent) : kVmNone, first = counts ? constant(0) : kVmNone;
  const std::uint32_t around = active_lanes();
  scopes_.emplace_back();
  scopes_.back().loop = &l;
  scopes_.back().index = new_scalar();
  at_.open(l);
  for (std::uint32_t a : l.accs) at_.show_running(a);
  std::size_t test = 0;
  if (!counts) {
    const bool lanes = at_.lanes_depth() > 0;
    const std::uint32_t condition = lanes ? vector(l.condition) : scalar(l.condition);
    std::uint32_t goes_on = condition;
    if (around != kVmNone) {
      ExprNode both{Prim::And, DType::Bool};
      both.a = l.condition;
      const std::uint32_t in[3] = {condition, around, kVmNone};
      emit(depth(), apply_instr(both, goes_on = new_value(DType::Bool), in));
    }
    if (lanes) scopes_.back().active = goes_on;
    test = scopes_.back().code.size();
    emit(depth(), {.op = lanes ? VmOp::UnlessAny : VmOp::Unless,
                   .steps = lanes ? step(goes_on, 0) : std::uint8_t{0},
                   .a = goes_on});
  }
  block(l.body);
  for (const auto& [acc, next] : std::exchange(scopes_.back().nexts, {}))
    copy(accs_[acc].kind == AccState::Kind::Block, k_.accs[acc].type, accs_[acc].at, next);
  if (!counts)
    scopes_.back().code[test].target = static_cast<std::uint32_t>(scopes_.back().code.size() - test);
  close(l, first, end);
}

void Translator::loop(const LoopDecl& l) {
  begin_accs(l);
  if (l.kind == LoopKind::While) {
    while_loop(l);
    return end_accs(l);
  }
  KILN_CHECK_THAT(l.inits.empty(), "scans that begin behind a value are a GPU's");
  const bool vector = l.kind == LoopKind::Vector;
  const bool grid = l.kind == LoopKind::Grid;
  const std::uint32_t first = grid ? kGridBegin : constant(0), end = grid ? kGridEnd : scalar(l.extent);
  Scope& scope = scopes_.emplace_back();
  scope.loop = &l;
  scope.index = new_scalar();
  at_.open(l);
  if (vector) {
    max_lanes_ = std::max<std::int64_t>(max_lanes_, l.lanes);
    stored_in_loop_.assign(k_.buffers.size(), false);
    note_stores(l);
  }
  block(l.body);
  close(l, first, end);
  end_accs(l);
}

void Translator::note_stores(const LoopDecl& l) {
  for (const Stmt& s : l.body) {
    if (s.kind == Stmt::Kind::Loop) note_stores(k_.loops[s.target]);
    if (s.kind == Stmt::Kind::Store) stored_in_loop_[s.target] = true;
  }
}

void Translator::close(const LoopDecl& l, std::uint32_t first, std::uint32_t end) {
  const bool vector = l.kind == LoopKind::Vector;
  Scope inside = std::move(scopes_.back());
  scopes_.pop_back();
  for (ExprId e : inside.memoized) scalar_[e] = vector_[e] = kVmNone;
  at_.close(l);
  std::vector<VmInstr>& code = scopes_.back().code;
  const auto length = static_cast<std::uint32_t>(inside.code.size());
  if (end == kVmNone) {
    code.push_back({.op = VmOp::While, .out = inside.index});
    code.insert(code.end(), inside.code.begin(), inside.code.end());
    code.push_back({.op = VmOp::WhileNext, .out = inside.index, .target = length});
    return;
  }
  code.push_back({.op = vector ? VmOp::VectorLoop : VmOp::Loop,
                  .out = inside.index,
                  .a = first,
                  .b = end,
                  .target = length + 1});
  code.insert(code.end(), inside.code.begin(), inside.code.end());
  code.push_back(
      {.op = vector ? VmOp::VectorNext : VmOp::Next, .out = inside.index, .b = end, .target = length});
}

VmSection translate(const Kernel& kernel, const std::vector<Stmt>& section, const VmLoops& loops) {
  return Translator(kernel, loops).run(section);
}

}  // namespace kiln::codegen
