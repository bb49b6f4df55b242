// kiln bench --shapes: what it costs that kernels do not know their sizes. Programs over random shapes, each
// timed with the kernel that serves all of them and with one made for the shape.
#include "bench_shapes.h"

#include "checks.h"
#include "engine/plan.h"

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
    {"chain with broadcasts",
     [](const Tensor& x) { return exp(x * x(range(0, 1)) + 1.0) - x(slice::all(), range(0, 1)); }},
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
    engine::specialise_kernels(on);
    clear_memory_caches();
  }
};

}  // namespace

/// Random extents; every third shape is a slice whose rows begin anywhere.
void bench_shapes(const BenchDevice& device, int shapes) {
  const std::int64_t most_rows = device.name() == "cpu" ? 3000 : 6000,
                     most_columns = device.name() == "cpu" ? 4000 : 8000;
  // of one element: what takes less says more about recording and launching than about a kernel
  constexpr double kEvaluations = 2;
  std::printf(
      "%s\n\ntime with the kernel for all shapes over time with one for the shape\n%-24s %7s %8s %8s %8s  "
      "at\n",
      device.title().c_str(), "program", "shapes", "median", "90 %", "greatest");
  const Tensor memory = uniform({most_rows, most_columns + 7}, -2, 2, 1), one = uniform({1, 1}, -2, 2, 1);
  for (const ShapeProgram& program : kPrograms) {
    std::mt19937 random(7);
    const auto extent = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
    };
    struct Ratio {
      double value;
      std::string shape;
    };
    std::vector<Ratio> ratios;
    Program nothing;
    nothing.record = [&] { return std::vector{program.run(one)}; };
    const double evaluation = device.time(nothing).min;
    for (int i = 0; static_cast<int>(ratios.size()) < shapes; ++i) {
      const std::int64_t rows = extent(most_rows), skip = i % 3 ? 0 : extent(6);
      const std::int64_t columns = i % 2 ? extent(most_columns / 8) * 8 : extent(most_columns);
      const Tensor view = memory(range(0, rows), range(skip, skip + columns));
      const Tensor x = skip ? view : (view * 1.0).eval();  // memory of its own
      Program p;
      p.record = [&] { return std::vector{program.run(x)}; };
      const auto least = [&] {
        run(p);
        wait_for_compiles();
        return device.time(p).min;
      };
      double generic = least(), special = 1e300;
      if (generic < kEvaluations * evaluation) continue;
      for (int round = 0; round < 2; ++round) {
        {
          const Specialised scope;
          special = std::min(special, least());
        }
        generic = std::min(generic, least());
      }
      ratios.push_back({generic / special, x.shape().str() + (skip ? ", a slice" : "")});
    }
    std::sort(ratios.begin(), ratios.end(), [](const Ratio& a, const Ratio& b) { return a.value < b.value; });
    std::printf("%-24s %7d %8.2f %8.2f %8.2f  %s\n", program.name, shapes, ratios[ratios.size() / 2].value,
                ratios[ratios.size() * 9 / 10].value, ratios.back().value, ratios.back().shape.c_str());
    std::fflush(stdout);
  }
}

}  // namespace kiln::tool
