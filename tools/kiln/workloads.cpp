#include "workload.h"

#include "checks.h"

#include "device/cpu/threads.h"

#include <algorithm>
#include <cmath>
#include <mutex>

namespace kiln::tool {
namespace {

constexpr std::int64_t kMi = 1 << 20;

std::string size_name(std::int64_t n) {
  if (n >= kMi && n % kMi == 0) return std::to_string(n / kMi) + "M";
  if (n >= 4096 && n % 1024 == 0) return std::to_string(n / 1024) + "K";
  return std::to_string(n);
}

/// Iterations of z² + c from 0 until |z| > 2, at most 256, over the rectangle (-2 … 0.6) × (-1.2 … 1.2): each
/// pixel to its own end, in one kernel. The counts are exactly those of a plain loop in float32.
Workload mandelbrot() {
  constexpr std::int64_t kSide = 4096, kLimit = 256;
  constexpr double kMeanIterations = 67.4, kOperations = 10;  // a pixel; an iteration
  Workload w;
  w.name = "mandelbrot_f32_4096";
  w.floor = Workload::Floor::Flops;
  w.bytes = 4.0 * kSide * kSide;
  w.flops = kOperations * kMeanIterations * kSide * kSide;
  w.make = [](bool tiny) {
    const std::int64_t n = tiny ? 4 : kSide;
    Tensor re = linspace(-2.0, 0.6, n).reshape({1, n}), im = linspace(-1.2, 1.2, n).reshape({n, 1});
    eval({re, im});
    Program p;
    p.record = [=] {
      return std::vector{
          while_loop([](const Tensors& s) { return (s[0] * s[0] + s[1] * s[1] <= 4.0) & (s[2] < kLimit); },
                     [&](const Tensors& s) {
                       return Tensors{s[0] * s[0] - s[1] * s[1] + re, 2.0 * s[0] * s[1] + im, s[2] + 1};
                     },
                     {zeros({}), zeros({}), zeros({}, DType::Int32)})[2]};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float *x = re.data<float>(), *y = im.data<float>();
      const std::int32_t* counts = out[0].data<std::int32_t>();
      const std::int64_t step = std::max<std::int64_t>(1, n * n / 500000);
      return greatest(n * n / step, [=](std::int64_t i) {
        const std::int64_t at = i * step;
        float a = 0, b = 0;
        std::int32_t count = 0;
        for (; a * a + b * b <= 4 && count < kLimit; ++count) {
          const float next = a * a - b * b + x[at % n];
          b = 2 * a * b + y[at / n];
          a = next;
        }
        return std::abs(static_cast<double>(counts[at] - count));
      });
    };
    return p;
  };
  return w;
}

}  // namespace

Workload cumulative_sum() {
  Workload w;
  w.name = "cumsum_f32_64M";
  w.bytes = 2.0 * 4 * 64 * kMi;
  w.tolerance = 1e-4;
  w.make = [](bool tiny) {
    const std::int64_t n = tiny ? 16 : 64 * kMi;
    const Tensor x = uniform({n}, -1, 1, 11);
    Program p;
    p.record = [x] { return std::vector{cumsum(x)}; };
    p.max_error = [x, n](const std::vector<Tensor>& out) {
      const float *in = x.data<float>(), *got = out[0].data<float>();
      double total = 0, most = 1, worst = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        total += double{in[i]};
        most = std::max(most, std::abs(total));
        worst = std::max(worst, std::abs(double{got[i]} - total));
      }
      return worst / most;
    };
    return p;
  };
  return w;
}

Workload sum_of_columns() {
  constexpr std::int64_t kRows = 16384, kColumns = 4096;
  Workload w;
  w.name = "sum_columns_f32_16384x4096";
  w.floor = Workload::Floor::Read;
  w.bytes = 4.0 * kRows * kColumns;
  w.tolerance = 1e-5;
  w.make = [](bool tiny) {
    const std::int64_t rows = tiny ? 4 : kRows, columns = tiny ? 4 : kColumns;
    const Tensor x = uniform({rows, columns}, -1, 1, 18);
    Program p;
    p.record = [x] { return std::vector{sum(x * x, 0)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float* in = x.data<float>();
      return elementwise_error(out[0], [=](std::int64_t c) {
        double total = 0;
        for (std::int64_t r = 0; r < rows; ++r) total += double{in[r * columns + c]} * in[r * columns + c];
        return total;
      });
    };
    return p;
  };
  return w;
}

Workload transposed() {
  constexpr std::int64_t kSide = 8192;
  Workload w;
  w.name = "transpose_add_f32_8192";
  w.bytes = 2.0 * 4 * kSide * kSide;
  w.tolerance = 1e-6;
  w.make = [](bool tiny) {
    const std::int64_t n = tiny ? 4 : kSide;
    const Tensor x = uniform({n, n}, -1, 1, 19);
    Program p;
    p.record = [x] { return std::vector{x.T() + 1.0}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float* in = x.data<float>();
      return elementwise_error(out[0], [=](std::int64_t i) { return double{in[i % n * n + i / n]} + 1; });
    };
    return p;
  };
  return w;
}

Workload chain10(const std::string& name, std::int64_t n) {
  Workload w;
  w.name = name;
  w.bytes = 3.0 * 4 * static_cast<double>(n);
  w.tolerance = 1e-5;
  w.make = [n](bool tiny) {
    const std::int64_t size = tiny ? 16 : n;
    const Tensor a = uniform({size}, -2, 2, 1), b = uniform({size}, -2, 2, 2);
    Program p;
    p.record = [a, b] { return std::vector{tanh(a * b + 1) * sigmoid(a - b) + relu(a) * 0.5 - abs(b)}; };
    p.max_error = [a, b, size](const std::vector<Tensor>& out) {
      const float *x = a.data<float>(), *y = b.data<float>();
      return elementwise_error(out[0], [=](std::int64_t i) {
        const double s = x[i], t = y[i];
        return std::tanh(s * t + 1) / (1 + std::exp(t - s)) + std::max(s, 0.0) * 0.5 - std::abs(t);
      });
    };
    return p;
  };
  return w;
}

namespace {

Workload softmax(std::int64_t full_rows, std::int64_t full_columns) {
  Workload w;
  w.name = "softmax_f32_" + std::to_string(full_rows) + "x" + std::to_string(full_columns);
  w.bytes = 2.0 * 4 * static_cast<double>(full_rows * full_columns);
  w.tolerance = 1e-5;
  w.make = [=](bool tiny) {
    const std::int64_t rows = tiny ? 2 : full_rows, columns = tiny ? 16 : full_columns;
    const Tensor x = uniform({rows, columns}, -8, 8, 3);
    Program p;
    p.record = [x] {
      const Tensor top = max(x, -1, true);
      const Tensor e = exp(x - top);
      const Tensor total = sum(e, -1, true);
      return std::vector{e / total};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float* in = x.data<float>();
      return row_error(out[0], [=](std::int64_t r) {
        std::vector<double> row(in + r * columns, in + (r + 1) * columns);
        const double top = *std::max_element(row.begin(), row.end());
        double total = 0;
        for (double& v : row) total += v = std::exp(v - top);
        for (double& v : row) v /= total;
        return row;
      });
    };
    return p;
  };
  return w;
}

}  // namespace

Workload layernorm(std::int64_t full_rows, std::int64_t full_columns) {
  Workload w;
  w.name = "layernorm_f32_" + std::to_string(full_rows) + "x" + std::to_string(full_columns);
  w.bytes = 2.0 * 4 * static_cast<double>(full_rows * full_columns + full_columns);
  w.tolerance = 1e-5;
  w.make = [=](bool tiny) {
    const std::int64_t rows = tiny ? 2 : full_rows, columns = tiny ? 16 : full_columns;
    const Tensor x = uniform({rows, columns}, -2, 3, 4);
    const Tensor weight = uniform({columns}, 0.5, 1.5, 5), bias = uniform({columns}, -1, 1, 6);
    Program p;
    p.record = [=] {
      const Tensor center = mean(x, -1, true), spread = var(x, -1, true);
      return std::vector{(x - center) / sqrt(spread + 1e-5) * weight + bias};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float *in = x.data<float>(), *scale = weight.data<float>(), *shift = bias.data<float>();
      return row_error(out[0], [=](std::int64_t r) {
        std::vector<double> row(in + r * columns, in + (r + 1) * columns);
        double center = 0, spread = 0;
        for (const double v : row) center += v / static_cast<double>(columns);
        for (const double v : row) spread += (v - center) * (v - center) / static_cast<double>(columns);
        for (std::int64_t c = 0; c < columns; ++c) {
          double& v = row[static_cast<std::size_t>(c)];
          v = (v - center) / std::sqrt(spread + 1e-5) * scale[c] + shift[c];
        }
        return row;
      });
    };
    return p;
  };
  return w;
}

static Tensor normal_cdf(const Tensor& x) { return 0.5 * (erf(x * M_SQRT1_2) + 1); }

Workload black_scholes(std::int64_t full) {
  constexpr double kRate = 0.02, kVolatility = 0.3;
  Workload w;
  w.name = "black_scholes_f32_" + size_name(full);
  w.bytes = 5.0 * 4 * static_cast<double>(full);
  w.tolerance = 1e-4;  // prices are differences of numbers near 100
  w.make = [full](bool tiny) {
    const std::int64_t n = tiny ? 16 : full;
    const Tensor spot = uniform({n}, 50, 150, 7), strike = uniform({n}, 50, 150, 8),
                 years = uniform({n}, 0.1, 2, 9);
    Program p;
    p.record = [=] {
      const Tensor spread = kVolatility * sqrt(years);
      const Tensor d1 = (log(spot / strike) + (kRate + 0.5 * kVolatility * kVolatility) * years) / spread;
      const Tensor d2 = d1 - spread;
      const Tensor discounted = strike * exp(-kRate * years);
      const Tensor call = spot * normal_cdf(d1) - discounted * normal_cdf(d2);
      const Tensor put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1);
      return std::vector{call, put};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float *s = spot.data<float>(), *k = strike.data<float>(), *t = years.data<float>();
      const auto price = [=](std::int64_t i, double sign) {
        const double spread = kVolatility * std::sqrt(t[i]);
        const double d1 =
            (std::log(double{s[i]} / k[i]) + (kRate + 0.5 * kVolatility * kVolatility) * t[i]) / spread;
        const auto cdf = [](double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); };
        return sign * (s[i] * cdf(sign * d1) - k[i] * std::exp(-kRate * t[i]) * cdf(sign * (d1 - spread)));
      };
      return std::max(elementwise_error(out[0], [=](std::int64_t i) { return price(i, 1); }),
                      elementwise_error(out[1], [=](std::int64_t i) { return price(i, -1); }));
    };
    return p;
  };
  return w;
}

Workload sum_of_squares(const std::string& name, std::int64_t full) {
  Workload w;
  w.name = name;
  w.floor = Workload::Floor::Read;
  w.bytes = 4.0 * static_cast<double>(full);
  w.tolerance = 1e-5;
  w.make = [full](bool tiny) {
    const std::int64_t n = tiny ? 16 : full;
    const Tensor x = uniform({n}, -1, 1, 10);
    Program p;
    p.record = [x] { return std::vector{sum(x * x)}; };
    p.max_error = [x, n](const std::vector<Tensor>& out) {
      const float* in = x.data<float>();
      std::mutex mutex;
      double total = 0;
      cpu::parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end, int) {
        double mine = 0;
        for (std::int64_t i = begin; i < end; ++i) mine += double{in[i]} * in[i];
        const std::lock_guard lock(mutex);
        total += mine;
      });
      return std::abs(out[0].item<float>() - total) / total;
    };
    return p;
  };
  return w;
}

namespace {

Workload linear_gelu() {
  Workload w;
  w.name = "linear_gelu_f32_2048x1024x4096";
  w.floor = Workload::Floor::Flops;
  w.bytes = 4.0 * (2048.0 * 1024 + 1024.0 * 4096 + 4096 + 2048.0 * 4096);
  w.flops = 2.0 * 2048 * 1024 * 4096;
  w.tolerance = 1e-4;
  w.make = [](bool tiny) {
    const std::int64_t m = tiny ? 2 : 2048, k = tiny ? 4 : 1024, n = tiny ? 8 : 4096;
    const Tensor x = uniform({m, k}, -1, 1, 11), weight = uniform({k, n}, -0.1, 0.1, 12),
                 bias = uniform({n}, -1, 1, 13);
    Program p;
    p.record = [=] { return std::vector{gelu(matmul(x, weight) + bias)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float *a = x.data<float>(), *b = weight.data<float>(), *c = bias.data<float>(),
                  *got = out[0].data<float>();
      const std::int64_t samples = std::min<std::int64_t>(m * n, 4096);
      return greatest(samples, [=](std::int64_t s) {
        const std::int64_t at = s * (m * n / samples) + s % std::min<std::int64_t>(n, m * n / samples);
        const std::int64_t i = at / n, j = at % n;
        double dot = c[j];
        for (std::int64_t q = 0; q < k; ++q) dot += double{a[i * k + q]} * b[q * n + j];
        return std::abs(got[at] - 0.5 * dot * std::erfc(-dot * M_SQRT1_2)) / std::max(1.0, std::abs(dot));
      });
    };
    return p;
  };
  return w;
}

// ((x s + 1) / 2 - 1/4): numbers from the program, another one in every call.
Workload scalar_chain() {
  Workload w;
  w.name = "small_scalar_chain_f32_16";
  w.bytes = 2.0 * 4 * 16;
  w.tolerance = 1e-6;
  w.make = [](bool) {
    const Tensor x = uniform({16}, -1, 1, 14);
    const auto call = std::make_shared<int>(0);
    Program p;
    p.record = [=] {
      *call = (*call + 1) % 1000;
      return std::vector{(x * *call + 1) * 0.5 - 0.25};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const float* in = x.data<float>();
      return elementwise_error(out[0], [=](std::int64_t i) { return (in[i] * *call + 1.0) * 0.5 - 0.25; });
    };
    return p;
  };
  return w;
}

}  // namespace

Workload chain(int ops, std::int64_t n) {
  Workload w;
  w.name = "chain" + std::to_string(ops) + "_f32_" + size_name(n);
  w.bytes = 2.0 * 4 * static_cast<double>(n);
  w.tolerance = 1e-5;
  w.make = [ops, n](bool tiny) {
    const std::int64_t size = tiny ? 16 : n;
    const Tensor x = uniform({size}, -1, 1, 15);
    Program p;
    p.record = [x, ops] {
      Tensor y = x;
      for (int i = 0; i < ops; ++i) switch (i % 4) {
          case 0: y = y * 0.9; break;
          case 1: y = y + 0.3; break;
          case 2: y = abs(y); break;
          case 3: y = minimum(y, 0.8); break;
        }
      return std::vector{y};
    };
    p.max_error = [x, ops, size](const std::vector<Tensor>& out) {
      const float* in = x.data<float>();
      return elementwise_error(out[0], [=](std::int64_t at) {
        double y = in[at];
        for (int i = 0; i < ops; ++i) switch (i % 4) {
            case 0: y = y * 0.9; break;
            case 1: y = y + 0.3; break;
            case 2: y = std::abs(y); break;
            case 3: y = std::min(y, 0.8); break;
          }
        return y;
      });
    };
    return p;
  };
  return w;
}

std::vector<Workload> cpu_workloads() {
  std::vector<Workload> out = {chain10("chain10_f32_16M", 16 * kMi),
                               softmax(16384, 1024),
                               layernorm(16384, 1024),
                               black_scholes(8 * kMi),
                               sum_of_squares("sum_sq_f32_64M", 64 * kMi),
                               linear_gelu(),
                               mandelbrot(),
                               cumulative_sum(),
                               gather_row_sum(),
                               sum_of_columns(),
                               transposed(),
                               chain10("small_chain10_f32_1024", 1024),
                               scalar_chain()};
  for (Workload& w : image_workloads()) out.push_back(std::move(w));
  for (Workload& w : digits_workloads()) out.push_back(std::move(w));
  for (Workload& w : attention_workloads(false)) out.push_back(std::move(w));
  for (Workload& w : attention_gradient_workloads(false)) out.push_back(std::move(w));
  for (Workload& w : convolution_workloads()) out.push_back(std::move(w));
  for (const int ops : {2, 5, 20, 50}) out.push_back(chain(ops, 16 * kMi));
  out.push_back(chain(20, kMi));
  for (std::int64_t n = 16; n <= 64 * kMi; n *= 4)
    if (n != 16 * kMi) out.push_back(chain10("chain10_f32_" + size_name(n), n));
  return out;
}

}  // namespace kiln::tool
