// Assertions on tensors for the API tests: shape, dtype and every element.
#pragma once

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace kiln::testing {

inline constexpr float kInf = HUGE_VALF;
inline constexpr float kNan = NAN;

/// Exact: NaN equals NaN, and -0 differs from 0.
template <class T>
void expect_equal(const Tensor& t, const Shape& shape, const std::vector<T>& values) {
  ASSERT_EQ(t.dtype(), dtype_of<T>) << name(t.dtype());
  ASSERT_EQ(t.shape().str(), shape.str());
  const std::vector<T> have = t.to_vector<T>();
  ASSERT_EQ(have.size(), values.size());
  for (std::size_t i = 0; i < have.size(); ++i) {
    if constexpr (std::is_floating_point_v<T> || is_half(dtype_of<T>)) {
      const double h = static_cast<double>(have[i]), w = static_cast<double>(values[i]);
      EXPECT_TRUE(h != h ? w != w : h == w && std::signbit(h) == std::signbit(w))
          << "element " << i << " is " << h << ", expected " << w;
    } else {
      EXPECT_EQ(have[i], values[i]) << "element " << i;
    }
  }
}

template <class T>
void expect_equal(const Tensor& t, const std::vector<T>& values) {
  expect_equal(t, Shape{static_cast<std::int64_t>(values.size())}, values);
}

/// Relative to the greater magnitude, or absolute below 1.
inline void expect_near(const Tensor& t, const Shape& shape, const std::vector<double>& values,
                        double tolerance = 2e-6) {
  ASSERT_TRUE(is_float(t.dtype())) << name(t.dtype());
  ASSERT_EQ(t.shape().str(), shape.str());
  const std::vector<double> have = t.astype(DType::Float64).to_vector<double>();
  ASSERT_EQ(have.size(), values.size());
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (values[i] != values[i]) {
      EXPECT_TRUE(have[i] != have[i]) << "element " << i << " is " << have[i] << ", expected NaN";
    } else if (std::isinf(values[i])) {
      EXPECT_EQ(have[i], values[i]) << "element " << i;
    } else {
      EXPECT_NEAR(have[i], values[i], tolerance * std::max(1.0, std::fabs(values[i]))) << "element " << i;
    }
  }
}

inline void expect_near(const Tensor& t, const std::vector<double>& values, double tolerance = 2e-6) {
  expect_near(t, Shape{static_cast<std::int64_t>(values.size())}, values, tolerance);
}

/// The statement throws a UserError whose whole text is `message`, and which says that the calling file
/// called.
template <class F>
void expect_user_error(F f, const std::string& message, SourceLocation loc = SourceLocation::current()) {
  try {
    f();
    ADD_FAILURE() << "no error; expected " << message;
  } catch (const UserError& e) {
    EXPECT_EQ(e.message(), message);
    EXPECT_STREQ(e.where().file_name(), loc.file_name()) << e.what();
    EXPECT_NE(std::string(e.what()).find(", called at "), std::string::npos) << e.what();
  }
}

/// The same for what has no place for the caller's line: conversions, operators on bool, options.
template <class F>
void expect_unplaced_error(F f, const std::string& message) {
  try {
    f();
    ADD_FAILURE() << "no error; expected " << message;
  } catch (const UserError& e) {
    EXPECT_EQ(e.what(), message);
  }
}

/// Recording or evaluating what f returns throws a UserError that says `part`, and perhaps where that was
/// recorded.
template <class F>
void expect_evaluation_error(F f, const std::string& part) {
  try {
    f().eval();
    ADD_FAILURE() << "no error; expected " << part;
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

inline Tensor floats(std::vector<float> values) { return Tensor::from(values); }
inline Tensor floats(const Shape& shape, std::vector<float> values) { return Tensor::from(values, shape); }
/// 0, 1, 2, … in the given shape.
inline Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(values, shape);
}

}  // namespace kiln::testing
