// Files made of bytes, and what must hold when one is refused: an error of one line, nothing allocated,
// nothing kept.
#pragma once

#include "api/expect.h"
#include "cache/temporary_directory.h"
#include "device/cpu/pool.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace kiln::testing {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// A little-endian number of n bytes.
inline std::string number(std::uint64_t value, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

inline std::string from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return out;
}

inline void spill(const std::string& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::string slurp(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

/// `load` throws a UserError whose text is `message`, having allocated no tensor and kept no file open.
template <class F>
void expect_refused(F load, const std::string& message, SourceLocation loc = SourceLocation::current()) {
  const auto before = cpu::pool_statistics();
  const std::size_t files = open_files();
  expect_user_error(load, message, loc);
  const auto after = cpu::pool_statistics();
  EXPECT_EQ(after.allocations, before.allocations) << message;
  EXPECT_EQ(after.in_use, before.in_use) << message;
  EXPECT_EQ(open_files(), files) << message;
}

/// One tensor of every dtype with its greatest, least and special values, in a shape of its own.
inline std::map<std::string, Tensor> one_of_each() {
  std::map<std::string, Tensor> out;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Shape shape = i % 3 == 0 ? Shape{2, 3} : i % 3 == 1 ? Shape{6} : Shape{1, 3, 2};
    std::vector<std::uint64_t> words(6);
    for (std::size_t k = 0; k < words.size(); ++k) words[k] = 0x0123456789abcdefull * (2 * k + 1) + i;
    std::vector<std::uint8_t> bytes(6 * static_cast<std::size_t>(size_of(dtype)));
    for (std::size_t k = 0; k < bytes.size(); ++k)
      bytes[k] = static_cast<std::uint8_t>(words[k % 6] >> (8 * (k % 8)));
    if (is_bool(dtype))
      for (auto& b : bytes) b &= 1;
    out.emplace(std::string(name(dtype)), Tensor::copy_of(bytes.data(), shape, dtype));
  }
  return out;
}

/// The same dtype, shape and bits.
inline void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape().str(), b.shape().str());
  const auto bytes = static_cast<std::size_t>(a.numel() * size_of(a.dtype()));
  if (bytes != 0) {
    EXPECT_EQ(std::memcmp(a.data(), b.data(), bytes), 0) << name(a.dtype());
  }
}

}  // namespace kiln::testing
