// Long scans of a GPU: chunks that warps hold in registers, along rows and down columns, with the totals that
// blocks hand on.
#include "device/cuda/cuda_test.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace kiln {
namespace {

class GpuChains : public testing::CudaTest {
 protected:
  static Tensor numbers(const Shape& shape, DType type, int below = 101) {
    std::vector<std::int32_t> v(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<std::int32_t>(i * 37 % static_cast<std::size_t>(below)) - below / 2;
    return Tensor::from(v, shape).astype(type).eval();
  }
  /// The same numbers on the GPU and on the CPU, none of which is rounded.
  static void same(const std::function<Tensor()>& program) {
    const auto run = [&] { return program().astype(DType::Int64).to_vector<std::int64_t>(); };
    const std::vector<std::int64_t> here = run();
    const std::vector<std::int64_t> there = on_cpu(run);
    EXPECT_EQ(here, there);
  }
  /// Scans in both directions, with and without an element itself.
  static void same_scans(const Shape& shape, int axis, DType type) {
    SCOPED_TRACE(::testing::Message() << shape.str() << name(type));
    same([&] { return cumsum(numbers(shape, type, 5), axis, false, true); });
    same([&] { return cumsum(numbers(shape, type, 5), axis, true, false); });
    same([&] { return cummax(numbers(shape, type), axis); });
  }
};

TEST_F(GpuChains, Rows) {
  same_scans({70000}, 0, DType::Int32);
  same_scans({3, 30000}, 1, DType::Float32);
  same_scans({20001}, 0, DType::Int64);  // no whole vectors
}

TEST_F(GpuChains, RowsThatBeginAnywhere) {
  same_scans({3, 30001}, 1, DType::Float32);
  same_scans({4, 20479}, 1, DType::Int32);  // some rows have a chunk more than others
  same_scans({5, 20003}, 1, DType::Float16);
  same_scans({3, 20011}, 1, DType::UInt8);
  same_scans({2, 3, 18001}, 2, DType::Float64);
}

TEST_F(GpuChains, LogarithmsOfSums) {
  for (const Shape& shape : {Shape{3, 20001}, Shape{700, 2, 33}, Shape{70, 5003}}) {
    SCOPED_TRACE(shape.str());
    const int axis = shape.rank() == 3 ? 0 : 1;
    const auto run = [&] {
      return logcumsumexp(numbers(shape, DType::Float32, 61) * 0.5, axis).to_vector<float>();
    };
    const std::vector<float> here = run();
    const std::vector<float> there = on_cpu(run);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(here[i], there[i], 1e-4) << i;
  }
}

TEST_F(GpuChains, RowsOfManyTurnsAreAddedUpByGroups) {
  same([] { return cumsum(numbers({1 << 20}, DType::Int32), 0); });
  same([] { return cummin(numbers({600001}, DType::Int16), 0, false, true); });
}

TEST_F(GpuChains, Columns) {
  same_scans({300, 64}, 0, DType::Int32);        // two columns of a thread
  same_scans({2, 1500, 29}, 1, DType::Float32);  // idle lanes, and chunks that are not there
  same_scans({257, 120}, 0, DType::Int64);
  same_scans({1030, 256}, 0, DType::Int16);
  same_scans({300, 512}, 0, DType::Float16);
  same_scans({290, 1024}, 0, DType::UInt8);
  same_scans({3, 1000, 30}, 1, DType::Float16);  // of fewer bytes than a line
  same_scans({1100, 67}, 0, DType::Float16);     // that begin anywhere
}

TEST_F(GpuChains, ColumnsOfManyTurnsAreAddedUpByGroups) {
  same([] { return cumsum(numbers({9000, 32}, DType::Int32), 0); });
  same([] { return cumsum(numbers({2, 5000, 70}, DType::Int32), 1, true, true); });
}

TEST_F(GpuChains, WhatIsMadeOfSeveralScans) {
  const auto program = [](const Shape& shape, int axis) {
    same([=] {
      const Tensor x = numbers(shape, DType::Int32, 7), y = numbers(shape, DType::Int32, 11) + 1;
      return cumsum(x * y, axis) * 3 + cummax(y - x, axis) * x;
    });
  };
  program({40000}, 0);
  program({3, 20001}, 1);
  program({600, 96}, 0);
}

TEST_F(GpuChains, SeveralScansOfOtherTypes) {
  same([] {
    const Tensor x = numbers({900, 96}, DType::Int32, 7);
    return cumsum(x.astype(DType::Float64), 0).astype(DType::Int64) + cummax(x, 0) +
           cumsum(x.astype(DType::Int64), 0, false, true);
  });
}

}  // namespace
}  // namespace kiln
