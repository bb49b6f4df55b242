// Maps of a GPU, whose vectors hold elements of several rows or of an update's: its results are those of a
// CPU.
#include "engine/gpu_same.h"

namespace kiln {
namespace {

class GpuMaps : public testing::GpuSame {};

/// A vector has several of the elements that an update writes, the first of them anywhere in it.
TEST_F(GpuMaps, UpdatesOfEveryFewElements) {
  for (const DType type : {DType::Float32, DType::Float16})
    for (const std::int64_t step : {2, 5, -2})
      for (const std::int64_t first : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << name(type) << ", from " << first << " by " << step);
        const auto part = step > 0 ? range(first, none, step) : range(none, first, step);
        same([&] { return slice_update(numbers({2, 2, 16}, type), {ellipsis, part}, 77); });
        same([&] {
          const Tensor x = numbers({3, 40}, type);
          return slice_update(x, {ellipsis, part}, x(ellipsis, part) * 2 + 1);
        });
      }
}

/// The same of elements with zeros between them.
TEST_F(GpuMaps, ElementsApart) {
  for (const DType type : {DType::Float32, DType::Float16})
    for (const std::int64_t apart : {2, 3, 4}) {
      SCOPED_TRACE(::testing::Message() << name(type) << ", " << apart);
      same([&] {
        const Tensor x = numbers({4, 3 + 5 * apart}, type);
        const auto every = [&](std::int64_t first) {
          return slice_update(zeros_like(x), {ellipsis, range(first, none, apart)},
                              x(ellipsis, range(first, none, apart)));
        };
        return every(1) + every(0) * 3;
      });
    }
}

}  // namespace
}  // namespace kiln
