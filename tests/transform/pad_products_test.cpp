#include "transform/pad_products.h"

#include "transform/transformed.h"

#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType bf16 = DType::BFloat16;

/// What a library loses where it pays to copy anything.
PadCosts costs() {
  PadCosts c;
  c.slow_per_ns = 1e-3;
  c.fast_per_ns = 1;
  c.moved_ns = [](double) { return 0.0; };
  return c;
}

/// The extents of the only product after the pass, which changes no value and what no reader sees.
std::vector<std::int64_t> product_of(GraphBuilder& b, const PadCosts& c = costs()) {
  const auto before = b.values();
  pad_products(b.graph, c);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  for (const auto& n : b.graph.nodes)
    if (n.op == Op::matmul) return {n.dims[n.dims.size() - 2], b.graph[n.in[0]].dims.back(), n.dims.back()};
  return {};
}

std::vector<std::int64_t> product_of(std::int64_t rows, std::int64_t terms, std::int64_t columns,
                                     DType type = bf16, const PadCosts& c = costs()) {
  GraphBuilder b;
  b.root(b.matmul(b.leaf(type, {rows, terms}), b.leaf(type, {terms, columns})));
  return product_of(b, c);
}

using Extents = std::vector<std::int64_t>;

TEST(PadProducts, ColumnsAndTermsBecomeWholeUnits) {
  EXPECT_EQ(product_of(40, 16, 33), (Extents{40, 16, 40}));
  EXPECT_EQ(product_of(40, 17, 32), (Extents{40, 24, 32}));
  EXPECT_EQ(product_of(40, 17, 33, DType::Float16), (Extents{40, 24, 40}));
  EXPECT_EQ(product_of(41, 16, 32), (Extents{41, 16, 32})) << "rows may be of any number";
}

TEST(PadProducts, OfBatches) {
  GraphBuilder b;
  b.root(b.matmul(b.leaf(bf16, {2, 3, 16, 16}), b.leaf(bf16, {2, 3, 16, 21})));
  EXPECT_EQ(product_of(b), (Extents{16, 16, 24}));
}

TEST(PadProducts, OtherTypesAndFewRowsOrColumnsStay) {
  EXPECT_EQ(product_of(40, 17, 33, DType::Float32), (Extents{40, 17, 33}));
  EXPECT_EQ(product_of(4, 17, 33), (Extents{4, 17, 33}));
  EXPECT_EQ(product_of(40, 17, 3), (Extents{40, 17, 3}));
}

TEST(PadProducts, OnlyWhereItPays) {
  PadCosts c = costs();
  c.launch_ns = 1e12;
  EXPECT_EQ(product_of(40, 17, 33, bf16, c), (Extents{40, 17, 33})) << "a kernel that copies takes longer";
  c = costs();
  c.slow_per_ns = c.fast_per_ns;
  EXPECT_EQ(product_of(128, 17, 128, bf16, c), (Extents{128, 17, 128})) << "nothing is lost";
  c = costs();
  c.by_others = [](const ir::Graph& g) { return std::vector<bool>(g.size(), true); };
  EXPECT_EQ(product_of(40, 17, 33, bf16, c), (Extents{40, 17, 33})) << "no library makes it";
}

/// How many operands are copied with zeros, and how many without.
std::pair<std::int64_t, std::int64_t> copies(GraphBuilder& b) {
  product_of(b);
  return {count(b, Op::pad), count(b, Op::arrange) - count(b, Op::pad)};
}

TEST(PadProducts, OperandsThatLieAtUnitsAreNotCopied) {
  GraphBuilder columns;  // y alone is longer
  columns.root(columns.matmul(columns.leaf(bf16, {40, 16}), columns.leaf(bf16, {16, 33})));
  EXPECT_EQ(copies(columns), std::pair(std::int64_t{1}, std::int64_t{0}));
  GraphBuilder turned;  // rows of x lie across 40 columns: as a library takes them
  turned.root(
      turned.matmul(turned.permute(turned.leaf(bf16, {16, 40}), {1, 0}), turned.leaf(bf16, {16, 32})));
  EXPECT_EQ(copies(turned), std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST(PadProducts, OperandsThatLieElsewhereAreArranged) {
  GraphBuilder turned;
  turned.root(
      turned.matmul(turned.permute(turned.leaf(bf16, {16, 41}), {1, 0}), turned.leaf(bf16, {16, 32})));
  EXPECT_EQ(copies(turned), std::pair(std::int64_t{0}, std::int64_t{1}));
  GraphBuilder part;  // of rows of 35
  part.root(
      part.matmul(part.leaf(bf16, {40, 16}), part.slice(part.leaf(bf16, {16, 35}), {16, 32}, {0, 1, 0, 1})));
  EXPECT_EQ(copies(part), std::pair(std::int64_t{0}, std::int64_t{1}));
}

TEST(PadProducts, OperandsOfFewerElementsInMemoryStay) {
  GraphBuilder b;
  b.root(b.matmul(b.leaf(bf16, {40, 16}), b.broadcast(b.leaf(bf16, {1, 33}), {16, 33})));
  EXPECT_EQ(copies(b), std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST(PadProducts, ProductsOfOneOperandShareItsCopy) {
  GraphBuilder b;
  const NodeId y = b.leaf(bf16, {16, 33});
  b.root(b.matmul(b.leaf(bf16, {40, 16}), y));
  b.root(b.matmul(b.leaf(bf16, {48, 16}), y));
  const auto before = b.values();
  Wishes wishes;
  wishes.pads = costs();
  const Transformed t = transform(std::move(b.graph), wishes);
  ir::verify(t.graph);
  EXPECT_EQ(before, b.values(t.graph));
  EXPECT_EQ(std::ranges::count(t.graph.nodes, Op::pad, &ir::GraphNode::op), 1);
}

}  // namespace
}  // namespace kiln::transform
