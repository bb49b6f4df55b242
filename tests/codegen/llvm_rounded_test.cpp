// Floats that are rounded and become integers of one or two bytes: the low bits of a sum have them, on every
// instruction set. Values beyond the type become its ends, NaN becomes 0.
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln {
namespace {

using testing::ConfigScope;

template <class F>
std::vector<F> numbers() {
  constexpr F kInf = std::numeric_limits<F>::infinity();
  std::vector<F> list{0,       F(-0.0),  kInf,    -kInf, std::numeric_limits<F>::quiet_NaN(),
                      F(1e30), F(-1e30), F(1e-40)};
  for (const int end : {0, 127, -128, 255, 32767, -32768, 65535})
    for (int quarters = -7; quarters <= 7; ++quarters) list.push_back(static_cast<F>(end + quarters / 4.0));
  for (int i = 0; i < 400; ++i) list.push_back(static_cast<F>(i * 181 % 1201 / 2.0 - 300));
  return list;
}

template <class F, class T>
void check(const std::string& where) {
  const std::vector<F> x = numbers<F>();
  const std::vector<T> got = round(Tensor::from(x).eval()).astype(dtype_of<T>).template to_vector<T>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max(),
                 want =
                     std::isnan(x[i]) ? 0 : std::clamp(std::nearbyint(static_cast<double>(x[i])), low, high);
    ASSERT_EQ(static_cast<double>(got[i]), want) << where << ": " << x[i];
  }
}

TEST(LlvmRounded, IntegersOfOneAndTwoBytes) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    check<float, std::int8_t>(target);
    check<float, std::uint8_t>(target);
    check<float, std::int16_t>(target);
    check<float, std::uint16_t>(target);
    check<float, std::int32_t>(target);
    check<double, std::int8_t>(target);
    check<double, std::uint16_t>(target);
  }
}

}  // namespace
}  // namespace kiln
