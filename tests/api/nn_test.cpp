#include "api/expect.h"

namespace kiln {
namespace {

using namespace testing;

TEST(Nn, Softmax) {
  const Tensor x = floats({2, 3}, {1, 2, 3, 1000, 1000, -kInf});
  expect_near(nn::softmax(x), {2, 3},
              {0.09003057317038046, 0.24472847105479767, 0.6652409557748219, 0.5, 0.5, 0});
  expect_near(nn::softmax(floats({2, 1}, {0, 0}), 0), {2, 1}, {0.5, 0.5});
  expect_near(nn::log_softmax(floats({1, 2, 3})),
              {-2.4076059644443806, -1.4076059644443804, -0.4076059644443804});
  EXPECT_EQ(nn::softmax(x.astype(DType::Float16)).dtype(), DType::Float16);
}

/// An exponential of what is relative to the greatest value has the bits of any other: of subnormal results,
/// where 2^n is rounded to one side of another, of infinities and NaN.
TEST(Nn, ExponentialsRelativeToTheGreatest) {
  std::vector<float> values;
  for (int i = 0; i <= 12000; ++i) values.push_back(static_cast<float>(-i) * 0.01f);
  for (int n = 0; n < 160; ++n) values.push_back(static_cast<float>((-n - 0.5) * 0.69314718055994531));
  values.insert(values.end(), {-kInf, -103.9f, -103.98f, -104.5f, -1e30f, -1e-40f, -0.0f});
  for (const float last : {0.0f, kNan}) {
    values.back() = last;
    const Tensor x = floats(values), apart = x - max(x),
                 whole = floats(values) - (last == last ? 0.0f : kNan);
    expect_equal(exp(apart), Shape{static_cast<std::int64_t>(values.size())}, exp(whole).to_vector<float>());
  }
}

TEST(Nn, Norms) {
  const Tensor x = floats({1, 4}, {1, 2, 3, 4});
  expect_near(nn::layer_norm(x, {}, {}, 0.0), {1, 4},
              {-1.3416407864998738, -0.4472135954999579, 0.4472135954999579, 1.3416407864998738});
  expect_near(nn::layer_norm(x, floats({2, 2, 2, 2}), floats({1, 1, 1, 1}), 0.0), {1, 4},
              {-1.6832815729997477, 0.10557280900008414, 1.8944271909999159, 3.6832815729997477});
  expect_near(nn::rms_norm(x, floats({1, 1, 1, 2}), 0.0), {1, 4},
              {0.36514837167011072, 0.73029674334022143, 1.0954451150103321, 2.9211869733608857});
  const Tensor image = counting({2, 2, 2});
  expect_near(nn::batch_norm(image, floats({1, 2}), floats({4, 1}), floats({2, 1}), floats({0, 1}), 0.0),
              {2, 2, 2}, {-1, 0, 1, 2, 3, 4, 5, 6});
  expect_near(nn::batch_norm_training(floats({2, 1}, {1, 3}), {}, {}, 0.0), {2, 1}, {-1, 1});
  expect_user_error([&] { nn::batch_norm(image, floats({1, 2, 3}), floats({1, 1})); },
                    "[batch_norm] a parameter is float32 (3,), axis 1 of float32 (2, 2, 2) has 2 channels");
}

TEST(Nn, Linear) {
  expect_equal<float>(nn::linear(counting({2, 3}), counting({2, 3}), floats({1, 2})), {2, 2},
                      {6, 16, 15, 52});
  expect_user_error([] { nn::linear(zeros({2, 3}), zeros({4, 2})); },
                    "[linear] x float32 (2, 3) does not fit weight float32 (4, 2) (out, in)");
}

TEST(Nn, Losses) {
  const Tensor x = floats({1, 2}), t = floats({0, 4});
  expect_near(nn::mse_loss(x, t), Shape{}, {2.5});
  expect_near(nn::mse_loss(x, t, nn::Reduction::Sum), Shape{}, {5});
  expect_near(nn::l1_loss(x, t, nn::Reduction::None), {1, 2});
  expect_near(nn::huber_loss(x, t, 1.0, nn::Reduction::None), {0.5, 1.5});
  const Tensor logits = floats({2, 3}, {1, 2, 3, 0, 0, 0});
  expect_near(nn::cross_entropy(logits, Tensor({2, 0}), nn::Reduction::None),
              {0.4076059644443804, 1.0986122886681098});
  expect_near(nn::cross_entropy(logits, Tensor({2, 0})), Shape{},
              {(0.4076059644443804 + 1.0986122886681098) / 2});
  expect_near(nn::nll_loss(nn::log_softmax(logits), Tensor({2, 0}), nn::Reduction::Sum), Shape{},
              {1.5062182531124902});
  expect_near(nn::binary_cross_entropy(floats({0.5f, 1, 0}), floats({1, 1, 1}), nn::Reduction::None),
              {0.6931471805599453, 0, 100});
  expect_near(
      nn::binary_cross_entropy_with_logits(floats({0, 1000, -1000}), floats({1, 1, 1}), nn::Reduction::None),
      {0.6931471805599453, 0, 1000});
  expect_near(nn::kl_div(log(floats({0.5f, 0.5f})), floats({0, 1}), nn::Reduction::None),
              {0, 0.6931471805599453});
  EXPECT_THROW(nn::cross_entropy(logits, floats({1, 2})), UserError);
}

TEST(Nn, ParametersAreChecked) {
  const Tensor x = ones({2, 3}), row = ones({1, 3});
  expect_user_error([&] { nn::linear(x, row, ones({7})); },
                    "[linear] bias float32 (7,) does not fit weight float32 (1, 3) (out, in)");
  expect_user_error([&] { nn::linear(x, row, ones({2, 1})); },
                    "[linear] bias float32 (2, 1) does not fit weight float32 (1, 3) (out, in)");
  expect_user_error(
      [&] { nn::layer_norm(x, ones({5, 2, 3})); },
      "[layer_norm] a parameter is float32 (5, 2, 3), axis -1 of float32 (2, 3) has 3 channels");
  expect_user_error([&] { nn::layer_norm(x, {}, ones({1})); },
                    "[layer_norm] a parameter is float32 (1,), axis -1 of float32 (2, 3) has 3 channels");
  expect_user_error([&] { nn::rms_norm(x, ones({5, 2, 3})); },
                    "[rms_norm] a parameter is float32 (5, 2, 3), axis -1 of float32 (2, 3) has 3 channels");
}

TEST(Nn, SoftmaxOfNoElementsHasNone) {
  for (const Shape& shape : {Shape{2, 0}, Shape{0, 3}, Shape{0}})
    for (int axis = 0; axis < shape.rank(); ++axis) {
      expect_equal(nn::softmax(zeros(shape), axis), shape, std::vector<float>());
      expect_equal(nn::log_softmax(zeros(shape, DType::Float16), axis), shape, std::vector<float16>());
    }
  EXPECT_EQ(nn::softmax(zeros({0}, DType::Int32)).dtype(), DType::Float32);
  expect_user_error([] { nn::softmax(zeros({2, 0}), 2); },
                    "[softmax] axis 2 is out of range for float32 (2, 0)");
}

TEST(Nn, NormsKeepTheDtypeAndLossesAreWide) {
  const Tensor x = ones({2, 3}, DType::Float16), labels = zeros({2}, DType::Int64);
  EXPECT_EQ(nn::layer_norm(x).dtype(), DType::Float16);
  EXPECT_EQ(nn::rms_norm(x).dtype(), DType::Float16);
  EXPECT_EQ(nn::mse_loss(x, x).dtype(), DType::Float32);
  EXPECT_EQ(nn::cross_entropy(x, labels, nn::Reduction::None).dtype(), DType::Float32);
  EXPECT_EQ(nn::cross_entropy(x.astype(DType::Float64), labels).dtype(), DType::Float64);
}

}  // namespace
}  // namespace kiln
