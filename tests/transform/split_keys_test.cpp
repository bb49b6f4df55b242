#include "transform/split_keys.h"

#include "transform/dce.h"
#include "transform/transformed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Extents {
  std::int64_t batch = 2, rows = 3, keys = 24, depth = 4, width = 5;
};

/// softmax(f(q kT)) v of arguments 0, 1 and 2.
NodeId attention(GraphBuilder& b, const Extents& e, const std::function<NodeId(NodeId)>& f,
                 DType dtype = DType::Float32) {
  const NodeId q = b.leaf(dtype, {e.batch, e.rows, e.depth}), k = b.leaf(dtype, {e.batch, e.keys, e.depth}),
               v = b.leaf(dtype, {e.batch, e.keys, e.width});
  NodeId scores = b.matmul(q, b.permute(k, {0, 2, 1}));
  if (dtype != DType::Float32) scores = b.cast(scores, DType::Float32);
  const NodeId t = f(scores);
  const NodeId exps = b.op(Op::exp, {b.op(Op::subtract, {t, b.reduce(Op::reduce_max, t, 4)})});
  const NodeId weights = b.op(Op::divide, {exps, b.reduce(Op::reduce_sum, exps, 4)});
  return b.matmul(dtype == DType::Float32 ? weights : b.cast(weights, dtype), v);
}

std::vector<float> floats(const GraphBuilder& b) {
  const std::vector<std::byte> bytes = b.values().front();
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

constexpr KeyCosts kCosts{.blocks = 16, .small_blocks = 16, .least_keys = 4, .small_keys = 4};

/// How many parts the keys of the root, an attention, get; expects that its values stay but for the last
/// bits.
std::int64_t parts_of(GraphBuilder& b, NodeId root, const KeyCosts& costs = kCosts) {
  b.root(root);
  const std::int64_t keys = b.graph[b.graph[root].in[0]].dims.back();
  const std::vector<float> before = floats(b);
  split_keys(b.graph, costs);
  dce(b.graph);
  ir::verify(b.graph);
  const std::vector<float> after = floats(b);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(std::abs(before[i] - after[i]) <= 1e-5f * (1 + std::abs(before[i])) ||
                (std::isnan(before[i]) && std::isnan(after[i])))
        << i << ": " << before[i] << ", " << after[i] << '\n'
        << ir::print(b.graph);
  for (const ir::GraphNode& n : b.graph.nodes)
    if (n.op == Op::exp && n.dims.back() > 1) return n.dims.back() == keys ? 1 : n.dims[n.dims.size() - 3];
  return 0;
}

NodeId scaled(GraphBuilder& b, NodeId scores) {
  const auto number = [&](float x) { return b.scalar(DType::Float32, std::bit_cast<std::uint32_t>(x)); };
  return b.op(Op::add, {b.op(Op::multiply, {number(0.01f), scores}), number(0.5f)});
}

TEST(SplitKeys, FewRowsAgainstManyKeys) {
  GraphBuilder b;
  EXPECT_EQ(parts_of(b, attention(b, {}, [&](NodeId s) { return scaled(b, s); })), 6);
  GraphBuilder few;  // blocks are enough then
  EXPECT_EQ(parts_of(few, attention(few, {.batch = 12}, [&](NodeId s) { return scaled(few, s); })), 1);
  GraphBuilder prime;  // parts of 11 keys, one of which they share
  EXPECT_EQ(parts_of(prime, attention(prime, {.keys = 23}, [&](NodeId s) { return scaled(prime, s); })), 2);
  GraphBuilder seventeen;  // more of them: of 17 keys, one of which each neighbour has too
  EXPECT_EQ(
      parts_of(seventeen, attention(seventeen, {.keys = 97}, [&](NodeId s) { return scaled(seventeen, s); })),
      6);
  const auto of_width = [](std::int64_t rows, std::int64_t width) {
    GraphBuilder wide;
    return parts_of(
        wide, attention(wide, {.rows = rows, .width = width}, [&](NodeId s) { return scaled(wide, s); }));
  };
  EXPECT_EQ(of_width(3, 80), 6);
  EXPECT_EQ(of_width(1, 80), 1);  // a product by a vector
  EXPECT_EQ(of_width(3, 256), 6);
  EXPECT_EQ(of_width(3, 264), 1);
  GraphBuilder many;
  EXPECT_EQ(parts_of(many, attention(many, {.rows = 65}, [&](NodeId s) { return scaled(many, s); })), 1);
}

TEST(SplitKeys, Halves) {
  for (const DType half : {DType::Float16, DType::BFloat16}) {
    GraphBuilder b;
    const NodeId root = attention(b, {}, [&](NodeId s) { return scaled(b, s); }, half);
    b.root(root);
    split_keys(b.graph, kCosts);
    ir::verify(b.graph);
    EXPECT_EQ(b.graph[b.graph.roots[0]].dtype, half);
    EXPECT_NE(b.graph[b.graph.roots[0]].op, Op::matmul);
  }
}

/// A part of nothing but -inf adds nothing, and a row of nothing else is NaN, as is one with an infinity.
TEST(SplitKeys, InfiniteScores) {
  for (const float odd : {-kInf, kInf, std::nanf("")})
    for (const std::int64_t first : {0, 8, 9, 20})
      for (const std::int64_t count : {1, 4, 16, 24}) {
        GraphBuilder b;
        const NodeId root = attention(b, {.batch = 1, .depth = 1}, [&](NodeId s) { return scaled(b, s); });
        std::vector<std::byte>& q = b.memory(0);
        std::vector<std::byte>& k = b.memory(1);
        const float one = 1;
        for (int row = 0; row < 3; ++row) std::memcpy(q.data() + 4 * row, &one, 4);
        for (std::int64_t j = first; j < std::min<std::int64_t>(24, first + count); ++j)
          std::memcpy(k.data() + 4 * j, &odd, 4);
        EXPECT_EQ(parts_of(b, root), 6);
      }
}

TEST(SplitKeys, OthersStay) {
  GraphBuilder read;  // by somebody else
  const NodeId root = attention(read, {}, [&](NodeId s) { return scaled(read, s); });
  read.graph[read.graph[root].in[0]].held = true;
  EXPECT_EQ(parts_of(read, root), 1);
  GraphBuilder masked;
  EXPECT_EQ(parts_of(masked, attention(masked, {},
                                       [&](NodeId s) {
                                         return masked.op(Op::add,
                                                          {s, masked.leaf(DType::Float32, {1, 3, 24})});
                                       })),
            1);
  GraphBuilder rows;
  EXPECT_EQ(parts_of(rows, attention(rows, {},
                                     [&](NodeId s) {
                                       return rows.op(Op::multiply,
                                                      {s, rows.leaf(DType::Float32, {1, 3, 1})});
                                     })),
            1);
}

}  // namespace
}  // namespace kiln::transform
