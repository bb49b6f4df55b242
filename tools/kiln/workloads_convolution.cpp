// Blocks of convolutional networks as they run behind training: batch norms with given statistics.
#include "workload.h"

#include "checks.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace kiln::tool {
namespace {

struct BatchNorm {
  Tensor mean, var, weight, bias;
  static BatchNorm drawn(std::int64_t channels, std::uint32_t seed) {
    const auto draw = [&](double low, double high, std::uint32_t i) {
      return uniform({channels}, low, high, seed + i);
    };
    return {draw(-0.5, 0.5, 0), draw(0.5, 1.5, 1), draw(0.5, 1.5, 2), draw(-0.5, 0.5, 3)};
  }
  Tensor operator()(const Tensor& x) const { return nn::batch_norm(x, mean, var, weight, bias); }
  double operator()(double x, std::int64_t c) const {
    const auto of = [c](const Tensor& t) { return Values(t)[c]; };
    return (x - of(mean)) / std::sqrt(of(var) + 1e-5) * of(weight) + of(bias);
  }
};

/// A value at channel c and point (y, x) of the first image.
using At = std::function<double(std::int64_t c, std::int64_t y, std::int64_t x)>;

/// Square images and kernels; the padding keeps the extents.
struct Convolution {
  Tensor weight;
  BatchNorm norm;
  std::int64_t groups = 1;

  static Convolution drawn(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t groups,
                           std::uint32_t seed) {
    const double most = 1 / std::sqrt(static_cast<double>(in / groups * kernel * kernel));
    return {uniform({out, in / groups, kernel, kernel}, -most, most, seed), BatchNorm::drawn(out, seed + 1),
            groups};
  }
  Tensor operator()(const Tensor& x) const {
    const std::int64_t around = weight.dim(2) / 2;
    return norm(nn::conv(x, weight, {}, {.padding = {around, around}, .groups = groups}));
  }
  At of(const At& x, std::int64_t extent) const {
    return [this, x, extent, w = Values(weight)](std::int64_t c, std::int64_t py, std::int64_t px) {
      const std::int64_t k = weight.dim(2), in = weight.dim(1), first = c / (weight.dim(0) / groups) * in;
      double sum = 0;
      for (std::int64_t i = 0; i < in; ++i)
        for (std::int64_t dy = 0; dy < k; ++dy)
          for (std::int64_t dx = 0; dx < k; ++dx) {
            const std::int64_t y = py + dy - k / 2, at = px + dx - k / 2;
            if (y < 0 || y >= extent || at < 0 || at >= extent) continue;
            sum += w[((c * in + i) * k + dy) * k + dx] * x(first + i, y, at);
          }
      return norm(sum, c);
    };
  }
};

/// The greatest error, relative to max(1, |expected|), at points of the first image.
double error_of(const Tensor& got, const At& expected, std::int64_t points) {
  const std::int64_t extent = got.dim(2), all = got.dim(1) * extent * extent;
  const Values values(got);
  points = std::min(points, all);
  return greatest(points, [&](std::int64_t i) {
    const std::int64_t at = i * (all / points);
    const double want = expected(at / (extent * extent), at / extent % extent, at % extent);
    return std::abs(values[at] - want) / std::max(1.0, std::abs(want));
  });
}

At image(const Tensor& x) {
  return [v = Values(x), extent = x.dim(2)](std::int64_t c, std::int64_t y, std::int64_t at) {
    return v[(c * extent + y) * extent + at];
  };
}

double relu6(double x) { return std::clamp(x, 0.0, 6.0); }
Tensor relu6(const Tensor& x) { return clip(x, 0.0, 6.0); }

/// x + project(relu6(filter(relu6(expand(x))))), the filter one for each channel.
Workload mobilenet_block(std::int64_t images) {
  constexpr std::int64_t kChannels = 24, kWide = 144, kExtent = 56;
  Workload w;
  w.name = "mobilenet_block_f32_" + std::to_string(images) + "x24x56x56";
  w.floor = Workload::Floor::Flops;
  const double points = static_cast<double>(images) * kExtent * kExtent;
  w.bytes = 2 * 4 * points * kChannels;
  w.flops = 2 * points * kWide * (2 * kChannels + 9);
  w.tolerance = 1e-4;
  w.make = [images](bool tiny) {
    const std::int64_t extent = tiny ? 4 : kExtent;
    const Tensor x = uniform({images, kChannels, extent, extent}, -1, 1, 71);
    const Convolution expand = Convolution::drawn(kChannels, kWide, 1, 1, 72),
                      filter = Convolution::drawn(kWide, kWide, 3, kWide, 80),
                      project = Convolution::drawn(kWide, kChannels, 1, 1, 88);
    Program p;
    p.record = [=] { return std::vector{x + project(relu6(filter(relu6(expand(x)))))}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const auto clipped = [](const At& f) -> At {
        return [f](std::int64_t c, std::int64_t y, std::int64_t at) { return relu6(f(c, y, at)); };
      };
      const At in = image(x),
               result = project.of(clipped(filter.of(clipped(expand.of(in, extent)), extent)), extent);
      return error_of(
          out[0],
          [&](std::int64_t c, std::int64_t y, std::int64_t at) { return in(c, y, at) + result(c, y, at); },
          400);
    };
    return p;
  };
  return w;
}

/// relu(x + second(relu(first(x)))), of 3 x 3 convolutions.
Workload resnet_block(std::int64_t images) {
  constexpr std::int64_t kChannels = 64, kExtent = 56;
  Workload w;
  w.name = "resnet_block_f32_" + std::to_string(images) + "x64x56x56";
  w.floor = Workload::Floor::Flops;
  const double points = static_cast<double>(images) * kExtent * kExtent;
  w.bytes = 2 * 4 * points * kChannels;
  w.flops = 2 * 2 * 9 * points * kChannels * kChannels;
  w.tolerance = 1e-4;
  w.make = [images](bool tiny) {
    const std::int64_t channels = tiny ? 4 : kChannels, extent = tiny ? 4 : kExtent;
    const Tensor x = uniform({images, channels, extent, extent}, -1, 1, 91);
    const Convolution first = Convolution::drawn(channels, channels, 3, 1, 92),
                      second = Convolution::drawn(channels, channels, 3, 1, 100);
    Program p;
    p.record = [=] { return std::vector{maximum(x + second(maximum(first(x), 0.0)), 0.0)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const At in = image(x), hidden = first.of(in, extent);
      const At result = second.of(
          [&](std::int64_t c, std::int64_t y, std::int64_t at) { return std::max(hidden(c, y, at), 0.0); },
          extent);
      return error_of(
          out[0],
          [&](std::int64_t c, std::int64_t y, std::int64_t at) {
            return std::max(in(c, y, at) + result(c, y, at), 0.0);
          },
          24);
    };
    return p;
  };
  return w;
}

}  // namespace

std::vector<Workload> convolution_workloads() {
  return {mobilenet_block(1), mobilenet_block(8), resnet_block(1), resnet_block(8)};
}

}  // namespace kiln::tool
