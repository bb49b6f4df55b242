// Errors begin with the function that the user called, also where it is made of others, and describe every
// operand.
#include "api/expect.h"
#include "modes.h"

namespace kiln {
namespace {

using namespace testing;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(ErrorNames, AreThoseOfComposedFunctions) {
  const Tensor x = zeros({2, 3}), bools = zeros({2}, DType::Bool);
  expect_user_error([&] { clip(zeros({2}), zeros({3}), 1); },
                    "[clip] float32 (2,) and float32 (3,) do not broadcast");
  expect_user_error([&] { clip(zeros({2}), 0, zeros({3})); },
                    "[clip] float32 (2,) and float32 (3,) do not broadcast");
  expect_user_error([&] { square(bools); }, "[square] does not take bool operands: bool (2,) and bool (2,)");
  expect_user_error([] { square(Tensor()); }, "[square] an operand is an empty Tensor");
  expect_user_error([] { ones_like(Tensor()); }, "[ones_like] an operand is an empty Tensor");
  expect_user_error([&] { stack({x, x}, 3); },
                    "[stack] axis 3 is out of range for float32 (2, 3) with 1 new axis");
  expect_user_error([&] { count_nonzero(x, 2); },
                    "[count_nonzero] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([&] { vecdot(x, zeros({3, 3})); },
                    "[vecdot] float32 (2, 3) and float32 (3, 3) do not broadcast");
  expect_user_error([] { random::bernoulli(random::Key(1), {-1}); },
                    "[bernoulli] negative extent in shape (-1,)");
}

TEST(ErrorNames, AreThoseOfIndexing) {
  const Tensor x = zeros({2, 3}), at = zeros({2}, DType::Int64),
               far = broadcast_to(zeros({1}, DType::UInt8), {kHuge});
  expect_user_error([&] { take(x, at, 2); }, "[take] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([&] { take(x, far, 0); },
                    "[take] shape (4611686018427387904, 3) of float32 has more bytes than 63 bits can count");
  expect_user_error([&] { take_along_axis(x, at.reshape({1, 2}), 2); },
                    "[take_along_axis] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([&] { put_along_axis(x, at.reshape({1, 2}), 1, 2); },
                    "[put_along_axis] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([&] { scatter(x, at, 1, 2); }, "[scatter] axis 2 is out of range for float32 (2, 3)");
}

TEST(ErrorNames, AreThoseOfNeuralNetworkFunctions) {
  const Tensor x = zeros({2, 3}), scalar = zeros({}), two = zeros({2}), three = zeros({3});
  expect_user_error([&] { nn::softmax(x, 2); }, "[softmax] axis 2 is out of range for float32 (2, 3)");
  expect_user_error([&] { nn::log_softmax(scalar); }, "[log_softmax] axis -1 is out of range for float32 ()");
  expect_user_error([&] { nn::cross_entropy(scalar, Tensor(1)); },
                    "[cross_entropy] axis -1 is out of range for float32 ()");
  expect_user_error([&] { nn::layer_norm(scalar); }, "[layer_norm] axis -1 is out of range for float32 ()");
  expect_user_error([&] { nn::rms_norm(scalar); }, "[rms_norm] axis -1 is out of range for float32 ()");
  expect_user_error([&] { nn::batch_norm_training(two); },
                    "[batch_norm_training] axis 1 is out of range for float32 (2,)");
  expect_user_error(
      [&] { nn::batch_norm_training(x, two); },
      "[batch_norm_training] a parameter is float32 (2,), axis 1 of float32 (2, 3) has 3 channels");
  expect_user_error([&] { nn::mse_loss(two, three); },
                    "[mse_loss] float32 (2,) and float32 (3,) do not broadcast");
  expect_user_error([&] { nn::l1_loss(two, Tensor()); },
                    "[l1_loss] an operand is an empty Tensor: float32 (2,) and empty");
  expect_user_error([&] { nn::huber_loss(two, three); },
                    "[huber_loss] float32 (2,) and float32 (3,) do not broadcast");
  expect_user_error([&] { nn::kl_div(two, three); },
                    "[kl_div] float32 (3,) and float32 (2,) do not broadcast");
  expect_user_error([&] { nn::binary_cross_entropy(two, three); },
                    "[binary_cross_entropy] float32 (3,) and float32 (2,) do not broadcast");
  expect_user_error([&] { nn::binary_cross_entropy_with_logits(two, three); },
                    "[binary_cross_entropy_with_logits] float32 (2,) and float32 (3,) do not broadcast");
}

TEST(ErrorNames, StandBeforeTheLimitsOfShapes) {
  const Tensor deep = ones(Shape(std::vector<std::int64_t>(kMaxRank, 1)));
  expect_user_error([&] { expand_dims(deep, 0); }, "[expand_dims] rank 17 is above the limit of 16");
  expect_user_error([&] { stack({deep, deep}); }, "[stack] rank 17 is above the limit of 16");
  expect_user_error([&] { one_hot(deep.astype(DType::Int32), 3); },
                    "[one_hot] rank 17 is above the limit of 16");
  expect_user_error([&] { deep(newaxis); }, "[index] rank is above the limit of 16");
  const std::string overflow = " of float32 has more bytes than 63 bits can count";
  expect_user_error([] { zeros({kHuge, 4}); }, "[zeros] shape (4611686018427387904, 4)" + overflow);
  expect_user_error([] { full({kHuge, 4}, 2.5); }, "[full] shape (4611686018427387904, 4)" + overflow);
  expect_user_error([] { linspace(0, 1, kHuge); }, "[linspace] shape (4611686018427387904,)" + overflow);
  expect_user_error([] { broadcast_to(ones({1}), {kHuge, 4}); },
                    "[broadcast_to] shape (4611686018427387904, 4)" + overflow);
}

TEST(ErrorNames, DescribeTheOtherOperandOfAnEmptyHandle) {
  const Tensor x = zeros({2, 3});
  const std::string text = " an operand is an empty Tensor: float32 (2, 3) and empty";
  expect_user_error([&] { x* Tensor(); }, "[multiply]" + text);
  expect_user_error([&] { matmul(x, Tensor()); }, "[matmul]" + text);
  expect_user_error([&] { tensordot(x, Tensor()); }, "[tensordot]" + text);
  expect_user_error([&] { vecdot(x, Tensor()); }, "[vecdot]" + text);
  expect_user_error([&] { nn::linear(x, Tensor()); }, "[linear]" + text);
  expect_user_error([&] { compress(x, Tensor()); }, "[compress]" + text);
}

/// What is wrong with values belongs to the operation that has them, not to the one that evaluates it.
TEST(ErrorNames, OfValuesStay) {
  const Config before = config();
  Config options = before;
  options.mode = Mode::Lazy;
  configure(options);
  const Tensor bad = take(floats({1, 2}), Tensor({5}), 0);
  options.mode = Mode::Eager;
  options.check_bounds = true;
  configure(options);
  try {
    nn::softmax(bad);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("[gather] index 5 is out of range")) << e.what();
  }
  configure(before);
}

TEST(OutOfMemory, IsADeviceErrorThatSaysWhatWasComputed) {
  in_every_mode([] {
    try {
      (ones({std::int64_t{1} << 58}) + 1).eval();
      ADD_FAILURE() << "no error";
    } catch (const DeviceError& e) {
      const std::string text = e.what();
      EXPECT_TRUE(text.starts_with("[memory] out of memory")) << text;
      const std::string op = config().mode == Mode::Lazy ? "add" : "broadcast";  // what comes first
      EXPECT_NE(text.find(" (" + op + " float32 (288230376151711744,), recorded at "), text.npos) << text;
      EXPECT_NE(text.find("error_names_test.cpp:"), text.npos) << text;
    }
  });
}

}  // namespace
}  // namespace kiln
