// Elements at indices on a GPU, held against the oracle.
#include "lower/gpu_target.h"
#include "lower/lowered_graph.h"

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace kiln::lower {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using schedule::Form;

constexpr DType i64 = DType::Int64;

/// The forms of its kernels.
std::vector<Form> checked(GraphBuilder& b) {
  const auto expected = b.values();
  LoweredGraph lowered(b, gpu_target(132));
  EXPECT_EQ(lowered.values(), expected) << lowered.text();
  return lowered.forms;
}

/// Positions that change along the last axis alone are looked up once for some rows.
TEST(Indices, ColumnsAreReadForSeveralRowsOfAGpu) {
  for (const auto& [rows, columns] : {std::pair{301, 70}, std::pair{64, 300}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(DType::Int16, {rows, 50}), at = b.leaf(i64, {1, columns});
    const NodeId there = b.wide(Op::gather, DType::Int16, {rows, columns}, {x, at}, ir::Gather{1});
    b.root(b.op(Op::add, {there, b.leaf(DType::Int16, {rows, columns})}));
    EXPECT_EQ(checked(b), std::vector{Form::Rows});
  }
}

/// An index of 64 bits is narrow on a GPU: one that the low word would make valid leads nowhere.
TEST(Indices, Of64BitsLeadNowhereIfTheyAreFarOutOfRange) {
  using Limits = std::numeric_limits<std::int64_t>;
  constexpr std::int64_t kWord = std::int64_t{1} << 32;
  std::vector<std::int64_t> indices{Limits::min(), Limits::max()};
  for (const std::int64_t far : {std::int64_t{0}, kWord, -kWord, kWord / 2, -kWord / 2})
    for (const int near : {-51, -50, -1, 0, 3, 49, 50}) indices.push_back(far + near);
  for (const DType type : {DType::Int64, DType::UInt64}) {
    GraphBuilder b;
    const NodeId x = b.leaf(i64, {50, 40}), at = b.leaf(type, {std::ssize(indices), 1});
    std::memcpy(b.memory(1).data(), indices.data(), indices.size() * sizeof(std::int64_t));
    b.root(b.op(Op::negative, {b.wide(Op::gather, i64, {std::ssize(indices), 40}, {x, at}, ir::Gather{0})}));
    checked(b);
  }
}

}  // namespace
}  // namespace kiln::lower
