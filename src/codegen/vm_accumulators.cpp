// Translator: reductions, scans and the states of While loops.
#include "codegen/vm_translator.h"

#include "kernel/eval.h"
#include "kernel/monoid.h"

namespace kiln::codegen {

constexpr std::uint64_t kNoPosition = 0x7fffffffffffffffull;

/// The primitive that combines an accumulator of a monoid without positions with one more value.
Prim Translator::merge_prim(Monoid m) {
  switch (m) {
    case Monoid::Sum: return Prim::Add;
    case Monoid::Prod: return Prim::Mul;
    case Monoid::Max:
    case Monoid::ArgMax: return Prim::Max;
    case Monoid::Min:
    case Monoid::ArgMin:
    case Monoid::State: break;
  }
  return Prim::Min;
}

void Translator::begin_accs(const LoopDecl& l) {
  at_.begin_accs(l);
  for (std::uint32_t id : l.accs) {
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    s = {};
    if (a.monoid == Monoid::State) {  // its loop gives it its first value
      s.kind = at_.lanes_of(id) == Lanes::Around ? AccState::Kind::Block : AccState::Kind::Scalar;
      s.at = s.before = s.kind == AccState::Kind::Block ? new_value(a.type) : new_scalar();
      continue;
    }
    note_reads(id);
    const std::uint32_t start = constant(kernel::identity(a)), far = constant(kNoPosition);
    if (at_.lanes_of(id) == Lanes::Inside) {
      s.kind = AccState::Kind::Lanes;
      s.at = new_lanes(a, kernel::vector_loop_of(k_, l, id)->lanes);
      emit(depth(), {.op = VmOp::LanesBegin, .size = size8(a.type), .out = s.at, .a = start});
    } else if (at_.lanes_of(id) == Lanes::Around) {
      s.kind = AccState::Kind::Block;
      s.at = new_value(a.type);
      emit(depth(), {.op = VmOp::Fill, .size = size8(a.type), .out = s.at, .a = constant_strip(a.type, kernel::identity(a))});
      if (kernel::positional(a.monoid)) {
        s.position = new_value(DType::Int64);
        emit(depth(), {.op = VmOp::Fill, .size = 8, .out = s.position, .a = constant_strip(DType::Int64, kNoPosition)});
      }
    } else {
      s.at = new_scalar();
      emit(depth(), {.op = VmOp::Copy, .out = s.at, .a = start});
      if (kernel::positional(a.monoid)) {
        s.position = new_scalar();
        emit(depth(), {.op = VmOp::Copy, .out = s.position, .a = far});
      }
    }
  }
}

void Translator::note_reads(std::uint32_t acc) {
  for (ExprId e = 0; e < k_.pool.size(); ++e) {
    if (k_.pool[e].imm != acc) continue;
    accs_[acc].reads_running |= k_.pool[e].prim == Prim::Running;
    accs_[acc].reads_before |= k_.pool[e].prim == Prim::Before;
  }
}

std::uint32_t Translator::new_lanes(const AccDecl& a, int count) {
  VmLanes lanes;
  lanes.count = count;
  lanes.size = size8(a.type);
  lanes.positional = kernel::positional(a.monoid);
  lanes.identity = kernel::identity(a);
  if (lanes.positional) {
    lanes.arg_merge = arg_fn(a);
  } else {
    lanes.merge = loops_.reduce[static_cast<std::size_t>(a.monoid)][static_cast<std::size_t>(a.type)];
    lanes.each = kernel::array_fn(merge_prim(a.monoid), a.type, a.type, 0);
    lanes.swap = value_first(a.monoid);
  }
  out_.lanes.push_back(lanes);
  return static_cast<std::uint32_t>(out_.lanes.size() - 1);
}

void Translator::update(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  const AccState s = accs_[st.target];
  if (a.monoid == Monoid::State) return update_state(st);
  if (s.reads_running || s.reads_before) return scan(st);
  const ExprNode v = pool_[st.value];
  const bool product = a.monoid == Monoid::Sum && is_float(a.type) && !is_half(a.type) && v.prim == Prim::Mul && k_.fma;
  const auto get = [&](ExprId e) { return s.kind == AccState::Kind::Scalar ? scalar(e) : vector(e); };
  if (kernel::positional(a.monoid)) {
    update_position(a, s, get(st.value), get(st.index));
    return;
  }
  const std::uint32_t x = get(product ? v.a : st.value), y = product ? get(v.b) : kVmNone;
  if (s.kind == AccState::Kind::Lanes) {
    VmInstr i{.op = VmOp::Reduce, .steps = step(x, 0), .size = size8(a.type), .out = s.at, .a = x, .b = y};
    if (product) i.steps |= step(y, 1);
    i.reduce = product ? loops_.sum_of_products[static_cast<std::size_t>(a.type)] : out_.lanes[s.at].merge;
    emit(depth(), i);
    return;
  }
  ExprNode merge{product ? Prim::Fma : merge_prim(a.monoid), a.type};
  merge.a = merge.b = merge.c = st.value;  // for its type
  const std::uint32_t pair[3] = {s.at, x, kVmNone}, swapped[3] = {x, s.at, kVmNone}, triple[3] = {x, y, s.at};
  const auto& in = product ? triple : value_first(a.monoid) ? swapped : pair;
  emit(depth(), s.kind == AccState::Kind::Scalar ? scalar_instr(merge, s.at, in) : apply_instr(merge, s.at, in));
}

/// out = a, scalars or values.
void Translator::copy(bool value, DType type, std::uint32_t out, std::uint32_t from) {
  emit(depth(), {.op = value ? VmOp::CopyValue : VmOp::Copy, .steps = value ? step(from, 0) : std::uint8_t{0},
                 .size = size8(type), .out = out, .a = from});
}

/// An accumulator that is read inside its loop.
void Translator::scan(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  const AccState s = accs_[st.target];
  const bool scalars = s.kind == AccState::Kind::Scalar;
  const std::uint32_t x = scalars ? scalar(st.value) : vector(st.value);
  const auto fresh = [&] { return scalars ? new_scalar() : new_value(a.type); };
  const bool lanes = s.kind == AccState::Kind::Lanes;
  const std::uint32_t running = s.reads_running || !lanes ? fresh() : kVmNone, before = s.reads_before ? fresh() : kVmNone;
  if (lanes) {
    emit(depth(), {.op = VmOp::ScanLanes, .steps = step(x, 0), .size = size8(a.type), .out = s.at, .a = x, .b = running, .c = before});
  } else {
    if (s.reads_before) copy(!scalars, a.type, before, s.at);
    ExprNode merge{merge_prim(a.monoid), a.type};
    merge.a = merge.b = st.value;  // for its type
    const std::uint32_t pair[3] = {s.at, x, kVmNone}, swapped[3] = {x, s.at, kVmNone};
    const auto& in = value_first(a.monoid) ? swapped : pair;
    emit(depth(), scalars ? scalar_instr(merge, running, in) : apply_instr(merge, running, in));
    copy(!scalars, a.type, s.at, running);
  }
  accs_[st.target].running = running;
  accs_[st.target].before = before;
  at_.show_running(st.target);
}

/// The next value of a loop's state, in a place of its own until all are there. A lane that does not go on keeps its state.
void Translator::update_state(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  const AccState& s = accs_[st.target];
  std::uint32_t next;
  if (s.kind == AccState::Kind::Scalar) {
    copy(false, a.type, next = new_scalar(), scalar(st.value));
  } else if (const std::uint32_t active = active_lanes(); active != kVmNone) {
    ExprNode select{Prim::Select, a.type};
    select.b = st.value;  // for its type
    const std::uint32_t in[3] = {active, vector(st.value), s.at};
    emit(depth(), apply_instr(select, next = new_value(a.type), in));
  } else {
    copy(true, a.type, next = new_value(a.type), vector(st.value));
  }
  scopes_.back().nexts.push_back({st.target, next});
}

/// The lanes that go on in the innermost loop that asks each; none: all.
std::uint32_t Translator::active_lanes() const {
  for (std::size_t i = scopes_.size(); i-- > 0;)
    if (scopes_[i].active != kVmNone) return scopes_[i].active;
  return kVmNone;
}

void Translator::update_position(const AccDecl& a, const AccState& s, std::uint32_t x, std::uint32_t p) {
  VmInstr i{.op = VmOp::ArgReduce, .size = size8(a.type), .out = s.at, .a = x, .b = p};
  i.arg_reduce = arg_fn(a);
  if (s.kind == AccState::Kind::Scalar) {
    i.op = VmOp::ArgScalar;
    i.c = s.position;
  } else {
    i.steps = step(x, 0) | step(p, 1);
    if (s.kind == AccState::Kind::Block) {
      i.op = VmOp::ArgBlock;
      i.c = s.position;
    }
  }
  emit(depth(), i);
}

void Translator::end_accs(const LoopDecl& l) {
  for (std::uint32_t id : l.accs) {
    AccState& s = accs_[id];
    const bool position = kernel::positional(k_.accs[id].monoid);
    if (s.kind == AccState::Kind::Lanes) {
      const std::uint32_t value = new_scalar(), at = position ? new_scalar() : kVmNone;
      emit(depth(), {.op = VmOp::LanesEnd, .size = size8(k_.accs[id].type), .out = s.at, .a = value, .b = at});
      s.result = position ? at : value;
    } else {
      s.result = position ? s.position : s.at;
    }
  }
}

}  // namespace kiln::codegen
