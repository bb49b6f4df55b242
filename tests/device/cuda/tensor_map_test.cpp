#include "device/cuda/tensor_map.h"

#include "device/cuda/require.h"

#include <kiln/error.h>

namespace kiln::cuda {
namespace {

TiledArray matrix() {
  TiledArray array;
  array.address = 1 << 20;
  array.dims[0] = 100;
  array.dims[1] = 50;
  array.strides[0] = 1;
  array.strides[1] = 104;
  array.box[0] = 64;
  array.box[1] = 128;
  return array;
}

TEST(TensorMaps, DescribeRowsThatBeginAtMultiplesOf16Bytes) {
  EXPECT_TRUE(has_tensor_map(matrix()));
  TiledArray array = matrix();
  array.strides[1] = 100;  // 200 bytes
  EXPECT_FALSE(has_tensor_map(array));
  array = matrix();
  array.address += 8;
  EXPECT_FALSE(has_tensor_map(array));
  array = matrix();
  array.strides[0] = 2;
  EXPECT_FALSE(has_tensor_map(array));
}

TEST(TensorMaps, DescribeNoReversedRepeatedOrEmptyAxes) {
  for (const std::int64_t stride : {-104, 0}) {
    TiledArray array = matrix();
    array.strides[1] = stride;
    EXPECT_FALSE(has_tensor_map(array)) << stride;
  }
  TiledArray array = matrix();
  array.dims[1] = 0;
  EXPECT_FALSE(has_tensor_map(array));
}

TEST(TensorMaps, DescribeBoxesWhoseRowsArePermutedWhole) {
  TiledArray array = matrix();
  array.box[0] = 65;
  EXPECT_FALSE(has_tensor_map(array));
  array = matrix();
  array.box[1] = 257;
  EXPECT_FALSE(has_tensor_map(array));
  array = matrix();
  array.rank = 6;
  EXPECT_FALSE(has_tensor_map(array));
}

TEST(TensorMaps, AreMadeByTheDriver) {
  if (!available()) GTEST_SKIP() << "NO GPU, NOT TESTED: " << driver().reason;
  if (!is_gpu()) {
    EXPECT_THROW(encode_tensor_map(0, matrix()), DeviceError);  // the tests' own driver is too old
    return;
  }
  EXPECT_NE(encode_tensor_map(0, matrix()).bytes, TensorMap{}.bytes);
}

}  // namespace
}  // namespace kiln::cuda
