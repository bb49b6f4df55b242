#include "engine/tile_graphs.h"

#include "ir/layout.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>

namespace kiln::engine {
namespace {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;
using library::TileBuffer;
using library::TileSlot;
using plan::kNoTerm;
using plan::Term;
using plan::TermId;
using Role = TileBuffer::Role;

constexpr std::uint32_t kLineAlignment = 64;

class Maker {
 public:
  /// Which axis of two counts rows; the other one counts columns.
  Maker(const plan::PairTerms& a, const std::vector<DType>& slot_types, int row_axis, std::int64_t rows,
        std::int64_t columns)
      : a_(a), row_axis_(row_axis), rows_(rows), columns_(columns), known_(a.terms.size(), ir::kNoNode) {
    out_.graph.slots = slot_types;
    for (std::uint32_t s = 0; s < slot_types.size(); ++s) out_.slots.push_back({TileSlot::Kind::Plan, s});
  }

  TileGraph take() { return std::move(out_); }

  std::vector<std::int64_t> dims(bool rows, bool columns) const {
    std::vector<std::int64_t> d(2);
    d[static_cast<std::size_t>(1 - row_axis_)] = columns ? columns_ : 1;
    d[static_cast<std::size_t>(row_axis_)] = rows ? rows_ : 1;
    return d;
  }

  NodeId push(Op op, std::initializer_list<NodeId> in, DType dtype, const std::vector<std::int64_t>& dims,
              std::uint64_t attributes = 0) {
    GraphNode n;
    n.op = op;
    n.dtype = dtype;
    n.in = in;
    n.dims = out_.graph.keep(dims);
    n.numel = ir::element_count(dims);
    n.attr64 = attributes;
    out_.graph.nodes.push_back(n);
    return out_.graph.size() - 1;
  }

  std::uint32_t argument(Role role, std::int64_t index, DType dtype, const std::vector<std::int64_t>& dims,
                         const std::vector<std::int64_t>& strides, std::uint32_t alignment) {
    ir::ArgInfo info;
    info.dtype = dtype;
    info.dims = out_.graph.keep(dims);
    info.strides = out_.graph.keep(strides);
    info.alignment = alignment;
    out_.graph.args.push_back(info);
    out_.arguments.push_back({role, index});
    return static_cast<std::uint32_t>(out_.arguments.size() - 1);
  }

  NodeId leaf(Role role, std::int64_t index, DType dtype, const std::vector<std::int64_t>& dims,
              const std::vector<std::int64_t>& strides, std::uint32_t alignment) {
    const std::uint32_t arg = argument(role, index, dtype, dims, strides, alignment);
    const NodeId id = push(Op::leaf, {}, dtype, dims);
    out_.graph[id].arg = static_cast<std::int32_t>(arg);
    return id;
  }

  /// A value for each row, in a line of the unit's memory.
  NodeId line(Role role, std::int64_t index = 0) {
    return leaf(role, index, DType::Float32, dims(true, false), {1, 1}, kLineAlignment);
  }

  void result(NodeId node, Role role, std::int64_t index, const std::vector<std::int64_t>& strides,
              std::uint32_t alignment) {
    const GraphNode& n = out_.graph[node];
    plan::Placement p;
    p.arg = argument(role, index, n.dtype, {n.dims.begin(), n.dims.end()}, strides, alignment);
    p.strides = strides;
    out_.placements.emplace(node, p);
    out_.graph.roots.push_back(node);
    out_.graph[node].held = true;
  }

  NodeId number(float value) {
    return push(Op::constant, {}, DType::Float32, {}, std::bit_cast<std::uint32_t>(value));
  }

  NodeId term(TermId id) {
    NodeId& known = known_[static_cast<std::size_t>(id)];
    if (known == ir::kNoNode && is_left_out(id)) known = term(a_.terms[static_cast<std::size_t>(id)].in[1]);
    if (known == ir::kNoNode) known = make(a_.terms[static_cast<std::size_t>(id)]);
    return known;
  }

  /// The products of each pair.
  void set_tiles(std::vector<NodeId> scores) { scores_ = std::move(scores); }
  /// Matrices in memory whose rows are apart are laid out like scores, whose columns are `pitch` apart.
  void turn(std::int64_t pitch) { pitch_ = pitch; }
  /// Masks choose their first operand.
  void leave_out(const std::vector<TermId>& masks) { left_out_ = masks; }

  /// A term at every pair of the tile, made by a kernel.
  NodeId full_term(TermId id) {
    const std::vector<std::int64_t> full = dims(true, true);
    NodeId x = term(id);
    const GraphNode& n = out_.graph[x];
    if (!std::equal(full.begin(), full.end(), n.dims.begin(), n.dims.end()))
      x = push(Op::broadcast, {x}, n.dtype, full);
    return ir::is_elementwise(out_.graph[x].op) ? x : push(Op::cast, {x}, DType::Float32, full);
  }

 private:
  bool is_left_out(TermId id) const {
    return std::find(left_out_.begin(), left_out_.end(), id) != left_out_.end();
  }

  NodeId make(const Term& t) {
    const std::vector<std::int64_t> d = dims(t.along_rows, t.along_columns);
    switch (t.kind) {
      case Term::Kind::Score: return scores_[static_cast<std::size_t>(std::max(t.index, 0))];
      case Term::Kind::Max: return line(Role::MaxBefore);
      case Term::Kind::Sum: return line(Role::SumBefore, t.index);
      case Term::Kind::Statistic: return line(Role::Statistic, t.index);
      case Term::Kind::Memory: {
        const plan::MatrixMemory& m = a_.memory[static_cast<std::size_t>(t.index)];
        if (pitch_ != 0 && plan::lies_across(t, m))
          return leaf(Role::Turned, t.index, m.dtype, d, {pitch_, 1}, kLineAlignment);
        std::vector<std::int64_t> strides(2, m.column);
        strides[static_cast<std::size_t>(row_axis_)] = m.row;
        return leaf(Role::Memory, t.index, m.dtype, d, strides, static_cast<std::uint32_t>(size_of(m.dtype)));
      }
      case Term::Kind::Row:
      case Term::Kind::Column: {
        const bool row = t.kind == Term::Kind::Row;
        const NodeId first = slot({row ? TileSlot::Kind::Row : TileSlot::Kind::Column});
        const NodeId count =
            push(Op::iota, {}, DType::Int64, d, static_cast<std::uint64_t>(row ? row_axis_ : 1 - row_axis_));
        return as(push(Op::add, {count, first}, DType::Int64, d), t.dtype);
      }
      case Term::Kind::Batch: return as(slot({TileSlot::Kind::Batch, 0, t.divisor, t.extent}), t.dtype);
      case Term::Kind::Scalar: {
        const NodeId id = push(Op::scalar, {}, t.dtype, {});
        out_.graph[id].arg = t.index;
        return id;
      }
      case Term::Kind::Constant: return push(Op::constant, {}, t.dtype, {}, t.bits);
      case Term::Kind::Operation: {
        NodeId in[3] = {ir::kNoNode, ir::kNoNode, ir::kNoNode};
        for (int k = 0; k < t.n_in; ++k) in[k] = term(t.in[k]);
        const NodeId id = push(t.op, {}, t.dtype, d, t.bits);
        GraphNode& n = out_.graph[id];
        n.in.assign({in, static_cast<std::size_t>(t.n_in)});
        return id;
      }
    }
    return ir::kNoNode;
  }

  NodeId slot(const TileSlot& s) {
    out_.graph.slots.push_back(DType::Int64);
    out_.slots.push_back(s);
    const NodeId id = push(Op::scalar, {}, DType::Int64, {});
    out_.graph[id].arg = static_cast<std::int32_t>(out_.slots.size() - 1);
    return id;
  }

  NodeId as(NodeId id, DType dtype) {
    const GraphNode& n = out_.graph[id];
    if (n.dtype == dtype) return id;
    return push(Op::cast, {id}, dtype, {n.dims.begin(), n.dims.end()});
  }

  const plan::PairTerms& a_;
  int row_axis_;
  std::int64_t rows_, columns_;
  std::vector<NodeId> known_;   // by term
  std::vector<NodeId> scores_;  // by product
  std::vector<TermId> left_out_;
  std::int64_t pitch_ = 0;  // 0: matrices are read where they lie
  TileGraph out_;
};

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr std::uint64_t kOverColumns = 1;  // of a step's tile: its first axis

/// exp(t - m) with m's rows of nothing but -inf taken as 0, as the terms of an attention have it.
struct Exponentials {
  NodeId values, scale;
};

Exponentials exponentials(Maker& m, const plan::Attention& a) {
  const DType f32 = DType::Float32;
  const auto row = m.dims(true, false), full = m.dims(true, true);
  const NodeId t = m.term(a.t), before = m.line(Role::MaxBefore);
  const NodeId after =
      m.push(Op::maximum, {before, m.push(Op::reduce_max, {t}, f32, row, kOverColumns)}, f32, row);
  const NodeId none = m.push(Op::equal, {after, m.number(kNone)}, DType::Bool, row);
  const NodeId shift = m.push(Op::where, {none, m.number(0), after}, f32, row);
  const NodeId scale = m.push(a.exponential, {m.push(Op::subtract, {before, shift}, f32, row)}, f32, row);
  const NodeId values = m.push(a.exponential, {m.push(Op::subtract, {t, shift}, f32, full)}, f32, full);
  m.result(after, Role::MaxAfter, 0, {1, 1}, kLineAlignment);
  m.result(scale, Role::Scale, 0, {1, 1}, kLineAlignment);
  return {values, scale};
}

}  // namespace

TileGraph step_graph(const plan::Attention& a, const std::vector<DType>& slot_types, std::int64_t tile_rows,
                     std::int64_t rows, std::int64_t columns, bool whole) {
  const DType f32 = DType::Float32;
  Maker m(a, slot_types, 1, rows, columns);
  const auto row = m.dims(true, false), full = m.dims(true, true);
  m.set_tiles({m.leaf(Role::Scores, 0, f32, full, {tile_rows, 1}, kLineAlignment)});
  m.turn(tile_rows);
  if (whole) m.leave_out(a.masks);
  const bool scaled = a.t != kNoTerm;
  const Exponentials e = scaled ? exponentials(m, a) : Exponentials{ir::kNoNode, ir::kNoNode};
  const auto weights = [&](TermId u) {
    if (!scaled) return m.term(u);
    return u == kNoTerm ? e.values : m.push(Op::multiply, {e.values, m.term(u)}, f32, full);
  };
  for (std::size_t s = 0; s < a.sums.size(); ++s) {
    const auto index = static_cast<std::int64_t>(s);
    const NodeId here = m.push(Op::reduce_sum, {weights(a.sums[s])}, f32, row, kOverColumns);
    NodeId before = m.line(Role::SumBefore, index);
    if (scaled) before = m.push(Op::multiply, {before, e.scale}, f32, row);
    m.result(m.push(Op::add, {before, here}, f32, row), Role::SumAfter, index, {1, 1}, kLineAlignment);
  }
  m.result(weights(a.weight), Role::Weights, 0, {tile_rows, 1}, kLineAlignment);
  return m.take();
}

TileGraph finish_graph(const plan::Attention& a, const std::vector<DType>& slot_types, DType result,
                       std::int64_t tile_rows, std::int64_t rows) {
  const DType f32 = DType::Float32;
  Maker m(a, slot_types, 0, rows, 1);
  // (width, rows) in memory
  NodeId o = m.leaf(Role::Products, 0, f32, {rows, a.width}, {1, tile_rows}, kLineAlignment);
  if (a.factor != kNoTerm) o = m.push(Op::multiply, {o, m.term(a.factor)}, f32, {rows, a.width});
  if (result != f32 || a.factor == kNoTerm) o = m.push(Op::cast, {o}, result, {rows, a.width});
  m.result(o, Role::Result, 0, {a.width, 1}, static_cast<std::uint32_t>(size_of(result)));
  for (std::size_t r = 0; r < a.row_outputs.size(); ++r) {
    const plan::Attention::RowOutput& out = a.row_outputs[r];
    NodeId value = m.term(out.value);
    const DType dtype = out.to.dtype;
    if (!ir::is_elementwise(a.terms[static_cast<std::size_t>(out.value)].op))  // a running value as it is
      value = m.push(Op::cast, {value}, dtype, m.dims(true, false));
    m.result(value, Role::RowResult, static_cast<std::int64_t>(r), {out.to.row, 1},
             static_cast<std::uint32_t>(size_of(dtype)));
  }
  return m.take();
}

static Maker maker_of(const plan::PairSums& s, const std::vector<DType>& slot_types, std::int64_t tile_rows,
                      std::int64_t rows, std::int64_t columns) {
  Maker m(s, slot_types, 1, rows, columns);
  std::vector<NodeId> tiles;
  for (std::size_t p = 0; p < s.products.size(); ++p)
    tiles.push_back(m.leaf(Role::Scores, static_cast<std::int64_t>(p), DType::Float32, m.dims(true, true),
                           {tile_rows, 1}, kLineAlignment));
  m.set_tiles(std::move(tiles));
  return m;
}

TileGraph statistics_graph(const plan::PairSums& s, const std::vector<DType>& slot_types, int level,
                           std::int64_t tile_rows, std::int64_t rows, std::int64_t columns) {
  Maker m = maker_of(s, slot_types, tile_rows, rows, columns);
  for (std::size_t i = 0; i < s.statistics.size(); ++i) {
    const plan::PairSums::Statistic& of = s.statistics[i];
    if (of.level != level) continue;
    const NodeId here =
        m.push(of.reduction, {m.full_term(of.of)}, DType::Float32, m.dims(true, false), kOverColumns);
    m.result(here, Role::Partial, static_cast<std::int64_t>(i), {1, 1}, kLineAlignment);
  }
  return m.take();
}

TileGraph weights_graph(const plan::PairSums& s, const std::vector<DType>& slot_types, std::int64_t tile_rows,
                        std::int64_t rows, std::int64_t columns) {
  Maker m = maker_of(s, slot_types, tile_rows, rows, columns);
  for (std::size_t w = 0; w < s.weights.size(); ++w)
    m.result(m.full_term(s.weights[w]), Role::Weights, static_cast<std::int64_t>(w), {tile_rows, 1},
             kLineAlignment);
  return m.take();
}

}  // namespace kiln::engine
