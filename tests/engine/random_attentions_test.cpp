// Random attentions with gradients: by blocks of heads as without.
//
// KILN_TEST_ATTENTIONS=N draws so many programs, KILN_TEST_FUZZ_SEED begins elsewhere.
#include "counted.h"
#include "whole_and_by_blocks.h"

#include <kiln/grad.h>
#include <kiln/nn.h>
#include <kiln/random.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace kiln {
namespace {

using test::data;

/// Some layers of attentions, each of which reads what the one before made, and a loss of the last.
class Attentions {
 public:
  explicit Attentions(std::uint64_t seed) : random_(seed) {
    const std::int64_t a = 1 + below(4), b = 1 + below(4);
    batch_ = std::vector{Shape{a * b + 1}, Shape{a, b + 1}, Shape{a + 1, 1}, Shape{1, b + 1, a}}[below(4)];
    layers_ = 1 + below(2);
    rows_ = 24 + below(40);
    columns_ = layers_ > 1 ? rows_ : 24 + below(40);
    width_ = 1 + below(6);
    shared_keys_ = batch_.rank() == 3 && below(2) == 0;
    mask_ = below(5);
    map_ = below(4);
    weights_ = below(4);
    loss_ = below(3);
    by_ = 1 + below(7);
    const auto array = [&](Shape first, std::int64_t rows, int salt) {
      if (shared_keys_ && salt > 0) first = {first[0], first[1], 1};
      first.push_back(rows);
      first.push_back(width_);
      return data(first, DType::Float64, salt);
    };
    q_ = array(batch_, rows_, 0);
    k_ = array(batch_, columns_, 1);
    v_ = array(batch_, columns_, 2);
    w_ = data({width_, width_}, DType::Float64, 3);
    bias_ = data({rows_, columns_}, DType::Float64, 4);
  }

  std::string text() const {
    return cat("q ", q_.shape().str(), " k ", k_.shape().str(), ", layers ", layers_, ", mask ", mask_,
               ", map ", map_, ", weights ", weights_, ", loss ", loss_, ", by ", by_);
  }

  std::vector<Tensor> record() const {
    const auto f = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
      return loss(result((by_ & 1) != 0 ? q : q_, (by_ & 2) != 0 ? k : k_, (by_ & 4) != 0 ? v : v_));
    };
    const auto [value, g] = value_and_grad(f, wrt<0, 1, 2>, q_, k_, v_);
    return {value, std::get<0>(g), std::get<1>(g), std::get<2>(g)};
  }

 private:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Tensor weights(Tensor s) const {
    const Tensor i = expand_dims(arange(rows_), 1), j = expand_dims(arange(columns_), 0);
    if (map_ == 1) s = tanh(s * 0.25) * 4;
    if (map_ == 2) s = s * s * 0.1;
    if (mask_ == 1) s = where(i >= j, s, -std::numeric_limits<double>::infinity());
    if (mask_ == 2) s = s + bias_;
    if (mask_ == 3) s = s - abs(astype(i - j, DType::Float64)) * 0.1;
    if (mask_ == 4) s = where(bias_ > -0.5, s, -1e9);
    if (weights_ == 1) {
      const Tensor e = exp(s - max(s, -1, true));
      return e / (sum(e, -1, true) + 1);
    }
    if (weights_ == 2) {  // dropout
      const Tensor keep = random::bernoulli(random::Key(7), s.shape(), 0.75);
      return where(keep, nn::softmax(s) / 0.75, 0.0);
    }
    return weights_ == 3 ? exp(s - logsumexp(s, -1, true)) : nn::softmax(s);
  }

  Tensor result(const Tensor& q, const Tensor& k, const Tensor& v) const {
    Tensor x = q;
    for (int layer = 0; layer < layers_; ++layer) {
      const Tensor keys = layer == 0 ? k : x, wide = layer == 0 ? v : x;
      const Tensor o = matmul(weights(matmul(x, matrix_transpose(keys)) * 0.5), wide);
      x = layer + 1 < layers_ || map_ == 3 ? x + tanh(matmul(o, w_)) : o;
    }
    return x;
  }

  Tensor loss(const Tensor& x) const {
    switch (loss_) {
      case 0: return sum(x * x);
      case 1: return mean(logsumexp(x, -1));
      default: return sum(tanh(x));
    }
  }

  std::mt19937_64 random_;
  Shape batch_;
  int layers_, mask_, map_, weights_, loss_, by_;
  std::int64_t rows_, columns_, width_;
  bool shared_keys_;
  Tensor q_, k_, v_, w_, bias_;
};

TEST(RandomAttentions, GradientsByBlocksOfHeadsAreThoseOfTheWhole) {
  const std::uint64_t count = test::number("KILN_TEST_ATTENTIONS", 40),
                      first = test::number("KILN_TEST_FUZZ_SEED", 1);
  std::uint64_t in_blocks = 0;
  engine::set_block_rows(16);
  for (std::uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    const Attentions program(seed);
    SCOPED_TRACE(cat("seed ", seed, ": ", program.text()));
    in_blocks += test::whole_and_by_blocks(program, 1e-10) > 0;
  }
  engine::set_block_rows(0);
  clear_memory_caches();
  EXPECT_GE(2 * in_blocks, count) << "most programs";
}

}  // namespace
}  // namespace kiln
