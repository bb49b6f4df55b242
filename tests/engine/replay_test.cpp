// Launches that are written and run again: every kind of kernel gives what the program got, edited sources
// give what they say, damaged files are errors.
#include "engine/replay.h"

#include "cache/temporary_directory.h"
#include "counted.h"
#include "device/cpu/jit.h"
#include "engine/plan.h"

#include <kiln/config.h>
#include <kiln/error.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace kiln {
namespace {

namespace fs = std::filesystem;
using engine::Replay;

class Replays : public ::testing::Test {
 protected:
  void SetUp() override {
    if (config().device == "cpu" && !cpu::has_compiler()) GTEST_SKIP() << "a build without compilers";
    Config c = before_;
    c.mode = Mode::Lazy;
    c.dump = directory_.path().string();
    c.dump_stages = {"run"};
    configure(c);
    clear_memory_caches();
  }
  void TearDown() override { configure(before_); }

  std::vector<fs::path> launches() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      if (entry.path().string().ends_with(".run.json")) out.push_back(entry.path());
    return out;
  }
  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  }
  /// How many elements a run of a source makes otherwise.
  static std::int64_t differ(const Replay& launch, const fs::path& source) {
    std::int64_t n = 0;
    const Replay::Result r = launch.run(source, 3);
    EXPECT_GT(r.seconds, 0);
    EXPECT_FALSE(r.differences.empty()) << launch.name();
    for (const Replay::Difference& d : r.differences) n += d.differ;
    return n;
  }

  const testing::TemporaryDirectory directory_;
  const Config before_ = config();
};

TEST_F(Replays, EveryKindOfKernelGivesWhatTheProgramGot) {
  const Tensor x = test::data({40, 70}), wide = test::data({3, 100000});
  (exp(x) * 2.5f).eval();                                       // a slot
  nn::softmax(x).eval();                                        // rows
  (sum(wide * wide, 1) + max(wide, 1)).eval();                  // partial results, a finish section
  cumsum(test::data({1 << 20})).eval();                         // a chain
  (flip(x, Axes{0}) + transpose(test::data({70, 40}))).eval();  // strides below 0, tiles
  (x(slice::range(3, 20), slice::range({}, {}, 2)).astype(DType::Float16) + 1.0f).eval();
  Tensor t = (test::data({64, 64}) * 1.0f).eval();
  t(slice::range(0, 8)) = 3.0f;  // written in place
  t.eval();
  const std::vector<fs::path> all = launches();
  EXPECT_GE(all.size(), 6u);
  for (const fs::path& file : all) {
    const Replay launch(file);
    EXPECT_EQ(differ(launch, launch.source()), 0) << launch.name();
  }
}

TEST_F(Replays, LaunchesThatRunAsOneAreOne) {
  if (config().device == "cpu") GTEST_SKIP() << "a CPU launches one by one";
  std::vector<Tensor> in, out;
  for (int i = 0; i < 6; ++i) in.push_back(test::data({20 + i, 30}, DType::Float32, i));
  for (const Tensor& x : in) out.push_back(x * 2.0f + 1.0f);
  eval(out);
  ASSERT_EQ(launches().size(), 1u);
  const Replay launch(launches()[0]);
  const Replay::Result r = launch.run(launch.source(), 3);
  ASSERT_EQ(r.differences.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(r.differences[i].set, i);
    EXPECT_EQ(r.differences[i].differ, 0);
  }
}

TEST_F(Replays, MainLoopsRunAgain) {
  if (config().device == "cpu") GTEST_SKIP() << "products of a CPU are library calls";
  engine::prefer_templates(true);
  relu(matmul(test::data({70, 40}), test::data({40, 50})) + test::data({50})).eval();
  relu(matmul(test::data({64, 64}, DType::Float16), test::data({64, 128}, DType::Float16))).eval();
  engine::prefer_templates(false);
  int main_loops = 0;
  for (const fs::path& file : launches()) {
    const Replay launch(file);
    main_loops += read(file).find("\"head\"") != std::string::npos;
    EXPECT_EQ(differ(launch, launch.source()), 0) << launch.name();
  }
  EXPECT_GE(main_loops, 1);
}

TEST_F(Replays, EpiloguesOfProductsRunAgain) {
  if (config().device != "cpu") GTEST_SKIP() << "main loops of a GPU are kernels";
  const Tensor a = test::data({70, 40}), b = test::data({40, 50}, DType::Float32, 1);
  relu(matmul(a, b) + test::data({50}, DType::Float32, 2)).eval();
  const Tensor many = matmul(test::data({3, 300, 64}), test::data({3, 64, 200}, DType::Float32, 1));
  (many * 2.0f + test::data({3, 300, 200}, DType::Float32, 2)).eval();
  gelu(matmul(a.astype(DType::Float16), b.astype(DType::Float16))).eval();
  int epilogues = 0;
  for (const fs::path& file : launches()) {
    const Replay launch(file);
    epilogues += read(launch.source()).find("kiln") != std::string::npos;
    EXPECT_EQ(differ(launch, launch.source()), 0) << launch.name();
  }
  EXPECT_GE(epilogues, 3);
}

TEST_F(Replays, EditedSourcesRun) {
  (test::data({500}) + test::data({500}, DType::Float32, 1)).eval();
  ASSERT_EQ(launches().size(), 1u);
  const Replay launch(launches()[0]);
  std::string text = read(launch.source());
  const bool cuda = launch.source().extension() == ".cu";
  const std::string from = cuda ? " + " : "fadd", to = cuda ? " - " : "fsub";
  ASSERT_NE(text.find(from), text.npos);
  if (cuda) {
    const std::size_t at = text.rfind(from);  // the sum of the elements: the last one of the body
    text.replace(at, from.size(), to);
  } else {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos;) text.replace(at, from.size(), to);
  }
  const fs::path edited = directory_.path() / ("edited" + launch.source().extension().string());
  write(edited, text);
  EXPECT_GT(differ(launch, edited), 100);  // of 500; a GPU has several sums, one of which was edited
  EXPECT_EQ(differ(launch, launch.source()), 0);
}

TEST_F(Replays, WrongSourcesGiveTheCompilersMessage) {
  (test::data({500}) * 2.0f).eval();
  ASSERT_EQ(launches().size(), 1u);
  const Replay launch(launches()[0]);
  const fs::path edited = directory_.path() / ("wrong" + launch.source().extension().string());
  write(edited, read(launch.source()) + "\nthis is no code\n");
  try {
    (void)launch.run(edited, 1);
    ADD_FAILURE() << "compiled";
  } catch (const CompileError& e) {
    EXPECT_NE(std::string(e.what()).find("wrong"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("this is no code"), std::string::npos) << e.what();
  }
  EXPECT_THROW((void)launch.run(directory_.path() / "missing.ll", 1), UserError);
}

TEST_F(Replays, DamagedFilesAreErrors) {
  (test::data({500}) * 3.0f).eval();
  ASSERT_EQ(launches().size(), 1u);
  const fs::path json = launches()[0];
  const std::string text = read(json), data = read(fs::path(json).replace_extension(".bin"));
  write(fs::path(json).replace_extension(".bin"), data.substr(0, data.size() - 1));
  EXPECT_THROW(Replay{json}, UserError);
  write(fs::path(json).replace_extension(".bin"), data);
  EXPECT_NO_THROW(Replay{json});
  for (const std::string& wrong :
       {std::string("{"), text.substr(0, text.size() / 2), std::string("{\"schema\":\"kiln.replay/0\"}")}) {
    write(json, wrong);
    EXPECT_THROW(Replay{json}, UserError) << wrong.substr(0, 40);
  }
  EXPECT_THROW(Replay{directory_.path() / "none.run.json"}, UserError);
}

TEST_F(Replays, NothingIsWrittenUnlessItIsAskedFor) {
  Config c = config();
  c.dump_stages = {};  // all stages but run
  configure(c);
  clear_memory_caches();
  (test::data({500}) * 4.0f).eval();
  EXPECT_TRUE(launches().empty());
}

}  // namespace
}  // namespace kiln
