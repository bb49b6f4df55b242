// kiln_products [MICROSECONDS]: times products of two matrices of float32, for bench/peers/products.py. A
// line on stdin names products, three extents each (M N K); the answer is a line of microseconds, for each
// product the least mean of batches that take MICROSECONDS together.
#include <kiln/kiln.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

namespace {

using namespace kiln;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point t) {
  return std::chrono::duration<double, std::micro>(Clock::now() - t).count();
}

double microseconds(const Tensor& a, const Tensor& b, double all) {
  constexpr double kBatch = 100;
  double least = 1e30, once = 0;
  for (int i = 0; i < 2; ++i) {
    const auto t = Clock::now();
    matmul(a, b).eval();
    once = since(t);
  }
  const int batch = std::max(1, static_cast<int>(kBatch / once));
  const auto begin = Clock::now();
  for (int n = 0; n < 3 || since(begin) < all; ++n) {
    const auto t = Clock::now();
    for (int i = 0; i < batch; ++i) matmul(a, b).eval();
    least = std::min(least, since(t) / batch);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  const double all = argc > 1 ? std::atof(argv[1]) : 3000;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::pair<Tensor, Tensor>> operands;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    for (std::int64_t m, n, k; in >> m >> n >> k;) {
      auto& [a, b] = operands[{m, n, k}];
      if (!a.valid()) {
        a = random::normal(random::Key(1), {m, k}).eval();
        b = random::normal(random::Key(2), {k, n}).eval();
        matmul(a, b).eval();
        wait_for_compiles();
      }
      std::printf("%.3f ", microseconds(a, b, all));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
