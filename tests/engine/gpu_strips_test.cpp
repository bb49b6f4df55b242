// Maps whose threads have several rows (src/lower/region_strips.cpp): a GPU's results are those of a CPU.
#include "engine/gpu_same.h"

#include <kiln/layers.h>

namespace kiln {
namespace {

class GpuStrips : public testing::GpuSame {};

/// Every filter belongs to one channel.
Tensor by_channel(const Tensor& x, const Tensor& weight, bool last, std::int64_t stride,
                  std::int64_t border) {
  const int axes = x.rank() - 2;
  Shape steps, borders;
  for (int i = 0; i < axes; ++i) steps.push_back(stride), borders.push_back(border);
  return nn::conv(
      x, weight, {},
      {.stride = steps, .padding = borders, .groups = x.dim(last ? -1 : 1), .channels_last = last});
}

TEST_F(GpuStrips, ConvolutionsByChannels) {
  for (const DType type : {DType::Float32, DType::Float16, DType::Float64})
    for (const std::int64_t size : {3, 5, 7})
      for (const std::int64_t stride : {1, 2}) {
        SCOPED_TRACE(::testing::Message() << name(type) << ' ' << size << " by " << stride);
        same([&] {
          return by_channel(numbers({13, 12, 35, 36}, type), numbers({12, 1, size, size}, type, 5), false,
                            stride, size / 2);
        });
      }
  same([] {
    return by_channel(numbers({17, 33, 34, 9}, DType::Float32), numbers({9, 3, 3, 1}, DType::Float32, 5),
                      true, 1, 1);
  });
}

/// Elements between others along two axes are made in one kernel, beside two for the places.
TEST_F(GpuStrips, InterpolationsAlongTwoAxes) {
  for (const DType type : {DType::Float32, DType::Float16, DType::Float64})
    for (const Shape& size : {Shape{28, 33}, Shape{7, 9}, Shape{7, 33}, Shape{28, 7}}) {
      SCOPED_TRACE(::testing::Message() << name(type) << ' ' << size);
      const auto run = [&] {
        const Tensor x = numbers({64, 9, 14, 15}, type);
        return nn::interpolate(x, size, nn::Interpolation::Linear).astype(DType::Float64).to_vector<double>();
      };
      const std::vector<double> here = run();
      Config c = config();
      c.device = "cpu";
      const ScopedConfig scope(c);
      const std::vector<double> there = run();
      ASSERT_EQ(here.size(), there.size());
      for (std::size_t i = 0; i < here.size(); ++i)
        ASSERT_NEAR(here[i], there[i], type == DType::Float16 ? 0.02 : 1e-4) << i;
    }
}

TEST_F(GpuStrips, StencilsOfShortRows) {
  for (const DType type : {DType::Float32, DType::Float16})
    for (const Shape& shape : {Shape{6, 20011, 6}, Shape{25, 7001, 6}, Shape{150, 31, 41}})
      for (const bool around : {false, true}) {
        SCOPED_TRACE(::testing::Message() << name(type) << ' ' << shape << ' ' << around);
        same([&] {
          const Tensor x = numbers(shape, type);
          Tensor sum = x.astype(DType::Float32);
          for (int axis = 0; axis < 3; ++axis)
            for (const std::int64_t by : {-2, -1, 1, 2}) {
              std::vector<Slice> all(3, slice::all());
              all[static_cast<std::size_t>(axis)] = slice::range(2 + by, 2 + by + shape[axis]);
              std::vector<std::pair<std::int64_t, std::int64_t>> widths(3);
              widths[static_cast<std::size_t>(axis)] = {2, 2};
              const Tensor tap = around ? roll(x, by, Axes{axis}) : pad(x, widths).index(all);
              sum = sum + tap.astype(DType::Float32);
            }
          return sum;
        });
      }
}

TEST_F(GpuStrips, ReductionsOfWindows) {
  for (const std::int64_t size : {2, 3, 5}) {
    SCOPED_TRACE(size);
    same([&] { return nn::max_pool(numbers({40, 8, 33, 35}, DType::Float32), {size, size}, {1, 1}); });
    same([&] { return sum(sliding_window(numbers({6000, 61}, DType::Float32), {size}, Axes{0}), Axes{2}); });
  }
}

TEST_F(GpuStrips, PlacesThatIndicesChoose) {
  same([] {
    const Tensor x = numbers({600, 28, 28}, DType::Float32);
    const Tensor rows = (arange(84) / 3).astype(DType::Int32),
                 columns = (arange(14) * 2).astype(DType::Int32);
    return take(take(x, rows, 1), columns, 2) + take(take(x, rows, 1), columns + 1, 2);
  });
}

/// A result that takes the memory of an argument is written once.
TEST_F(GpuStrips, ResultsInTheMemoryOfArguments) {
  same([] {
    const Tensor x = numbers({7, 9000, 6}, DType::Float32);
    Tensor y = numbers({7, 9000, 6}, DType::Float32, 11);
    y = y * 0.5 + roll(x, 1, Axes{0}) + roll(x, 2, Axes{0}) + roll(x, -1, Axes{0}) + roll(x, -2, Axes{0});
    return y.eval();
  });
}

}  // namespace
}  // namespace kiln
