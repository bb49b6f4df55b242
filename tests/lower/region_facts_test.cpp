// The lanes of a region, held against the oracle.
#include "lower/lowered_graph.h"

#include <functional>
#include <string>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32, i64 = DType::Int64;

/// Lanes of the loop that finds the greatest of the elements that `where` chooses, by 512-bit vectors.
int lanes_of(const std::function<NodeId(GraphBuilder&, NodeId label, NodeId column)>& where) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {6, 40}), label = b.broadcast(b.leaf(i64, {6, 1}), {6, 40});
  const NodeId chosen = where(b, label, b.iota(i64, {6, 40}, 1));
  b.root(b.reduce(Op::reduce_max, b.op(Op::where, {chosen, x, b.broadcast(b.scalar(f32, 0), {6, 40})}), 2));
  const std::string text = checked(b, {cpu(64)}).front().text(), vector = "vectorx";
  const std::size_t at = text.find(vector);
  return at == std::string::npos ? 0 : std::stoi(text.substr(at + vector.size()));
}

/// Labels of 64 bits and the columns that they are compared with: floats have lanes of their own width. Sums
/// of labels would take an instruction for each register.
TEST(Lanes, NumbersThatAreOnlyComparedDoNotCount) {
  const int compared =
      lanes_of([](GraphBuilder& b, NodeId label, NodeId column) { return b.op(Op::equal, {label, column}); });
  const int added = lanes_of([](GraphBuilder& b, NodeId label, NodeId column) {
    return b.op(Op::equal, {b.op(Op::add, {label, column}), column});
  });
  EXPECT_GT(added, 0);
  EXPECT_EQ(compared, 2 * added);
}

}  // namespace
}  // namespace kiln::lower
