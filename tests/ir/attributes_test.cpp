// Attributes come back as they were stored, for recorded nodes and nodes of a graph alike.
#include "ir/attributes.h"

#include "ir/graph.h"
#include "record/node.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kiln::ir {
namespace {

template <class A, class Check>
void comes_back(Op op, const A& given, Check check) {
  Graph graph;
  GraphNode in_graph;
  in_graph.op = op;
  set_attributes(graph, in_graph, given);
  check(attributes<A>(in_graph));
  EXPECT_TRUE(well_stored(op, stored(in_graph))) << info(op).name;
  const NodeRef recorded = NodeRef::adopt(new_node(op, DType::Float32, {}, SourceLocation::current()));
  set_attributes(recorded.get(), given);
  check(attributes<A>(*recorded));
  EXPECT_EQ(stored(*recorded).word, stored(in_graph).word);
  EXPECT_TRUE(std::ranges::equal(stored(*recorded).list, stored(in_graph).list));
}

TEST(Attributes, ComeBackAsTheyWereStored) {
  for (const bool one : {false, true})
    for (const bool other : {false, true}) {
      comes_back(Op::scan_max, Scan{15, one, other}, [&](const Scan& s) {
        EXPECT_TRUE(s.axis == 15 && s.exclusive == one && s.reverse == other);
      });
      comes_back(Op::update_at, Position{15, one ? 16 : 1, other}, [&](const Position& p) {
        EXPECT_TRUE(p.axis == 15 && p.factor == (one ? 16 : 1) && p.from_back == other);
      });
    }
  comes_back(Op::sort, Sort{3, true}, [](const Sort& s) { EXPECT_TRUE(s.axis == 3 && s.descending); });
  comes_back(Op::join, Join{15}, [](const Join& j) { EXPECT_EQ(j.axis, 15u); });
  comes_back(Op::alias, Alias{true}, [](const Alias& a) { EXPECT_TRUE(a.stops); });
  comes_back(Op::part, Part{1}, [](const Part& p) { EXPECT_EQ(p.index, 1u); });
  comes_back(Op::searchsorted, Search{true}, [](const Search& s) { EXPECT_TRUE(s.right); });
  comes_back(Op::reduce_min, Reduce{5},
             [](const Reduce& r) { EXPECT_TRUE(r.over(0) && !r.over(1) && r.over(2)); });
  Permute axes;
  for (std::size_t a = 0; a < 16; ++a) axes.show(a, 15 - a);
  comes_back(Op::permute, axes, [](const Permute& p) {
    for (std::size_t a = 0; a < 16; ++a) EXPECT_EQ(p[a], 15 - a);
  });
  const std::vector<std::int64_t> first{4, -1, 0}, step{-2, 1, 7};
  comes_back(Op::slice, Box(first, step), [&](const Box& b) {
    ASSERT_EQ(b.rank(), 3u);
    for (std::size_t a = 0; a < 3; ++a) EXPECT_TRUE(b.first(a) == first[a] && b.step(a) == step[a]);
  });
  const std::vector<std::int64_t> windows{3, 2, 1, 0, 5, 4};
  comes_back(Op::sliding_window, Windows(windows), [&](const Windows& w) {
    ASSERT_EQ(w.count(), 2u);
    EXPECT_TRUE(w.axis(0) == 3 && w.stride(0) == 2 && w.dilation(0) == 1);
    EXPECT_TRUE(w.axis(1) == 0 && w.stride(1) == 5 && w.dilation(1) == 4);
  });
  comes_back(Op::scatter, Scatter{2, Combine::Max, first}, [&](const Scatter& s) {
    EXPECT_TRUE(s.axis == 2 && s.how == Combine::Max && std::ranges::equal(s.joined, first));
  });
  comes_back(Op::gather, Gather{7}, [](const Gather& g) { EXPECT_TRUE(g.axis == 7 && g.joined.empty()); });
}

TEST(Attributes, OfAnotherOpAreRefused) {
  GraphNode scan;
  scan.op = Op::scan_sum;
  EXPECT_THROW(attributes<Reduce>(scan), InternalError);
  EXPECT_THROW(set_attributes(scan, Nothing{}), InternalError);
  EXPECT_EQ(attributes<Scan>(scan).axis, 0u);
}

template <class... As>
int fitting(Kinds<As...>, Op op) {
  return (0 + ... + As::fits(op));
}

TEST(Attributes, EveryOpHasOneKind) {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const int kinds = fitting(AttributeKinds{}, op) + Nothing::fits(op);
    EXPECT_EQ(kinds, 1) << info(op).name;
    EXPECT_TRUE(well_stored(op, {}) || Box::fits(op)) << info(op).name;
    EXPECT_EQ(well_stored(op, {std::uint64_t{1} << 40, {}}),
              Constant::fits(op) || Iota::fits(op) || Permute::fits(op) || Reduce::fits(op) ||
                  Loop::fits(op) || LoopResult::fits(op) || Gather::fits(op) || Join::fits(op) ||
                  Part::fits(op) || Custom::fits(op))
        << info(op).name << ": only these use all bits of the word";
  }
}

}  // namespace
}  // namespace kiln::ir
