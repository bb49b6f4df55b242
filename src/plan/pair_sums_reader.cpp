#include "plan/pair_sums_reader.h"

#include <algorithm>

namespace kiln::plan {

using ir::GraphNode;
using ir::Op;
using ir::OpKind;

TermId PairSumsReader::read(NodeId id, const Frame& frame) {
  const auto key = std::pair(id, frame);
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  const TermId t = read_new(id, frame);
  if (t != kNoTerm) known_.emplace(key, t);
  return t;
}

TermId PairSumsReader::read_new(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  if (facts_.sources[id]) return product_of_pairs(id, frame);
  switch (ir::info(n.op).kind) {
    case OpKind::Scalar: return scalar_term(n);
    case OpKind::Iota: return coordinate_term(n, frame);
    case OpKind::View: return view(id, frame);
    case OpKind::Cast:
    case OpKind::Elementwise:
      return facts_.pairs[id] || facts_.inside[id] ? elementwise(id, frame) : from_memory(id, frame);
    case OpKind::Reduce: return facts_.pairs[id] ? reduction(id, frame) : from_memory(id, frame);
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
    case OpKind::Library: return from_memory(id, frame);
  }
  return kNoTerm;
}

TermId PairSumsReader::product_of_pairs(NodeId id, const Frame& frame) {
  const std::optional<int> rows = rows_operand_of(id, frame);
  if (!rows) return refuse(FusionReason::PairsElsewhere);
  const auto [at, is_new] = rows_operand_.try_emplace(id, *rows);
  if (at->second != *rows) return refuse(FusionReason::PairsElsewhere);
  visited_[id] = true;
  const GraphNode& n = g_[id];
  Term t;
  t.kind = Term::Kind::Score;
  t.along_rows = t.along_columns = true;
  if (is_new) {
    const NodeId x = n.in[*rows], y = n.in[1 - *rows];
    const std::int64_t depth = g_[n.in[0]].dims.back();
    s_.products.push_back({id, depth, memory_of(x, frame_of(g_[x].dims, *rows == 0)),
                           memory_of(y, frame_of(g_[y].dims, *rows != 0))});
  }
  for (std::size_t p = 0; p < s_.products.size(); ++p)
    if (s_.products[p].node == id) t.index = static_cast<std::int32_t>(p);
  const TermId s = intern(t);
  return n.dtype == DType::Float32 ? s : op(Op::cast, {s}, n.dtype);
}

TermId PairSumsReader::from_memory(NodeId id, const Frame& frame) {
  MatrixMemory m = memory_of(id, frame);
  if (facts_.pairs[m.base] && !(facts_.needed[m.base] && ir::is_reduce(g_[m.base].op)))
    return refuse(because(FusionReason::PairsOther, ir::info(g_[m.base].op).name));
  return memory_term(std::move(m));
}

TermId PairSumsReader::view(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  if (is_written_in_place(n)) return from_memory(id, frame);
  const ir::Dims from = g_[n.in[0]].dims;
  if (!facts_.pairs[id]) {
    const NodeId base = strided_view(g_, id).base;
    const OpKind kind = ir::info(g_[base].op).kind;
    if (base != id && !facts_.inside[base] && kind != OpKind::Scalar && kind != OpKind::Iota)
      return from_memory(id, frame);
  }
  visited_[id] = true;
  if (n.op == Op::permute) {
    const auto axes = ir::attributes<ir::Permute>(n);
    Frame in(from.size());
    for (std::size_t a = 0; a < frame.size(); ++a) in[axes[a]] = frame[a];
    return read(n.in[0], in);
  }
  if (n.op == Op::broadcast) return read(n.in[0], operand_frame(frame, n.dims, from));
  if (n.op == Op::reshape)
    if (const std::optional<Frame> in = reshaped(frame, from, n.dims)) return read(n.in[0], *in);
  visited_[id] = false;
  return from_memory(id, frame);
}

/// 0: reads no statistic.
int PairSumsReader::level_of(TermId t) const {
  std::vector<int> level(static_cast<std::size_t>(t) + 1);
  for (std::size_t i = 0; i < level.size(); ++i) {
    const Term& x = s_.terms[i];
    if (x.kind == Term::Kind::Statistic)
      level[i] = s_.statistics[static_cast<std::size_t>(x.index)].level + 1;
    for (int k = 0; k < x.n_in; ++k) level[i] = std::max(level[i], level[static_cast<std::size_t>(x.in[k])]);
  }
  return level.back();
}

TermId PairSumsReader::reduction(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  if (facts_.needed[id]) {
    for (std::size_t a = 0; a < frame.size(); ++a) {
      of_rows_ |= n.dims[a] != 1 && frame[a].kind == Coordinate::Kind::Row;
      of_columns_ |= n.dims[a] != 1 && frame[a].kind == Coordinate::Kind::Column;
    }
    return from_memory(id, frame);
  }
  const ir::Dims dims = g_[n.in[0]].dims;
  const auto refused = [&] { return refuse(because(FusionReason::PairsOther, ir::info(n.op).name)); };
  if (n.op != Op::reduce_sum && n.op != Op::reduce_max && n.op != Op::reduce_min) return refused();
  Frame in = frame;
  int along = 0;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    if (frame[a].kind == Coordinate::Kind::Column) return refused();
    if (!ir::attributes<ir::Reduce>(n).over(a) || dims[a] == 1) continue;
    in[a] = {Coordinate::Kind::Column};
    along += dims[a] == s_.columns ? 1 : 2;
  }
  if (along != 1 || !is_float(n.dtype) || n.dtype == DType::Float64) return refused();
  const TermId x = read(n.in[0], in);
  if (x == kNoTerm) return x;
  visited_[id] = true;
  const TermId of = f32(x);
  Term t;
  t.kind = Term::Kind::Statistic;
  t.along_rows = true;
  t.index = static_cast<std::int32_t>(s_.statistics.size());
  s_.statistics.push_back({id, n.op, of, level_of(of)});
  s_.levels = std::max(s_.levels, s_.statistics.back().level + 1);
  const TermId made = intern(t);
  return n.dtype == DType::Float32 ? made : op(Op::cast, {made}, n.dtype);
}

TermId PairSumsReader::elementwise(NodeId id, const Frame& frame) {
  const GraphNode& n = g_[id];
  TermId in[3];
  for (std::size_t k = 0; k < n.in.size(); ++k) {
    in[k] = read(n.in[k], operand_frame(frame, n.dims, g_[n.in[k]].dims));
    if (in[k] == kNoTerm) return kNoTerm;
  }
  visited_[id] = true;
  return operation_term(n, in);
}

bool PairSumsReader::add(NodeId product, int operand, bool turned) {
  const GraphNode& n = g_[product];
  const NodeId w = n.in[operand], other = n.in[1 - operand];
  const std::size_t rank = n.dims.size();
  // (…, a, b): a stays and b is summed over, or the other way round for the second operand
  for (const bool rows_first : {!turned, turned}) {
    const Frame frame = frame_of(g_[w].dims, rows_first);
    PairSums::Sum s{};
    s.node = product;
    s.operand = operand;
    s.over_rows = rows_first == (operand == 1);
    s.dtype = n.dtype;
    const std::int64_t kept = s.over_rows ? s_.columns : s_.rows;
    s.width = operand == 0 ? n.dims[rank - 1] : n.dims[rank - 2];
    if (n.numel != s_.batch * kept * s.width || g_[w].dims[rank - (rows_first ? 2 : 1)] != s_.rows ||
        g_[w].dims[rank - (rows_first ? 1 : 2)] != s_.columns)
      continue;
    const PairSums before = s_;
    const auto operands = rows_operand_;
    const auto visited = visited_;
    const auto known = known_;
    const TermId t = read(w, frame);
    if (t == kNoTerm) {
      s_ = before;
      rows_operand_ = operands;
      visited_ = visited;
      known_ = known;
      continue;
    }
    const TermId weight = f32(t);
    s.weight = static_cast<int>(std::ranges::find(s_.weights, weight) - s_.weights.begin());
    if (static_cast<std::size_t>(s.weight) == s_.weights.size()) s_.weights.push_back(weight);
    s.other = memory_of(other, frame_of(g_[other].dims, operand == 0));
    s.point = operand == 0 ? s.width : 1;
    s.across = operand == 0 ? 1 : kept;
    s_.sums.push_back(std::move(s));
    return true;
  }
  if (reason_.empty()) refuse(FusionReason::PairsElsewhere);
  return false;
}

}  // namespace kiln::plan
