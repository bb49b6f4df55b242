// Terminates: one walk in topological order; an attention becomes what it was and two dozen nodes. Each look
// at one goes from a node to one of its operands, up to kMostSteps times.
#include "transform/split_keys.h"

#include "ir/builder.h"
#include "kernel/expr.h"
#include "transform/memory_strides.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <algorithm>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

using ir::kNoNode;

constexpr int kMostSteps = 16;  // from the scores to what the exponentials are of
constexpr std::int64_t kMostParts = 64;
constexpr std::int64_t kMostKeys = std::numeric_limits<std::int32_t>::max();  // that a main loop counts
constexpr double kLeastSum =
    0.5;  // of exponentials, the greatest of which is 1: only that of nothing is less

class Splitter {
 public:
  Splitter(Graph& graph, const KeyCosts& costs)
      : g_(graph), costs_(costs), readers_(graph.size()), add_(graph) {}

  Renumbering run() {
    for (const GraphNode& n : g_.nodes)
      for (const NodeId in : n.in) ++readers_[in];
    for (const NodeId root : g_.roots) ++readers_[root];
    for (NodeId id = 0; id < g_.size(); ++id) found_.push_back(find(id));
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      now_.push_back(found_[id] ? split(n, *found_[id]) : add_.push(n));
      return now_.back();
    });
  }

 private:
  /// (e / sum of e) v, e being exp(t - greatest of t), and t made of the scores by `steps`.
  struct Found {
    NodeId q, k, v;                // k: turned, as the scores' product reads it
    std::vector<GraphNode> steps;  // in order; the first is the scores
    DType weights;                 // as they are multiplied
    std::int64_t parts;
  };

  bool is_own(NodeId id, int readers) const { return !g_[id].held && readers_[id] == readers; }

  /// What a value of rows is before it is shown with its last axis, or along it.
  NodeId reduction_of(NodeId id, Op op, NodeId of) const {
    while ((g_[id].op == Op::reshape || g_[id].op == Op::broadcast || g_[id].op == Op::alias) &&
           is_own(id, 1))
      id = g_[id].in[0];
    const GraphNode& n = g_[id];
    const bool fits = n.op == op && is_own(id, 1) && n.in[0] == of &&
                      ir::attributes<ir::Reduce>(n).mask == std::uint64_t{1} << (g_[of].dims.size() - 1);
    return fits ? id : kNoNode;
  }

  std::optional<Found> find(NodeId id) const {
    const GraphNode& p = g_[id];
    if (p.op != Op::matmul || p.numel == 0 || p.dims.size() >= kMaxRank) return std::nullopt;
    Found f;
    f.v = p.in[1];
    NodeId w = p.in[0];
    f.weights = g_[w].dtype;
    if (f.weights != DType::Float32 && !is_half(f.weights)) return std::nullopt;
    while (g_[w].op == Op::cast && is_own(w, 1)) w = g_[w].in[0];
    if (g_[w].op != Op::divide || g_[w].dtype != DType::Float32 || !is_own(w, 1)) return std::nullopt;
    const NodeId e = g_[w].in[0];
    if (g_[e].op != Op::exp || !is_own(e, 2) || reduction_of(g_[w].in[1], Op::reduce_sum, e) == kNoNode)
      return std::nullopt;
    const NodeId less = g_[e].in[0];
    if (g_[less].op != Op::subtract || !is_own(less, 1)) return std::nullopt;
    NodeId t = g_[less].in[0];
    if (!is_own(t, 2) || reduction_of(g_[less].in[1], Op::reduce_max, t) == kNoNode) return std::nullopt;
    if (!find_steps(t, f)) return std::nullopt;
    f.parts = parts_of(p, f);
    return f.parts > 1 ? std::optional(f) : std::nullopt;
  }

  /// From t back to the scores: operations with one operand that is no number.
  bool find_steps(NodeId t, Found& f) const {
    for (int n = 0; n < kMostSteps; ++n) {
      const GraphNode& x = g_[t];
      f.steps.push_back(x);
      if (n > 0 && !is_own(t, 1)) return false;
      if (x.op == Op::matmul) {
        std::reverse(f.steps.begin(), f.steps.end());
        f.q = x.in[0];
        f.k = x.in[1];
        return true;
      }
      if (!ir::is_elementwise(x.op)) return false;
      NodeId next = kNoNode;
      for (const NodeId in : x.in) {
        if (g_[in].dims.size() == 0) continue;
        if (next != kNoNode || !std::ranges::equal(g_[in].dims, x.dims)) return false;
        next = in;
      }
      if (next == kNoNode) return false;
      t = next;
    }
    return false;
  }

  std::int64_t parts_of(const GraphNode& p, const Found& f) const {
    const std::size_t rank = p.dims.size();
    const std::int64_t rows = p.dims[rank - 2], keys = g_[f.v].dims[rank - 2],
                       width = std::max(g_[f.q].dims[rank - 1], p.dims[rank - 1]);
    const bool floats = f.weights == DType::Float32, narrow = width <= costs_.narrow,
               small = rows <= costs_.few_rows &&
                       (floats ? narrow || (rows > 1 && width <= costs_.narrow_floats)
                               : narrow && (rows <= costs_.hardly_rows || width <= costs_.narrowest));
    if (keys > kMostKeys || rows > costs_.most_rows || width > costs_.most_width || (floats && !small) ||
        g_[f.q].dtype != f.weights || g_[f.v].dtype != f.weights)
      return 1;
    // The main loop reads adjacent columns.
    if (memory_strides(g_, f.q).back() != 1 || memory_strides(g_, f.v).back() != 1 ||
        memory_strides(g_, f.k)[rank - 2] != 1)
      return 1;
    const std::int64_t blocks = p.numel / (p.dims[rank - 1] * rows),
                       wanted = (small ? costs_.small_blocks : costs_.blocks),
                       most = std::min(kMostParts, keys / (small ? costs_.small_keys : costs_.least_keys));
    // At least three quarters of what is wanted, by as few parts as will do, of which none has keys of
    // another if that will do.
    std::int64_t best = 1;
    for (const std::int64_t shared : {0, 1})  // eighths of a part
      for (std::int64_t parts = best + 1; parts <= most && 4 * best * blocks < 3 * wanted; ++parts)
        if (8 * (keys % parts) <= shared * (keys / parts)) best = parts;
    // Those of floats that still are few stay products and a softmax (plan::is_faster_apart).
    return floats && 4 * best * blocks < costs_.small_blocks ? 1 : best;
  }

  NodeId shown(NodeId x, const Shape& dims) {
    return add_.add(Op::reshape, {x}, {}, {.dims = g_.keep(dims)});
  }
  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }
  /// Extents of a matrix of the batch of parts.
  Shape of_parts(ir::Dims dims, std::int64_t parts, std::int64_t rows, std::int64_t columns) const {
    Shape out(dims.first(dims.size() - 2));
    out.push_back(parts);
    out.push_back(rows);
    out.push_back(columns);
    return out;
  }
  NodeId reduced(Op op, NodeId x, std::size_t axis) {
    return add_.add(op, {x}, ir::Reduce{std::uint64_t{1} << axis});
  }

  /// Parts of the keys: each begins `step` keys behind the one before and has `keys`, of which it may share
  /// the first with the part before, and the last with the one behind.
  struct Parts {
    std::int64_t count, step, keys;
    Parts(std::int64_t count, std::int64_t all) : count(count), step(all / count), keys(step + all % count) {}
    std::int64_t shared() const { return keys - step; }
  };

  /// (…, keys, …) with `axis` for the parts and a last one more, for the keys of a part.
  NodeId cut(NodeId x, std::size_t axis, const Parts& parts) {
    const ir::Dims dims = g_[x].dims;
    Shape to(dims);
    to[static_cast<int>(axis)] = parts.count;
    to.push_back(parts.keys);
    const std::int64_t words[] = {static_cast<std::int64_t>(axis), parts.step, 1};
    return add_.add(Op::sliding_window, {x}, ir::Windows(words), {.dims = g_.keep(to)});
  }
  /// (…, depth, keys) by parts of the keys.
  NodeId columns_in_parts(NodeId x, const Parts& parts) {
    const std::size_t rank = g_[x].dims.size();
    ir::Permute axes;
    for (std::size_t a = 0; a <= rank; ++a)
      axes.show(a, a == rank - 2 ? rank - 1 : a == rank - 1 ? rank - 2 : a);
    if (parts.shared() > 0) return add_.add(Op::permute, {cut(x, rank - 1, parts)}, axes);
    Shape to(g_[x].dims.first(rank - 1));
    to.push_back(parts.count);
    to.push_back(parts.keys);
    return add_.add(Op::permute, {shown(x, to)}, axes);
  }
  /// (…, keys, width) by parts of the keys.
  NodeId rows_in_parts(NodeId x, const Parts& parts) {
    const std::size_t rank = g_[x].dims.size();
    if (parts.shared() == 0)
      return shown(x, of_parts(g_[x].dims, parts.count, parts.keys, g_[x].dims[rank - 1]));
    ir::Permute axes;
    for (std::size_t a = 0; a <= rank; ++a) axes.show(a, a == rank - 1 ? rank : a == rank ? rank - 1 : a);
    return add_.add(Op::permute, {cut(x, rank - 2, parts)}, axes);
  }

  /// What two parts share counts half in each, since what v has there may be infinite, and 0 times that is
  /// NaN.
  NodeId counted_once(NodeId t, const Parts& parts) {
    if (parts.shared() == 0) return t;
    const std::size_t rank = g_[t].dims.size();
    const auto places = [&](std::size_t axis) {
      Shape dims;
      for (std::size_t a = 0; a < rank; ++a) dims.push_back(a == axis ? g_[t].dims[a] : 1);
      return add_.add(Op::iota, {}, ir::Iota{axis}, {.dtype = DType::Int64, .dims = g_.keep(dims)});
    };
    const NodeId part = places(rank - 3), key = places(rank - 1);
    const auto integer = [&](std::int64_t x) {
      return number(DType::Int64, kernel::const_bits(DType::Int64, static_cast<double>(x)));
    };
    const NodeId before = add_.add(Op::logical_and, {add_.add(Op::less, {integer(0), part}),
                                                     add_.add(Op::less, {key, integer(parts.shared())})}),
                 behind = add_.add(Op::logical_and, {add_.add(Op::less, {part, integer(parts.count - 1)}),
                                                     add_.add(Op::less, {integer(parts.step - 1), key})});
    const NodeId half = add_.add(
        Op::subtract, {t, number(DType::Float32, kernel::const_bits(DType::Float32, std::numbers::ln2))});
    return add_.add(Op::where, {add_.add(Op::logical_or, {before, behind}), half, t});
  }

  NodeId split(const GraphNode& n, const Found& f) {
    add_.loc = n.loc;
    const std::size_t rank = n.dims.size();
    const NodeId q = now_[f.q], k = now_[f.k], v = now_[f.v];
    const std::int64_t rows = n.dims[rank - 2], depth = g_[q].dims[rank - 1];
    const Parts parts(f.parts, g_[v].dims[rank - 2]);
    const NodeId one = shown(q, of_parts(g_[q].dims, 1, rows, depth));
    const NodeId every =
        add_.add(Op::broadcast, {one}, {}, {.dims = g_.keep(of_parts(g_[q].dims, f.parts, rows, depth))});
    NodeId t = add_.add(Op::matmul, {every, columns_in_parts(k, parts)});
    for (std::size_t i = 1; i < f.steps.size(); ++i) t = again(f.steps[i], t);
    t = counted_once(t, parts);
    const NodeId greatest = reduced(Op::reduce_max, t, rank);
    const NodeId e = add_.add(
        Op::exp, {add_.add(Op::subtract, {t, at_least(greatest, -std::numeric_limits<float>::max())})});
    const NodeId sum = reduced(Op::reduce_sum, e, rank);
    const NodeId weights = add_.add(Op::divide, {e, at_least(sum, kLeastSum)});
    const NodeId part = add_.add(Op::matmul, {cast(weights, f.weights), rows_in_parts(v, parts)});
    return joined(n, greatest, sum, part);
  }

  NodeId number(DType dtype, std::uint64_t bits) {
    return add_.add(Op::constant, {}, ir::Constant{bits}, {.dtype = dtype, .dims = ir::Dims()});
  }
  NodeId at_least(NodeId x, double least) {
    return add_.add(Op::maximum, {x, number(DType::Float32, kernel::const_bits(DType::Float32, least))});
  }

  /// The operation of a step once more, of another operand.
  NodeId again(const GraphNode& step, NodeId of) {
    ir::Operands in = step.in;
    for (NodeId& x : in) x = g_[now_[x]].dims.size() == 0 ? now_[x] : of;
    GraphNode n = step;
    n.in = in;
    n.held = false;
    n.arg = -1;
    n.dims = g_[of].dims;
    n.numel = g_[of].numel;
    return add_.push(n);
  }

  /// What all parts make: each counts as much as its greatest score is near that of all, and as its
  /// exponentials add up to.
  NodeId joined(const GraphNode& n, NodeId greatest, NodeId sum, NodeId part) {
    const std::size_t axis = n.dims.size() - 2;
    const NodeId most = reduced(Op::reduce_max, greatest, axis);
    const NodeId counts =
        add_.add(Op::multiply, {add_.add(Op::exp, {add_.add(Op::subtract, {greatest, most})}), sum});
    const NodeId all =
        reduced(Op::reduce_sum, add_.add(Op::multiply, {cast(part, DType::Float32), counts}), axis);
    const NodeId total = reduced(Op::reduce_sum, counts, axis);
    Shape row(n.dims);
    row[static_cast<int>(n.dims.size()) - 1] = 1;
    NodeId out = add_.add(Op::divide, {shown(all, Shape(n.dims)), shown(total, row)});
    out = cast(out, n.dtype);
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  const KeyCosts& costs_;
  std::vector<int> readers_;
  std::vector<std::optional<Found>> found_;
  std::vector<NodeId> now_;
  ir::Builder add_;
};

}  // namespace

Renumbering split_keys(Graph& graph, const KeyCosts& costs) { return Splitter(graph, costs).run(); }

}  // namespace kiln::transform
