// kiln_planning [NAME...]: what the host does for one training step with AdamW of a deep network: recording
// and planning of the first step, recording and look-up of the steps after it. NAME: mlp (300 layers),
// residual (300 blocks with a layer norm), transformer (48 blocks); none: all of them. Each is stepped at
// several widths: from the second one on kernels are there. Prints a JSON object a width: milliseconds of the
// first step, of it planning and compiling, milliseconds of a later step, and allocations of the host.
#include "models.h"

#include <kiln/kiln.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace kiln;
using Clock = std::chrono::steady_clock;

std::atomic<std::uint64_t> allocations{0};

/// Layers of width × width with a bias and a relu.
struct Deep {
  std::vector<nn::Linear> layers;
  KILN_FIELDS(layers)
  static Deep init(random::Key key, std::size_t depth, std::int64_t width) {
    Deep m;
    for (const random::Key& k : random::split(key, depth))
      m.layers.push_back(nn::Linear::init(k, width, width));
    return m;
  }
  Tensor operator()(const Tensor& x) const {
    Tensor h = x;
    for (const nn::Linear& layer : layers) h = relu(layer(h));
    return h;
  }
};

/// Blocks of x + linear(gelu(linear(norm(x)))).
struct Residual {
  struct Block {
    nn::LayerNorm norm;
    nn::Linear up, down;
    KILN_FIELDS(norm, up, down)
  };
  std::vector<Block> blocks;
  KILN_FIELDS(blocks)
  static Residual init(random::Key key, std::size_t depth, std::int64_t width) {
    const auto keys = random::split(key, 2 * depth);
    Residual m;
    for (std::size_t i = 0; i < depth; ++i)
      m.blocks.push_back({nn::LayerNorm::init(width), nn::Linear::init(keys[2 * i], width, width),
                          nn::Linear::init(keys[2 * i + 1], width, width)});
    return m;
  }
  Tensor operator()(const Tensor& x) const {
    Tensor h = x;
    for (const Block& b : blocks) h = h + b.down(gelu(b.up(b.norm(h))));
    return h;
  }
};

double since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

/// Steps of one model: the first one, and the fastest of those after it.
void measure(const char* name, std::int64_t width, const std::function<Tensor()>& step) {
  const Statistics before = statistics();
  const auto begin = Clock::now();
  step();
  const double first = since(begin);
  const Statistics after = statistics();
  double least = 1e9;
  std::uint64_t allocated = 0;
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t start = allocations;
    const auto t = Clock::now();
    step();
    least = std::min(least, since(t));
    allocated = allocations - start;
  }
  const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) * 1e-6; };
  std::printf(
      "{\"name\": \"%s\", \"width\": %lld, \"first_ms\": %.1f, \"plan_ms\": %.1f, \"compile_ms\": %.1f, "
      "\"kernels_compiled\": %llu, \"plans\": %llu, \"later_ms\": %.2f, \"allocations\": %llu}\n",
      name, static_cast<long long>(width), first, ms(after.plan_ns - before.plan_ns),
      ms(after.compile_ns - before.compile_ns),
      static_cast<unsigned long long>(after.kernels_compiled - before.kernels_compiled),
      static_cast<unsigned long long>(after.plan_misses - before.plan_misses), least,
      static_cast<unsigned long long>(allocated));
  std::fflush(stdout);
}

template <class Model>
std::function<Tensor()> steps(Model model, Tensor x, Tensor y) {
  auto t = std::make_shared<bench::Training<Model>>(std::move(model), std::move(x), std::move(y),
                                                    DType::Float32, false);
  return [t] { return t->step(); };
}

bool run(const std::string& name) {
  const auto k = random::split<3>(random::Key(1));
  for (const std::int64_t width : {32, 48, 80}) {
    const std::int64_t rows = 16;
    const Tensor x = random::normal(k[0], {rows, width}), y = random::randint(k[1], {rows}, 0, 10);
    if (name == "mlp") {
      measure("mlp", width, steps(Deep::init(k[2], 300, width), x, y));
    } else if (name == "residual") {
      measure("residual", width, steps(Residual::init(k[2], 300, width), x, y));
    } else if (name == "transformer") {
      const Tensor text = random::randint(k[0], {4, width + 1}, 0, 96);
      measure("transformer", width,
              steps(bench::Transformer::init(k[2], 48, 64, static_cast<int>(width), 96),
                    text(all(), range(none, -1)), text(all(), range(1, none))));
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* const p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) names = {"mlp", "residual", "transformer"};
  for (const std::string& name : names)
    if (!run(name)) return std::fprintf(stderr, "no network %s\n", name.c_str()), 1;
  return 0;
}
