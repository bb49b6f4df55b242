// Terminates: one walk in topological order; a product becomes itself and at most seven nodes around it.
#include "transform/pad_products.h"

#include "ir/builder.h"
#include "transform/memory_strides.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kSlowTile = 128, kFastTile = 64;  // columns that a library's tiles fill up to
constexpr std::int64_t kLeast = 16;                      // rows and columns: fewer are no tile's
constexpr double kMargin = 1.2;                          // what padding must bring at least
constexpr double kByElements = 3;  // times that memory takes where a library moves single elements

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

class Padder {
 public:
  Padder(Graph& graph, const PadCosts& costs) : g_(graph), costs_(costs), add_(graph), wanted_(graph.size()) {
    for (NodeId id = 0; id < graph.size(); ++id)
      wanted_[id] = graph[id].op == Op::matmul && is_half(graph[id].dtype) && pays(id);
    if (!costs.by_others || std::ranges::find(wanted_, true) == wanted_.end()) return;
    const std::vector<bool> by_others = costs.by_others(graph);
    for (NodeId id = 0; id < graph.size(); ++id) wanted_[id] = wanted_[id] && !by_others[id];
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) { return wanted_[id] ? padded(n) : add_.push(n); });
  }

 private:
  /// How an operand gets to a library: as it lies, stored anew in row-major order, or so with zeros behind.
  enum class Copy : std::uint8_t { None, Arranged, Padded };
  struct Form {
    std::int64_t terms, columns;  // multiples of the unit
    Copy x, y;
    bool any() const { return x != Copy::None || y != Copy::None; }
  };
  Form form_of(const GraphNode& n) const {
    const std::int64_t terms = g_[n.in[0]].dims.back(), columns = n.dims.back(),
                       all_terms = round_up(terms, costs_.unit), all_columns = round_up(columns, costs_.unit);
    const auto copy = [&](NodeId in, bool longer) {
      return longer ? Copy::Padded : begins_at_units(in) ? Copy::None : Copy::Arranged;
    };
    return {all_terms, all_columns, copy(n.in[0], all_terms != terms),
            copy(n.in[1], all_terms != terms || all_columns != columns)};
  }

  /// Whether rows, or columns, of an operand lie element by element and begin at units.
  bool begins_at_units(NodeId id) const {
    const std::vector<std::int64_t> strides = memory_strides(g_, id);
    const ir::Dims dims = g_[id].dims;
    int along = 0;  // axes of adjacent elements
    for (std::size_t a = 0; a < strides.size(); ++a) {
      if (dims[a] == 1 || strides[a] % costs_.unit == 0) continue;
      if (strides[a] != 1 || a + 2 < strides.size()) return false;
      ++along;
    }
    return along == 1;
  }
  /// Whether an operand has an element of memory for each of its own: no window of it, and no row of all
  /// rows.
  bool is_its_own(NodeId id) const {
    const std::int64_t elements = g_[id].numel;
    while (ir::is_view(g_[id].op) && !g_[id].in.empty()) id = g_[id].in[0];
    return g_[id].numel >= elements;
  }
  double bytes_of(std::int64_t elements) const { return 2.0 * static_cast<double>(elements); }

  bool pays(NodeId id) const {
    const GraphNode& n = g_[id];
    if (n.dims.size() < 2 || n.numel == 0 || g_[n.in[0]].dims.back() == 0) return false;
    if (n.dims.back() < kLeast || n.dims[n.dims.size() - 2] < kLeast) return false;
    const NodeId x = n.in[0], y = n.in[1];
    if (g_[x].dims.size() != n.dims.size() || g_[y].dims.size() != n.dims.size()) return false;
    const Form f = form_of(n);
    if (!f.any() || (f.x != Copy::None && !is_its_own(x)) || (f.y != Copy::None && !is_its_own(y)))
      return false;
    const auto flops = [&](std::int64_t tile) {
      const auto columns = static_cast<double>(round_up(n.dims.back(), tile));
      return 2.0 * static_cast<double>(n.numel / n.dims.back()) * columns * static_cast<double>(f.terms);
    };
    const auto copied = [&](NodeId in, Copy copy) {
      return copy == Copy::None ? 0 : costs_.launch_ns + costs_.moved_ns(2 * bytes_of(g_[in].numel));
    };
    const double moved = costs_.moved_ns(bytes_of(g_[x].numel + g_[y].numel + n.numel)),
                 slow = std::max(flops(kSlowTile) / costs_.slow_per_ns, kByElements * moved),
                 made = std::max(flops(kFastTile) / costs_.fast_per_ns, moved);
    return kMargin * (made + copied(x, f.x) + copied(y, f.y)) < slow;
  }

  /// An operand with so many rows and columns, zeros behind those that it has.
  NodeId copied(NodeId x, Copy copy, std::int64_t rows, std::int64_t columns) {
    if (copy == Copy::None) return x;
    if (copy == Copy::Arranged) return add_.add(Op::arrange, {x});
    Shape dims(g_[x].dims);
    const int rank = dims.rank();
    dims[rank - 2] = rows;
    dims[rank - 1] = columns;
    const std::vector<std::int64_t> first(static_cast<std::size_t>(rank), 0),
        step(static_cast<std::size_t>(rank), 1);
    const NodeId zero =
        add_.add(Op::constant, {}, ir::Constant{0}, {.dtype = g_[x].dtype, .dims = ir::Dims()});
    x = add_.add(Op::pad, {x, zero}, ir::Box(first, step), {.dims = g_.keep(dims)});
    return add_.add(Op::arrange, {x});  // as it is: nobody takes the zeros for those around an image
  }

  NodeId padded(const GraphNode& n) {
    add_.loc = n.loc;
    const Form f = form_of(n);
    const NodeId x = copied(n.in[0], f.x, n.dims[n.dims.size() - 2], f.terms),
                 y = copied(n.in[1], f.y, f.terms, f.columns);
    GraphNode product = n;
    product.in = {x, y};
    product.held = false;
    Shape dims(n.dims);
    dims[dims.rank() - 1] = f.columns;
    product.dims = g_.keep(dims);
    product.numel = dims.numel();
    NodeId out = add_.push(std::move(product));
    if (f.columns != n.dims.back()) {
      const std::vector<std::int64_t> first(n.dims.size(), 0), step(n.dims.size(), 1);
      out = add_.add(Op::slice, {out}, ir::Box(first, step), {.dims = n.dims});
    }
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  const PadCosts& costs_;
  ir::Builder add_;
  std::vector<bool> wanted_;
};

}  // namespace

Renumbering pad_products(Graph& graph, const PadCosts& costs) { return Padder(graph, costs).run(); }

}  // namespace kiln::transform
