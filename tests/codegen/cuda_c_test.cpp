// CUDA C of the shared loop IR: what the text of a few kernels must and must not contain, and that NVRTC
// accepts it for every architecture.
#include "codegen/cuda/cuda_c.h"

#include "codegen/cuda_sources.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

namespace kiln::codegen {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32;

schedule::Target strict_gpu() {
  schedule::Target t = gpu();
  t.strict = t.exact = true;
  return t;
}

/// A row that every row of a map reads: its vectors are whole where all operands allow them, and it is read
/// element by element where its memory begins anywhere, although the map's own vectors are whole.
TEST(CudaC, ARowForAllRowsIsReadByVectorsOnlyWhereItIsAligned) {
  for (const std::uint32_t alignment : {64u, 4u}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {5000, 64}), row = b.leaf(f32, {64});
    b.graph.args[1].alignment = alignment;
    b.root(b.op(Op::add, {x, b.reshape(row, {1, 64})}));
    const std::vector<std::string> list = sources(b);
    ASSERT_EQ(list.size(), 1u);
    const auto vectors = [&](const std::string& buffer) {
      return list[0].find("load<4>(" + buffer) != std::string::npos;
    };
    EXPECT_TRUE(vectors("in0")) << list[0];
    EXPECT_EQ(vectors("in1"), alignment == 64) << list[0];
    compiles(list);
  }
}

TEST(CudaC, AMapLoadsWholeVectorsBeforeItComputes) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1000, 1001}), y = b.leaf(f32, {1000, 1001});
  b.root(b.op(Op::add, {b.op(Op::exp, {x}), y}));
  compiles(sources(b));
}

TEST(CudaC, ANormReadsItsRowOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {64, 4096});
  const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)})});
  b.root(b.op(Op::divide, {e, b.reduce(Op::reduce_sum, e, 2)}));
  compiles(sources(b));
}

TEST(CudaC, ASoftmaxOfHalves) {
  GraphBuilder b;
  const NodeId x = b.cast(b.leaf(DType::BFloat16, {16384, 4096}), f32);
  const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)})});
  b.root(b.cast(b.op(Op::divide, {e, b.reduce(Op::reduce_sum, e, 2)}), DType::BFloat16));
  const auto list = sources(b);
  EXPECT_EQ(list.size(), 1u);
  compiles(list);
}

TEST(CudaC, ALayerNorm) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {32768, 2048}), n = b.constant(f32, 0x45000000);  // 2048
  const NodeId centred = b.op(Op::subtract, {x, b.op(Op::divide, {b.reduce(Op::reduce_sum, x, 2), n})});
  const NodeId variance =
      b.op(Op::divide, {b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2), n});
  const NodeId y =
      b.op(Op::multiply, {centred, b.op(Op::rsqrt, {b.op(Op::add, {variance, b.scalar(f32, 0x3727c5ac)})})});
  b.root(b.op(Op::add, {b.op(Op::multiply, {y, b.leaf(f32, {2048})}), b.leaf(f32, {2048})}));
  const auto list = sources(b);
  EXPECT_EQ(list.size(), 1u);
  compiles(list);
}

/// A thread adds up few elements: no loop over blocks of them stands around what the team shares, which reads
/// registers that the row is held in.
TEST(CudaC, AStrictVarianceOfARowIsSharedByTheTeamAsAWhole) {
  for (const std::int64_t length : {50, 4096, 16000}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {8, length}), n = b.scalar(f32, 0x42480000);
    const NodeId centred = b.op(Op::subtract, {x, b.op(Op::divide, {b.reduce(Op::reduce_sum, x, 2), n})});
    b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {centred, centred}), 2));
    const auto list = sources(b, 1, strict_gpu());
    ASSERT_EQ(list.size(), 1u);
    const std::string kernel = list[0].substr(list[0].find("__global__"));
    EXPECT_EQ(kernel.find("double"), std::string::npos) << "totals of blocks\n" << kernel;
    compiles(list);
  }
}

std::ptrdiff_t count(const std::string& text, const std::string& word) {
  std::ptrdiff_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

/// Elements first, first + 1, … of an axis.
NodeId part(GraphBuilder& b, NodeId x, std::size_t axis, std::int64_t first, std::int64_t count) {
  GraphBuilder::Extents dims = b.extents(x), box;
  for (std::size_t a = 0; a < dims.size(); ++a) box.insert(box.end(), {a == axis ? first : 0, 1});
  dims[axis] = count;
  return b.slice(x, dims, box);
}

/// Operands that begin anywhere in a row are loaded by vectors where a vector stays in a row, and halves that
/// are wide enough by elements whose addresses are constants apart.
TEST(CudaC, NeighboursAreLoadedByWindows) {
  for (const DType type : {DType::BFloat16, f32}) {
    GraphBuilder b;
    const NodeId x = b.leaf(type, {1000, 4099});
    NodeId sum = part(b, x, 1, 0, 4095);
    for (const std::int64_t by : {1, 2, 3, 4}) sum = b.op(Op::add, {sum, part(b, x, 1, by, 4095)});
    b.root(sum);
    const auto list = sources(b);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(count(list[0], "= load_span<12>("), type == f32 ? 0 : 1) << list[0];
    EXPECT_EQ(count(list[0], "[k * 32]"), type == f32 ? 5 : 0) << list[0];
    compiles(list);
  }
}

/// A run that is in one part of a join loads that part alone.
TEST(CudaC, AJoinBranchesBeforeItLoads) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float16, {1000, 3000}), y = b.leaf(DType::Float16, {1000, 4000});
  b.root(b.add(Op::join, {x, y}, ir::Join{1}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(count(list[0], "load<8>("), 2 + count(list[0], "load<8>(const"));
  EXPECT_LT(list[0].find("} else {"), list[0].rfind("load<8>("));
  compiles(list);
}

/// Rows of a gather are read by vectors: whether a row is there is the same on all lanes.
TEST(CudaC, AGathersRowsAreVectors) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1000, 128}), at = b.leaf(DType::Int32, {5000});
  b.root(b.op(Op::negative, {b.add(Op::gather, {x, b.broadcast(b.reshape(at, {5000, 1}), {5000, 128})},
                                   ir::Gather{0}, {.dims = Shape{5000, 128}})}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(count(list[0], "? load<4>("), 2) << list[0];  // of whole blocks, and of the last
  compiles(list);
}

/// The places and weights of rows do not depend on whether a column is there: one load of each, for eight
/// images.
TEST(CudaC, WhatAGathersIndexDoesNotLeadToIsLoadedOnce) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {64, 300, 500}), rows = b.leaf(DType::Int32, {1, 400, 1}),
               columns = b.leaf(DType::Int32, {1, 1, 250}), weights = b.leaf(f32, {1, 400, 1});
  const NodeId part = b.wide(Op::gather, f32, {64, 400, 500}, {x, rows}, ir::Gather{1});
  const NodeId scaled = b.op(Op::multiply, {part, b.broadcast(weights, {64, 400, 500})});
  b.root(b.wide(Op::gather, f32, {64, 400, 250}, {scaled, columns}, ir::Gather{2}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].find("int64("), std::string::npos) << "indices are narrow: " << list[0];
  EXPECT_EQ(count(list[0], "= in2 + "), 1) << "the row is found once: " << list[0];
  EXPECT_EQ(count(list[0].substr(list[0].find("__global__")), "? q"), 8)
      << "x alone is read where it is there: " << list[0];
  for (const char* once : {"in0[", "in1[", "in3["}) EXPECT_EQ(count(list[0], once), 1) << list[0];
  compiles(list);
}

TEST(CudaC, ATransposeGoesThroughSharedMemory) {
  for (const DType type : {DType::BFloat16, f32, DType::Float64}) {
    GraphBuilder b;
    const NodeId x = b.leaf(type, {512, 1000}), y = b.leaf(type, {1000, 512});
    b.root(b.op(Op::add, {b.permute(x, {1, 0}), y}));
    const auto list = sources(b);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_NE(list[0].find("__shared__"), std::string::npos);
    compiles(list);
  }
}

TEST(CudaC, FunctionsThatAGpuHas) {
  GraphBuilder b;
  NodeId x = b.leaf(f32, {1000});
  for (const Op op : {Op::exp, Op::exp2, Op::log, Op::log2, Op::log10, Op::tanh, Op::erf, Op::rsqrt, Op::sqrt,
                      Op::reciprocal, Op::pow})
    x = op == Op::pow ? b.op(op, {x, x}) : b.op(op, {x});
  b.root(x);
  b.root(b.cast(
      b.op(Op::silu, {b.op(Op::sigmoid, {b.op(Op::divide, {b.leaf(f32, {1000}), b.leaf(f32, {1000})})})}),
      DType::Float16));
  compiles(sources(b));
}

TEST(CudaC, OnlyWhatHalfTypesHoldIsApproximated) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1000}), y = b.op(Op::exp, {x});
  b.root(b.cast(b.op(Op::exp, {b.op(Op::negative, {x})}), DType::BFloat16));
  b.root(y);
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("exp4_fast("), std::string::npos) << list[0];
  EXPECT_NE(list[0].find("= expf("), std::string::npos) << list[0];
  compiles(list);
}

TEST(CudaC, FullReduction) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1 << 20});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 1));
  compiles(sources(b));
}

TEST(CudaC, AColumnIsDividedByItsSum) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {512, 4096});
  b.root(b.op(Op::divide, {x, b.reduce(Op::reduce_sum, x, 1)}));
  compiles(sources(b));
}

/// What a thread holds of a row and of its operands must fit its registers: 32,768 elements of two do not.
TEST(CudaC, OneLongRowOfTwoOperandsIsHeldNoMoreThanManyAre) {
  for (const std::int64_t rows : {1, 64}) {
    GraphBuilder b;
    const NodeId h = b.op(Op::add, {b.leaf(f32, {rows, 32768}), b.leaf(f32, {rows, 32768})});
    b.root(b.op(Op::divide, {h, b.reduce(Op::reduce_sum, b.op(Op::multiply, {h, h}), 2)}));
    for (const std::string& source : sources(b)) EXPECT_EQ(source.find("kept0["), std::string::npos) << rows;
  }
}

TEST(CudaC, ColumnReduction) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {4096, 512});
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 1));
  b.root(b.reduce(Op::reduce_argmax, b.leaf(f32, {8, 4096}), 1));
  compiles(sources(b));
}

TEST(CudaC, ScansAlongRowsOfAnyLength) {
  for (const GraphBuilder::Extents& dims :
       {GraphBuilder::Extents{5000, 6}, {300, 20}, {300, 301}, {64, 5000}, {1, 1 << 20}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, dims), twice = b.op(Op::add, {x, x});
    b.root(b.op(Op::multiply, {b.scan(Op::scan_sum, twice, {1}), x}));
    b.root(b.scan(Op::scan_max, b.leaf(DType::Int8, dims), {.axis = 1, .exclusive = true}));
    b.root(
        b.op(Op::multiply, {b.scan(Op::scan_sum, twice, {.axis = 1, .reverse = true}), b.leaf(f32, dims)}));
    compiles(sources(b));
  }
}

/// Floats of one shape for every architecture; what else there is for the oldest and the newest, floats for
/// sm_90 too: NVRTC takes long for logarithms.
TEST(CudaC, ScansByACustomMonoid) {
  const std::vector<int>& all = testing::kCudaArchitectures;
  const std::vector<int> ends{all.front(), all.back()}, few{all.front(), 90, all.back()};
  for (const GraphBuilder::Extents& dims :
       {GraphBuilder::Extents{5000, 6}, {300, 20}, {300, 301}, {64, 5000}, {1, 1 << 20}})
    for (const DType type : {f32, DType::Float16, DType::Float64})
      for (const std::uint64_t axis : {0, 1}) {
        GraphBuilder b;
        const NodeId x = b.leaf(type, dims), c = b.scan(Op::scan_logaddexp, b.op(Op::add, {x, x}), {axis});
        b.root(b.op(Op::multiply, {c, x}));
        b.root(b.scan(Op::scan_logaddexp, x, {axis, true}));
        compiles(sources(b), type != f32 ? ends : dims.front() == 5000 ? all : few);
      }
}

/// What is before a value is rounded to a half type as what is up to it.
TEST(CudaC, RunningLogarithmsThatHalfTypesHoldAreApproximate) {
  for (const bool exclusive : {false, true})
    for (const DType type : {DType::BFloat16, f32}) {
      GraphBuilder b;
      b.root(b.scan(Op::scan_logaddexp, b.leaf(type, {300, 700}), {.axis = 0, .exclusive = exclusive}));
      EXPECT_EQ(sources(b)[0].find("Custom0::show_roughly(") != std::string::npos, is_half(type));
    }
}

TEST(CudaC, ALongRowGoesInChunks) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {3, 1 << 20});
  b.root(b.op(Op::multiply, {b.scan(Op::scan_sum, b.op(Op::exp, {x}), {1}), x}));
  b.root(b.scan(Op::scan_min, x, {1}));
  const auto list = sources(b);
  for (const std::string& source : list) EXPECT_NE(source.find("next_turn("), std::string::npos);
  compiles(list);
}

TEST(CudaC, AReversedScanAccessesWholeVectors) {
  for (const std::int64_t rows : {1, 300}) {
    GraphBuilder b;
    const GraphBuilder::Extents dims{rows, rows == 1 ? 1 << 20 : 4096};
    const NodeId x = b.leaf(f32, dims);
    b.root(b.op(Op::multiply, {b.scan(Op::scan_sum, b.op(Op::exp, {x}), {.axis = 1, .reverse = true}), x}));
    const auto list = sources(b);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_NE(list[0].find("load<4>(in"), std::string::npos) << list[0];
    EXPECT_NE(list[0].find(".at[3 - v] = "), std::string::npos) << list[0];
    compiles(list);
  }
}

TEST(CudaC, ScansDownColumnsAndBesideReductions) {
  GraphBuilder b;
  b.root(b.scan(Op::scan_prod, b.leaf(DType::Float64, {70, 1000}), {0}));
  const NodeId x = b.leaf(f32, {1000, 700}), c = b.scan(Op::scan_sum, x, {1}),
               most = b.scan(Op::scan_max, c, {1});
  b.root(b.op(Op::subtract, {most, b.reduce(Op::reduce_max, c, 2)}));
  compiles(sources(b));
}

TEST(CudaC, ALoopIsOneElementsOwn) {
  GraphBuilder b;
  const GraphBuilder::Extents dims{1000, 40};
  const auto state = [&](NodeId init) { return b.wide(Op::loop_state, b.graph[init].dtype, dims, {init}); };
  const NodeId s = state(b.leaf(f32, dims)), count = state(b.constant(DType::Int32, 0, dims));
  const NodeId go = b.op(Op::greater, {s, b.constant(f32, 0x3f800000)});
  const NodeId first = b.wide(Op::loop_next, DType::Bool, {}, {s, b.op(Op::sqrt, {s})});
  const NodeId both = b.wide(Op::loop_next, DType::Bool, {},
                             {count, b.op(Op::add, {count, b.constant(DType::Int32, 1)}), first});
  const NodeId result =
      b.wide(Op::loop_result, DType::Int32, dims, {b.wide(Op::loop, DType::Bool, {}, {both, go}, ir::Loop{})},
             ir::LoopResult{0});
  b.root(b.op(Op::add, {result, result}));
  b.root(b.reduce(Op::reduce_sum, result, 2));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("for (;;)"), std::string::npos);
  compiles(list);
}

TEST(CudaC, AScanWithABodyStoresInEachIteration) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {50, 1000}), zero = b.constant(DType::Int64, 0);
  const NodeId carry = b.wide(Op::loop_state, f32, {1000}, {b.constant(f32, 0, {1000})});
  const NodeId i = b.wide(Op::loop_state, DType::Int64, {}, {zero});
  const NodeId row =
      b.reshape(b.wide(Op::gather, f32, {1, 1000}, {x, b.reshape(i, {1, 1})}, ir::Gather{0}), {1000});
  const NodeId next = b.op(Op::maximum, {carry, row});
  const NodeId yield = b.wide(Op::loop_yield, DType::Bool, {}, {next});
  const NodeId first = b.wide(Op::loop_next, DType::Bool, {}, {carry, next, yield});
  const NodeId both =
      b.wide(Op::loop_next, DType::Bool, {}, {i, b.op(Op::add, {i, b.constant(DType::Int64, 1)}), first});
  const NodeId loop = b.wide(Op::loop, DType::Bool, {},
                             {both, b.op(Op::less, {i, b.constant(DType::Int64, 50)})}, ir::Loop{50});
  b.root(b.wide(Op::loop_stack, f32, {50, 1000}, {loop}, ir::LoopResult{0}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].find("wrap_mul"), std::string::npos) << "the count is an index";
  compiles(list);
}

/// A slice at a position is read by whole vectors, where rows are multiples of them.
TEST(CudaC, ASliceAtAPosition) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {1000, 64, 128}), at = b.leaf(DType::Int64, {});
  const NodeId part = b.wide(Op::slice_at, f32, {1000, 1, 128}, {x, at}, ir::Position{1, 1, true});
  b.root(b.op(Op::exp, {part}));
  const auto list = sources(b);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("load("), std::string::npos) << list[0];
  compiles(list);
  // A start that is known to be a multiple of four elements, and one that is not.
  for (const int factor : {4, 1}) {
    GraphBuilder row;
    const NodeId y = row.leaf(f32, {1 << 20});
    const NodeId run =
        row.wide(Op::slice_at, f32, {1 << 16}, {y, row.scalar(DType::Int64, 0)}, ir::Position{0, factor});
    row.root(row.op(Op::exp, {run}));
    const auto text = sources(row);
    EXPECT_EQ(text.at(0).find("load(") != std::string::npos, factor == 4) << text[0];
    compiles(text);
  }
}

TEST(CudaC, AnUpdateInPlaceStoresItsBox) {
  GraphBuilder b;
  const NodeId x = b.leaf(f32, {64, 512, 128}), k = b.leaf(f32, {64, 1, 128}), at = b.scalar(DType::Int64, 7);
  const NodeId next =
      b.wide(Op::update_at, f32, {64, 512, 128}, {b.op(Op::exp, {k}), x, at}, ir::Position{1});
  b.root(next);
  b.root(b.reduce(Op::reduce_sum, next, 4));  // reads the new value
  const auto list = sources(b, 1, gpu(), {x});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_NE(list[0].find("store("), std::string::npos) << list[0];
  compiles(list);
}

/// Kernels with every kind of parameter: wide and narrow indices, slots of odd sizes, counters of a finish
/// section.
TEST(CudaC, InstancesShareALaunch) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  const auto compile = [](const GraphBuilder& b) {
    for (const int instances : {2, 300})
      for (const std::string& source : sources(b, instances))
        EXPECT_NO_THROW(cuda::compile(source, "kiln_test", {9, 0})) << source;
  };
  GraphBuilder map;
  const NodeId x = map.leaf(f32, {1000, 1001});
  map.root(
      map.op(Op::add, {map.op(Op::multiply, {x, map.scalar(f32, 0x3f800000)}), map.leaf(f32, {1000, 1001})}));
  compile(map);
  GraphBuilder wide;
  const NodeId h = wide.leaf(DType::Float16, {1 << 16, 1 << 16});
  wide.root(wide.op(Op::where, {wide.scalar(DType::Bool, 1),
                                wide.op(Op::add, {h, wide.scalar(DType::Float16, 0x3c00)}), h}));
  compile(wide);
  GraphBuilder split;
  split.root(split.reduce(Op::reduce_sum, split.leaf(f32, {1 << 20}), 1));
  compile(split);
  GraphBuilder norm;
  const NodeId r = norm.leaf(f32, {64, 4096});
  norm.root(norm.op(Op::divide, {r, norm.reduce(Op::reduce_sum, r, 2)}));
  compile(norm);
}

TEST(CudaC, ATableOfInstancesFillsItsRoom) {
  kernel::Kernel k;
  k.threads = {256, 256, true};
  k.buffers.resize(3);
  k.n_params = 3;
  k.slots = {f32};
  const InstanceTable one = instance_table(k, 1);
  EXPECT_EQ(one.set_bytes, 3 * 8 + 16 + 8u);
  EXPECT_EQ(one.bytes(), 56u);
  const int most = instances_in(k, 4096);
  EXPECT_LE(instance_table(k, most).bytes(), 4096u);
  EXPECT_GT(instance_table(k, most + 1).bytes(), 4096u - 8);
  k.threads.narrow = false;
  EXPECT_EQ(instance_table(k, 1).set_bytes, 3 * 8 + 24 + 8u);
}

TEST(CudaC, TransposesOfAllShapesAreFewKernels) {
  std::set<std::string> flat, stacked, inner;
  std::mt19937 random(1);
  const auto extent = [&](int most) {
    return random() % 8 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  for (int i = 0; i < 400; ++i) {
    const std::int64_t rows = extent(200), columns = extent(300);
    const auto add = [&](std::set<std::string>& kernels, const std::vector<std::int64_t>& dims,
                         const std::vector<std::int64_t>& axes) {
      GraphBuilder b;
      b.root(b.op(Op::add, {b.permute(b.leaf(f32, dims), axes), b.scalar(f32, 0x3f800000)}));
      for (std::string& source : sources(b)) kernels.insert(std::move(source));
    };
    add(flat, {rows, columns}, {1, 0});
    add(stacked, {3, rows, columns}, {2, 0, 1});
    add(inner, {rows, 12, columns}, {0, 2, 1});
  }
  EXPECT_LE(flat.size(), 12u);
  EXPECT_LE(stacked.size(), 12u);
  EXPECT_LE(inner.size(), 12u);
  std::cout << flat.size() << ", " << stacked.size() << ", " << inner.size() << " kernels\n";
}

/// A name is a letter and a number; f16 is a type.
TEST(CudaC, NoNameIsAType) {
  for (int products = 0; products < 24; ++products) {
    GraphBuilder b;
    NodeId x = b.leaf(DType::Float16, {30, 1000});
    for (int i = 0; i < products; ++i) x = b.op(Op::multiply, {x, b.leaf(DType::Float16, {30, 1000})});
    b.root(b.scan(Op::scan_sum, x, {0}));
    for (const std::string& source : sources(b))
      for (const char* type : {"f16", "bf16", "int8", "int16", "int32", "int64"})
        EXPECT_EQ(source.find(cat(' ', type, " =")), std::string::npos) << source;
  }
}

TEST(CudaC, RowsOfAllShapesAreFewKernels) {
  std::set<std::string> kernels;
  std::mt19937 random(1);
  const auto extent = [&](int most) {
    return random() % 8 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  for (int i = 0; i < 400; ++i) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {extent(200), extent(i % 2 ? 300 : 10000)});
    b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 2));
    for (std::string& source : sources(b)) kernels.insert(std::move(source));
  }
  EXPECT_LE(kernels.size(), 16u);
  std::cout << kernels.size() << " kernels\n";
}

TEST(CudaC, ColumnsOfAllShapesAreFewKernels) {
  std::set<std::string> kernels;
  std::mt19937 random(1);
  const auto extent = [&](int most) {
    return random() % 8 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  for (int i = 0; i < 400; ++i) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {extent(200), extent(300)});
    b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, x}), 1));
    kernels.merge([&] {
      const auto list = sources(b);
      return std::set<std::string>(list.begin(), list.end());
    }());
  }
  EXPECT_LE(kernels.size(), 16u);
}

TEST(CudaC, ColumnsAreSharedByRowsOfThreads) {
  for (const auto& [rows, columns] :
       {std::pair{4096, 4096}, std::pair{100000, 7}, std::pair{64, 50}, std::pair{10, 1000}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {rows, columns}), m = b.reduce(Op::reduce_max, x, 1);
    b.root(b.reduce(Op::reduce_sum, x, 1));
    b.root(b.reduce(Op::reduce_argmin, b.cast(x, DType::Float64), 1));
    b.root(b.op(Op::subtract, {x, m}));
    const auto list = sources(b);
    compiles(list);
  }
}

/// The function itself, without what it is preceded by.
std::string function_of(const std::string& source) {
  return source.substr(source.find("extern \"C\" __global__"));
}

/// Neither in the text nor in what NVRTC makes of it.
void expect_no_contractions(const std::vector<std::string>& list) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  for (const std::string& source : list) {
    EXPECT_EQ(function_of(source).find("__fma"), std::string::npos) << source;
    EXPECT_EQ(function_of(source).find("divide("), std::string::npos) << source;
    EXPECT_EQ(cuda::ptx_text(source, "kiln_test", {9, 0}, {.fmad = false}).find("fma.rn"), std::string::npos)
        << source;
  }
}

TEST(CudaCStrict, NothingIsContracted) {
  for (DType t : {f32, DType::Float64}) {
    GraphBuilder b;
    const NodeId x = b.leaf(t, {4096, 512}), y = b.leaf(t, {4096, 512});
    b.root(b.op(Op::add, {b.op(Op::multiply, {x, y}), x}));
    b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, y}), 2));
    b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {x, y}), 1));
    b.root(b.matmul(x, b.permute(y, {1, 0})));
    expect_no_contractions(sources(b, 1, strict_gpu()));
  }
}

TEST(CudaCStrict, HalvesRoundAfterEveryOperation) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float16, {4096}), y = b.leaf(DType::Float16, {4096});
  b.root(b.op(Op::exp, {b.op(Op::add, {b.op(Op::multiply, {x, y}), x})}));
  const auto list = sources(b, 1, strict_gpu());
  ASSERT_EQ(list.size(), 1u);
  const std::string text = function_of(list[0]);
  std::size_t narrowed = 0;  // by to_f16 or round_f16
  for (std::size_t at = 0; (at = text.find("_f16(", at)) != std::string::npos; ++at) ++narrowed;
  EXPECT_GE(narrowed, 3u) << text;
  EXPECT_EQ(text.find("_fast("), std::string::npos) << text;
  compiles(list);
}

/// Full reductions, rows and columns of all lengths, and norms.
TEST(CudaCStrict, EveryReductionCompiles) {
  if (!cuda::nvrtc().available) GTEST_SKIP() << cuda::nvrtc().reason;
  for (const auto& [rows, columns] :
       {std::pair{7, 5}, {7, 900}, {40, 9000}, {3, 16384}, {3, 100000}, {100000, 3}, {1, 16}, {1, 1 << 20}}) {
    GraphBuilder b;
    const NodeId x = b.leaf(f32, {rows, columns});
    for (std::uint64_t axes : {1, 2, 3}) {
      b.root(b.reduce(Op::reduce_sum, x, axes));
      b.root(b.reduce(Op::reduce_argmax, x, axes));
    }
    const NodeId e = b.op(Op::exp, {b.op(Op::subtract, {x, b.reduce(Op::reduce_max, x, 2)})});
    b.root(b.op(Op::divide, {e, b.reduce(Op::reduce_sum, e, 2)}));
    for (const std::string& source : sources(b, 1, strict_gpu()))
      EXPECT_NO_THROW(cuda::compile(source, "kiln_test", {9, 0})) << source;
  }
}

}  // namespace
}  // namespace kiln::codegen
