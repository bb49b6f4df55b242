// DLPack: what is given out, what is taken in, and what is refused (fault 48), always with the deleter called
// once.
#include "api/expect.h"
#include "device/cpu/pool.h"
#include "needs_cpu.h"

#include <kiln/dlpack.h>

#include <cstddef>
#include <cstring>

/// The structures as <dlpack/dlpack.h> 1.1 spells them.
namespace foreign {
struct DLPackVersion {
  std::uint32_t major, minor;
};
enum DLDeviceType : std::int32_t { kDLCPU = 1 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
}  // namespace foreign

namespace kiln {
namespace {

using namespace testing;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;

using Numbers = std::vector<std::int64_t>;

/// A producer: a structure over `memory` that counts the calls of its deleter.
template <class Managed>
struct Producer {
  Managed managed{};
  Numbers shape, strides;
  int deleted = 0;

  Producer(void* memory, Numbers shape_, Numbers strides_,
           dlpack::DLDataType dtype = {dlpack::kDLFloat, 32, 1})
      : shape(std::move(shape_)), strides(std::move(strides_)) {
    auto& t = managed.dl_tensor;
    t.data = memory;
    t.device = {dlpack::kDLCPU, 0};
    t.ndim = static_cast<std::int32_t>(shape.size());
    t.dtype = dtype;
    t.shape = shape.data();
    t.strides = strides.empty() ? nullptr : strides.data();
    managed.manager_ctx = this;
    managed.deleter = [](Managed* m) { ++static_cast<Producer*>(m->manager_ctx)->deleted; };
    if constexpr (requires { managed.version; }) managed.version = {1, 0};
  }
};
using Versioned = Producer<DLManagedTensorVersioned>;
using Legacy = Producer<DLManagedTensor>;

TEST(DLPack, LayoutIsTheAbi) {
  EXPECT_EQ(sizeof(DLManagedTensor), sizeof(foreign::DLManagedTensor));
  EXPECT_EQ(offsetof(DLManagedTensor, deleter), offsetof(foreign::DLManagedTensor, deleter));
  EXPECT_EQ(sizeof(DLManagedTensorVersioned), sizeof(foreign::DLManagedTensorVersioned));
  EXPECT_EQ(offsetof(DLManagedTensorVersioned, flags), offsetof(foreign::DLManagedTensorVersioned, flags));
  EXPECT_EQ(offsetof(DLManagedTensorVersioned, dl_tensor),
            offsetof(foreign::DLManagedTensorVersioned, dl_tensor));
  EXPECT_EQ(offsetof(dlpack::DLTensor, byte_offset), offsetof(foreign::DLTensor, byte_offset));
}

TEST(DLPack, SharesMemoryWhenGivenOut) {
  KILN_NEEDS_CPU();
  Tensor x = counting({2, 3}) + 1;
  const DLPack out = to_dlpack(x);
  const auto& t = out->dl_tensor;
  EXPECT_EQ(out->version.major, 1u);
  EXPECT_EQ(out->flags, dlpack::kReadOnly);
  EXPECT_EQ(t.data, x.data());
  EXPECT_EQ(t.device.device_type, dlpack::kDLCPU);
  EXPECT_EQ(Numbers(t.shape, t.shape + t.ndim), (Numbers{2, 3}));
  EXPECT_EQ(Numbers(t.strides, t.strides + t.ndim), (Numbers{3, 1}));
  EXPECT_EQ(t.dtype.code, dlpack::kDLFloat);
  EXPECT_EQ(t.dtype.bits, 32);
  EXPECT_EQ(t.dtype.lanes, 1);
  x = Tensor();  // the structure keeps the memory
  EXPECT_EQ(static_cast<const float*>(t.data)[5], 6);
}

TEST(DLPack, ViewsKeepTheirStrides) {
  KILN_NEEDS_CPU();
  const Tensor x = counting({3, 4}).eval();
  const Tensor view = x(slice::all(), range(none, none, -2)).T();
  const DLPack out = to_dlpack(view);
  const auto& t = out->dl_tensor;
  EXPECT_EQ(Numbers(t.shape, t.shape + t.ndim), (Numbers{2, 3}));
  if (config().mode == Mode::Lazy) {
    EXPECT_EQ(Numbers(t.strides, t.strides + t.ndim), (Numbers{-2, 4}));
    EXPECT_EQ(t.data, x.data<float>() + 3);
  }
  expect_equal<float>(from_dlpack(to_dlpack(view).release()), {2, 3}, {3, 7, 11, 1, 5, 9});
}

TEST(DLPack, EveryDtypeGoesThereAndBack) {
  KILN_NEEDS_CPU();
  for (int i = 0; i < kDTypeCount; ++i) {
    const Tensor x = counting({2, 3}).astype(static_cast<DType>(i));
    const Tensor versioned = from_dlpack(to_dlpack(x).release());
    const Tensor legacy = from_dlpack(to_dlpack_legacy(x).release());
    EXPECT_EQ(versioned.dtype(), x.dtype());
    EXPECT_EQ(legacy.dtype(), x.dtype());
    EXPECT_EQ(versioned.data(), x.data());
    EXPECT_EQ(legacy.data(), x.data());
  }
  expect_equal<float>(from_dlpack(to_dlpack(Tensor(2.f)).release()), Shape{}, {2});
  EXPECT_EQ(from_dlpack(to_dlpack(zeros({0, 3})).release()).shape().str(), "(0, 3)");
}

TEST(DLPack, ACopyIsTheReceivers) {
  KILN_NEEDS_CPU();
  const Tensor x = counting({2, 2});
  const DLPack out = to_dlpack(x.T(), {.copy = true});
  EXPECT_EQ(out->flags, dlpack::kIsCopied);
  EXPECT_NE(out->dl_tensor.data, x.data());
  auto* values = static_cast<float*>(out->dl_tensor.data);
  EXPECT_EQ(std::vector<float>(values, values + 4), (std::vector<float>{0, 2, 1, 3}));
  values[0] = 9;
  expect_equal<float>(x, {2, 2}, {0, 1, 2, 3});
}

TEST(DLPack, LentMemoryIsGivenOnOnlyAsReadOnly) {
  KILN_NEEDS_CPU();
  const float values[] = {1, 2};
  const Tensor x = Tensor::borrow(values, {2}, [](const void*) {});
  EXPECT_EQ(to_dlpack(x)->dl_tensor.data, values);
  EXPECT_EQ(to_dlpack_legacy(x, {.copy = true})->dl_tensor.ndim, 1);
  EXPECT_THROW(to_dlpack_legacy(x), UserError);
}

TEST(DLPack, NothingIsLeftWhenAllIsDeleted) {
  KILN_NEEDS_CPU();
  const auto before = cpu::pool_statistics().in_use;
  {
    const Tensor x = counting({1000});
    const DLPack out = to_dlpack(x);
    from_dlpack(to_dlpack(x * 2).release()).eval();
    to_dlpack_legacy(x);
  }
  EXPECT_EQ(cpu::pool_statistics().in_use, before);
}

TEST(DLPackFaults, F48_NullStridesAndByteOffset) {
  KILN_NEEDS_CPU();
  float values[] = {0, 1, 2, 3, 4, 5, 6};
  Versioned p(values, {2, 3}, {});
  p.managed.dl_tensor.byte_offset = sizeof(float);
  {
    const Tensor x = from_dlpack(&p.managed);
    EXPECT_EQ(x.data(), values + 1);
    expect_equal<float>(x * 2, {2, 3}, {2, 4, 6, 8, 10, 12});
    EXPECT_EQ(p.deleted, 0);
  }
  EXPECT_EQ(p.deleted, 1);
  Legacy old(values, {7}, {});
  from_dlpack(&old.managed).eval();
  EXPECT_EQ(old.deleted, 1);
  Versioned immortal(values, {7}, {});
  immortal.managed.deleter = nullptr;  // allowed
  from_dlpack(&immortal.managed).eval();
  EXPECT_EQ(immortal.deleted, 0);
}

TEST(DLPackFaults, F48_NonContiguousAndNegativeStrides) {
  KILN_NEEDS_CPU();
  std::int16_t values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const dlpack::DLDataType i16{dlpack::kDLInt, 16, 1};
  Versioned columns(values, {4, 3}, {1, 4}, i16), backward(values + 11, {3, 2}, {-4, -1}, i16),
      repeated(values + 5, {2, 3}, {0, 1}, i16);
  expect_equal<std::int16_t>(from_dlpack(&columns.managed) + 0, {4, 3},
                             {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  expect_equal<std::int16_t>(from_dlpack(&backward.managed) + 0, {3, 2}, {11, 10, 7, 6, 3, 2});
  expect_equal<std::int16_t>(from_dlpack(&repeated.managed), {2, 3}, {5, 6, 7, 5, 6, 7});
  EXPECT_EQ(columns.deleted + backward.deleted + repeated.deleted, 3);
}

TEST(DLPackFaults, F48_ReadOnlyMemoryIsNeverWritten) {
  KILN_NEEDS_CPU();
  static const float values[] = {1, 2, 3};  // in a read-only section: writing would crash
  Versioned p(const_cast<float*>(values), {3}, {});
  p.managed.flags = dlpack::kReadOnly;
  Tensor x = from_dlpack(&p.managed);
  x(0) = 7;
  x += 1;
  expect_equal<float>(x, {8, 3, 4});
  EXPECT_EQ(values[0], 1);
}

TEST(DLPackFaults, F48_UnalignedDataIsCopiedOrRefused) {
  KILN_NEEDS_CPU();
  alignas(8) char memory[17];
  const float values[] = {1, 2, 3, 4};
  std::memcpy(memory + 1, values, sizeof values);
  Versioned p(memory + 1, {2, 2}, {1, 2}), q(memory + 1, {2, 2}, {1, 2});
  expect_equal<float>(from_dlpack(&p.managed), {2, 2}, {1, 3, 2, 4});
  expect_user_error([&] { from_dlpack(&q.managed, {.copy = false}); },
                    "[from_dlpack] data that is not aligned for float32 must be copied");
  EXPECT_EQ(p.deleted, 1);
  EXPECT_EQ(q.deleted, 1);
  alignas(8) float own[] = {1, 2};
  Versioned r(own, {2}, {-1});
  r.managed.dl_tensor.byte_offset = 4;
  const Tensor copy = from_dlpack(&r.managed, {.copy = true});
  EXPECT_EQ(r.deleted, 1);
  own[0] = 9;
  expect_equal<float>(copy, {2, 1});
}

TEST(DLPackFaults, F48_WhatIsRefusedIsDeleted) {
  float values[4] = {};
  const auto refused = [&](const std::string& why, auto change) {
    Versioned p(values, {2, 2}, {2, 1});
    change(p.managed);
    expect_user_error([&] { from_dlpack(&p.managed); }, "[from_dlpack] " + why);
    EXPECT_EQ(p.deleted, 1) << why;
  };
  refused("version 2.0 of DLPack; Kiln reads 1.x", [](auto& m) {
    m.version = {2, 0};
    m.dl_tensor.ndim = -77;
  });
  refused("version 0.8 of DLPack; Kiln reads 1.x", [](auto& m) { m.version = {0, 8}; });
  Versioned elsewhere(values, {2, 2}, {2, 1});
  elsewhere.managed.dl_tensor.device = {dlpack::kDLCUDA, 77};
  EXPECT_THROW(from_dlpack(&elsewhere.managed), UserError);
  EXPECT_EQ(elsewhere.deleted, 1);
  refused("the tensor is on rocm:0; Kiln takes those on the cpu or a CUDA device",
          [](auto& m) { m.dl_tensor.device = {dlpack::kDLROCM, 0}; });
  refused("the tensor is on device type 99:0; Kiln takes those on the cpu or a CUDA device",
          [](auto& m) { m.dl_tensor.device.device_type = static_cast<dlpack::DLDeviceType>(99); });
  refused("complex64 is none of Kiln's dtypes",
          [](auto& m) { m.dl_tensor.dtype = {dlpack::kDLComplex, 64, 1}; });
  refused("float32 x 4 lanes is none of Kiln's dtypes", [](auto& m) { m.dl_tensor.dtype.lanes = 4; });
  refused("float128 is none of Kiln's dtypes", [](auto& m) { m.dl_tensor.dtype.bits = 128; });
  refused("type code 11 of 8 bits is none of Kiln's dtypes", [](auto& m) { m.dl_tensor.dtype = {11, 8, 1}; });
  refused("17 dimensions; Kiln has tensors of 0 to 16", [](auto& m) { m.dl_tensor.ndim = 17; });
  refused("-1 dimensions; Kiln has tensors of 0 to 16", [](auto& m) { m.dl_tensor.ndim = -1; });
  refused("the shape is null", [](auto& m) { m.dl_tensor.shape = nullptr; });
  const auto refused_by_borrow = [&](const std::string& why, auto change) {
    Versioned p(values, {2, 2}, {2, 1});
    change(p);
    expect_user_error([&] { from_dlpack(&p.managed); }, "[from_dlpack] " + why);
    EXPECT_EQ(p.deleted, 1) << why;
  };
  refused_by_borrow("null data for shape (2, 2)", [](auto& p) { p.managed.dl_tensor.data = nullptr; });
  refused_by_borrow("negative extent in shape (2, -2)", [](auto& p) { p.shape[1] = -2; });
  refused_by_borrow("float32 (2, 4611686018427387904) has more than 2^63 - 1 bytes",
                    [](auto& p) { p.shape[1] = std::int64_t{1} << 62; });
  refused_by_borrow("strides (9223372036854775807, 1) of float32 (2, 2) reach more than 2^63 - 1 bytes",
                    [](auto& p) { p.strides[0] = INT64_MAX; });
  expect_user_error([] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); },
                    "[from_dlpack] a null pointer");
}

TEST(DLPackFaults, F48_PinnedMemoryIsTheCpus) {
  KILN_NEEDS_CPU();
  float values[] = {1, 2};
  Legacy p(values, {2}, {});
  p.managed.dl_tensor.device = {dlpack::kDLCUDAHost, 0};
  expect_equal<float>(from_dlpack(&p.managed), {1, 2});
}

TEST(DLPackFaults, StreamsOfTheCpu) {
  KILN_NEEDS_CPU();
  const Tensor x = counting({2});
  EXPECT_NO_THROW(to_dlpack(x, {.stream = -1}));
  expect_user_error([&] { to_dlpack(x, {.stream = 2}); },
                    "[to_dlpack] stream 2 for a tensor on the cpu, which has no streams");
  expect_user_error([&] { to_dlpack(Tensor()); }, "[to_dlpack] an operand is an empty Tensor");
}

TEST(DLPack, StructuresOfOtherHeaders) {
  KILN_NEEDS_CPU();
  const Tensor x = counting({2, 2});
  foreign::DLManagedTensorVersioned* versioned = to_dlpack_as<foreign::DLManagedTensorVersioned>(x);
  EXPECT_EQ(versioned->dl_tensor.data, x.data());
  EXPECT_EQ(from_dlpack(versioned).data(), x.data());
  foreign::DLManagedTensor* legacy = to_dlpack_as<foreign::DLManagedTensor>(x);
  EXPECT_EQ(legacy->dl_tensor.shape[1], 2);
  EXPECT_EQ(from_dlpack(legacy).data(), x.data());
}

}  // namespace
}  // namespace kiln
