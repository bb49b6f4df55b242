#include "transform/write_out_sums.h"

#include "ir/builder.h"
#include "transform/dce.h"
#include "transform/split_joins.h"
#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// Whether the node becomes maps, while the values stay.
bool is_written_out(GraphBuilder& b, NodeId root, Op op, std::int64_t most_terms = 3) {
  b.root(root);
  const auto before = b.values();
  write_out_sums(b.graph, {.most_terms = most_terms, .pairs = 4});
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);  // halves of small numbers: every sum is exact
  dce(b.graph);
  ir::verify(b.graph);
  return std::ranges::none_of(b.graph.nodes, [&](const auto& n) {
    return n.op == op && n.dims[n.dims.size() - 1] == (op == Op::matmul ? 8 : 1) && n.numel > 8;
  });
}

/// |x[i, k] - y[j, k]|
NodeId pairs(GraphBuilder& b, DType dtype, std::int64_t terms) {
  return b.op(Op::abs, {b.op(Op::subtract, {b.leaf(dtype, {8, 1, terms}), b.leaf(dtype, {1, 8, terms})})});
}

TEST(WriteOutSums, ReductionsOfPairsThatAreReducedFurther) {
  for (const DType dtype : {DType::Float32, DType::Float64})
    for (const Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_prod})
      for (const std::int64_t terms : {2, 3}) {
        GraphBuilder b;
        const NodeId inner = b.reduce(op, pairs(b, dtype, terms), 4);
        EXPECT_TRUE(is_written_out(b, b.reduce(Op::reduce_argmin, inner, 2), op)) << terms;
      }
  GraphBuilder halves;
  const NodeId wide =
      halves.cast(halves.reduce(Op::reduce_sum, pairs(halves, DType::BFloat16, 3), 4), DType::Float32);
  EXPECT_TRUE(is_written_out(halves, halves.reduce(Op::reduce_max, wide, 2), Op::reduce_sum));
}

/// Results that are wanted themselves become maps where the terms are very few.
TEST(WriteOutSums, ReductionsOfPairsThatAreStored) {
  for (const std::int64_t terms : {2, 3}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_max, pairs(b, DType::Float32, terms), 4));
    const auto before = b.values();
    write_out_sums(b.graph, {.most_terms = 4, .most_stored = 2, .pairs = 4});
    EXPECT_EQ(before, b.values());
    dce(b.graph);
    const auto left = std::ranges::count(b.graph.nodes, Op::reduce_max, &ir::GraphNode::op);
    EXPECT_EQ(left, terms == 2 ? 0 : 1);
  }
}

/// Elements of the results that are picked are few, as the label's of a loss.
TEST(WriteOutSums, ProductsOfWhichElementsArePicked) {
  GraphBuilder b;
  const NodeId product = b.matmul(b.leaf(DType::Float32, {8, 3}), b.leaf(DType::Float32, {3, 8}));
  const NodeId label = b.iota(DType::Int64, {8, 1}, 0);
  const NodeId picked = b.add(Op::gather, {product, label}, ir::Gather{1}, {.dims = Shape{8, 1}});
  EXPECT_TRUE(
      is_written_out(b, b.op(Op::subtract, {b.reduce(Op::reduce_max, product, 2), picked}), Op::matmul));
}

TEST(WriteOutSums, ProductsWithShortSumsThatAreReduced) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    GraphBuilder b;
    const NodeId product = b.matmul(b.leaf(dtype, {2, 8, 3}), b.leaf(dtype, {2, 3, 8}));
    EXPECT_TRUE(is_written_out(b, b.reduce(Op::reduce_max, b.op(Op::negative, {product}), 4), Op::matmul));
  }
}

/// A target that stores and reads the product's elements in less time leaves it as it is.
TEST(WriteOutSums, ProductsThatAreMadeSoonerThanMoved) {
  const auto stays = [](DType dtype, std::int64_t terms, double bytes_per_ns) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_max, b.matmul(b.leaf(dtype, {64, terms}), b.leaf(dtype, {terms, 64})), 2));
    write_out_sums(b.graph, {.most_products = 8, .terms_per_ns = 64, .moved_ns = [=](double bytes) {
                               return bytes / bytes_per_ns;
                             }});
    ir::verify(b.graph);
    return std::ranges::count(b.graph.nodes, Op::matmul, &ir::GraphNode::op) > 0;
  };
  EXPECT_FALSE(stays(DType::Float32, 8, 32));
  EXPECT_TRUE(stays(DType::Float32, 8, 33));
  EXPECT_FALSE(stays(DType::Float64, 8, 32));
  EXPECT_TRUE(stays(DType::BFloat16, 3, 32));
  EXPECT_FALSE(stays(DType::BFloat16, 2, 20));
  EXPECT_TRUE(stays(DType::Float32, 9, 1));
}

/// Windows of so many elements along both axes of images, the next one `step` behind.
NodeId windows(GraphBuilder& b, DType dtype, std::int64_t size, std::int64_t step) {
  const NodeId x = b.leaf(dtype, {4, 131, 133});
  const std::int64_t rows = (131 - size) / step + 1, columns = (133 - size) / step + 1;
  static std::vector<std::int64_t> words;
  words = {1, step, 1, 2, step, 1};
  return b.wide(Op::sliding_window, dtype, {4, rows, columns, size, size}, {x}, ir::Windows(words));
}

/// The reductions that are left of one over all axes of windows.
std::ptrdiff_t reductions_of_windows(GraphBuilder& b, NodeId root, std::int64_t operations) {
  b.root(root);
  const auto before = b.values();
  write_out_sums(b.graph, {.of_windows = operations});
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  dce(b.graph);
  ir::verify(b.graph);
  return std::ranges::count_if(b.graph.nodes, [](const auto& n) { return ir::is_reduce(n.op); });
}

TEST(WriteOutSums, ReductionsOfWindowsThatOverlap) {
  for (const Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min}) {
    GraphBuilder alone, mapped, few, apart, short_;
    EXPECT_EQ(reductions_of_windows(alone, alone.reduce(op, windows(alone, DType::Float32, 3, 1), 24), 64),
              0);
    EXPECT_EQ(
        reductions_of_windows(
            mapped, mapped.reduce(op, mapped.op(Op::negative, {windows(mapped, DType::Float64, 2, 1)}), 24),
            64),
        0);
    EXPECT_EQ(reductions_of_windows(few, few.reduce(op, windows(few, DType::Float32, 3, 1), 24), 8), 1)
        << "too many operations";
    EXPECT_EQ(reductions_of_windows(apart, apart.reduce(op, windows(apart, DType::Float32, 2, 2), 24), 64), 1)
        << "no two windows share an element";
    EXPECT_EQ(
        reductions_of_windows(short_, short_.reduce(op, short_.leaf(DType::Float32, {300, 300, 4}), 4), 64),
        1)
        << "rows are no windows";
  }
}

/// What a stack has side by side is read where it lies: no reduction and no join is left.
TEST(WriteOutSums, ReductionsAcrossAStack) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int8})
    for (const Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_prod})
      for (const std::size_t axis : {0, 1, 2})
        for (const bool maps : {false, true}) {
          GraphBuilder b;
          std::vector<std::int64_t> part{4, 5, 6}, all = part;
          part[axis] = 1;
          all[axis] = 3;
          std::vector<NodeId> parts;
          for (int i = 0; i < 3; ++i) parts.push_back(b.leaf(dtype, part));
          NodeId x = ir::Builder(b.graph).add(Op::join, ir::Operands(parts), ir::Join{axis});
          if (maps) x = b.op(Op::add, {b.op(Op::negative, {x}), b.leaf(dtype, all)});
          b.root(b.reduce(op, x, std::uint64_t{1} << axis));
          const auto before = b.values();
          write_out_sums(b.graph, {});
          EXPECT_EQ(before, b.values()) << ir::print(b.graph);
          dce(b.graph);
          ir::verify(b.graph);
          EXPECT_TRUE(std::ranges::none_of(b.graph.nodes,
                                           [&](const auto& n) { return n.op == op || n.op == Op::join; }));
        }
}

/// Of Booleans the greater one is whether either holds.
TEST(WriteOutSums, ReductionsAcrossAStackOfBooleans) {
  for (const Op op : {Op::reduce_max, Op::reduce_min}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Bool, {7, 1}), y = b.leaf(DType::Bool, {7, 1});
    b.root(b.reduce(op, ir::Builder(b.graph).add(Op::join, {x, y}, ir::Join{1}), 2));
    const auto before = b.values();
    write_out_sums(b.graph, {});
    EXPECT_EQ(before, b.values()) << ir::print(b.graph);
    ir::verify(b.graph);
    EXPECT_TRUE(std::ranges::none_of(b.graph.nodes, [&](const auto& n) { return n.op == op; }));
  }
}

/// A join of more than single elements, or along another axis, stays, as does one of too many parts.
TEST(WriteOutSums, OtherJoinsStay) {
  const auto left = [](std::size_t axis, std::int64_t extent, std::size_t count) {
    GraphBuilder b;
    std::vector<std::int64_t> part{4, 5, 6};
    part[axis] = extent;
    const std::vector<NodeId> parts(count, b.leaf(DType::Float32, part));
    b.root(
        b.reduce(Op::reduce_max, ir::Builder(b.graph).add(Op::join, ir::Operands(parts), ir::Join{axis}), 2));
    write_out_sums(b.graph, {});
    return std::ranges::count(b.graph.nodes, Op::reduce_max, &ir::GraphNode::op);
  };
  EXPECT_EQ(left(1, 1, 3), 0);
  EXPECT_EQ(left(1, 2, 3), 1);
  EXPECT_EQ(left(0, 1, 3), 1);
  EXPECT_EQ(left(1, 1, kMostJoined), 0);
  EXPECT_EQ(left(1, 1, kMostJoined + 1), 1);
}

TEST(WriteOutSums, OthersStay) {
  const auto stays = [](const auto& make, Op op = Op::reduce_sum) {
    GraphBuilder b;
    return !is_written_out(b, make(b), op);
  };
  EXPECT_TRUE(stays([](GraphBuilder& b) { return b.reduce(Op::reduce_sum, pairs(b, DType::Float32, 3), 4); }))
      << "the results are stored";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max, b.reduce(Op::reduce_sum, pairs(b, DType::Float32, 4), 4), 2);
  })) << "long sums";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max,
                    b.reduce(Op::reduce_sum, b.op(Op::abs, {b.leaf(DType::Float32, {8, 8, 3})}), 4), 2);
  })) << "each element is read once";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max, b.reduce(Op::reduce_sum, pairs(b, DType::Int32, 3), 4), 2);
  })) << "integers";
  EXPECT_TRUE(stays(
      [](GraphBuilder& b) {
        return b.matmul(b.leaf(DType::Float32, {8, 3}), b.leaf(DType::Float32, {3, 8}));
      },
      Op::matmul));
  EXPECT_TRUE(stays(
      [](GraphBuilder& b) {
        const NodeId product = b.matmul(b.leaf(DType::Float32, {8, 3}), b.leaf(DType::Float32, {3, 8}));
        b.root(product);
        return b.reduce(Op::reduce_max, product, 2);
      },
      Op::matmul))
      << "it is asked for";
}

}  // namespace
}  // namespace kiln::transform
