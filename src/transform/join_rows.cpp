// Terminates: one walk in topological order; a reduction becomes two or three, and copies of the maps below
// it.
//
// Only of leaves in row-major order: what else reads them, and shares a kernel with the reduction, would read
// them once more.
#include "transform/join_rows.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLanes = 8;         // vectors of a row that threads share, or one or two, …
constexpr std::int64_t kManyVectors = 64;  // … or so many
constexpr std::int64_t kLeastRows = 64;    // that are left: each joined row's results are written and read
constexpr double kLaunches = 4;            // that take as long as reading the operand
constexpr std::size_t kMostMaps = 16;      // below a reduction

/// Rows that are reduced, and how many of them become one.
struct Rows {
  std::size_t axis = 0;  // the first that they are, behind the items
  std::int64_t items = 1, rows = 1, columns = 1, size = 1, joined = 1;
};

bool is_map(const GraphNode& n) {
  const OpKind kind = ir::info(n.op).kind;
  return kind == OpKind::Cast || kind == OpKind::Elementwise;
}

class Joiner {
 public:
  Joiner(Graph& graph, const JoinedRowCosts& costs) : g_(graph), costs_(costs), add_(graph) {}

  Renumbering run() {
    find_readers();
    std::vector<std::optional<Rows>> found;
    for (NodeId id = 0; id < g_.size(); ++id) found.push_back(find(id));
    return rebuild(
        g_, [&](NodeId id, const GraphNode& n) { return found[id] ? joined(n, *found[id]) : add_.push(n); });
  }

 private:
  void find_readers() {
    readers_.assign(g_.size(), {});
    for (NodeId id = 0; id < g_.size(); ++id)
      for (const NodeId in : g_[id].in)
        if (readers_[in].empty() || readers_[in].back() != id) readers_[in].push_back(id);
  }

  bool is_in_order(const GraphNode& n) const {
    if (n.op != Op::leaf) return false;
    const ir::ArgInfo& arg = g_.args[static_cast<std::size_t>(n.arg)];
    if (arg.alignment % costs_.access_bytes != 0) return false;
    std::int64_t step = 1;
    for (std::size_t a = arg.dims.size(); a-- > 0; step *= arg.dims[a])
      if (arg.dims[a] != 1 && arg.strides[a] != step) return false;
    return true;
  }

  /// The maps that a value is made of, itself first, and the leaves that these read: all of as many elements,
  /// in row-major order. Empty where there is something else.
  std::vector<NodeId> maps_below(NodeId x) const {
    std::vector<NodeId> list{x};
    for (std::size_t i = 0; i < list.size(); ++i) {
      const GraphNode& n = g_[list[i]];
      if (!is_map(n)) {
        if (!is_in_order(n)) return {};
        continue;
      }
      for (const NodeId in : n.in) {
        if (g_[in].numel == 1) continue;
        if (g_[in].numel != g_[x].numel || list.size() == kMostMaps) return {};
        if (std::ranges::find(list, in) == list.end()) list.push_back(in);
      }
    }
    return list;
  }

  /// Nodes that depend on one, itself among them.
  std::vector<bool> below(NodeId id) const {
    std::vector<bool> found(g_.size());
    found[id] = true;
    for (NodeId n = id + 1; n < g_.size(); ++n)
      found[n] = std::ranges::any_of(g_[n].in, [&](NodeId in) { return found[in]; });
    return found;
  }

  /// Whether nothing else shares a reading with a reduction. What depends on it does where a kernel keeps the
  /// columns.
  bool reads_alone(NodeId id, const std::vector<NodeId>& maps, bool keeps) const {
    const std::vector<bool> after = below(id);
    return std::ranges::all_of(maps,
                               [&](NodeId m) {
                                 return std::ranges::find(g_.roots, m) == g_.roots.end() ||
                                        g_[m].op == Op::leaf;
                               }) &&
           std::ranges::all_of(maps, [&](NodeId m) {
             return std::ranges::all_of(readers_[m], [&](NodeId reader) {
               return reader == id || std::ranges::find(maps, reader) != maps.end() ||
                      (after[reader] && !keeps);
             });
           });
  }

  std::optional<Rows> find(NodeId id) const {
    const GraphNode& n = g_[id];
    if (!ir::is_reduce(n.op) || ir::has(n.op, ir::POSITION) || n.numel == 0) return std::nullopt;
    const std::vector<NodeId> maps = maps_below(n.in[0]);
    Rows r;
    if (maps.empty() || !find_axes(g_[n.in[0]].dims, ir::attributes<ir::Reduce>(n), r)) return std::nullopt;
    for (const NodeId m : maps)
      if (!is_map(g_[m])) r.size = std::max(r.size, size_of(g_[m].dtype));
    if (static_cast<double>(g_[n.in[0]].numel * r.size) < kLaunches * costs_.launch_bytes || !join_some(r))
      return std::nullopt;
    const bool keeps = r.rows <= costs_.held && r.columns * r.size % costs_.word_bytes == 0;
    return reads_alone(id, maps, keeps) ? std::optional(r) : std::nullopt;
  }

  /// Items, rows and columns, in this order. False where the axes are not these.
  static bool find_axes(ir::Dims dims, ir::Reduce over, Rows& r) {
    std::size_t at = dims.size();
    const auto is_reduced = [&] { return dims[at - 1] == 1 || over.over(at - 1); };
    for (; at > 0 && (dims[at - 1] == 1 || !over.over(at - 1)); --at) r.columns *= dims[at - 1];
    for (; at > 0 && is_reduced(); --at) r.rows *= dims[at - 1];
    r.axis = at;
    for (; at > 0; --at) {
      if (dims[at - 1] != 1 && over.over(at - 1)) return false;
      r.items *= dims[at - 1];
    }
    return r.columns > 1 && r.rows > 1;
  }

  /// As many rows as make whole vectors of one, and such vectors as threads share; false where rows have
  /// them.
  bool join_some(Rows& r) const {
    const auto vector = [&](std::int64_t joined) {  // elements
      const std::int64_t item = r.items > 1 ? r.rows * r.columns : 0;
      return std::gcd(std::gcd(joined * r.columns, item),
                      std::max<std::int64_t>(1, costs_.access_bytes / r.size));
    };
    const auto vectors = [&](std::int64_t joined) { return joined * r.columns / vector(joined); };
    const bool idle = vectors(1) > 2 && vectors(1) < kLanes;
    if (vector(1) * r.size >= costs_.word_bytes && !idle) return false;
    std::int64_t most = 1;
    while (2 * most * kLeastRows <= r.rows) most *= 2;
    for (std::int64_t n = 2; n <= most; n *= 2)
      if (vector(n) > vector(r.joined)) r.joined = n;
    for (std::int64_t n = r.joined;
         vectors(r.joined) % kLanes != 0 && n <= most && vectors(n) <= kManyVectors; n *= 2)
      if (vectors(n) % kLanes == 0) r.joined = n;
    return r.joined > 1;
  }

  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }
  NodeId reshape(NodeId x, const Shape& dims) {
    return add_.add(Op::reshape, {x}, {}, {.dims = g_.keep(dims)});
  }

  /// Rows [first, first + count) of a value, in a shape: the maps once more, of these rows of what they read.
  /// `all`: what the value has. `made`: what the maps and leaves have become.
  NodeId some_rows(NodeId x, const Shape& all, std::int64_t first, std::int64_t count, const Shape& shape,
                   std::vector<std::pair<NodeId, NodeId>>& made) {
    const auto before = std::ranges::find(made, x, &std::pair<NodeId, NodeId>::first);
    if (before != made.end()) return before->second;
    NodeId out = x;
    if (g_[x].numel == 1) {
      out = reshape(x, Shape());
    } else if (is_map(g_[x])) {
      GraphNode n = g_[x];
      for (NodeId& in : n.in) in = some_rows(in, all, first, count, shape, made);
      n.dims = g_.keep(shape);
      n.numel = shape.numel();
      n.held = false;
      out = add_.push(std::move(n));
    } else {
      Shape part = all;
      const int axis = all.rank() - 2;
      part[axis] = count;
      std::vector<std::int64_t> from(static_cast<std::size_t>(all.rank())), step(from.size(), 1);
      from[static_cast<std::size_t>(axis)] = first;
      out = reshape(x, all);
      if (part != all) out = add_.add(Op::slice, {out}, ir::Box(from, step), {.dims = g_.keep(part)});
      out = reshape(out, shape);
    }
    made.emplace_back(x, out);
    return out;
  }

  NodeId joined(const GraphNode& n, const Rows& r) {
    add_.loc = n.loc;
    const NodeId x = n.in[0];
    const bool sums = is_half(g_[x].dtype) && !ir::chooses(ir::info(n.op).fold);
    const DType type = sums ? DType::Float32 : g_[x].dtype;  // halves are kept in what they are added up in
    const auto shape = [&](std::initializer_list<std::int64_t> behind) {
      Shape out;
      for (std::size_t a = 0; a < r.axis; ++a) out.push_back(g_[x].dims[a]);
      for (const std::int64_t extent : behind) out.push_back(extent);
      return out;
    };
    const ir::Reduce rows{std::uint64_t{1} << r.axis};
    const Shape all = shape({r.rows, r.columns});
    const std::int64_t left = r.rows % r.joined, long_rows = r.rows / r.joined;
    const bool wider = n.dtype == DType::Float64;  // than its operand, perhaps
    std::vector<std::pair<NodeId, NodeId>> made, made_left;
    const NodeId whole = some_rows(x, all, 0, r.rows - left, shape({long_rows, r.joined * r.columns}), made);
    NodeId part = add_.add(n.op, {cast(whole, type)}, rows, {.dtype = wider ? n.dtype : type});
    part = reshape(part, shape({r.joined, r.columns}));
    if (left > 0) {
      const NodeId rest = some_rows(x, all, r.rows - left, left, shape({left, r.columns}), made_left);
      part = add_.add(Op::join, {part, cast(rest, g_[part].dtype)}, ir::Join{r.axis});
    }
    const NodeId out = reshape(cast(add_.add(n.op, {part}, rows), n.dtype), Shape(n.dims));
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  const JoinedRowCosts& costs_;
  ir::Builder add_;
  std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

Renumbering join_rows(ir::Graph& graph, const JoinedRowCosts& costs) { return Joiner(graph, costs).run(); }

}  // namespace kiln::transform
