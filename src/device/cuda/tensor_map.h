// Tensor maps: descriptions of arrays that Hopper's copy engine reads tiles by. A kernel gets one by value,
// in a
// __grid_constant__ parameter at a multiple of 64 bytes. Must not touch the arrays.
#pragma once

#include <kiln/dtype.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kiln::cuda {

struct alignas(64) TensorMap {
  std::array<std::byte, 128> bytes{};
};

/// An array and the tile that a copy takes of it: innermost axis first, strides in elements, stride[0] == 1.
/// Tiles land in shared memory permuted in units of 16 bytes over 128, as wgmma reads them; what is outside
/// the array becomes 0.
struct TiledArray {
  std::uint64_t address = 0;
  DType dtype = DType::BFloat16;
  int rank = 2;  ///< 2 to 5
  std::int64_t dims[5]{}, strides[5]{};
  std::int32_t box[5] = {1, 1, 1, 1, 1};
  /// Rows of a tile are windows: box[1] of them, in the order of the axes, all but the first and the last of
  /// which are walked from `lower` to the extent plus `upper`, `step` at a time. A copy names the first
  /// window and which element of the windows. box[0] is that of channels.
  bool windows = false;
  std::int32_t lower[3]{}, upper[3]{}, step[3] = {1, 1, 1};
};

/// Whether the copy engine can read it: address and strides are multiples of 16 bytes, extents positive, a
/// row of the box 128 bytes or less.
bool has_tensor_map(const TiledArray& array);
/// Pre: has_tensor_map(array). DeviceError, also when the driver is too old to know tensor maps.
TensorMap encode_tensor_map(int device, const TiledArray& array);

}  // namespace kiln::cuda
