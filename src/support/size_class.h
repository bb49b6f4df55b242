// Sizes of the blocks of memory pools: four classes a doubling for small and medium blocks, eight for large
// ones.
#pragma once

#include <bit>
#include <cstdint>

namespace kiln {

inline constexpr std::uint64_t kLeastBlock = 64;
inline constexpr std::uint64_t kSmallMax = 64 << 10;  // carved from chunks
inline constexpr std::uint64_t kLocalMax = 1 << 20;   // kept in thread-local lists
inline constexpr std::uint64_t kLargestBlock = std::uint64_t{1} << 46;

/// Steps of 64 bytes up to 256, then 4 a doubling up to kLocalMax, then 8 a doubling. Pre: bytes <=
/// kLargestBlock.
constexpr int size_class(std::uint64_t bytes) {
  if (bytes <= 256) return bytes <= 64 ? 0 : static_cast<int>((bytes + 63) / 64) - 1;
  const int log = 63 - std::countl_zero(bytes - 1);  // 2^log < bytes <= 2^(log + 1), log >= 8
  if (bytes <= kLocalMax) return 4 + (log - 8) * 4 + static_cast<int>((bytes - 1) >> (log - 2)) - 4;
  return 52 + (log - 20) * 8 + static_cast<int>((bytes - 1) >> (log - 3)) - 8;
}

constexpr std::uint64_t class_bytes(int cls) {
  if (cls < 4) return 64 * static_cast<std::uint64_t>(cls + 1);
  if (cls < 52) return static_cast<std::uint64_t>(5 + (cls - 4) % 4) << (6 + (cls - 4) / 4);
  return static_cast<std::uint64_t>(9 + (cls - 52) % 8) << (17 + (cls - 52) / 8);
}

inline constexpr int kSmallClasses = size_class(kSmallMax) + 1;
inline constexpr int kLocalClasses = size_class(kLocalMax) + 1;
inline constexpr int kClasses = size_class(kLargestBlock) + 1;
static_assert(kLocalClasses == 52 && class_bytes(kLocalClasses - 1) == kLocalMax);
static_assert(class_bytes(kSmallClasses - 1) == kSmallMax && class_bytes(kClasses - 1) == kLargestBlock);

}  // namespace kiln
