// Halves that are computed in Float32: what tells values apart sees them as they would be stored, whatever is
// fused.
#include "api/expect.h"
#include "modes.h"

#include <random>

namespace kiln {
namespace {

using testing::expect_equal;

class Halves : public ::testing::TestWithParam<DType> {};

/// Numbers whose products have more bits than a half, some of them too large or too small for one.
Tensor random_halves(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 bits(seed);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  std::uniform_real_distribution<float> digits(-4, 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int scale = i % 17 == 3 ? 127 : i % 19 == 5 ? -30 : i % 23 == 7 ? 14 : 0;
    values[i] = std::ldexp(digits(bits), dtype == DType::Float16 ? std::max(-14, scale) % 15 : scale / 2);
  }
  Tensor t = Tensor::from(values, shape).astype(dtype);
  t.eval();
  return t;
}

struct Reader {
  const char* name;
  Tensor (*read)(const Tensor& c, const Tensor& other);
};
const Reader kReaders[] = {
    {"to float32", [](const Tensor& c, const Tensor&) { return c.astype(DType::Float32); }},
    {"to float64", [](const Tensor& c, const Tensor&) { return c.astype(DType::Float64) * 3; }},
    {"to the other half",
     [](const Tensor& c, const Tensor&) {
       return c.astype(c.dtype() == DType::Float16 ? DType::BFloat16 : DType::Float16).astype(DType::Float32);
     }},
    {"there and back",
     [](const Tensor& c, const Tensor& o) {
       return (c.astype(DType::Float32).astype(c.dtype()) - o) * 4096;
     }},
    {"to int32", [](const Tensor& c, const Tensor&) { return c.astype(DType::Int32); }},
    {"to uint8", [](const Tensor& c, const Tensor&) { return c.astype(DType::UInt8); }},
    {"to bool", [](const Tensor& c, const Tensor&) { return c.astype(DType::Bool); }},
    {"meets a float32", [](const Tensor& c, const Tensor& o) { return c + o.astype(DType::Float32); }},
    {"equal", [](const Tensor& c, const Tensor& o) { return c == o; }},
    {"not_equal", [](const Tensor& c, const Tensor& o) { return c != o; }},
    {"less", [](const Tensor& c, const Tensor& o) { return c < o; }},
    {"less_equal", [](const Tensor& c, const Tensor& o) { return c <= o; }},
    {"greater", [](const Tensor& c, const Tensor& o) { return c > o; }},
    {"greater_equal", [](const Tensor& c, const Tensor& o) { return c >= o; }},
    {"with a number", [](const Tensor& c, const Tensor&) { return c == 0.0; }},
    {"isinf", [](const Tensor& c, const Tensor&) { return isinf(c); }},
    {"isfinite", [](const Tensor& c, const Tensor&) { return isfinite(c); }},
    {"isnan", [](const Tensor& c, const Tensor&) { return isnan(c); }},
    {"signbit", [](const Tensor& c, const Tensor&) { return signbit(c); }},
    {"logical_not", [](const Tensor& c, const Tensor&) { return logical_not(c); }},
    {"logical_and", [](const Tensor& c, const Tensor& o) { return logical_and(c, o); }},
    {"where", [](const Tensor& c, const Tensor& o) { return where(c > o, 1, 2); }},
    {"sign", [](const Tensor& c, const Tensor&) { return sign(c); }},
    {"floor", [](const Tensor& c, const Tensor&) { return floor(c); }},
    {"ceil", [](const Tensor& c, const Tensor&) { return ceil(c); }},
    {"trunc", [](const Tensor& c, const Tensor&) { return trunc(c); }},
    {"round", [](const Tensor& c, const Tensor&) { return round(c); }},
    {"floor_divide", [](const Tensor& c, const Tensor&) { return floor_divide(c, 0.25); }},
    {"remainder", [](const Tensor& c, const Tensor&) { return remainder(c, 0.25); }},
    {"fmod", [](const Tensor& c, const Tensor&) { return fmod(c, 0.25); }},
    {"nextafter", [](const Tensor& c, const Tensor& o) { return nextafter(c, o); }},
    {"maximum", [](const Tensor& c, const Tensor& o) { return maximum(c, o); }},
    {"argmax of rows", [](const Tensor& c, const Tensor&) { return argmax(abs(round(c * 0) + c), 1); }},
    {"argmax of columns", [](const Tensor& c, const Tensor&) { return argmax(abs(c), 0); }},
    {"argmin", [](const Tensor& c, const Tensor&) { return argmin(abs(c)); }},
    {"how many are equal",
     [](const Tensor& c, const Tensor& o) { return sum((c == o).astype(DType::Int32), {1}); }},
    {"sum in float32",
     [](const Tensor& c, const Tensor&) {
       return sum(where(isfinite(c), c, 0).astype(DType::Float32), {1}) == 1.5f;
     }},
    {"cummax", [](const Tensor& c, const Tensor&) { return cummax(c, 1).astype(DType::Float32); }},
    {"sort", [](const Tensor& c, const Tensor&) { return sort(c, 1); }},
    {"unique", [](const Tensor& c, const Tensor&) { return unique(c); }},
    {"searchsorted",
     [](const Tensor& c, const Tensor& o) { return searchsorted(sort(c.reshape({c.numel()}), 0), o); }},
};

std::vector<double> values_of(const Tensor& t) { return t.astype(DType::Float64).to_vector<double>(); }

/// Every reader of a computed half gives what it gives of the stored one. Elements that are equal after
/// rounding alone come from `other`: the stored product itself in every second place.
void expect_stored_values_read(DType dtype) {
  const Shape shape{37, 41};
  const Tensor x = random_halves(dtype, shape, 1), y = random_halves(dtype, shape, 2);
  const Tensor stored = x * y;
  stored.eval();
  const Tensor other = where((arange(shape.numel()).reshape(shape) % 2) == 0, stored, y);
  other.eval();
  for (const Reader& reader : kReaders) {
    SCOPED_TRACE(reader.name);
    const std::vector<double> want = values_of(reader.read(stored, other)),
                              have = values_of(reader.read(x * y, other));
    ASSERT_EQ(want.size(), have.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      different += want[i] != have[i] && !(want[i] != want[i] && have[i] != have[i]);
    EXPECT_EQ(different, 0u) << "of " << want.size();
  }
}

TEST_P(Halves, WhatTellsValuesApartSeesThemAsStored) {
  testing::in_every_mode([] { expect_stored_values_read(GetParam()); });
}

TEST_P(Halves, TheSameInStrictMode) {
  const Config before = config();
  Config strict = before;
  strict.strict = true;
  configure(strict);
  testing::in_every_mode([] { expect_stored_values_read(GetParam()); });
  configure(before);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Halves, ::testing::Values(DType::Float16, DType::BFloat16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(HalfSum, IsTheNumberThatIsPrinted) {
  testing::in_every_mode([] {
    const Tensor h = full({3}, 1.0 / 3, DType::Float16);
    EXPECT_EQ(sum(h).item<float>(), 1.0f);
    EXPECT_EQ(sum(h).astype(DType::Float32).item<float>(), 1.0f);
    EXPECT_TRUE((sum(h) == 1).item<bool>());
    EXPECT_TRUE((sum(h) >= 1).item<bool>());
    EXPECT_EQ(floor(sum(h)).item<float>(), 1.0f);
    EXPECT_EQ(sum(h).astype(DType::Int32).item<int>(), 1);
    EXPECT_EQ(((sum(h).astype(DType::Float32).astype(DType::Float16) - 1) * 4096).item<float>(), 0.0f);
  });
}

TEST(HalfSum, ArithmeticStaysWide) {
  const Tensor h = full({3}, 1.0 / 3, DType::Float16);
  const testing::ModeScope scope(Mode::Lazy);
  EXPECT_EQ(((sum(h) - 1) * 4096).item<float>(), -1.0f);
}

TEST(HalfLoop, AStateIsAHalfFromTheBeginning) {
  testing::in_every_mode([] {
    // The first state is a product that rounds to 1: no iteration is wanted.
    const Tensor third = full({8}, 1.0 / 3, DType::Float16);
    const Tensor start = third * 3;
    const auto done =
        while_loop([](const std::vector<Tensor>& s) { return s[0] < 1; },
                   [](const std::vector<Tensor>& s) { return std::vector<Tensor>{s[0] + 1}; }, {start});
    expect_equal<float>(done[0].astype(DType::Float32), std::vector<float>(8, 1.0f));
  });
}

}  // namespace
}  // namespace kiln
