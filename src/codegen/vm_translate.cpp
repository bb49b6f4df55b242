// Kernel → bytecode. Every expression is placed at the outermost loop that has its operands, as in compiled code: what
// a row needs is computed once a row, what nothing varies in once a call. Inside a Vector loop varying expressions are
// blocks, everything else stays scalar; a scalar that meets a block becomes a uniform strip.
//
// Invariant: the code of a scope is complete up to the loop being built inside it, so that code for an outer scope can
// still be appended there: it then stands before that loop. Jumps are relative.
#include "codegen/vm_code.h"
#include "codegen/vm_storage.h"
#include "kernel/eval.h"
#include "kernel/monoid.h"
#include "kernel/placement.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

namespace kiln::codegen {
namespace {

using kernel::AccDecl;
using kernel::BufferDecl;
using kernel::E;
using kernel::ExprId;
using kernel::ExprNode;
using kernel::Kernel;
using kernel::kNoExpr;
using kernel::LoopDecl;
using kernel::LoopKind;
using kernel::Monoid;
using kernel::Prim;
using kernel::Stmt;
using Lanes = kernel::Placement::Lanes;

constexpr std::uint32_t kGridBegin = 0, kGridEnd = 1;  // scalars that receive the launch's range
constexpr std::uint64_t kNoPosition = 0x7fffffffffffffffull;

class Translator {
 public:
  Translator(const Kernel& kernel, const VmLoops& loops)
      : k_(kernel), at_(kernel), pool_(at_.pool()), loops_(loops), accs_(kernel.accs.size()) {
    out_.scalars = {0, 0};
    sync();
  }

  VmSection run(const std::vector<Stmt>& section) {
    scopes_.emplace_back();
    block(section);
    emit(depth(), {});
    out_.code = std::move(scopes_.front().code);
    assign_storage(out_, values_, max_lanes_);
    return std::move(out_);
  }

 private:
  struct Scope {
    const LoopDecl* loop = nullptr;
    std::uint32_t index = kVmNone;  // scalar of its variable (a Vector loop: of lane 0)
    std::vector<VmInstr> code;
    std::vector<ExprId> memoized;
    std::uint32_t active = kVmNone;             // in a While loop on lanes: value that holds on those that go on; none: all
    std::vector<std::pair<std::uint32_t, std::uint32_t>> nexts;  // of a While loop: accumulators and their next values
  };
  struct AccState {
    enum class Kind : std::uint8_t {
      Scalar,  // one value (two scalars if it has a position)
      Block,   // a value of every lane of the Vector loop around: never combined over lanes
      Lanes,   // lanes of a Vector loop inside, combined when the accumulator's loop ends
    } kind = Kind::Scalar;
    std::uint32_t at = kVmNone, position = kVmNone;  // scalars, values, or index into lanes
    std::uint32_t result = kVmNone;                  // scalar, or value of a Block
    bool reads_running = false, reads_before = false;  // somebody reads these, scalars or values:
    std::uint32_t running = kVmNone, before = kVmNone;
  };

  int depth() const { return at_.depth(); }
  void emit(int depth, VmInstr i) { scopes_[static_cast<std::size_t>(depth)].code.push_back(i); }

  // ---- operands ------------------------------------------------------------------------------------------------------

  std::uint32_t new_scalar(std::uint64_t start = 0) {
    out_.scalars.push_back(start);
    return static_cast<std::uint32_t>(out_.scalars.size() - 1);
  }
  std::uint32_t constant(std::uint64_t bits) {
    const auto [it, fresh] = constants_.try_emplace(bits, 0u);
    if (fresh) it->second = new_scalar(bits);
    return it->second;
  }
  std::uint32_t new_value(DType type, VmLife::Kind kind = VmLife::Kind::Block) {
    values_.push_back({kind, static_cast<std::uint8_t>(size_of(type))});
    return static_cast<std::uint32_t>(values_.size() - 1);
  }
  /// A uniform strip of a constant.
  std::uint32_t constant_strip(DType type, std::uint64_t bits) {
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
  std::uint8_t step(std::uint32_t value, int operand) const {
    const bool block = values_[value].kind == VmLife::Kind::Block;
    return static_cast<std::uint8_t>(block ? 1 << operand : 0);
  }

  // ---- placement -----------------------------------------------------------------------------------------------------

  /// Expressions made while translating (lane strides) extend the pool; the tables follow.
  void sync() {
    scalar_.resize(pool_.size(), kVmNone);
    vector_.resize(pool_.size(), kVmNone);
  }

  /// Remembers what `e` became at its depth.
  std::uint32_t keep(ExprId e, std::vector<std::uint32_t>& memo, std::uint32_t what) {
    memo[e] = what;
    scopes_[static_cast<std::size_t>(at_.depth_of(e))].memoized.push_back(e);
    return what;
  }

  // ---- expressions ---------------------------------------------------------------------------------------------------

  /// The type that picks a primitive's function: that of the first operand which carries a value.
  DType operand_type(const ExprNode& n) const { return pool_[n.prim == Prim::Select ? n.b : n.a].type; }

  VmInstr::EachFn each_fn(const ExprNode& n) const {
    // The general form of DivBounded shows the worst that a machine may give.
    return kernel::array_fn(n.prim == Prim::DivBounded ? Prim::Div : n.prim, n.type, operand_type(n), n.imm);
  }
  ApplyFn apply_fn(const ExprNode& n) const {
    const auto type = static_cast<std::size_t>(operand_type(n));
    if (n.prim == Prim::Cast || n.prim == Prim::CastInRange) return loops_.convert[static_cast<std::size_t>(n.type)][type];
    return loops_.apply[static_cast<std::size_t>(n.prim)][type];
  }

  VmInstr scalar_instr(const ExprNode& n, std::uint32_t out, const std::uint32_t (&in)[3]) const {
    VmInstr i;
    i.op = VmOp::Scalar;
    i.out = out;
    i.a = in[0];
    i.b = in[1] == kVmNone ? in[0] : in[1];
    i.c = in[2] == kVmNone ? in[0] : in[2];
    i.each = each_fn(n);
    return i;
  }

  VmInstr apply_instr(const ExprNode& n, std::uint32_t out, const std::uint32_t (&in)[3]) const {
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
  std::uint32_t scalar(ExprId e) {
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
        emit(d, {.op = VmOp::LoadScalar, .size = size8(n.type), .truth = is_bool(n.type), .out = out, .a = in[0],
                 .b = in[1], .target = static_cast<std::uint32_t>(n.imm)});
        break;
      default: emit(d, scalar_instr(n, out, in));
    }
    return keep(e, scalar_, out);
  }

  static std::uint8_t size8(DType t) { return static_cast<std::uint8_t>(size_of(t)); }

  /// The values on all lanes of the current Vector loop.
  std::uint32_t vector(ExprId e) {
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

  // ---- memory --------------------------------------------------------------------------------------------------------

  std::uint32_t vector_load(const ExprNode& n, int d) {
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

  void store(const Stmt& s) {
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
  void aim(const VmInstr& store) {
    std::vector<VmInstr>& code = scopes_.back().code;
    if (code.empty() || code.back().op != VmOp::Apply || code.back().out != store.c) return;
    code.insert(code.end() - 1, {.op = VmOp::Aim, .size = store.size, .out = store.c, .a = store.a, .target = store.target});
  }

  // ---- accumulators --------------------------------------------------------------------------------------------------

  /// The primitive that combines an accumulator of a monoid without positions with one more value.
  static Prim merge_prim(Monoid m) {
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
  static bool value_first(Monoid m) { return m == Monoid::Max || m == Monoid::Min; }  // of equals the second stays

  ArgReduceFn arg_fn(const AccDecl& a) const {
    const ArgReduceFn fn = loops_.arg_reduce[a.monoid == Monoid::ArgMin][static_cast<std::size_t>(a.type)];
    KILN_CHECK_THAT(fn, "positions of ", name(a.type));
    return fn;
  }

  void begin_accs(const LoopDecl& l) {
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
        s.at = new_lanes(a, kernel::vector_loop_in(k_, l)->lanes);
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

  void note_reads(std::uint32_t acc) {
    for (ExprId e = 0; e < k_.pool.size(); ++e) {
      if (k_.pool[e].imm != acc) continue;
      accs_[acc].reads_running |= k_.pool[e].prim == Prim::Running;
      accs_[acc].reads_before |= k_.pool[e].prim == Prim::Before;
    }
  }

  std::uint32_t new_lanes(const AccDecl& a, int count) {
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

  void update(const Stmt& st) {
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
  void copy(bool value, DType type, std::uint32_t out, std::uint32_t from) {
    emit(depth(), {.op = value ? VmOp::CopyValue : VmOp::Copy, .steps = value ? step(from, 0) : std::uint8_t{0},
                   .size = size8(type), .out = out, .a = from});
  }

  /// An accumulator that is read inside its loop.
  void scan(const Stmt& st) {
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
  void update_state(const Stmt& st) {
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
  std::uint32_t active_lanes() const {
    for (std::size_t i = scopes_.size(); i-- > 0;)
      if (scopes_[i].active != kVmNone) return scopes_[i].active;
    return kVmNone;
  }

  void update_position(const AccDecl& a, const AccState& s, std::uint32_t x, std::uint32_t p) {
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

  void end_accs(const LoopDecl& l) {
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

  // ---- loops ---------------------------------------------------------------------------------------------------------

  void block(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      switch (s.kind) {
        case Stmt::Kind::Loop: loop(k_.loops[s.target]); break;
        case Stmt::Kind::Update: update(s); break;
        case Stmt::Kind::Store: store(s); break;
      }
    }
  }

  void while_loop(const LoopDecl& l) {
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
      emit(depth(), {.op = lanes ? VmOp::UnlessAny : VmOp::Unless, .steps = lanes ? step(goes_on, 0) : std::uint8_t{0}, .a = goes_on});
    }
    block(l.body);
    for (const auto& [acc, next] : std::exchange(scopes_.back().nexts, {}))
      copy(accs_[acc].kind == AccState::Kind::Block, k_.accs[acc].type, accs_[acc].at, next);
    if (!counts) scopes_.back().code[test].target = static_cast<std::uint32_t>(scopes_.back().code.size() - test);
    close(l, first, end);
  }

  void loop(const LoopDecl& l) {
    begin_accs(l);
    if (l.kind == LoopKind::While) {
      while_loop(l);
      return end_accs(l);
    }
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

  void note_stores(const LoopDecl& l) {
    for (const Stmt& s : l.body) {
      if (s.kind == Stmt::Kind::Loop) note_stores(k_.loops[s.target]);
      if (s.kind == Stmt::Kind::Store) stored_in_loop_[s.target] = true;
    }
  }

  void close(const LoopDecl& l, std::uint32_t first, std::uint32_t end) {
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
    code.push_back({.op = vector ? VmOp::VectorLoop : VmOp::Loop, .out = inside.index, .a = first, .b = end, .target = length + 1});
    code.insert(code.end(), inside.code.begin(), inside.code.end());
    code.push_back({.op = vector ? VmOp::VectorNext : VmOp::Next, .out = inside.index, .b = end, .target = length});
  }

  const Kernel& k_;
  kernel::Placement at_;
  kernel::ExprPool& pool_;
  const VmLoops& loops_;
  VmSection out_;
  std::vector<VmLife> values_;
  std::map<std::uint64_t, std::uint32_t> constants_;
  std::map<std::pair<std::int64_t, std::uint64_t>, std::uint32_t> strips_;

  std::vector<Scope> scopes_;
  std::vector<AccState> accs_;
  std::vector<std::uint32_t> scalar_, vector_;
  std::vector<bool> stored_in_loop_;
  std::int64_t max_lanes_ = kStrip;
};

}  // namespace

VmSection translate(const kernel::Kernel& kernel, const std::vector<Stmt>& section, const VmLoops& loops) {
  return Translator(kernel, loops).run(section);
}

}  // namespace kiln::codegen
