// What the bench runs on a GPU: what a transformer's layers are made of, in bfloat16 with float32 inside, an
// optimiser's step over all parameters of a model, and programs so small that only their launches count.
#include "workload.h"

#include "checks.h"

#include <algorithm>
#include <cmath>

namespace kiln::tool {
namespace {

constexpr std::int64_t kMi = 1 << 20;
constexpr double kEpsilon = 1e-5;

Tensor f32(const Tensor& x) { return astype(x, DType::Float32); }
Tensor bf16(const Tensor& x) { return astype(x, DType::BFloat16); }

Tensor uniform_bf16(const Shape& shape, double low, double high, std::uint32_t seed) {
  return uniform(shape, low, high, seed, DType::BFloat16);
}

Workload softmax_bf16() {
  Workload w;
  w.name = "softmax_bf16_16384x4096";
  w.dtype = "bfloat16";
  w.bytes = 2.0 * 2 * 16384 * 4096;
  w.tolerance = 5e-3;
  w.make = [](bool tiny) {
    const std::int64_t rows = tiny ? 2 : 16384, columns = tiny ? 16 : 4096;
    const Tensor x = uniform_bf16({rows, columns}, -8, 8, 21);
    Program p;
    p.record = [x] {
      const Tensor wide = f32(x);
      const Tensor e = exp(wide - max(wide, -1, true));
      return std::vector{bf16(e / sum(e, -1, true))};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values in(x);
      return row_error(out[0], [&](std::int64_t r) {
        std::vector<double> row;
        for (std::int64_t c = 0; c < columns; ++c) row.push_back(in[r * columns + c]);
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

// h = x + residual, and h / rms(h) * weight.
Workload rmsnorm_residual() {
  Workload w;
  w.name = "rmsnorm_residual_bf16_16384x4096";
  w.dtype = "bfloat16";
  w.bytes = 4.0 * 2 * 16384 * 4096 + 2.0 * 4096;
  w.tolerance = 1e-2;
  w.make = [](bool tiny) {
    const std::int64_t rows = tiny ? 2 : 16384, columns = tiny ? 16 : 4096;
    const Tensor x = uniform_bf16({rows, columns}, -2, 2, 22),
                 residual = uniform_bf16({rows, columns}, -2, 2, 23);
    const Tensor weight = uniform_bf16({columns}, 0.5, 1.5, 24);
    Program p;
    p.record = [=] {
      const Tensor h = f32(x) + f32(residual);
      const Tensor scale = rsqrt(mean(h * h, -1, true) + kEpsilon);
      return std::vector{bf16(h), bf16(h * scale * f32(weight))};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values a(x), b(residual), c(weight);
      const auto row_sum = [&](std::int64_t r) {
        std::vector<double> row;
        for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) row.push_back(a[i] + b[i]);
        return row;
      };
      const auto normalised = [&](std::int64_t r) {
        std::vector<double> row = row_sum(r);
        double total = 0;
        for (const double v : row) total += v * v / static_cast<double>(columns);
        for (std::int64_t i = 0; i < columns; ++i)
          row[static_cast<std::size_t>(i)] *= c[i] / std::sqrt(total + kEpsilon);
        return row;
      };
      return std::max(row_error(out[0], row_sum), row_error(out[1], normalised));
    };
    return p;
  };
  return w;
}

/// Greatest error over 4,096 elements of a matrix (rows, columns), relative to max(1, |expected|).
double matrix_error(const Tensor& got,
                    const std::function<double(std::int64_t row, std::int64_t column)>& expected) {
  const Values values(got);
  const std::int64_t n = got.numel(), columns = got.dim(-1), samples = std::min<std::int64_t>(n, 4096),
                     step = n / samples;
  return greatest(samples, [&](std::int64_t s) {
    const std::int64_t at = s * step + s % step;
    const double e = expected(at / columns, at % columns);
    return std::abs(values[at] - e) / std::max(1.0, std::abs(e));
  });
}

/// Element (row, column) of a (m, k) times b (k, n).
double dot(const Values& a, const Values& b, std::int64_t k, std::int64_t n, std::int64_t row,
           std::int64_t column) {
  double total = 0;
  for (std::int64_t q = 0; q < k; ++q) total += a[row * k + q] * b[q * n + column];
  return total;
}

Workload linear_gelu_bf16() {
  Workload w;
  w.name = "linear_gelu_bf16_8192x4096x4096";
  w.dtype = "bfloat16";
  w.floor = Workload::Floor::Flops;
  w.bytes = 2.0 * (8192.0 * 4096 + 4096.0 * 4096 + 4096 + 8192.0 * 4096);
  w.flops = 2.0 * 8192 * 4096 * 4096;
  w.tolerance = 2e-2;
  w.make = [](bool tiny) {
    const std::int64_t m = tiny ? 2 : 8192, k = tiny ? 16 : 4096, n = tiny ? 8 : 4096;
    const Tensor x = uniform_bf16({m, k}, -1, 1, 25), weight = uniform_bf16({k, n}, -0.03, 0.03, 26),
                 bias = uniform_bf16({n}, -1, 1, 27);
    Program p;
    p.record = [=] { return std::vector{gelu(matmul(x, weight) + bias)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values a(x), b(weight), c(bias);
      return matrix_error(out[0], [&](std::int64_t i, std::int64_t j) {
        const double v = dot(a, b, k, n, i, j) + c[j];
        return 0.5 * v * std::erfc(-v * M_SQRT1_2);
      });
    };
    return p;
  };
  return w;
}

// silu(x G) (x U)
Workload swiglu() {
  Workload w;
  w.name = "swiglu_bf16_8192x4096x11008";
  w.dtype = "bfloat16";
  w.floor = Workload::Floor::Flops;
  w.bytes = 2.0 * (8192.0 * 4096 + 2 * 4096.0 * 11008 + 8192.0 * 11008);
  w.flops = 2.0 * 2 * 8192 * 4096 * 11008;
  w.tolerance = 3e-2;
  w.make = [](bool tiny) {
    const std::int64_t m = tiny ? 2 : 8192, k = tiny ? 16 : 4096, n = tiny ? 8 : 11008;
    const Tensor x = uniform_bf16({m, k}, -1, 1, 28), gate = uniform_bf16({k, n}, -0.05, 0.05, 29),
                 up = uniform_bf16({k, n}, -0.05, 0.05, 30);
    Program p;
    p.record = [=] { return std::vector{silu(matmul(x, gate)) * matmul(x, up)}; };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values a(x), b(gate), c(up);
      return matrix_error(out[0], [&](std::int64_t i, std::int64_t j) {
        const double v = dot(a, b, k, n, i, j);
        return v / (1 + std::exp(-v)) * dot(a, c, k, n, i, j);
      });
    };
    return p;
  };
  return w;
}

/// The parameters of GPT-2 small: two embeddings, twelve blocks of twelve, a last normalisation.
std::vector<Shape> gpt2_small() {
  std::vector<Shape> shapes = {{50257, 768}, {1024, 768}};
  for (int block = 0; block < 12; ++block)
    for (const Shape& s :
         {Shape{768}, Shape{768}, Shape{768, 2304}, Shape{2304}, Shape{768, 768}, Shape{768}, Shape{768},
          Shape{768}, Shape{768, 3072}, Shape{3072}, Shape{3072, 768}, Shape{768}})
      shapes.push_back(s);
  shapes.push_back({768});
  shapes.push_back({768});
  return shapes;
}

// One step of AdamW over all of them: parameter, gradient and two moments in; parameter and moments out.
Workload adamw() {
  constexpr double kRate = 1e-3, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999, kSmall = 1e-8;
  static const double kBias1 = 1 - std::pow(kBeta1, 10), kBias2 = 1 - std::pow(kBeta2, 10);  // the tenth step
  Workload w;
  w.name = "adamw_148tensors_124M_f32";
  for (const Shape& s : gpt2_small()) w.bytes += 7.0 * 4 * static_cast<double>(s.numel());
  w.tolerance = 1e-7;  // second moments are near 1e-4
  w.make = [](bool tiny) {
    struct Parameter {
      Tensor value, gradient, mean, square;
    };
    std::vector<Parameter> parameters;
    std::uint32_t seed = 100;
    for (const Shape& full : gpt2_small()) {
      const Shape s = tiny ? Shape{4} : full;
      parameters.push_back({uniform(s, -0.1, 0.1, seed), uniform(s, -0.02, 0.02, seed + 1),
                            uniform(s, -0.01, 0.01, seed + 2), uniform(s, 0, 1e-4, seed + 3)});
      seed += 4;
    }
    Program p;
    p.record = [parameters] {
      std::vector<Tensor> out;
      for (const Parameter& q : parameters) {
        const Tensor mean = kBeta1 * q.mean + (1 - kBeta1) * q.gradient;
        const Tensor square = kBeta2 * q.square + (1 - kBeta2) * (q.gradient * q.gradient);
        const Tensor step = (mean / kBias1) / (sqrt(square / kBias2) + kSmall);
        out.push_back(q.value * (1 - kRate * kDecay) - kRate * step);
        out.push_back(mean);
        out.push_back(square);
      }
      return out;
    };
    p.max_error = [parameters](const std::vector<Tensor>& out) {
      double worst = 0;
      // Reading all would take longer than anything else here: the first block's, and both ends.
      for (const std::size_t i : {0, 1, 2, 3, 4, 5, 10, 12, 146, 147}) {
        const Values value(parameters[i].value), gradient(parameters[i].gradient), mean(parameters[i].mean),
            square(parameters[i].square);
        const auto mean_of = [&](std::int64_t k) { return kBeta1 * mean[k] + (1 - kBeta1) * gradient[k]; };
        const auto square_of = [&](std::int64_t k) {
          return kBeta2 * square[k] + (1 - kBeta2) * gradient[k] * gradient[k];
        };
        const auto value_of = [&](std::int64_t k) {
          const double step = mean_of(k) / kBias1 / (std::sqrt(square_of(k) / kBias2) + kSmall);
          return value[k] * (1 - kRate * kDecay) - kRate * step;
        };
        worst = std::max({worst, elementwise_error(out[3 * i], value_of),
                          elementwise_error(out[3 * i + 1], mean_of),
                          elementwise_error(out[3 * i + 2], square_of)});
      }
      return worst;
    };
    return p;
  };
  return w;
}

// Four layers of 256, relu between them.
Workload small_mlp4() {
  constexpr int kLayers = 4;
  constexpr std::int64_t kRows = 64, kWidth = 256;
  Workload w;
  w.name = "small_mlp4_bf16_64x256";
  w.dtype = "bfloat16";
  w.bytes = 2.0 * (2 * kRows * kWidth + kLayers * (kWidth * kWidth + kWidth));
  w.tolerance = 3e-2;
  w.make = [](bool) {
    const Tensor x = uniform_bf16({kRows, kWidth}, -1, 1, 31);
    std::vector<Tensor> weight, bias;
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      weight.push_back(uniform_bf16({kWidth, kWidth}, -0.1, 0.1, 32 + 2 * i));
      bias.push_back(uniform_bf16({kWidth}, -0.1, 0.1, 33 + 2 * i));
    }
    Program p;
    p.record = [=] {
      Tensor h = x;
      for (std::size_t i = 0; i < kLayers; ++i) {
        h = matmul(h, weight[i]) + bias[i];
        if (i + 1 < kLayers) h = relu(h);
      }
      return std::vector{h};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const Values in(x);
      const std::vector<Values> scales(weight.begin(), weight.end()), shifts(bias.begin(), bias.end());
      return row_error(out[0], [&](std::int64_t r) {
        std::vector<double> value;
        for (std::int64_t c = 0; c < kWidth; ++c) value.push_back(in[r * kWidth + c]);
        for (std::size_t i = 0; i < kLayers; ++i) {
          const Values &scale = scales[i], &shift = shifts[i];
          std::vector<double> next;
          for (std::int64_t o = 0; o < kWidth; ++o) {
            double total = shift[o];
            for (std::int64_t q = 0; q < kWidth; ++q)
              total += value[static_cast<std::size_t>(q)] * scale[q * kWidth + o];
            next.push_back(i + 1 < kLayers ? std::max(total, 0.0) : total);
          }
          value = next;
        }
        return value;
      });
    };
    return p;
  };
  return w;
}

}  // namespace

std::vector<Workload> gpu_workloads() {
  std::vector<Workload> out = {chain10("chain10_f32_64M", 64 * kMi),
                               softmax_bf16(),
                               rmsnorm_residual(),
                               layernorm(32768, 2048),
                               sum_of_squares("sum_all_f32_256M", 256 * kMi),
                               sum_of_columns(),
                               transposed(),
                               cumulative_sum(),
                               gather_row_sum(),
                               scatter_add_rows(),
                               sorted(),
                               black_scholes(32 * kMi),
                               linear_gelu_bf16(),
                               swiglu(),
                               adamw(),
                               chain10("small_chain10_f32_1024", 1024),
                               small_mlp4()};
  for (Workload& w : layer_workloads()) out.push_back(std::move(w));
  for (Workload& w : decode_workloads()) out.push_back(std::move(w));
  for (Workload& w : attention_workloads(true)) out.push_back(std::move(w));
  for (Workload& w : attention_gradient_workloads(true)) out.push_back(std::move(w));
  for (const int ops : {2, 5, 20, 50}) out.push_back(chain(ops, 16 * kMi));
  for (const std::int64_t n : {kMi, 16 * kMi})
    out.push_back(chain10("chain10_f32_" + std::to_string(n / kMi) + "M", n));
  return out;
}

}  // namespace kiln::tool
