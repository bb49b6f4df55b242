// A census of kernels: what every target and mode would run for random programs. Two builds that make the
// same kernels have the same census; tools/census.sh takes it.
#include "codegen/other_targets.h"
#include "engine/plan.h"
#include "math/expand.h"
#include "modes.h"
#include "program.h"
#include "support/check.h"
#include "transform/transform.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
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

/// Counts of kernels by place and key, with the first program that has one.
struct Census {
  std::mutex mutex;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> kernels;
  std::uint64_t seed = 0;

  void take(const ir::Graph& planned) {
    static const std::vector<Place> all = places();
    const std::lock_guard lock(mutex);
    EXPECT_NO_THROW(ir::verify(planned)) << "seed " << seed << "\n" << ir::print(planned);
    for (const Place& place : all) try {
        const bool other_sums = place.target.gpu && place.target.strict;
        const ir::Graph graph = other_sums ? transform::transform(planned, true).graph : planned;
        for (const kernel::Kernel& k : testing::kernels_of(graph, place.target)) {
          auto& entry = kernels[cat(place.name, ' ', kernel::hash(k).hex())];
          if (entry.first++ == 0) entry.second = seed;
        }
      } catch (const Error& e) {
        ADD_FAILURE() << "seed " << seed << ", " << place.name << ": " << e.what() << "\n"
                      << ir::print(planned);
      }
  }
};

Census* census = nullptr;

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// KILN_TEST_CENSUS: a file to write it to, sorted; without one a few programs are looked at.
/// KILN_TEST_FUZZ_PROGRAMS programs from KILN_TEST_FUZZ_SEED on.
TEST(Census, KernelsOfRandomPrograms) {
  const testing::ModeScope scope(Mode::Lazy, Tier::Vm);
  const char* const file = std::getenv("KILN_TEST_CENSUS");
  Census found;
  census = &found;
  engine::set_graph_hook([](const ir::Graph& graph) { census->take(graph); });
  const std::uint64_t first = number("KILN_TEST_FUZZ_SEED", 1),
                      programs = file ? number("KILN_TEST_FUZZ_PROGRAMS", 1000) : 20;
  for (std::uint64_t seed = first; seed < first + programs; ++seed) {
    found.seed = seed;
    clear_memory_caches();  // a program's kernels do not depend on the programs before
    try {
      test::run(seed % 4 ? test::random_program(seed) : test::random_loops(seed));
    } catch (const UserError&) {  // what the program throws is the fuzzer's concern
    }
  }
  engine::set_graph_hook(nullptr);
  std::map<std::string, std::uint64_t> distinct;
  for (const auto& [key, entry] : found.kernels) ++distinct[key.substr(0, key.rfind(' '))];
  for (const auto& [place, count] : distinct)
    std::printf("%s: %llu kernels\n", place.c_str(), static_cast<unsigned long long>(count));
  EXPECT_EQ(distinct.size(), places().size());
  if (!file) return;
  std::ofstream out(file);
  for (const auto& [key, entry] : found.kernels)
    out << key << ' ' << entry.first << ' ' << entry.second << '\n';
  EXPECT_TRUE(out.good());
}

}  // namespace
}  // namespace kiln
