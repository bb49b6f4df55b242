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

/// A part of an axis, whose positions hold rows of elements `pitch` apart, and values `step` apart.
struct ListedPart {
  std::int64_t low, high, pitch, step;
};

/// Of indices from[i * stride], i < n <= kMostListed, those that name a position in [low, high), in their
/// order: elements gets (position - low) * pitch, values i * step. Both have room for n. Returns how many
/// there are. Pre: all of these fit std::int32_t. Lists of 32 bits take half the instructions to make and
/// half the room.
template <class Index>
using ListPositions = std::int64_t (*)(const Index* from, std::int64_t stride, std::int64_t n,
                                       std::int64_t extent, const ListedPart& part, std::int32_t* elements,
                                       std::int32_t* values);
constexpr std::int64_t kMostListed = 256;
/// The one for the instruction set in force.
template <class Index>
ListPositions<Index> list_positions();

}  // namespace kiln::cpu
