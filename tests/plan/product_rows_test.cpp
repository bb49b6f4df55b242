// A row that is added to a matrix product joins it where the library takes it.
#include "plan/product_rows.h"

#include "ir/graph_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln::plan {
namespace {

using ir::Op;

struct Program : ir::GraphBuilder {
  NodeId a = leaf(DType::Float32, {4, 8}), b = leaf(DType::Float32, {8, 3});
  NodeId row = leaf(DType::Float32, {3});
  NodeId product = wide(Op::matmul, DType::Float32, {4, 3}, {a, b});

  NodeId add(NodeId x, NodeId y) { return op(Op::add, {x, y}); }
  NodeId shown(NodeId x) { return broadcast(x, {4, 3}); }

  Regions joined(NodeId root, bool library_adds = true) {
    graph.roots = {root};
    Regions regions = fuse(graph, {});
    join_product_rows(graph, regions, [&](const ProductRow&) { return library_adds; });
    return regions;
  }
};

std::size_t launches(const Regions& regions) {
  return static_cast<std::size_t>(
      std::count_if(regions.regions.begin(), regions.regions.end(),
                    [](const Region& r) { return r.kind == Region::Kind::Fused; }));
}

TEST(ProductRows, TheSumJoinsTheProduct) {
  for (const bool left : {false, true}) {
    Program p;
    const NodeId row = p.shown(p.row);
    const NodeId sum = left ? p.add(row, p.product) : p.add(p.product, row);
    const Regions r = p.joined(sum);
    ASSERT_EQ(r.regions.size(), 1u);
    EXPECT_EQ(r.regions[0].kind, Region::Kind::Library);
    EXPECT_EQ(r.regions[0].nodes, (std::vector<NodeId>{p.product, sum}));
    EXPECT_EQ(r.regions[0].outputs, std::vector<NodeId>{sum});
    EXPECT_FALSE(r.stored[p.product]);
    EXPECT_TRUE(r.stored[sum]);
    EXPECT_TRUE(r.refusals.empty());
    const ProductRow parts = product_row(p.graph, r, r.regions[0]);
    EXPECT_EQ(parts.product, p.product);
    EXPECT_EQ(parts.row, row);
    ASSERT_TRUE(repeated_row(p.graph, r, row, 3));
    EXPECT_EQ(repeated_row(p.graph, r, row, 3)->base, p.row);
  }
}

/// A parameter's cast, which the sum would have made on the way, runs before.
TEST(ProductRows, ARowThatMapsMakeIsStored) {
  Program p;
  const NodeId wide = p.leaf(DType::Float64, {3});
  const NodeId row = p.cast(wide, DType::Float32);
  const NodeId sum = p.add(p.product, row);
  for (const bool adds : {true, false}) {
    p.graph.roots = {sum};
    schedule::Target target;
    Regions r = fuse(p.graph, target);
    std::erase_if(r.regions, [&](const Region& x) { return x.outputs == std::vector<NodeId>{row}; });
    for (Region& x : r.regions) std::erase(x.nodes, row);
    r.stored[row] = false;  // as if it were made by whoever reads it
    join_product_rows(p.graph, r, [&](const ProductRow&) { return adds; });
    EXPECT_EQ(r.stored[row], adds);
    ASSERT_EQ(r.regions.size(), 2u);
    if (!adds) continue;
    EXPECT_EQ(r.regions[0].outputs, std::vector<NodeId>{row});
    EXPECT_EQ(r.regions[1].outputs, std::vector<NodeId>{sum});
    EXPECT_EQ(r.regions[1].kind, Region::Kind::Library);
  }
}

TEST(ProductRows, UnderReshapesToo) {
  Program p;
  const NodeId stack = p.reshape(p.product, {2, 2, 3});
  const NodeId sum = p.add(stack, p.broadcast(p.row, {2, 2, 3}));
  const Regions r = p.joined(sum);
  ASSERT_EQ(r.regions.size(), 1u);
  EXPECT_EQ(product_row(p.graph, r, r.regions[0]).product, p.product);
}

TEST(ProductRows, ALibraryThatDoesNotTakeItLeavesAKernel) {
  Program p;
  const Regions r = p.joined(p.add(p.product, p.shown(p.row)), false);
  EXPECT_EQ(r.regions.size(), 2u);
  EXPECT_TRUE(r.stored[p.product]);
}

TEST(ProductRows, AProductThatSomebodyElseReadsStays) {
  Program held;
  held.graph[held.product].held = true;
  EXPECT_EQ(launches(held.joined(held.add(held.product, held.shown(held.row)))), 1u);
  Program twice;
  EXPECT_EQ(
      launches(twice.joined(twice.add(twice.product, twice.add(twice.product, twice.shown(twice.row))))), 1u);
}

TEST(ProductRows, WhatIsNoRowOfAdjacentElementsStays) {
  Program column;
  const NodeId c = column.leaf(DType::Float32, {4, 1});
  EXPECT_EQ(launches(column.joined(column.add(column.product, column.shown(c)))), 1u);
  Program computed;  // exp(row) is in no memory
  const NodeId e = computed.op(Op::exp, {computed.row});
  EXPECT_EQ(launches(computed.joined(computed.add(computed.product, computed.shown(e)))), 1u);
  Program strided;
  const NodeId wide = strided.leaf(DType::Float32, {6});
  const NodeId every = strided.slice(wide, {3}, {0, 2});
  EXPECT_EQ(launches(strided.joined(strided.add(strided.product, strided.shown(every)))), 1u);
}

/// Products of halves that are added as floats: the first is stored as floats, the others are added to it.
TEST(ProductRows, ProductsOfHalvesAreAddedAsFloats) {
  ir::GraphBuilder p;
  std::vector<NodeId> products, casts, sums;
  for (int i = 0; i < 3; ++i) {
    const NodeId a = p.leaf(DType::BFloat16, {4, 8}), b = p.leaf(DType::BFloat16, {8, 3});
    products.push_back(p.wide(Op::matmul, DType::BFloat16, {4, 3}, {a, b}));
    casts.push_back(
        p.add(Op::cast, {products.back()}, ir::Cast{.unrounded = true}, {.dtype = DType::Float32}));
  }
  sums = {p.op(Op::add, {casts[0], casts[1]})};
  sums.push_back(p.op(Op::add, {sums[0], casts[2]}));
  p.graph.roots = {sums[1]};
  schedule::Target gpu;
  gpu.gpu = true;
  for (const bool adds : {true, false}) {
    Regions r = fuse(p.graph, gpu);
    join_product_rows(p.graph, r, [&](const ProductRow&) { return adds; });
    for (const NodeId product : products) EXPECT_EQ(r.stored[product], !adds);
    if (!adds) continue;
    ASSERT_EQ(r.regions.size(), 3u);
    const std::vector<NodeId> nodes[] = {
        {products[0], casts[0]}, {products[1], casts[1], sums[0]}, {products[2], casts[2], sums[1]}};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(r.regions[i].kind, Region::Kind::Library);
      EXPECT_EQ(r.regions[i].nodes, nodes[i]);
      EXPECT_EQ(r.regions[i].outputs, std::vector{nodes[i].back()});
      const ProductRow parts = product_row(p.graph, r, r.regions[i]);
      EXPECT_EQ(parts.product, products[i]);
      EXPECT_EQ(parts.cast, casts[i]);
      EXPECT_EQ(parts.sum, nodes[i].back());
      EXPECT_EQ(parts.whole, i == 0 ? ir::kNoNode : nodes[i - 1].back());
    }
  }
}

/// A program's own conversion sees the product as it would be stored.
TEST(ProductRows, AConversionOfARoundedProductIsAKernel) {
  ir::GraphBuilder p;
  const NodeId a = p.leaf(DType::BFloat16, {4, 8}), b = p.leaf(DType::BFloat16, {8, 3}),
               product = p.wide(Op::matmul, DType::BFloat16, {4, 3}, {a, b}),
               sum = p.op(Op::add, {p.leaf(DType::Float32, {4, 3}), p.cast(product, DType::Float32)});
  p.graph.roots = {sum};
  schedule::Target gpu;
  gpu.gpu = true;
  Regions r = fuse(p.graph, gpu);
  join_product_rows(p.graph, r, [](const ProductRow&) { return true; });
  EXPECT_EQ(launches(r), 1u);
  EXPECT_TRUE(r.stored[product]);
}

}  // namespace
}  // namespace kiln::plan
