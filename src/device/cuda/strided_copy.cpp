#include "device/cuda/strided_copy.h"

#include "device/cuda/template_kernels.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <string>

namespace kiln::cuda {
namespace {

constexpr const char* kSource = R"(
struct Shape {
  int rank;
  long long extents[18], strides[18];
};

template <class T>
__device__ void copy(T* to, const T* from, const Shape& shape, long long count) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    long long rest = i, at = 0;
    for (int axis = shape.rank - 1; axis >= 0; --axis) {
      at += rest % shape.extents[axis] * shape.strides[axis];
      rest /= shape.extents[axis];
    }
    to[i] = from[at];
  }
}

extern "C" __global__ void copy_1(unsigned char* to, const unsigned char* from, Shape shape, long long count) {
  copy(to, from, shape, count);
}
extern "C" __global__ void copy_2(unsigned short* to, const unsigned short* from, Shape shape, long long count) {
  copy(to, from, shape, count);
}
extern "C" __global__ void copy_4(unsigned* to, const unsigned* from, Shape shape, long long count) {
  copy(to, from, shape, count);
}
extern "C" __global__ void copy_8(unsigned long long* to, const unsigned long long* from, Shape shape,
                                  long long count) {
  copy(to, from, shape, count);
}
)";

/// The kernel's Shape.
struct Shape {
  std::int32_t rank = 0;
  std::int64_t extents[18] = {}, strides[18] = {};
};
static_assert(StridedCopy::kMaxAxes == 18 && sizeof(Shape) == 8 * 37);

// by the logarithm of an element's size
constexpr const char* kSymbols[] = {"copy_1", "copy_2", "copy_4", "copy_8"};

}  // namespace

void copy_strided(const StridedCopy& copy, std::int64_t element_bytes, Stream stream) {
  KILN_CHECK_THAT(element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8);
  std::int64_t count = copy.count();
  if (count == 0) return;
  Shape shape;
  shape.rank = copy.rank;
  std::copy_n(copy.extents, copy.rank, shape.extents);
  std::copy_n(copy.strides, copy.rank, shape.strides);
  const void *to = copy.to, *from = copy.from;
  void* params[] = {&to, &from, &shape, &count};
  const auto blocks = static_cast<std::uint32_t>(std::min<std::int64_t>((count + 255) / 256, 1 << 16));
  const auto& kernels =
      template_kernels(device_of(stream), "strided_copy", kSymbols, [] { return std::string(kSource); });
  const auto which = static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(element_bytes)));
  launch(kernels[which], {.grid = {blocks, 1, 1}, .block = {256, 1, 1}}, stream, params);
}

const char* strided_copy_source() { return kSource; }

}  // namespace kiln::cuda
