#include "oracle/interpret_value.h"

#include "support/check.h"

#include <cstring>
#include <new>

namespace kiln::ir::oracle {

std::int64_t Value::numel() const {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= d;
  return n;
}

bool Value::dense() const {
  std::int64_t expected = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

Value new_value(DType dtype, Dims dims) {
  Value v;
  v.dtype = dtype;
  v.dims.assign(dims.begin(), dims.end());
  v.strides.resize(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    v.strides[i] = stride;
    stride *= dims[i];
  }
  const auto bytes = static_cast<std::size_t>(stride * size_of(dtype));
  try {
    v.memory = std::make_shared<std::vector<std::byte>>(bytes);
  } catch (const std::bad_alloc&) {
    throw DeviceError(cat("[memory] out of memory: ", bytes, " bytes wanted"));
  }
  v.data = v.memory->data();
  return v;
}

Value densified(const Value& v) {
  if (v.dense() || v.numel() == 0) return v.numel() == 0 ? new_value(v.dtype, v.dims) : v;
  Value out = new_value(v.dtype, v.dims);
  constexpr std::int64_t kBlock = 256;
  const std::int64_t bytes = size_of(v.dtype), count = v.numel();
  std::int64_t offsets[kBlock];
  Cursor cursor(v);
  std::byte* to = out.writable();
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t n = std::min(kBlock, count - at);
    cursor.take(offsets, n);
    for (std::int64_t i = 0; i < n; ++i, to += bytes)
      std::memcpy(to, v.data + offsets[i] * bytes, static_cast<std::size_t>(bytes));
  }
  return out;
}

Value broadcast(const Value& v, Dims dims) {
  Value out = v;
  const std::size_t lead = dims.size() - v.dims.size();
  out.dims.assign(dims.begin(), dims.end());
  out.strides.assign(dims.size(), 0);
  for (std::size_t i = 0; i < v.dims.size(); ++i)
    if (v.dims[i] == dims[lead + i]) out.strides[lead + i] = v.strides[i];
  return out;
}

Cursor::Cursor(const Value& v) : dims_(v.dims), strides_(v.strides) {
  if (dims_.empty()) {  // a scalar: one run of one
    dims_.push_back(1);
    strides_.push_back(0);
  }
  index_.assign(dims_.size(), 0);
}

void Cursor::take(std::int64_t* offsets, std::int64_t n) {
  const std::size_t last = dims_.size() - 1;
  while (n > 0) {
    const std::int64_t run = std::min(n, dims_[last] - index_[last]);
    for (std::int64_t i = 0; i < run; ++i) offsets[i] = offset_ + i * strides_[last];
    offsets += run;
    n -= run;
    index_[last] += run;
    offset_ += run * strides_[last];
    for (std::size_t axis = last; index_[axis] == dims_[axis]; --axis) {
      offset_ -= index_[axis] * strides_[axis];
      index_[axis] = 0;
      if (axis == 0) break;
      offset_ += strides_[axis - 1];
      ++index_[axis - 1];
    }
  }
}

}  // namespace kiln::ir::oracle
