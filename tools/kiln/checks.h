// Inputs of the bench's workloads, and how far results are from float64.
#pragma once

#include <kiln/kiln.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace kiln::tool {

/// `shape` numbers, float32 or bfloat16, evenly spread over [low, high), the same in every run. Made on the
/// host, so that no kernel under test makes them, and put on config().device.
Tensor uniform(const Shape& shape, double low, double high, std::uint32_t seed, DType dtype = DType::Float32);

/// A tensor's elements in host memory, row-major, as float64. float32 and bfloat16.
class Values {
 public:
  explicit Values(const Tensor& tensor)
      : tensor_(tensor), data_(tensor.data()), half_(tensor.dtype() == DType::BFloat16) {}
  double operator[](std::int64_t i) const {
    return half_ ? static_cast<float>(static_cast<const bfloat16*>(data_)[i])
                 : static_cast<const float*>(data_)[i];
  }

 private:
  Tensor tensor_;
  const void* data_;
  bool half_;
};

using Expected = std::function<double(std::int64_t)>;
using ExpectedRow = std::function<std::vector<double>(std::int64_t)>;

/// The greatest of f(i), computed on all threads; infinity when one is not a number.
double greatest(std::int64_t n, const Expected& f);
/// max |got - expected| / max(1, |expected|) over all elements, or half a million spread over them.
double elementwise_error(const Tensor& got, const Expected& expected);
/// Rows along the last axis, or 512 spread over them: the error of each, relative to the row's greatest
/// magnitude.
double row_error(const Tensor& got, const ExpectedRow& expected);

}  // namespace kiln::tool
