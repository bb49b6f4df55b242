// The page of reports: whole, without network, and drawn by a browser where there is one.
#include "inspect/report_page.h"

#include "cache/temporary_directory.h"
#include "counted.h"

#include <kiln/fusion_report.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace kiln {
namespace {

class ReportPage : public ::testing::Test {
 protected:
  void TearDown() override { configure(before_); }

  /// The page that a program writes.
  std::string page() {
    clear_memory_caches();
    Config c = before_;
    c.mode = Mode::Lazy;
    c.explain = directory_ / "page.html";
    configure(c);
    const Tensor x = test::data({64, 96}), w = test::data({96, 32});
    for (int i = 0; i < 4; ++i) exp(sort(nn::softmax(matmul(x, w) * static_cast<float>(i)), 1)).eval();
    configure(before_);
    std::ostringstream text;
    text << std::ifstream(directory_ / "page.html").rdbuf();
    return text.str();
  }

  const Config before_ = config();
  const testing::TemporaryDirectory directory_;
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(ReportPage, IsOneFileThatGrows) {
  const std::string text = page();
  EXPECT_EQ(count_of(text, "<!doctype html>"), 1u);
  EXPECT_GE(count_of(text, "<script>kiln.add({"), 1u);
  EXPECT_GE(count_of(text, "<script>kiln.run({"), 1u);
  EXPECT_EQ(count_of(text, "<script"), count_of(text, "</script>"));
  EXPECT_NE(text.find("\"sources\":{"), text.npos);
  const bool readable = static_cast<bool>(std::ifstream(__FILE__));
  EXPECT_EQ(text.find("nn::softmax(matmul(x, w) * static_cast") != text.npos, readable);
  EXPECT_FALSE(std::regex_search(engine::page_begin(), std::regex("https?://|src=|@import|url\\(")));
}

TEST_F(ReportPage, NothingInAReportEndsItsScript) {
  FusionReport r;
  r.device = "</script><b>";
  const std::string text = engine::page_plan(r);
  EXPECT_EQ(count_of(text, "</script>"), 1u) << text;
}

TEST_F(ReportPage, ABrowserDrawsIt) {
  if (std::system("command -v chromium > /dev/null 2>&1") != 0) GTEST_SKIP() << "no chromium";
  page();
  // A click on the last kernel that has code shows this code.
  std::ofstream(directory_ / "page.html", std::ios::app) << R"js(<script>addEventListener("load", () => {
    const tabs = [...document.querySelectorAll("[data-tab]")], last = tabs.at(-1).dataset.region;
    document.querySelector(`tr[data-region="${last}"]`).click();
    const on = document.querySelector("[data-tab][aria-pressed=true]");
    const text = document.querySelector("[data-text]:not([hidden])");
    document.title = `${tabs[0].dataset.region !== last} ${on.dataset.region === last} ${text.dataset.text === on.dataset.tab}`;
  });</script>)js";
  const std::string command =
      "timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--user-data-dir='" +
      (directory_ / "profile") + "' --virtual-time-budget=2000 --dump-dom 'file://" +
      (directory_ / "page.html") + "' 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_TRUE(pipe);
  std::string dom;
  for (int ch; (ch = std::fgetc(pipe)) != EOF;) dom += static_cast<char>(ch);
  if (pclose(pipe) != 0) GTEST_SKIP() << "chromium does not run here";
  EXPECT_NE(dom.find("Operations by kernel"), dom.npos) << dom.substr(0, 2000);
  EXPECT_NE(dom.find("Roofline"), dom.npos);
  EXPECT_GE(count_of(dom, "<tr data-region="), 1u);
  EXPECT_NE(dom.find("data-nodes="), dom.npos);
  EXPECT_NE(dom.find("<title>true true true</title>"), dom.npos);
}

}  // namespace
}  // namespace kiln
