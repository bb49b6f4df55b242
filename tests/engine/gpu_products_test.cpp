// Matrix products of a GPU's library: operands and results that begin anywhere in memory.
#include "engine/gpu_same.h"

#include <kiln/report.h>

namespace kiln {
namespace {

class GpuProducts : public testing::GpuSame {};

/// Whole numbers, so that sums are exact in any order; products as large as a copy of an operand pays for.
TEST_F(GpuProducts, OfHalvesWithAnyExtents) {
  if (!cuda::is_gpu()) GTEST_SKIP() << "the library runs on no fake";
  constexpr std::int64_t m = 1024;
  for (const DType type : {DType::BFloat16, DType::Float16}) {
    for (const auto& [k, n] : {std::pair{1024, 1025}, {1023, 1024}, {1001, 1003}}) {
      const auto x = [=] { return numbers({m, k}, type); };
      const auto y = [=] { return numbers({k, n}, type, 41); };
      same([&] { return matmul(x(), y()); });
      same([&] { return relu(matmul(x(), y())); });
      same([&] { return matmul(x(), transpose(numbers({n, k}, type, 41))); });
      same([&] { return matmul(transpose(numbers({k, m}, type)), y()); });
    }
    same([&] { return matmul(transpose(numbers({1024, 1001}, type)), numbers({1024, 1024}, type, 41)); });
    same([&] {
      const Tensor y = numbers({1024, 1030}, type, 41);
      return matmul(numbers({m, 1024}, type), y(Slice(), Slice(3, 1027)));
    });
    same([&] { return matmul(numbers({8, 256, 513}, type), numbers({8, 513, 259}, type, 41)); });
  }
}

/// A result whose rows have zeros behind them in memory is read, copied and reshaped as any other.
TEST_F(GpuProducts, ResultsOfOddColumnsAreTensorsAsOthers) {
  if (!cuda::is_gpu()) GTEST_SKIP() << "the library runs on no fake";
  same([] {
    const Tensor y =
        matmul(numbers({1024, 1024}, DType::BFloat16), numbers({1024, 1025}, DType::BFloat16, 41));
    y.eval();
    EXPECT_EQ(y.shape(), Shape({1024, 1025}));
    const Tensor z = y.astype(DType::Float32).eval();
    return concat(
        {max(y, 0).astype(DType::Float32), sum(z, 0), reshape(y, {1025, 1024}).astype(DType::Float32)[3]});
  });
}

}  // namespace
}  // namespace kiln
