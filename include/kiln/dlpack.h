// DLPack 1.x: tensors handed to and taken from other libraries in the same process without copying
// (https://dmlc.github.io/dlpack). The structures are DLPack's ABI, declared here so that nothing needs to be
// installed; the functions take and give those of <dlpack/dlpack.h> just as well.
#pragma once

#include <kiln/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

namespace kiln {

namespace dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
inline constexpr std::uint32_t kMinorVersion = 1;

enum DLDeviceType : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17
};

enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12
};

struct DLPackVersion {
  std::uint32_t major, minor;
};
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
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row-major
  std::uint64_t byte_offset;
};
/// The structure from before version 1.0, which knows no version and no flags.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

inline constexpr std::uint64_t kReadOnly = 1;  // flags
inline constexpr std::uint64_t kIsCopied = 2;

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
static_assert(sizeof(void*) != 8 || (sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
                                     sizeof(DLManagedTensorVersioned) == 80));

struct Delete {
  template <class Managed>
  void operator()(Managed* m) const {
    if (m->deleter) m->deleter(m);
  }
};

/// A structure of the same name and layout that another header declares.
template <class M>
concept ForeignVersioned = !std::is_same_v<M, DLManagedTensorVersioned> &&
                           sizeof(M) == sizeof(DLManagedTensorVersioned) && requires(M* m) {
                             m->version.major;
                             m->flags;
                             m->dl_tensor.byte_offset;
                             m->deleter(m);
                           };
template <class M>
concept ForeignLegacy =
    !std::is_same_v<M, DLManagedTensor> && sizeof(M) == sizeof(DLManagedTensor) && requires(M* m) {
      m->manager_ctx;
      m->dl_tensor.byte_offset;
      m->deleter(m);
    };

}  // namespace dlpack

using DLPack = std::unique_ptr<dlpack::DLManagedTensorVersioned, dlpack::Delete>;
using LegacyDLPack = std::unique_ptr<dlpack::DLManagedTensor, dlpack::Delete>;

struct DLPackOptions {
  /// Nothing: copy only what cannot be shared. True: always. False: a UserError instead of a copy.
  std::optional<bool> copy;
  /// The other side's stream, as in Python's __dlpack__: 1 the legacy default one, 2 the thread's, a handle
  /// that lives until the deleter was called, or -1: none (the CPU has none). Unset for a GPU: given out
  /// complete, taken as 1. UserError: else.
  std::optional<std::intptr_t> stream;
};

/// x for another library: evaluates, then shares x's memory and layout (views stay strided). The memory lives
/// until the receiver calls the deleter, whatever becomes of x. It is flagged read-only, since other tensors
/// may show the same memory; with options.copy == true it is the receiver's own to write. release() hands it
/// over:
///   consume(to_dlpack(x).release());
[[nodiscard]] DLPack to_dlpack(const Tensor& x, const DLPackOptions& options = {},
                               SourceLocation loc = SourceLocation::current());
/// The same for receivers from before DLPack 1.0. That structure cannot say "read-only": a receiver that
/// writes changes every tensor that shows the memory. UserError for memory that was lent to Kiln, unless
/// options.copy is true.
[[nodiscard]] LegacyDLPack to_dlpack_legacy(const Tensor& x, const DLPackOptions& options = {},
                                            SourceLocation loc = SourceLocation::current());
/// Either, as the structure M of another header.
template <class M>
  requires(dlpack::ForeignVersioned<M>)
[[nodiscard]] M* to_dlpack_as(const Tensor& x, const DLPackOptions& options = {},
                              SourceLocation loc = SourceLocation::current()) {
  return reinterpret_cast<M*>(to_dlpack(x, options, loc).release());
}
template <class M>
  requires(dlpack::ForeignLegacy<M>)
[[nodiscard]] M* to_dlpack_as(const Tensor& x, const DLPackOptions& options = {},
                              SourceLocation loc = SourceLocation::current()) {
  return reinterpret_cast<M*>(to_dlpack_legacy(x, options, loc).release());
}

/// A tensor over another library's memory. Takes `managed` in every case: its deleter is called after the
/// last use, or before this throws. Kiln never writes the memory, flagged read-only or not; nobody else may
/// while the tensor is in use. Null strides, offsets, strides of 0 and negative ones are fine; only data that
/// is not aligned to its element size is copied (see options.copy). Bools are bytes of 0 or 1. UserError:
/// another major version, a device that is neither the CPU nor a GPU of the process, dtypes that Kiln has
/// not, several lanes, more than kMaxRank dimensions, shapes and strides beyond 63 bits.
[[nodiscard]] Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed, const DLPackOptions& options = {},
                                 SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor from_dlpack(dlpack::DLManagedTensor* managed, const DLPackOptions& options = {},
                                 SourceLocation loc = SourceLocation::current());
template <dlpack::ForeignVersioned M>
[[nodiscard]] Tensor from_dlpack(M* managed, const DLPackOptions& options = {},
                                 SourceLocation loc = SourceLocation::current()) {
  return from_dlpack(reinterpret_cast<dlpack::DLManagedTensorVersioned*>(managed), options, loc);
}
template <dlpack::ForeignLegacy M>
[[nodiscard]] Tensor from_dlpack(M* managed, const DLPackOptions& options = {},
                                 SourceLocation loc = SourceLocation::current()) {
  return from_dlpack(reinterpret_cast<dlpack::DLManagedTensor*>(managed), options, loc);
}

}  // namespace kiln
