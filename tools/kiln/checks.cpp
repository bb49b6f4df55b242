#include "checks.h"

#include "device/cpu/threads.h"

#include <algorithm>
#include <cmath>
#include <mutex>

namespace kiln::tool {

namespace {

template <class T>
Tensor uniform_of(const Shape& shape, double low, double high, std::uint32_t seed) {
  static auto* const staging = new std::vector<T>;  // kept: fresh pages cost more than the numbers
  const std::int64_t n = shape.numel();
  if (static_cast<std::int64_t>(staging->size()) < n) staging->resize(static_cast<std::size_t>(n));
  T* const out = staging->data();
  const double scale = (high - low) / 16777216.0;
  cpu::parallel_for(n, 4096, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9e3779b9u + seed * 0x85ebca6bu;
      h = (h ^ (h >> 16)) * 0x7feb352du;
      h = (h ^ (h >> 15)) * 0x846ca68bu;
      h ^= h >> 16;
      out[i] = static_cast<float>(low + scale * (h >> 8));
    }
  });
  return Tensor::from(std::span<const T>(out, static_cast<std::size_t>(n)), shape);
}

}  // namespace

Tensor uniform(const Shape& shape, double low, double high, std::uint32_t seed, DType dtype) {
  return dtype == DType::BFloat16 ? uniform_of<bfloat16>(shape, low, high, seed)
                                  : uniform_of<float>(shape, low, high, seed);
}

double greatest(std::int64_t n, const Expected& f) {
  std::mutex mutex;
  double worst = 0;
  cpu::parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end, int) {
    double mine = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const double value = f(i);
      mine = std::isnan(value) ? INFINITY : std::max(mine, value);
    }
    const std::lock_guard lock(mutex);
    worst = std::max(worst, mine);
  });
  return worst;
}

double elementwise_error(const Tensor& got, const Expected& expected) {
  const Values values(got);
  const std::int64_t n = got.numel(), samples = std::min<std::int64_t>(n, 1 << 19), step = n / samples;
  return greatest(samples, [&](std::int64_t s) {
    // A different place in every stretch, so that every lane and every remainder is met; the last element
    // too.
    const std::int64_t i = s == samples - 1 ? n - 1 : s * step + s % step;
    const double e = expected(i);
    return std::abs(values[i] - e) / std::max(1.0, std::abs(e));
  });
}

double row_error(const Tensor& got, const ExpectedRow& expected) {
  const Values values(got);
  const std::int64_t columns = got.dim(-1), rows = got.numel() / columns;
  const std::int64_t step = std::max<std::int64_t>(1, rows / 512);
  return greatest((rows + step - 1) / step, [&](std::int64_t i) {
    const std::vector<double> row = expected(i * step);
    double scale = 1e-300, worst = 0;
    for (const double v : row) scale = std::max(scale, std::abs(v));
    for (std::int64_t c = 0; c < columns; ++c) {
      const double difference = std::abs(values[i * step * columns + c] - row[static_cast<std::size_t>(c)]);
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    return worst / scale;
  });
}

}  // namespace kiln::tool
