#include "support/pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

TEST(Pattern, FindsAPartOfTheText) {
  EXPECT_TRUE(Pattern("soft.*").matches("exp_softmax"));
  EXPECT_TRUE(Pattern("^(add|sum)_[a-z]+-[0-9a-f]{10}$").matches("sum_divide-0f3a9c21b7"));
  EXPECT_FALSE(Pattern("^sum").matches("cumsum"));
  EXPECT_FALSE(Pattern("\\{2}").matches("aa"));
}

TEST(Pattern, RefusesWhatHasNoBound) {
  for (const char* bad :
       {"(", "[a", "a{2,1}", "*a", "(a)\\1", "(a{100}){100}", "((((a{9}){9}){9}){9})", "a{999}"})
    EXPECT_NE(Pattern(bad).error(), "") << bad;
  EXPECT_NE(Pattern(std::string(257, 'a')).error(), "");
  for (const char* good : {"", "a\\{9\\}", "[{]{4}", "[]{]", "[^]]", "(a{10}){10}", "\\."})
    EXPECT_EQ(Pattern(good).error(), "") << good;
}

/// One that backtracks takes for ever, which ctest's limit ends.
TEST(Pattern, FinishesWhereBacktrackersDoNot) {
  const std::string name = std::string(2000, 'a') + "!";
  for (const char* slow : {"(a+)+$", "(a*)*b", "(a|aa)+$", "(a|a?)+b", "((a+)+)+$", "(.*a){12}b",
                           "(a?){12}a{12}b", "^(([a-z])+.)+[A-Z]([a-z])+$"}) {
    EXPECT_EQ(Pattern(slow).error(), "") << slow;
    EXPECT_FALSE(Pattern(slow).matches(name)) << slow;
  }
}

}  // namespace
}  // namespace kiln
