// A mapped function against a call for each example.
#pragma once

#include <kiln/kiln.h>
#include <kiln/vmap.h>

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

namespace kiln::testing {

using Function = std::function<Tensors(const Tensors&)>;
using Mapping = std::vector<std::optional<int>>;  // along which axis each argument counts examples

/// vmap of a function of up to four tensors.
inline Tensors mapped_call(const Function& f, const Tensors& x, const Mapping& in, int out = 0) {
  const auto axis = [&](std::size_t i) { return in[i] ? std::optional<Axis>(*in[i]) : std::nullopt; };
  const auto g = [&](const auto&... each) { return f(Tensors{each...}); };
  switch (x.size()) {
    case 1: return vmap(g, {axis(0)}, out)(x[0]);
    case 2: return vmap(g, {axis(0), axis(1)}, out)(x[0], x[1]);
    case 3: return vmap(g, {axis(0), axis(1), axis(2)}, out)(x[0], x[1], x[2]);
    case 4: return vmap(g, {axis(0), axis(1), axis(2), axis(3)}, out)(x[0], x[1], x[2], x[3]);
    default: throw std::logic_error("too many arguments");
  }
}

inline Tensor example_of(const Tensor& x, std::optional<int> axis, std::int64_t i) {
  return axis ? moveaxis(x, *axis, 0)(i) : x;
}

inline Tensors stacked_calls(const Function& f, const Tensors& x, const Mapping& in, std::int64_t count,
                             int out = 0) {
  std::vector<Tensors> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    Tensors one;
    for (std::size_t k = 0; k < x.size(); ++k) one.push_back(example_of(x[k], in[k], i));
    const Tensors y = f(one);
    rows.resize(y.size());
    for (std::size_t r = 0; r < y.size(); ++r) rows[r].push_back(y[r]);
  }
  Tensors all;
  for (const Tensors& each : rows) all.push_back(stack(each, out));
  return all;
}

/// Bit for bit the same, NaN for NaN; else where they are floats as near as the tolerance.
inline void expect_same(const Tensors& got, const Tensors& want, double tolerance = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "result " << i);
    ASSERT_EQ(got[i].shape().str(), want[i].shape().str());
    ASSERT_EQ(got[i].dtype(), want[i].dtype());
    const bool same = tolerance > 0 && is_float(got[i].dtype())
                          ? allclose(got[i], want[i], tolerance, tolerance, true)
                          : array_equal(got[i], want[i], true);
    if (!same) ADD_FAILURE() << got[i] << "\nnot\n" << want[i];
  }
}

/// Every choice of mapped arguments, of which x[k] holds `count` examples along axis `in[k]`; arguments that
/// are not mapped are their first example.
inline void expect_mapped(const Function& f, const Tensors& x, const Mapping& in, std::int64_t count,
                          double tolerance = 0) {
  for (unsigned chosen = 1; chosen < 1u << x.size(); ++chosen) {
    SCOPED_TRACE(::testing::Message() << "arguments " << chosen);
    Tensors args;
    Mapping axes;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const bool mapped = (chosen >> k & 1) != 0;
      axes.push_back(mapped ? in[k] : std::nullopt);
      args.push_back(mapped ? x[k] : example_of(x[k], in[k], 0));
    }
    expect_same(mapped_call(f, args, axes), stacked_calls(f, args, axes, count), tolerance);
  }
}

}  // namespace kiln::testing
