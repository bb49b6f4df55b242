// Random losses of a linear layer, with gradients: by blocks of rows as without.
//
// KILN_TEST_LOSSES=N draws so many programs, KILN_TEST_FUZZ_SEED begins elsewhere.
#include "counted.h"
#include "whole_and_by_blocks.h"

#include <kiln/grad.h>
#include <kiln/nn.h>

#include <random>
#include <string>
#include <vector>

namespace kiln {
namespace {

using test::data;

/// A layer, what follows it, a loss, and by what it is differentiated.
class Loss {
 public:
  explicit Loss(std::uint64_t seed) : random_(seed) {
    dtype_ = std::vector{DType::Float32, DType::Float32, DType::Float64, DType::BFloat16}[below(4)];
    const std::int64_t batch = 1 + below(3), rows = 1 + below(60), k = 1 + below(40), n = 1 + below(150);
    rows_ = batch * rows;
    turned_ = below(2) == 0;
    map_ = below(4);
    kind_ = below(6);
    with_bias_ = below(2) == 0;
    with_positions_ = below(3) == 0;
    x_ = data(below(2) == 0 ? Shape{batch, rows, k} : Shape{rows_, k}, dtype_);
    w_ = data(turned_ ? Shape{n, k} : Shape{k, n}, dtype_, 1);
    b_ = data({n}, dtype_, 2);
    target_ = data({rows_, n}, dtype_, 3);
    labels_ = astype(arange(rows_) * 37 % n, DType::Int32).eval();
    by_x_ = below(2) == 0;
    by_w_ = !by_x_ || below(3) > 0;
  }

  std::string text() const {
    return cat(name(dtype_), " x ", x_.shape().str(), " w ", w_.shape().str(), turned_ ? " turned" : "",
               with_bias_ ? " + b" : "", ", map ", map_, ", loss ", kind_, by_x_ ? ", by x" : "",
               by_w_ ? ", by w" : "", with_positions_ ? ", positions" : "");
  }
  std::int64_t rows() const { return rows_; }
  DType dtype() const { return dtype_; }

  /// The loss, its gradients, and perhaps what else is made of the layer's rows.
  std::vector<Tensor> record() const {
    const auto f = [&](const Tensor& x, const Tensor& w, const Tensor& b) { return loss(scores(x, w, b)); };
    std::vector<Tensor> out;
    if (by_x_ && by_w_) {
      const auto [value, g] = value_and_grad(f, wrt<0, 1, 2>, x_, w_, b_);
      out = {value, std::get<0>(g), std::get<1>(g), std::get<2>(g)};
    } else if (by_w_) {
      const auto [value, g] = value_and_grad(f, wrt<1>, x_, w_, b_);
      out = {value, g};
    } else {
      const auto [value, g] = value_and_grad(f, wrt<0>, x_, w_, b_);
      out = {value, g};
    }
    if (with_positions_) out.push_back(sum(astype(argmax(scores(x_, w_, b_), 1), DType::Int32)));
    return out;
  }

 private:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Tensor scores(const Tensor& x, const Tensor& w, const Tensor& b) const {
    Tensor y = matmul(x, turned_ ? w.T() : w);
    if (with_bias_) y = y + b;
    y = y.reshape({rows_, b.numel()});
    switch (map_) {
      case 1: return tanh(y * 0.25) * 4;
      case 2: return where(target_ > -0.5, y, -10.0);
      case 3: return y * astype(expand_dims(labels_, 1) % 2, dtype_);
      default: return y;
    }
  }

  Tensor loss(const Tensor& y) const {
    switch (kind_) {
      case 0: return nn::cross_entropy(y, labels_);
      case 1: return sum(nn::cross_entropy(y, labels_, nn::Reduction::None) * 0.125);
      case 2: return mean(square(y - target_));
      case 3: return mean(logsumexp(y, 1));
      case 4: return sum(log(sum(exp(y * 0.125), 1)) - mean(y, 1)) * 0.125;
      default: return mean(softplus(y) - y * target_);
    }
  }

  std::mt19937_64 random_;
  DType dtype_;
  std::int64_t rows_;
  bool turned_, with_bias_, with_positions_, by_x_, by_w_;
  int map_, kind_;
  Tensor x_, w_, b_, target_, labels_;
};

TEST(RandomLosses, GradientsByBlocksOfRowsAreThoseOfTheWhole) {
  const std::uint64_t count = test::number("KILN_TEST_LOSSES", 40),
                      first = test::number("KILN_TEST_FUZZ_SEED", 1);
  int in_blocks = 0, tall = 0;
  engine::set_block_rows(16);
  for (std::uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    const Loss program(seed);
    SCOPED_TRACE(cat("seed ", seed, ": ", program.text()));
    // of halves: a sum that goes through memory, or not, before it is rounded; and differences of such
    const double tolerance = program.dtype() == DType::Float64    ? 1e-12
                             : program.dtype() == DType::BFloat16 ? 0.1
                                                                  : 2e-5;
    in_blocks += test::whole_and_by_blocks(program, tolerance);
    tall += program.rows() > 16;
  }
  engine::set_block_rows(0);
  clear_memory_caches();
  EXPECT_GE(2 * in_blocks, tall) << "most layers of more than 16 rows";
}

}  // namespace
}  // namespace kiln
