// The device that plans and emits and runs nothing: what can be seen of a program there, and what is refused.
#include "device/null/null_device.h"

#include "cache/temporary_directory.h"
#include "counted.h"
#include "device/cuda/require.h"
#include "device/null/on_null_device.h"

#include <kiln/config.h>
#include <kiln/dlpack.h>
#include <kiln/gpu.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace kiln {
namespace {

namespace fs = std::filesystem;

class NullDevice : public testing::OnNullDevice {
 protected:
  /// The files that a dump of the program makes, as one text each: their endings and contents.
  std::string dumped(const std::function<void()>& program, const std::string& ending) {
    const testing::TemporaryDirectory directory;
    options_.dump = directory.path().string();
    use();
    program();
    options_.dump.clear();
    std::string text;
    for (const auto& e : fs::directory_iterator(directory.path()))
      if (e.path().string().ends_with(ending)) {
        std::ifstream in(e.path());
        text.append(std::istreambuf_iterator<char>(in), {});
      }
    return text;
  }
  std::string printed(const std::function<void()>& program) {
    use();
    ::testing::internal::CaptureStderr();
    program();
    return ::testing::internal::GetCapturedStderr();
  }
};

Tensor softmax_of(const Tensor& x) {
  const Tensor e = exp(x - max(x, -1, true));
  return e / sum(e, -1, true);
}

template <class E>
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

TEST_F(NullDevice, PlansCompilesOnceAndCountsWhatItWouldRun) {
  const Tensor x = zeros({64, 1000}).eval();
  const auto evaluate = [&] { softmax_of(x).eval(); };
  const test::Counted first = test::count(evaluate), second = test::count(evaluate);
  EXPECT_EQ(first.launches, 1u);
  EXPECT_EQ(first.compiled, 1u);
  EXPECT_EQ(first.plan_misses, 1u);
  EXPECT_EQ(second.launches, 1u);
  EXPECT_EQ(second.compiled, 0u);
  EXPECT_EQ(second.plan_hits, 1u);
  options_.mode = Mode::Eager;
  use();
  EXPECT_EQ(test::count(evaluate).launches, 5u) << "max, subtract, exp, sum, divide";
}

TEST_F(NullDevice, EqualLaunchesAreOneAsOnAGpu) {
  std::vector<Tensor> in, out;
  for (int i = 0; i < 16; ++i) in.push_back(zeros({100 + i}).eval());
  for (const Tensor& x : in) out.push_back(exp(x));
  EXPECT_EQ(test::count([&] { eval(out); }).launches, 1u);
}

/// Attention of `length` positions in bfloat16.
Tensor attention_of(std::int64_t length) {
  const auto halves = [&] { return zeros({1, 2, length, 64}, DType::BFloat16).eval(); };
  const Tensor q = halves(), k = halves(), v = halves();
  const Tensor scores = astype(matmul(q, swapaxes(k, -1, -2)), DType::Float32) * 0.125;
  return matmul(astype(softmax_of(scores), DType::BFloat16), v);
}

TEST_F(NullDevice, OthersAnswerWhileTheMainLoopOfAnAttentionIsCompiled) {
  options_.tier = Tier::Auto;
  use();
  const auto evaluate = [](std::int64_t length) {
    const Tensor y = attention_of(length);
    return test::count([&] { y.eval(); });
  };
  EXPECT_EQ(evaluate(256).library_calls, 2u);
  wait_for_compiles();
  const test::Counted better = evaluate(256);
  EXPECT_EQ(better.library_calls, 0u);
  EXPECT_EQ(better.launches, 1u);
  EXPECT_EQ(better.plan_misses, 1u);
  const test::Counted again = evaluate(256);
  EXPECT_EQ(again.plan_hits, 1u);
  EXPECT_EQ(again.launches, 1u);
  EXPECT_EQ(evaluate(320).library_calls, 0u) << "code that is there serves another length at once";
}

TEST_F(NullDevice, AnAttentionStoresItsHeadsSideBySide) {
  KILN_NEEDS_COMPILER();
  options_.tier = Tier::Jit;
  use();
  const Tensor w = zeros({128, 128}, DType::BFloat16).eval();
  const auto projected = [&](const Tensor& o) {
    const Tensor joined = swapaxes(o, 1, 2).reshape({256, 128});
    return matmul(joined, w);
  };
  const auto alone = [&] { return projected(attention_of(256)); };
  const auto with_a_sum = [&] {
    const Tensor o = attention_of(256);
    return std::vector{projected(o), sum(astype(o, DType::Float32), -1)};
  };
  const Tensor y = alone();
  test::Counted n = test::count([&] { y.eval(); });
  EXPECT_EQ(n.launches, 1u);
  EXPECT_EQ(n.library_calls, 1u);
  const std::vector<Tensor> both = with_a_sum();
  n = test::count([&] { eval(both); });
  EXPECT_EQ(n.launches, 2u) << "the sum reads what is stored";
  EXPECT_EQ(n.library_calls, 1u);
  const Tensor kept = attention_of(256), z = projected(kept);
  n = test::count([&] { z.eval(); });
  EXPECT_EQ(n.launches + n.library_calls, 2u) << "a handle's values lie in their own order";
}

TEST_F(NullDevice, NothingElseAnswersWhereResultsOrMemoryWouldDiffer) {
  KILN_NEEDS_COMPILER();
  const auto first = [&](std::int64_t length, Tier tier, bool deterministic) {
    options_.tier = tier;
    options_.deterministic = deterministic;
    use();
    const Tensor y = attention_of(length);
    return test::count([&] { y.eval(); }).library_calls;
  };
  EXPECT_EQ(first(256, Tier::Auto, true), 0u);
  EXPECT_EQ(first(256, Tier::Jit, false), 0u);
  // scores of all pairs would take most of the memory
  EXPECT_EQ(first(131072, Tier::Auto, false), 0u);
}

TEST_F(NullDevice, ProductsTakeTheirRowsAndSortsAreLibraryCalls) {
  const Tensor a = zeros({32, 48}).eval(), b = zeros({48, 16}).eval(), row = zeros({16}).eval();
  const Tensor added = matmul(a, b) + row;  // so that nothing else holds the product
  const test::Counted product = test::count([&] { added.eval(); });
  EXPECT_EQ(product.library_calls, 1u);
  EXPECT_EQ(product.launches, 0u);
  const test::Counted sorted = test::count([&] { exp(sort(a)).eval(); });
  EXPECT_EQ(sorted.library_calls, 1u);
  EXPECT_EQ(sorted.launches, 1u);
}

/// The main loop for pairs reads operands in any order: none is copied first.
TEST_F(NullDevice, ReductionsOfPairsAreOneKernelInEachType) {
  struct Sizes {
    std::int64_t rows, terms, columns;
  };
  for (const DType type : {DType::Float64, DType::Float32})
    for (const Sizes s : {Sizes{36300, 3, 64}, {46200, 70, 100}, {4950, 8, 1001}, {66000, 20, 17}}) {
      const Tensor x = zeros({s.rows, 1, s.terms}, type).eval(), y = zeros({s.columns, s.terms}, type).eval();
      const std::function<Tensor()> programs[] = {[&] { return argmin(sum(abs(x - y), 2), 1); },
                                                  [&] { return min(max(x - y, 2) + 1, 1); },
                                                  [&] { return sum(abs(x - y), 2) * 2; }};
      for (const auto& program : programs) {
        const Tensor made = program();  // alone alive
        EXPECT_EQ(test::count([&] { made.eval(); }).launches, 1u) << name(type) << ' ' << s.columns;
      }
    }
}

TEST_F(NullDevice, ProductsOfFewRowsMakeTheirWeightsOnTheWay) {
  options_.tier = Tier::Auto;
  use();
  const Tensor w = zeros({512, 1024}, DType::Int8).eval(), scale = zeros({512, 1}, DType::BFloat16).eval(),
               bias = zeros({512}, DType::BFloat16).eval();
  const auto evaluate = [&](std::int64_t rows) {
    const Tensor x = zeros({rows, 1024}, DType::BFloat16).eval();
    const Tensor y = relu(matmul(x, matrix_transpose(astype(w, DType::BFloat16) * scale)) + bias);
    return test::count([&] { y.eval(); });
  };
  EXPECT_EQ(evaluate(3).library_calls, 1u) << "while the main loop is compiled";
  wait_for_compiles();
  for (const std::int64_t rows : {3, 8, 5}) {
    const test::Counted one = evaluate(rows);
    EXPECT_EQ(one.launches, 1u) << rows;
    EXPECT_EQ(one.library_calls, 0u) << rows;
    EXPECT_EQ(one.compiled, 0u) << rows;
  }
  EXPECT_EQ(evaluate(17).library_calls, 1u);
  const auto calls = [](const Tensor& x, const Tensor& weights) {
    const Tensor y = matmul(x, astype(weights, DType::BFloat16));
    return test::count([&] { y.eval(); }).library_calls;
  };
  const Tensor wide = zeros({2, 1024, 512}, DType::Int8).eval(),
               x = zeros({2, 3, 1024}, DType::BFloat16).eval();
  EXPECT_EQ(calls(x, wide), 1u) << "weights for each matrix of a batch";
  options_.null_target = "sm_75";
  use();
  EXPECT_EQ(evaluate(3).library_calls, 1u) << "no tensor cores for these";
}

TEST_F(NullDevice, DumpsCudaCAndTheOperationsButNothingOfTheCpu) {
  const Tensor x = zeros({64, 1000}).eval();
  const auto program = [&] { softmax_of(x).eval(); };
  const std::string source = dumped(program, ".cu");
  EXPECT_NE(source.find("extern \"C\" __global__"), source.npos) << source;
  EXPECT_NE(dumped(program, ".kernel.txt").find("grid"), std::string::npos);
  EXPECT_NE(dumped(program, ".ops.txt").find("null_device_test.cpp"), std::string::npos);
  EXPECT_EQ(dumped(program, ".ll") + dumped(program, ".s") + dumped(program, ".vm.txt"), "");
}

TEST_F(NullDevice, CompilesForItsTargetWhereThereIsACompiler) {
  KILN_REQUIRE_NVRTC();
  options_.dump_stages = {"ptx"};
  options_.null_target = "sm_80";
  const std::string text = dumped([] { exp(arange(100)).eval(); }, ".ptx");
  EXPECT_NE(text.find(".target sm_80"), text.npos) << text;
}

TEST_F(NullDevice, TheTargetDecidesThePlan) {
  // Forty long rows keep a T4 busy, but not an H100, where the reductions are cut and have a kernel of their
  // own.
  const auto launches = [&](const char* target) {
    options_.null_target = target;
    use();
    const Tensor x = zeros({40, 1 << 20}).eval();
    return test::count([&] { softmax_of(x).eval(); }).launches;
  };
  EXPECT_EQ(launches("sm_75"), 1u);
  EXPECT_EQ(launches("sm_90"), 2u);
  EXPECT_EQ(launches(""), 2u) << "the default";
  EXPECT_EQ(launches("sm_78"), 1u) << "between two of the table it has the figures of the lower one";
  const device::Device& here = null::as_device();
  EXPECT_EQ(here.target().threads, 40);
  EXPECT_EQ(here.name(), "null (sm_78)");
}

TEST_F(NullDevice, AnEvaluationOfAnotherTargetIsPlannedAnew) {
  const Tensor x = zeros({30, 1000}).eval();
  const auto misses = [&](const char* target) {
    options_.null_target = target;
    configure(options_);  // plans in memory stay
    return test::count([&] { sum(x + 1.0f, 1).eval(); }).plan_misses;
  };
  EXPECT_EQ(misses("sm_80"), 1u);
  EXPECT_EQ(misses("sm_100"), 1u);
  EXPECT_EQ(misses("sm_80"), 0u);
}

TEST_F(NullDevice, ExplainsAndLogs) {
  const Tensor x = zeros({1000, 64}).eval();
  options_.explain = "1";
  options_.log_topics = {"plan", "kernel"};
  const std::string text = printed([&] { softmax_of(matmul(x.T(), x)).eval(); });
  EXPECT_NE(text.find("in 1 kernel and 1 library call"), text.npos) << text;
  EXPECT_NE(text.find("boundary: "), text.npos) << text;
  EXPECT_NE(text.find("nodes for null (sm_90): "), text.npos) << text;
  EXPECT_NE(text.find("not run"), text.npos) << text;
  EXPECT_EQ(text.find("inf"), text.npos) << text;
}

TEST_F(NullDevice, ReadingAValueIsAnErrorThatSaysWhy) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3}), y = (x + 1.0f).eval();
  EXPECT_TRUE(y.evaluated());
  EXPECT_EQ(y.device(), Device::null());
  std::ostringstream out;
  const std::function<void()> reads[] = {[&] { (void)sum(y).item<float>(); },
                                         [&] { (void)y.to_vector<float>(); },
                                         [&] { (void)x.to_vector<float>(); },
                                         [&] { (void)y.data(); },
                                         [&] { out << y; },
                                         [&] { (void)y.to(Device::cpu()); },
                                         [&] { (void)static_cast<bool>(all(y > 0.0f)); },
                                         [&] { (void)nonzero(y); }};
  for (const auto& read : reads) {
    const std::string error = error_of<DeviceError>(read);
    EXPECT_NE(error.find("a value is read: the device null runs nothing"), error.npos) << error;
  }
  EXPECT_TRUE(zeros({0, 4}).to_vector<float>().empty()) << "no elements are no values";
}

TEST_F(NullDevice, ALoopWhoseLengthValuesDecideIsAnError) {
  const Tensor a = zeros({8, 8}).eval();
  const std::uint64_t before = memory_use(Device::null()).in_use;
  const std::string error = error_of<DeviceError>([&] {
    while_loop([](const Tensors& s) { return sum(s[0]) < 10.0f; },
               [&](const Tensors& s) { return Tensors{matmul(a, s[0]) + 1.0f}; }, {zeros({8, 8})})[0]
        .eval();
  });
  EXPECT_NE(error.find("a loop asks for its condition: the device null runs nothing"), error.npos) << error;
  EXPECT_EQ(memory_use(Device::null()).in_use, before) << "the condition's memory";
  const auto counted = test::count([&] {
    scan(
        [&](const Tensors& c, const Tensors& in) {
          const Tensor h = matmul(c[0], a) + in[0];
          return Scanned{{h}, {h}};
        },
        {zeros({8, 8})}, {zeros({5, 8, 8}).eval()})
        .ys[0]
        .eval();
  });
  EXPECT_EQ(counted.library_calls, 5u) << "how often this one runs is known";
}

/// Wherever memory ends in it.
TEST_F(NullDevice, ALoopThatRunsOutOfMemoryKeepsNone) {
  const Tensor in = zeros({5, 8, 8}).eval();
  const std::uint64_t before = memory_use(Device::null()).in_use;
  const auto run = [&] {
    const Scanned s = scan(
        [&](const Tensors& c, const Tensors& x) {
          const Tensor h = matmul(c[0], x[0]);
          return Scanned{{h, transpose(c[0])}, {h}};
        },
        {zeros({8, 8}), zeros({8, 8})}, {in});
    eval({s.carry[0], s.carry[1], s.ys[0]});
  };
  bool failed = true;
  int failures = 0;
  for (std::uint64_t room = 0; failed; room += 64, failures += failed) {
    limit_memory(Device::null(), before + room);
    failed = error_of<DeviceError>(run) != "no error";
    ASSERT_EQ(memory_use(Device::null()).in_use, before) << room << " bytes";
  }
  limit_memory(Device::null(), 0);
  EXPECT_GT(failures, 8) << "the stack alone is 1280 bytes";
}

TEST_F(NullDevice, MemoryHasNoBytesAndIsCountedAndLimited) {
  const MemoryUse before = memory_use(Device::null());
  EXPECT_EQ(before.limit, std::uint64_t{80} << 30) << "an H100's";
  {
    const Tensor x = zeros({std::int64_t{15} << 30}).eval();
    EXPECT_EQ(memory_use(Device::null()).in_use - before.in_use, std::uint64_t{60} << 30);
    const std::string error = error_of<DeviceError>([] { (zeros({std::int64_t{15} << 30}) + 1.0f).eval(); });
    EXPECT_NE(error.find("[memory] null (sm_90) has no room for 64424509440 bytes"), error.npos) << error;
  }
  EXPECT_EQ(memory_use(Device::null()).in_use, before.in_use);
  limit_memory(Device::null(), 1000);
  EXPECT_THROW((void)zeros({1000}).eval(), DeviceError);
  limit_memory(Device::null(), 0);
  EXPECT_NO_THROW((void)zeros({1000}).eval());
}

TEST_F(NullDevice, StandsBesideOtherDevices) {
  options_.device = "cpu";
  use();
  const Tensor here = Tensor::from(std::vector<float>{1, 2}, {2}), there = here.to(Device::null());
  EXPECT_EQ(there.device(), Device::null());
  EXPECT_EQ((there * 2.0f).eval().device(), Device::null());
  EXPECT_EQ(zeros({2}, Device::null()).device().str(), "null");
  const std::string mixed = error_of<UserError>([&] { (void)(here + there); });
  EXPECT_NE(mixed.find("operands live on cpu and null"), mixed.npos) << mixed;
  EXPECT_EQ((here * 2.0f).to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST_F(NullDevice, HasNoStreamsAndNoMemoryToShare) {
  EXPECT_EQ(error_of<UserError>([] { StreamScope scope(Device::null(), nullptr); }),
            "[StreamScope] null has no streams");
  const std::string error = error_of<UserError>([] { (void)to_dlpack(zeros({2})); });
  EXPECT_NE(error.find("[to_dlpack] a tensor on null, for which DLPack has no name"), error.npos) << error;
  synchronize(Device::null());
  EXPECT_EQ(trim_memory(Device::null()), 0u);
}

TEST_F(NullDevice, KeepsNothingOnDisk) {
  const testing::TemporaryDirectory directory;
  options_.cache = "rw";
  options_.cache_dir = (directory.path() / "cache").string();
  use();
  const Statistics before = statistics();
  for (int i = 0; i < 2; ++i) {
    clear_memory_caches();
    exp(arange(10)).eval();
  }
  EXPECT_EQ(statistics().kernels_compiled - before.kernels_compiled, 2u);
  EXPECT_EQ(statistics().kernels_from_disk, before.kernels_from_disk);
  EXPECT_EQ(statistics().fallbacks, before.fallbacks);
}

}  // namespace
}  // namespace kiln
