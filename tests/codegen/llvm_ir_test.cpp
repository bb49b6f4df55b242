// One kernel, several instruction sets: values do not depend on which instructions a target has. Float16 conversions
// matter most: without F16C they are integer arithmetic.
#include "codegen/on_target.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

namespace kiln {
namespace {

using testing::ConfigScope;

std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  return out;
}

/// Small whole numbers: sums and products are exact in every type and order.
Tensor small_numbers(DType dtype, const Shape& shape, int seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(seed)) % 7);
  return Tensor::copy_of(values.data(), shape, DType::Float32).astype(dtype);
}

/// A few kernels of every kind on one dtype.
std::vector<Tensor> kernels(DType dtype) {
  const Shape odd{13, 77};
  const Tensor x = small_numbers(dtype, odd, 1), y = small_numbers(dtype, odd, 3), row = small_numbers(dtype, {77}, 2);
  std::vector<Tensor> out{where(x == y, x, row), x != y};
  if (!is_bool(dtype)) {
    for (const Tensor& t : {x * y + row, x - y, where(x < y, x, row), minimum(x, y), max(x, {0}), max(x, {1}), argmax(x, 1),
                            sum(x, {0}), sum(x, {1}), sum(x * y), floor_divide(x, y + 1), remainder(x, row + 1)})
      out.push_back(t);
  }
  for (int to = 0; to < kDTypeCount; ++to) out.push_back(x.astype(static_cast<DType>(to)));
  return out;
}

TEST(LlvmIr, EveryTargetGivesWhatTheInterpreterGives) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    std::vector<std::vector<std::byte>> want;
    {
      const ConfigScope scope("", Mode::Interpret);
      for (const Tensor& t : kernels(dtype)) want.push_back(bytes_of(t));
    }
    for (const std::string& target : testing::cpu_targets()) {
      const ConfigScope scope(target);
      const std::vector<Tensor> have = kernels(dtype);
      eval(have);
      for (std::size_t i = 0; i < have.size(); ++i)
        EXPECT_EQ(bytes_of(have[i]), want[i]) << name(dtype) << ", kernel " << i << " on KILN_CPU=" << target;
    }
  }
}

/// Same bits, or both NaN.
template <class T>
void expect_same(const Tensor& have, const std::vector<T>& want, const std::string& what) {
  const std::vector<T> h = have.to_vector<T>();
  ASSERT_EQ(h.size(), want.size());
  for (std::size_t i = 0, shown = 0; i < h.size() && shown < 5; ++i) {
    if (std::memcmp(&h[i], &want[i], sizeof(T)) == 0) continue;
    const double a = static_cast<double>(h[i]), b = static_cast<double>(want[i]);
    if (a != a && b != b) continue;
    ++shown;
    ADD_FAILURE() << what << ", element " << i << ": " << a << ", expected " << b;
  }
}

template <class Half>
void check_halves(const std::string& target) {
  const std::string what = std::string(name(dtype_of<Half>)) + " on KILN_CPU=" + target;
  std::vector<Half> every(65536);
  std::vector<float> wide(65536);
  for (std::size_t i = 0; i < every.size(); ++i) {
    every[i].bits = static_cast<std::uint16_t>(i);
    wide[i] = static_cast<float>(every[i]);
  }
  const Tensor halves = Tensor::copy_of(every.data(), {65536}, dtype_of<Half>);
  expect_same(halves.astype(DType::Float32), wide, what + " to float32");
  // Every half value, the midpoints above and their neighbours; then random bits.
  std::vector<float> x;
  for (const float v : wide) {
    const std::uint32_t step = dtype_of<Half> == DType::Float16 ? 0x1000 : 0x8000;
    for (std::uint32_t extra : {0u, 1u, step - 1, step, step + 1}) x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) + extra));
  }
  std::mt19937 rng(5);
  for (int i = 0; i < 200001; ++i) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng())));
    x.push_back(std::ldexp(static_cast<float>(static_cast<int>(rng() % 0x1000000) - 0x800000), -static_cast<int>(rng() % 56)));
  }
  std::vector<Half> rounded;
  for (float v : x) rounded.push_back(Half(v));
  const Tensor floats = Tensor::copy_of(x.data(), {static_cast<std::int64_t>(x.size())}, DType::Float32);
  expect_same(floats.astype(dtype_of<Half>), rounded, what + " from float32");
  expect_same(floats.astype(DType::Float64).astype(dtype_of<Half>), rounded, what + " from float64");
}

TEST(LlvmIr, HalvesConvertWithAndWithoutTheInstruction) {
  for (const std::string& target : testing::cpu_targets()) {
    const ConfigScope scope(target);
    check_halves<float16>(target);
    check_halves<bfloat16>(target);
  }
}

}  // namespace
}  // namespace kiln
