// Translator: reductions, scans and the states of While loops.
#include "codegen/vm/vm_translator.h"

#include "kernel/eval.h"
#include "kernel/monoid.h"

#include <algorithm>

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
    case Monoid::Custom:
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
    if (a.monoid == Monoid::Custom) {
      const CustomMonoid& m = k_.customs[a.custom];
      const LoopDecl* inside = kernel::vector_loop_of(k_, l, id);
      if (at_.lanes_of(id) == Lanes::Inside) {
        s.kind = AccState::Kind::Lanes;
        s.at = new_lanes(a, inside->lanes, s.reads_running || s.reads_before);
        emit(depth(), {.op = VmOp::LanesBegin, .size = size8(a.type), .out = s.at, .a = constant(0)});
      } else {
        if (at_.lanes_of(id) == Lanes::Around) s.kind = AccState::Kind::Block;
        begin_custom(s, m);
      }
      continue;
    }
    const std::uint32_t start = constant(kernel::identity(a)), far = constant(kNoPosition);
    if (at_.lanes_of(id) == Lanes::Inside) {
      s.kind = AccState::Kind::Lanes;
      s.at = new_lanes(a, kernel::vector_loop_of(k_, l, id)->lanes, s.reads_running || s.reads_before);
      emit(depth(), {.op = VmOp::LanesBegin, .size = size8(a.type), .out = s.at, .a = start});
    } else if (at_.lanes_of(id) == Lanes::Around) {
      s.kind = AccState::Kind::Block;
      s.at = new_value(a.type);
      emit(depth(), {.op = VmOp::Fill,
                     .size = size8(a.type),
                     .out = s.at,
                     .a = constant_strip(a.type, kernel::identity(a))});
      if (kernel::positional(a.monoid)) {
        s.position = new_value(DType::Int64);
        emit(
            depth(),
            {.op = VmOp::Fill, .size = 8, .out = s.position, .a = constant_strip(DType::Int64, kNoPosition)});
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

std::uint32_t Translator::new_lanes(const AccDecl& a, int count, bool scan) {
  VmLanes lanes;
  lanes.count = count;
  lanes.size = size8(a.type);
  lanes.positional = kernel::positional(a.monoid);
  lanes.scan = scan;
  lanes.identity = a.monoid == Monoid::Custom ? 0 : kernel::identity(a);
  if (lanes.positional) {
    lanes.arg_merge = arg_fn(a);
  } else if (a.monoid == Monoid::Custom) {
    lanes.custom = custom_lanes(k_.customs[a.custom]);
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
  if (a.monoid == Monoid::Custom) return update_custom(st, k_.customs[a.custom]);
  if (s.reads_running || s.reads_before) return scan(st);
  const ExprNode v = pool_[st.value];
  const bool product =
      a.monoid == Monoid::Sum && is_float(a.type) && !is_half(a.type) && v.prim == Prim::Mul && k_.fma;
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
  const bool scalars = s.kind == AccState::Kind::Scalar;
  if (!product) return combine(a, scalars, st.value, s.at, x, s.at);
  ExprNode fma{Prim::Fma, a.type};
  fma.a = fma.b = fma.c = st.value;  // for its type
  const std::uint32_t in[3] = {x, y, s.at};
  emit(depth(), scalars ? scalar_instr(fma, s.at, in) : apply_instr(fma, s.at, in));
}

/// out = earlier combined with later, scalars or values. `typed`: an expression of their type.
void Translator::combine(const AccDecl& a, bool scalars, ExprId typed, std::uint32_t out, std::uint32_t later,
                         std::uint32_t earlier) {
  ExprNode merge{merge_prim(a.monoid), a.type};
  merge.a = merge.b = typed;
  const std::uint32_t pair[3] = {earlier, later, kVmNone}, swapped[3] = {later, earlier, kVmNone};
  const auto& in = value_first(a.monoid) ? swapped : pair;
  emit(depth(), scalars ? scalar_instr(merge, out, in) : apply_instr(merge, out, in));
}

/// Expressions of a custom monoid over scalars or values.
std::vector<std::uint32_t> Translator::with_parts(const std::vector<ExprId>& roots, bool scalars,
                                                  const Parts& later, const Parts& earlier) {
  return each_once(roots, later, earlier, [&](const ExprNode& n, const std::uint32_t(&in)[3]) {
    if (n.prim == Prim::Const) return scalars ? constant(n.imm) : constant_strip(n.type, n.imm);
    const std::uint32_t out = scalars ? new_scalar() : new_value(n.type);
    emit(depth(), scalars ? scalar_instr(n, out, in) : apply_instr(n, out, in));
    return out;
  });
}

/// The same over slots, for lanes that are combined with each other.
VmCustom Translator::custom_lanes(const CustomMonoid& m) {
  VmCustom out;
  out.value = 0;
  Parts earlier, later;
  for (std::size_t p = 0; p < m.types.size(); ++p) {
    earlier.push_back(out.slots++);
    later.push_back(out.slots++);
  }
  const auto code_of = [&](const std::vector<ExprId>& roots, const Parts& l, const Parts& e,
                           std::vector<VmInstr>& code) {
    return each_once(roots, l, e, [&](const ExprNode& n, const std::uint32_t(&in)[3]) {
      const std::uint32_t slot = out.slots++;
      if (n.prim == Prim::Const) {
        out.constants.push_back({slot, size8(n.type), n.imm});
        return slot;
      }
      VmInstr i = scalar_instr(n, slot, in);
      i.op = VmOp::Each;
      i.steps = 7;
      if (const ApplyFn fn = apply_fn(n)) {
        i.op = VmOp::Apply;
        i.apply = fn;
      }
      code.push_back(i);
      return slot;
    });
  };
  const Parts lifted = code_of(m.lift, {out.value}, {}, out.lift),
              merged = code_of(m.merge, later, earlier, out.merge);
  out.shown = code_of({m.show}, {}, earlier, out.show)[0];
  for (std::size_t p = 0; p < m.types.size(); ++p)
    out.parts.push_back({size8(m.types[p]), m.identity[p], earlier[p], later[p], lifted[p], merged[p]});
  return out;
}

/// An accumulator of a custom monoid, outside lanes that are combined.
void Translator::begin_custom(AccState& s, const CustomMonoid& m) {
  for (std::size_t p = 0; p < m.types.size(); ++p) {
    if (s.kind == AccState::Kind::Block) {
      s.parts.push_back(new_value(m.types[p]));
      emit(depth(), {.op = VmOp::Fill,
                     .size = size8(m.types[p]),
                     .out = s.parts[p],
                     .a = constant_strip(m.types[p], m.identity[p])});
    } else {
      s.parts.push_back(new_scalar());
      emit(depth(), {.op = VmOp::Copy, .out = s.parts[p], .a = constant(m.identity[p])});
    }
  }
}

void Translator::update_custom(const Stmt& st, const CustomMonoid& m) {
  AccState& s = accs_[st.target];
  const AccDecl& a = k_.accs[st.target];
  const bool scan = s.reads_running || s.reads_before;
  const std::uint32_t x = s.kind == AccState::Kind::Scalar ? scalar(st.value) : vector(st.value);
  if (s.kind == AccState::Kind::Lanes) {
    VmInstr i{.op = scan ? VmOp::ScanLanes : VmOp::Reduce,
              .steps = step(x, 0),
              .size = size8(a.type),
              .out = s.at,
              .a = x};
    if (s.reads_running) i.b = s.running = new_value(a.type);
    if (s.reads_before) i.c = s.before = new_value(a.type);
    emit(depth(), i);
  } else {
    const bool scalars = s.kind == AccState::Kind::Scalar;
    if (s.reads_before) s.before = with_parts({m.show}, scalars, {}, s.parts)[0];
    Parts next = with_parts(m.merge, scalars, with_parts(m.lift, scalars, {x}, {}), s.parts);
    for (std::size_t p = 0; p < next.size(); ++p) {
      if (std::find(s.parts.begin(), s.parts.end(), next[p]) == s.parts.end()) continue;
      const std::uint32_t fresh = scalars ? new_scalar() : new_value(m.types[p]);
      copy(!scalars, m.types[p], fresh, next[p]);  // not changed before the others have read it
      next[p] = fresh;
    }
    for (std::size_t p = 0; p < next.size(); ++p) copy(!scalars, m.types[p], s.parts[p], next[p]);
    if (s.reads_running) s.running = with_parts({m.show}, scalars, {}, next)[0];
  }
  if (scan) at_.show_running(st.target);
}

/// out = a, scalars or values.
void Translator::copy(bool value, DType type, std::uint32_t out, std::uint32_t from) {
  emit(depth(), {.op = value ? VmOp::CopyValue : VmOp::Copy,
                 .steps = value ? step(from, 0) : std::uint8_t{0},
                 .size = size8(type),
                 .out = out,
                 .a = from});
}

/// An accumulator that is read inside its loop.
void Translator::scan(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  const AccState s = accs_[st.target];
  const bool scalars = s.kind == AccState::Kind::Scalar;
  const std::uint32_t x = scalars ? scalar(st.value) : vector(st.value);
  const auto fresh = [&] { return scalars ? new_scalar() : new_value(a.type); };
  const bool lanes = s.kind == AccState::Kind::Lanes;
  const std::uint32_t running = s.reads_running || !lanes ? fresh() : kVmNone,
                      before = s.reads_before ? fresh() : kVmNone;
  if (lanes) {
    emit(depth(), {.op = VmOp::ScanLanes,
                   .steps = step(x, 0),
                   .size = size8(a.type),
                   .out = s.at,
                   .a = x,
                   .b = running,
                   .c = before});
  } else {
    if (s.reads_before) copy(!scalars, a.type, before, s.at);
    combine(a, scalars, st.value, running, x, s.at);
    copy(!scalars, a.type, s.at, running);
  }
  accs_[st.target].running = running;
  accs_[st.target].before = before;
  at_.show_running(st.target);
}

/// The next value of a loop's state, in a place of its own until all are there. A lane that does not go on
/// keeps its state.
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
      emit(depth(),
           {.op = VmOp::LanesEnd, .size = size8(k_.accs[id].type), .out = s.at, .a = value, .b = at});
      s.result = position ? at : value;
    } else if (k_.accs[id].monoid == Monoid::Custom) {
      s.result =
          with_parts({k_.customs[k_.accs[id].custom].show}, s.kind == AccState::Kind::Scalar, {}, s.parts)[0];
    } else {
      s.result = position ? s.position : s.at;
    }
  }
}

}  // namespace kiln::codegen
