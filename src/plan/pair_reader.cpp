#include "plan/pair_reader.h"

#include <algorithm>
#include <bit>

namespace kiln::plan {

using ir::Op;

// ---- terms

TermId PairReader::intern(const Term& t) {
  for (std::size_t i = 0; i < pairs_.terms.size(); ++i)
    if (pairs_.terms[i] == t) return static_cast<TermId>(i);
  pairs_.terms.push_back(t);
  return static_cast<TermId>(pairs_.terms.size() - 1);
}

TermId PairReader::op(Op op, std::initializer_list<TermId> in, DType dtype) {
  Term t;
  t.op = op;
  t.dtype = dtype;
  for (TermId x : in) {
    t.in[t.n_in++] = x;
    t.along_rows |= term(x).along_rows;
    t.along_columns |= term(x).along_columns;
  }
  return intern(t);
}

TermId PairReader::f32(TermId t) {
  const Term& x = term(t);
  if (x.dtype == DType::Float32) return t;
  const bool of_product =
      x.kind == Term::Kind::Operation && x.op == Op::cast && term(x.in[0]).kind == Term::Kind::Score;
  return of_product ? x.in[0] : op(Op::cast, {t});
}

TermId PairReader::number(double value) {
  Term t;
  t.kind = Term::Kind::Constant;
  t.bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return intern(t);
}

// ---- frames

Frame PairReader::operand_frame(const Frame& frame, ir::Dims dims, ir::Dims of) const {
  Frame out(of.size());
  const std::size_t lead = dims.size() - of.size();
  for (std::size_t a = 0; a < of.size(); ++a)
    if (of[a] != 1) out[a] = frame[lead + a];
  return out;
}

/// One stretch of the batch's numbers, whatever its axes. False: it is none.
static bool cut_batch(Frame& out, const Frame& frame, ir::Dims from, ir::Dims to, std::size_t i0,
                      std::size_t j0) {
  std::int64_t divisor = 0, next = 0;
  for (std::size_t b = to.size(); b-- > 0;) {
    if (to[b] == 1) continue;
    const Coordinate& c = frame[j0 + b];
    if (c.kind != Coordinate::Kind::Batch || c.extent != to[b]) return false;
    if (divisor == 0) divisor = next = c.divisor;
    if (c.divisor != next) return false;
    next *= to[b];
  }
  for (std::size_t a = from.size(); a-- > 0;) {
    if (from[a] == 1) continue;
    out[i0 + a] = {Coordinate::Kind::Batch, divisor, from[a]};
    divisor *= from[a];
  }
  return true;
}

std::int64_t PairReader::extent_of(const Coordinate& c) const {
  switch (c.kind) {
    case Coordinate::Kind::None: return 1;
    case Coordinate::Kind::Row: return pairs_.rows;
    case Coordinate::Kind::Column: return pairs_.columns;
    case Coordinate::Kind::Batch: return c.extent;
    case Coordinate::Kind::Joined: break;
  }
  std::int64_t n = 1;
  for (const Coordinate& part : c.parts) n *= extent_of(part);
  return n;
}

/// The frame of a reshape's operand: axes that both have stay, axes of the batch may be cut and joined.
std::optional<Frame> PairReader::reshaped(const Frame& frame, ir::Dims from, ir::Dims to) const {
  Frame out(from.size());
  std::size_t i = from.size(), j = to.size();
  for (;;) {
    while (i > 0 && from[i - 1] == 1) --i;
    while (j > 0 && to[j - 1] == 1) --j;
    if (i == 0 || j == 0) return i == j ? std::optional(out) : std::nullopt;
    std::size_t i0 = i - 1, j0 = j - 1;
    std::int64_t have = from[i0], want = to[j0];
    while (have != want) {
      if (have < want ? i0 == 0 : j0 == 0) return std::nullopt;
      if (have < want)
        have *= from[--i0];
      else
        want *= to[--j0];
    }
    std::size_t of_from = 0, of_to = 0;
    for (std::size_t a = i0; a < i; ++a) of_from += from[a] != 1;
    for (std::size_t a = j0; a < j; ++a) of_to += to[a] != 1;
    if (of_from == 1 && of_to == 1) {
      std::size_t a = i0, b = j0;
      while (from[a] == 1) ++a;
      while (to[b] == 1) ++b;
      out[a] = frame[b];
    } else if (!cut_batch(out, frame, from.subspan(i0, i - i0), to.subspan(j0, j - j0), i0, j0)) {
      if (of_from != 1) return std::nullopt;
      Coordinate joined{Coordinate::Kind::Joined};
      for (std::size_t b = j0; b < j; ++b)
        if (to[b] != 1) joined.parts.push_back(frame[b]);
      std::size_t a = i0;
      while (from[a] == 1) ++a;
      out[a] = std::move(joined);
    }
    i = i0;
    j = j0;
  }
}

/// The axes of a view in a frame without joined coordinates: each of those as its parts.
struct PairReader::Separate {
  Frame frame;
  std::vector<std::vector<AxisPart>> axes;

  /// The stride along all axes that count rows, or columns; nothing where one of them has none.
  std::optional<std::int64_t> along(Coordinate::Kind kind) const {
    std::int64_t stride = 0;
    for (std::size_t a = 0; a < frame.size(); ++a) {
      if (frame[a].kind != kind) continue;
      const std::optional<std::int64_t> s = stride_of(axes[a]);
      if (!s) return std::nullopt;
      stride += *s;
    }
    return stride;
  }
};

/// Nothing where a joined axis has no stride that its parts could have a part of.
std::optional<PairReader::Separate> PairReader::separate(const StridedView& v, const Frame& given) const {
  Separate out;
  for (std::size_t a = 0; a < given.size(); ++a) {
    if (given[a].kind != Coordinate::Kind::Joined) {
      out.frame.push_back(given[a]);
      out.axes.push_back(v.axes[a]);
      continue;
    }
    const std::optional<std::int64_t> stride = stride_of(v.axes[a]);
    if (!stride) return std::nullopt;
    std::int64_t step = *stride;
    for (std::size_t p = given[a].parts.size(); p-- > 0;) {
      const std::int64_t extent = extent_of(given[a].parts[p]);
      out.frame.push_back(given[a].parts[p]);
      out.axes.push_back({{extent, step}});
      step *= extent;
    }
  }
  return out;
}

/// A node as an array of its own, which is its elements in row-major order.
static StridedView row_major(NodeId node, ir::Dims dims) {
  StridedView v;
  v.base = node;
  v.axes.resize(dims.size());
  std::int64_t stride = 1;
  for (std::size_t a = dims.size(); a-- > 0; stride *= dims[a]) v.axes[a] = {{dims[a], stride}};
  return v;
}

MatrixMemory PairReader::memory_of(NodeId node, const Frame& given) const {
  StridedView v = strided_view(g_, node);
  std::optional<Separate> at = separate(v, given);
  if (!at || !at->along(Coordinate::Kind::Row) || !at->along(Coordinate::Kind::Column)) {
    v = row_major(node, g_[node].dims);
    at = separate(v, given);
  }
  MatrixMemory m;
  m.base = v.base;
  m.dtype = g_[node].dtype;
  m.positions = v.positions;
  m.row = *at->along(Coordinate::Kind::Row);
  m.column = *at->along(Coordinate::Kind::Column);
  m.offset = v.offset;
  for (std::size_t a = 0; a < at->frame.size(); ++a) {
    const Coordinate& c = at->frame[a];
    if (c.kind != Coordinate::Kind::Batch) continue;
    const std::vector<AxisPart>& axis = at->axes[a];
    std::int64_t divisor = c.divisor;
    for (std::size_t p = axis.size(); p-- > 0; divisor *= axis[p].extent)
      if (axis[p].extent != 1 && axis[p].stride != 0)
        m.parts.push_back({divisor, axis[p].extent, axis[p].stride});
  }
  m.batch.assign(static_cast<std::size_t>(pairs_.batch), m.offset);
  for (std::int64_t b = 0; b < pairs_.batch; ++b)
    for (const MatrixMemory::Part& p : m.parts)
      m.batch[static_cast<std::size_t>(b)] += b / p.divisor % p.extent * p.stride;
  return m;
}

std::optional<int> PairReader::rows_operand_of(NodeId product, const Frame& frame) const {
  const ir::GraphNode& n = g_[product];
  std::int64_t divisor = 1;
  const std::size_t rank = frame.size();
  for (std::size_t a = rank - 2; a-- > 0;) {
    if (n.dims[a] == 1) continue;
    if (frame[a] != Coordinate{Coordinate::Kind::Batch, divisor, n.dims[a]}) return std::nullopt;
    divisor *= n.dims[a];
  }
  using C = Coordinate::Kind;
  const int columns = frame[rank - 1].kind == C::Column ? 1 : frame[rank - 2].kind == C::Column ? 0 : -1;
  const std::size_t other = columns == 1 ? rank - 2 : rank - 1;
  const bool rows = columns >= 0 && (frame[other].kind == C::Row || (n.dims[other] == 1 && pairs_.rows == 1));
  if (!rows || divisor != pairs_.batch) return std::nullopt;
  return 1 - columns;
}

// ---- nodes

TermId PairReader::scalar_term(const ir::GraphNode& n) {
  Term t;
  t.kind = n.op == Op::constant ? Term::Kind::Constant : Term::Kind::Scalar;
  t.dtype = n.dtype;
  t.index = n.op == Op::constant ? -1 : n.arg;
  if (n.op == Op::constant) t.bits = ir::attributes<ir::Constant>(n).bits;
  return intern(t);
}

TermId PairReader::coordinate_term(const ir::GraphNode& n, const Frame& frame) {
  return counted(frame[ir::attributes<ir::Iota>(n).axis], n.dtype);
}

TermId PairReader::counted(const Coordinate& c, DType dtype) {
  Term t;
  t.dtype = dtype;
  switch (c.kind) {
    case Coordinate::Kind::None: t.kind = Term::Kind::Constant; break;
    case Coordinate::Kind::Row:
      t.kind = Term::Kind::Row;
      t.along_rows = true;
      break;
    case Coordinate::Kind::Column:
      t.kind = Term::Kind::Column;
      t.along_columns = true;
      break;
    case Coordinate::Kind::Batch:
      t.kind = Term::Kind::Batch;
      t.divisor = c.divisor;
      t.extent = c.extent;
      break;
    case Coordinate::Kind::Joined: {
      // as integers, which floats of a count would lose
      TermId sum = kNoTerm;
      std::int64_t step = 1;
      for (std::size_t p = c.parts.size(); p-- > 0; step *= extent_of(c.parts[p])) {
        Term by;
        by.kind = Term::Kind::Constant;
        by.dtype = DType::Int64;
        by.bits = static_cast<std::uint64_t>(step);
        const TermId part = counted(c.parts[p], DType::Int64),
                     here = step == 1 ? part : op(Op::multiply, {part, intern(by)}, DType::Int64);
        sum = sum == kNoTerm ? here : op(Op::add, {sum, here}, DType::Int64);
      }
      return dtype == DType::Int64 ? sum : op(Op::cast, {sum}, dtype);
    }
  }
  return intern(t);
}

TermId PairReader::memory_term(MatrixMemory m) {
  Term t;
  t.kind = Term::Kind::Memory;
  t.dtype = m.dtype;
  t.along_rows = m.row != 0;
  t.along_columns = m.column != 0;
  t.index = static_cast<std::int32_t>(pairs_.memory.size());
  pairs_.memory.push_back(std::move(m));
  return intern(t);
}

TermId PairReader::operation_term(const ir::GraphNode& n, const TermId* in) {
  if (n.op == Op::cast && n.dtype == DType::Float32 && is_half(term(in[0]).dtype)) return f32(in[0]);
  Term t;
  t.op = n.op;
  t.dtype = n.dtype;
  t.bits = n.attr64;
  for (std::size_t k = 0; k < n.in.size(); ++k) {
    t.in[t.n_in++] = in[k];
    t.along_rows |= term(in[k]).along_rows;
    t.along_columns |= term(in[k]).along_columns;
  }
  return intern(t);
}

Frame frame_of(ir::Dims dims, bool columns_last) {
  Frame f(dims.size());
  std::int64_t divisor = 1;
  const std::size_t rank = dims.size();
  for (std::size_t d = rank - 2; d-- > 0;) {
    if (dims[d] == 1) continue;
    f[d] = {Coordinate::Kind::Batch, divisor, dims[d]};
    divisor *= dims[d];
  }
  const std::size_t column = columns_last ? rank - 1 : rank - 2, row = columns_last ? rank - 2 : rank - 1;
  if (dims[column] != 1) f[column] = {Coordinate::Kind::Column};
  if (dims[row] != 1) f[row] = {Coordinate::Kind::Row};
  return f;
}

std::vector<bool> values_without_memory(const Graph& graph) {
  constexpr int kMostOperations = 24, kNone = -1;
  std::vector<int> below(graph.size(), kNone);  // operations
  const auto of = [&](NodeId id) {
    const ir::GraphNode& n = graph[id];
    if (ir::is_view(n.op)) {
      const bool reads =
          n.op == Op::pad || n.op == Op::update_at || n.op == Op::slice_at || n.op == Op::arrange;
      return reads ? kNone : below[n.in[0]];
    }
    const ir::OpKind kind = ir::info(n.op).kind;
    if (kind == ir::OpKind::Scalar || kind == ir::OpKind::Iota) return 0;
    if (!ir::is_elementwise(n.op)) return kNone;
    int operations = 1;
    for (const NodeId in : n.in) {
      if (below[in] == kNone) return kNone;
      operations += below[in];
    }
    return operations > kMostOperations ? kNone : operations;
  };
  std::vector<bool> out(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    below[id] = of(id);
    out[id] = below[id] != kNone;
  }
  return out;
}

}  // namespace kiln::plan
