#include "ir/layout.h"

#include <cstring>

namespace kiln::ir {

std::int64_t element_count(std::span<const std::int64_t> dims) {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= d;
  return n;
}

std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t a = dims.size(); a-- > 1;) strides[a - 1] = strides[a] * dims[a];
  return strides;
}

bool is_row_major(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides) {
  std::int64_t s = 1;
  for (std::size_t a = dims.size(); a-- > 0; s *= dims[a])
    if (dims[a] != 1 && strides[a] != s) return false;
  return true;
}

void copy_to_row_major(std::byte* to, const std::byte* from, std::span<const std::int64_t> dims,
                       std::span<const std::int64_t> strides, std::size_t element_bytes) {
  const auto count = static_cast<std::size_t>(element_count(dims));
  if (is_row_major(dims, strides)) {
    std::memcpy(to, from, count * element_bytes);
    return;
  }
  std::vector<std::int64_t> index(dims.size());
  std::int64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * element_bytes, from + at * static_cast<std::int64_t>(element_bytes), element_bytes);
    for (std::size_t a = dims.size(); a-- > 0;) {
      at += strides[a];
      if (++index[a] < dims[a]) break;
      at -= strides[a] * dims[a];
      index[a] = 0;
    }
  }
}

}  // namespace kiln::ir
