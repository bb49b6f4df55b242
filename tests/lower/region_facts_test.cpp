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

/// Lanes of the loop over rows of which the first elements are padded.
int lanes_of_padded(std::int64_t padded, std::int64_t row, int vector_bytes) {
  GraphBuilder b;
  const auto zeros = static_cast<std::uint64_t>(padded), all = static_cast<std::uint64_t>(row);
  const NodeId x = b.leaf(DType::Float16, {700, 12, all - zeros});
  b.root(
      b.op(Op::negative, {b.pad(x, b.constant(DType::Float16, 0), {700, 12, all}, {0, 1, 0, 1, zeros, 1})}));
  const std::string text = checked(b, {cpu(vector_bytes)}).front().text(), vector = "vectorx";
  const std::size_t at = text.find(vector);
  return at == std::string::npos ? 0 : std::stoi(text.substr(at + vector.size()));
}

/// Vectors end where an operand does: each has all of its elements or none.
TEST(Lanes, VectorsOfRowsEndWhereGuardsChange) {
  EXPECT_EQ(lanes_of_padded(32, 64, 32), 32);
  EXPECT_EQ(lanes_of_padded(16, 32, 32), 16);
  EXPECT_EQ(lanes_of_padded(16, 32, 64), 32) << "has masks for loads";
  EXPECT_EQ(lanes_of_padded(40, 80, 32), 8);
  EXPECT_EQ(lanes_of_padded(20, 40, 32), lanes_of_padded(21, 40, 32)) << "no vectors end there";
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
