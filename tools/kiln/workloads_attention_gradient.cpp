// Attention with its gradients by q, k and v, as a training step has them: a causal mask, and nothing of rows
// × columns in memory.
#include "workload.h"

#include "checks.h"

#include <kiln/grad.h>
#include <kiln/layers.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace kiln::tool {
namespace {

struct Extents {
  std::int64_t batch, heads, length, depth;
};
using Row = std::vector<double>;

/// One attention in float64, a row at a time.
struct Reference {
  Values q, k, v, cotangent;
  Extents e;

  double scale() const { return 1 / std::sqrt(static_cast<double>(e.depth)); }
  std::int64_t at(std::int64_t number, std::int64_t row) const { return (number * e.length + row) * e.depth; }
  double product(const Values& x, std::int64_t i, const Values& y, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < e.depth; ++d) sum += x[i + d] * y[j + d];
    return sum;
  }

  /// Weights of row i, and the cotangents of its scores.
  std::pair<Row, Row> row(std::int64_t number, std::int64_t i) const {
    Row p, ds;
    double most = -std::numeric_limits<double>::infinity(), total = 0, sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      p.push_back(product(q, at(number, i), k, at(number, j)) * scale());
      most = std::max(most, p.back());
    }
    for (double& x : p) total += x = std::exp(x - most);
    for (std::int64_t j = 0; j <= i; ++j) {
      ds.push_back(product(cotangent, at(number, i), v, at(number, j)));
      sum += (p[static_cast<std::size_t>(j)] /= total) * ds.back();
    }
    for (std::size_t j = 0; j < ds.size(); ++j) ds[j] = p[j] * (ds[j] - sum);
    return {std::move(p), std::move(ds)};
  }

  /// Rows of the result and of dq.
  std::array<Row, 2> of_row(std::int64_t number, std::int64_t i) const {
    const auto [p, ds] = row(number, i);
    std::array<Row, 2> out;
    for (Row& r : out) r.assign(static_cast<std::size_t>(e.depth), 0.0);
    for (std::int64_t j = 0; j <= i; ++j)
      for (std::int64_t d = 0; d < e.depth; ++d) {
        const auto c = static_cast<std::size_t>(d);
        out[0][c] += p[static_cast<std::size_t>(j)] * v[at(number, j) + d];
        out[1][c] += ds[static_cast<std::size_t>(j)] * scale() * k[at(number, j) + d];
      }
    return out;
  }

  /// Rows of dk and of dv: of the rows from j on.
  std::array<Row, 2> of_column(std::int64_t number, std::int64_t j) const {
    std::array<Row, 2> out;
    for (Row& r : out) r.assign(static_cast<std::size_t>(e.depth), 0.0);
    for (std::int64_t i = j; i < e.length; ++i) {
      const auto [p, ds] = row(number, i);
      for (std::int64_t d = 0; d < e.depth; ++d) {
        const auto c = static_cast<std::size_t>(d), at_j = static_cast<std::size_t>(j);
        out[0][c] += ds[at_j] * scale() * q[at(number, i) + d];
        out[1][c] += p[at_j] * cotangent[at(number, i) + d];
      }
    }
    return out;
  }

  /// Relative to the row's greatest magnitude; where that is small, what is left of greater terms decides.
  double error(const Values& got, std::int64_t first, const Row& want) const {
    constexpr double kLeast = 0.05;
    double most = kLeast, worst = 0;
    for (const double x : want) most = std::max(most, std::abs(x));
    for (std::size_t d = 0; d < want.size(); ++d) {
      const double difference = std::abs(got[first + static_cast<std::int64_t>(d)] - want[d]);
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    return worst / most;
  }

  /// Σ x·y over a matrix: Σ q·dq and Σ k·dk are one number, so are Σ v·dv and Σ o·do.
  double total(const Values& x, const Values& y, std::int64_t number) const {
    double sum = 0;
    for (std::int64_t i = 0; i < e.length; ++i) sum += product(x, at(number, i), y, at(number, i));
    return sum;
  }
};

/// Rows of all results, and of each matrix's totals those of a few matrices. Rows of dk and dv are the last
/// ones, of which few rows of weights are made.
double error_of(const Reference& r, const std::vector<Tensor>& out) {
  const Values o(out[0]), dq(out[1]), dk(out[2]), dv(out[3]);
  const std::int64_t matrices = r.e.batch * r.e.heads, n = r.e.length;
  constexpr std::int64_t kRows = 128, kColumns = 64, kLastColumns = 48, kTotals = 4;
  const double rows = greatest(kRows, [&](std::int64_t s) {
    const std::int64_t number = s % matrices, i = (s * 977 + 7) % n;
    const auto [want_o, want_dq] = r.of_row(number, i);
    return std::max(r.error(o, r.at(number, i), want_o), r.error(dq, r.at(number, i), want_dq));
  });
  const double columns = greatest(kColumns, [&](std::int64_t s) {
    const std::int64_t number = s % matrices, j = n - 1 - s % std::min(n, kLastColumns);
    const auto [want_dk, want_dv] = r.of_column(number, j);
    return std::max(r.error(dk, r.at(number, j), want_dk), r.error(dv, r.at(number, j), want_dv));
  });
  const double totals = greatest(std::min(matrices, kTotals), [&](std::int64_t number) {
    const auto differ = [](double x, double y) {
      return std::abs(x - y) / std::max({std::abs(x), std::abs(y), 1.0});
    };
    return std::max(differ(r.total(r.q, dq, number), r.total(r.k, dk, number)),
                    differ(r.total(r.v, dv, number), r.total(r.cotangent, o, number)));
  });
  return std::max({rows, columns, totals});
}

Workload gradient(const std::string& sizes, const Extents& full, DType dtype) {
  Workload w;
  const bool half = dtype == DType::BFloat16;
  w.name = std::string("attention_gradient_causal") + (half ? "_bf16_" : "_f32_") + sizes;
  w.dtype = half ? "bfloat16" : "float32";
  w.floor = Workload::Floor::Flops;
  const double matrices = static_cast<double>(full.batch * full.heads), n = static_cast<double>(full.length),
               d = static_cast<double>(full.depth);
  w.bytes = (half ? 2.0 : 4.0) * 8 * matrices * n * d;
  w.flops = 14.0 * matrices * (n * n / 2) * d;  // seven products: two of the result, five of the gradients
  w.tolerance = half ? 5e-2 : 1e-3;
  w.make = [=](bool tiny) {
    const Extents e = tiny ? Extents{1, 2, 8, 16} : full;
    const Shape shape{e.batch, e.heads, e.length, e.depth};
    const Tensor q = uniform(shape, -2, 2, 71, dtype), k = uniform(shape, -2, 2, 72, dtype),
                 v = uniform(shape, -1, 1, 73, dtype), cotangent = uniform(shape, -1, 1, 74, dtype);
    Program p;
    p.record = [=] {
      const auto attend = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
        return nn::attention(a, b, c, true);
      };
      const auto [o, pull] = vjp(attend, q, k, v);
      const auto [dq, dk, dv] = pull(cotangent);
      return std::vector{o, dq, dk, dv};
    };
    p.max_error = [=](const std::vector<Tensor>& out) {
      return error_of({Values(q), Values(k), Values(v), Values(cotangent), e}, out);
    };
    return p;
  };
  return w;
}

}  // namespace

std::vector<Workload> attention_gradient_workloads(bool gpu) {
  if (gpu) return {gradient("4x32x4096x128", {4, 32, 4096, 128}, DType::BFloat16)};
  return {gradient("1x8x1024x64", {1, 8, 1024, 64}, DType::Float32)};
}

}  // namespace kiln::tool
