// Random programs: the fused path, one kernel an operation, and the vm against the interpreter; in the strict
// mode the same three against each other, to the bit.
//
// Of every third program the code is for an instruction set that may be lower than the host's.
// KILN_TEST_FUZZ_SECONDS runs longer than the default, KILN_TEST_FUZZ_PROGRAMS so many programs however long
// they take; KILN_TEST_FUZZ_SEED begins elsewhere; KILN_TEST_FUZZ_LOOPS=1 draws programs that are mostly made
// of loops. A failure is shrunk and printed as C++. With KILN_DEVICE=cuda the programs run on the device.
#include "codegen/on_target.h"
#include "engine/plan.h"
#include "engine/plan_variants.h"
#include "modes.h"
#include "plan/donate.h"
#include "plan/reuse.h"
#include "program.h"

#include <kiln/custom_kernel.h>
#include <kiln/fusion_pattern.h>
#include <kiln/report.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>

namespace kiln {
namespace {

using testing::Engine;
using testing::EngineScope;
using testing::ModeScope;

std::string compare(const test::Program& p, const Engine& engine, bool twice) {
  try {
    test::Result want;
    {
      const ModeScope scope(Mode::Interpret);
      want = test::run(p);
    }
    const EngineScope scope(engine);
    const std::uint64_t fallbacks = statistics().fallbacks;
    const test::Result got = test::run(p);
    std::string d = test::difference(want, got);
    if (statistics().fallbacks != fallbacks) return "throws: a kernel does not compile";
    if (!d.empty() || !twice) return d;
    const test::Result again = test::run(p);  // from the plan cache, into reused memory
    d = test::difference(want, again);
    return d.empty() ? d : "the second time: " + d;
  } catch (const std::exception& e) {
    return std::string("throws: ") + e.what();
  }
}

/// Where two results differ in bits, but for sign and payload of a NaN; or nothing.
std::string bit_difference(const test::Result& want, const test::Result& got) {
  for (std::size_t i = 0; i < want.bytes.size(); ++i) {
    if (want.bytes[i].size() != got.bytes[i].size()) return "sizes differ";
    const std::string what = dispatch(want.dtypes[i], [&]<class T>() -> std::string {
      for (std::size_t at = 0; at < want.bytes[i].size(); at += sizeof(T)) {
        T x, y;
        std::memcpy(&x, want.bytes[i].data() + at, sizeof(T));
        std::memcpy(&y, got.bytes[i].data() + at, sizeof(T));
        if (std::memcmp(&x, &y, sizeof(T)) == 0 || (x != x && y != y)) continue;
        std::ostringstream out;
        out.precision(17);
        out << "value " << i << ", element " << at / sizeof(T) << ": " << static_cast<double>(x) << " and "
            << static_cast<double>(y);
        return out.str();
      }
      return {};
    });
    if (!what.empty()) return what;
  }
  return {};
}

std::string compare_strictly(const test::Program& p) {
  const Config before = config();
  std::string what;
  try {
    Config strict = before;
    strict.strict = true;
    configure(strict);
    test::Result want;
    {
      const ModeScope scope(Mode::Eager);
      want = test::run(p);
    }
    for (const Engine& e : testing::kEngines) {
      if (e.mode == Mode::Eager) continue;
      const EngineScope scope(e);
      const std::string d = bit_difference(want, test::run(p));
      if (!d.empty()) what = std::string(e.name) + ": " + d;
    }
  } catch (const std::exception& e) {
    what = std::string("throws: ") + e.what();
  }
  configure(before);
  return what;
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

using Draws = test::Program (*)(std::uint64_t seed);
test::Program drawn(std::uint64_t seed) {
  return number("KILN_TEST_FUZZ_LOOPS", 0) ? test::random_loops(seed) : test::random_program(seed);
}

/// Two programs of three are planned as if their arrays were too large for caches.
std::int64_t caches_of(std::uint64_t seed) {
  constexpr std::int64_t kBytes[] = {0, 64, 2048};
  return kBytes[seed % std::size(kBytes)];
}

/// The instruction set of a program's code: of every third program one that the host has, its own or a lower
/// one.
std::string target_of(std::uint64_t seed) {
  static const std::vector<std::string> all = testing::cpu_targets();
  return seed / 3 % 3 == 0 ? all[seed / 9 % all.size()] : config().cpu_target;
}

template <class Compare>
void check(std::uint64_t seed, const char* name, Compare compare, Draws draws, const std::string& target) {
  const testing::ConfigScope on(target, config().mode);
  const test::Program p = draws(seed);
  engine::set_cache_bytes(caches_of(seed));
  const std::string what = compare(p);
  if (what.empty()) return;
  const std::string cause = what.substr(0, 7);  // a thrown error shrinks to a thrown error
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const ModeScope scope(Mode::Interpret);
  const test::Program small = test::shrink(p, [&](const test::Program& q) {
    if (std::chrono::steady_clock::now() > limit) return false;
    const std::string now = compare(q);
    return !now.empty() && (now.substr(0, 7) == "throws:") == (cause == "throws:");
  });
  ADD_FAILURE() << "seed " << seed << ' ' << name << ", KILN_TEST_CACHES=" << caches_of(seed)
                << ", KILN_CPU=" << target << ": " << what << "\nsmallest: " << compare(small) << "\n"
                << test::to_cpp(small);
}

/// As where every kernel of several operations cannot be made.
std::string compare_one_by_one(const test::Program& p) {
  try {
    test::Result want;
    {
      const ModeScope scope(Mode::Interpret);
      want = test::run(p);
    }
    const EngineScope scope(testing::kEngines[2]);
    clear_memory_caches();
    engine::set_region_hook([](const ir::Graph&, const plan::Region& r) {
      if (r.nodes.size() > 1) throw InternalError("[internal] by a test");
    });
    const test::Result got = test::run(p);
    engine::set_region_hook(nullptr);
    clear_memory_caches();
    return test::difference(want, got);
  } catch (const std::exception& e) {
    engine::set_region_hook(nullptr);
    return std::string("throws: ") + e.what();
  }
}

/// Variants that the planner is told to take, of a schedule up to three: numbers by the program's seed.
std::uint64_t variant_state = 0;
std::uint64_t next_draw() {
  variant_state = variant_state * 6364136223846793005u + 1442695040888963407u;
  return variant_state >> 33;
}
std::vector<FusionVariant> drawn_variants(std::span<const FusionVariant> ways) {
  const std::uint64_t draw = next_draw();
  if (!ways.empty())
    return draw % 3 == 0 ? std::vector<FusionVariant>{} : std::vector{ways[draw / 3 % ways.size()]};
  std::vector<FusionVariant> out(1 + draw % 3);
  for (FusionVariant& v : out)
    v = static_cast<FusionVariant>(next_draw() % (static_cast<std::uint64_t>(FusionVariant::Joined) + 1));
  return out;
}

/// As adaptive mode might settle it, every other program by machine code.
std::string compare_variants(const test::Program& p) {
  const Config before = config();
  Config adaptive = before;
  adaptive.adapt = Adapt::Kept;
  configure(adaptive);
  engine::set_variant_hook(drawn_variants);
  engine::clear_plan_cache();
  variant_state = p.instructions.size();
  std::string what = compare(p, testing::kEngines[p.instructions.size() % 2 ? 2 : 0], false);
  if (what.empty()) {
    engine::clear_plan_cache();
    what = compare_strictly(p);
  }
  engine::set_variant_hook(nullptr);
  configure(before);
  engine::clear_plan_cache();
  return what;
}

/// With a budget that nothing keeps to, so that whatever may run again does.
std::string compare_without_memory(const test::Program& p) {
  Config options = config();
  options.memory_budget = 1;
  const ScopedConfig scope(options);
  return compare(p, testing::kEngines[2], true);
}

template <class Compare>
void fuzz(const char* name, std::uint64_t seed, std::uint64_t seconds, Compare compare, Draws draws = drawn) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::uint64_t programs = 0;
  const std::uint64_t verbose = number("KILN_TEST_FUZZ_VERBOSE", 0),
                      wanted = number("KILN_TEST_FUZZ_PROGRAMS", 0);
  const auto more = [&] { return wanted ? programs < wanted : std::chrono::steady_clock::now() < end; };
  const std::int64_t before = plan::reused_bytes.exchange(0);  // however small arguments are
  for (; more() && !::testing::Test::HasFatalFailure(); ++programs) {
    if (verbose) std::cerr << "seed " << seed + programs << "\n";
    check(seed + programs, name, compare, draws, target_of(seed + programs));
  }
  plan::reused_bytes = before;
  engine::set_cache_bytes(0);
  std::cout << programs << " programs\n";
}

void fuzz(const Engine& engine, std::uint64_t seed, std::uint64_t seconds) {
  fuzz(engine.name, seed, seconds, [&](const test::Program& p) { return compare(p, engine, true); });
}

/// The same program at other positions, as in the steps of a loop: its starts become arguments. Updates are
/// written in place however small they are.
std::string compare_positions(const test::Program& p) {
  const std::int64_t before = plan::donated_bytes.exchange(0);
  std::string what;
  for (int step = 0; step < 4 && what.empty(); ++step) {
    test::Program q = p;
    q.variant = step;
    what = compare(q, testing::kEngines[step == 3 ? 2 : 0], false);
    if (!what.empty()) what += " (variant " + std::to_string(step) + ")";
  }
  plan::donated_bytes = before;
  return what;
}

TEST(Fuzz, ProgramsWhosePositionsVary) {
  // a predicate of which a part differs between lanes, and another changes in the loop inside; the load is
  // placed outside the loop that asks for it
  check(895001323, "positions", compare_positions, test::random_program, "");
  // a tensor turned around, whose buffer begins at a start
  check(2918270012, "positions", compare_positions, test::random_program, "");
  fuzz("positions", number("KILN_TEST_FUZZ_SEED", 1) + 7000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 2,
       compare_positions);
}

TEST(Fuzz, FusedProgramsEqualTheInterpreter) {
  // whether any lane takes a part of a choice, asked in two loops of which neither is before the other
  for (const std::string& target : testing::cpu_targets())
    check(
        73000837, "lazy", [](const test::Program& p) { return compare(p, testing::kEngines[0], true); },
        test::random_program, target);
  fuzz(testing::kEngines[0], number("KILN_TEST_FUZZ_SEED", 1), number("KILN_TEST_FUZZ_SECONDS", 12));
}

TEST(Fuzz, ProgramsOfLargeArraysEqualTheInterpreter) {
  fuzz(
      "large", number("KILN_TEST_FUZZ_SEED", 1) + 13000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 2,
      [](const test::Program& p) { return compare(p, testing::kEngines[0], false); }, test::random_huge);
}

TEST(Fuzz, ProgramsRunOpByOpEqualTheInterpreter) {
  fuzz(testing::kEngines[1], number("KILN_TEST_FUZZ_SEED", 1) + 1000000,
       number("KILN_TEST_FUZZ_SECONDS", 12) / 2);
}

TEST(Fuzz, ProgramsRunByTheVmEqualTheInterpreter) {
  fuzz(testing::kEngines[2], number("KILN_TEST_FUZZ_SEED", 1) + 3000000,
       number("KILN_TEST_FUZZ_SECONDS", 12) / 2);
}

TEST(Fuzz, ProgramsWithoutMemoryEqualTheInterpreter) {
  fuzz("no memory", number("KILN_TEST_FUZZ_SEED", 1) + 9000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 4,
       compare_without_memory);
}

TEST(Fuzz, ProgramsPlannedOneByOneEqualTheInterpreter) {
  ::testing::internal::CaptureStderr();  // a warning a program
  fuzz("one by one", number("KILN_TEST_FUZZ_SEED", 1) + 7000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 4,
       compare_one_by_one);
  ::testing::internal::GetCapturedStderr();
}

TEST(Fuzz, ProgramsOfAnyVariantsEqualTheInterpreter) {
  fuzz("variants", number("KILN_TEST_FUZZ_SEED", 1) + 9000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 3,
       compare_variants);
}

/// Computes what one operation of two arrays of a shape does, with the same bits.
CustomKernel kernel_of(const char* name, CpuKernel cpu, const std::string& expression) {
  return custom_kernel(
      {.name = name,
       .results = [](const KernelTypes& in, KernelNumbers) { return KernelTypes{in[0]}; },
       .cpu = cpu,
       .cuda =
           {.source =
                "extern \"C\" __global__ void f(const float* x, const float* y, float* z, long long n) {\n"
                "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
                "  if (i < n) z[i] = " +
                expression + ";\n}\n",
            .function = "f",
            .launch = [](const KernelCall& call) { return CudaLaunch::each(call.in[0].numel()); }},
       .same_bits = true});
}

template <class F>
void each_element(const KernelCall& call, F f) {
  for (std::int64_t i = 0; i < call.out[0].numel(); ++i)
    call.out[0].as<float>()[i] = f(call.in[0].as<const float>()[i], call.in[1].as<const float>()[i]);
}

/// Of every third shape the operands do not fit: a near miss.
std::string fits(const fusion::Match& m) {
  if (m["x"].dtype != DType::Float32 || m["x"].shape != m["y"].shape) return "other types";
  return m["x"].shape.numel() % 3 == 0 ? "a third of all sizes" : "";
}

TEST(Fuzz, ProgramsWithKernelsAndPatternsOfTheirOwnEqualTheInterpreter) {
  namespace f = fusion;
  const f::ScopedPattern product(
      {.name = "product",
       .match = f::op("multiply", f::any("x"), f::any("y")),
       .legal = fits,
       .kernel = kernel_of(
           "product", [](const KernelCall& c) { each_element(c, [](float x, float y) { return x * y; }); },
           "x[i] * y[i]"),
       .operands = {"x", "y"}});
  const f::ScopedPattern difference(
      {.name = "difference",
       .match = f::op("add", f::op("negative", f::any("x")), f::any("y")),
       .legal = fits,
       .kernel = kernel_of(
           "difference",
           [](const KernelCall& c) { each_element(c, [](float x, float y) { return -x + y; }); },
           "-x[i] + y[i]"),
       .operands = {"x", "y"}});
  const f::ScopedPattern apart({.name = "apart", .match = f::op("exp", f::any("x")), .hint = f::Hint::Apart});
  const auto compare_any = [](const test::Program& p) {
    std::string what = compare(p, testing::kEngines[p.instructions.size() % 2 ? 2 : 0], true);
    return what.empty() && p.instructions.size() % 4 == 0 ? compare_strictly(p) : what;
  };
  const std::uint64_t before = statistics().library_calls;
  fuzz("customs", number("KILN_TEST_FUZZ_SEED", 1) + 11000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 2,
       compare_any, test::random_customs);
  EXPECT_GT(statistics().library_calls, before);
}

TEST(Fuzz, StrictProgramsHaveOneSetOfBits) {
  fuzz("strict", number("KILN_TEST_FUZZ_SEED", 1) + 5000000, number("KILN_TEST_FUZZ_SECONDS", 12) / 2,
       compare_strictly);
}

}  // namespace
}  // namespace kiln
