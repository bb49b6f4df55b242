// What is fuzzed: everything that reads bytes from outside. A target takes any bytes; it may refuse them by a
// UserError (which it catches) and must not do anything else wrong. libfuzzer.cpp runs one under libFuzzer,
// fuzz_test.cpp all of them over mutations of their seeds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::fuzz {

using Bytes = std::span<const std::uint8_t>;

struct Target {
  std::string_view name;
  void (*run)(Bytes);
  std::vector<std::string> (*seeds)();  // inputs that are accepted
};

std::span<const Target> targets();

}  // namespace kiln::fuzz
