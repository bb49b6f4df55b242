// Golden JSON files of the reports' tests: one object with an entry for each program.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace kiln::testing {

/// Compares what programs said with what a file says they should, entry by entry. UPDATE_GOLDEN=1 writes the
/// file.
inline void expect_golden(const std::string& file, const nlohmann::ordered_json& all) {
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(file) << all.dump(1) << "\n";
    return;
  }
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  const auto want = nlohmann::ordered_json::parse(text.str());
  for (const auto& [name, said] : all.items()) {
    ASSERT_TRUE(want.contains(name)) << name << ": run this test with UPDATE_GOLDEN=1";
    EXPECT_EQ(said.dump(1), want[name].dump(1)) << name << ": run this test with UPDATE_GOLDEN=1";
  }
  EXPECT_EQ(all.size(), want.size());
}

}  // namespace kiln::testing
