// Indices of a scatter as positions along an axis, and those that a thread owns, a register of them at a
// time.
#pragma once

#include <cstdint>

namespace kiln::cpu {

/// to[i] = the position that from[i * stride] names along an axis of `extent` elements, negative indices
/// counting from its end; `none` for those out of range.
template <class Index, class Position = std::int64_t>
using ResolvePositions = void (*)(const Index* from, std::int64_t stride, std::int64_t n, std::int64_t extent,
                                  std::int64_t none, Position* to);
/// The one for the instruction set in force. Index: an integer type; Position: std::int64_t, or std::int32_t
/// where extents are below 2^31, or std::uint16_t or std::uint8_t where they are below 2^16 or 2^8.
template <class Index, class Position = std::int64_t>
ResolvePositions<Index, Position> resolve_positions();

/// to[i] = the sum over j < count of positions[i + j * n] * pitch^j, i < n.
using JoinPositions = void (*)(const std::int32_t* positions, std::int64_t n, std::int64_t count,
                               std::int64_t pitch, std::int32_t* to);
/// The one for the instruction set in force.
JoinPositions join_positions();

/// Of positions[i], i < n, those in [low, high), in their order: elements gets position * pitch, values gets
/// i * step. Both have room for n. Returns how many there are.
using KeepPositions = std::int64_t (*)(const std::int64_t* positions, std::int64_t n, std::int64_t low,
                                       std::int64_t high, std::int64_t pitch, std::int64_t step,
                                       std::int64_t* elements, std::int64_t* values);
/// The one for the instruction set in force.
KeepPositions keep_positions();

}  // namespace kiln::cpu
