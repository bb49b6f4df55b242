// Tokens against weights, a few at a time, whose time is that of reading the weights: four layers' weights,
// so that none is in a cache when it is read again.
#include "workload.h"

#include "checks.h"

#include <algorithm>
#include <cmath>

namespace kiln::tool {
namespace {

constexpr int kLayers = 4;

struct Decode {
  std::int64_t rows;
  bool bytes;    // weights of 8 bits, with a scale for each output
  bool by_rows;  // a layer is x W, W (k, n); else x Wᵀ, as nn::linear has it
};

/// Weights as a program keeps them, and their values.
struct Weights {
  Tensor stored, scale;
  Tensor values(bool by_rows) const {
    if (!scale.valid()) return stored;
    return astype(stored, DType::BFloat16) * (by_rows ? scale : reshape(scale, {scale.numel(), 1}));
  }
};

/// The layers' weights are the first one's, moved: drawing each would take the host seconds.
std::vector<Weights> weights(const Decode& d, std::int64_t k, std::int64_t n) {
  const double most = d.bytes ? 127 : 0.03;
  Tensor first = uniform(d.by_rows ? Shape{k, n} : Shape{n, k}, -most, most, 62, DType::BFloat16);
  if (d.bytes) first = astype(round(first), DType::Int8).eval();
  const Tensor scale = d.bytes ? uniform({n}, 1e-4, 3e-4, 63, DType::BFloat16) : Tensor();
  std::vector<Weights> out;
  for (int i = 0; i < kLayers; ++i) out.push_back({roll(first, i, {0}).eval(), scale});
  return out;
}

Workload decode(const Decode& d) {
  constexpr std::int64_t kK = 4096, kN = 11008;
  Workload w;
  w.name = std::string(d.bytes ? "decode_int8_" : "decode_bf16_") + std::to_string(d.rows) + "x4096x11008" +
           (d.by_rows ? "_rows" : "");
  w.dtype = "bfloat16";
  const auto m = static_cast<double>(d.rows);
  w.bytes = kLayers * ((d.bytes ? 1.0 : 2.0) * kK * kN + (d.bytes ? 2.0 * kN : 0.0) + 2 * m * (kK + kN));
  w.tolerance = 2e-2;
  w.make = [d](bool tiny) {
    const std::int64_t k = tiny ? 16 : kK, n = tiny ? 8 : kN;
    const Tensor x = uniform({d.rows, k}, -1, 1, 61, DType::BFloat16);
    const std::vector<Weights> layers = weights(d, k, n);
    Program p;
    p.record = [=] {
      std::vector<Tensor> out;
      for (const Weights& layer : layers) {
        const Tensor values = layer.values(d.by_rows);
        out.push_back(matmul(x, d.by_rows ? values : matrix_transpose(values)));
      }
      return out;
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      double worst = 0;
      const Values a(x);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const Tensor values = layers[i].values(d.by_rows).eval();
        const Values b(values), got(out[i]);
        const std::int64_t samples = std::min<std::int64_t>(d.rows * n, 4096), step = d.rows * n / samples;
        worst = std::max(worst, greatest(samples, [&](std::int64_t s) {
                           const std::int64_t at = s * step + s % step, row = at / n, column = at % n;
                           double expected = 0;
                           for (std::int64_t q = 0; q < k; ++q)
                             expected += a[row * k + q] * b[d.by_rows ? q * n + column : column * k + q];
                           return std::abs(got[at] - expected) / std::max(1.0, std::abs(expected));
                         }));
      }
      return worst;
    };
    return p;
  };
  return w;
}

}  // namespace

std::vector<Workload> decode_workloads() {
  std::vector<Workload> out;
  for (const bool bytes : {false, true})
    for (const std::int64_t rows : {1, 16}) out.push_back(decode({rows, bytes, false}));
  for (const bool bytes : {false, true}) out.push_back(decode({1, bytes, true}));
  return out;
}

}  // namespace kiln::tool
