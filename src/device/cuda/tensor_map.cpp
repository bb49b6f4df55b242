#include "device/cuda/tensor_map.h"

#include <cuda.h>

#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "support/check.h"

#include <cstring>

namespace kiln::cuda {
namespace {

constexpr std::int64_t kUnit = 16,
                       kRow = 128;  // bytes: of an address's and a stride's multiple, of a box's row
constexpr std::int64_t kMostStride = std::int64_t{1} << 40, kMostExtent = std::int64_t{1} << 32;
constexpr std::int32_t kMostBox = 256;

/// What the engine copies: it has no arithmetic, so a type stands for its width.
bool element_type(DType dtype, CUtensorMapDataType& type) {
  switch (size_of(dtype)) {
    case 1: type = CU_TENSOR_MAP_DATA_TYPE_UINT8; return true;
    case 2: type = CU_TENSOR_MAP_DATA_TYPE_UINT16; return true;
    case 4: type = CU_TENSOR_MAP_DATA_TYPE_UINT32; return true;
    case 8: type = CU_TENSOR_MAP_DATA_TYPE_UINT64; return true;
    default: return false;
  }
}

}  // namespace

bool has_tensor_map(const TiledArray& array) {
  CUtensorMapDataType type;
  const std::int64_t bytes = size_of(array.dtype);
  if (!element_type(array.dtype, type) || array.rank < 2 || array.rank > 5) return false;
  if (array.windows && array.rank < 3) return false;
  if (array.address % kUnit != 0 || array.strides[0] != 1 || array.box[0] * bytes > kRow) return false;
  for (int axis = 0; axis < array.rank; ++axis) {
    if (array.dims[axis] < 1 || array.dims[axis] > kMostExtent) return false;
    if (array.box[axis] < 1 || array.box[axis] > kMostBox) return false;
    const std::int64_t stride = array.strides[axis];
    if (axis > 0 && (stride < 1 || stride > kMostStride / bytes || stride * bytes % kUnit != 0)) return false;
  }
  return true;
}

TensorMap encode_tensor_map(int index, const TiledArray& array) {
  KILN_CHECK_THAT(has_tensor_map(array));
  if (!api().cuTensorMapEncodeTiled || !api().cuTensorMapEncodeIm2col)
    throw DeviceError(cat("[cuda] the driver of cuda:", index, " knows no tensor maps: CUDA 12 is needed"));
  CUtensorMapDataType type{};
  element_type(array.dtype, type);
  cuuint64_t dims[5], strides[5];
  cuuint32_t box[5], steps[5];
  for (int axis = 0; axis < array.rank; ++axis) {
    dims[axis] = static_cast<cuuint64_t>(array.dims[axis]);
    box[axis] = static_cast<cuuint32_t>(array.box[axis]);
    steps[axis] = 1;
    if (axis > 0) strides[axis - 1] = static_cast<cuuint64_t>(array.strides[axis] * size_of(array.dtype));
  }
  CUtensorMap map;
  const Enter in(index);
  const auto rank = static_cast<cuuint32_t>(array.rank);
  void* const address = reinterpret_cast<void*>(array.address);
  if (array.windows) {
    for (int axis = 1; axis + 1 < array.rank; ++axis)
      steps[axis] = static_cast<cuuint32_t>(array.step[axis - 1]);
    KILN_CU(in, cuTensorMapEncodeIm2col, &map, type, rank, address, dims, strides, array.lower, array.upper,
            box[0], box[1], steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  } else {
    KILN_CU(in, cuTensorMapEncodeTiled, &map, type, rank, address, dims, strides, box, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  static_assert(sizeof map == sizeof(TensorMap));
  TensorMap out;
  std::memcpy(out.bytes.data(), &map, sizeof map);
  return out;
}

}  // namespace kiln::cuda
