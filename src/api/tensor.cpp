// The Tensor handle: making leaves from host data, and reading values back.
#include <kiln/tensor.h>

#include "api/borrow.h"
#include "api/record.h"
#include "device/cpu/pool.h"
#include "device/device.h"
#include "engine/device_control.h"
#include "engine/device_memory.h"
#include "engine/evaluate.h"
#include "inspect/timeline.h"
#include "io/npy.h"
#include "oracle/reference.h"
#include "support/check.h"

#include <kiln/ops.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>

namespace kiln {
namespace {

using api::leaf;

/// Bytes of a tensor from the user; UserError for negative extents, or when the extents above 0 make more
/// than 2^63 - 1 bytes (strides would overflow, whether or not the tensor is empty).
std::uint64_t checked_bytes(std::string_view op, const Shape& shape, DType dtype) {
  std::int64_t bytes = size_of(dtype);
  bool overflow = false, empty = false;
  for (std::int64_t extent : shape) {
    if (extent < 0) throw UserError(cat("[", op, "] negative extent in shape ", shape.str()));
    empty |= extent == 0;
    overflow |= extent != 0 && __builtin_mul_overflow(bytes, extent, &bytes);
  }
  if (overflow)
    throw UserError(cat("[", op, "] ", name(dtype), " ", shape.str(), " has more than 2^63 - 1 bytes"));
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

/// The elements a strided layout touches, from the least to the greatest offset, and the strides as a leaf
/// keeps them: 0 along axes of one element, none at all when the layout is row-major.
struct Layout {
  std::int64_t first = 0, last = 0;  // inclusive; element offsets from the element (0, 0, …)
  Shape strides;
  bool row_major = true;
};

Layout checked_layout(const Shape& shape, std::span<const std::int64_t> strides, DType dtype) {
  if (static_cast<int>(strides.size()) != shape.rank())
    throw UserError(cat("[borrow] strides ", to_string(strides), " for shape ", shape.str()));
  Layout layout;
  layout.strides.resize(shape.rank(), 0);
  if (std::ranges::find(shape, 0) != shape.end()) return layout;
  bool overflow = false;
  std::int64_t expected = 1, bytes = 0;
  for (int i = shape.rank(); i-- > 0;) {
    if (shape[i] == 1) continue;
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    layout.strides[i] = stride;
    layout.row_major &= stride == expected;
    expected *= shape[i];
    std::int64_t reach = 0;
    std::int64_t& end = stride < 0 ? layout.first : layout.last;
    overflow |=
        __builtin_mul_overflow(stride, shape[i] - 1, &reach) || __builtin_add_overflow(end, reach, &end);
  }
  overflow |= __builtin_sub_overflow(layout.last, layout.first, &bytes) ||
              __builtin_add_overflow(bytes, 1, &bytes) ||
              __builtin_mul_overflow(bytes, size_of(dtype), &bytes);
  if (overflow)
    throw UserError(cat("[borrow] strides ", to_string(strides), " of ", name(dtype), " ", shape.str(),
                        " reach more than 2^63 - 1 bytes"));
  return layout;
}

/// A buffer over memory of somebody else's, which `owner` keeps and `deleter` is told about at the end.
ir::Buffer* lent(Device device, const void* data, std::byte* first, std::uint64_t bytes,
                 std::shared_ptr<const void> owner, std::function<void(const void*)> deleter) {
  return device::at(device).lend(first, bytes,
                                 [data, owner = std::move(owner), deleter = std::move(deleter)] {
                                   if (deleter) deleter(data);
                                 });
}

/// The axes of a layout along which elements lie in memory, those that repeat them left out, as one list from
/// outermost.
struct WalkedAxes {
  std::vector<std::int64_t> extents, strides;
  WalkedAxes(const Shape& shape, const Layout& layout) {
    std::int64_t row_major = shape.numel();
    for (int i = 0; i < shape.rank(); ++i) {
      row_major /= shape[i];
      const std::int64_t stride = layout.row_major ? row_major : layout.strides[i];
      if (shape[i] == 1 || stride == 0) continue;
      extents.push_back(shape[i]);
      strides.push_back(stride);
    }
  }
  /// f(byte) for each element, in row-major order of these axes.
  template <class F>
  void each(const std::byte* at, const F& f, std::size_t axis = 0) const {
    if (extents.empty()) return f(*at);
    const std::int64_t extent = extents[axis], stride = strides[axis];
    const bool last = axis + 1 == extents.size();
    for (std::int64_t i = 0; i < extent; ++i) {
      if (last)
        f(at[i * stride]);
      else
        each(at + i * stride, f, axis + 1);
    }
  }
};

/// Whether bools that somebody lends are bytes of 0 and 1, as everything that reads them may take for
/// granted.
bool are_bools(const std::byte* data, const Shape& shape, const Layout& layout) {
  if (layout.row_major) return io::are_bools(data, static_cast<std::uint64_t>(shape.numel()));
  std::byte all{0};
  WalkedAxes(shape, layout).each(data, [&](std::byte b) { all |= b; });
  return all <= std::byte{1};
}

/// A copy of bools in which every byte but 0 is 1. Axes that repeat elements go on doing so.
Tensor normalised(const std::byte* data, const Shape& shape, const Layout& layout,
                  std::optional<Device> device) {
  const WalkedAxes walked(shape, layout);
  std::uint64_t count = 1;
  for (const std::int64_t extent : walked.extents) count *= static_cast<std::uint64_t>(extent);
  ir::Buffer* buffer = cpu::allocate(count);
  std::byte* to = buffer->data;
  walked.each(data, [&](std::byte b) { *to++ = std::byte{b != std::byte{0}}; });
  if (layout.row_major) return leaf(buffer, shape, DType::Bool, 0, nullptr, device);
  Shape strides = layout.strides;
  std::int64_t stride = 1;
  for (int i = shape.rank(); i-- > 0;)
    if (strides[i] != 0) strides[i] = std::exchange(stride, stride * shape[i]);
  return leaf(buffer, shape, DType::Bool, 0, strides.begin(), device);
}

Tensor borrow_with(const void* data, const Shape& shape, const std::span<const std::int64_t>* strides,
                   DType dtype, std::shared_ptr<const void> owner, std::function<void(const void*)> deleter,
                   SourceLocation loc, std::optional<Device> device = std::nullopt) {
  const CallScope scope("borrow", loc);
  const std::uint64_t bytes = checked_bytes("borrow", shape, dtype);
  if (bytes != 0 && owner.use_count() == 0 && !deleter)
    throw UserError(cat("[borrow] neither an owner nor a deleter for ", name(dtype), " ", shape.str()));
  const Layout layout = strides ? checked_layout(shape, *strides, dtype) : Layout{};
  if (data == nullptr && bytes != 0) throw UserError(cat("[borrow] null data for shape ", shape.str()));
  if (bytes != 0 && reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(size_of(dtype)) != 0)
    throw UserError(cat("[borrow] data at ", data, " is not aligned for ", name(dtype)));
  std::byte* const first =
      const_cast<std::byte*>(static_cast<const std::byte*>(data)) + layout.first * size_of(dtype);
  const std::uint64_t reach =
      layout.row_major ? bytes
                       : static_cast<std::uint64_t>((layout.last - layout.first + 1) * size_of(dtype));
  const Device there = device.value_or(Device::cpu());
  ir::Buffer* buffer = lent(there, data, first, reach, std::move(owner), std::move(deleter));
  if (is_bool(dtype) && bytes != 0 && device::at(there).is_host()) {
    const auto* const elements = static_cast<const std::byte*>(data);
    if (!are_bools(elements, shape, layout)) {
      const std::unique_ptr<ir::Buffer, void (*)(ir::Buffer*)> given_back(
          buffer, [](ir::Buffer* b) { ir::release(b); });
      return normalised(elements, shape, layout, device);
    }
  }
  return leaf(buffer, shape, dtype, -layout.first, layout.row_major ? nullptr : layout.strides.begin(),
              device);
}

/// The node of a handle; UserError of the line for an empty one.
ir::Node* placed(std::string_view op, const Tensor& t, SourceLocation loc) {
  if (!t.valid()) throw UserError(cat("[", op, "] an operand is an empty Tensor"), loc);
  return t.node();
}

/// The node as a computed leaf.
const ir::Node* computed(const Tensor& t, std::string_view op) {
  ir::Node* const node = api::checked(op, t);
  engine::evaluate({&node, 1});
  return node;
}

/// Copies rows of the last axis from strided to row-major memory.
template <class T>
void copy_strided(const T* from, const ir::Node& node, T* to) {
  const auto dims = node.dims();
  if (node.numel == 0) return;
  if (dims.empty()) {
    *to = *from;
    return;
  }
  const std::size_t last = dims.size() - 1;
  std::int64_t index[kMaxRank] = {};
  std::int64_t offset = 0;
  for (;;) {
    for (std::int64_t i = 0; i < dims[last]; ++i) *to++ = from[offset + i * node.strides[last]];
    std::size_t axis = last;
    for (;;) {
      if (axis-- == 0) return;
      offset += node.strides[axis];
      if (++index[axis] < dims[axis]) break;
      offset -= index[axis] * node.strides[axis];
      index[axis] = 0;
    }
  }
}

void copy_leaf(const ir::Node& node, void* out) {
  const engine::TraceSpan span("copy", "copy to the program");
  const std::int64_t bytes = size_of(node.dtype);
  if (node.strides == nullptr)
    return engine::device_of(*node.buffer)
        .read(out, *node.buffer, node.offset * bytes, static_cast<std::uint64_t>(node.numel * bytes));
  const std::byte* from = engine::host_memory(*node.buffer) + node.offset * bytes;
  switch (bytes) {
    case 1:
      return copy_strided(reinterpret_cast<const std::uint8_t*>(from), node, static_cast<std::uint8_t*>(out));
    case 2:
      return copy_strided(reinterpret_cast<const std::uint16_t*>(from), node,
                          static_cast<std::uint16_t*>(out));
    case 4:
      return copy_strided(reinterpret_cast<const std::uint32_t*>(from), node,
                          static_cast<std::uint32_t*>(out));
    default:
      return copy_strided(reinterpret_cast<const std::uint64_t*>(from), node,
                          static_cast<std::uint64_t*>(out));
  }
}

struct RowMajor {
  ir::Buffer* buffer;  // lives as long as the tensor's node
  std::int64_t byte_offset;
};

/// Computes the value. A view of another buffer gets a row-major copy that its node keeps: every handle to
/// it, on whichever thread, shows the same memory, and the node itself stays as other threads may be reading
/// it.
RowMajor row_major(const Tensor& t, std::string_view op) {
  const ir::Node* const node = computed(t, op);
  if (node->strides == nullptr || node->numel == 0)
    return {node->buffer, node->offset * size_of(node->dtype)};
  if (ir::Buffer* const made = ir::row_major_copy(*node)) return {made, 0};
  ir::Buffer* copy = cpu::allocate(static_cast<std::uint64_t>(node->numel * size_of(node->dtype)));
  try {
    copy_leaf(*node, copy->data);
    if (copy->device != node->buffer->device)
      ir::release(std::exchange(copy, engine::copied_to(*copy, node->buffer->device)));
  } catch (...) {
    ir::release(copy);
    throw;
  }
  return {ir::keep_row_major_copy(*node, copy), 0};
}

}  // namespace

Tensor Tensor::copy_of(const void* data, const Shape& shape, DType dtype, SourceLocation loc) {
  const CallScope scope("from", loc);
  const std::uint64_t bytes = checked_bytes("from", shape, dtype);
  if (data == nullptr && bytes != 0) throw UserError(cat("[from] null data for shape ", shape.str()));
  ir::Buffer* buffer = cpu::allocate(bytes);
  if (bytes != 0) std::memcpy(buffer->data, data, bytes);
  if (is_bool(dtype)) io::normalise_bools(buffer->data, bytes);
  return leaf(buffer, shape, dtype);
}

Tensor api::borrow_on(Device device, const void* data, const Shape& shape,
                      std::span<const std::int64_t> strides, DType dtype, std::shared_ptr<const void> owner) {
  return borrow_with(data, shape, &strides, dtype, std::move(owner), {}, {}, device);
}
Tensor Tensor::borrow(const void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner,
                      SourceLocation loc) {
  return borrow_with(data, shape, nullptr, dtype, std::move(owner), {}, loc);
}
Tensor Tensor::borrow(const void* data, const Shape& shape, DType dtype,
                      std::function<void(const void*)> deleter, SourceLocation loc) {
  return borrow_with(data, shape, nullptr, dtype, {}, std::move(deleter), loc);
}
Tensor Tensor::borrow(const void* data, const Shape& shape, std::span<const std::int64_t> strides,
                      DType dtype, std::shared_ptr<const void> owner, SourceLocation loc) {
  return borrow_with(data, shape, &strides, dtype, std::move(owner), {}, loc);
}
Tensor Tensor::borrow(const void* data, const Shape& shape, std::span<const std::int64_t> strides,
                      DType dtype, std::function<void(const void*)> deleter, SourceLocation loc) {
  return borrow_with(data, shape, &strides, dtype, {}, std::move(deleter), loc);
}

void Tensor::check_count(std::string_view op, std::size_t have, const Shape& shape, SourceLocation loc) {
  const CallScope scope({}, loc);
  checked_bytes(op, shape, DType::Bool);
  if (static_cast<std::int64_t>(have) != shape.numel())
    throw UserError(
        cat("[", op, "] ", have, " values for shape ", shape.str(), ", which has ", shape.numel()));
}

void Tensor::check_room(std::size_t room, SourceLocation loc) const {
  const CallScope scope({}, loc);
  const ir::Node* node = api::checked("copy_to", *this);
  if (room != static_cast<std::size_t>(node->numel))
    throw UserError(cat("[copy_to] the tensor is ", api::describe(node), ", the destination has room for ",
                        room, " elements"));
}

Shape Tensor::shape(SourceLocation loc) const { return placed("shape", *this, loc)->shape(); }
int Tensor::rank(SourceLocation loc) const { return placed("rank", *this, loc)->rank; }
std::int64_t Tensor::dim(Axis axis, SourceLocation loc) const {
  const CallScope scope("dim", loc);
  const ir::Node* node = api::checked("dim", *this);
  return node->dims()[static_cast<std::size_t>(api::checked_axis("dim", axis, node))];
}
std::int64_t Tensor::numel(SourceLocation loc) const { return placed("numel", *this, loc)->numel; }
DType Tensor::dtype(SourceLocation loc) const { return placed("dtype", *this, loc)->dtype; }
Device Tensor::device(SourceLocation loc) const {
  const ir::Node* node = placed("device", *this, loc);
  return node->device == ir::kAnyDevice ? engine::default_device() : ir::device_of(node->device);
}

Tensor::operator bool() const {
  const ir::Node* const node = api::checked("bool", *this);
  if (node->numel != 1)
    throw UserError(
        cat("[bool] ", api::describe(node), " has no single truth value: use all(...) or any(...)"));
  const CallScope scope("bool", node->loc);  // an operator knows no line of its caller
  return item<bool>();
}

const Tensor& Tensor::eval(SourceLocation loc) const {
  const CallScope scope({}, loc);
  computed(*this, "eval");
  return *this;
}
bool Tensor::evaluated(SourceLocation loc) const {
  return ir::op_now(placed("evaluated", *this, loc)) == ir::Op::leaf;
}

void Tensor::copy_to(void* out, DType expected, SourceLocation loc) const {
  const CallScope scope("copy_to", loc);
  const DType have = api::checked("copy_to", *this)->dtype;
  if (have != expected)
    throw UserError(
        cat("[copy_to] the tensor is ", api::describe(node_), ", the destination ", name(expected)));
  copy_leaf(*computed(*this, "copy_to"), out);
}

void Tensor::read_item(void* out, DType type, SourceLocation loc) const {
  const CallScope scope("item", loc);
  const ir::Node* node = api::checked("item", *this);
  if (node->numel != 1)
    throw UserError(cat("[item] needs a tensor of one element, this one is ", api::describe(node_)));
  alignas(8) std::byte value[8];
  copy_leaf(*computed(*this, "item"), value);
  dispatch_stored(node->dtype, [&]<class From>() {
    From from;
    std::memcpy(&from, value, sizeof(From));
    dispatch_stored(type, [&]<class To>() {
      const To to = ir::ref::cast<To>(from);
      std::memcpy(out, &to, sizeof(To));
    });
  });
}

const void* Tensor::data() const {
  const CallScope scope("data", api::checked("data", *this)->loc);
  const RowMajor value = row_major(*this, "data");
  return engine::host_memory(*value.buffer) + value.byte_offset;
}

const void* Tensor::device_data() const {
  const CallScope scope("device_data", api::checked("device_data", *this)->loc);
  const RowMajor value = row_major(*this, "device_data");
  return value.buffer->data + value.byte_offset;
}

const void* Tensor::typed_data(DType type, SourceLocation loc) const {
  const CallScope scope("data", loc);
  if (dtype() != type)
    throw UserError(
        cat("[data] the tensor is ", api::describe(node_), ", the pointer asked for ", name(type)));
  return data();
}

Tensor Tensor::to(Device device, SourceLocation loc) const {
  const CallScope scope("to", loc);
  ir::Node* const node = api::checked("to", *this);
  if (node->device == ir::device_code(device)) return *this;
  const ir::Node* value = computed(*this, "to");
  ir::Buffer* buffer = value->buffer->device == device ? (ir::retain(value->buffer), value->buffer)
                                                       : engine::copied_to(*value->buffer, device);
  return leaf(buffer, value->shape(), value->dtype, value->offset, value->strides, device);
}

Tensor Tensor::astype(DType dtype, SourceLocation loc) const { return kiln::astype(*this, dtype, loc); }
Tensor Tensor::reshape(const Shape& shape, SourceLocation loc) const {
  return kiln::reshape(*this, shape, loc);
}
Tensor Tensor::T(SourceLocation loc) const { return matrix_transpose(*this, loc); }

void synchronize(Device device) { device::at(device).synchronize(); }

void eval(std::span<const Tensor> tensors, SourceLocation loc) {
  const CallScope scope("eval", loc);
  std::vector<ir::Node*> roots;
  roots.reserve(tensors.size());
  for (const Tensor& t : tensors) roots.push_back(api::checked("eval", t));
  if (!roots.empty()) engine::evaluate(roots);
}
void eval(std::initializer_list<Tensor> tensors, SourceLocation loc) {
  eval(std::span(tensors.begin(), tensors.size()), loc);
}

}  // namespace kiln
