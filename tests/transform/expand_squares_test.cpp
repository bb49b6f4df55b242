#include "transform/expand_squares.h"

#include "ir/graph_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

std::int64_t count(const GraphBuilder& b, Op op) {
  return std::ranges::count_if(b.graph.nodes, [&](const auto& n) { return n.op == op; });
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

/// Σ(x - m)² with m = Σx / n, and m; `number` is added to x.
void squares(GraphBuilder& b, const std::vector<std::int64_t>& dims, std::uint64_t axes, double number = 0,
             DType type = DType::Float32) {
  NodeId x = b.leaf(type, dims);
  if (type != DType::Float32) x = b.cast(x, DType::Float32);
  const auto constant = [&](float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return b.constant(DType::Float32, bits);
  };
  if (number != 0) x = b.op(Op::add, {x, constant(static_cast<float>(number))});
  std::int64_t n = 1;
  for (std::size_t a = 0; a < dims.size(); ++a)
    if (axes >> a & 1) n *= dims[a];
  const NodeId mean = b.op(Op::divide, {b.reduce(Op::reduce_sum, x, axes), constant(static_cast<float>(n))});
  const NodeId apart = b.op(Op::subtract, {x, mean});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {apart, apart}), axes));
  b.root(mean);
}

TEST(ExpandSquares, SumsOfXAndOfItsSquareInDoubles) {
  for (const double number : {0.0, 1000.0})
    for (const std::uint64_t axes : {1, 2, 3}) {
      GraphBuilder b;
      squares(b, {40, 60}, axes, number);
      const auto expected = b.values();
      expand_squares(b.graph, [](const ReducedRows&, NodeId) { return false; });
      ir::verify(b.graph);
      EXPECT_EQ(count(b, Op::subtract), 3);  // x less the mean, which nobody reads any more
      const auto found = b.values();
      for (std::size_t root = 0; root < 2; ++root) {
        const std::vector<float> now = floats(found[root]), before = floats(expected[root]);
        for (std::size_t i = 0; i < now.size(); ++i)
          EXPECT_NEAR(now[i], before[i], (number > 0 ? 1e-4f : 1e-5f) * std::abs(before[i])) << i;
      }
    }
}

TEST(ExpandSquares, EqualElementsHaveNoVariance) {
  GraphBuilder b;
  squares(b, {3, 64}, 2);
  const float value = 0.1f;
  for (int i = 0; i < 3 * 64; ++i)
    std::memcpy(b.memory(0).data() + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
  expand_squares(b.graph, [](const ReducedRows&, NodeId) { return false; });
  for (const float found : floats(b.values().front())) {
    EXPECT_GE(found, 0);
    EXPECT_LE(found, 64 * 1e-14f);
  }
}

TEST(ExpandSquares, AsksWhetherRowsStayOnChip) {
  const auto asked = [](const std::vector<std::int64_t>& dims, std::uint64_t axes, DType type) {
    GraphBuilder b;
    squares(b, dims, axes, 0, type);
    ReducedRows rows;
    expand_squares(b.graph, [&](const ReducedRows& r, NodeId) {
      rows = r;
      return true;
    });
    EXPECT_EQ(count(b, Op::cast), type == DType::Float32 ? 0 : 1);
    return rows;
  };
  const ReducedRows rows = asked({4, 1, 50}, 4, DType::Float32),
                    columns = asked({4, 50, 3, 8}, 2, DType::Float16),
                    mixed = asked({4, 50, 3, 8}, 10, DType::Float32);
  EXPECT_EQ(rows.rows, 4);
  EXPECT_EQ(rows.length, 50);
  EXPECT_FALSE(rows.columns || rows.mixed);
  EXPECT_EQ(columns.rows, 96);
  EXPECT_EQ(columns.run, 24);
  EXPECT_EQ(columns.bytes, 2);
  EXPECT_TRUE(columns.columns && !columns.mixed);
  EXPECT_TRUE(mixed.mixed && !mixed.columns);
  EXPECT_EQ(mixed.length, 400);
}

}  // namespace
}  // namespace kiln::transform
