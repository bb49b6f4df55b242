#include "transform/block_rows.h"

#include "transform/cse.h"
#include "transform/dce.h"
#include "transform/transformed.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using Extents = GraphBuilder::Extents;
using Reasons = std::vector<FusionReason>;

constexpr BlockCosts kFour{.block_bytes = 0, .rows = 4, .half_rows = 8, .rows_a_term = 8, .saved_bytes = 0};

struct Cut {
  std::vector<Extents> products;  // that are left
  std::vector<FusionReason> notes;
};

/// What becomes of a graph whose values stay.
Cut cut(GraphBuilder& b, const BlockCosts& costs = kFour, const TiledNodes& tiled = {}) {
  cse(b.graph);
  const auto before = b.values();
  const std::string text = ir::print(b.graph);
  std::vector<PatternNote> notes;
  block_rows(b.graph, costs, notes, tiled);
  ir::verify(b.graph);
  cse(b.graph);
  dce(b.graph);
  ir::verify(b.graph);
  auto after = b.values();
  EXPECT_GE(after.size(), before.size());
  after.resize(before.size());  // what is held besides comes behind the roots
  EXPECT_EQ(before, after) << text << "became\n" << ir::print(b.graph);
  Cut out;
  for (NodeId id = 0; id < b.graph.size(); ++id)
    if (b.graph[id].op == Op::matmul) out.products.push_back(b.extents(id));
  for (const PatternNote& note : notes) out.notes.push_back(note.why.reason());
  return out;
}

const std::vector<Extents> kThree = {{4, 33}, {4, 33}, {2, 33}};  // of ten rows
const std::vector<Extents> kWhole = {{10, 33}};

struct Product : GraphBuilder {
  explicit Product(DType type = DType::Float64, std::int64_t rows = 10, std::int64_t columns = 33)
      : x(leaf(type, {rows, 7})), w(leaf(type, {7, columns})), y(matmul(x, w)) {}
  NodeId x, w, y;
  NodeId rows(Op op, NodeId of) { return reduce(op, of, 0b10); }
};

TEST(BlockRows, ReductionsOfRowsAreMadeByBlocks) {
  Product b;
  b.root(b.rows(Op::reduce_max, b.y));
  b.root(b.rows(Op::reduce_argmax, b.y));
  const Cut c = cut(b);
  EXPECT_EQ(c.products, kThree);
  EXPECT_EQ(c.notes, std::vector{FusionReason::InBlocks});
}

TEST(BlockRows, ReductionsThatDependOnEachOther) {
  Product b;
  const NodeId scaled = b.op(Op::multiply, {b.y, b.scalar(DType::Float64, 0x3f847ae147ae147b)});  // 0.01
  const NodeId most = b.rows(Op::reduce_max, scaled);
  const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {scaled, b.broadcast(most, {10, 33})})});
  const NodeId sum = b.rows(Op::reduce_sum, e);
  b.root(b.op(Op::add, {most, b.op(Op::log, {sum})}));
  EXPECT_EQ(cut(b).products, kThree);
}

TEST(BlockRows, AnElementThatALabelPicks) {
  for (const bool gathers : {false, true}) {
    Product b;
    const NodeId labels = b.leaf(DType::Int32, {10, 1});  // negative ones, and some out of range
    NodeId picked;
    if (gathers) {
      picked = b.add(Op::gather, {b.y, labels}, ir::Gather{1}, {.dims = Extents{10, 1}});
    } else {
      const NodeId columns = b.iota(DType::Int32, {10, 33}, 1);
      const NodeId zero = b.constant(DType::Float64, 0);
      picked = b.rows(Op::reduce_sum, b.op(Op::where, {b.op(Op::equal, {columns, labels}), b.y, zero}));
    }
    b.root(b.op(Op::subtract, {b.rows(Op::reduce_max, b.y), picked}));
    EXPECT_EQ(cut(b).products, kThree) << gathers;
  }
}

TEST(BlockRows, OperandsOfRowsColumnsAndBoth) {
  Product b;
  const NodeId mask = b.op(Op::less, {b.iota(DType::Int32, {10, 33}, 0), b.iota(DType::Int32, {10, 33}, 1)});
  NodeId y = b.op(Op::add, {b.y, b.leaf(DType::Float64, {33})});
  y = b.op(Op::multiply, {y, b.leaf(DType::Float64, {10, 1})});
  y = b.op(Op::subtract, {y, b.op(Op::abs, {b.leaf(DType::Float64, {10, 33})})});
  y = b.op(Op::where, {mask, y, b.broadcast(b.leaf(DType::Float64, {1, 33}), {10, 33})});
  b.root(b.rows(Op::reduce_sum, y));
  const Cut c = cut(b);
  EXPECT_EQ(c.products, kThree);
  // the map of memory is made by blocks, too
  for (const ir::GraphNode& n : b.graph.nodes) EXPECT_TRUE(n.op != Op::abs || n.dims[0] < 10);
}

TEST(BlockRows, RowsOfABatch) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float64, {2, 5, 7}), w = b.leaf(DType::Float64, {7, 33});
  NodeId y = b.reshape(b.matmul(b.reshape(x, {10, 7}), w), {2, 5, 33});
  y = b.op(Op::multiply, {y, b.leaf(DType::Float64, {5, 33})});
  y = b.op(Op::add, {y, b.leaf(DType::Float64, {2, 1, 1})});
  b.root(b.reduce(Op::reduce_max, y, 0b100));
  EXPECT_EQ(cut(b).products, kThree);
}

TEST(BlockRows, BatchesOfMatrices) {
  GraphBuilder b;
  const NodeId y = b.matmul(b.leaf(DType::Float64, {5, 2, 2, 7}), b.leaf(DType::Float64, {5, 2, 7, 33}));
  b.root(b.reduce(Op::reduce_max, y, 0b1000));
  EXPECT_EQ(cut(b).products,
            (std::vector<Extents>{{2, 2, 33}, {2, 2, 33}, {2, 2, 33}, {2, 2, 33}, {2, 2, 33}}));
}

TEST(BlockRows, OneMatrixWithAxesOfOne) {
  GraphBuilder b;
  const NodeId y = b.matmul(b.leaf(DType::Float64, {1, 10, 7}), b.leaf(DType::Float64, {1, 7, 33}));
  b.root(b.reduce(Op::reduce_min, y, 0b101));
  EXPECT_EQ(cut(b).products, kThree);
}

TEST(BlockRows, ViewsThatKeepRows) {
  Product b;
  const NodeId cubes = b.reshape(b.y, {10, 3, 11});
  const NodeId turned = b.permute(cubes, {0, 2, 1});
  const NodeId part = b.slice(turned, {10, 10, 3}, {0, 1, 10, -1, 0, 1});
  b.root(b.reduce(Op::reduce_max, part, 0b010));
  EXPECT_EQ(cut(b).products, kThree);
}

TEST(BlockRows, ScansAndSortsOfRows) {
  Product b;
  b.root(b.rows(Op::reduce_max, b.scan(Op::scan_sum, b.y, ir::Scan{1})));
  b.root(b.add(Op::sort, {b.y}, ir::Sort{1, true}, {.dims = Extents{10, 3}}));
  EXPECT_EQ(cut(b).products, kThree);
}

TEST(BlockRows, ProductsOfRowsWhereNoAttentionIsLookedFor) {
  for (const bool matrices : {false, true}) {
    GraphBuilder b;
    const NodeId x = matrices ? b.leaf(DType::Float64, {5, 4, 7}) : b.leaf(DType::Float64, {10, 7});
    const NodeId w = matrices ? b.leaf(DType::Float64, {5, 7, 90}) : b.leaf(DType::Float64, {7, 90});
    const NodeId v = matrices ? b.leaf(DType::Float64, {5, 90, 6}) : b.leaf(DType::Float64, {90, 6});
    const NodeId y = b.matmul(x, w);
    const NodeId most = b.reduce(Op::reduce_max, y, matrices ? 0b100 : 0b10);
    b.root(b.matmul(b.op(Op::tanh, {b.op(Op::subtract, {y, most})}), v));
    BlockCosts costs = kFour;
    costs.products = true;
    EXPECT_EQ(cut(b, costs).products.size(), matrices ? 10u : 6u);
  }
}

constexpr BlockCosts kSums{
    .block_bytes = 0, .rows = 4, .half_rows = 4, .rows_a_term = 8, .saved_bytes = 0, .sums = true};
const std::vector<Extents> kGradients = {{4, 33}, {7, 33}, {4, 33}, {7, 33}, {2, 33}, {7, 33}};

/// A gradient by w beside a reduction of rows: cut with these costs.
Cut gradient(const BlockCosts& costs, const std::function<NodeId(Product&, NodeId g)>& sum) {
  Product b;
  const NodeId g = b.op(Op::subtract, {b.y, b.leaf(DType::Float64, {10, 33})});
  b.root(b.rows(Op::reduce_sum, b.op(Op::multiply, {g, g})));
  b.root(sum(b, g));
  return cut(b, costs);
}

TEST(BlockRows, GradientsAreSumsOverRowsAndRows) {
  const auto by_w = [](Product& b, NodeId g) { return b.matmul(b.permute(b.x, {1, 0}), g); };
  EXPECT_EQ(gradient(kSums, by_w).products, kGradients);
  EXPECT_EQ(gradient(kFour, by_w).notes, Reasons{FusionReason::BlocksOfOthers}) << "the order is not free";
  const auto turned = [](Product& b, NodeId g) { return b.matmul(b.permute(g, {1, 0}), b.x); };
  EXPECT_EQ(gradient(kSums, turned).products.size(), 6u);
  const auto by_both = [&](Product& b, NodeId g) {
    b.root(b.matmul(g, b.permute(b.w, {1, 0})));
    return by_w(b, g);
  };
  EXPECT_EQ(gradient(kSums, by_both).products.size(), 9u);
}

TEST(BlockRows, ProductsOfOtherOperandsAreLeftToAttention) {
  const auto misses = [](const std::function<NodeId(Product&, NodeId)>& reads) {
    return gradient(kSums, reads).notes == Reasons{FusionReason::BlocksOfOthers};
  };
  EXPECT_TRUE(misses([](Product& b, NodeId g) { return b.matmul(g, b.leaf(DType::Float64, {33, 7})); }));
  EXPECT_TRUE(misses([](Product& b, NodeId g) { return b.matmul(b.leaf(DType::Float64, {7, 10}), g); }));
  EXPECT_TRUE(misses([](Product& b, NodeId g) { return b.matmul(g, b.permute(b.w, {1, 0})); }))
      << "keys that are values";
}

TEST(BlockRows, SumsOfRowsAreAddedInTurn) {
  for (const Op op : {Op::reduce_max, Op::reduce_min})
    for (const std::uint64_t over : {0b01, 0b11}) {
      Product b;
      b.root(b.reduce(op, b.y, over));
      EXPECT_EQ(cut(b, kSums).products, kThree);
    }
  Product b;
  b.root(b.reduce(Op::reduce_argmax, b.y, 0b01));
  EXPECT_EQ(cut(b, kSums).products, kWhole) << "positions are not combined";
}

TEST(BlockRows, WhatReadsASumComesAfterTheBlocks) {
  Product b;
  const NodeId most = b.reduce(Op::reduce_max, b.y, 0b01);
  b.root(b.op(Op::exp, {most}));
  b.root(b.rows(Op::reduce_max, b.y));
  EXPECT_EQ(cut(b, kSums).products, kThree);
  Product meets;
  const NodeId all = meets.reduce(Op::reduce_max, meets.y, 0b01);
  meets.root(meets.rows(Op::reduce_sum, meets.op(Op::subtract, {meets.y, all})));
  EXPECT_EQ(cut(meets, kSums).products, kWhole);
}

TEST(BlockRows, AFewMapsOfResultsStayWithThem) {
  Product b;
  const NodeId loss = b.op(Op::log, {b.op(Op::abs, {b.rows(Op::reduce_sum, b.y)})});
  b.root(b.reduce(Op::reduce_sum, loss, 0b11));
  EXPECT_EQ(cut(b).products, kThree);
  const auto is_join = [](const ir::GraphNode& n) { return n.op == Op::join; };
  const auto join = std::ranges::find_if(b.graph.nodes, is_join);
  ASSERT_NE(join, b.graph.nodes.end());
  EXPECT_EQ(b.graph[join->in[0]].op, Op::log);
}

TEST(BlockRows, FewRowsOfALastBlockJoinTheOneBefore) {
  Product b(DType::Float64, 17);
  b.root(b.rows(Op::reduce_max, b.y));
  BlockCosts costs = kFour;
  costs.rows = 8;
  EXPECT_EQ(cut(b, costs).products, (std::vector<Extents>{{8, 33}, {9, 33}}));
}

TEST(BlockRows, CostsDecide) {
  const auto blocks = [](DType type, const BlockCosts& costs, std::int64_t rows = 10) {
    Product b(type, rows);
    b.root(b.rows(Op::reduce_max, b.y));
    return cut(b, costs).products.size();
  };
  EXPECT_EQ(blocks(DType::Float16, kFour), 2u) << "halves have blocks of their own";
  EXPECT_EQ(
      blocks(DType::Float32,
             {.block_bytes = 5 * 33 * 4, .rows = 1, .half_rows = 1, .rows_a_term = 1, .saved_bytes = 0}),
      2u);
  EXPECT_EQ(
      blocks(DType::Float32,
             {.block_bytes = 0, .rows = 4, .half_rows = 4, .rows_a_term = 4, .saved_bytes = 6 * 33 * 4}),
      3u);
  EXPECT_EQ(
      blocks(DType::Float32,
             {.block_bytes = 0, .rows = 4, .half_rows = 4, .rows_a_term = 4, .saved_bytes = 6 * 33 * 4 + 1}),
      1u);
  EXPECT_EQ(blocks(DType::Float32, kFour, 1), 1u);
  EXPECT_EQ(blocks(DType::Float32, kFour, 1000), 32u) << "no more than a join takes";
}

TEST(BlockRows, MoreRowsWhereProcessorsWouldIdle) {
  const auto rows = [](int processors) {
    Product b(DType::Float32, 7 * 128, 20);
    b.root(b.rows(Op::reduce_argmax, b.op(Op::add, {b.y, b.leaf(DType::Float32, {896, 20})})));
    std::vector<std::int64_t> out;
    for (const Extents& e : cut(b, {.block_bytes = 0,
                                    .rows = 128,
                                    .half_rows = 128,
                                    .rows_a_term = 128,
                                    .saved_bytes = 0,
                                    .processors = processors})
                                .products)
      out.push_back(e[0]);
    return out;
  };
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(rows(1), (Rows{128, 128, 128, 128, 128, 128, 128}));
  EXPECT_EQ(rows(3), (Rows{256, 256, 256, 128}));
}

/// Why a program of a product is left alone.
std::vector<FusionReason> missed(const std::function<void(Product&)>& program) {
  Product b;
  program(b);
  const Cut c = cut(b);
  EXPECT_EQ(c.products.front(), kWhole.front());
  return c.notes;
}

TEST(BlockRows, AProductThatIsWantedStays) {
  const Reasons wanted = {FusionReason::BlocksWanted};
  EXPECT_EQ(missed([](Product& b) {
              b.root(b.rows(Op::reduce_max, b.y));
              b.root(b.y);
            }),
            wanted);
  EXPECT_EQ(missed([](Product& b) {
              const NodeId most = b.rows(Op::reduce_max, b.y);
              const NodeId spread = b.broadcast(most, {10, 33});
              b.root(b.rows(Op::reduce_sum, b.op(Op::subtract, {b.y, spread})));
              b.root(b.op(Op::exp, {spread}));
            }),
            wanted);
}

TEST(BlockRows, OfWhatHandlesHoldResultsOfRowsAreStored) {
  Product b;
  const NodeId most = b.rows(Op::reduce_max, b.y);
  b.root(b.rows(Op::reduce_sum, b.op(Op::exp, {b.op(Op::subtract, {b.y, most})})));
  b.graph[b.y].held = b.graph[most].held = true;
  EXPECT_EQ(cut(b).products, kThree);
  const auto held = [](const ir::GraphNode& n) { return n.held; };
  EXPECT_EQ(std::ranges::count_if(b.graph.nodes, held), 2) << "the sum and the maximum";
}

TEST(BlockRows, AProductWhoseColumnsAreReadStays) {
  const Reasons others = {FusionReason::BlocksOfOthers};
  EXPECT_EQ(missed([](Product& b) {
              b.root(b.rows(Op::reduce_max, b.y));
              b.root(b.reduce(Op::reduce_max, b.y, 0b01));
            }),
            others);
  EXPECT_EQ(missed([](Product& b) {
              b.root(b.rows(Op::reduce_max, b.y));
              b.root(b.reduce(Op::reduce_max, b.permute(b.y, {1, 0}), 0b01));
            }),
            others);
  EXPECT_EQ(missed([](Product& b) {
              const NodeId most = b.rows(Op::reduce_max, b.y);
              const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {b.y, most})});
              b.root(b.matmul(e, b.leaf(DType::Float64, {33, 5})));
            }),
            others)
      << "another product";
}

TEST(BlockRows, WhatAllRowsGiveMeetsNoBlock) {
  EXPECT_EQ(missed([](Product& b) {
              const NodeId most = b.reduce(Op::reduce_max, b.rows(Op::reduce_max, b.y), 0b01);
              b.root(b.rows(Op::reduce_sum, b.op(Op::subtract, {b.y, most})));
            }),
            Reasons{FusionReason::BlocksMeet});
}

TEST(BlockRows, WithoutReductionsOfRowsNothingIsSaid) {
  EXPECT_EQ(missed([](Product& b) { b.root(b.op(Op::exp, {b.y})); }), Reasons{});
  EXPECT_EQ(missed([](Product& b) { b.root(b.reduce(Op::reduce_max, b.y, 0b11)); }), Reasons{});
}

TEST(BlockRows, ValuesOfRowsMayMeetLargeValuesElsewhere) {
  Product b;
  const NodeId most = b.rows(Op::reduce_max, b.y);
  b.root(b.op(Op::subtract, {b.leaf(DType::Float64, {10, 33}), most}));
  EXPECT_EQ(cut(b).products, kThree);
}

TEST(BlockRows, TwoProductsOneAfterTheOther) {
  Product b;
  const NodeId most = b.rows(Op::reduce_max, b.y);
  const NodeId next = b.matmul(b.op(Op::multiply, {b.x, most}), b.w);
  b.root(b.rows(Op::reduce_sum, next));
  EXPECT_EQ(cut(b).products.size(), 6u);
}

constexpr BlockCosts kFourMatrices{
    .block_bytes = 0, .rows = 40, .half_rows = 40, .rows_a_term = 40, .saved_bytes = 0};

/// The result of an attention of `batch` matrices, and the gradient by its keys and values.
struct Attention : GraphBuilder {
  explicit Attention(std::int64_t batch)
      : q(leaf(DType::Float64, {batch, 10, 3})),
        k(leaf(DType::Float64, {batch, 3, 33})),
        v(leaf(DType::Float64, {batch, 33, 2})),
        scores(matmul(q, k)) {
    const NodeId e = op(Op::exp, {op(Op::subtract, {scores, reduce(Op::reduce_max, scores, 0b100)})});
    weights = op(Op::divide, {e, reduce(Op::reduce_sum, e, 0b100)});
    result = matmul(weights, v);
    root(result);
  }
  /// `cotangent` of the result.
  void differentiate(NodeId cotangent) {
    const NodeId of_weights = op(Op::multiply, {matmul(cotangent, permute(v, {0, 2, 1})), weights});
    const NodeId row = reduce(Op::reduce_sum, of_weights, 0b100);
    const NodeId of_scores = op(Op::subtract, {of_weights, op(Op::multiply, {weights, row})});
    root(matmul(permute(q, {0, 2, 1}), of_scores));
    root(matmul(permute(weights, {0, 2, 1}), cotangent));
  }
  NodeId q, k, v, scores, weights, result;
};

TiledNodes none_tiled() {
  return [](const ir::Graph& g) { return std::vector<bool>(g.size()); };
}

TEST(BlockRows, WeightsOfABatchAreOperandsOfProducts) {
  Attention b(6);
  EXPECT_EQ(cut(b, kFourMatrices, none_tiled()).products,
            (std::vector<Extents>{{4, 10, 33}, {4, 10, 2}, {2, 10, 33}, {2, 10, 2}}));
  Attention tiled(6);
  const auto all = [](const ir::Graph& g) { return std::vector<bool>(g.size(), true); };
  EXPECT_EQ(cut(tiled, kFourMatrices, all).products.size(), 2u) << "a main loop takes it";
}

TEST(BlockRows, GradientsOfAttentionsMakeTheScoresAgain) {
  Attention b(6);
  b.differentiate(b.op(Op::tanh, {b.result}));  // waits for the result
  const Cut after = cut(b, kFourMatrices, none_tiled());
  // two of the result, five of the gradients for each of two blocks
  EXPECT_EQ(after.products.size(), 2u * (2 + 5 - 1));
  EXPECT_EQ(
      std::ranges::count_if(after.products, [](const Extents& e) { return e.back() == 33 && e[1] == 10; }),
      2 * 3);
  EXPECT_EQ(after.notes, (Reasons{FusionReason::InBlocks, FusionReason::InBlocks}));

  Attention given(6);
  given.differentiate(given.leaf(DType::Float64, {6, 10, 2}));
  EXPECT_EQ(cut(given, kFourMatrices, none_tiled()).products.size(), 2u * 5)
      << "nothing waits: scores are made once";
}

TEST(BlockRows, ScoresThatAreReadElsewhereAreNotMadeAgain) {
  Attention b(6);
  b.differentiate(b.op(Op::tanh, {b.result}));
  b.root(b.op(Op::negative, {b.weights}));
  const Cut after = cut(b, kFourMatrices, none_tiled());
  const auto of_all = [](const Extents& e) { return e == Extents{6, 10, 33}; };
  EXPECT_EQ(std::ranges::count_if(after.products, of_all), 1)
      << "of the weights' cotangents there are blocks";
  EXPECT_EQ(after.notes.front(), FusionReason::BlocksWanted);
}

TEST(BlockRows, OneColumnIsNoRow) {
  Product b(DType::Float64, 10, 1);
  b.root(b.rows(Op::reduce_max, b.y));
  EXPECT_EQ(cut(b).products.size(), 1u);
}

}  // namespace
}  // namespace kiln::transform
