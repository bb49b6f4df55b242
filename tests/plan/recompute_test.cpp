// Values that every kernel which reads them makes again, instead of one storing them for the others.
#include "ir/graph_builder.h"
#include "plan/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln::plan {
namespace {

using ir::GraphBuilder;
using ir::Op;

/// A GPU's figures, whatever this machine has.
schedule::Target target() {
  schedule::Target t;
  t.gpu = true;
  t.threads = 132;
  t.bytes_per_ns = 4000;
  t.cached_bytes_per_ns = 8000;
  t.prims_per_ns = 20000;
  t.launch_ns = 3000;
  t.op_cost.assign(static_cast<std::size_t>(ir::kOpCount), 1.0f);
  return t;
}

bool stored(const GraphBuilder& b, NodeId id) { return fuse(b.graph, target()).stored[id]; }

/// x between its elements at two rows of indices along an axis.
NodeId between(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t extent) {
  GraphBuilder::Extents dims(b.graph[x].dims.begin(), b.graph[x].dims.end()), along(dims.size() - axis, 1);
  dims[axis] = along[0] = extent;
  const auto at = [&] {
    return b.add(Op::gather, {x, b.leaf(DType::Int32, along)}, ir::Gather{axis}, {.dims = dims});
  };
  const NodeId low = at(), weight = b.broadcast(b.leaf(DType::Float32, along), dims);
  return b.op(Op::add, {b.op(Op::multiply, {b.op(Op::subtract, {at(), low}), weight}), low});
}

/// A GPU looks places that are the same along an outer axis up once for some rows: elements between others
/// along two axes are one kernel.
TEST(Recompute, PlacesThatAreAlikeAlongAnOuterAxisAreLookedUpAgain) {
  schedule::Target t = target();
  t.prims_per_ns = 8448;
  t.op_cost[static_cast<std::size_t>(Op::gather)] = 8;
  for (const bool alike : {true, false}) {
    GraphBuilder b;
    const NodeId x = b.leaf(
        DType::Float32, alike ? GraphBuilder::Extents{32768, 28, 28} : GraphBuilder::Extents{28, 28, 32768});
    const std::size_t first = alike ? 1 : 0;
    const NodeId one = between(b, x, first, 81);
    b.root(between(b, one, first + 1, 75));
    EXPECT_EQ(fuse(b.graph, t).stored[one], !alike);
  }
}

/// Rows that are read again come from a GPU's second cache, so that nothing is stored between two axes of
/// which one shrinks; where a row is all there is, they come from memory.
TEST(Recompute, NearPlacesAreReadAgainFromTheCache) {
  schedule::Target t = target();
  t.prims_per_ns = 8448;
  t.op_cost[static_cast<std::size_t>(Op::gather)] = 8;
  t.l2_bytes = (50 << 20) / t.threads;
  for (const DType type : {DType::Float32, DType::BFloat16})
    for (const auto& [rows, columns] : {std::pair{14, 36}, {36, 14}, {14, 14}})
      for (const bool near : {true, false}) {
        if (!near && rows > 28) continue;
        GraphBuilder b;
        const std::int64_t pictures = near ? 65536 : 1, lines = near ? 28 : 28 * 65536;
        NodeId x = b.leaf(type, {pictures, lines, 28});
        if (type != DType::Float32) x = b.cast(x, DType::Float32);
        const NodeId one = between(b, x, 1, near ? rows : rows * std::int64_t{65536});
        b.root(between(b, one, near ? 2 : 1, near ? columns : lines / 2));
        EXPECT_EQ(fuse(b.graph, t).stored[one], !near) << rows << ' ' << columns << ' ' << near;
      }
}

TEST(Recompute, AHalfShownAsFloatIsNotStored) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::BFloat16, {512, 4096}), wide = b.cast(x, DType::Float32);
  b.root(b.reduce(Op::reduce_sum, wide, 1));
  b.root(b.reduce(Op::reduce_sum, wide, 2));
  EXPECT_FALSE(stored(b, wide));
}

TEST(Recompute, WhatARootNeedsIsStored) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::BFloat16, {512, 4096}), wide = b.cast(x, DType::Float32);
  b.root(b.reduce(Op::reduce_sum, wide, 1));
  b.root(b.reduce(Op::reduce_sum, wide, 2));
  b.root(wide);
  EXPECT_TRUE(stored(b, wide));
}

TEST(Recompute, AnArrayLessAValueOfEachColumnIsNotStored) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {512, 4096}), mean = b.leaf(DType::Float32, {1, 4096});
  const NodeId centred = b.op(Op::subtract, {x, b.broadcast(mean, {512, 4096})});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 1));
  b.root(b.reduce(Op::reduce_max, centred, 2));
  EXPECT_FALSE(stored(b, centred));
}

/// … nor is it where the value is found in the kernel that would store it: the value alone is stored.
TEST(Recompute, AnArrayLessAResultIsMadeOfTheResult) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{1024, 32, 2048};
  const NodeId x = b.cast(b.leaf(DType::Float16, dims), DType::Float32);
  const NodeId most = b.reduce(Op::reduce_max, x, 2), size = b.op(Op::abs, {x});
  const NodeId above = b.op(Op::subtract, {x, b.broadcast(most, dims)});
  const NodeId sum = b.broadcast(b.reduce(Op::reduce_sum, size, 7), dims);
  b.root(b.cast(b.op(Op::divide, {above, sum}), DType::Float16));
  EXPECT_FALSE(stored(b, above));
  EXPECT_FALSE(stored(b, size));
  EXPECT_FALSE(stored(b, x));
}

/// The value that several results are made of is stored instead of them.
TEST(Recompute, SeveralMapsOfOneValueAreMadeOfIt) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{512, 4096};
  NodeId value = b.leaf(DType::Float32, dims);
  for (int i = 0; i < 8; ++i) value = b.op(Op::sin, {value});
  std::vector<NodeId> maps;
  NodeId sum = ir::kNoNode;
  for (int k = 0; k < 3; ++k) {
    const NodeId weight = b.broadcast(b.leaf(DType::Float32, {1, 4096}), dims);
    maps.push_back(b.op(Op::multiply, {value, weight}));
    const NodeId moved = b.pad(maps.back(), b.leaf(DType::Float32, {}), {514, 4096}, {k, 1, 0, 1});
    sum = k == 0 ? moved : b.op(Op::add, {sum, moved});
  }
  b.root(sum);
  b.root(b.reduce(Op::reduce_sum, value, 2));
  for (const NodeId m : maps) EXPECT_FALSE(stored(b, m));
}

/// A softmax of one long row: neither the row as floats nor its exponentials are stored, since a GPU computes
/// them faster than it reads them.
TEST(Recompute, WhatTakesLessTimeThanMemoryIsNotStored) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{1 << 26};
  const NodeId x = b.cast(b.leaf(DType::BFloat16, dims), DType::Float32);
  const NodeId less = b.op(Op::subtract, {x, b.broadcast(b.reduce(Op::reduce_max, x, 1), dims)});
  NodeId value = less;
  for (int i = 0; i < 8; ++i) value = b.op(Op::sin, {value});
  const NodeId sum = b.broadcast(b.reduce(Op::reduce_sum, value, 1), dims);
  b.root(b.cast(b.op(Op::divide, {value, sum}), DType::BFloat16));
  EXPECT_FALSE(stored(b, x));
  EXPECT_FALSE(stored(b, value));
}

/// The last kernel of a softmax over everything waits for memory while it makes the exponentials again.
/// Exponentials of a softmax down long columns: with AVX-512 they take less time than memory, but for
/// Float64.
TEST(Recompute, ACpuWithAvx512MakesExponentialsAgain) {
  const auto stores = [](int vector_bytes, DType type) -> bool {
    schedule::Target t;
    t.threads = 2;
    t.vector_bytes = vector_bytes;
    t.bytes_per_ns = 30;
    t.prims_per_ns = 2.0 * vector_bytes;
    t.op_cost.assign(static_cast<std::size_t>(ir::kOpCount), 1.0f);
    t.op_cost[static_cast<std::size_t>(Op::exp)] = 15;
    GraphBuilder b;
    const GraphBuilder::Extents dims{8568, 979};
    const NodeId x = b.leaf(type, dims);
    const auto spread = [&](NodeId of) { return b.broadcast(of, dims); };
    const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, spread(b.reduce(Op::reduce_max, x, 1))})});
    b.root(b.op(Op::divide, {e, spread(b.reduce(Op::reduce_sum, e, 1))}));
    return fuse(b.graph, t).stored[e];
  };
  EXPECT_FALSE(stores(64, DType::Float32));
  EXPECT_TRUE(stores(64, DType::Float64));
  EXPECT_TRUE(stores(32, DType::Float32));
}

TEST(Recompute, WhatHidesBehindAReadersMemoryIsNotStored) {
  schedule::Target t = target();
  t.prims_per_ns = 8448;
  for (const float cost : {12.0f, 40.0f}) {
    t.op_cost[static_cast<std::size_t>(Op::exp)] = cost;
    GraphBuilder b;
    const GraphBuilder::Extents dims{1 << 13, 1 << 12};
    const NodeId x = b.leaf(DType::Float32, dims), most = b.reduce(Op::reduce_max, x, 3);
    const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, b.broadcast(most, dims)})});
    b.root(b.op(Op::divide, {e, b.broadcast(b.reduce(Op::reduce_sum, e, 3), dims)}));
    EXPECT_EQ(fuse(b.graph, t).stored[e], cost > 32) << cost;
  }
}

TEST(Recompute, WhatTakesLongOrReadsMoreIsStored) {
  GraphBuilder dear, wide;
  const GraphBuilder::Extents dims{512, 64, 64};  // both keep the last axis: no kernel has both
  NodeId x = dear.leaf(DType::Float32, dims);
  for (int i = 0; i < 40; ++i) x = dear.op(Op::sin, {x});
  dear.root(dear.reduce(Op::reduce_sum, x, 1));
  dear.root(dear.reduce(Op::reduce_sum, x, 2));
  EXPECT_TRUE(stored(dear, x));

  const auto leaf = [&] { return wide.leaf(DType::Float32, dims); };
  const NodeId sum =
      wide.op(Op::add, {wide.op(Op::add, {leaf(), leaf()}), wide.op(Op::add, {leaf(), leaf()})});
  wide.root(wide.reduce(Op::reduce_sum, sum, 1));
  wide.root(wide.reduce(Op::reduce_sum, sum, 2));
  EXPECT_TRUE(stored(wide, sum));
}

/// One element of each row, such as a label's, is made again whatever it takes; many are not.
TEST(Recompute, FewPointsOfAValueDoNotHaveItStored) {
  for (const std::int64_t picked : {1, 200}) {
    GraphBuilder b;
    NodeId x = b.leaf(DType::Float32, {512, 4096});
    for (int i = 0; i < 40; ++i) x = b.op(Op::sin, {x});
    const NodeId label = b.leaf(DType::Int32, {512, picked});
    b.root(b.reduce(Op::reduce_max, x, 2));
    b.root(b.add(Op::gather, {x, label}, ir::Gather{1}, {.dims = Shape{512, picked}}));
    EXPECT_EQ(stored(b, x), picked > 1) << picked;
  }
}

TEST(Recompute, SmallArraysStay) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::BFloat16, {64, 64}), wide = b.cast(x, DType::Float32);
  b.root(b.reduce(Op::reduce_sum, wide, 1));
  b.root(b.reduce(Op::reduce_sum, wide, 2));
  EXPECT_TRUE(stored(b, wide));
}

/// Rows that are normalised, their result and the gradient of their weight.
struct Norm : GraphBuilder {
  NodeId x = leaf(DType::BFloat16, {8192, 384}), weight = leaf(DType::Float32, {384});
  NodeId cotangent = leaf(DType::BFloat16, {8192, 384});
  NodeId wide = cast(x, DType::Float32);
  NodeId mean = op(Op::negative, {reduce(Op::reduce_sum, wide, 2)});
  NodeId centred = op(Op::add, {wide, mean});
  NodeId scale = op(Op::rsqrt, {reduce(Op::reduce_sum, op(Op::multiply, {centred, centred}), 2)});
  NodeId normal = op(Op::multiply, {centred, scale});
};

/// A reader that makes such rows again takes them as rows: the result is made where the statistics are.
TEST(Recompute, ReadersKnowHowValuesOfRowsAreSpread) {
  Norm b;
  b.root(b.cast(b.op(Op::multiply, {b.normal, b.weight}), DType::BFloat16));
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {b.cast(b.cotangent, DType::Float32), b.normal}), 1));
  const Regions r = fuse(b.graph, target());
  EXPECT_EQ(r.regions.size(), 2u);
  EXPECT_FALSE(r.stored[b.centred]);
  EXPECT_FALSE(r.stored[b.normal]);
}

/// The mean lies between the sum of a row and what is less the mean. That joins the row's kernel before a sum
/// of columns takes it.
TEST(Fuse, SmallMapsBetweenDoNotKeepRegionsApart) {
  Norm b;
  const NodeId less =
      b.cast(b.op(Op::add,
                  {b.op(Op::multiply, {b.wide, b.wide}),
                   b.op(Op::negative, {b.reduce(Op::reduce_sum, b.op(Op::multiply, {b.wide, b.wide}), 2)})}),
             DType::BFloat16);
  b.root(less);
  b.root(b.reduce(Op::reduce_sum, b.cast(less, DType::Float32), 1));
  const Regions r = fuse(b.graph, target());
  ASSERT_EQ(r.regions.size(), 2u);
  EXPECT_EQ(r.regions[0].outputs, std::vector<NodeId>{less});
}

/// Each product adds to what those before it gave: none is stored until the last.
TEST(Fuse, ProductsAreAddedInTurn) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    GraphBuilder b;
    std::vector<NodeId> products, sums;
    for (int i = 0; i < 4; ++i) {
      products.push_back(b.matmul(b.leaf(dtype, {512, 64}), b.leaf(dtype, {64, 256})));
      const NodeId part = is_half(dtype) ? b.cast(products.back(), DType::Float32) : products.back();
      sums.push_back(sums.empty() ? part : b.op(Op::add, {sums.back(), part}));
    }
    b.root(sums.back());
    schedule::Target t = target();
    t.gpu = false;
    t.epilogues = true;
    const Regions r = fuse(b.graph, t);
    EXPECT_EQ(r.regions.size(), 4u);
    for (std::size_t i = 0; i < products.size(); ++i) {
      EXPECT_TRUE(r.stored[sums[i]]) << i;
      EXPECT_EQ(r.stored[products[i]], products[i] == sums[i]) << i;
    }
  }
}

/// A reduction goes on along another axis in its kernel, which others that read the same share.
TEST(Fuse, ANestGoesOnFromSiblings) {
  for (const bool alone : {true, false}) {
    GraphBuilder b;
    const auto leaf = [&] { return b.leaf(DType::Float32, {8, 2432, 512}); };
    const NodeId x = leaf(), y = leaf(), most = b.reduce(Op::reduce_max, b.op(Op::multiply, {x, y}), 4);
    b.root(b.reduce(Op::reduce_max, most, 1));
    if (!alone) b.root(b.reduce(Op::reduce_sum, b.op(Op::add, {x, y}), 4));
    const Regions r = fuse(b.graph, target());
    EXPECT_EQ(r.regions.size(), 1u);
    EXPECT_FALSE(r.stored[most]);
  }
}

/// Products that read what several views show of a join read one copy of it.
TEST(Fuse, ProductsShareAJoin) {
  GraphBuilder b;
  const auto part = [&] {
    return b.reshape(b.permute(b.leaf(DType::BFloat16, {8, 6, 64, 32}), {0, 2, 1, 3}), {8, 64, 1, 6, 32});
  };
  const NodeId join =
      b.wide(Op::join, DType::BFloat16, {8, 64, 3, 6, 32}, {part(), part(), part()}, ir::Join{2});
  const NodeId rows = b.reshape(join, {512, 576});
  b.root(b.matmul(rows, b.leaf(DType::BFloat16, {576, 192})));
  const NodeId columns = b.permute(rows, {1, 0});
  b.root(b.matmul(columns, b.leaf(DType::BFloat16, {512, 192})));
  const Regions r = fuse(b.graph, target());
  EXPECT_TRUE(r.stored[join]);
  EXPECT_FALSE(r.stored[rows]);
  EXPECT_FALSE(r.stored[columns]);
}

}  // namespace
}  // namespace kiln::plan
