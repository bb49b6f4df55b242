// Tokens against weights, a few at a time, whose time is that of reading the weights: four layers' weights,
// so that none is in a cache when it is read again.
#include "workload.h"

#include "checks.h"

#include <kiln/int4.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace kiln::tool {
namespace {

constexpr int kLayers = 4;
constexpr std::int64_t kInputs = 4096;
constexpr std::int64_t kGroup = 128;  // inputs that share a scale

/// What a layer makes of its tokens x.
enum class Made : std::uint8_t {
  Product,  // x Wᵀ
  Parts,    // three products of x: queries, and fewer keys and values
  Gated     // silu(x Gᵀ) (x Uᵀ)
};

/// How weights are kept.
enum class Kept : std::uint8_t {
  Halves,
  Bytes,   // with a scale for each output
  Nibbles  // two in a byte, with a scale for each output and 128 inputs
};

struct Decode {
  std::int64_t rows;
  Kept kept;
  bool by_rows;  // weights are (k, n); else (n, k), as nn::linear has them
  Made made = Made::Product;

  std::vector<std::int64_t> columns() const {
    switch (made) {
      case Made::Product: return {11008};
      case Made::Parts: return {4096, 1024, 1024};
      case Made::Gated: return {11008, 11008};
    }
    return {};
  }
};

/// Weights as a program keeps them, and their values.
struct Weights {
  Tensor stored, scale;
  bool packed = false;
  Tensor values(bool by_rows) const {
    if (!scale.valid()) return stored;
    if (packed) {
      const std::int64_t n = scale.shape()[0], groups = scale.shape()[1];
      return (astype(unpack_int4(stored), DType::BFloat16).reshape({n, groups, -1}) * scale).reshape({n, -1});
    }
    return astype(stored, DType::BFloat16) * (by_rows ? scale : reshape(scale, {scale.numel(), 1}));
  }
  Tensor product(const Tensor& x, bool by_rows) const {
    const Tensor v = values(by_rows);
    return matmul(x, by_rows ? v : matrix_transpose(v));
  }
};
typedef std::vector<Weights> Layer;

/// The layers' weights are the first one's, moved: drawing each would take the host seconds.
std::vector<Layer> layers(const Decode& d, std::int64_t k, bool tiny) {
  const double most = d.kept == Kept::Halves ? 0.03 : d.kept == Kept::Bytes ? 127 : 7.4;
  std::vector<Layer> out(kLayers);
  int seed = 62;
  for (const std::int64_t columns : d.columns()) {
    const std::int64_t n = tiny ? columns / 1024 : columns;
    Tensor first = uniform(d.by_rows ? Shape{k, n} : Shape{n, k}, -most, most, seed++, DType::BFloat16);
    Tensor scale;
    if (d.kept != Kept::Halves) first = astype(round(first), DType::Int8);
    if (d.kept == Kept::Bytes) scale = uniform({n}, 1e-4, 3e-4, seed++, DType::BFloat16);
    if (d.kept == Kept::Nibbles) {
      first = pack_int4(first);
      scale = uniform({n, std::max<std::int64_t>(1, k / kGroup), 1}, 2e-3, 6e-3, seed++, DType::BFloat16);
    }
    first.eval();
    for (int i = 0; i < kLayers; ++i)
      out[static_cast<std::size_t>(i)].push_back(
          {roll(first, i, {0}).eval(), scale, d.kept == Kept::Nibbles});
  }
  return out;
}

/// The greatest error of a layer's results.
double error(const Decode& d, const Layer& layer, const Tensor& x, std::span<const Tensor> out) {
  const std::int64_t k = x.shape()[1];
  const Values a(x);
  std::vector<Values> weights;
  for (const Weights& w : layer) weights.emplace_back(w.values(d.by_rows).eval());
  double worst = 0;
  for (std::size_t part = 0; part < out.size(); ++part) {
    const std::int64_t n = out[part].shape()[1];
    const Values got(out[part]);
    const auto product = [&](const Values& b, std::int64_t row, std::int64_t column) {
      double sum = 0;
      for (std::int64_t q = 0; q < k; ++q)
        sum += a[row * k + q] * b[d.by_rows ? q * n + column : column * k + q];
      return sum;
    };
    const std::int64_t samples = std::min<std::int64_t>(d.rows * n, 2048), step = d.rows * n / samples;
    worst = std::max(worst, greatest(samples, [&](std::int64_t s) {
                       const std::int64_t at = s * step + s % step, row = at / n, column = at % n;
                       double expected = product(weights[part], row, column);
                       if (d.made == Made::Gated)
                         expected *= product(weights[1], row, column) / (1 + std::exp(-expected));
                       return std::abs(got[at] - expected) / std::max(1.0, std::abs(expected));
                     }));
  }
  return worst;
}

Workload decode(const Decode& d) {
  Workload w;
  const std::string what[] = {"x4096x11008", "x4096_qkv", "x4096x11008_swiglu"};
  const std::string kept[] = {"bf16_", "int8_", "int4_"};
  w.name = "decode_" + kept[static_cast<int>(d.kept)] + std::to_string(d.rows) +
           what[static_cast<int>(d.made)] + (d.by_rows ? "_rows" : "");
  w.dtype = "bfloat16";
  const auto m = static_cast<double>(d.rows), k = static_cast<double>(kInputs);
  w.bytes = kLayers * 2 * m * k;
  for (const std::int64_t columns : d.columns()) {
    const auto n = static_cast<double>(columns);
    const double each[] = {2, 1, 0.5}, scales[] = {0, n, n * k / kGroup};
    const auto which = static_cast<std::size_t>(d.kept);
    w.bytes += kLayers * (each[which] * k * n + 2 * scales[which] + 2 * m * n);
  }
  if (d.made == Made::Gated) w.bytes -= kLayers * 2 * m * 11008;  // one result of two products
  w.tolerance = 2e-2;
  w.make = [d](bool tiny) {
    const std::int64_t k = tiny ? 16 : kInputs;
    const Tensor x = uniform({d.rows, k}, -1, 1, 61, DType::BFloat16);
    std::vector<Tensor> tokens;  // each layer has its own
    for (int i = 0; i < kLayers; ++i) tokens.push_back(roll(x, i, {1}).eval());
    const std::vector<Layer> all = layers(d, k, tiny);
    Program p;
    p.record = [=] {
      std::vector<Tensor> out;
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<Tensor> products;
        for (const Weights& weights : all[i]) products.push_back(weights.product(tokens[i], d.by_rows));
        if (d.made == Made::Gated)
          out.push_back(silu(products[0]) * products[1]);
        else
          out.insert(out.end(), products.begin(), products.end());
      }
      return out;
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      const std::size_t each = out.size() / all.size();
      double worst = 0;
      for (std::size_t i = 0; i < all.size(); ++i)
        worst = std::max(worst, error(d, all[i], tokens[i], std::span(out).subspan(i * each, each)));
      return worst;
    };
    return p;
  };
  return w;
}

}  // namespace

std::vector<Workload> decode_workloads() {
  std::vector<Workload> out;
  constexpr Kept kAll[] = {Kept::Halves, Kept::Bytes, Kept::Nibbles}, kWide[] = {Kept::Halves, Kept::Bytes};
  for (const Kept kept : kAll)
    for (const std::int64_t rows : {1, 16}) out.push_back(decode({rows, kept, false}));
  for (const Kept kept : kWide) out.push_back(decode({1, kept, true}));
  for (const Made made : {Made::Parts, Made::Gated})
    for (const Kept kept : kAll) out.push_back(decode({1, kept, false, made}));
  return out;
}

}  // namespace kiln::tool
