// Reductions inside whose axes memory goes on with few elements, logsumexps by two loops, and what depends on
// them, by the code for each instruction set of the host; compared with the interpreter in Float64.
#include "api/expect.h"
#include "modes.h"
#include "needs_cpu.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace kiln {
namespace {

using namespace testing;

using Program = std::function<std::vector<Tensor>(const Tensor&)>;
constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNaN = std::numeric_limits<double>::quiet_NaN();

/// Runs f with code for each instruction set that the host has.
template <class F>
void on_every_level(F f) {
  for (const char* level : {"sse4.2", "avx2", "avx512"}) {
    SCOPED_TRACE(level);
    Config options = config();
    options.cpu_target = level;
    options.mode = Mode::Lazy;
    const Config before = config();
    try {
      configure(options);
      eval(zeros({1}) + 1.0);
    } catch (const UserError&) {  // the host does not have it
      configure(before);
      continue;
    }
    f();
    configure(before);
  }
}

Tensor drawn(const Shape& shape) { return (counting(shape) * 37.0 + 11.0) % 1013.0 / 506.5 - 1.0; }

std::vector<std::vector<double>> values_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<double>> out;
  for (const Tensor& t : tensors) out.push_back(t.astype(DType::Float64).to_vector<double>());
  return out;
}

void expect_as_interpreted(const Tensor& x, double bound, const Program& program) {
  std::vector<std::vector<double>> want;
  {
    const ModeScope scope(Mode::Interpret);
    want = values_of(program(is_float(x.dtype()) ? x.astype(DType::Float64) : x));
  }
  on_every_level([&] {
    std::vector<Tensor> have = program(x);
    eval(have);
    const auto values = values_of(have);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(values[i].size(), want[i].size());
      for (std::size_t k = 0; k < want[i].size(); ++k) {
        if (values[i][k] == want[i][k] || (std::isnan(values[i][k]) && std::isnan(want[i][k]))) continue;
        ASSERT_NEAR(values[i][k], want[i][k], bound * std::max(1.0, std::abs(want[i][k])))
            << "result " << i << ", " << k;
      }
    }
  });
}

struct Case {
  Shape shape;
  std::vector<int> over;
};

/// Columns of 2 to 15 elements, rows of them left over or not, groups of channels, and few items of many
/// rows.
std::vector<Case> cases() {
  return {{{6, 257, 3}, {1}},         {{5, 101, 7}, {1}},       {{40001, 3}, {0}},
          {{5, 196, 8, 5}, {1, 3}},   {{6, 150, 1, 2}, {1, 3}}, {{70000, 2}, {0, 1}},
          {{3, 20, 4, 31, 3}, {1, 3}}};
}

TEST(ShortAxes, Reductions) {
  KILN_NEEDS_CPU();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.shape.str());
    const Axes over(c.over);
    const Program program = [&](const Tensor& x) -> std::vector<Tensor> {
      return {sum(x * x, over), max(x, over), min(x, over, true), mean(x, over), logsumexp(x * 3.0, over)};
    };
    expect_as_interpreted(drawn(c.shape).eval(), 2e-6, program);
    expect_as_interpreted(drawn(c.shape).astype(DType::BFloat16).eval(), 1.6e-2, program);
    expect_as_interpreted(drawn(c.shape).astype(DType::Float64).eval(), 1e-13, program);
    expect_as_interpreted((drawn(c.shape) * 100.0).astype(DType::Int32).eval(), 0,
                          [&](const Tensor& x) -> std::vector<Tensor> {
                            return {sum(x, over), min(x, over), max(x * 3 + 1, over, true)};
                          });
  }
}

TEST(ShortAxes, WhatDependsOnThem) {
  KILN_NEEDS_CPU();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.shape.str());
    const Axes over(c.over);
    const Tensor weight = (drawn({c.shape[c.shape.rank() - 1]}) + 2.0).eval();
    const Program program = [&](const Tensor& x) -> std::vector<Tensor> {
      const Tensor centred = x - mean(x, over, true);
      const Tensor e = exp(x - max(x, over, true));
      return {centred / sqrt(mean(centred * centred, over, true) + 1e-3) * weight.astype(x.dtype()),
              e / sum(e, over, true)};
    };
    expect_as_interpreted(drawn(c.shape).eval(), 2e-5, program);
    expect_as_interpreted(
        drawn(c.shape).astype(DType::Float16).eval(), 6e-3, [&](const Tensor& x) -> std::vector<Tensor> {
          std::vector<Tensor> out = program(x.dtype() == DType::Float16 ? x.astype(DType::Float32) : x);
          for (Tensor& t : out) t = t.astype(x.dtype());
          return out;
        });
  }
}

/// Along rows of one block and of several, columns, stripes, and in chunks.
TEST(ShortAxes, LogsumexpsOfAnyForm) {
  KILN_NEEDS_CPU();
  for (const Case& c : {Case{{500, 28}, {1}},
                        {{60, 3000}, {1}},
                        {{200000}, {0}},
                        {{3, 60000}, {1}},
                        {{20, 700}, {0}},
                        {{900, 300}, {0}},
                        {{3000, 130}, {0}},
                        {{9, 80, 60}, {1}},
                        {{40, 6, 33}, {0, 2}}}) {
    SCOPED_TRACE(c.shape.str());
    for (const DType dtype : {DType::Float32, DType::Float16, DType::Float64}) {
      if (dtype == DType::Float64 && c.shape.numel() > 50000) continue;
      expect_as_interpreted((drawn(c.shape) * 9.0).astype(dtype).eval(),
                            dtype == DType::Float16 ? 1e-2 : 1e-6,
                            [&](const Tensor& x) -> std::vector<Tensor> {
                              return {logsumexp(x, Axes(c.over)),
                                      logsumexp(x, Axes(c.over), true) - max(x, Axes(c.over), true)};
                            });
    }
  }
}

TEST(ShortAxes, LogsumexpsOfSpecialValues) {
  KILN_NEEDS_CPU();
  const double most = std::numeric_limits<float>::max();
  const std::vector<double> rows[] = {{kInf, 1, 2},     {-kInf, -kInf, -kInf}, {kNaN, 1, 2},
                                      {kInf, kNaN, 1},  {-kInf, kNaN, -kInf},  {-kInf, 3, -kInf},
                                      {most, most, 1},  {-most, -most, -kInf}, {kInf, kInf, -kInf},
                                      {1e30, -1e30, 0}, {-1000, -1000, -1000}, {0, 0, 0}};
  for (const int length : {3, 40, 2500})
    for (const DType dtype : {DType::Float32, DType::Float64}) {
      std::vector<double> all;
      for (const std::vector<double>& row : rows)
        for (int i = 0; i < length; ++i) all.push_back(row[static_cast<std::size_t>(i) % 3]);
      const Tensor x = Tensor::from(all, {12, length}).astype(dtype).eval();
      expect_as_interpreted(x, 1e-6,
                            [](const Tensor& t) -> std::vector<Tensor> { return {logsumexp(t, 1)}; });
      const Tensor columns = (permute_dims(x, {1, 0}) + 0.0).eval();
      expect_as_interpreted(columns, 1e-6,
                            [](const Tensor& t) -> std::vector<Tensor> { return {logsumexp(t, 0)}; });
    }
}

}  // namespace
}  // namespace kiln
