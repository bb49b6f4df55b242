// Layout: where an array's elements lie. All arithmetic on strides is here. Extents and strides are in
// elements, outermost axis first; a stride of 0 repeats, a negative one walks back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kiln::ir {

/// Elements of an array of these extents.
std::int64_t element_count(std::span<const std::int64_t> dims);
/// The strides of adjacent elements in row-major order.
std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> dims);
/// Whether these strides are row-major, whatever those of axes of one element are.
bool is_row_major(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides);
/// Copies elements of `element_bytes` at any strides to adjacent ones in row-major order, on the host.
void copy_to_row_major(std::byte* to, const std::byte* from, std::span<const std::int64_t> dims,
                       std::span<const std::int64_t> strides, std::size_t element_bytes);

}  // namespace kiln::ir
