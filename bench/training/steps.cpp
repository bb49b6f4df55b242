// kiln_training NAME[-recorded] [SECONDS]: times training steps, of a function that is recorded once or, with
// "-recorded", each time. One round for each line on stdin (bench/peers/training.py takes turns with other
// frameworks this way), or five rounds where stdin is a terminal. Prints a JSON object a round: median
// microseconds of a step, and what a step launched, planned and allocated.
#include "models.h"

#include <kiln/gpu.h>
#include <kiln/kiln.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace kiln;
using Step = std::function<Tensor()>;

template <class Model>
Step training(bool keep, Model model, Tensor x, Tensor y, DType compute = DType::Float32) {
  auto t =
      std::make_shared<bench::Training<Model>>(std::move(model), std::move(x), std::move(y), compute, keep);
  return [t] { return t->step(); };
}

/// AdamW alone, on the 148 tensors of a GPT-2 of 12 layers with given gradients.
Step adamw(std::int64_t width, std::int64_t characters) {
  using Tensors = std::vector<Tensor>;
  std::vector<Shape> shapes = {{characters, width}, {1024, width}};
  for (int layer = 0; layer < 12; ++layer)
    for (const Shape& s : std::vector<Shape>{{width},
                                             {width},
                                             {3 * width, width},
                                             {3 * width},
                                             {width, width},
                                             {width},
                                             {width},
                                             {width},
                                             {4 * width, width},
                                             {4 * width},
                                             {width, 4 * width},
                                             {width}})
      shapes.push_back(s);
  shapes.insert(shapes.end(), {{width}, {width}});
  const auto drawn = [&](std::uint64_t seed) {
    Tensors out;
    for (const Shape& s : shapes)
      out.push_back(random::normal(random::fold_in(random::Key(seed), out.size()), s));
    return out;
  };
  struct Model {
    Tensors params, gradients;
    optim::AdamState<Tensors> state;
  };
  const auto m = std::make_shared<Model>(Model{drawn(1), drawn(2), {}});
  m->state = optim::adam_state(m->params);
  tree_eval(m->params, m->gradients, m->state);
  return [m] {
    optim::adamw(m->params, m->gradients, m->state, {.rate = 1e-3});
    tree_eval(m->params, m->state);
    return m->params.back()(0);
  };
}

Step make(std::string name) {
  constexpr std::string_view kRecorded = "-recorded";
  const bool keep = !name.ends_with(kRecorded);
  if (!keep) name.resize(name.size() - kRecorded.size());
  if (name == "adamw") return adamw(768, 50257);
  if (name == "adamw-small") return adamw(64, 96);
  const auto k = random::split<3>(random::Key(1));
  const Tensor images = random::normal(k[0], {64, 64}), labels = random::randint(k[1], {64}, 0, 10);
  if (name == "mlp") return training(keep, bench::Mlp::init(k[2]), images, labels);
  if (name == "conv") return training(keep, bench::ConvNet::init(k[2]), images, labels);
  const bool small = name == "transformer-small";  // the same for a CPU
  if (!small && name != "transformer") return {};
  const int batch = small ? 8 : 32, context = small ? 64 : 256, layers = small ? 2 : 6,
            width = small ? 128 : 384;
  const Tensor text = random::randint(k[0], {batch, context + 1}, 0, 96);
  return training(keep, bench::Transformer::init(k[2], layers, width, context, 96),
                  text(all(), range(none, -1)), text(all(), range(1, none)),
                  small ? DType::Float32 : DType::BFloat16);
}

double round_of(const Step& step, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  };
  std::vector<double> times;
  float loss = 0;
  const auto begin = Clock::now();
  for (int burst = 10; since(begin) < seconds || times.size() < 3;) {
    const auto t = Clock::now();
    Tensor last;
    for (int i = 0; i < burst; ++i) last = step();
    last.copy_to(&loss, DType::Float32);  // waits for a GPU
    times.push_back(since(t) / burst * 1e6);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  Config options = config();
  // as the peers do, unless asked otherwise: thousands of steps on one batch make such numbers
  if (!std::getenv("KILN_FLUSH_SUBNORMALS")) options.flush_subnormals = true;
  configure(options);
  const std::string name = argc > 1 ? argv[1] : "mlp";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  const Step step = make(name);
  if (!step) return std::fprintf(stderr, "no workload %s\n", name.c_str()), 1;
  for (int i = 0; i < 10; ++i) step();
  wait_for_compiles();
  round_of(step, 0);
  constexpr int kCounted = 10;
  const Statistics before = statistics();
  for (int i = 0; i < kCounted; ++i) step();
  const Statistics after = statistics();
  std::string line;
  const bool asked = isatty(STDIN_FILENO) == 0;
  for (int round = 0; asked ? static_cast<bool>(std::getline(std::cin, line)) : round < 5; ++round) {
    std::printf("{\"us\": %.2f, \"kernels\": %.1f, \"library\": %.1f, \"plans\": %llu, \"held\": %llu}\n",
                round_of(step, seconds), static_cast<double>(after.launches - before.launches) / kCounted,
                static_cast<double>(after.library_calls - before.library_calls) / kCounted,
                static_cast<unsigned long long>(after.plan_misses - before.plan_misses),
                static_cast<unsigned long long>(memory_use(zeros({}).device()).held));
    std::fflush(stdout);
  }
  return 0;
}
