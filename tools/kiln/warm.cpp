// The suite of `kiln cache warm`. A kernel's key has no sizes, only classes of them: a few shapes of each
// rank stand for all. What a program fuses beyond these chains is its own, and compiled when it runs.
#include "warm.h"

#include "inspect/compile_budget.h"
#include "progress.h"

#include <kiln/config.h>
#include <kiln/error.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>
#include <kiln/report.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace kiln::tool {
namespace {

using Build = std::function<std::vector<Tensor>()>;

/// A few elements, rows that caches hold, and more than caches hold.
constexpr std::int64_t kShapes[][2] = {{7, 33}, {256, 1024}, {16, 65536}, {4096, 1024}};

Tensor input(const Shape& shape, DType dtype) {
  return (full(shape, 0.5, DType::Float32) + 0.25).astype(dtype);
}

struct Suite {
  std::vector<std::pair<std::string, Build>> programs;
  void add(const std::string& part, Build build) { programs.emplace_back(part, std::move(build)); }
};

/// Evaluated before what reads it, so that it is memory.
Tensor stored(const Shape& shape, DType dtype) {
  Tensor t = input(shape, dtype);
  t.eval();
  return t;
}

template <class F>
void each_shape(F f) {
  for (const auto& s : kShapes) f(Shape{s[0], s[1]});
}

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

void add_elementwise(Suite& suite, DType dtype) {
  static const std::vector<Unary> unary = {
      [](const Tensor& x) { return exp(x); },  [](const Tensor& x) { return log(x); },
      [](const Tensor& x) { return sqrt(x); }, [](const Tensor& x) { return rsqrt(x); },
      [](const Tensor& x) { return tanh(x); }, [](const Tensor& x) { return sigmoid(x); },
      [](const Tensor& x) { return relu(x); }, [](const Tensor& x) { return gelu(x); },
      [](const Tensor& x) { return silu(x); }, [](const Tensor& x) { return abs(x); },
      [](const Tensor& x) { return -x; },      [](const Tensor& x) { return x * x; },
      [](const Tensor& x) { return sin(x); },  [](const Tensor& x) { return cos(x); },
      [](const Tensor& x) { return x + 1.0; }, [](const Tensor& x) { return x * 2.0; },
      [](const Tensor& x) { return erf(x); },  [](const Tensor& x) { return softplus(x); }};
  static const std::vector<Binary> binary = {
      [](const Tensor& x, const Tensor& y) { return x + y; },
      [](const Tensor& x, const Tensor& y) { return x - y; },
      [](const Tensor& x, const Tensor& y) { return x * y; },
      [](const Tensor& x, const Tensor& y) { return x / y; },
      [](const Tensor& x, const Tensor& y) { return maximum(x, y); },
      [](const Tensor& x, const Tensor& y) { return minimum(x, y); },
      [](const Tensor& x, const Tensor& y) { return where(x > y, x, y); },
      [](const Tensor& x, const Tensor& y) { return relu(x + y); }};
  each_shape([&](const Shape& shape) {
    for (const Unary f : unary)
      suite.add("elementwise", [=] { return std::vector{f(stored(shape, dtype))}; });
    const Shape row{shape[1]}, column{shape[0], 1};
    for (const Binary f : binary)
      for (const Shape& other : {shape, row, column})
        suite.add("elementwise", [=] { return std::vector{f(stored(shape, dtype), stored(other, dtype))}; });
  });
}

void add_reductions(Suite& suite, DType dtype) {
  static const std::vector<std::function<Tensor(const Tensor&, int)>> folds = {
      [](const Tensor& x, int axis) { return sum(x, axis); },
      [](const Tensor& x, int axis) { return mean(x, axis); },
      [](const Tensor& x, int axis) { return max(x, axis); },
      [](const Tensor& x, int axis) { return min(x, axis); },
      [](const Tensor& x, int axis) { return sum(x * x, axis); },
      [](const Tensor& x, int axis) { return argmax(x, axis); },
      [](const Tensor& x, int axis) { return cumsum(x, axis); }};
  each_shape([&](const Shape& shape) {
    for (const auto& f : folds)
      for (const int axis : {0, 1})
        suite.add("reductions", [=] { return std::vector{f(stored(shape, dtype), axis)}; });
    suite.add("reductions", [=] { return std::vector{sum(stored(shape, dtype))}; });
    suite.add("reductions", [=] { return std::vector{mean(stored(shape, dtype))}; });
    suite.add("reductions", [=] { return std::vector{max(stored(shape, dtype))}; });
  });
}

void add_norms(Suite& suite, DType dtype) {
  each_shape([&](const Shape& shape) {
    const Shape row{shape[1]};
    suite.add("norms", [=] { return std::vector{nn::softmax(stored(shape, dtype))}; });
    suite.add("norms", [=] { return std::vector{nn::log_softmax(stored(shape, dtype))}; });
    suite.add("norms", [=] {
      return std::vector{nn::layer_norm(stored(shape, dtype), stored(row, dtype), stored(row, dtype))};
    });
    suite.add("norms", [=] { return std::vector{nn::rms_norm(stored(shape, dtype), stored(row, dtype))}; });
    suite.add("norms", [=] {
      const Tensor x = stored(shape, dtype) + stored(shape, dtype);
      return std::vector{x, nn::rms_norm(x, stored(row, dtype))};
    });
  });
}

void add_products(Suite& suite, DType dtype) {
  static const std::vector<Unary> activations = {
      [](const Tensor& x) { return x; }, [](const Tensor& x) { return relu(x); },
      [](const Tensor& x) { return gelu(x); }, [](const Tensor& x) { return silu(x); }};
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{64}, std::int64_t{512}})
    for (const Unary f : activations)
      for (const bool bias : {false, true})
        suite.add("products", [=] {
          const Tensor product = matmul(stored({m, 256}, dtype), stored({256, 512}, dtype));
          return std::vector{f(bias ? product + stored({512}, dtype) : product)};
        });
}

void add_movement(Suite& suite, DType dtype) {
  each_shape([&](const Shape& shape) {
    suite.add("movement", [=] { return std::vector{stored(shape, dtype).T() + 0.0}; });
    suite.add("movement",
              [=] { return std::vector{concat({stored(shape, dtype), stored(shape, dtype)}, 0)}; });
    suite.add("movement",
              [=] { return std::vector{concat({stored(shape, dtype), stored(shape, dtype)}, 1)}; });
    suite.add("movement", [=] { return std::vector{stored(shape, dtype)(Slice(1, shape[0])) + 0.0}; });
    for (const DType to : {DType::Float32, DType::Float16, DType::BFloat16, DType::Int32})
      if (to != dtype) suite.add("movement", [=] { return std::vector{stored(shape, dtype).astype(to)}; });
  });
}

using Part = void (*)(Suite&, DType);
constexpr std::pair<const char*, Part> kParts[] = {{"elementwise", add_elementwise},
                                                   {"reductions", add_reductions},
                                                   {"norms", add_norms},
                                                   {"products", add_products},
                                                   {"movement", add_movement}};

Suite suite_of(const WarmOptions& o) {
  for (const std::string& part : o.only)
    if (std::ranges::find(warm_parts(), part) == warm_parts().end()) {
      std::string names;
      for (const std::string& name : warm_parts()) names += " " + name;
      throw UserError("[cache] warm " + part + ": there are" + names);
    }
  Suite suite;
  for (const std::string& word : o.dtypes) {
    const std::optional<DType> dtype = dtype_from_name(word);
    if (!dtype || !is_float(*dtype))
      throw UserError("[cache] --dtypes " + word + ": a float dtype, as float32");
    for (const auto& [name, add] : kParts)
      if (o.only.empty() || std::ranges::find(o.only, name) != o.only.end()) add(suite, *dtype);
  }
  return suite;
}

}  // namespace

const std::vector<std::string>& warm_parts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const auto& [name, add] : kParts) out.emplace_back(name);
    return out;
  }();
  return names;
}

Warmed warm(const WarmOptions& o) {
  Config c = config();
  if (c.cache != "rw") throw UserError("[cache] nothing can be kept: KILN_CACHE=" + c.cache);
  c.tier = Tier::Jit;  // wait for each kernel
  const ScopedConfig scope(c);
  engine::mute_compile_budget(true);  // compiles are what this line is for
  const Suite suite = suite_of(o);
  const Progress progress(suite.programs.size());
  const Statistics before = statistics();
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < suite.programs.size(); i = next++) {
      try {
        std::vector<Tensor> results = suite.programs[i].second();
        eval(results);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        return;
      }
      const std::lock_guard lock(mutex);
      progress.at(i + 1, suite.programs[i].first);
    }
  };
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (unsigned t = o.threads > 0 ? static_cast<unsigned>(o.threads) : cores; t > 0; --t)
    threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  wait_for_compiles();
  const Statistics after = statistics();
  return {suite.programs.size(), after.kernels_compiled - before.kernels_compiled,
          after.kernels_from_disk - before.kernels_from_disk,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace kiln::tool
