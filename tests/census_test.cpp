// A census of kernels: what every target and mode would run for random programs, for all tests, and for a few
// programs over random shapes. Two builds that make the same kernels have the same census; tools/census.sh
// takes it.
#include "codegen/cuda/cuda_c.h"
#include "codegen/other_targets.h"
#include "engine/plan_maker.h"
#include "math/expand.h"
#include "modes.h"
#include "program.h"
#include "support/check.h"
#include "transform/transform.h"

#include <kiln/error.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>

namespace kiln {
namespace {

/// Eight cores with AVX2.
schedule::Target cpu_target() {
  schedule::Target t;
  t.threads = 8;
  t.vector_bytes = 32;
  t.bytes_per_ns = 40;
  t.cached_bytes_per_ns = 160;
  t.prims_per_ns = 256;
  t.op_cost = lower::op_costs(false);
  return t;
}

struct Place {
  std::string name;
  schedule::Target target;
};

std::vector<Place> places() {
  std::vector<Place> out;
  for (const bool gpu : {false, true}) {
    const std::string device = gpu ? "cuda " : "cpu ";
    schedule::Target t = gpu ? testing::gpu_target() : cpu_target();
    out.push_back({device + "default", t});
    t.exact = true;
    out.push_back({device + "deterministic", t});
    t.strict = true;
    out.push_back({device + "strict", t});
  }
  return out;
}

/// The kernels of a recorded graph in one place, which wants passes of its own. A GPU's memory begins where
/// wide accesses may, or not.
std::vector<kernel::Kernel> kernels_in(const Place& place, const ir::Graph& recorded) {
  const Device device = place.target.gpu ? Device::cuda() : Device::cpu();
  const ir::Graph graph = transform::transform(recorded, engine::wishes(place.target, device)).graph;
  ir::verify(graph);
  std::vector<kernel::Kernel> out = testing::kernels_of(graph, place.target);
  if (place.target.gpu)
    std::ranges::move(testing::kernels_of(testing::with_aligned_leaves(graph), place.target),
                      std::back_inserter(out));
  return out;
}

/// Hash of the CUDA C of a kernel, alone and in a table of instances.
std::string text_hash(const kernel::Kernel& k) {
  if (k.threads.block == 0) return "-";
  try {
    std::string text = codegen::emit_cuda(k, testing::kCudaSymbol);
    if (k.link.empty()) text += codegen::emit_cuda(k, testing::kCudaSymbol, 8);
    return hash128(text).hex();
  } catch (const CompileError&) {
    return "none";
  }
}

/// Counts of kernels by place and key, with the hash of their CUDA C and the first program that has one.
class Census {
 public:
  void take(const ir::Graph& recorded, const std::string& program) {
    static const std::vector<Place> all = places();
    const std::lock_guard lock(mutex_);
    for (const Place& place : all) try {
        for (const kernel::Kernel& k : kernels_in(place, recorded)) {
          const auto [it, fresh] = kernels_.try_emplace(cat(place.name, ' ', kernel::hash(k).hex()));
          if (fresh) it->second = {0, "none", program};
          if (it->second.count++ == 0) it->second.text = text_hash(k);
        }
      } catch (const UserError&) {  // the program is wrong, whatever the place: the evaluation says so
      } catch (const Error& e) {
        ADD_FAILURE() << program << ", " << place.name << ": " << e.what() << "\n" << ir::print(recorded);
      }
  }

  /// A line a place, with the number of its kernels. How many places there are.
  std::size_t print() const {
    std::map<std::string, std::uint64_t> distinct;
    for (const auto& [key, entry] : kernels_) ++distinct[key.substr(0, key.rfind(' '))];
    for (const auto& [place, count] : distinct)
      std::printf("%s: %llu kernels\n", place.c_str(), static_cast<unsigned long long>(count));
    return distinct.size();
  }

  void write(const char* file) const {
    std::ofstream out(file);
    for (const auto& [key, entry] : kernels_)
      out << key << ' ' << entry.text << ' ' << entry.count << ' ' << entry.first << '\n';
    EXPECT_TRUE(out.good());
  }

 private:
  struct Entry {
    std::uint64_t count = 0;
    std::string text, first;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> kernels_;
};

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// ---- random programs ----

/// KILN_TEST_CENSUS: a file to write it to, sorted; without one a few programs are looked at.
/// KILN_TEST_FUZZ_PROGRAMS programs from KILN_TEST_FUZZ_SEED on.
TEST(Census, KernelsOfRandomPrograms) {
  const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
  const char* const file = std::getenv("KILN_TEST_CENSUS");
  const std::uint64_t first = number("KILN_TEST_FUZZ_SEED", 1),
                      programs = file ? number("KILN_TEST_FUZZ_PROGRAMS", 1000) : 20;
  Census census;
  std::uint64_t seed = first;
  const testing::OtherTargets listener(
      {.visit = [&](const ir::Graph& graph) { census.take(graph, std::to_string(seed)); }});
  for (; seed < first + programs; ++seed) {
    clear_memory_caches();  // a program's kernels do not depend on the programs before
    try {
      test::run(seed % 4 ? test::random_program(seed) : test::random_loops(seed));
    } catch (const UserError&) {  // what the program throws is the fuzzer's concern
    }
  }
  EXPECT_EQ(census.print(), places().size());
  if (file) census.write(file);
}

// ---- all tests ----

/// KILN_TEST_CENSUS_OF_TESTS: a file for the kernels of every graph that the tests of this process plan.
class CensusOfTests : public ::testing::Environment {
 public:
  void SetUp() override {
    file_ = std::getenv("KILN_TEST_CENSUS_OF_TESTS");
    if (!file_) return;
    listener_ = std::make_unique<testing::OtherTargets>(testing::OtherTargets::Which{.visit = take});
  }
  void TearDown() override {
    if (!listener_) return;
    listener_.reset();
    census().print();
    census().write(file_);
  }

 private:
  static Census& census() {
    static Census one;
    return one;
  }
  static void take(const ir::Graph& graph) {
    const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    census().take(graph, test ? cat(test->test_suite_name(), '.', test->name()) : std::string("none"));
  }

  const char* file_ = nullptr;
  std::unique_ptr<testing::OtherTargets> listener_;
};
[[maybe_unused]] ::testing::Environment* const census_of_tests =
    ::testing::AddGlobalTestEnvironment(new CensusOfTests);

// ---- classes of kernels over random shapes ----

struct ShapedProgram {
  const char* name;
  std::function<Tensor(const Tensor&)> run;
};

const ShapedProgram kShapedPrograms[] = {
    {"map", [](const Tensor& x) { return exp(x) * 2 + 1; }},
    {"map with a row", [](const Tensor& x) { return x * ones({x.dim(-1)}) + 1; }},
    {"row softmax", [](const Tensor& x) { return nn::softmax(x); }},
    {"row sum", [](const Tensor& x) { return sum(x, -1); }},
    {"column sum", [](const Tensor& x) { return sum(x, 0); }},
    {"sum of all", [](const Tensor& x) { return sum(x * x); }},
    {"column variance", [](const Tensor& x) { return var(x, 0); }},
    {"layer norm", [](const Tensor& x) { return nn::layer_norm(x); }},
    {"row argmax", [](const Tensor& x) { return argmax(x, -1); }},
    {"row scan", [](const Tensor& x) { return cumsum(x, -1); }},
    {"column scan", [](const Tensor& x) { return cumsum(x, 0); }},
    {"transpose", [](const Tensor& x) { return transpose(x) + 1; }},
    {"every other", [](const Tensor& x) { return x(ellipsis, range(none, none, 2)) + 1; }},
    {"join", [](const Tensor& x) { return concat({x, x * 2}, -1); }},
};

constexpr std::int64_t kMostElements = std::int64_t{1} << 27;

/// Ranks 1 to 4; extents from 1 to 2^20, small ones as likely as large ones, and many of 1.
Shape random_shape(std::mt19937_64& random) {
  std::vector<std::int64_t> dims(1 + random() % 4);
  std::int64_t room = kMostElements;
  for (std::int64_t& d : dims) {
    const std::int64_t power = std::int64_t{1} << random() % 21;
    const std::int64_t extent =
        power + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(power));
    d = random() % 8 == 0 ? 1 : std::min(extent, room);
    room /= d;
  }
  std::shuffle(dims.begin(), dims.end(), random);
  return Shape(dims);
}

/// Ends an evaluation that is planned and not to be run.
struct Planned {};

/// How many kernels serve a program over random shapes: by place, after half of the shapes and after all.
std::map<std::string, std::pair<std::size_t, std::size_t>> classes_of(const ShapedProgram& program,
                                                                      std::uint64_t shapes) {
  static const std::vector<Place> all = places();
  // Never touched: an evaluation ends before it reads.
  const std::shared_ptr<float> memory(
      static_cast<float*>(std::calloc(static_cast<std::size_t>(kMostElements) + 8, sizeof(float))),
      std::free);
  std::map<std::string, std::set<std::string>> keys;
  const testing::OtherTargets listener({.visit = [&](const ir::Graph& graph) {
    for (const Place& place : all)
      for (const kernel::Kernel& k : kernels_in(place, graph)) keys[place.name].insert(kernel::hash(k).hex());
    throw Planned();
  }});
  std::mt19937_64 random(1);
  std::map<std::string, std::pair<std::size_t, std::size_t>> out;
  for (std::uint64_t i = 0; i < shapes; ++i) {
    const Shape shape = random_shape(random);
    clear_memory_caches();
    try {
      program.run(Tensor::borrow(memory.get() + (i % 3 ? 0 : random() % 8), shape, memory)).eval();
      ADD_FAILURE() << program.name << " of " << shape.str() << " is not planned";
    } catch (const Planned&) {
    }
    if (i + 1 == shapes / 2)
      for (const auto& [place, found] : keys) out[place].first = found.size();
  }
  for (const auto& [place, found] : keys) out[place].second = found.size();
  return out;
}

/// KILN_TEST_CENSUS_SHAPES: how many. Schedules alone: nothing is run.
TEST(Census, ClassesOfKernelsOverRandomShapes) {
  const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
  const std::uint64_t shapes = number("KILN_TEST_CENSUS_SHAPES", 60);
  for (const ShapedProgram& program : kShapedPrograms) {
    const auto classes = classes_of(program, shapes);
    EXPECT_EQ(classes.size(), places().size()) << program.name;
    std::printf("%-16s", program.name);
    for (const Place& place : places()) {
      const auto [half, whole] = classes.at(place.name);
      std::printf("  %s %zu", place.name.c_str(), whole);
      // Shapes make classes at first; then they are in known ones.
      EXPECT_LT(whole - half, shapes / 4) << program.name << ", " << place.name;
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace kiln
