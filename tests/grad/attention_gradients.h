// What tests of an attention's gradients on a CPU and on a GPU share.
#pragma once

#include "counted.h"

#include <kiln/fusion_report.h>
#include <kiln/grad.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace kiln::test {

struct AttentionSizes {
  std::int64_t batch = 2, heads = 3, rows = 70, columns = 300, depth = 32, width = 32;
};
inline std::vector<Tensor> attention_inputs(const AttentionSizes& s, DType dtype = DType::Float32) {
  return {data({s.batch, s.heads, s.rows, s.depth}, dtype, 1),
          data({s.batch, s.heads, s.columns, s.depth}, dtype, 2),
          data({s.batch, s.heads, s.columns, s.width}, dtype, 3)};
}

using AttentionProgram = std::function<Tensor(const std::vector<Tensor>&)>;

/// The loss, whose gradient differs for each element of the result.
inline Tensor attention_loss(const Tensor& o) {
  const Tensor x = o.astype(DType::Float32);
  return sum(x * x * 0.5 + x * cos(arange(x.dim(-1)).astype(DType::Float32)));
}

/// The result and the gradients by all inputs, of one evaluation.
inline std::vector<Tensor> attention_gradients(const AttentionProgram& f, const std::vector<Tensor>& x) {
  const auto [loss, g] =
      value_and_grad([&](const std::vector<Tensor>& in) { return attention_loss(f(in)); }, x);
  std::vector<Tensor> all{loss};
  all.insert(all.end(), g.begin(), g.end());
  eval(all);
  return all;
}

inline void expect_gradients_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                                  double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t t = 0; t < got.size(); ++t) {
    const std::vector<float> g = got[t].astype(DType::Float32).to_vector<float>(),
                             w = want[t].astype(DType::Float32).to_vector<float>();
    ASSERT_EQ(g.size(), w.size());
    float most = t == 0 ? 1 : 0;  // the loss is a sum of both signs
    for (const float v : w)
      if (std::isfinite(v)) most = std::max(most, std::abs(v));
    for (std::size_t i = 0; i < g.size(); ++i) {
      if (std::isnan(w[i])) {
        ASSERT_TRUE(std::isnan(g[i])) << "tensor " << t << " element " << i << " is " << g[i];
      } else {
        ASSERT_NEAR(g[i], w[i], tolerance * std::max(most, std::abs(w[i])))
            << "tensor " << t << " element " << i;
      }
    }
  }
}

/// How many regions of the last plan are gradients of attention.
inline int gradients_in(const FusionReport& r) {
  const auto at = r.by_kind.find("gradient of attention");
  return at == r.by_kind.end() ? 0 : at->second;
}

/// Whether an array with a value for each pair crosses the boundary of a region.
inline bool stores_pairs(const FusionReport& r, std::int64_t rows, std::int64_t columns) {
  for (const FusionReport::Region& region : r.regions)
    for (const std::uint32_t out : region.outputs) {
      const std::vector<std::int64_t>& shape = r.node(out).shape;
      std::int64_t n = 1;
      for (const std::int64_t d : shape) n *= d;
      if (shape.size() < 2) {  // drawn along one axis
        if (n >= rows * columns) return true;
        continue;
      }
      const std::int64_t a = shape[shape.size() - 2], b = shape.back();
      if ((a == rows && b == columns) || (a == columns && b == rows)) return true;
    }
  return false;
}

}  // namespace kiln::test
