// Regions whose reductions go along different axes: nests and slabs, held against the oracle.
#include "lower/lowered_graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i64 = DType::Int64;

schedule::Target target(bool gpu) {
  schedule::Target t;
  t.gpu = gpu;
  t.threads = gpu ? 4 : 2;
  t.vector_bytes = 64;
  t.launch_ns = 1e9;  // one kernel is worth anything
  return t;
}

struct Forms {
  std::vector<Form> cpu, gpu;
};

/// The forms on a CPU and a GPU, after a check on both.
Forms check_both(GraphBuilder& b) {
  const auto both = checked(b, {target(false), target(true)});
  return {both[0].forms, both[1].forms};
}

std::vector<Form> check(GraphBuilder& b) { return check_both(b).cpu; }

/// Σ over d of |x[i, d] - c[k, d]|, of (i, k).
NodeId distances(GraphBuilder& b, std::int64_t n, std::int64_t k, std::int64_t d) {
  const NodeId x = b.reshape(b.leaf(i64, {n, d}), {n, 1, d}), c = b.reshape(b.leaf(i64, {k, d}), {1, k, d});
  return b.reduce(Op::reduce_sum, b.op(Op::abs, {b.op(Op::subtract, {x, c})}), 4);
}

TEST(Nest, TheNearestOfSeveralRowsIsFoundInOneKernel) {
  for (const auto& [n, k, d] : {std::array{9, 40, 32}, {70, 300, 5}, {3, 7, 100}, {600, 64, 3}}) {
    GraphBuilder b;
    b.root(b.reduce(Op::reduce_argmin, distances(b, n, k, d), 2));
    EXPECT_EQ(check(b), std::vector{Form::Nest});
  }
}

/// A sum over both axes of which a nest has one after the other, innermost first.
TEST(Nest, NoReductionSkipsALevel) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {2, 5}), y = b.leaf(i64, {2, 1});
  const NodeId tiled = b.reshape(b.broadcast(b.reshape(x, {2, 1, 5}), {2, 3, 5}), {2, 15});
  const NodeId apart = b.op(Op::abs, {b.op(Op::subtract, {tiled, y})});
  const NodeId middle = b.reshape(b.reduce(Op::reduce_sum, b.reshape(apart, {2, 3, 5}), 2), {2, 5});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {middle, x}), 2));
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {apart, apart}), 2));
  b.root(b.op(Op::multiply, {middle, y}));
  check(b);
}

TEST(Nest, AlsoWhereTheValuesBetweenAreResults) {
  GraphBuilder b;
  const NodeId s = distances(b, 12, 33, 20);
  b.root(s);
  b.root(b.reduce(Op::reduce_min, b.op(Op::multiply, {s, s}), 2));
  EXPECT_EQ(check(b), std::vector{Form::Nest});
}

TEST(Nest, OverOuterAxesAndOverSeveral) {
  for (const std::uint64_t inner : {1u, 2u, 4u, 8u, 3u, 5u})
    for (const std::uint64_t outer : {1u, 2u, 4u}) {
      GraphBuilder b;
      const NodeId x = b.leaf(i64, {6, 5, 7, 40}), first = b.reduce(Op::reduce_max, x, inner);
      if (b.graph[first].dims.size() <= static_cast<std::size_t>(std::countr_zero(outer))) continue;
      b.root(b.reduce(Op::reduce_sum, first, outer));
      check(b);
    }
}

TEST(Nest, ThreeLevels) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {40, 6, 5, 33});
  b.root(b.reduce(Op::reduce_argmax, b.reduce(Op::reduce_min, b.reduce(Op::reduce_sum, x, 8), 4), 2));
  EXPECT_EQ(check(b), std::vector{Form::Nest});
}

TEST(Nest, ThroughAReshapeThatCutsElsewhere) {
  GraphBuilder b;
  const NodeId s = b.reduce(Op::reduce_sum, b.leaf(i64, {6, 20, 33}), 4);  // (6, 20) seen as (40, 3)
  b.root(b.reduce(Op::reduce_max, b.reshape(s, {40, 3}), 2));
  check(b);
}

TEST(Slab, MapsOfReductionsOverDifferentAxesAreOneKernel) {
  for (const std::uint64_t first : {2u, 4u})
    for (const auto op : {Op::reduce_max, Op::reduce_argmax}) {
      GraphBuilder b;
      const NodeId x = b.leaf(i64, {30, 14, 37});
      const auto kept = [&](std::uint64_t mask) {
        const NodeId r = b.reduce(op, x, mask);
        return b.reshape(
            r, mask == 2 ? std::vector<std::int64_t>{30, 1, 37} : std::vector<std::int64_t>{30, 14, 1});
      };
      const NodeId centred = b.op(Op::subtract, {x, kept(first)});
      const NodeId sum = b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 6 - first);
      const NodeId shown = b.reshape(
          sum, first == 4 ? std::vector<std::int64_t>{30, 1, 37} : std::vector<std::int64_t>{30, 14, 1});
      b.root(b.op(Op::add, {centred, shown}));
      b.root(sum);
      const Forms forms = check_both(b);
      EXPECT_EQ(forms.cpu, std::vector{Form::Slab});
      EXPECT_EQ(forms.gpu, std::vector{Form::Slab});
    }
}

/// x - max over one axis + min over the other, of slabs that a GPU's block has room for or not: with few and
/// many rows for its threads, and rows of whole vectors or not.
TEST(Slab, AGpuHoldsWhatItHasRoomFor) {
  struct Case {
    std::int64_t rows, columns;
    DType type;
    bool fits;
  };
  for (const Case& c : {Case{5, 7, DType::Int8, true},
                        {3, 400, DType::Int16, true},
                        {400, 3, DType::Int16, true},
                        {64, 64, DType::Int64, true},
                        {90, 90, DType::Int32, true},
                        {16, 16, DType::Int32, true},
                        {128, 96, DType::Int16, true},
                        {129, 84, DType::Int16, true},
                        {97, 50, DType::Int8, true},
                        {65, 64, DType::Int64, false},

                        {2000, 2, DType::Int16, false}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(c.type, {9, c.rows, c.columns});
    const NodeId most = b.reshape(b.reduce(Op::reduce_max, x, 2), {9, 1, c.columns}),
                 least = b.reshape(b.reduce(Op::reduce_min, x, 4), {9, c.rows, 1});
    b.root(b.op(Op::add, {b.op(Op::subtract, {x, most}), least}));
    const std::vector<Form> forms = check_both(b).gpu;
    EXPECT_EQ(forms == std::vector{Form::Slab}, c.fits) << c.rows << " x " << c.columns;
  }
}

/// Slabs so small that a GPU's block has several: of any extents, the last ones fewer, and of which no one
/// begins with a vector.
TEST(Slab, AGpusBlockHasSeveralSmallOnes) {
  struct Case {
    GraphBuilder::Extents dims;
    std::uint64_t first, other;
  };
  for (const Case& c : {Case{{131, 5, 7}, 2, 4},
                        {{200, 16, 16}, 2, 4},
                        {{97, 12, 4}, 4, 2},
                        {{77, 2, 3, 4}, 4 | 8, 2},
                        {{10, 13, 3, 5, 4}, 4 | 16, 8},
                        {{500, 2, 2}, 2, 2 | 4},
                        {{70, 30, 31}, 2, 4}})
    for (const DType type : {DType::Int64, DType::Int32, DType::Int16, DType::Int8}) {
      GraphBuilder b;
      const NodeId x = b.leaf(type, c.dims);
      const auto kept = [&](Op op, NodeId of, std::uint64_t mask) {
        GraphBuilder::Extents dims = c.dims;
        for (std::size_t a = 0; a < dims.size(); ++a)
          if (mask >> a & 1) dims[a] = 1;
        return b.reshape(b.reduce(op, of, mask), dims);
      };
      const NodeId apart = b.op(Op::subtract, {x, kept(Op::reduce_max, x, c.first)});
      const NodeId least = kept(Op::reduce_min, apart, c.other);
      b.root(least);
      b.root(b.op(Op::add, {apart, least}));
      EXPECT_EQ(check_both(b).gpu, std::vector{Form::Slab}) << c.dims[0] << " " << info(type).short_name;
    }
}

/// … with operands of a slab, of a row of each slab, and of all, and results of several places.
TEST(Slab, SeveralSmallOnesHaveOperandsAndResultsOfTheirOwn) {
  for (const std::int64_t last : {8, 9}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i64, {150, 6, last}), y = b.cast(b.leaf(DType::Int8, {150, 6, last}), i64),
                 item = b.reshape(b.leaf(i64, {150}), {150, 1, 1}),
                 row = b.reshape(b.leaf(i64, {150, 6}), {150, 6, 1}),
                 weight = b.reshape(b.leaf(i64, {last}), {1, 1, last});
    const NodeId z =
        b.op(Op::add, {b.op(Op::multiply, {b.op(Op::add, {x, y}), weight}), b.op(Op::add, {item, row})});
    const NodeId rows = b.reduce(Op::reduce_min, z, 4), columns = b.reduce(Op::reduce_sum, z, 2),
                 at = b.reduce(Op::reduce_argmax, z, 2), all = b.reduce(Op::reduce_max, z, 2 | 4);
    for (const NodeId r : {rows, columns, at, all}) b.root(r);
    b.root(b.op(Op::add, {b.op(Op::subtract, {z, b.reshape(rows, {150, 6, 1})}),
                          b.op(Op::add, {b.reshape(columns, {150, 1, last}), b.reshape(all, {150, 1, 1})})}));
    EXPECT_EQ(check_both(b).gpu, std::vector{Form::Slab});
  }
}

/// A sum of the whole slab, a second operand of its own, one of all slabs, and axes between.
TEST(Slab, OfSeveralOperandsAndPlaces) {
  for (const std::int64_t last : {8, 9}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i64, {11, 6, 4, last}), y = b.leaf(DType::Int8, {11, 6, 4, last});
    const NodeId weight = b.reshape(b.leaf(i64, {last}), {1, 1, 1, last});
    const NodeId z = b.op(Op::multiply, {b.op(Op::add, {x, b.cast(y, i64)}), weight});
    const NodeId rows = b.reshape(b.reduce(Op::reduce_min, z, 8), {11, 6, 4, 1}),
                 planes = b.reshape(b.reduce(Op::reduce_sum, z, 2 | 4), {11, 1, 1, last}),
                 all = b.reshape(b.reduce(Op::reduce_max, z, 2 | 4 | 8), {11, 1, 1, 1});
    b.root(b.op(Op::add, {b.op(Op::subtract, {z, rows}), b.op(Op::add, {planes, all})}));
    check_both(b);
  }
}

/// Group norm, weighted and summed up: places of several axes each, of which each has its own length.
TEST(Slab, PlacesOfSeveralAxesBeforeASumOfAll) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {2, 3, 4, 5}), y = b.leaf(i64, {2, 3, 4, 5});
  const NodeId weight = b.reshape(b.leaf(i64, {3, 4}), {1, 3, 4, 1});
  const NodeId mean = b.reshape(b.reduce(Op::reduce_sum, x, 4 | 8), {2, 3, 1, 1});
  const NodeId scaled = b.op(Op::multiply, {b.op(Op::subtract, {x, mean}), weight});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {scaled, y}), 1 | 2 | 4 | 8));
  check_both(b);
}

/// Sums along different axes and of all elements are added up in blocks of different lengths.
TEST(Slab, SumsOfFloatsHaveBlocksOfTheirOwn) {
  GraphBuilder b;
  const NodeId x = b.cast(b.leaf(DType::Int16, {6, 7, 3, 1}), DType::Float32);
  const NodeId rows = b.reshape(b.reduce(Op::reduce_sum, x, 2), {6, 1, 3, 1}),
               columns = b.reshape(b.reduce(Op::reduce_sum, x, 4), {6, 7, 1, 1});
  const NodeId all = b.op(Op::add, {b.op(Op::subtract, {x, rows}), columns});
  b.root(b.reduce(Op::reduce_sum, all, 1 | 2 | 4 | 8));
  EXPECT_EQ(check(b), std::vector{Form::Slab});
}

/// Values that are stored and reduced along another axis later are read again if they take long to make.
TEST(Slab, ResultsThatAreReducedLaterAreKept) {
  for (const bool wide : {false, true})  // wide: the result repeats a value of another place
    for (const std::int64_t columns : {5, 16, 37}) {
      const auto make = [&](int operations) {
        GraphBuilder b;
        const NodeId x = b.leaf(i64, {3, 30, columns});
        const NodeId most = b.reshape(b.reduce(Op::reduce_max, x, 4), {3, 30, 1});
        NodeId y = wide ? most : b.op(Op::subtract, {x, most});
        for (int i = 0; i < operations; ++i) y = b.op(Op::bitwise_xor, {b.op(Op::multiply, {y, most}), most});
        if (wide) b.root(y);
        if (wide) y = b.broadcast(y, {3, 30, columns});
        b.root(y);
        b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {y, x}), 2));
        b.root(b.reduce(Op::reduce_max, y, 2));
        return checked(b, {target(false)}).front();
      };
      const auto made = [](const LoweredGraph& g) {
        const std::string text = g.text();
        const std::string kernel = text.substr(text.find("grid "));
        return std::ranges::count(kernel, '^');
      };
      const LoweredGraph few = make(1), many = make(12);
      if (wide) continue;
      ASSERT_EQ(many.forms, std::vector{Form::Slab});
      EXPECT_EQ(made(many), 12) << many.text();  // once, not for each reduction
      EXPECT_EQ(made(few), 2) << few.text();     // cheap ones again
    }
}

TEST(Slab, SquaresAreNoDiagonals) {
  GraphBuilder b;
  const NodeId x = b.leaf(i64, {23, 23}), y = b.op(Op::multiply, {x, x});
  b.root(b.op(Op::add, {y, b.permute(y, {1, 0})}));
  b.root(b.op(Op::add, {b.reduce(Op::reduce_sum, y, 1), b.reduce(Op::reduce_sum, y, 2)}));
  check(b);
}

}  // namespace
}  // namespace kiln::lower
