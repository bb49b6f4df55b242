// Maps of a GPU whose operands begin anywhere in a row or are there for a part of the points, held against
// the oracle: rolls, joins, pads, slices and stencils of them.
#include "lower/gpu_target.h"
#include "lower/lowered_graph.h"

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using Extents = GraphBuilder::Extents;

/// Post: values are the oracle's. Returns whether a loop's runs are tested.
bool tested(GraphBuilder& b) {
  const LoweredGraph lowered = checked(b, {gpu_target()}).front();
  return lowered.text().find("vectorx1/") != std::string::npos ||
         lowered.text().find("vectorx4/4") != std::string::npos ||
         lowered.text().find("vectorx8/8") != std::string::npos;
}

Extents box_of(const Extents& dims) {
  Extents box;
  for (std::size_t a = 0; a < dims.size(); ++a) box.insert(box.end(), {0, 1});
  return box;
}

/// Elements first, first + 1, … of an axis.
NodeId part(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t first, std::int64_t count) {
  Extents dims = b.extents(x), box = box_of(dims);
  dims[axis] = count;
  box[2 * axis] = first;
  return b.slice(x, dims, box);
}

NodeId roll(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t by) {
  const std::int64_t n = b.extents(x)[axis];
  return b.add(Op::join, {part(b, x, axis, n - by, by), part(b, x, axis, 0, n - by)}, ir::Join{axis});
}

NodeId padded(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t before, std::int64_t after) {
  Extents dims = b.extents(x), box = box_of(dims);
  dims[axis] += before + after;
  box[2 * axis] = before;
  return b.pad(x, b.constant(b.graph[x].dtype, 0), dims, box);
}

const DType kTypes[] = {DType::Int8, DType::Int16, DType::Float32, DType::Int64};

TEST(Windows, RollsOfAnyAxisByAnyNumber) {
  for (const DType type : kTypes)
    for (const Extents& dims : {Extents{5, 4096}, Extents{3, 2, 2053}, Extents{1700}})
      for (std::size_t axis = 0; axis < dims.size(); ++axis)
        for (const std::int64_t by : {std::int64_t{1}, dims[axis] / 2, dims[axis] - 1}) {
          if (by == 0 || by == dims[axis]) continue;
          GraphBuilder b;
          const NodeId x = b.leaf(type, dims);
          b.root(b.op(Op::add, {roll(b, x, axis, by), x}));
          tested(b);
        }
}

TEST(Windows, ARollOfAnOuterAxisIsOneLoad) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {7, 1024});
  b.root(b.op(Op::negative, {roll(b, x, 0, 1)}));
  const auto expected = b.values();
  LoweredGraph lowered(b, gpu_target());
  EXPECT_EQ(lowered.values(), expected);
  EXPECT_EQ(lowered.text().find("in1"), std::string::npos) << lowered.text();
}

/// Guards of an outer axis become those of longer rows where narrow rows are no whole vectors.
TEST(Windows, OddRowsThatAreMovedWholeAreRunsOfOneLongRow) {
  for (const DType type : {DType::Int8, DType::Int16})
    for (const Extents& dims : {Extents{2, 301, 131}, Extents{301, 3, 43}}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, dims);
      b.root(b.op(Op::negative, {roll(b, x, dims[0] == 2 ? 1 : 0, 120)}));
      EXPECT_TRUE(tested(b));
    }
}

/// A pad around a roll: neither place is there behind the border.
TEST(Windows, ARollInsideAPad) {
  for (const DType type : kTypes) {
    GraphBuilder b;
    const NodeId x = b.leaf(type, {3, 1500});
    b.root(b.op(Op::negative, {padded(b, roll(b, x, 1, 700), 1, 5, 9)}));
    tested(b);
  }
}

/// Every other element of narrow rows, and those between: adjacent threads have adjacent results.
TEST(Windows, NarrowElementsThatLieApartAreOnAdjacentLanes) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Int16, {80, 512});
  const NodeId even = b.slice(x, {80, 256}, {0, 1, 0, 2}), odd = b.slice(x, {80, 256}, {0, 1, 1, 2});
  b.root(b.op(Op::maximum, {even, odd}));
  const LoweredGraph lowered = checked(b, {gpu_target()}).front();
  EXPECT_NE(lowered.text().find("vectorx1 "), std::string::npos) << lowered.text();
}

TEST(Windows, StencilsInTheInteriorAndOverABorder) {
  for (const DType type : kTypes)
    for (const std::int64_t row : {2048, 2043}) {  // of too few points for strips
      GraphBuilder inside, border;
      const NodeId x = inside.leaf(type, {6, row});
      const auto at = [&](std::int64_t y, std::int64_t z) {
        return part(inside, part(inside, x, 0, y, 4), 1, z, row - 2);
      };
      NodeId sum = at(1, 1);
      for (const auto& [y, z] : {std::pair{0, 1}, {2, 1}, {1, 0}, {1, 2}})
        sum = inside.op(Op::add, {sum, at(y, z)});
      inside.root(sum);
      EXPECT_TRUE(tested(inside) || row == 2048) << row;

      const NodeId p = border.leaf(type, {6, row});
      sum = p;
      for (const std::size_t axis : {0, 1})
        for (const std::int64_t by : {0, 2})
          sum = border.op(Op::add,
                          {sum, part(border, padded(border, p, axis, 1, 1), axis, by, axis == 0 ? 6 : row)});
      border.root(sum);
      tested(border);
    }
}

TEST(Windows, JoinsWhosePartsBeginAnywhere) {
  for (const DType type : kTypes)
    for (const std::int64_t a : {800, 801, 2400}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, {3, a}), y = b.leaf(type, {3, 1003}), z = b.leaf(type, {3, 2000});
      b.root(b.add(Op::join, {x, b.op(Op::negative, {y}), z}, ir::Join{1}));
      tested(b);
    }
}

/// Halves of a row that begin at vectors: runs need no test for them.
TEST(Windows, TurnedPairs) {
  for (const DType type : {DType::BFloat16, DType::Float32})
    for (const std::int64_t half : {8, 20, 64}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, {40, 3, 2 * half}),
                   c = b.broadcast(b.leaf(type, {40, 1, half}), {40, 3, half});
      const NodeId u = part(b, x, 2, 0, half), v = part(b, x, 2, half, half);
      b.root(b.add(Op::join, {b.op(Op::multiply, {u, c}), b.op(Op::multiply, {v, c})}, ir::Join{2}));
      tested(b);
    }
}

TEST(Windows, RowsFromTheirEnd) {
  for (const DType type : kTypes) {
    GraphBuilder b;
    const NodeId x = b.leaf(type, {3, 2053});
    b.root(
        b.op(Op::add, {b.slice(x, {3, 2053}, {0, 1, 2052, -1}), part(b, padded(b, x, 1, 1, 0), 1, 0, 2053)}));
    tested(b);
  }
}

/// Rows that most runs would cross the end of, or that begin and end to be there too often, are read one by
/// one.
TEST(Windows, ShortRowsAndManyPartsAreNot) {
  GraphBuilder stencil, many;
  const NodeId x = stencil.leaf(DType::BFloat16, {500, 17});
  stencil.root(stencil.op(Op::add, {part(stencil, x, 1, 0, 15), part(stencil, x, 1, 2, 15)}));
  EXPECT_FALSE(tested(stencil));
  NodeId parts[3];
  for (const int i : {0, 1, 2}) parts[i] = many.leaf(DType::BFloat16, {50, 101 + i});
  many.root(many.add(Op::join, {parts[0], parts[1], parts[2]}, ir::Join{1}));
  EXPECT_FALSE(tested(many));
}

/// Neighbours are one index from several addresses.
TEST(Windows, NeighboursShareTheirStrides) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {40, 30, 2000});
  NodeId sum = part(b, part(b, x, 0, 1, 38), 1, 1, 28);
  for (const std::int64_t by : {0, 2}) {
    sum = b.op(Op::add, {sum, part(b, part(b, x, 0, by, 38), 1, 1, 28)});
    sum = b.op(Op::add, {sum, part(b, part(b, x, 0, 1, 38), 1, by, 28)});
  }
  b.root(sum);
  LoweredGraph lowered(b, gpu_target());
  const std::string text = lowered.text(), params = text.substr(text.find("\nparams ") + 8, 3);
  EXPECT_LT(std::stoi(params), 12) << text;
}

}  // namespace
}  // namespace kiln::lower
