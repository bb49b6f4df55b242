// KILN_TRACE: the file opens as a list of events, and has what a program did.
#include "cache/temporary_directory.h"
#include "counted.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace kiln {
namespace {

TEST(Timeline, HasRecordingPlanningCompilingAndKernels) {
  const testing::TemporaryDirectory directory;
  const Tensor x = test::data({64, 32}), w = test::data({32, 16});
  clear_memory_caches();
  Config c = config();
  c.trace = directory / "time.json";
  c.mode = Mode::Lazy;
  {
    const ScopedConfig scope(c);
    for (int i = 0; i < 2; ++i) (void)sum(sort(matmul(exp(x), w), 1) + static_cast<float>(i)).item<float>();
    c.trace = directory / "other.json";  // closes the file
    configure(c);
    (x + 1.0f).eval();
  }
  std::ifstream in(directory / "time.json");
  std::ostringstream text;
  text << in.rdbuf();
  const nlohmann::json events = nlohmann::json::parse(text.str() + "{}]");
  std::map<std::string, int> count;
  for (const nlohmann::json& e : events) {
    if (e.empty()) continue;
    EXPECT_EQ(e.at("ph"), "X");
    EXPECT_GE(e.at("dur").get<double>(), 0);
    ++count[e.at("cat").get<std::string>()];
  }
  EXPECT_EQ(count["evaluation"], 2) << text.str();
  EXPECT_GE(count["recording"], 1);
  EXPECT_EQ(count["planning"], 1);
  EXPECT_EQ(count["copy"], 2);
  EXPECT_EQ(count["kernel"], 4);   // the map in front of the product, the sum, twice
  EXPECT_EQ(count["library"], 4);  // the product and the sort, twice
}

}  // namespace
}  // namespace kiln
