// Terminates: one walk in topological order; a reduction becomes as many times the few operations that make
// its operand as it has terms. Each look at these is of at most kMostSteps nodes, or
// TermCosts::of_windows.
#include "transform/write_out_sums.h"

#include "ir/builder.h"
#include "transform/memory_strides.h"
#include "transform/nouns.h"
#include "transform/only_reduced.h"
#include "transform/rebuild.h"
#include "transform/split_joins.h"

#include <kiln/shape.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::size_t kMostSteps = 8;           // operations that make an element
constexpr std::int64_t kManyResults = 1 << 16;  // of windows: below, launches are all that counts

class Writer {
 public:
  Writer(Graph& graph, const TermCosts& costs)
      : g_(graph), costs_(costs), reduced_(graph), nested_(graph, costs.nests), add_(graph) {}

  Renumbering run() {
    for (NodeId id = 0; id < g_.size(); ++id) found_.push_back(find(id));
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      now_.push_back(found_[id] ? written(n, *found_[id]) : add_.push(n));
      return now_.back();
    });
  }

 private:
  struct Step {
    NodeId id;
    GraphNode node;
  };
  struct Found {
    std::int64_t terms = 0;
    std::vector<std::size_t> axes;  // that are reduced: of a product's first operand
    std::vector<Step> steps;        // of a reduction: in order, the last one makes the operand
  };

  /// The operation that combines two values as a reduction does.
  static std::optional<Op> combination_of(const GraphNode& n) {
    const bool logical = n.dtype == DType::Bool;
    switch (n.op) {
      case Op::matmul:
      case Op::reduce_sum: return Op::add;
      case Op::reduce_prod: return Op::multiply;
      case Op::reduce_max: return logical ? Op::logical_or : Op::maximum;
      case Op::reduce_min: return logical ? Op::logical_and : Op::minimum;
      default: return std::nullopt;
    }
  }

  std::optional<Found> find(NodeId id) const {
    const GraphNode& n = g_[id];
    if (!combination_of(n)) return std::nullopt;
    if (std::optional<Found> parts = find_parts(id)) return parts;
    if (!is_float(n.dtype)) return std::nullopt;
    if (std::optional<Found> windows = find_windows(id)) return windows;
    Found f;
    std::int64_t largest = 0;  // operand
    if (n.op == Op::matmul) {
      f.axes = {n.dims.size() - 1};
      for (const NodeId in : n.in) largest = std::max(largest, g_[in].numel);
    } else {
      const std::uint64_t mask = ir::attributes<ir::Reduce>(n).mask;
      if (std::popcount(mask) != 1) return std::nullopt;
      f.axes = {static_cast<std::size_t>(std::countr_zero(mask))};
      std::vector<NodeId> steps;
      if (!find_steps(n.in[0], id, kMostSteps, steps) || steps.empty()) return std::nullopt;
      largest = take_steps(f, std::move(steps));
    }
    f.terms = g_[n.in[0]].dims[f.axes[0]];
    if (f.terms > 2 && n.op != Op::matmul && nested_.contains(id)) return std::nullopt;
    // Threads side by side read columns side by side.
    const bool adjacent = n.op == Op::matmul && memory_strides(g_, n.in[1]).back() == 1;
    const std::int64_t most =
        adjacent ? std::max(costs_.most_terms, costs_.most_products) : costs_.most_terms;
    const bool pays = f.terms >= 2 && f.terms <= most && n.numel * f.terms >= costs_.pairs * largest &&
                      ((n.op != Op::matmul && f.terms <= costs_.most_stored) || reduced_.contains(id)) &&
                      (n.op != Op::matmul || is_made_sooner(n, f.terms));
    return pays ? std::optional(std::move(f)) : std::nullopt;
  }

  /// A reduction across arrays that a join puts side by side, as a stack does: one element is of each.
  std::optional<Found> find_parts(NodeId id) const {
    const GraphNode& n = g_[id];
    if (n.op == Op::matmul) return std::nullopt;
    const std::uint64_t mask = ir::attributes<ir::Reduce>(n).mask;
    if (std::popcount(mask) != 1) return std::nullopt;
    const auto axis = static_cast<std::size_t>(std::countr_zero(mask));
    const std::size_t behind = n.dims.size() - 1 - axis;
    std::vector<NodeId> steps;
    if (!find_steps(n.in[0], id, kMostSteps, steps)) return std::nullopt;
    bool stacked = false;
    const auto look = [&](NodeId in) {
      stacked |= !std::ranges::count(steps, in) && is_stack(g_[in], behind);
    };
    look(n.in[0]);
    for (const NodeId step : steps)
      for (const NodeId in : g_[step].in) look(in);
    if (!stacked) return std::nullopt;
    Found f{.terms = g_[n.in[0]].dims[axis], .axes = {axis}, .steps = {}};
    if (f.terms > static_cast<std::int64_t>(kMostJoined)) return std::nullopt;
    take_steps(f, std::move(steps));
    return f;
  }

  /// Whether parts are single elements along the axis with so many behind it.
  static bool is_stack(const GraphNode& n, std::size_t behind) {
    if (n.op != Op::join || n.dims.size() <= behind) return false;
    const std::size_t axis = n.dims.size() - 1 - behind;
    return ir::attributes<ir::Join>(n).axis == axis && n.dims[axis] == static_cast<std::int64_t>(n.in.size());
  }

  /// Whether a product's sums take no longer than storing and reading them, although two sweeps may make
  /// them. Operands of halves are widened and results rounded.
  bool is_made_sooner(const GraphNode& n, std::int64_t terms) const {
    if (costs_.terms_per_ns == 0) return true;
    constexpr double kSweeps = 2, kConverted = 3;
    const auto elements = static_cast<double>(n.numel);
    const double made = kSweeps * elements * static_cast<double>(terms) *
                        (is_half(n.dtype) ? kConverted : static_cast<double>(size_of(n.dtype)) / 4);
    return made / costs_.terms_per_ns <=
           costs_.moved_ns(2 * elements * static_cast<double>(size_of(n.dtype)));
  }

  /// A reduction whose axes are those of windows that overlap, in an operand or what it is made of.
  std::optional<Found> find_windows(NodeId id) const {
    const GraphNode& n = g_[id];
    if (costs_.of_windows == 0 || n.op == Op::matmul || n.numel < kManyResults) return std::nullopt;
    Found f;
    f.terms = 1;
    const std::uint64_t mask = ir::attributes<ir::Reduce>(n).mask;
    for (std::size_t axis = 0; axis < g_[n.in[0]].dims.size(); ++axis) {
      if ((mask >> axis & 1) == 0) continue;
      f.axes.push_back(axis);
      f.terms *= g_[n.in[0]].dims[axis];
    }
    if (f.axes.empty() || f.terms < 2 || f.terms > costs_.of_windows) return std::nullopt;
    std::vector<NodeId> steps, operands;
    if (!find_steps(n.in[0], id, static_cast<std::size_t>(costs_.of_windows / f.terms), steps))
      return std::nullopt;
    for (const NodeId step : steps)
      for (const NodeId in : g_[step].in)
        if (!std::ranges::count(steps, in)) operands.push_back(in);
    if (steps.empty()) operands.push_back(n.in[0]);
    const bool slides = std::ranges::any_of(operands, [&](NodeId in) { return overlap(in, f.axes); });
    take_steps(f, std::move(steps));
    return slides ? std::optional(std::move(f)) : std::nullopt;
  }

  /// Whether a value's elements along each of these axes are also elements of the next windows: they lie in
  /// memory along another axis, which goes from one window to the next.
  bool overlap(NodeId id, const std::vector<std::size_t>& axes) const {
    const auto dims = g_[id].dims;
    if (axes.back() >= dims.size()) return false;
    const std::vector<std::int64_t> strides = memory_strides(g_, id);
    return std::ranges::all_of(axes, [&](std::size_t axis) {
      const std::int64_t inside = strides[axis], reach = inside * (dims[axis] - 1);
      for (std::size_t a = 0; a < dims.size(); ++a) {
        const bool next = std::ranges::count(axes, a) == 0 && dims[a] > 1 && strides[a] > 0;
        if (next && inside > 0 && strides[a] <= reach && strides[a] * (dims[a] - 1) >= reach &&
            (strides[a] % inside == 0 || inside % strides[a] == 0))
          return true;
      }
      return false;
    });
  }

  /// Returns the elements of the largest value that the steps begin with.
  std::int64_t take_steps(Found& f, std::vector<NodeId> steps) const {
    std::int64_t largest = 0;
    std::ranges::sort(steps);
    for (const NodeId step : steps) {
      f.steps.push_back({step, g_[step]});
      for (const NodeId in : g_[step].in)
        if (!std::ranges::binary_search(steps, in)) largest = std::max(largest, g_[in].numel);
    }
    return largest;
  }

  /// The maps that a value is made by for this reader alone. False: they are too many.
  bool find_steps(NodeId id, NodeId reader, std::size_t most, std::vector<NodeId>& steps) const {
    const GraphNode& n = g_[id];
    const bool own = std::ranges::all_of(reduced_.uses(id), [&](const ir::Use& u) {
      return u.reader == reader || std::ranges::count(steps, u.reader) > 0;
    });
    if (!ir::is_elementwise(n.op) || n.held || reduced_.is_root(id) || !own || std::ranges::count(steps, id))
      return true;
    if (steps.size() == most) return false;
    steps.push_back(id);
    return std::ranges::all_of(n.in, [&](NodeId in) { return find_steps(in, reader, most, steps); });
  }

  /// Element i of an axis, which stays with an extent of 1. `behind`: axes behind it.
  NodeId element(NodeId x, std::size_t behind, std::int64_t i) {
    const std::size_t rank = g_[x].dims.size();
    if (rank <= behind || g_[x].dims[rank - 1 - behind] == 1) return x;
    if (is_stack(g_[x], behind)) return g_[x].in[static_cast<std::size_t>(i)];
    const std::size_t axis = rank - 1 - behind;
    Shape dims(g_[x].dims);
    dims[static_cast<int>(axis)] = 1;
    std::vector<std::int64_t> first(rank, 0);
    const std::vector<std::int64_t> step(rank, 1);
    first[axis] = i;
    return add_.add(Op::slice, {x}, ir::Box(first, step), {.dims = g_.keep(dims)});
  }

  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }

  /// The operand of a reduction at one element of its axes, the i-th in row-major order.
  NodeId term(const GraphNode& reduction, const Found& f, std::int64_t i) {
    const Shape dims(g_[reduction.in[0]].dims);  // of the operand as it was
    const auto at_element = [&](NodeId x) {
      std::int64_t rest = i;
      for (std::size_t k = f.axes.size(); k-- > 0;) {
        const std::int64_t extent = dims[static_cast<int>(f.axes[k])];
        x = element(x, static_cast<std::size_t>(dims.rank()) - 1 - f.axes[k], rest % extent);
        rest /= extent;
      }
      return x;
    };
    if (f.steps.empty()) return at_element(reduction.in[0]);
    std::unordered_map<NodeId, NodeId> made;
    for (const Step& step : f.steps) {
      GraphNode n = step.node;
      Shape shape;
      for (NodeId& in : n.in) {
        in = made.contains(in) ? made.at(in) : at_element(now_[in]);
        shape = *ir::broadcast_dims(shape, g_[in].dims);
      }
      n.dims = g_.keep(shape);
      n.numel = shape.numel();
      made[step.id] = add_.push(n);
    }
    return made.at(f.steps.back().id);
  }

  NodeId written(const GraphNode& n, const Found& f) {
    add_.loc = n.loc;
    const DType type = is_half(n.dtype) ? DType::Float32 : n.dtype;
    const Op combine = *combination_of(n);
    // Sums begin at 0: of nothing but -0 they are 0.
    NodeId all = combine != Op::add
                     ? ir::kNoNode
                     : add_.add(Op::constant, {}, ir::Constant{0}, {.dtype = type, .dims = Shape{}});
    for (std::int64_t i = 0; i < f.terms; ++i) {
      NodeId next;
      if (n.op == Op::matmul)
        next =
            add_.add(Op::multiply, {cast(element(n.in[0], 0, i), type), cast(element(n.in[1], 1, i), type)});
      else
        next = cast(term(n, f, i), type);
      all = all == ir::kNoNode ? next : add_.add(combine, {all, next});
    }
    all = cast(all, n.dtype);
    g_[all].held = n.held;
    return all;
  }

  Graph& g_;
  const TermCosts& costs_;
  const OnlyReduced reduced_;
  const NestedPairs nested_;
  std::vector<std::optional<Found>> found_;
  std::vector<NodeId> now_;
  ir::Builder add_;
};

}  // namespace

Renumbering write_out_sums(Graph& graph, const TermCosts& costs) { return Writer(graph, costs).run(); }

}  // namespace kiln::transform
