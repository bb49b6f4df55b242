// The page of reports: whole, without network, and drawn by a browser where there is one.
#include "inspect/report_page.h"

#include "cache/temporary_directory.h"
#include "counted.h"

#include <kiln/fusion_report.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace kiln {
namespace {

using Json = nlohmann::json;

class ReportPage : public ::testing::Test {
 protected:
  void TearDown() override { configure(before_); }

  /// The page that a program writes.
  std::string page_of(const char* device, const std::function<void()>& program) {
    clear_memory_caches();
    Config c = before_;
    c.mode = Mode::Lazy;
    c.device = device;
    c.check_nan = c.check_diff = false;
    c.explain = directory_ / "page.html";
    configure(c);
    program();
    configure(before_);
    std::ostringstream text;
    text << std::ifstream(directory_ / "page.html").rdbuf();
    return text.str();
  }
  std::string page() {
    return page_of(before_.device.c_str(), [] {
      const Tensor x = test::data({64, 96}), w = test::data({96, 32});
      for (int i = 0; i < 4; ++i) exp(sort(nn::softmax(matmul(x, w) * static_cast<float>(i)), 1)).eval();
    });
  }
  /// The plans of a page.
  static std::vector<Json> plans(const std::string& page) {
    static constexpr std::string_view kBegin = "<script>kiln.add(", kEnd = ");</script>";
    std::vector<Json> out;
    for (std::size_t at = page.find(kBegin); at != page.npos; at = page.find(kBegin, at + 1)) {
      const std::size_t begin = at + kBegin.size();
      out.push_back(Json::parse(page.substr(begin, page.find(kEnd, begin) - begin)));
    }
    return out;
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

/// The lines of a text that a node is joined with.
std::vector<std::string> lines_of(const Json& kernel, const std::string& stage, std::uint32_t node) {
  std::istringstream text(kernel.at("sources").at(stage).get<std::string>());
  const Json& nodes = kernel.at("lines").at(stage);
  std::vector<std::string> out;
  std::size_t at = 0;
  for (std::string line; std::getline(text, line); ++at)
    if (std::ranges::find(nodes.at(at), Json(node)) != nodes.at(at).end()) out.push_back(line);
  EXPECT_EQ(at, nodes.size()) << stage;
  return out;
}

TEST_F(ReportPage, LinesOfCodeAreJoinedWithTheirOperations) {
  const auto program = [] {
    const Tensor x = test::data({64, 300}), y = test::data({64, 300}, DType::Float32, 1);
    const Tensor root = sqrt(abs(x * y) + 1.0f), total = sum(root, 1, true);
    ((root / total) - cumsum(floor(y), 1)).eval();
    max(cos(test::data({4096, 64})), 0).eval();
    argmax(test::data({8, 1 << 18}), 1).eval();
  };
  for (const char* device : {"cpu", "null"}) {
    SCOPED_TRACE(device);
    const std::string code = device == std::string("cpu") ? "ll" : "cu";
    std::size_t joined = 0, roots = 0, asked = 0, in_assembly = 0;
    for (const Json& plan : plans(page_of(device, program)))
      for (const Json& region : plan.at("regions"))
        for (const Json& kernel : region.at("kernels")) {
          std::vector<std::string> stages{"kernel"};
          if (kernel.at("sources").contains(code))
            stages.push_back(code);  // a build without compilers has none
          for (const Json& id : region.at("nodes")) {
            const Json& node = plan.at("nodes").at(id.get<std::size_t>());
            for (const std::string& stage : stages) {
              EXPECT_FALSE(lines_of(kernel, stage, id).empty())
                  << node << " has no line of\n"
                  << kernel.at("sources").at(stage).get<std::string>();
              ++joined;
            }
            for (const char* assembly : {"asm", "ptx"})
              if (kernel.at("sources").contains(assembly)) {
                ++asked;
                in_assembly += !lines_of(kernel, assembly, id).empty();
              }
            if (node.at("op") != "sqrt") continue;
            ++roots;
            const std::vector<std::string> lines = lines_of(kernel, "kernel", id);
            EXPECT_TRUE(std::ranges::all_of(lines, [](const std::string& l) {
              return l.find("sqrt(") != l.npos || l.find("out") != l.npos;  // computed, or stored
            })) << lines.front();
          }
        }
    EXPECT_GT(joined, 6u);
    EXPECT_GE(in_assembly * 4, asked * 3);  // an operation may be part of another's instruction
    EXPECT_GE(roots, 1u);
    std::remove((directory_ / "page.html").c_str());
  }
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
    const clicked = [tabs[0].dataset.region !== last, on.dataset.region === last, text.dataset.text === on.dataset.tab];
    // Pointing at a line of code marks its operation in the graph, and the program's line that recorded it.
    const line = text.querySelector("[data-nodes]"), own = line.dataset.nodes.split(",");
    const over = e => e.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
    const marked = () => [...document.querySelectorAll(".on")];
    over(line);
    const nodes = marked().filter(e => e.dataset.node).map(e => e.dataset.node);
    const program = document.querySelector("pre span[data-nodes].on");
    clicked.push(own.every(n => nodes.includes(n)), nodes.every(n => own.includes(n)), program !== null);
    // Pointing at the operation marks the line, and not all lines.
    over(document.querySelector(`g[data-node="${own.at(-1)}"]`));
    const lines = [...text.querySelectorAll("[data-nodes]")];
    clicked.push(line.classList.contains("on"), lines.some(l => !l.classList.contains("on")));
    document.title = clicked.join(" ");
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
  EXPECT_NE(dom.find("<title>true true true true true true true true</title>"), dom.npos)
      << dom.substr(dom.find("<title>"), 120);
}

}  // namespace
}  // namespace kiln
