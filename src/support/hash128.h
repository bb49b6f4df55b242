// 128-bit structural hashes (XXH3). Keys of plans and kernels; collisions are taken as impossible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct Hash128 {
  std::uint64_t lo = 0, hi = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
  std::string hex() const;  // 32 lower-case digits
};

Hash128 hash128(const void* data, std::size_t bytes);
inline Hash128 hash128(std::string_view s) { return hash128(s.data(), s.size()); }
inline Hash128 hash128(std::span<const std::uint64_t> words) {
  return hash128(words.data(), words.size_bytes());
}

struct HashOf {
  std::size_t operator()(const Hash128& h) const { return h.lo; }
};

}  // namespace kiln
