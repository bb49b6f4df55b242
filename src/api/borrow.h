// Tensor::borrow for memory of any device.
#pragma once

#include <kiln/tensor.h>

#include <memory>
#include <span>

namespace kiln::api {

/// A tensor over memory on `device`, strides in elements. The owner is let go once nothing of Kiln's uses the
/// memory.
Tensor borrow_on(Device device, const void* data, const Shape& shape, std::span<const std::int64_t> strides,
                 DType dtype, std::shared_ptr<const void> owner);

}  // namespace kiln::api
