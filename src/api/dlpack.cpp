// DLPack in and out. A structure given out owns a handle of its tensor; one taken in is the owner of borrowed
// memory.
#include <kiln/dlpack.h>

#include "api/borrow.h"
#include "api/record.h"
#include "device/cpu/pool.h"
#include "engine/device_control.h"
#include "engine/device_memory.h"
#include "engine/evaluate.h"
#include "support/check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace kiln {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

dlpack::DLDataType to_dl(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  if (is_bool(dtype)) return {dlpack::kDLBool, bits, 1};
  if (dtype == DType::BFloat16) return {dlpack::kDLBfloat, bits, 1};
  if (dtype == DType::Float8E4M3FN) return {dlpack::kDLFloat8_e4m3fn, bits, 1};
  if (dtype == DType::Float8E5M2) return {dlpack::kDLFloat8_e5m2, bits, 1};
  return {is_signed_int(dtype)     ? dlpack::kDLInt
          : is_unsigned_int(dtype) ? dlpack::kDLUInt
                                   : dlpack::kDLFloat,
          bits, 1};
}

std::optional<DType> from_dl(dlpack::DLDataType type) {
  for (int i = 0; i < kAllDTypeCount; ++i) {
    const dlpack::DLDataType ours = to_dl(static_cast<DType>(i));
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string describe(dlpack::DLDataType type) {
  constexpr std::array<const char*, 7> kNames = {"int",    "uint",    "float", "handle",
                                                 "bfloat", "complex", "bool"};
  std::string out = type.code < kNames.size() ? kNames[type.code] : cat("type code ", int{type.code}, " of ");
  out += cat(int{type.bits}, type.code < kNames.size() ? "" : " bits");
  return type.lanes == 1 ? out : cat(out, " x ", type.lanes, " lanes");
}

std::string describe(dlpack::DLDevice device) {
  constexpr std::array<const char*, 18> kNames = {
      "",    "cpu",  "cuda",      "cuda_host", "opencl",       "",       "",       "vulkan",  "metal",
      "vpi", "rocm", "rocm_host", "extension", "cuda_managed", "oneapi", "webgpu", "hexagon", "maia"};
  const auto type = static_cast<std::size_t>(device.device_type);
  if (type >= kNames.size() || *kNames[type] == '\0')
    return cat("device type ", static_cast<int>(device.device_type), ':', device.device_id);
  return cat(kNames[type], ':', device.device_id);
}

/// Nothing, or a stream as DLPack numbers them: -1 none, 1 the legacy default one, 2 the thread's default
/// one, else a handle.
void check_stream(std::string_view op, const DLPackOptions& options, Device device) {
  if (!options.stream || *options.stream == -1) return;
  if (device.kind != Device::Kind::Cuda)
    throw UserError(cat("[", op, "] stream ", *options.stream, " for a tensor on ",
                        device == Device::cpu() ? "the cpu" : device.str(), ", which has no streams"));
  if (*options.stream <= 0)
    throw UserError(cat("[", op, "] stream ", *options.stream, " for a tensor on ", device.str(),
                        "; 1 is the legacy default stream, 2 the thread's default stream, -1 none"));
}

/// A device as DLPack names it. UserError for one that it has no name for.
dlpack::DLDevice to_dl(std::string_view op, Device device) {
  if (device.kind == Device::Kind::Cuda) return {dlpack::kDLCUDA, device.index};
  if (device::at(device).is_host()) return {dlpack::kDLCPU, 0};
  throw UserError(cat("[", op, "] a tensor on ", device.str(), ", for which DLPack has no name"));
}

void* handle_of(std::intptr_t stream) { return reinterpret_cast<void*>(stream); }

// ---- out ----

/// What a structure given out points to: it dies with the structure.
template <class Managed>
struct Export {
  Managed managed{};
  Tensor keep;
  std::optional<std::intptr_t> stream;  // that the receiver uses the memory on
  std::int64_t shape[kMaxRank], strides[kMaxRank];
};

/// A row-major copy of a computed tensor in memory of its own.
Tensor copied(const Tensor& x) {
  const ir::Node* node = x.node();
  ir::Buffer* buffer = cpu::allocate(static_cast<std::uint64_t>(node->numel * size_of(node->dtype)));
  x.copy_to(buffer->data, node->dtype);
  return api::leaf(buffer, node->shape(), node->dtype, 0, nullptr, node->buffer->device);
}

/// The receiver has let go, but its stream may not have: the pool gives the memory out in the order of Kiln's
/// own.
template <class Managed>
void take_back(Export<Managed>* e) {
  const Device device = e->keep.device();
  if (device.kind == Device::Kind::Cuda) {
    try {
      if (e->stream)
        engine::wait_for_stream(device, handle_of(*e->stream));
      else
        engine::rest(device);
    } catch (...) {  // the device is lost
    }
  }
  delete e;
}

template <class Managed>
Managed* give(std::string_view op, const Tensor& x, const DLPackOptions& options) {
  const dlpack::DLDevice named = to_dl(op, x.node()->buffer->device);
  auto* out = new Export<Managed>;
  out->keep = x;
  if (options.stream.value_or(-1) != -1) out->stream = options.stream;
  const ir::Node* node = x.node();
  const auto dims = node->dims();
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    out->shape[i] = dims[i];
    out->strides[i] = node->strides ? node->strides[i] : stride;
    stride *= dims[i];
  }
  DLTensor& t = out->managed.dl_tensor;
  t.data = node->buffer->data + node->offset * size_of(node->dtype);
  t.device = named;
  t.ndim = node->rank;
  t.dtype = to_dl(node->dtype);
  t.shape = out->shape;
  t.strides = out->strides;
  out->managed.manager_ctx = out;
  out->managed.deleter = [](Managed* m) { take_back(static_cast<Export<Managed>*>(m->manager_ctx)); };
  return &out->managed;
}

/// x computed, copied where the options ask for it.
Tensor exported(std::string_view op, const Tensor& x, const DLPackOptions& options) {
  ir::Node* const node = api::checked(op, x);
  check_stream(op, options, x.device());
  engine::evaluate({&node, 1});
  const Device device = node->buffer->device;
  const Tensor out = options.copy.value_or(false) ? copied(x) : x;
  if (device.kind != Device::Kind::Cuda) return out;
  device::at(device).use(*out.node()->buffer);
  if (!options.stream)
    device::at(device).synchronize();
  else if (*options.stream != -1)
    engine::let_stream_wait(device, handle_of(*options.stream));
  return out;
}

// ---- in ----

/// Copies elements that may lie unaligned.
void gather(const std::byte* from, std::size_t size, std::span<const std::int64_t> dims,
            const std::int64_t* strides, std::byte*& to) {
  if (dims.empty()) {
    std::memcpy(to, from, size);
    to += size;
    return;
  }
  for (std::int64_t i = 0; i < dims[0]; ++i)
    gather(from + i * strides[0] * static_cast<std::int64_t>(size), size, dims.subspan(1), strides + 1, to);
}

Shape checked_shape(const DLTensor& t) {
  if (t.ndim < 0 || t.ndim > kMaxRank)
    throw UserError(cat("[from_dlpack] ", t.ndim, " dimensions; Kiln has tensors of 0 to ", kMaxRank));
  if (t.ndim > 0 && t.shape == nullptr) throw UserError("[from_dlpack] the shape is null");
  return Shape(std::span<const std::int64_t>(t.shape, static_cast<std::size_t>(t.ndim)));
}

/// Strides in elements, those of row-major memory where none are given.
Shape strides_of(const DLTensor& t, const Shape& shape) {
  if (t.strides) return Shape(std::span<const std::int64_t>(t.strides, static_cast<std::size_t>(t.ndim)));
  Shape out = shape;
  std::int64_t stride = 1;
  bool overflow = false;
  for (int i = shape.rank(); i-- > 0;) {
    out[i] = stride;
    overflow |= __builtin_mul_overflow(stride, std::max<std::int64_t>(shape[i], 1), &stride);
  }
  if (overflow) throw UserError(cat("[from_dlpack] shape ", shape.str(), " has more than 2^63 - 1 elements"));
  return out;
}

Device device_of(const DLTensor& t) {
  const bool cuda = t.device.device_type == dlpack::kDLCUDA || t.device.device_type == dlpack::kDLCUDAManaged;
  if (!cuda && t.device.device_type != dlpack::kDLCPU && t.device.device_type != dlpack::kDLCUDAHost)
    throw UserError(cat("[from_dlpack] the tensor is on ", describe(t.device),
                        "; Kiln takes those on the cpu or a CUDA device"));
  if (!cuda) return Device::cpu();
  std::string why;
  if (t.device.device_id < 0 || t.device.device_id > 255 || !engine::has_gpu(t.device.device_id, why))
    throw UserError(cat("[from_dlpack] the tensor is on ", describe(t.device), ", which this process has not",
                        why.empty() ? "" : ": ", why));
  return Device::cuda(t.device.device_id);
}

/// A tensor over memory of a GPU, or a copy of it there.
Tensor take_on_gpu(Device device, const void* data, const Shape& shape, const Shape& strides, DType dtype,
                   std::shared_ptr<const void> owner, const DLPackOptions& options) {
  if (const std::intptr_t stream = options.stream.value_or(1); stream != -1)
    engine::wait_for_stream(device, handle_of(stream));
  const Tensor shared = api::borrow_on(device, data, shape, strides, dtype, std::move(owner));
  return options.copy.value_or(false) ? copied(shared) : shared;
}

Tensor take(const DLTensor& t, std::shared_ptr<const void> owner, const DLPackOptions& options) {
  const Device device = device_of(t);
  check_stream("from_dlpack", options, device);
  const std::optional<DType> dtype = from_dl(t.dtype);
  if (!dtype) throw UserError(cat("[from_dlpack] ", describe(t.dtype), " is none of Kiln's dtypes"));
  const Shape shape = checked_shape(t), strides = strides_of(t, shape);
  const std::byte* data = t.data ? static_cast<const std::byte*>(t.data) + t.byte_offset : nullptr;
  if (device.kind == Device::Kind::Cuda)
    return take_on_gpu(device, data, shape, strides, *dtype, std::move(owner), options);
  const auto size = static_cast<std::size_t>(size_of(*dtype));
  const std::size_t astray = reinterpret_cast<std::uintptr_t>(data) % size;
  // Where it lies astray this checks the layout all the same; nothing is read.
  const Tensor shared = Tensor::borrow(data - astray, shape, strides, *dtype, std::move(owner));
  const ir::Buffer& memory = *shared.node()->buffer;
  // what is lent is not writable
  const bool copied_bools = memory.writable && device::at(memory.device).is_host();
  if (is_bool(*dtype) && !options.copy.value_or(true) && shared.numel() != 0 && copied_bools)
    throw UserError("[from_dlpack] bools with bytes other than 0 and 1 must be copied");
  const bool aligned = astray == 0 || shared.numel() == 0;
  if (aligned && !options.copy.value_or(false)) return shared;
  if (!options.copy.value_or(true))
    throw UserError(cat("[from_dlpack] data that is not aligned for ", name(*dtype), " must be copied"));
  if (is_bool(*dtype)) return copied(shared);
  ir::Buffer* buffer = cpu::allocate(static_cast<std::uint64_t>(shared.numel()) * size);
  std::byte* to = buffer->data;
  if (shared.numel() != 0) gather(data, size, shape, strides.begin(), to);
  return Tensor::adopt(ir::new_leaf(buffer, *dtype, shape, 0, nullptr));
}

template <class Managed>
std::shared_ptr<Managed> owned(Managed* managed) {
  if (managed == nullptr) throw UserError("[from_dlpack] a null pointer");
  return std::shared_ptr<Managed>(managed, dlpack::Delete());
}

}  // namespace

DLPack to_dlpack(const Tensor& x, const DLPackOptions& options, SourceLocation loc) {
  const CallScope scope("to_dlpack", loc);
  const Tensor value = exported("to_dlpack", x, options);
  DLPack out(give<DLManagedTensorVersioned>("to_dlpack", value, options));
  out->version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  out->flags = options.copy.value_or(false) ? dlpack::kIsCopied : dlpack::kReadOnly;
  return out;
}

LegacyDLPack to_dlpack_legacy(const Tensor& x, const DLPackOptions& options, SourceLocation loc) {
  const CallScope scope("to_dlpack_legacy", loc);
  const Tensor value = exported("to_dlpack_legacy", x, options);
  if (!value.node()->buffer->writable)
    throw UserError(cat("[to_dlpack_legacy] ", api::describe(value.node()),
                        " shows memory that was lent to Kiln to be "
                        "read; DLPack before 1.0 cannot say so (use to_dlpack, or ask for a copy)"));
  return LegacyDLPack(give<DLManagedTensor>("to_dlpack_legacy", value, options));
}

Tensor from_dlpack(DLManagedTensorVersioned* managed, const DLPackOptions& options, SourceLocation loc) {
  const CallScope scope("from_dlpack", loc);
  const auto owner = owned(managed);
  if (managed->version.major != dlpack::kMajorVersion)  // nothing but the deleter may be touched then
    throw UserError(cat("[from_dlpack] version ", managed->version.major, ".", managed->version.minor,
                        " of DLPack; Kiln reads ", dlpack::kMajorVersion, ".x"));
  return take(managed->dl_tensor, owner, options);
}

Tensor from_dlpack(DLManagedTensor* managed, const DLPackOptions& options, SourceLocation loc) {
  const CallScope scope("from_dlpack", loc);
  const auto owner = owned(managed);
  return take(managed->dl_tensor, owner, options);
}

}  // namespace kiln
