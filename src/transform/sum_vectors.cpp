// Terminates: one walk in topological order; a product becomes a dozen nodes at most. Each look at what makes
// a matrix goes from a node to one of its operands.
#include "transform/sum_vectors.h"

#include "ir/builder.h"
#include "transform/memory_strides.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"
#include "transform/turned.h"

#include <kiln/shape.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kMostElements = std::numeric_limits<std::int32_t>::max();  // whose places have 32 bits
constexpr std::size_t kMostMakers = 64;                                           // nodes that are looked at
constexpr std::int64_t kMostVectors = 2;  // each of which reads the matrix, from memory where that is large

class Summer {
 public:
  Summer(Graph& graph, const VectorCosts& costs)
      : g_(graph), costs_(costs), readers_(graph.size()), add_(graph) {
    for (const GraphNode& n : graph.nodes)
      for (const NodeId in : n.in) ++readers_[in];
    for (const NodeId root : graph.roots) ++readers_[root];
    for (NodeId id = 0; id < graph.size(); ++id) sums_.push_back(pays(graph[id]));
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      if (is_outer(n)) return outer(n);
      return !sums_[id] ? add_.push(n) : costs_.apart ? sums_apart(n) : sum(n);
    });
  }

 private:
  struct Operands {
    NodeId matrix, vectors;
    std::size_t k;       // the axis of the matrix, of its last two, that is summed
    std::int64_t count;  // of vectors
  };
  static Operands operands(const GraphNode& n) {
    const std::int64_t rows = n.dims[n.dims.size() - 2], columns = n.dims.back();
    return rows <= columns ? Operands{n.in[1], n.in[0], 0, rows} : Operands{n.in[0], n.in[1], 1, columns};
  }

  static bool is_one_matrix(const GraphNode& n) {
    return std::ranges::all_of(n.dims.first(n.dims.size() - 2), [](std::int64_t d) { return d == 1; });
  }

  bool is_outer(const GraphNode& n) const {
    return n.op == Op::matmul && is_float(n.dtype) && is_one_matrix(n) && g_[n.in[0]].dims.back() == 1;
  }

  /// The sum of one product and of 0, from which sums begin: a product that is -0 becomes 0.
  NodeId outer(const GraphNode& n) {
    add_.loc = n.loc;
    const NodeId product = add_.add(Op::multiply, {n.in[0], n.in[1]});
    const NodeId zero = add_.add(Op::constant, {}, ir::Constant{0}, {.dtype = n.dtype, .dims = Shape{}});
    const NodeId sum = add_.add(Op::add, {product, zero});
    g_[sum].held = n.held;
    return sum;
  }

  bool pays(const GraphNode& n) const {
    if (n.op != Op::matmul || !is_float(n.dtype) || n.numel == 0 || !is_one_matrix(n)) return false;
    const Operands o = operands(n);
    if (o.count > kMostVectors || g_[o.matrix].numel == 0) return false;
    if (costs_.apart) {
      const std::int64_t k = g_[n.in[0]].dims.back();
      const bool across = (o.k == 0) != is_turned(o.matrix);
      return k <= (across ? costs_.most_across : costs_.most_terms) &&
             (o.count == 1 || k <= costs_.most_of_two) && g_[o.matrix].numel <= kMostElements &&
             g_[o.matrix].numel / k >= costs_.least_sums;
    }
    if (is_made(o.matrix)) return true;
    // several sums along adjacent elements of one register the library makes faster
    const bool along = (o.k == 1) != is_turned(o.matrix);
    return is_half(n.dtype) && (o.count == 1 || !along);
  }

  /// Whether a map makes it for this product alone.
  bool is_made(NodeId id) const {
    for (; readers_[id] == 1; id = g_[id].in[0]) {
      if (ir::is_elementwise(g_[id].op)) return true;
      if (!ir::is_view(g_[id].op)) return false;
    }
    return false;
  }

  /// Whether the last two axes lie the other way round in the memory that it is made of.
  bool is_turned(NodeId id) const {
    const std::vector<std::int64_t> strides = memory_strides(g_, id);
    return std::abs(strides.back()) > std::abs(strides[strides.size() - 2]);
  }

  NodeId shown_as(NodeId x, const Shape& dims) {
    return Shape(g_[x].dims) == dims ? x : add_.add(Op::reshape, {x}, {}, {.dims = dims});
  }

  /// As floats of 32 bits and more, with these extents.
  NodeId shown(NodeId x, const Shape& dims) {
    if (is_half(g_[x].dtype)) x = add_.add(Op::cast, {x}, {}, {.dtype = DType::Float32});
    return shown_as(x, dims);
  }

  /// Whether maps make two adjacent elements each of one byte, as unpack_int4 does. Then a sum takes the
  /// first ones of all bytes and the second ones apart, so that bytes are read side by side.
  bool shows_twice(NodeId id) const {
    std::vector<NodeId> at{id};
    for (std::size_t i = 0; i < at.size() && i < kMostMakers; ++i) {
      const GraphNode& n = g_[at[i]];
      if (n.op == Op::broadcast) {
        const GraphNode& x = g_[n.in[0]];
        if (size_of(n.dtype) == 1 && n.dims.back() == 2 && x.numel * 2 == n.numel && x.dims.back() == 1)
          return true;
      } else if (ir::is_view(n.op) || ir::is_elementwise(n.op)) {
        for (const NodeId in : n.in)  // whose elements these are
          if (g_[in].numel == n.numel) at.push_back(in);
      }
    }
    return false;
  }

  /// Of the last axis.
  NodeId every_second(NodeId x, std::int64_t first) {
    Shape dims(g_[x].dims);
    std::vector<std::int64_t> start(g_[x].dims.size(), 0), step(g_[x].dims.size(), 1);
    dims[dims.rank() - 1] /= 2;
    start.back() = first;
    step.back() = 2;
    return add_.add(Op::slice, {x}, ir::Box(start, step), {.dims = g_.keep(dims)});
  }

  NodeId sum(const GraphNode& n) {
    add_.loc = n.loc;
    const Operands o = operands(n);
    const bool by_columns = o.k == 1 && o.count > 1;  // then the vectors are columns, and so are the results
    const ir::Dims dims = g_[o.matrix].dims.last(2);
    const std::int64_t extent = dims[o.k], others = dims[1 - o.k];
    std::size_t k = o.k;
    NodeId matrix = shown(o.matrix, Shape{dims[0], dims[1]});
    if (is_turned(o.matrix)) matrix = turned(g_, add_, matrix), k = 1 - k;
    NodeId vectors = o.vectors;
    if (by_columns) vectors = turned(g_, add_, shown(vectors, Shape{extent, o.count}));
    vectors = shown(vectors, k == 0 ? Shape{o.count, extent, 1} : Shape{o.count, 1, extent});
    matrix = shown(matrix, k == 0 ? Shape{1, extent, others} : Shape{1, others, extent});
    NodeId products = ir::kNoNode;
    if (k == 1 && extent % 2 == 0 && shows_twice(o.matrix))
      for (const std::int64_t which : {0, 1}) {
        const NodeId each =
            add_.add(Op::multiply, {every_second(matrix, which), every_second(vectors, which)});
        products = which == 0 ? each : add_.add(Op::add, {products, each});
      }
    else
      products = add_.add(Op::multiply, {matrix, vectors});
    NodeId sum = add_.add(Op::reduce_sum, {products}, ir::Reduce{std::uint64_t{2} << k});
    if (g_[sum].dtype != n.dtype) sum = add_.add(Op::cast, {sum}, {}, {.dtype = n.dtype});
    if (by_columns) sum = turned(g_, add_, shown_as(sum, Shape{o.count, others}));
    sum = shown_as(sum, Shape(n.dims));
    g_[sum].held = n.held;
    return sum;
  }

  /// Of each vector a reduction of its own, which one kernel makes of the matrix as it is read once.
  NodeId sums_apart(const GraphNode& n) {
    add_.loc = n.loc;
    const Operands o = operands(n);
    const bool columns = o.k == 1;  // the vectors are, and so are the results
    const ir::Dims dims = g_[o.matrix].dims.last(2);
    const std::int64_t extent = dims[o.k], others = dims[1 - o.k];
    const NodeId matrix = shown(o.matrix, Shape{dims[0], dims[1]}),
                 vectors = shown_as(o.vectors, columns ? Shape{extent, o.count} : Shape{o.count, extent});
    std::vector<NodeId> sums;
    for (std::int64_t i = 0; i < o.count; ++i) {
      NodeId vector = vectors;
      if (o.count > 1) {
        const Shape one = columns ? Shape{extent, 1} : Shape{1, extent};
        const std::int64_t first[] = {columns ? 0 : i, columns ? i : 0}, step[] = {1, 1};
        vector = add_.add(Op::slice, {vectors}, ir::Box(first, step), {.dims = g_.keep(one)});
      }
      vector = shown(vector, columns ? Shape{1, extent} : Shape{extent, 1});
      const NodeId products = add_.add(Op::multiply, {matrix, vector});
      NodeId sum = add_.add(Op::reduce_sum, {products}, ir::Reduce{std::uint64_t{1} << o.k});
      if (g_[sum].dtype != n.dtype) sum = add_.add(Op::cast, {sum}, {}, {.dtype = n.dtype});
      sums.push_back(shown_as(sum, columns ? Shape{others, 1} : Shape{1, others}));
    }
    NodeId all = sums.front();
    if (o.count > 1) all = add_.add(Op::join, ir::Operands(sums), ir::Join{columns ? 1u : 0u});
    all = shown_as(all, Shape(n.dims));
    g_[all].held = n.held;
    return all;
  }

  Graph& g_;
  const VectorCosts& costs_;
  std::vector<int> readers_;
  std::vector<bool> sums_;  // of the graph as it was
  ir::Builder add_;
};

}  // namespace

Renumbering sum_vectors(Graph& graph, const VectorCosts& costs) { return Summer(graph, costs).run(); }

}  // namespace kiln::transform
