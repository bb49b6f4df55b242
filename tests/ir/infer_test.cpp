// What every op makes of its operands, and what it refuses.
#include "ir/infer.h"

#include "ir/graph.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kiln::ir {
namespace {

using Extents = std::vector<std::int64_t>;

struct Operand {
  DType dtype;
  Extents dims;
};
constexpr DType f32 = DType::Float32, f16 = DType::Float16, i32 = DType::Int32, i64 = DType::Int64,
                truth = DType::Bool;

template <class A>
Stored stored_as(Graph& graph, Op op, const A& attributes) {
  GraphNode n;
  n.op = op;
  set_attributes(graph, n, attributes);
  return stored(n);
}

/// "float32 (2, 3)", or what is wrong.
template <class A = Nothing>
std::string made(Op op, const std::vector<Operand>& in, const A& attributes = {}, const Stated& stated = {}) {
  Graph graph;
  std::vector<Type> types;
  for (const Operand& x : in) types.push_back({x.dtype, x.dims});
  const Inferred out = infer(op, types, stored_as(graph, op, attributes), stated);
  return out.fault ? out.fault : std::string(name(out.dtype)) + " " + out.dims.str();
}

/// The same of an op whose result's extents are stated.
template <class A = Nothing>
std::string shown(Op op, const std::vector<Operand>& in, const Extents& dims, const A& attributes = {}) {
  return made(op, in, attributes, {.dims = dims});
}

TEST(Infer, ElementwiseOpsRepeatTheirOperands) {
  EXPECT_EQ(made(Op::add, {{f32, {4, 1}}, {f32, {3}}}), "float32 (4, 3)");
  EXPECT_EQ(made(Op::add, {{f32, {0, 1}}, {f32, {1, 3}}}), "float32 (0, 3)");
  EXPECT_EQ(made(Op::less, {{i32, {2}}, {i32, {}}}), "bool (2,)");
  EXPECT_EQ(made(Op::where, {{truth, {2, 1}}, {f16, {3}}, {f16, {}}}), "float16 (2, 3)");
  EXPECT_EQ(made(Op::philox, {{DType::UInt64, {5}}, {DType::UInt64, {}}}), "uint32 (5,)");
  EXPECT_EQ(shown(Op::add, {{f32, {1}}, {f32, {}}}, {2, 3}), "float32 (2, 3)");
  EXPECT_EQ(made(Op::add, {{f32, {4}}, {f32, {3}}}), "does not fit its operands");
  EXPECT_EQ(shown(Op::exp, {{f32, {2, 3}}}, {3}), "does not fit its operands");
  EXPECT_EQ(made(Op::add, {{f32, {}}, {f16, {}}}), "has operands of different dtypes");
  EXPECT_EQ(made(Op::add, {{f32, {}}}), "has a wrong operand count");
  EXPECT_EQ(made(Op::exp, {{i32, {}}}), "does not take its operands' dtype");
  EXPECT_EQ(made(Op::where, {{f32, {}}, {f32, {}}, {f32, {}}}), "chooses by something other than bool");
  EXPECT_EQ(made(Op::cast, {{f32, {2}}}, Cast{}, {.dtype = i32}), "int32 (2,)");
  EXPECT_EQ(made(Op::cast, {{f32, {2}}}, Cast{}), "needs a dtype");
}

TEST(Infer, Views) {
  EXPECT_EQ(shown(Op::reshape, {{f32, {2, 3}}}, {6}), "float32 (6,)");
  EXPECT_EQ(shown(Op::reshape, {{f32, {2, 3}}}, {5}), "changes the element count");
  EXPECT_EQ(made(Op::reshape, {{f32, {2, 3}}}), "needs extents");
  EXPECT_EQ(shown(Op::broadcast, {{f32, {3}}}, {2, 3}), "float32 (2, 3)");
  EXPECT_EQ(shown(Op::broadcast, {{f32, {3}}}, {2, 4}), "does not fit its operand");
  Permute axes, twice;
  axes.show(0, 2), axes.show(1, 0), axes.show(2, 1);
  twice.show(1, 1), twice.show(2, 1);
  EXPECT_EQ(made(Op::permute, {{f32, {2, 3, 4}}}, axes), "float32 (4, 2, 3)");
  EXPECT_EQ(made(Op::permute, {{f32, {2, 3, 4}}}, twice), "shows an axis twice");
  const Extents box{3, -2}, low{1, 2}, before{-1, 1};
  EXPECT_EQ(shown(Op::slice, {{f32, {4}}}, {2}, Box::from({0, box})), "float32 (2,)");
  EXPECT_EQ(shown(Op::slice, {{f32, {4}}}, {3}, Box::from({0, box})), "reads outside its operand");
  const std::vector<std::int64_t> windows{1, 2, 1, 0, 1, 3};
  EXPECT_EQ(shown(Op::sliding_window, {{f16, {7, 8}}}, {1, 3, 4, 3}, Windows(windows)),
            "float16 (1, 3, 4, 3)");
  EXPECT_EQ(shown(Op::alias, {{f16, {7, 8}}}, {7, 8}, Alias{}), "float16 (7, 8)");
  EXPECT_EQ(shown(Op::alias, {{f16, {7, 8}}}, {7}, Alias{}), "changes the rank");
  EXPECT_EQ(shown(Op::sliding_window, {{f16, {7, 8}}}, {2, 3, 4, 3}, Windows(windows)),
            "reads outside its operand");
  EXPECT_EQ(shown(Op::sliding_window, {{f16, {7, 8}}}, {1, 3, 4}, Windows(windows)),
            "has not one axis more for each window");
  const std::vector<std::int64_t> twice_over{0, 1, 1, 0, 1, 1}, no_step{0, 0, 1}, short_list{0, 1};
  EXPECT_EQ(shown(Op::sliding_window, {{f32, {9}}}, {2, 2, 2}, Windows(twice_over)),
            "has a window over no axis, or two over one");
  EXPECT_EQ(shown(Op::sliding_window, {{f32, {9}}}, {2, 2}, Windows(no_step)),
            "has a bad stride or dilation");
  EXPECT_EQ(shown(Op::sliding_window, {{f32, {9}}}, {2, 2}, Windows(short_list)),
            "has a wrong attribute count");
  EXPECT_EQ(shown(Op::pad, {{f32, {2}}, {f32, {}}}, {4}, Box::from({0, low})), "float32 (4,)");
  EXPECT_EQ(shown(Op::pad, {{f32, {2}}, {f32, {}}}, {3}, Box::from({0, low})), "puts its body outside");
  EXPECT_EQ(shown(Op::pad, {{f32, {2}}, {f32, {}}}, {4}, Box::from({0, before})), "has a bad low or step");
  EXPECT_EQ(shown(Op::pad, {{f32, {2}}, {f16, {}}}, {4}, Box::from({0, low})),
            "has a fill that does not fit");
  EXPECT_EQ(made(Op::join, {{f32, {2, 3}}, {f32, {5, 3}}, {f32, {0, 3}}, {f32, {1, 3}}}, Join{0}),
            "float32 (8, 3)");
  EXPECT_EQ(made(Op::join, {{f32, {2}}, {f16, {2}}}, Join{0}), "has operands of different dtypes or ranks");
  EXPECT_EQ(made(Op::join, {{f32, {2, 3}}, {f32, {2, 4}}}, Join{0}),
            "has operands of other extents off its axis");
  EXPECT_EQ(made(Op::join, {{f32, {INT64_MAX}}, {f32, {1}}}, Join{0}), "has an extent above 63 bits");
  EXPECT_EQ(made(Op::join, {{f32, {2}}}, Join{1}), "has no such axis");
  EXPECT_EQ(made(Op::join, {}, Join{0}), "has no operand");
}

TEST(Infer, PartsAtAPosition) {
  const Operand x{f32, {2, 9}}, start{i64, {}};
  EXPECT_EQ(shown(Op::slice_at, {x, start}, {2, 4}, Position{1}), "float32 (2, 4)");
  EXPECT_EQ(shown(Op::slice_at, {x, start}, {1, 4}, Position{1}), "does not fit its operand");
  EXPECT_EQ(shown(Op::slice_at, {x, {i32, {}}}, {2, 4}, Position{1}), "has a start that is no int64 scalar");
  EXPECT_EQ(made(Op::update_at, {{f32, {2, 4}}, x, start}, Position{1}), "float32 (2, 9)");
  EXPECT_EQ(made(Op::update_at, {{f32, {2, 10}}, x, start}, Position{1}), "does not fit its operand");
  EXPECT_EQ(made(Op::update_at, {{f32, {2, 4}}, x, start}, Position{2}), "has no such axis");
}

TEST(Infer, WhatGoesAlongAxes) {
  EXPECT_EQ(made(Op::reduce_sum, {{f16, {2, 3, 4}}}, Reduce{5}), "float16 (1, 3, 1)");
  EXPECT_EQ(made(Op::reduce_argmax, {{f16, {2, 3}}}, Reduce{3}), "int64 (1, 1)");
  EXPECT_EQ(made(Op::reduce_sum, {{f16, {2, 3}}}, Reduce{4}), "reduces an axis that is not there");
  EXPECT_EQ(made(Op::reduce_logaddexp, {{f16, {2, 3}}}, Reduce{2}), "float16 (2, 1)");
  EXPECT_EQ(made(Op::reduce_logaddexp, {{i32, {2, 3}}}, Reduce{2}), "does not take its operand's dtype");
  EXPECT_EQ(made(Op::scan_sum, {{f16, {2, 3}}}, Scan{1}), "float16 (2, 3)");
  EXPECT_EQ(made(Op::scan_sum, {{f16, {2, 3}}}, Scan{2}), "does not fit its operand");
  EXPECT_EQ(made(Op::scan_logaddexp, {{i32, {2, 3}}}, Scan{1}), "does not fit its operand");
  EXPECT_EQ(made(Op::sort, {{f16, {2, 3}}}, Sort{1}), "float16 (2, 3)");
  EXPECT_EQ(shown(Op::argsort, {{f16, {2, 3}}}, {2, 1}, Sort{1}), "int64 (2, 1)");
  EXPECT_EQ(shown(Op::sort, {{f16, {2, 3}}}, {2, 4}, Sort{1}), "has a wrong extent");
  EXPECT_EQ(shown(Op::sort_with_positions, {{f16, {2, 3}}}, {2, 1}, Sort{1}), "float16 (2, 1)");
  const Extents dims{2, 1};
  const Inferred positions = infer_part(Op::sort_with_positions, {f16, dims}, 1);
  EXPECT_TRUE(positions.fault == nullptr && positions.dtype == i64 && positions.dims == Shape({2, 1}));
  EXPECT_STREQ(infer_part(Op::sort_with_positions, {f16, dims}, 2).fault, "is no result of its op");
  EXPECT_STREQ(infer_part(Op::sort, {f16, dims}, 0).fault, "is of an op of one result");
  EXPECT_EQ(made(Op::searchsorted, {{f32, {9}}, {f32, {2, 3}}}, Search{}), "int64 (2, 3)");
  EXPECT_EQ(made(Op::searchsorted, {{f32, {9, 1}}, {f32, {2}}}, Search{}), "has wrong operands");
  EXPECT_EQ(shown(Op::gather, {{f32, {5, 3}}, {i32, {4, 1}}}, {4, 3}, Gather{0}), "float32 (4, 3)");
  EXPECT_EQ(shown(Op::gather, {{f32, {5, 3}}, {f32, {4, 1}}}, {4, 3}, Gather{0}), "has a wrong operand");
  EXPECT_EQ(made(Op::scatter, {{f32, {5, 3}}, {i32, {4, 1}}, {f32, {4, 3}}}, Scatter{0}), "float32 (5, 3)");
  EXPECT_EQ(made(Op::scatter, {{f32, {5, 3}}, {i32, {4, 1}}, {f32, {4, 2}}}, Scatter{0}),
            "has values that do not fit");
  EXPECT_EQ(made(Op::matmul, {{f32, {7, 2, 3}}, {f32, {7, 3, 4}}}), "float32 (7, 2, 4)");
  EXPECT_EQ(made(Op::matmul, {{f32, {2, 3}}, {f32, {4, 3}}}), "has other extents");
}

TEST(Infer, FactorsAndSystemsTakeSquareMatrices) {
  EXPECT_EQ(made(Op::cholesky, {{f32, {2, 3, 3}}}), "float32 (2, 3, 3)");
  EXPECT_EQ(made(Op::cholesky, {{f32, {2, 3}}}), "needs square matrices");
  EXPECT_EQ(made(Op::cholesky, {{i32, {3, 3}}}), "needs square matrices");
  EXPECT_EQ(made(Op::solve_triangular, {{f16, {2, 3, 3}}, {f16, {2, 3, 7}}}), "float16 (2, 3, 7)");
  EXPECT_EQ(made(Op::solve_triangular, {{f16, {2, 3, 3}}, {f16, {2, 4, 7}}}), "has other extents");
  EXPECT_EQ(made(Op::solve_triangular, {{f16, {2, 3, 3}}, {f32, {2, 3, 7}}}),
            "has operands of another rank or dtype");
  EXPECT_EQ(made(Op::solve_triangular, {{f16, {2, 3, 3}}}), "needs square matrices and right sides");
}

}  // namespace
}  // namespace kiln::ir
