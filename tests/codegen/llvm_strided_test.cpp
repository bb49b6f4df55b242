// Elements at equal distances, some of which are not there: on every instruction set what the interpreter
// gives.
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kiln {
namespace {

using testing::bytes_of;
using testing::ConfigScope;

/// Every `step`-th element: as it lies, beside others, of a pad, of a join, and from the end. The last
/// element is the last one of its memory.
std::vector<Tensor> strided(const Tensor& x, std::int64_t step) {
  const auto each = [&](const Tensor& t) { return t(range(none, none), range(none, none, step)); };
  const Tensor whole = each(x(range(none, none), range((x.dim(1) - 1) % step, none)));
  const Tensor padded = pad(x, {{0, 0}, {3, 40}}), joined = concat({x, x * 2}, 1);
  return {whole * 2,
          each(padded) + 1,
          each(padded) * each(pad(x, {{0, 0}, {4, 39}})),
          each(joined) + 1,
          each(flip(padded, 1)) + 1,
          each(x) + each(x(range(none, none), range(none, none, -1)))};
}

TEST(LlvmStrided, ElementsAtEqualDistancesOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype :
       {DType::Int8, DType::Float16, DType::BFloat16, DType::Int16, DType::Float32, DType::Float64})
    for (const std::int64_t n : {17, 128, 1001}) {
      const Tensor x = (arange(0, 3 * n, 1, DType::Int64) * 37 % 101).astype(dtype).reshape({3, n});
      eval({x});
      for (const std::int64_t step : {2, 3, 4, 5, 9}) {
        std::vector<std::vector<std::byte>> want;
        {
          const ConfigScope scope("", Mode::Interpret);
          for (const Tensor& t : strided(x, step)) want.push_back(bytes_of(t));
        }
        for (const std::string& target : testing::different_cpu_targets()) {
          const ConfigScope scope(target);
          const std::vector<Tensor> got = strided(x, step);
          for (std::size_t k = 0; k < got.size(); ++k)
            EXPECT_EQ(bytes_of(got[k]), want[k])
                << target << " " << name(dtype) << " " << n << " by " << step << ", program " << k;
        }
      }
    }
}

}  // namespace
}  // namespace kiln
