#include "transform/join_rows.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

const JoinedRowCosts kCosts{};

using Extents = GraphBuilder::Extents;

/// Extents of what each reduction reads, of a maximum over some axes that becomes several.
std::vector<Extents> operands_of(const Extents& dims, std::uint64_t mask, DType dtype = DType::BFloat16,
                                 const JoinedRowCosts& costs = kCosts, Op op = Op::reduce_max) {
  GraphBuilder b;
  b.root(b.reduce(op, b.leaf(dtype, dims), mask));
  const auto before = b.values();
  join_rows(b.graph, costs);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  std::vector<Extents> out;
  for (const ir::GraphNode& n : b.graph.nodes)
    if (ir::is_reduce(n.op)) out.emplace_back(b.graph[n.in[0]].dims.begin(), b.graph[n.in[0]].dims.end());
  return out;
}

using Operands = std::vector<Extents>;

TEST(JoinRows, NarrowRowsBecomeWholeVectors) {
  EXPECT_EQ(operands_of({1024, 5}, 1), (Operands{{128, 40}, {8, 5}}));
  EXPECT_EQ(operands_of({1024, 61}, 1), (Operands{{128, 488}, {8, 61}}));
  EXPECT_EQ(operands_of({1027, 61}, 1), (Operands{{128, 488}, {11, 61}}));  // three rows are left
  EXPECT_EQ(operands_of({3, 1024, 61}, 2), (Operands{{3, 128, 488}, {3, 8, 61}}));
  EXPECT_EQ(operands_of({3, 32, 1, 32, 61}, 0b1010), (Operands{{3, 128, 488}, {3, 8, 61}}));
  EXPECT_EQ(operands_of({2048, 61}, 1, DType::Int8), (Operands{{128, 976}, {16, 61}}));
}

/// Few columns, which threads share by vectors then.
TEST(JoinRows, FewColumnsBecomeMany) {
  EXPECT_EQ(operands_of({4096, 3}, 1), (Operands{{64, 192}, {64, 3}}));
  EXPECT_EQ(operands_of({4096, 3}, 1, DType::Float32), (Operands{{128, 96}, {32, 3}}));
}

/// Items begin where a shorter vector does.
TEST(JoinRows, VectorsAreThoseOfItems) {
  EXPECT_EQ(operands_of({3, 1030, 61}, 2), (Operands{{3, 515, 122}, {3, 2, 61}}));
  EXPECT_EQ(operands_of({3, 1031, 61}, 2), (Operands{{3, 1031, 61}}));
}

TEST(JoinRows, OtherReductionsStay) {
  EXPECT_EQ(operands_of({1024, 64}, 1), (Operands{{1024, 64}}));                  // whole vectors
  EXPECT_EQ(operands_of({1024, 62}, 1), (Operands{{1024, 62}}));                  // words
  EXPECT_EQ(operands_of({1024, 61}, 1, DType::Float32), (Operands{{1024, 61}}));  // wide elements
  EXPECT_EQ(operands_of({100, 61}, 1), (Operands{{100, 61}}));                    // few rows
  EXPECT_EQ(operands_of({1024, 61}, 2), (Operands{{1024, 61}}));                  // rows
  EXPECT_EQ(operands_of({64, 16, 61}, 0b101), (Operands{{64, 16, 61}}));
  EXPECT_EQ(operands_of({1024, 61}, 1, DType::BFloat16, {.launch_bytes = 1e6}), (Operands{{1024, 61}}));
  GraphBuilder b;
  b.root(b.reduce(Op::reduce_argmax, b.leaf(DType::BFloat16, {1024, 61}), 1));
  join_rows(b.graph, kCosts);
  EXPECT_EQ(b.graph.size(), 2u);
}

/// Maps come along, and what is added up of halves is not rounded between.
TEST(JoinRows, OfMaps) {
  GraphBuilder b;
  const NodeId x = b.cast(b.leaf(DType::BFloat16, {1027, 61}), DType::Float32),
               y = b.cast(b.leaf(DType::BFloat16, {1027, 61}), DType::Float32);
  b.root(b.reduce(Op::reduce_max, b.op(Op::abs, {b.op(Op::multiply, {x, y})}), 1));
  const auto before = b.values();
  join_rows(b.graph, kCosts);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  EXPECT_EQ(count(b, Op::reduce_max), 2);

  GraphBuilder sums;
  sums.root(sums.reduce(Op::reduce_sum, sums.leaf(DType::BFloat16, {1024, 61}), 1));
  join_rows(sums.graph, kCosts);
  ir::verify(sums.graph);
  for (const ir::GraphNode& n : sums.graph.nodes)
    if (ir::is_reduce(n.op)) EXPECT_EQ(n.dtype, DType::Float32);
}

/// What shares a reading with others goes on to do so.
TEST(JoinRows, NotWhereOthersReadTheSame) {
  const auto reductions = [](bool dependent, std::int64_t columns, std::int64_t held) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int16, {2048, columns});
    const NodeId most = b.reduce(Op::reduce_max, x, 1);
    b.root(dependent ? b.op(Op::subtract, {x, b.reshape(most, {1, columns})})
                     : b.reduce(Op::reduce_min, x, 2));
    b.root(most);
    const auto before = b.values();
    join_rows(b.graph, {.held = held});
    ir::verify(b.graph);
    EXPECT_EQ(before, b.values()) << ir::print(b.graph);
    return count(b, Op::reduce_max);
  };
  EXPECT_EQ(reductions(true, 61, 0), 2);
  EXPECT_EQ(reductions(true, 61, 4096), 2);  // no block keeps such columns
  EXPECT_EQ(reductions(true, 6, 0), 2);
  EXPECT_EQ(reductions(true, 6, 4096), 1);
  EXPECT_EQ(reductions(false, 61, 0), 1);
}

}  // namespace
}  // namespace kiln::transform
