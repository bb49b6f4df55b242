// KILN_CHECK=bounds and loops: what a body reads for an element that its condition leaves out is no error,
// what the loop takes is.
#include "api/expect.h"
#include "modes.h"

#include <functional>
#include <string>

namespace kiln {
namespace {

using testing::counting;
using testing::expect_equal;
using testing::floats;

Tensor ints(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, Shape{static_cast<std::int64_t>(values.size())});
}

/// Runs f in every mode with the check on.
void checked(const std::function<void()>& f) {
  struct Restored {
    const Config before = config();
    ~Restored() { configure(before); }
  } const restored;
  Config options = restored.before;
  options.check_bounds = true;
  configure(options);
  testing::in_every_mode(f);
}

void expect_index_error(const std::function<Tensor()>& record, const std::string& index) {
  try {
    record().eval();
    ADD_FAILURE() << "no error for index " << index;
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("[gather] index " + index + " is out of range for axis 0 of "),
              std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("loop_bounds_test.cpp:"), std::string::npos) << e.what();
  }
}

TEST(LoopBounds, AScanStaysWithin) {
  checked([] {
    const Tensor x = counting({3, 2});
    const auto sums = [&](bool whole) {
      return scan(
          [&](const Tensors& c, const Tensors& in) {
            const Tensor next = c[0] + in[0] + (whole ? max(in[0]) : Tensor(0.f));
            return Scanned{{next}, {next}};
          },
          {zeros({2})}, {x});
    };
    expect_equal<float>(sums(false).carry[0], {6, 9});
    expect_equal<float>(sums(false).ys[0], {3, 2}, {0, 1, 2, 4, 6, 9});
    expect_equal<float>(sums(true).carry[0], {15, 18});
    expect_equal<float>(sums(true).ys[0], {3, 2}, {1, 2, 6, 8, 15, 18});
    // One scan's result in another's body.
    const Scanned outer = scan(
        [&](const Tensors& c, const Tensors& in) {
          return Scanned{
              {c[0] + scan([](const Tensors& d, const Tensors& row) { return Scanned{{d[0] + row[0]}, {}}; },
                           {in[0]}, {x})
                          .carry[0]},
              {}};
        },
        {zeros({2})}, {x});
    expect_equal<float>(outer.carry[0], {24, 36});
  });
}

/// Sums of x from `first` up to `end`, of each element or of all as long as one of them goes on.
Tensor sums_from(const Tensor& x, const Tensor& first, std::int64_t end) {
  return while_loop([&](const Tensors& s) { return s[0] < end; },
                    [&](const Tensors& s) { return Tensors{s[0] + 1, s[1] + take(x, s[0], 0)}; },
                    {first, zeros({})})[1];
}

TEST(LoopBounds, ATakeIsGuardedByTheCondition) {
  checked([] {
    const Tensor x = counting({4});
    expect_equal<float>(sums_from(x, Tensor(std::int64_t{0}), 4), Shape{}, {6});
    expect_equal<float>(sums_from(x, ints({0, 2, 4, 9}), 4), {6, 5, 0, 0});
    expect_equal<float>(sums_from(sort(x), ints({3, 1}), 4), {3, 6});
    // Over whole tensors.
    const Tensor last =
        while_loop([](const Tensors& s) { return max(s[0]) < 4; },
                   [&](const Tensors& s) { return Tensors{s[0] + 1, s[1] + sum(take(x, s[0], 0))}; },
                   {ints({0, 1}), zeros({})})[1];
    expect_equal<float>(last, Shape{}, {9});
  });
}

TEST(LoopBounds, ABranchThatIsNotWantedReadsNothing) {
  checked([] {
    const Tensor x = counting({4}), bad = ints({7, 0});
    const auto nothing = [](const Tensors&) { return Tensors{zeros({2})}; };
    const auto taken = [](const Tensors& v) { return Tensors{take(v[0], v[1], 0)}; };
    const auto captured = [&](const Tensors&) { return Tensors{take(x, bad, 0) * 2.0}; };
    for (const bool wanted : {false, true}) {
      const Tensor c = Tensor(wanted);
      const auto of_operands = [&] { return cond(c, taken, nothing, {x, bad})[0]; };
      const auto of_captures = [&] { return cond(c, captured, nothing, {x})[0]; };
      if (wanted) {
        expect_index_error(of_operands, "7");
        expect_index_error(of_captures, "7");
      } else {
        expect_equal<float>(of_operands(), {0, 0});
        expect_equal<float>(of_captures(), {0, 0});
      }
    }
    // Element by element.
    const Tensor at = ints({1, 5, 3});
    const auto guarded = [&](std::int64_t limit) {
      return cond(
          at < limit, [&](const Tensors& v) { return Tensors{take(x, v[0], 0) * 2.0}; },
          [](const Tensors&) { return Tensors{full({3}, -1.0)}; }, {at})[0];
    };
    expect_equal<float>(guarded(4), {2, -1, 6});
    expect_index_error([&] { return guarded(6); }, "5");
  });
}

TEST(LoopBounds, WhatALoopTakesIsAnError) {
  checked([] {
    const Tensor x = counting({4});
    expect_index_error([&] { return sums_from(x, Tensor(std::int64_t{0}), 5); }, "4");
    expect_index_error([&] { return sums_from(x, ints({0, 2, 9}), 6); }, "4");
    // An iteration's value.
    expect_index_error(
        [&] {
          return scan([&](const Tensors& c, const Tensors& in) { return Scanned{c, {take(x, in[0], 0)}}; },
                      {zeros({})}, {ints({0, 3, 8})})
              .ys[0];
        },
        "8");
    // The condition.
    expect_index_error(
        [&] {
          return while_loop([&](const Tensors& s) { return take(x, s[0], 0) > 0.0; },
                            [](const Tensors& s) { return Tensors{s[0] + 1}; }, {ints({1})})[0];
        },
        "4");
    // Through views, reductions, scans, products and another loop.
    for (const auto& made :
         {std::function<Tensor(const Tensor&)>([](const Tensor& t) { return flip(t.reshape({2, 1}))(1); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& t) { return sum(t); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& t) { return cumsum(t, 0)(-1); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& t) { return matmul(t, t); }),
          std::function<Tensor(const Tensor&)>(
              [](const Tensor& t) { return take(t, Tensor(std::int64_t{0}), 0); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& t) { return sort(t)(0); }),
          std::function<Tensor(const Tensor&)>([](const Tensor& t) {
            return scan([](const Tensors& c, const Tensors& in) { return Scanned{{c[0] + in[0]}, {in[0]}}; },
                        {zeros({})}, {t})
                .ys[0](0);
          })}) {
      const auto program = [&](std::int64_t end) {
        return while_loop([&](const Tensors& s) { return s[0] < end; },
                          [&](const Tensors& s) {
                            return Tensors{s[0] + 1, s[1] + sum(made(take(x, stack({s[0] + 1, s[0]}), 0)))};
                          },
                          {Tensor(std::int64_t{0}), zeros({})})[1];
      };
      EXPECT_NO_THROW(program(3).eval());
      expect_index_error([&] { return program(4); }, "4");
    }
  });
}

/// A loop inside a body need not end when the body is run though its condition does not hold.
TEST(LoopBounds, ABodyDoesNotRunBeforeItsCondition) {
  testing::in_every_mode([] {
    const Tensor target = ints({3, 5, 4});
    const Tensor steps = while_loop([](const Tensors& s) { return s[0] < 3; },
                                    [&](const Tensors& s) {
                                      const Tensor wanted = take(target, s[0], 0);
                                      const Tensor reached =
                                          while_loop([&](const Tensors& t) { return t[0] != wanted; },
                                                     [](const Tensors& t) { return Tensors{t[0] + 1}; },
                                                     {ones({}, DType::Int64)})[0];
                                      return Tensors{s[0] + 1, s[1] + reached};
                                    },
                                    {zeros({}, DType::Int64), zeros({}, DType::Int64)})[1];
    expect_equal<std::int64_t>(steps, Shape{}, {12});
  });
}

}  // namespace
}  // namespace kiln
