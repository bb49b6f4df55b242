// Maps of a GPU whose threads have several rows of a point, held against the oracle: the kernels' interpreter
// also refuses an access outside of an array.
#include "lower/gpu_target.h"
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using Extents = GraphBuilder::Extents;

/// Post: values are the oracle's. Returns how many elements of in0 a thread loads, or 0 where it has one row.
int loads_of_strip(GraphBuilder& b) {
  const std::string text = checked(b, {gpu_target(1)}).front().text();
  int stores = 0, loads = 0;
  for (std::size_t at = text.find("grid"); at != std::string::npos; at = text.find("\n    out", at + 1))
    ++stores;
  for (std::size_t at = text.find("in0[", text.find("grid")); at != std::string::npos;
       at = text.find("in0[", at + 1))
    ++loads;
  return stores > 2 ? loads : 0;
}

Extents box_of(const Extents& dims) {
  Extents box;
  for (std::size_t a = 0; a < dims.size(); ++a) box.insert(box.end(), {0, 1});
  return box;
}

/// Elements first, first + step, … of an axis.
NodeId part(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t first, std::int64_t count,
            std::int64_t step = 1) {
  Extents dims = b.extents(x), box = box_of(dims);
  dims[axis] = count;
  box[2 * axis] = first;
  box[2 * axis + 1] = step;
  return b.slice(x, dims, box);
}

NodeId padded(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t width) {
  Extents dims = b.extents(x), box = box_of(dims);
  dims[axis] += 2 * width;
  box[2 * axis] = width;
  return b.pad(x, b.constant(b.graph[x].dtype, 0), dims, box);
}

NodeId roll(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t by) {
  const std::int64_t n = b.extents(x)[axis];
  return b.add(Op::join, {part(b, x, axis, n - by, by), part(b, x, axis, 0, n - by)}, ir::Join{axis});
}

/// The sum of the windows' elements along the last two axes, with steps, of an array with a border.
NodeId window_sum(GraphBuilder& b, NodeId x, std::int64_t size, std::int64_t step, std::int64_t border) {
  const std::size_t y = b.extents(x).size() - 2;
  for (const std::size_t axis : {y, y + 1})
    if (border > 0) x = padded(b, x, axis, border);
  const auto count = [&](std::size_t axis) { return (b.extents(x)[axis] - size) / step + 1; };
  NodeId sum = ir::kNoNode;
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t k = 0; k < size; ++k) {
      const NodeId tap = part(b, part(b, x, y, i, count(y), step), y + 1, k, count(y + 1), step);
      sum = sum == ir::kNoNode ? tap : b.op(Op::add, {sum, tap});
    }
  return sum;
}

TEST(Strips, NeighboursAreLoadedOnce) {
  for (const DType type : {DType::Float32, DType::Float64, DType::Int16}) {
    GraphBuilder b;
    b.root(window_sum(b, b.leaf(type, {9, 16, 29}), 3, 1, 1));
    EXPECT_EQ(loads_of_strip(b), 30) << name(type);  // of 72
  }
}

TEST(Strips, TheLastRowsMayBeMadeTwice) {
  for (const std::int64_t rows : {2, 3, 5, 7, 8, 9, 11, 13, 17}) {
    GraphBuilder b;
    b.root(window_sum(b, b.leaf(DType::Float32, {97, rows, 37}), 3, 1, 1));
    loads_of_strip(b);
  }
}

TEST(Strips, WindowsMayHaveSteps) {
  for (const std::int64_t step : {2, 3})
    for (const std::int64_t border : {0, 1, 2}) {
      GraphBuilder b;
      b.root(window_sum(b, b.leaf(DType::Float32, {19, 49, 61}), 3, step, border));
      const int loads = loads_of_strip(b);
      EXPECT_TRUE(loads > 0 || step == 3) << border;  // of which no two share an element
    }
}

TEST(Strips, WindowsOfManyElements) {
  GraphBuilder b;
  b.root(window_sum(b, b.leaf(DType::Float32, {5, 32, 41}), 7, 1, 3));
  EXPECT_EQ(loads_of_strip(b), 98);  // of 392
}

/// Each point reads one part of a join: rows along the joined axis share nothing.
TEST(Strips, PartsOfAJoinAreNotShared) {
  for (const DType type : {DType::Int64, DType::Float32}) {
    GraphBuilder b;
    std::vector<NodeId> parts{b.leaf(type, {2, 40, 336})};
    for (int i = 0; i < 4; ++i) parts.push_back(b.leaf(type, {1, 40, 336}));
    b.root(ir::Builder(b.graph).add(Op::join, ir::Operands(parts), ir::Join{0}));
    EXPECT_EQ(loads_of_strip(b), 0) << name(type);
  }
}

/// Rows that tested runs of a warp would take, too.
TEST(Strips, RowsMayBeLong) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {42, 703});
  const auto at = [&](std::int64_t i, std::int64_t k) {
    return part(b, part(b, x, 0, 1 + i, 40), 1, 1 + k, 701);
  };
  NodeId sum = at(0, 0);
  for (const std::int64_t by : {-1, 1})
    for (const NodeId tap : {at(by, 0), at(0, by)}) sum = b.op(Op::add, {sum, tap});
  b.root(sum);
  EXPECT_GT(loads_of_strip(b), 0);
}

TEST(Strips, RowsMayBeShort) {
  GraphBuilder b;
  b.root(window_sum(b, b.leaf(DType::Float16, {70, 14, 14}), 7, 1, 0));
  EXPECT_GT(loads_of_strip(b), 0);
}

/// Elements of eight bytes count as much with strips as without.
TEST(Strips, StarsOfWideElements) {
  for (const DType type : {DType::Float32, DType::Float64}) {
    GraphBuilder b;
    const NodeId x = b.leaf(type, {802, 4, 33});
    const auto at = [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      return part(b, part(b, part(b, x, 0, 1 + i, 800), 1, 1 + j, 2), 2, 1 + k, 31);
    };
    NodeId sum = at(0, 0, 0);
    for (const std::int64_t by : {-1, 1})
      for (const NodeId tap : {at(by, 0, 0), at(0, by, 0), at(0, 0, by)}) sum = b.op(Op::add, {sum, tap});
    b.root(sum);
    EXPECT_GT(loads_of_strip(b), 0) << name(type);
  }
}

TEST(Strips, StencilsAlongAnOuterAxis) {
  for (const Extents& dims : {Extents{6, 701, 6}, Extents{25, 201, 5}, Extents{4, 3, 7, 61}})
    for (const bool around : {false, true})
      for (const DType type : {DType::Float32, DType::Float16}) {
        GraphBuilder b;
        const NodeId x = b.leaf(type, dims);
        NodeId sum = b.cast(x, DType::Float32);
        for (std::size_t axis = 0; axis < dims.size(); ++axis)
          for (const std::int64_t by : {-2, -1, 1, 2}) {
            const std::int64_t n = dims[axis];
            const NodeId tap = around ? roll(b, x, axis, ((by % n) + n) % n == 0 ? 1 : ((by % n) + n) % n)
                                      : part(b, padded(b, x, axis, 2), axis, 2 + by, n);
            sum = b.op(Op::add, {sum, b.cast(tap, DType::Float32)});
          }
        b.root(sum);
        loads_of_strip(b);
      }
}

TEST(Strips, WhatTurnsAroundIsLoadedOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {25, 701, 6});
  NodeId sum = x;
  for (const std::int64_t by : {1, 2, 23, 24}) sum = b.op(Op::add, {sum, roll(b, x, 0, by)});
  b.root(sum);
  EXPECT_EQ(loads_of_strip(b), 11);  // of 35: seven rows and two on either side
}

/// The distance along another axis is none of the turn: it may be more than half a row.
TEST(Strips, RollsOfTwoAxes) {
  int strips = 0;
  for (const Extents& dims : {Extents{70, 25, 163}, Extents{9, 26, 12, 21}})
    for (const std::int64_t outer : {1, 8, 17, 24})
      for (const std::int64_t inner : {1, 7, 15, 20}) {
        GraphBuilder b;
        const NodeId x = b.leaf(DType::Float32, dims);
        b.root(b.op(Op::negative, {roll(b, roll(b, x, 1, outer), dims.size() - 1, inner)}));
        strips += loads_of_strip(b) > 0;
      }
  EXPECT_GT(strips, 0);
}

/// The rows in front of a part of an array are none of its other end, nor are those behind the rows of a
/// join.
TEST(Strips, RollsAndJoinsOfPartsOfAnArray) {
  const auto sum_of = [](GraphBuilder& b, NodeId x, const auto& tap) {
    NodeId sum = part(b, x, 0, 5, 25);
    for (const std::int64_t by : {1, 2, 23, 24}) sum = b.op(Op::add, {sum, tap(by)});
    b.root(sum);
  };
  GraphBuilder rolled;
  const NodeId x = rolled.leaf(DType::Float32, {60, 701, 6});
  sum_of(rolled, x, [&](std::int64_t by) { return roll(rolled, part(rolled, x, 0, 5, 25), 0, by); });
  EXPECT_GT(loads_of_strip(rolled), 0);
  GraphBuilder joined;
  const NodeId y = joined.leaf(DType::Float32, {60, 701, 6});
  sum_of(joined, y, [&](std::int64_t by) {
    return joined.add(Op::join, {part(joined, y, 0, 0, by), part(joined, y, 0, by + 25, 25 - by)},
                      ir::Join{0});
  });
  loads_of_strip(joined);
}

TEST(Strips, WeightsOfAChannelAreLoadedOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {3, 5, 24, 33}), w = b.leaf(DType::Float32, {5, 9});
  const NodeId wide = padded(b, padded(b, x, 2, 1), 3, 1);
  NodeId sum = ir::kNoNode;
  for (std::int64_t t = 0; t < 9; ++t) {
    const NodeId tap = part(b, part(b, wide, 2, t / 3, 24), 3, t % 3, 33);
    const NodeId weight = b.broadcast(b.reshape(part(b, w, 1, t, 1), {1, 5, 1, 1}), {3, 5, 24, 33});
    const NodeId term = b.op(Op::multiply, {tap, weight});
    sum = sum == ir::kNoNode ? term : b.op(Op::add, {sum, term});
  }
  b.root(sum);
  const LoweredGraph lowered = checked(b, {gpu_target(1)}).front();
  EXPECT_EQ(lowered.text().find("in2"), std::string::npos) << lowered.text();
}

/// x * scale + shift, where the scale is one of each group of short rows and the shift the same in all rows.
NodeId scaled(GraphBuilder& b, const Extents& dims, DType type = DType::Float32) {
  const NodeId x = b.cast(b.leaf(type, dims), DType::Float32),
               scale = b.leaf(DType::Float32, {dims[0], 1, dims[2], 1}),
               shift = b.leaf(DType::Float32, {dims[2], dims[3]});
  return b.op(Op::add, {b.op(Op::multiply, {x, b.broadcast(scale, dims)}), b.broadcast(shift, dims)});
}

/// Rows of 8 · 5 halves are whole vectors, which a thread has one above the other.
TEST(Strips, HaveVectorsOfShortAxes) {
  for (const std::uint32_t alignment : {64u, 4u}) {
    GraphBuilder b;
    b.root(b.cast(scaled(b, {6, 650, 8, 5}, DType::Float16), DType::Float16));
    b.graph.args.back().alignment = alignment;  // of what the rows share
    const std::string text = checked(b, {gpu_target(1)}).front().text();
    EXPECT_NE(text.find("* 8"), std::string::npos) << text;  // rows of a thread
    EXPECT_NE(text.find("vectorx8"), std::string::npos) << text;
  }
}

/// Rows of 7 · 5 halves, or of 131 floats, begin anywhere: a thread has single elements of several rows.
TEST(Strips, OfFewOperandsWhereRowsAreNoVectors) {
  GraphBuilder b;
  b.root(b.cast(scaled(b, {6, 90, 7, 5}, DType::Float16), DType::Float16));
  const Extents dims = {700, 131};
  const NodeId x = b.leaf(DType::Float32, dims), scale = b.broadcast(b.leaf(DType::Float32, {131}), dims),
               shift = b.broadcast(b.leaf(DType::Float32, {131}), dims);
  b.root(b.op(Op::add, {b.op(Op::multiply, {x, scale}), shift}));
  const LoweredGraph lowered = checked(b, {gpu_target(1)}).front();
  EXPECT_EQ(lowered.kernels(), 2u);
  for (const char* const vector : {"vectorx4", "vectorx8"})
    EXPECT_EQ(lowered.text().find(vector), std::string::npos) << lowered.text();
}

/// Of 7 · 2 halves, which share a value by two, a thread has a word of several rows.
TEST(Strips, HaveWordsWhereVectorsWouldHaveValuesOfSeveralRows) {
  for (const bool words : {true, false}) {
    GraphBuilder b;
    const Extents dims = {6, 650, 7, words ? 2 : 3};
    const NodeId x = b.cast(b.leaf(DType::Float16, dims), DType::Float32),
                 most = b.broadcast(b.leaf(DType::Float32, {6, 1, 7, 1}), dims),
                 least = b.broadcast(b.leaf(DType::Float32, {6, 1, 7, 1}), dims);
    b.root(b.cast(b.op(Op::minimum, {b.op(Op::maximum, {x, least}), most}), DType::Float16));
    const std::string text = checked(b, {gpu_target(1)}).front().text();
    EXPECT_NE(text.find("* 8"), std::string::npos) << text;  // rows of a thread
    EXPECT_EQ(text.find("vectorx8"), std::string::npos) << text;
    EXPECT_EQ(text.find("vectorx2") != std::string::npos, words) << text;
  }
}

TEST(Strips, PlacesThatIndicesChooseAreFoundOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {96, 13, 17}), rows = b.leaf(DType::Int32, {1, 19, 1}),
               columns = b.leaf(DType::Int32, {1, 1, 23});
  const auto take = [&](NodeId from, NodeId at, std::uint64_t axis) {
    Extents dims = b.extents(from);
    dims[axis] = b.extents(at)[axis];
    return b.wide(Op::gather, DType::Float32, dims, {from, at}, ir::Gather{axis});
  };
  const NodeId some = take(x, rows, 1), more = take(some, columns, 2),
               last = take(some, b.op(Op::negative, {columns}), 2);
  b.root(b.op(Op::multiply, {more, last}));
  checked(b, {gpu_target(1)});
}

/// Elements that are converted are 0 where an index is out of range, without a choice of their own; and what
/// several places of a row are distances behind shares these distances.
TEST(Strips, ConvertedElementsAtTwoPlacesShareGuardsAndSteps) {
  GraphBuilder b;
  const NodeId x = b.cast(b.leaf(DType::Float16, {96, 13}), DType::Float32),
               one = b.leaf(DType::Int32, {1, 45}), other = b.leaf(DType::Int32, {1, 45});
  const auto take = [&](NodeId at) {
    return b.wide(Op::gather, DType::Float32, {96, 45}, {x, at}, ir::Gather{1});
  };
  b.root(b.op(Op::multiply, {take(one), take(other)}));
  const std::string text = checked(b, {gpu_target(1)}).front().text();
  EXPECT_EQ(text.find(", 0)"), std::string::npos) << text;
  const auto times = [&](const std::string& part) {
    int n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(times("f32(in1["), 16) << text;
  EXPECT_EQ(times(" * p6"), 8) << "a row is a distance for both places\n" << text;
}

/// An index serves several rows.
TEST(Strips, OnePlaceMayServeSeveralRows) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {96, 20}), places = b.leaf(DType::Int64, {1, 45});
  b.root(b.wide(Op::gather, DType::Float32, {96, 45}, {x, places}, ir::Gather{1}));
  EXPECT_GT(loads_of_strip(b), 0);
}

}  // namespace
}  // namespace kiln::lower
