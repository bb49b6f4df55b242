// kiln bench --shapes: what it costs that kernels do not know their sizes. Programs over random shapes, each timed with the
// kernel that serves all of them and with one made for the shape.
#include "bench_shapes.h"

#include "checks.h"
#include "runtime/plan.h"

#include <kiln/nn.h>

#include <algorithm>
#include <cstdio>
#include <random>

namespace kiln::tool {
namespace {

struct ShapeProgram {
  const char* name;
  Tensor (*run)(const Tensor& x);
};
constexpr ShapeProgram kPrograms[] = {
    {"chain with broadcasts", [](const Tensor& x) { return exp(x * x(range(0, 1)) + 1.0) - x(all(), range(0, 1)); }},
    {"softmax of rows", [](const Tensor& x) { return nn::softmax(x); }},
    {"sums of columns", [](const Tensor& x) { return sum(x * x, 0); }},
    {"sums of rows", [](const Tensor& x) { return sum(x * x, 1); }},
};

struct Specialised {
  Specialised() { set(true); }
  ~Specialised() { set(false); }
  Specialised(const Specialised&) = delete;
  Specialised& operator=(const Specialised&) = delete;

 private:
  static void set(bool on) {
    runtime::specialise_kernels(on);
    clear_memory_caches();
  }
};

}  // namespace

void bench_shapes(const BenchDevice& device, int shapes) {
  constexpr std::int64_t kMostRows = 3000, kMostColumns = 4000;
  std::printf("%s\n\ntime with the kernel for all shapes over time with one for the shape\n%-24s %7s %8s %8s %8s  at\n",
              device.title().c_str(), "program", "shapes", "median", "90 %", "greatest");
  const Tensor memory = uniform({kMostRows, kMostColumns + 7}, -2, 2, 1);
  for (const ShapeProgram& program : kPrograms) {
    std::mt19937 random(7);
    const auto extent = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most)); };
    struct Ratio {
      double value;
      std::string shape;
    };
    std::vector<Ratio> ratios;
    for (int i = 0; i < shapes; ++i) {
      const std::int64_t rows = extent(kMostRows), skip = i % 3 ? 0 : extent(6);
      const std::int64_t columns = i % 2 ? extent(kMostColumns / 8) * 8 : extent(kMostColumns);
      const Tensor view = memory(range(0, rows), range(skip, skip + columns));
      const Tensor x = skip ? view : (view * 1.0).eval();  // memory of its own
      Program p;
      p.record = [&] { return std::vector{program.run(x)}; };
      const auto least = [&] {
        run(p);
        wait_for_compiles();
        return device.time(p).min;
      };
      double generic = 1e300, special = 1e300;
      for (int round = 0; round < 2; ++round) {
        generic = std::min(generic, least());
        const Specialised scope;
        special = std::min(special, least());
      }
      ratios.push_back({generic / special, x.shape().str() + (skip ? ", a slice" : "")});
    }
    std::sort(ratios.begin(), ratios.end(), [](const Ratio& a, const Ratio& b) { return a.value < b.value; });
    std::printf("%-24s %7d %8.2f %8.2f %8.2f  %s\n", program.name, shapes,
                ratios[ratios.size() / 2].value, ratios[ratios.size() * 9 / 10].value, ratios.back().value, ratios.back().shape.c_str());
    std::fflush(stdout);
  }
}

}  // namespace kiln::tool
