// From nodes to terms: the algebra of attention.h, one node at a time.
//
// Invariant: a reading is right at every (i, j) of every matrix of the batch, or there is none. Terminates:
// each node of the graph is read once for each frame, and an operand stands before its reader.
#include "plan/attention_terms.h"

#include "support/check.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace kiln::plan {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;
using ir::OpKind;
using Kind = Reading::Kind;

// ---- nodes

TermReader::Result TermReader::read(NodeId id, const Frame& frame) {
  const auto key = std::pair(id, frame);
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  Result r = read_new(id, frame);
  if (r) known_.emplace(key, *r);
  return r;
}

TermReader::Result TermReader::read_new(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  if (id == a_.scores) return score(id, frame);
  switch (ir::info(n.op).kind) {
    case OpKind::Scalar: return plain(scalar_term(n));
    case OpKind::Iota: return plain(coordinate_term(n, frame));
    case OpKind::View: return view(id, frame);
    case OpKind::Cast:
    case OpKind::Elementwise:
      if (!inside_[id]) return memory(id, frame);
      visited_[id] = true;
      return operation(id, frame);
    case OpKind::Reduce:
      if (!depends_[id]) return memory(id, frame);
      if (!inside_[id]) return refuse(FusionReason::ScoresRead);
      visited_[id] = true;
      return reduction(id, frame);
    case OpKind::Leaf:
    case OpKind::Scan:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop:
    case OpKind::LoopResult:
    case OpKind::LoopStack:
    case OpKind::Gather:
    case OpKind::Contraction:
    case OpKind::Part:
    case OpKind::Library: return memory(id, frame);
  }
  return std::nullopt;
}

TermReader::Result TermReader::score(NodeId id, const Frame& frame) {
  const std::optional<int> rows = rows_operand_of(id, frame);
  if (!rows || (rows_operand_ >= 0 && rows_operand_ != *rows)) return refuse(FusionReason::ScoresElsewhere);
  rows_operand_ = *rows;
  visited_[id] = true;
  Term t;
  t.kind = Term::Kind::Score;
  t.along_rows = t.along_columns = true;
  TermId s = intern(t);
  if (g_[id].dtype != DType::Float32) s = op(Op::cast, {s}, g_[id].dtype);
  return plain(s, true);
}

TermReader::Result TermReader::memory(NodeId id, const Frame& frame) {
  if (depends_[id]) return refuse(because(FusionReason::NotOneScore, ir::info(g_[id].op).name));
  MatrixMemory m = memory_of(id, frame);
  if (depends_[m.base]) return refuse(FusionReason::OperandOfScores);
  return plain(memory_term(std::move(m)));
}

TermReader::Result TermReader::view(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  if (is_written_in_place(n)) return memory(id, frame);
  const ir::Dims from = g_[n.in[0]].dims;
  if (!depends_[id]) {
    const NodeId base = strided_view(g_, id).base;
    const bool computed = base != id && !inside_[base] && ir::info(g_[base].op).kind != OpKind::Scalar &&
                          g_[base].op != Op::iota;
    if (computed) return memory(id, frame);
  }
  if (n.op == Op::permute) {
    const auto axes = ir::attributes<ir::Permute>(n);
    Frame in(from.size());
    for (std::size_t a = 0; a < frame.size(); ++a) in[axes[a]] = frame[a];
    return read(n.in[0], in);
  }
  if (n.op == Op::broadcast) return read(n.in[0], operand_frame(frame, n.dims, from));
  if (n.op == Op::reshape)
    if (const std::optional<Frame> in = reshaped(frame, from, n.dims)) return read(n.in[0], *in);
  if (depends_[id]) return refuse(because(FusionReason::ScoresViewed, ir::info(n.op).name));
  return memory(id, frame);
}

bool TermReader::use_as_t(TermId t) {
  if (a_.t == kNoTerm) a_.t = t;
  if (a_.t == t) return true;
  refuse(FusionReason::SeveralFunctions);
  return false;
}

Reading TermReader::as_weight(Reading x) const {
  if (x.kind == Kind::Plain) x.kind = Kind::Weight;
  return x;
}

TermReader::Result TermReader::reduction(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  const ir::Dims dims = g_[n.in[0]].dims;
  Frame in = frame;
  int along = 0;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    if (frame[a].kind == Coordinate::Kind::Column) return refuse(FusionReason::RowMeetsRows);
    if (!ir::attributes<ir::Reduce>(n).over(a) || dims[a] == 1) continue;
    in[a] = {Coordinate::Kind::Column};
    along += dims[a] == a_.columns ? 1 : 2;
  }
  if (along != 1) return refuse(because(FusionReason::OtherSumAxes, ir::info(n.op).name));
  const Result x = read(n.in[0], in);
  if (!x) return x;
  if (n.op == Op::reduce_max && x->kind == Kind::Plain && x->scored && is_float(n.dtype)) {
    if (!use_as_t(f32(x->term))) return std::nullopt;
    Term m;
    m.kind = Term::Kind::Max;
    m.along_rows = true;
    const TermId max = intern(m);
    return row_value(n.dtype == DType::Float32 ? max : op(Op::cast, {max}, n.dtype));
  }
  if (n.op == Op::reduce_logaddexp && x->kind == Kind::Plain && x->scored) return log_of_sum(n, *x);
  const bool summed = n.op == Op::reduce_sum && is_float(n.dtype) &&
                      (x->kind == Kind::Weight || (x->kind == Kind::Plain && x->scored)) && !x->rounded;
  if (!summed) return refuse(because(FusionReason::NotLinear, ir::info(n.op).name));
  const Reading w = as_weight(*x);
  const TermId u = w.term == kNoTerm ? kNoTerm : f32(w.term);
  auto at = std::find(a_.sums.begin(), a_.sums.end(), u);
  if (at == a_.sums.end()) at = a_.sums.insert(a_.sums.end(), u);
  Term s;
  s.kind = Term::Kind::Sum;
  s.along_rows = true;
  s.index = static_cast<std::int32_t>(at - a_.sums.begin());
  (w.t == kNoTerm ? plain_sums_ : exponential_sums_) = true;
  const TermId sum = product(intern(s), scale_of(w));
  return row_value(n.dtype == DType::Float32 ? sum : op(Op::cast, {sum}, n.dtype));
}

/// log(Σ exp(t)) = m + log(Σ exp(t - m)), also of rows of -inf and with an inf in them.
TermReader::Result TermReader::log_of_sum(const GraphNode& n, const Reading& x) {
  if (!use_as_t(f32(x.term))) return std::nullopt;
  if (weighed_ && a_.exponential != Op::exp) return refuse(FusionReason::TwoBases);
  weighed_ = exponential_sums_ = true;
  if (std::find(a_.sums.begin(), a_.sums.end(), kNoTerm) == a_.sums.end()) a_.sums.push_back(kNoTerm);
  Term s, m;
  s.kind = Term::Kind::Sum;
  m.kind = Term::Kind::Max;
  s.along_rows = m.along_rows = true;
  s.index = static_cast<std::int32_t>(std::find(a_.sums.begin(), a_.sums.end(), kNoTerm) - a_.sums.begin());
  const TermId max = intern(m);
  const TermId log = op(Op::add, {max, op(Op::log, {intern(s)})});
  const TermId infinite =
      op(Op::equal, {op(Op::abs, {max}), number(std::numeric_limits<double>::infinity())}, DType::Bool);
  const TermId value = op(Op::where, {infinite, max, log});
  return row_value(n.dtype == DType::Float32 ? value : op(Op::cast, {value}, n.dtype));
}

TermId TermReader::scale_of(const Reading& w) {
  if (w.t == kNoTerm) return w.factor;
  // exp(m - c0 - c1 …), 1 where the one shift is m itself
  Term m;
  m.kind = Term::Kind::Max;
  m.along_rows = true;
  const TermId max = intern(m);
  const TermId none = op(Op::equal, {max, number(-std::numeric_limits<double>::infinity())}, DType::Bool);
  TermId rest = op(Op::where, {none, number(0), max});
  for (TermId c : w.shifts) rest = op(Op::subtract, {rest, f32(c)});
  return product(op(a_.exponential, {rest}), w.factor);
}

TermReader::Result TermReader::operation(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  std::vector<Reading> in;
  bool rows = false, weights = false, scored = false, columns = false, shift = false;
  for (const NodeId operand : n.in) {
    const Result x = read(operand, operand_frame(frame, n.dims, g_[operand].dims));
    if (!x) return x;
    in.push_back(*x);
    rows |= x->kind == Kind::Row;
    weights |= x->kind == Kind::Weight;
    shift |= x->kind == Kind::Shift;
    scored |= x->scored && x->kind == Kind::Plain;
    columns |= x->kind == Kind::Plain && term(x->term).along_columns;
  }
  if (n.op == Op::cast && (weights || shift)) return cast(n, in[0]);
  // a function of the scores that is scaled for each row is a weight without an exponential
  weights |= rows && scored && (n.op == Op::multiply || n.op == Op::divide);
  if (weights) return weighted(n, in);
  if (shift || (rows && scored)) {
    if (in.size() == 1 && shift && (n.op == Op::exp || n.op == Op::exp2)) {
      if (weighed_ && a_.exponential != n.op) return refuse(FusionReason::TwoBases);
      weighed_ = true;
      a_.exponential = n.op;
      Reading w;
      w.kind = Kind::Weight;
      w.t = in[0].term;
      w.shifts = in[0].shifts;
      return w;
    }
    if (in.size() == 2) return shifted(n, in[0], in[1]);
    return refuse(because(FusionReason::NoShift, ir::info(n.op).name));
  }
  if (rows && columns) return refuse(because(FusionReason::RowSpreads, ir::info(n.op).name));
  TermId of[3];
  for (std::size_t k = 0; k < in.size(); ++k) of[k] = in[k].term;
  const TermId made = operation_term(n, of);
  return rows ? row_value(made) : plain(made, scored);
}

/// t - c, where c is a row's value made of t's maximum, or a value that is shifted already.
TermReader::Result TermReader::shifted(const GraphNode& n, const Reading& x, const Reading& y) {
  const auto refused = [&] { return refuse(because(FusionReason::NoShift, ir::info(n.op).name)); };
  const bool takes = n.op == Op::subtract && y.kind == Kind::Row && (x.kind == Kind::Shift || x.scored);
  if (!takes) return refused();
  Reading r = x;
  if (x.kind == Kind::Plain) {
    if (!use_as_t(f32(x.term))) return std::nullopt;
    r.kind = Kind::Shift;
    r.term = a_.t;
    std::vector<TermId> stack{y.term};
    bool of_max = false;
    while (!stack.empty() && !of_max) {
      const Term t = term(stack.back());
      stack.pop_back();
      of_max = t.kind == Term::Kind::Max;
      for (int k = 0; k < t.n_in; ++k) stack.push_back(t.in[k]);
    }
    if (!of_max) return refused();
  }
  r.shifts.push_back(y.term);
  return r;
}

TermReader::Result TermReader::cast(const GraphNode& n, Reading x) {
  if (x.kind == Kind::Weight && is_float(n.dtype) && n.dtype != DType::Float64) {
    x.rounded |= is_half(n.dtype);
    return x;
  }
  return refuse(FusionReason::WeightsCast);
}

/// Products and quotients of a weight and what is free of it.
TermReader::Result TermReader::weighted(const GraphNode& n, std::vector<Reading>& in) {
  const std::string_view name = ir::info(n.op).name;
  const auto refused = [&] { return refuse(because(FusionReason::NotLinear, name)); };
  if (n.op == Op::negative) {
    in[0].term = product(in[0].term, number(-1));
    return in[0];
  }
  if (n.op == Op::where) {
    // where(c, w, 0) with a zero that the plan knows
    if (in[1].kind != Kind::Weight || in[2].kind != Kind::Plain || in[0].kind != Kind::Plain || in[0].scored)
      return refused();
    const Term& other = term(in[2].term);
    if (in[1].factor != kNoTerm || other.kind != Term::Kind::Constant || other.bits != 0) return refused();
    const TermId u = in[1].term == kNoTerm ? number(1) : f32(in[1].term);
    in[1].term = op(Op::where, {in[0].term, u, number(0)});
    return in[1];
  }
  if (in.size() != 2 || (n.op != Op::multiply && n.op != Op::divide)) return refused();
  const bool weight = in[0].kind == Kind::Weight || in[1].kind == Kind::Weight;
  const bool first = weight ? in[0].kind == Kind::Weight : in[0].kind == Kind::Plain && in[0].scored;
  Reading w = as_weight(in[first ? 0 : 1]);
  const Reading& other = in[first ? 1 : 0];
  if ((n.op == Op::divide && !first) || other.kind == Kind::Weight || other.kind == Kind::Shift)
    return refused();
  const TermId x = f32(other.term);
  const auto joined = [&](TermId with) {
    if (n.op == Op::multiply) return product(with, x);
    return op(Op::divide, {with == kNoTerm ? number(1) : with, x});
  };
  const bool of_row = other.kind == Kind::Row || (!other.scored && !term(x).along_columns);
  (of_row ? w.factor : w.term) = joined(of_row ? w.factor : w.term == kNoTerm ? kNoTerm : f32(w.term));
  return w;
}

void TermReader::find_masks() {
  if (a_.t == kNoTerm) return;
  // what each term depends on, operands first
  std::vector<bool> scored(a_.terms.size()), read(a_.terms.size()), of_t(a_.terms.size());
  of_t[static_cast<std::size_t>(a_.t)] = true;
  for (std::size_t i = a_.terms.size(); i-- > 0;)
    for (int k = 0; k < a_.terms[i].n_in && of_t[i]; ++k)
      of_t[static_cast<std::size_t>(a_.terms[i].in[k])] = true;
  for (std::size_t i = 0; i < a_.terms.size(); ++i) {
    const Term& t = a_.terms[i];
    scored[i] = t.kind == Term::Kind::Score;
    read[i] = t.kind == Term::Kind::Memory;
    for (int k = 0; k < t.n_in; ++k) {
      const auto in = static_cast<std::size_t>(t.in[k]);
      scored[i] = scored[i] || scored[in];
      read[i] = read[i] || read[in];
    }
    if (!of_t[i] || t.op != Op::where || t.kind != Term::Kind::Operation) continue;
    const auto condition = static_cast<std::size_t>(t.in[0]);
    if (!scored[condition] && !read[condition] && !scored[static_cast<std::size_t>(t.in[2])])
      a_.masks.push_back(static_cast<TermId>(i));
  }
}

const std::pair<const std::pair<NodeId, Frame>, Reading>* TermReader::row_value_of(NodeId node) const {
  for (const auto& entry : known_)
    if (entry.first.first == node && entry.second.kind == Kind::Row) return &entry;
  return nullptr;
}

std::optional<Reading> TermReader::weights(NodeId node, const Frame& frame) {
  Result r = read(node, frame);
  if (!r) return r;
  if (r->kind == Kind::Plain && !r->scored) return refuse(FusionReason::RowNoWeight);
  if (r->kind == Kind::Row || r->kind == Kind::Shift) return refuse(FusionReason::RowNoWeight);
  r = as_weight(*r);
  const bool plain_only = !weighed_ && !exponential_sums_ && a_.t == kNoTerm;
  if (r->t == kNoTerm ? !plain_only : plain_sums_) return refuse(FusionReason::MixedWeights);
  if (r->term != kNoTerm) r->term = f32(r->term);
  return r;
}

}  // namespace kiln::plan
