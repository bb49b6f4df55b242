// Elementwise operations: promotion, weak scalars, broadcasting, and the numeric rules of docs/semantics.md.
#include "api/expect.h"
#include "api/record.h"
#include "modes.h"

#include <cstdint>
#include <limits>

namespace kiln {
namespace {

using namespace testing;
using I8 = std::int8_t;
using U8 = std::uint8_t;
using I32 = std::int32_t;
using I64 = std::int64_t;
using U64 = std::uint64_t;

template <class T>
Tensor of(std::vector<T> values) {
  return Tensor::from(values);
}
Tensor bools(std::vector<std::uint8_t> values) {
  return Tensor::copy_of(values.data(), Shape{static_cast<I64>(values.size())}, DType::Bool);
}

TEST(Promotion, FollowsTheArrayApiTable) {
  // Rows and columns: b1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64.
  static const char* const table[kDTypeCount][kDTypeCount] = {
      {"b1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"},
      {"i8", "i8", "i16", "i32", "i64", "i16", "i32", "i64", "f32", "f16", "bf16", "f32", "f64"},
      {"i16", "i16", "i16", "i32", "i64", "i16", "i32", "i64", "f32", "f16", "bf16", "f32", "f64"},
      {"i32", "i32", "i32", "i32", "i64", "i32", "i32", "i64", "f32", "f16", "bf16", "f32", "f64"},
      {"i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "f32", "f16", "bf16", "f32", "f64"},
      {"u8", "i16", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"},
      {"u16", "i32", "i32", "i32", "i64", "u16", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"},
      {"u32", "i64", "i64", "i64", "i64", "u32", "u32", "u32", "u64", "f16", "bf16", "f32", "f64"},
      {"u64", "f32", "f32", "f32", "f32", "u64", "u64", "u64", "u64", "f16", "bf16", "f32", "f64"},
      {"f16", "f16", "f16", "f16", "f16", "f16", "f16", "f16", "f16", "f16", "f32", "f32", "f64"},
      {"bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "f32", "bf16", "f32", "f64"},
      {"f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f64"},
      {"f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64"},
  };
  for (int a = 0; a < kDTypeCount; ++a)
    for (int b = 0; b < kDTypeCount; ++b) {
      const Tensor x = zeros({2}, static_cast<DType>(a)), y = ones({2}, static_cast<DType>(b));
      EXPECT_EQ(info(where(x == y, x, y).dtype()).short_name, table[a][b])
          << name(static_cast<DType>(a)) << " with " << name(static_cast<DType>(b));
    }
}

TEST(Promotion, ScalarsAreWeak) {
  struct Row {
    DType tensor;
    Scalar scalar;
    DType result;
  };
  const Row rows[] = {
      {DType::Float16, 2.5, DType::Float16}, {DType::BFloat16, 2, DType::BFloat16},
      {DType::Float32, 2.5, DType::Float32}, {DType::Float64, 2.5f, DType::Float64},
      {DType::Int8, 2, DType::Int8},         {DType::Int8, 2.5, DType::Float32},
      {DType::UInt64, 2, DType::UInt64},     {DType::Int32, true, DType::Int32},
      {DType::Bool, 2, DType::Int64},        {DType::Bool, 2.5, DType::Float32},
  };
  for (const Row& row : rows) {
    const Tensor x = ones({3}, row.tensor);
    const Operand y = row.scalar.kind == Scalar::Kind::Bool  ? Operand(row.scalar.i != 0)
                      : row.scalar.kind == Scalar::Kind::Int ? Operand(row.scalar.i)
                                                             : Operand(row.scalar.f);
    EXPECT_EQ(add(x, y).dtype(), row.result) << name(row.tensor);
    EXPECT_EQ(add(row.scalar, x).dtype(), row.result) << name(row.tensor);
  }
  EXPECT_EQ((zeros({2}, DType::Bool) == true).dtype(), DType::Bool);
  EXPECT_EQ(where(zeros({2}, DType::Bool), 1, 2).dtype(), DType::Int64);
  EXPECT_EQ(where(zeros({2}, DType::Bool), 1, 2.5).dtype(), DType::Float32);
  EXPECT_EQ((ones({2}, DType::Int32) / 2).dtype(), DType::Float32);
  EXPECT_EQ(exp(ones({2}, DType::Int64)).dtype(), DType::Float32);
  EXPECT_EQ(sin(ones({2}, DType::Bool)).dtype(), DType::Float32);
}

TEST(Promotion, ConvertsValues) {
  expect_equal<float>(of<I32>({1, 2}) + floats({0.5f, -0.5f}), {1.5f, 1.5f});
  expect_equal<I32>(of<U8>({200, 255}).astype(DType::UInt16) + of<std::int16_t>({-1, 1}), {199, 256});
  expect_equal<I64>(bools({1, 0}) + 5, {6, 5});
  expect_equal<float>(bools({1, 0}) * floats({3, 4}), {3, 0});
  expect_equal<float>(1 - floats({3, 4}), {-2, -3});
  expect_equal<float>(2.0 / floats({4, 8}), {0.5f, 0.25f});
  expect_equal<U8>(of<U8>({1, 2}) + -1, {0, 1});
}

TEST(Broadcasting, FollowsTheStandard) {
  expect_equal<float>(floats({2, 1}, {10, 20}) + floats({1, 2, 3}), {2, 3}, {11, 12, 13, 21, 22, 23});
  expect_equal<float>(floats({1, 2, 3}) + floats({2, 1}, {10, 20}), {2, 3}, {11, 12, 13, 21, 22, 23});
  EXPECT_EQ((zeros({1, 0, 3}) + zeros({5, 1, 3})).shape().str(), "(5, 0, 3)");
  EXPECT_EQ((zeros({0}) + zeros({1})).shape().str(), "(0,)");
  EXPECT_EQ((zeros({}) + zeros({2, 2})).shape().str(), "(2, 2)");
  expect_equal<float>(where(floats({2, 1}, {1, 0}) > 0, floats({1, 2}), -1.0), {2, 2}, {1, 2, -1, -1});
  const Shape nine{1, 2, 1, 2, 1, 2, 1, 2, 1};
  EXPECT_EQ((ones(nine) + ones({3})).numel(), 48);
  expect_user_error([] { zeros({2, 3}) + zeros({4}); },
                    "[add] float32 (2, 3) and float32 (4,) do not broadcast");
  expect_user_error([] { where(zeros({2}) > 0, zeros({3}), 1); },
                    "[where] bool (2,) and float32 (3,) and 1 do not broadcast");
}

TEST(Elementwise, RefusesWhatHasNoMeaning) {
  expect_user_error([] { zeros({2}, DType::Bool) + zeros({2}, DType::Bool); },
                    "[add] does not take bool operands: bool (2,) and bool (2,)");
  expect_user_error([] { bitwise_and(zeros({2}), 1); },
                    "[bitwise_and] does not take float32 operands: float32 (2,) and 1");
  expect_user_error([] { zeros({2}, DType::Int8) << zeros({2}); },
                    "[bitwise_left_shift] does not take float32 operands: int8 (2,) and float32 (2,)");
  expect_user_error([] { exp(Tensor()); }, "[exp] an operand is an empty Tensor");
  expect_user_error([] { zeros({2}) + Tensor(); },
                    "[add] an operand is an empty Tensor: float32 (2,) and empty");
  expect_user_error([] { Tensor() + 1; }, "[add] an operand is an empty Tensor: empty and 1");
  expect_user_error([] { signbit(zeros({2}, DType::Int32)); },
                    "[signbit] does not take int32 operands: int32 (2,)");
  expect_user_error([] { floor(Tensor()); }, "[floor] an operand is an empty Tensor");
  expect_user_error([] { positive(zeros({2}, DType::Bool)); },
                    "[positive] does not take bool operands: bool (2,)");
}

TEST(Elementwise, GammaFunctions) {
  in_every_mode([] {
    // 0.5: log sqrt(pi), -euler - 2 log 2; -0.5: log(2 sqrt(pi))
    const Tensor x = floats({1, 2, 0.5f, -0.5f, 5, 0, -0.0f, -3, kInf, -kInf, kNan});
    expect_near(lgamma(x),
                {0, 0, 0.5723649429, 1.2655121235, 3.1780538303, kInf, kInf, kInf, kInf, kInf, kNan});
    expect_near(digamma(x), {-0.5772156649, 0.4227843351, -1.9635100260, 0.0364899740, 1.5061176685, -kInf,
                             kInf, kNan, kInf, kNan, kNan});
    EXPECT_EQ(lgamma(Tensor({3, 4})).dtype(), DType::Float32);
    EXPECT_EQ(digamma(ones({2}, DType::BFloat16)).dtype(), DType::BFloat16);
  });
}

TEST(Integers, UnsignedNegativesHaveNoSignToDrop) {
  in_every_mode([] {
    expect_equal<std::uint16_t>(abs(-Tensor({std::uint16_t{2}, std::uint16_t{0}})), {65534, 0});
    expect_equal<std::uint64_t>(abs(abs(-Tensor({std::uint64_t{1}}))), {~std::uint64_t{0}});
  });
}

TEST(Integers, WrapAndNeverTrap) {
  constexpr I32 kMin = std::numeric_limits<I32>::min(), kMax = std::numeric_limits<I32>::max();
  expect_equal<I32>(of<I32>({kMax, kMin}) + 1, {kMin, kMin + 1});
  expect_equal<I32>(-of<I32>({kMin, 5}), {kMin, -5});
  expect_equal<I32>(abs(of<I32>({kMin, -5})), {kMin, 5});
  expect_equal<I32>(floor_divide(of<I32>({7, -7, 7, -7, 5, kMin}), of<I32>({2, 2, -2, -2, 0, -1})),
                    {3, -4, -4, 3, 0, kMin});
  expect_equal<I32>(of<I32>({7, -7, 7, -7, 5, kMin}) % of<I32>({2, 2, -2, -2, 0, -1}), {1, 1, -1, -1, 0, 0});
  expect_equal<I32>(fmod(of<I32>({7, -7, 7, -7, 5, kMin}), of<I32>({2, 2, -2, -2, 0, -1})),
                    {1, -1, 1, -1, 0, 0});
  expect_equal<U8>(floor_divide(of<U8>({200, 7}), of<U8>({0, 2})), {0, 3});
  expect_equal<I8>(of<I8>({100, -128}) * of<I8>({2, -1}), {-56, -128});
  expect_equal<I8>(of<I8>({1, 1, -1, 1, -128}) << of<I8>({7, 8, 1, -1, 100}), {-128, 0, -2, 0, 0});
  expect_equal<I8>(of<I8>({-128, -1, 64, -5, 5}) >> of<I8>({7, 100, 6, -1, -1}), {-1, -1, 1, -1, 0});
  expect_equal<U8>(of<U8>({255, 255}) >> of<U8>({7, 8}), {1, 0});
  expect_equal<I32>(sign(of<I32>({-9, 0, 9})), {-1, 0, 1});
  expect_equal<U8>(sign(of<U8>({0, 9})), {0, 1});
  expect_equal<I32>(~of<I32>({0, -1}), {-1, 0});
  expect_equal<bool>(~bools({1, 0}), {false, true});
  expect_equal<bool>((bools({1, 1, 0}) & bools({1, 0, 0})) | (bools({0, 1, 0}) ^ bools({0, 0, 0})),
                     {true, true, false});
}

TEST(Integers, Powers) {
  expect_equal<I32>(pow(of<I32>({2, 3, -2, 0, 7}), of<I32>({10, 4, 3, 0, 1})), {1024, 81, -8, 1, 7});
  expect_equal<I32>(pow(of<I32>({2, 1, -1, -1, 0}), of<I32>({-1, -5, -3, -2, -1})), {0, 1, -1, 1, 0});
  expect_equal<I32>(pow(of<I32>({3, 65536}), 2), {9, 0});
  expect_equal<I32>(pow(of<I32>({3, -3}), 3), {27, -27});
  expect_equal<U8>(pow(of<U8>({3, 2}), 8), {161, 0});
  expect_equal<I32>(pow(2, of<I32>({0, 5, 31, 32})), {1, 32, std::numeric_limits<I32>::min(), 0});
}

TEST(Casts, SaturateAndWrap) {
  const Tensor x = floats({1.9f, -1.9f, kNan, 3e9f, -3e9f, kInf, -kInf, 300.f});
  expect_equal<I32>(x.astype(DType::Int32), {1, -1, 0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 300});
  expect_equal<U8>(x.astype(DType::UInt8), {1, 0, 0, 255, 0, 255, 0, 255});
  expect_equal<I64>(floats({9.3e18f, -1e19f}).astype(DType::Int64), {INT64_MAX, INT64_MIN});
  expect_equal<std::uint64_t>(floats({0x1p63f, 2e19f}).astype(DType::UInt64), {1ull << 63, UINT64_MAX});
  expect_equal<I8>(of<I32>({200, -129, 128}).astype(DType::Int8), {-56, 127, -128});
  expect_equal<bool>(floats({0, -0.f, 0.1f, kNan}).astype(DType::Bool), {false, false, true, true});
  expect_equal<float16>(floats({65519.f, 65520.f, 1e-8f, kNan}).astype(DType::Float16),
                        {float16(65504.f), float16(kInf), float16(0.f), float16(kNan)});
  // 1 + 2^-11 + 2^-40 rounds up; through float it would be a tie and round to 1.
  expect_equal<float16>(of<double>({1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11}).astype(DType::Float16),
                        {float16(1 + 0x1p-10f), float16(1.f)});
  EXPECT_EQ(x.astype(DType::Float32).node(), x.node());
}

TEST(Floats, FloorDivideAndRemainder) {
  expect_equal<float>(floor_divide(floats({1.f, -1.f, 7.f, -7.f}), floats({0.1f, 0.1f, 2.f, 2.f})),
                      {9, -10, 3, -4});
  expect_equal<double>(floor_divide(of<double>({1.0}), of<double>({0.1})), {9});
  expect_equal<float>(floats({5, -5, 5, -5, -0.f}) % floats({3, 3, -3, -3, 3}), {2, 1, -1, -2, 0});
  expect_equal<float>(floats({1, -1, 1}) % floats({kInf, kInf, 0}), {1, kInf, kNan});
  expect_equal<float>(floor_divide(floats({1, -1, 0}), 0.0), {kInf, -kInf, kNan});
  expect_equal<float>(fmod(floats({5, -5}), 3), {2, -2});
}

TEST(Floats, NanGoesThroughChoices) {
  const Tensor x = floats({1, kNan, 3, kNan}), y = floats({2, 2, kNan, kNan});
  expect_equal<float>(maximum(x, y), {2, kNan, kNan, kNan});
  expect_equal<float>(minimum(x, y), {1, kNan, kNan, kNan});
  expect_equal<float>(relu(floats({-1, kNan, 2})), {0, kNan, 2});
  expect_equal<float>(relu(floats({-0.f})), {-0.f});
  expect_equal<float>(clip(floats({-5, kNan, 0.5f, 5}), 0, 1), {0, kNan, 0.5f, 1});
  expect_equal<float>(clip(floats({-5, 5}), Tensor({0.f, kNan}), 1.0), {0, kNan});
  expect_equal<float>(clip(floats({3}), 5, 1), {1});
  expect_equal<I32>(clip(of<I32>({-5, 3, 9}), 0, 4), {0, 3, 4});
  expect_equal<float>(sign(floats({-2, -0.f, 0, 3, kNan})), {-1, 0, 0, 1, kNan});
  expect_equal<bool>(x == x, {true, false, true, false});
  expect_equal<bool>(x != x, {false, true, false, true});
  expect_equal<bool>(x < y, {true, false, false, false});
  expect_equal<bool>(!(x > 0), {false, true, false, true});
  expect_equal<float>(where(x > 0, x, 0), {1, 0, 3, 0});
}

TEST(Floats, RoundingAndClasses) {
  expect_equal<float>(round(floats({0.5f, 1.5f, 2.5f, -0.5f, -1.5f, kInf})), {0, 2, 2, -0.f, -2, kInf});
  expect_equal<float>(floor(floats({-0.5f, 1.5f})), {-1, 1});
  expect_equal<float>(ceil(floats({-0.5f, 1.5f})), {-0.f, 2});
  expect_equal<float>(trunc(floats({-1.5f, 1.5f})), {-1, 1});
  const Tensor whole = of<I32>({1, 2});
  EXPECT_EQ(floor(whole).node(), whole.node());
  const Tensor odd = floats({1, kNan, kInf, -kInf, -0.f});
  expect_equal<bool>(isnan(odd), {false, true, false, false, false});
  expect_equal<bool>(isinf(odd), {false, false, true, true, false});
  expect_equal<bool>(isfinite(odd), {true, false, false, false, true});
  expect_equal<bool>(signbit(floats({-0.f, 0, -1, 1})), {true, false, true, false});
  expect_equal<bool>(isnan(whole), {false, false});
  expect_equal<bool>(isfinite(whole), {true, true});
  expect_equal<float>(copysign(floats({1, -1, 2}), floats({-0.f, 1, -1})), {-1, 1, -2});
}

TEST(Floats, Nextafter) {
  expect_equal<float>(nextafter(floats({1, 1, 0, -1}), floats({2, 0, -1, -1})),
                      {std::nextafterf(1, 2), std::nextafterf(1, 0), -0x1p-149f, -1});
  const Tensor h = floats({1, 1, 0}).astype(DType::Float16);
  expect_equal<float16>(nextafter(h, floats({2, 0, 1}).astype(DType::Float16)),
                        {float16(1 + 0x1p-10f), float16(1 - 0x1p-11f), float16(0x1p-24f)});
}

TEST(Floats, Functions) {
  expect_near(exp(floats({0, 1, -1})), {1, 2.718281828459045, 0.36787944117144233});
  expect_near(log1p(floats({0, 1e-10f})), {0, 1.000000013351432e-10}, 1e-16);
  expect_near(logaddexp(floats({1000, -kInf, 0}), floats({1000, -kInf, -kInf})),
              {1000.6931471805599, -HUGE_VAL, 0});
  expect_near(atan2(floats({1, -1, 0}), floats({-1, -1, -1})), {2.356194490192345, -2.356194490192345, M_PI});
  expect_near(hypot(floats({3e30f}), floats({4e30f})), {5.0e30});
  expect_near(rsqrt(floats({4, 0.25f, 0})), {0.5, 2, HUGE_VAL});
  expect_near(sigmoid(floats({0, 100, -100})), {0.5, 1, 3.720075976020836e-44});
  expect_near(gelu(floats({-1, 0, 1})), {-0.15865525393145707, 0, 0.8413447460685429});
  expect_near(gelu_tanh(floats({-1, 0, 1})), {-0.15880800939172324, 0, 0.8411919906082768});
  expect_near(silu(floats({-1, 2})), {-0.2689414213699951, 1.7615941559557649});
  expect_near(softplus(floats({-100, 0, 100})), {3.720075976020836e-44, 0.6931471805599453, 100});
  expect_near(mish(floats({-1, 1})), {-0.30340146137410895, 0.8650983882673103});
  expect_near(elu(floats({-1, 2})), {-0.6321205588285577, 2});
  expect_near(elu(floats({-1, 2}), 0.5), {-0.31606027941427883, 2});
  expect_near(selu(floats({-1, 1})), {-1.1113307378125625, 1.0507009873554805});
  expect_near(leaky_relu(floats({-1, 2})), {-0.01, 2});
  expect_near(leaky_relu(floats({-1, 2}), 0.2), {-0.2, 2});
  expect_near(hardswish(floats({-4, -1, 1, 4})), {0, -1.0 / 3, 2.0 / 3, 4});
  expect_near(erfc(floats({10})), {2.088487583762545e-45}, 1e-6);
  expect_near(reciprocal(of<I32>({4})), {0.25});
}

TEST(Floats, PowersAreBakedWhenSmall) {
  const Tensor x = floats({4, 9});
  expect_equal<float>(pow(x, 2), {16, 81});
  expect_equal<float>(pow(x, 3.0), {64, 729});
  expect_equal<float>(pow(x, 1), {4, 9});
  expect_equal<float>(pow(x, 0), {1, 1});
  expect_equal<float>(pow(x, -1), {0.25f, 1.f / 9.f});
  expect_equal<float>(pow(x, 0.5), {2, 3});
  expect_near(pow(x, -0.5), {0.5, 1.0 / 3});
  expect_near(pow(x, 2.5), {32, 243});
  expect_near(pow(floats({-2, -2, 0, kNan}), floats({3, 0.5f, -1, 0})), {-8, NAN, HUGE_VAL, 1});
  if (config().mode == Mode::Lazy) {
    EXPECT_EQ(pow(x, 2).node()->op, ir::Op::multiply);
    EXPECT_EQ(pow(x, 0.5).node()->op, ir::Op::sqrt);
    EXPECT_EQ(pow(x, 5).node()->op, ir::Op::pow);
  }
}

/// However a power is spelt: where squares overflow, at zeros of both signs and infinities, in every mode.
TEST(Floats, PowersByANumberAreThoseByATensor) {
  in_every_mode([] {
    std::vector<double> bases{0,      -0.0,  1,     -1,   2,     -3,        20,    300,
                              6e4,    -1e-3, 1e13,  1e20, -1e20, 3e38,      1e-13, 1e-20,
                              -2e-39, kInf,  -kInf, kNan, 0.7,   -26.79319, 1.3};
    for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64}) {
      const Tensor x = Tensor::from(bases).astype(dtype).eval();
      const double ulp = dtype == DType::Float64   ? 0x1p-52
                         : dtype == DType::Float32 ? 0x1p-23
                         : dtype == DType::Float16 ? 0x1p-10
                                                   : 0x1p-7;
      const double least = dtype == DType::Float64   ? 0x1p-1074
                           : dtype == DType::Float32 ? 0x1p-149
                           : dtype == DType::Float16 ? 0x1p-24
                                                     : 0x1p-133;
      const std::vector<double> of = x.astype(DType::Float64).to_vector<double>();
      for (const double exponent : {-4.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0}) {
        const std::vector<double> got = pow(x, exponent).eval().astype(DType::Float64).to_vector<double>();
        for (std::size_t i = 0; i < of.size(); ++i) {
          const double exact = std::pow(of[i], exponent), want = Tensor::from(std::vector<double>{exact})
                                                                     .astype(dtype)
                                                                     .eval()
                                                                     .astype(DType::Float64)
                                                                     .item<double>();
          if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(got[i]))
                << name(dtype) << ' ' << of[i] << " to " << exponent << " is " << got[i];
          } else if (std::isinf(want) || want == 0) {
            EXPECT_EQ(want, got[i]) << name(dtype) << ' ' << of[i] << " to " << exponent;
            EXPECT_EQ(std::signbit(want), std::signbit(got[i]))
                << name(dtype) << ' ' << of[i] << " to " << exponent;
          } else {
            EXPECT_LE(std::fabs(got[i] - exact), std::max(2 * ulp * std::fabs(exact), 1.5 * least))
                << name(dtype) << ' ' << of[i] << " to " << exponent;
          }
        }
      }
    }
  });
}

TEST(Operators, MeanWhatTheyLookLike) {
  Tensor x = floats({1, 2});
  const Tensor old = x;
  x += 1;
  x *= floats({2, 3});
  expect_equal<float>(x, {4, 9});
  expect_equal<float>(old, {1, 2});
  expect_equal<bool>((x > 4) && (x == 9), {false, true});
  expect_equal<bool>((x > 4) || !(x == 4), {false, true});
  expect_equal<bool>(9 == x, {false, true});
  expect_equal<float>(-x, {-4, -9});
  expect_equal<I32>(1 << of<I32>({3, 4}), {8, 16});
  expect_equal<float>(7 % floats({4}), {3});
  float16 a(1.f), b(2.f);
  EXPECT_EQ(static_cast<float>(a + b), 3.f);  // the operators of tensors do not catch the halves
}

TEST(Recording, KeepsTheCallersLine) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  const Tensor x = floats({1, 2});
  const Tensor sum_ = x + 1;
  EXPECT_EQ(sum_.node()->loc.line(), static_cast<unsigned>(__LINE__ - 1));
  const Tensor part = x(0);
  EXPECT_EQ(part.node()->loc.line(), static_cast<unsigned>(__LINE__ - 1));
  EXPECT_EQ((x == x).node()->loc.line(), static_cast<unsigned>(__LINE__));
  EXPECT_EQ((2 * x).node()->loc.line(), static_cast<unsigned>(__LINE__));
}

TEST(Recording, PutsANumberIntoTheNode) {
  if (config().mode != Mode::Lazy) GTEST_SKIP();
  const Tensor x = floats({1, 2});
  const Tensor y = 2 - x;
  EXPECT_EQ(y.node()->in[0], nullptr);
  EXPECT_EQ(y.node()->in[1], x.node());
  EXPECT_EQ(y.node()->imm, 0x40000000u);
  const Tensor chosen = where(x > 0, 1.0, 2.0);
  EXPECT_EQ(chosen.node()->in[1], nullptr);
  EXPECT_EQ(chosen.node()->in[2]->op, ir::Op::scalar);
}

TEST(Scalars, OfTheUpperHalfOfUInt64KeepTheirValue) {
  constexpr std::uint64_t kTop = ~std::uint64_t{0}, kHalf = std::uint64_t{1} << 63;
  in_every_mode([] {
    expect_equal<float>(ones({1}) + kTop, {0x1p64f});
    expect_equal<double>(ones({1}, DType::Float64) + std::uint64_t{10000000000000000000u}, {1e19});
    expect_equal<double>(maximum(zeros({1}, DType::Float64), kHalf), {0x1p63});
    expect_equal<float>(full({1}, kHalf, DType::Float32), {0x1p63f});
    expect_equal<U64>(Tensor({U64{5}}) + kTop, {4});
    expect_equal<U64>(Tensor({U64{5}}) * kHalf, {kHalf});
    expect_equal<I64>(of<I64>({5}) + kTop, {4});
    expect_equal<U8>(of<U8>({5}) + kTop, {4});
    expect_equal<U64>(full({1}, kTop), {kTop});
    expect_equal<U64>(bools({1}) + kHalf, {kHalf + 1});
    expect_equal<U64>(where(bools({1, 0}), 1, kTop), {1, kTop});
    expect_equal<U64>(where(bools({1, 0}), kTop, 1), {kTop, 1});
    expect_equal<bool>(of<U64>({kTop, 3}) == kTop, {true, false});
    expect_equal<float>(pow(floats({2}), kTop), {kInf});
  });
  EXPECT_EQ(Scalar(kTop).to_double(), 0x1p64);
  EXPECT_EQ(Scalar(kTop >> 1).kind, Scalar::Kind::Int);
  expect_user_error([] { bitwise_and(zeros({2}), ~std::uint64_t{0}); },
                    "[bitwise_and] does not take float32 operands: float32 (2,) and 18446744073709551615");
}

}  // namespace
}  // namespace kiln
