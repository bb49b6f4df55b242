// Maps that read two columns of a product together, as rotated halves of heads, in plans of a GPU: they run
// where the product's sums are made, and products of the same rows share the launch.
#include "engine/gpu_products.h"
#include "engine/plan.h"

#include <cstdlib>
#include <random>
#include <utility>

namespace kiln {
namespace {

using test::data;

class GpuPartnerColumns : public test::GpuProducts {
 protected:
  void SetUp() override {
    GpuProducts::SetUp();
    engine::prefer_templates(true);
  }
  void TearDown() override {
    engine::prefer_templates(false);
    GpuProducts::TearDown();
  }
  static Tensor halves(const Shape& shape, int seed = 0) {
    return astype(data(shape, DType::Float32, seed) * 0.25, DType::BFloat16).eval();
  }
  static Tensor part(const Tensor& x, std::int64_t first, std::int64_t end) {
    std::vector<Slice> at(static_cast<std::size_t>(x.rank()));
    at.back() = slice::range(first, end);
    return astype(x.index(at), DType::Float32);
  }
  /// The last axis in two halves that are rotated by angles of each position.
  static Tensor rotated(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
    const std::int64_t half = x.shape()[x.rank() - 1] / 2;
    const Tensor a = part(x, 0, half), b = part(x, half, 2 * half);
    return astype(concat({a * cosines - b * sines, b * cosines + a * sines}, -1), DType::BFloat16);
  }
  static Tensor in_heads(const Tensor& x, std::int64_t head) {
    const Shape s = x.shape();
    return swapaxes(x.reshape({s[0], s[1], s[2] / head, head}), 1, 2);
  }
  void expect_one_launch_of_all_three(std::int64_t length, std::int64_t query_columns) {
    const Tensor x = halves({2, length, 72}), q = halves({72, query_columns}, 1), k = halves({72, 128}, 2),
                 v = halves({72, 128}, 3), cosines = data({length, 64}, DType::Float32, 4),
                 sines = data({length, 64}, DType::Float32, 5);
    expect_launches(
        [&] {
          return std::vector{rotated(in_heads(matmul(x, q), 128), cosines, sines),
                             rotated(in_heads(matmul(x, k), 128), cosines, sines),
                             in_heads(matmul(x, v), 128)};
        },
        1);
  }
};

TEST_F(GpuPartnerColumns, RotatedHeads) {
  for (const std::int64_t head : {64, 128}) {
    SCOPED_TRACE(head);
    const Tensor x = halves({2, 70, 72}), w = halves({72, 256}, 1),
                 cosines = data({70, head / 2}, DType::Float32, 2),
                 sines = data({70, head / 2}, DType::Float32, 3);
    expect_launches([&] { return std::vector{rotated(in_heads(matmul(x, w), head), cosines, sines)}; }, 1);
    // in the order of the product, with a bias before and a residual behind
    const Tensor bias = halves({256}, 4), residual = halves({2, 70, 256 / head, head}, 5);
    const Tensor c = cosines.reshape({70, 1, head / 2}), s = sines.reshape({70, 1, head / 2});
    expect_launches(
        [&] {
          const Tensor y = (matmul(x, w) + bias).reshape({2, 70, 256 / head, head});
          return std::vector{rotated(y, c, s) * 0.5 + residual};
        },
        1);
  }
}

TEST_F(GpuPartnerColumns, OtherMapsOfTwoHalves) {
  const Tensor x = halves({130, 72}), w = halves({128, 72}, 1);
  // a gate beside what it gates, stored twice; a result of float32
  expect_launches(
      [&] {
        const Tensor y = matmul(x, matrix_transpose(w));
        const Tensor a = part(y, 0, 64), b = part(y, 64, 128);
        return std::vector{concat({a * sigmoid(b), maximum(a, b)}, -1)};
      },
      1);
  // halves exchanged
  expect_launches(
      [&] {
        const Tensor y = matmul(x, matrix_transpose(w));
        return std::vector{astype(concat({part(y, 64, 128), part(y, 0, 64)}, -1), DType::BFloat16)};
      },
      1);
}

TEST_F(GpuPartnerColumns, TheProductIsKeptToo) {
  const Tensor x = halves({2, 70, 72}), w = halves({72, 256}, 1), cosines = data({70, 64}, DType::Float32, 2),
               sines = data({70, 64}, DType::Float32, 3);
  expect_launches(
      [&] {
        const Tensor y = matmul(x, w);
        return std::vector{y, rotated(in_heads(y, 128), cosines, sines)};
      },
      1);
  // and read by a reduction
  expect_launches(
      [&] {
        const Tensor y = matmul(x, w);
        return std::vector{rotated(in_heads(y, 128), cosines, sines), sum(astype(y, DType::Float32), {-1})};
      },
      0);
}

TEST_F(GpuPartnerColumns, QueriesKeysAndValuesInOneLaunch) { expect_one_launch_of_all_three(70, 384); }

/// Draws products of one input with maps that read halves of heads, in any order of axes.
class DrawnHalves {
 public:
  explicit DrawnHalves(std::uint64_t seed) : random_(seed) {
    batch_ = 1 + below(3);
    length_ = chance(30) ? 128 / (batch_ = 1 << below(2)) : 1 + below(chance(50) ? 40 : 150);
    k_ = 8 * (1 + below(20));
    dtype_ = chance(50) ? DType::BFloat16 : DType::Float16;
    x_ = memory({batch_, length_, k_}, dtype_);
    for (std::int64_t p = 1 + below(3); p > 0; --p) {
      Product w;
      w.head = chance(10) ? 32 << (3 * below(2)) : chance(50) ? 128 : 64;
      w.heads = 1 + below(4);
      w.turned = chance(50);
      w.weights = memory(w.turned ? Shape{w.heads * w.head, k_} : Shape{k_, w.heads * w.head}, dtype_);
      w.angles = memory({length_, w.head / 2}, DType::Float32);
      w.others = memory({length_, w.head / 2}, DType::Float32);
      w.bias = memory({w.heads * w.head}, dtype_);
      w.residual = memory({batch_, w.heads, length_, w.head}, dtype_);
      for (int& choice : w.choices) choice = static_cast<int>(below(10));
      products_.push_back(std::move(w));
    }
  }
  std::vector<Tensor> operator()() const {
    std::vector<Tensor> out;
    for (const Product& w : products_) made(w, out);
    return out;
  }

 private:
  struct Product {
    std::int64_t head, heads;
    bool turned;
    Tensor weights, angles, others, bias, residual;
    int choices[6];
  };
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool chance(int percent) { return below(100) < percent; }
  Tensor memory(const Shape& shape, DType type) {
    std::vector<float> v(static_cast<std::size_t>(shape.numel()));
    for (float& x : v) x = static_cast<float>(below(5)) - 2;
    return Tensor::from(v, shape).astype(type).eval();
  }
  void made(const Product& w, std::vector<Tensor>& out) const {
    Tensor y = matmul(x_, w.turned ? matrix_transpose(w.weights) : w.weights);
    if (w.choices[0] == 0) out.push_back(y);
    if (w.choices[1] < 3) y = y + w.bias;
    y = y.reshape({batch_, length_, w.heads, w.head});
    const bool heads_first = w.choices[2] < 6;
    if (heads_first) y = swapaxes(y, 1, 2);
    if (w.choices[3] == 0) return out.push_back(y);
    const auto half = [&](bool second) {
      std::vector<Slice> at(4);
      at[3] = slice::range(second ? w.head / 2 : 0, second ? w.head : w.head / 2);
      return y.index(at).astype(DType::Float32);
    };
    const auto placed = [&](const Tensor& t) {
      return heads_first ? t : t.reshape({length_, 1, w.head / 2});
    };
    const Tensor a = half(false), b = half(true), c = placed(w.angles), s = placed(w.others);
    Tensor z;
    switch (w.choices[3]) {
      case 1: z = concat({b, a}, -1); break;
      case 2: z = concat({maximum(a, b), minimum(a, b) * 2}, -1); break;
      case 3: z = concat({where(s > 0, a, -b), b}, -1); break;
      case 4: z = concat({a * c, a + b}, -1); break;
      default: z = concat({a * c - b * s, b * c + a * s}, -1);
    }
    if (w.choices[4] < 4) z = z + (heads_first ? w.residual : swapaxes(w.residual, 1, 2));
    out.push_back(w.choices[5] < 7 ? z.astype(dtype_) : z);
  }

  std::mt19937_64 random_;
  std::int64_t batch_, length_, k_;
  DType dtype_;
  Tensor x_;
  std::vector<Product> products_;
};

/// KILN_TEST_CONTRACTIONS=N draws so many, KILN_TEST_FUZZ_SEED begins elsewhere.
TEST_F(GpuPartnerColumns, RandomMaps) {
  const auto number = [](const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const std::uint64_t count = number("KILN_TEST_CONTRACTIONS", 4), first = number("KILN_TEST_FUZZ_SEED", 1);
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    expect_launches(DrawnHalves(seed), 0);
  }
}

TEST_F(GpuPartnerColumns, WholeTiles) { expect_one_launch_of_all_three(64, 256); }

TEST_F(GpuPartnerColumns, WhatHasNoPartnerAtHand) {
  const Tensor x = halves({2, 70, 72}), w = halves({72, 256}, 1);
  const auto rotate = [&](std::int64_t head) {
    const Tensor c = data({70, head / 2}, DType::Float32, 2), s = data({70, head / 2}, DType::Float32, 3);
    expect_launches([&] { return std::vector{rotated(in_heads(matmul(x, w), head), c, s)}; }, 2);
  };
  rotate(32);   // within a run of eight lanes' columns
  rotate(256);  // farther than a tile is wide
  // columns of other heads, or of other rows
  expect_launches(
      [&] {
        const Tensor y = matmul(x, w).reshape({2, 70, 2, 128});
        const Tensor a = part(y, 0, 64), b = part(flip(y, 2), 64, 128);
        return std::vector{astype(concat({a + b, a - b}, -1), DType::BFloat16)};
      },
      2);
  expect_launches(
      [&] {
        const Tensor y = matmul(x, w).reshape({2, 70, 2, 128});
        const Tensor a = part(y, 0, 64), b = part(flip(y, 1), 64, 128);
        return std::vector{astype(concat({a + b, a - b}, -1), DType::BFloat16)};
      },
      2);
}

}  // namespace
}  // namespace kiln
