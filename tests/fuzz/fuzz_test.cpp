// Every fuzz target over mutations of its seeds: some seconds of what libFuzzer does for hours, from a fixed
// beginning.
//
// KILN_TEST_FUZZ_SECONDS runs each target that long from a seed of the clock's; the default is a number of
// inputs.
#include "fuzz/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>

namespace kiln::fuzz {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// One to some changes of the kinds that break parsers: flipped bits, lengths gone wild, parts cut out,
  /// doubled, or taken from another input.
  std::string mutate(std::string s, const std::string& other) {
    for (std::size_t n = 1 + below(4); n-- > 0;) change(s, other);
    return s;
  }
  std::size_t below(std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

 private:
  void change(std::string& s, const std::string& other) {
    const std::size_t at = below(s.size() + 1), some = 1 + below(below(2) ? 4 : 64);
    switch (below(9)) {
      case 0:
        if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < s.size()) s[at] = static_cast<char>(below(256));
        break;
      case 2:  // a number of 1, 2, 4 or 8 bytes at an edge
        for (std::size_t i = at; i < std::min(s.size(), at + (std::size_t{1} << below(4))); ++i)
          s[i] = below(4) == 0 ? '\x7f' : below(2) ? '\xff' : '\0';
        break;
      case 3: s.erase(at, some); break;
      case 4: s.insert(at, s.substr(below(s.size() + 1), some)); break;
      case 5: s.resize(at); break;
      case 6: s.insert(at, other.substr(below(other.size() + 1), some)); break;
      case 7: {  // a number in text
        constexpr const char* kNumbers[] = {
            "0",          "-1",   "1",  "9223372036854775807", "9223372036854775808", "18446744073709551615",
            "4294967296", "1e99", "00", "99999999999999999999"};
        const std::size_t digit = s.find_first_of("0123456789", at);
        if (digit == s.npos) break;
        const std::size_t end = std::min(s.find_first_not_of("0123456789", digit), s.size());
        s.replace(digit, end - digit, kNumbers[below(std::size(kNumbers))]);
        break;
      }
      default: {  // punctuation and words of the formats
        constexpr const char* kWords[] = {"{",     "}",     "[",      "]",      "(",   ")",
                                          ",",     ":",     "\"",     "'",      "=",   "\n",
                                          "\\",    "True",  "L",      "BOOL",   "F64", "__metadata__",
                                          "dtype", "KILN_", "PK\1\2", "PK\5\6", "null"};
        s.insert(at, kWords[below(std::size(kWords))]);
      }
    }
  }

  std::mt19937_64 random_;
};

class FuzzTargets : public testing::TestWithParam<Target> {};

TEST_P(FuzzTargets, SurviveMutations) {
  const Target& target = GetParam();
  const auto run = [&](const std::string& s) {
    EXPECT_NO_THROW(target.run({reinterpret_cast<const std::uint8_t*>(s.data()), s.size()}));
  };
  const std::vector<std::string> seeds = target.seeds();
  run("");
  for (const std::string& seed : seeds) run(seed);

  const char* text = std::getenv("KILN_TEST_FUZZ_SECONDS");
  const std::chrono::seconds seconds(text ? std::atoi(text) : 0);
  const auto begin = std::chrono::steady_clock::now();
  Mutator mutator(text ? static_cast<std::uint64_t>(begin.time_since_epoch().count()) : 1);
  std::vector<std::string> pool = seeds;
  for (int i = 0; text ? std::chrono::steady_clock::now() - begin < seconds : i < 20000; ++i) {
    const std::string input =
        mutator.mutate(pool[mutator.below(pool.size())], pool[mutator.below(pool.size())]);
    run(input);
    // Some inputs live on, so that changes add up.
    if (input.size() < 4096 && mutator.below(8) == 0) {
      if (pool.size() < 64)
        pool.push_back(input);
      else
        pool[seeds.size() + mutator.below(pool.size() - seeds.size())] = input;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzTargets, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::fuzz
