// Terminates: one walk in topological order; an operand's views are made once more, below them a conversion
// is left out. What nobody reads then goes with dce.
//
// Products with few rows or columns stay: they take the time of reading an operand, or of a launch. So do
// those of attentions, whose main loops take halves.
#include "plan/multiply_bytes.h"

#include "ir/builder.h"
#include "ir/float8_product.h"
#include "plan/fuse.h"
#include "plan/made_operands.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;

/// Whether a view says nothing of its elements but where they are.
bool only_moves(Op op) {
  return op == Op::reshape || op == Op::permute || op == Op::slice || op == Op::broadcast;
}

class Multiplier {
 public:
  Multiplier(ir::Graph& g, const schedule::Target& target)
      : g_(g), target_(target), add_(g), tiled_(tiled_nodes(g, target)) {}

  transform::Renumbering run() {
    return transform::rebuild(g_, [&](NodeId id, GraphNode n) {
      if (n.op == Op::matmul && !tiled_[id]) multiply(n);
      return add_.push(n);
    });
  }

 private:
  /// A product with its bytes as operands, where a main loop takes them.
  void multiply(GraphNode& product) {
    constexpr std::int64_t kFew = 64,
                           kMostPoints = std::int64_t{1} << 31;  // which a main loop counts in 32 bits
    const std::size_t rank = product.dims.size();
    if (!is_half(product.dtype) || std::min(product.dims[rank - 1], product.dims[rank - 2]) <= kFew ||
        product.numel >= kMostPoints)
      return;
    bool e5m2[2];
    for (int operand : {0, 1})
      if (!converted(product.in[static_cast<std::size_t>(operand)], e5m2[operand])) return;
    GraphNode bytes = product;
    bytes.held = false;
    for (NodeId& in : bytes.in) in = bytes_of(in);
    ir::mark_float8(bytes, e5m2);
    if (!suits_copy_engine(g_, target_, bytes)) return;
    product.in = bytes.in;
    product.attr64 = bytes.attr64;
  }

  /// Whether a value is 8-bit floats, in another order perhaps. A float holds each of them.
  bool converted(NodeId id, bool& e5m2) const {
    const GraphNode& n = g_[id];
    if (n.op == Op::from_float8_e4m3fn || n.op == Op::from_float8_e5m2) {
      e5m2 = n.op == Op::from_float8_e5m2;
      return true;
    }
    return (only_moves(n.op) || (n.op == Op::cast && is_float(n.dtype))) && converted(n.in[0], e5m2);
  }

  NodeId bytes_of(NodeId id) {
    GraphNode n = g_[id];
    if (n.op == Op::from_float8_e4m3fn || n.op == Op::from_float8_e5m2) return n.in[0];
    n.in[0] = bytes_of(n.in[0]);
    if (n.op == Op::cast) return n.in[0];
    n.dtype = DType::UInt8;
    n.held = false;
    return add_.push(n);
  }

  ir::Graph& g_;
  const schedule::Target& target_;
  ir::Builder add_;
  std::vector<bool> tiled_;
};

}  // namespace

bool multiplies_float8(const schedule::Target& target) {
  constexpr int kAda = 89, kHopper = 90;
  return target.gpu && (target.architecture == kAda || target.architecture == kHopper) &&
         target.templates >= schedule::Target::Templates::Few;
}

transform::Renumbering multiply_bytes(ir::Graph& graph, const schedule::Target& target) {
  return Multiplier(graph, target).run();
}

}  // namespace kiln::plan
