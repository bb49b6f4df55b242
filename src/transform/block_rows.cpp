// Terminates: each product that there is at first is looked at once; its nodes are made again once for each
// of at most kMostJoined blocks.
#include "transform/block_rows.h"

#include "ir/builder.h"
#include "ir/loops.h"
#include "transform/dce.h"
#include "transform/make_again.h"
#include "transform/nouns.h"
#include "transform/row_values.h"
#include "transform/split_joins.h"
#include "transform/turned.h"

#include <kiln/shape.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace kiln::transform {
namespace {

struct Block {
  std::int64_t first, rows;
};

constexpr int kMostAgain = 4;                            // gradients of gradients
constexpr std::int64_t kTile = 128, kTileColumns = 256;  // of a main loop's

std::int64_t quotient(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows of a block, a little more than `least` perhaps, with which processors idle least in their last turns.
std::int64_t fewest_turns(std::int64_t least, std::int64_t rows, std::int64_t columns, int processors) {
  const auto turns = [&](std::int64_t some) {
    return quotient(quotient(some, kTile) * quotient(columns, kTileColumns), processors);
  };
  const auto all = [&](std::int64_t block) { return rows / block * turns(block) + turns(rows % block); };
  std::int64_t best = least;
  for (std::int64_t block = least; block <= 5 * least / 2 && block < rows; block += kTile)
    if (100 * all(block) < 99 * all(best)) best = block;
  return best;
}

/// The blocks of a product, of `wanted` rows or more, or none where they would save less than so much.
std::vector<Block> blocks_of(const Graph& g, NodeId product, const RowValues& values, const BlockCosts& costs,
                             std::int64_t saved_bytes, std::int64_t wanted = 0) {
  const GraphNode& n = g[product];
  const std::int64_t rows = values.rows(), size = size_of(n.dtype), row_bytes = n.numel / rows * size;
  const std::int64_t inner = values.are_matrices() ? n.dims[n.dims.size() - 2] : 1;  // rows of one
  const std::int64_t least = std::max(wanted, std::min(is_half(n.dtype) ? costs.half_rows : costs.rows,
                                                       costs.rows_a_term * g[n.in[0]].dims.back()));
  std::int64_t block = quotient(least, inner);
  const auto most = static_cast<std::int64_t>(kMostJoined);
  block = std::max({block, costs.block_bytes / row_bytes, quotient(rows, most)});
  if (inner == 1 && block >= kTile) {
    block = quotient(block, kTile) * kTile;
    if (costs.processors > 0) block = fewest_turns(block, rows, n.dims.back(), costs.processors);
  }
  if (block >= rows || (rows - block) * row_bytes < saved_bytes) return {};
  std::vector<Block> blocks;
  for (std::int64_t first = 0; first < rows; first += block)
    blocks.push_back({first, std::min(block, rows - first)});
  // few rows of a last block would read w for little
  if (blocks.size() > 2 && blocks.back().rows < block / 4) {
    blocks[blocks.size() - 2].rows += blocks.back().rows;
    blocks.pop_back();
  }
  return blocks;
}

/// Makes one product and what is made of its rows again, block by block.
class Cutter {
 public:
  Cutter(Graph& graph, NodeId product, const RowValues& values, std::vector<Block> blocks)
      : g_(graph), product_(product), values_(values), blocks_(std::move(blocks)), add_(graph) {}

  Renumbering run() {
    old_ = std::move(g_.nodes);
    g_.nodes.clear();
    now_.assign(old_.size(), kNoNode);
    const std::vector<bool> before = read_by_blocks();
    const auto is_made_whole = [&](NodeId id) { return !values_.is_made_of_product(id); };
    for (NodeId id = 0; id < old_.size(); ++id)
      if (is_made_whole(id) && before[id]) copy(id);
    std::vector<std::vector<NodeId>> parts(values_.results().size());
    for (const Block& block : blocks_) {
      block_ = block;
      made_.clear();
      for (std::size_t r = 0; r < parts.size(); ++r) {
        const NodeId id = values_.results()[r];
        add_part(parts[r], id);
      }
      if (first_made_ == kNoNode) {
        first_made_ = made(product_);
        first_result_ = parts[0][0];
      }
    }
    for (std::size_t r = 0; r < parts.size(); ++r) finish(values_.results()[r], parts[r]);
    for (NodeId id = 0; id < old_.size(); ++id)
      if (is_made_whole(id) && !before[id]) copy(id);
    for (NodeId& root : g_.roots) root = now_[root];
    // of what a handle holds the join has no other reader
    for (const NodeId id : values_.results())
      if (old_[id].held && std::ranges::find(g_.roots, now_[id]) == g_.roots.end())
        g_.roots.push_back(now_[id]);
    return std::move(now_);
  }

  PatternNote note() const {
    return {first_made_, first_result_,
            because(FusionReason::InBlocks, blocks_.front().rows, values_.rows(), blocks_.size())};
  }

 private:
  /// Nodes that stand before the blocks: those before the product, and what blocks read. Others are blocks of
  /// another product, perhaps, which keep their places.
  std::vector<bool> read_by_blocks() const {
    std::vector<bool> read(old_.size());
    for (NodeId id = static_cast<NodeId>(old_.size()); id-- > 0;) {
      read[id] = read[id] || id < product_;
      if (read[id] || values_.is_made_of_product(id))
        for (const NodeId in : old_[id].in) read[in] = true;
    }
    return read;
  }

  void copy(NodeId id) {
    GraphNode n = old_[id];
    for (NodeId& in : n.in) in = now_[in];
    now_[id] = add_.push(std::move(n));
  }

  /// Sums of products are as large as w, and added at once, by the product of the next block. Other sums take
  /// few bytes: joined first, or one kernel would take the rows of all blocks.
  void add_part(std::vector<NodeId>& parts, NodeId id) {
    if (!values_.is_sum(id)) {
      parts.push_back(made(id));
    } else if (old_[id].op != Op::matmul) {
      parts.push_back(reduction(old_[id]));
    } else {
      const NodeId part = product_over_rows(old_[id]);
      parts = {parts.empty() ? part : add_.add(Op::add, {parts[0], part})};
    }
  }

  void finish(NodeId id, const std::vector<NodeId>& parts) {
    const GraphNode& n = old_[id];
    add_.loc = n.loc;
    NodeId all = parts.size() == 1 ? parts[0] : add_.add(Op::join, ir::Operands(parts), ir::Join{0});
    if (values_.is_sum(id) && parts.size() > 1) all = add_.add(n.op, {all}, ir::Reduce{1});
    if (g_[all].dtype != n.dtype) all = cast(all, n.dtype);
    if (!std::ranges::equal(g_[all].dims, n.dims)) all = add_.add(Op::reshape, {all}, {}, {.dims = n.dims});
    g_[all].held = n.held;
    now_[id] = all;
  }

  NodeId cast(NodeId x, DType dtype) { return add_.add(Op::cast, {x}, {}, {.dtype = dtype}); }

  /// Of halves as floats, as all sums over rows.
  NodeId product_over_rows(const GraphNode& n) {
    add_.loc = n.loc;
    const NodeId a = n.in[0], b = n.in[1];
    const NodeId columns =
        values_.is_turned(a) ? turned(g_, add_, made(old_[a].in[0])) : of_block(now_[a], 1);
    const NodeId part = add_.add(Op::matmul, {columns, values_.axes(b) ? made(b) : of_block(now_[b], 0)});
    return is_half(n.dtype)
               ? add_.add(Op::cast, {part}, ir::Cast{.unrounded = true}, {.dtype = DType::Float32})
               : part;
  }

  NodeId reduction(const GraphNode& n) {
    NodeId x = made(n.in[0]);
    add_.loc = n.loc;
    if (is_half(n.dtype)) x = cast(x, DType::Float32);
    const std::uint64_t over = ir::attributes<ir::Reduce>(n).mask;
    return add_.add(n.op, {x}, ir::Reduce{over >> *values_.axes(n.in[0]) << 1 | 1});
  }

  /// The block's rows, one axis, and the axes of `dims` from `first` on.
  Shape block_shape(ir::Dims dims, std::size_t first) const {
    Shape out{block_.rows};
    for (std::size_t a = first; a < dims.size(); ++a) out.push_back(dims[a]);
    return out;
  }

  /// The block's rows of a value that is made as a whole, whose first axes are all rows.
  NodeId rows_of(NodeId whole, std::size_t axes) {
    Shape dims{values_.rows()};
    for (std::size_t a = axes; a < g_[whole].dims.size(); ++a) dims.push_back(g_[whole].dims[a]);
    if (axes != 1) whole = add_.add(Op::reshape, {whole}, {}, {.dims = dims});
    return of_block(whole, 0);
  }

  /// The block's part of a value, one axis of which is all rows.
  NodeId of_block(NodeId whole, std::size_t axis) {
    Shape dims(g_[whole].dims);
    std::vector<std::int64_t> first(static_cast<std::size_t>(dims.rank()), 0), step(first.size(), 1);
    first[axis] = block_.first;
    dims[static_cast<int>(axis)] = block_.rows;
    return add_.add(Op::slice, {whole}, ir::Box(first, step), {.dims = dims});
  }

  /// What a block's node reads where its node reads x: n has the extents `dims`, of which the first `axes`
  /// are rows.
  NodeId operand(NodeId x, ir::Dims dims, std::size_t axes) {
    if (values_.axes(x)) return made(x);
    const ir::Dims from = old_[x].dims;
    const std::size_t lead = dims.size() - from.size(), own = axes > lead ? axes - lead : 0;
    NodeId whole = now_[x];
    if (std::all_of(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(own),
                    [](std::int64_t d) { return d == 1; })) {
      if (own == 0) return whole;
      Shape same{1};
      for (std::size_t a = own; a < from.size(); ++a) same.push_back(from[a]);
      return add_.add(Op::reshape, {whole}, {}, {.dims = same});
    }
    Shape all(dims.first(axes));
    for (std::size_t a = own; a < from.size(); ++a) all.push_back(from[a]);
    if (!std::ranges::equal(all, from)) whole = add_.add(Op::broadcast, {whole}, {}, {.dims = all});
    return rows_of(whole, axes);
  }

  NodeId made(NodeId id) {
    if (const auto it = made_.find(id); it != made_.end()) return it->second;
    add_.loc = old_[id].loc;
    const NodeId block = make(old_[id], *values_.axes(id), id == product_);
    made_.emplace(id, block);
    return block;
  }

  NodeId make(const GraphNode& n, std::size_t axes, bool is_product) {
    const Shape dims = block_shape(n.dims, axes);
    const auto moved = [&](std::size_t axis) { return axis - axes + 1; };
    const auto in = [&](std::size_t k) { return operand(n.in[k], n.dims, axes); };
    if (n.op == Op::matmul) return product(n, axes, is_product);
    if (ir::is_elementwise(n.op)) return map(n, dims, axes);
    if (ir::is_view(n.op)) return view(n, dims, axes);
    if (n.op == Op::iota) {
      const std::size_t axis = ir::attributes<ir::Iota>(n).axis;
      if (axis >= axes)
        return add_.add(Op::iota, {}, ir::Iota{moved(axis)}, {.dtype = n.dtype, .dims = dims});
      return rows_of(now_[static_cast<std::size_t>(&n - old_.data())], axes);
    }
    if (n.op == Op::gather) {
      auto how = ir::attributes<ir::Gather>(n);
      how.axis = moved(how.axis);
      return add_.add(n.op, {in(0), in(1)}, how, {.dims = dims});
    }
    if (ir::is_scan(n.op)) {
      auto how = ir::attributes<ir::Scan>(n);
      how.axis = moved(how.axis);
      return add_.add(n.op, {in(0)}, how);
    }
    if (n.op == Op::part) {
      const NodeId of = made(n.in[0]);
      return add_.add(n.op, {of}, ir::attributes<ir::Part>(n), {.dtype = n.dtype, .dims = dims});
    }
    if (ir::Sort::fits(n.op)) {
      auto how = ir::attributes<ir::Sort>(n);
      how.axis = moved(how.axis);
      return add_.add(n.op, {in(0)}, how, {.dims = dims});
    }
    const std::uint64_t over = ir::attributes<ir::Reduce>(n).mask;
    return add_.add(n.op, {in(0)}, ir::Reduce{over >> axes << 1});
  }

  /// Copied with its attributes, whatever they are.
  NodeId map(GraphNode n, const Shape& dims, std::size_t axes) {
    const ir::Dims whole = n.dims;
    for (NodeId& in : n.in) in = operand(in, whole, axes);
    n.dims = g_.keep(dims);
    n.numel = dims.numel();
    n.held = false;
    return add_.push(std::move(n));
  }

  NodeId view(const GraphNode& n, const Shape& dims, std::size_t axes) {
    const NodeId of = n.in[0];
    const NodeId x = n.op == Op::broadcast ? operand(of, n.dims, axes)
                     : values_.axes(of)    ? made(of)
                                           : rows_of(now_[of], *values_.axes_of(old_[of].dims));
    switch (n.op) {
      case Op::alias: return add_.add(n.op, {x}, ir::attributes<ir::Alias>(n), {.dims = dims});
      case Op::permute: {
        const auto order = ir::attributes<ir::Permute>(n);
        ir::Permute shown;
        shown.show(0, 0);
        for (std::size_t a = axes; a < n.dims.size(); ++a) shown.show(a - axes + 1, order[a] - axes + 1);
        return add_.add(n.op, {x}, shown);
      }
      case Op::slice: {
        const auto box = ir::attributes<ir::Box>(n);
        std::vector<std::int64_t> first{0}, step{1};
        for (std::size_t a = axes; a < n.dims.size(); ++a) {
          first.push_back(box.first(a));
          step.push_back(box.step(a));
        }
        return add_.add(n.op, {x}, ir::Box(first, step), {.dims = dims});
      }
      default: return add_.add(n.op, {x}, {}, {.dims = dims});  // a reshape, a broadcast
    }
  }

  /// Of several matrices both operands' of the block; else rows of the first operand.
  NodeId product(const GraphNode& n, std::size_t axes, bool is_product) {
    const auto rows = [&](NodeId x) {
      return !is_product && values_.axes(x) ? made(x) : rows_of(now_[x], axes);
    };
    const NodeId x = rows(n.in[0]);
    NodeId w = now_[n.in[1]];
    if (values_.are_matrices())
      w = rows(n.in[1]);
    else if (n.dims.size() > 2)
      w = add_.add(Op::reshape, {w}, {}, {.dims = g_[w].dims.last(2)});
    add_.loc = n.loc;
    const NodeId block = add_.add(Op::matmul, {x, w});
    g_[block].attr64 = n.attr64;  // as in ir/again.h
    return block;
  }

  Graph& g_;
  const NodeId product_;
  const RowValues& values_;
  const std::vector<Block> blocks_;
  ir::Builder add_;
  std::vector<GraphNode> old_;
  Renumbering now_;
  Block block_{};
  std::unordered_map<NodeId, NodeId> made_;  // of the block: by node of old_
  NodeId first_made_ = kNoNode, first_result_ = kNoNode;
};

/// Whether rows of an operand are more than slices of it: windows, which main loops read where they lie.
bool has_windows(const Graph& g, NodeId id) {
  while (ir::is_view(g[id].op)) {
    if (g[id].op == Op::sliding_window) return true;
    id = g[id].in[0];
  }
  return false;
}

class BlockRows {
 public:
  BlockRows(Graph& graph, const BlockCosts& costs, std::vector<PatternNote>& notes, const TiledNodes& tiled)
      : g_(graph), costs_(costs), find_tiled_(tiled), notes_(notes), now_(graph.size()) {
    std::iota(now_.begin(), now_.end(), 0u);
  }

  Renumbering run() {
    const NodeId size = g_.size();
    for (NodeId id = 0; id < size; ++id)
      if (now_[id] != kNoNode && g_[now_[id]].op == Op::matmul) look_at(now_[id]);
    tiled_.clear();  // scores that others read no more may be tiled now
    for (std::size_t i = 0; i < firsts_.size(); ++i)
      if (costs_.products || may_be_weights(firsts_[i])) look_at(firsts_[i], 0);
    return std::move(now_);
  }

 private:
  void look_at(NodeId product, int again = kMostAgain) {
    const NodeId x = g_[product].in[0];
    const std::int64_t bytes = g_[product].numel * size_of(g_[product].dtype);
    if (bytes == 0 || g_[x].dims.back() == 0) return;
    const std::int64_t saved = std::min(costs_.saved_bytes, costs_.saved_pairs);
    if (bytes < saved || has_windows(g_, x)) return;
    RowValues values(g_, product, {costs_.products || may_be_weights(product), costs_.sums});
    std::vector<Block> blocks = blocks_of(g_, product, values, costs_, saved);
    if (blocks.empty()) return;
    auto [why, reader] = values.find();
    if (!values.reduces() || in_loop(values)) return;
    if (values.are_matrices() && why.reason() == FusionReason::BlocksMeet && again > 0 &&
        cut_again(product, values, again))
      return;
    blocks = values.are_matrices() && multiplies_rows(product, values)
                 ? blocks_of(g_, product, values, costs_, costs_.saved_pairs, rows_of_weights(product))
                 : blocks_of(g_, product, values, costs_, costs_.saved_bytes);
    if (blocks.empty()) return;
    if (reader != kNoNode) {
      notes_.push_back({product, reader, std::move(why)});
      return;
    }
    if (std::ranges::any_of(values.results(), [&](NodeId id) { return adds_products(values, id); })) {
      blocks = blocks_of(g_, product, values, costs_, costs_.saved_bytes, costs_.sum_rows);
      if (blocks.empty()) return;
      // Whole, the rows' gradients would be stored as well as the rows.
      const std::int64_t rows = values.rows() - blocks.front().rows;
      const std::int64_t less = 2 * rows * (bytes / values.rows()) - bytes_of_sums(values);
      if (costs_.saved_bytes > 0 && less < costs_.saved_bytes) return;
    }
    Cutter cutter(g_, product, values, std::move(blocks));
    renumber(cutter.run());
    notes_.push_back(cutter.note());
    ++cuts_;
  }

  /// What waits for results of the product's rows is made of the product again, `again` times at most, and
  /// cut by itself. False: nothing was.
  bool cut_again(NodeId product, const RowValues& values, int again) {
    const auto nodes = g_.nodes;
    const auto roots = g_.roots;
    const auto notes = notes_;
    const auto now = now_, firsts = firsts_;
    const auto tiled = tiled_;
    const int cuts = cuts_;
    const MadeAgain made = make_again(g_, product, values);
    renumber(made.now);
    firsts_.push_back(made.first);
    const Renumbering living = dce(g_);  // what nobody reads any more would read the scores
    renumber(living);
    if (living[made.second] != kNoNode) look_at(living[made.second], again - 1);
    if (cuts_ != cuts) return true;
    g_.nodes = nodes;
    g_.roots = roots;
    notes_ = notes;
    now_ = now;
    firsts_ = firsts;
    tiled_ = tiled;
    return false;
  }

  void renumber(const Renumbering& step) {
    const auto follow = [&step](NodeId& id) {
      if (id != kNoNode) id = step[id];
    };
    for (NodeId& id : now_) follow(id);
    for (NodeId& id : firsts_) follow(id);
    for (PatternNote& note : notes_) follow(note.first), follow(note.last);
    std::vector<bool> tiled(tiled_.empty() ? 0 : g_.size());
    for (NodeId id = 0; id < tiled_.size(); ++id)
      if (tiled_[id] && step[id] != kNoNode) tiled[step[id]] = true;
    tiled_ = std::move(tiled);
  }

  /// Whether a batch of products has values of pairs that no main loop makes tile by tile.
  bool may_be_weights(NodeId product) {
    if (!find_tiled_ || g_[product].dims.size() < 3) return false;
    if (tiled_.empty()) tiled_ = find_tiled_(g_);
    return !tiled_[product];
  }

  /// Rows of weights that are operands: as many tiles of rows as there are processors, each of which makes a
  /// tile of a narrow product, or twice as many where that takes little memory; never a few more.
  std::int64_t rows_of_weights(NodeId product) const {
    constexpr std::int64_t kLittle = 256 << 20;
    const GraphNode& n = g_[product];
    const std::int64_t rows = n.dims[n.dims.size() - 2], row_bytes = n.dims.back() * size_of(n.dtype);
    const auto in_turns = [&](int turns) {
      return std::max<std::int64_t>(1, turns * costs_.processors / quotient(rows, kTile)) * rows;
    };
    return in_turns(2) * row_bytes <= kLittle ? in_turns(2) : in_turns(1);
  }

  bool multiplies_rows(NodeId product, const RowValues& values) const {
    for (NodeId id = product + 1; id < g_.size(); ++id)
      if (g_[id].op == Op::matmul && values.is_made_of_product(id)) return true;
    return false;
  }

  bool adds_products(const RowValues& values, NodeId id) const {
    return values.is_sum(id) && g_[id].op == Op::matmul;
  }

  /// What gradients that are added block by block take more than as a whole: of halves a sum of floats, and
  /// the last block's product.
  std::int64_t bytes_of_sums(const RowValues& values) const {
    std::int64_t bytes = 0;
    for (const NodeId id : values.results())
      if (adds_products(values, id) && is_half(g_[id].dtype))
        bytes += g_[id].numel * (size_of(g_[id].dtype) + size_of(DType::Float32));
    return bytes;
  }

  /// A loop's body is planned on its own.
  bool in_loop(const RowValues& values) const {
    if (std::ranges::none_of(g_.nodes, [](const GraphNode& n) { return n.op == Op::loop; })) return false;
    const ir::Loops loops = ir::find_loops(g_);
    for (NodeId id = 0; id < g_.size(); ++id)
      if (values.is_made_of_product(id) && loops.owner_of(id) != kNoNode) return true;
    return false;
  }

  Graph& g_;
  const BlockCosts& costs_;
  const TiledNodes& find_tiled_;
  std::vector<PatternNote>& notes_;
  Renumbering now_;
  std::vector<NodeId> firsts_;  // products that others were made again of
  std::vector<bool> tiled_;     // of the graph as it is; empty: not known
  int cuts_ = 0;
};

}  // namespace

Renumbering block_rows(Graph& graph, const BlockCosts& costs, std::vector<PatternNote>& notes,
                       const TiledNodes& tiled) {
  return BlockRows(graph, costs, notes, tiled).run();
}

}  // namespace kiln::transform
