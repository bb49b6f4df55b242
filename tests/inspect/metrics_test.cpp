// Counters as text.
#include <kiln/metrics.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>

namespace kiln {
namespace {

TEST(Metrics, PrometheusHasEveryCounterWithHelpAndType) {
  Statistics s;
  s.evaluations = 12;
  s.replays = 18446744073709551615u;
  s.compile_ns = 1500000000;
  const std::string text = metrics_prometheus(s);
  EXPECT_TRUE(
      text.starts_with("# HELP kiln_evaluations_total evaluations that ran at least one step\n"
                       "# TYPE kiln_evaluations_total counter\nkiln_evaluations_total 12\n"))
      << text;
  EXPECT_NE(text.find("\nkiln_compile_seconds_total 1.500000000\n"), text.npos) << text;
  EXPECT_TRUE(text.ends_with("\nkiln_replays_total 18446744073709551615\n")) << text;
}

TEST(Metrics, JsonHasTheMembersOfTheStruct) {
  Statistics s;
  s.plan_misses = 3;
  s.plan_ns = 77;
  const nlohmann::json j = nlohmann::json::parse(metrics_json(s));
  EXPECT_EQ(j.size(), sizeof(Statistics) / 8);
  EXPECT_EQ(j["plan_misses"], 3);
  EXPECT_EQ(j["plan_ns"], 77);
  EXPECT_EQ(nlohmann::json::parse(metrics_json()).size(), j.size());
}

}  // namespace
}  // namespace kiln
