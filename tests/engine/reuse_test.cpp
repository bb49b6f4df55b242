// Results of maps that take the memory of an argument: which do, and which must not.
#include "plan/reuse.h"
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <kiln/config.h>

#include <array>
#include <numeric>
#include <set>
#include <vector>

namespace kiln {
namespace {

using test::count;
using test::Counted;
using testing::ModeScope;

constexpr std::int64_t kSide = 256;  // of tensors that are large enough to be worth it

class Reuse : public ::testing::Test {
 protected:
  void SetUp() override { clear_memory_caches(); }
  static std::vector<float> numbers() {
    std::vector<float> v(kSide * kSide);
    std::iota(v.begin(), v.end(), 0.0f);
    return v;
  }
  /// In memory of its own.
  static Tensor fresh() { return Tensor::copy_of(numbers().data(), {kSide, kSide}, DType::Float32); }
  static float was(std::int64_t i, std::int64_t j) { return static_cast<float>(kSide * i + j); }
  ModeScope lazy_{Mode::Lazy};
};

TEST_F(Reuse, AMapTakesTheMemoryOfWhatNobodyHolds) {
  Tensor x = fresh();
  const void* const before = x.device_data();
  for (int step = 0; step < 4; ++step) {
    x = x * 2.0 - 1.0;
    x.eval();
    EXPECT_EQ(x.device_data(), before) << step;
  }
  EXPECT_EQ(x(3, 5).item<float>(), was(3, 5) * 16 - 15);
  EXPECT_EQ(x(255, 255).item<float>(), was(255, 255) * 16 - 15);
}

TEST_F(Reuse, AnotherDtypeOfAsManyBytesAndNoOther) {
  Tensor x = fresh();
  const void* const before = x.device_data();
  Tensor whole = x.astype(DType::Int32);
  x = {};
  whole.eval();
  EXPECT_EQ(whole.device_data(), before);
  EXPECT_EQ(whole(2, 9).item<std::int32_t>(), 2 * kSide + 9);
  Tensor half = whole.astype(DType::Int16);
  whole = {};
  half.eval();
  EXPECT_NE(half.device_data(), before);
  EXPECT_EQ(half(2, 9).item<std::int16_t>(), 2 * kSide + 9);
}

TEST_F(Reuse, WhoHoldsTheOldValueKeepsIt) {
  Tensor x = fresh();
  const Tensor old = x;
  x = x + 1.0;
  x.eval();
  EXPECT_EQ(old(1, 2).item<float>(), was(1, 2));
  EXPECT_EQ(x(1, 2).item<float>(), was(1, 2) + 1);
  Tensor y = fresh();
  const Tensor row = y(7).eval();  // shows y's memory
  y = y + 1.0;
  y.eval();
  EXPECT_EQ(row(4).item<float>(), was(7, 4));
  Tensor z = fresh();
  const Tensor later = z(7), sums = sum(z, 0);  // pending
  z = z + 1.0;
  z.eval();
  EXPECT_EQ(later(4).item<float>(), was(7, 4));
  EXPECT_EQ(sums(0).item<float>(), was(0, 0) * kSide + kSide * (kSide - 1) / 2 * kSide);
  std::vector<float> mine = numbers();
  Tensor borrowed = Tensor::borrow(mine.data(), {kSide, kSide}, DType::Float32, std::make_shared<int>(0));
  borrowed = borrowed + 1.0;
  borrowed.eval();
  EXPECT_EQ(mine, numbers());
}

/// Of values asked for together, some read the old value at other points, or in other kernels.
/// Of the pending part nothing is left where the mean of its copies is a sum of elements of x.
TEST_F(Reuse, APendingValueThatTransformsDropKeepsWhatItIsMadeOf) {
  for (const bool both : {false, true}) {
    Tensor x = fresh();
    const Tensor part = x(range(14, 15), range(1, 2)).reshape({1});
    const Tensor means = mean(stack({part, part}, 1) * 1.5, 1);
    Tensor y = sign(x);
    x = {};
    if (both)
      eval({means, y});
    else
      y.eval();
    EXPECT_EQ(part.item<float>(), was(14, 1)) << both;
    EXPECT_EQ(means.item<float>(), was(14, 1) * 1.5f) << both;
    EXPECT_EQ(y(14, 1).item<float>(), 1.0f) << both;
  }
}

TEST_F(Reuse, OtherReadersOfTheOldValueComeFirst) {
  for (const bool first : {true, false}) {
    Tensor x = fresh();
    const void* const before = x.device_data();
    const Tensor w = ones({kSide, 3}).eval();
    const Tensor product = matmul(x, w), turned = sort(flip(x, 1), 1);
    x = x * 2.0;
    eval(first ? std::initializer_list<Tensor>{product, turned, x}
               : std::initializer_list<Tensor>{x, turned, product});
    EXPECT_EQ(product(1, 2).item<float>(), 256.0f * 256 + 255.0f * 128) << first;
    EXPECT_EQ(turned(3, 4).item<float>(), was(3, 4));
    EXPECT_EQ(x(3, 4).item<float>(), was(3, 4) * 2);
    EXPECT_EQ(x.device_data(), before);
  }
}

TEST_F(Reuse, AResultThatReadsOtherPoints) {
  Tensor x = fresh();
  x = x + transpose(x);
  x.eval();
  EXPECT_EQ(x(3, 200).item<float>(), was(3, 200) + was(200, 3));
  EXPECT_EQ(x(200, 3).item<float>(), was(3, 200) + was(200, 3));
  Tensor y = fresh();
  y = y - max(y, 1, true);
  y.eval();
  EXPECT_EQ(y(9, 10).item<float>(), 10.0f - 255.0f);
  Tensor z = fresh();
  z = flip(z, 1) * 2.0;
  z.eval();
  EXPECT_EQ(z(9, 10).item<float>(), was(9, 245) * 2);
  Tensor a = fresh();
  a = roll(a, 1, 1) + a;
  a.eval();
  EXPECT_EQ(a(9, 0).item<float>(), was(9, 255) + was(9, 0));
  EXPECT_EQ(a(9, 10).item<float>(), was(9, 9) + was(9, 10));
}

/// A second result of a map reads what the first overwrites.
TEST_F(Reuse, SeveralResultsOfOneMap) {
  for (const testing::Engine& e : testing::kEngines) {
    if (e.mode != Mode::Lazy) continue;
    const testing::EngineScope scope(e);
    Tensor x = fresh(), y = fresh();
    const std::array<const void*, 2> before{x.device_data(), y.device_data()};
    const Tensor sum_of = x + y, difference = x - y * 2.0;
    x = y = {};
    eval({sum_of, difference});
    EXPECT_EQ(sum_of(3, 4).item<float>(), 2 * was(3, 4)) << e.name;
    EXPECT_EQ(difference(3, 4).item<float>(), -was(3, 4)) << e.name;
    EXPECT_NE(sum_of.device_data(), difference.device_data());
    for (const Tensor& t : {sum_of, difference})
      EXPECT_TRUE(t.device_data() == before[0] || t.device_data() == before[1]);
  }
}

/// A scalar that is no constant decides on a branch, or between two addresses, what the first result is made
/// of; the others read the argument whose memory the first took.
TEST_F(Reuse, WhatIsLoadedOnABranch) {
  KILN_NEEDS_COMPILER();
  const ModeScope compiled(Mode::Lazy, Tier::Jit);
  std::vector<std::int32_t> was(kSide * kSide);
  for (std::size_t i = 0; i < was.size(); ++i) was[i] = static_cast<std::int32_t>(i * 7 % 11) - 5;
  const Tensor other = full({kSide, kSide}, 7, DType::Int32).eval();
  for (const std::int32_t power : {3, 0, -1})
    for (const bool chosen : {false, true}) {
      const Tensor exponent = full({}, power, DType::Int32).eval(), positive = (exponent > 0).eval();
      Tensor x = Tensor::copy_of(was.data(), {kSide, kSide}, DType::Int32);
      const Tensor y = chosen ? where(positive, x, other) : pow(x, exponent);
      const Tensor same = x.astype(DType::Float32), next = x + 1;
      x = {};
      eval({y, same, next});
      const auto got = y.to_vector<std::int32_t>(), more = next.to_vector<std::int32_t>();
      const auto kept = same.to_vector<float>();
      for (std::size_t i = 0; i < was.size(); ++i) {
        const std::int32_t inverse = was[i] * was[i] == 1 ? was[i] : 0;
        const std::int32_t raised = power == 3 ? was[i] * was[i] * was[i] : power == 0 ? 1 : inverse;
        ASSERT_EQ(got[i], chosen ? (power > 0 ? was[i] : 7) : raised) << power << ' ' << chosen << ' ' << i;
        ASSERT_EQ(kept[i], static_cast<float>(was[i])) << power << ' ' << chosen << ' ' << i;
        ASSERT_EQ(more[i], was[i] + 1) << power << ' ' << chosen << ' ' << i;
      }
    }
}

/// The new momentum is read for the new parameter; from the third step on no plan is made and no memory
/// moves.
TEST_F(Reuse, AStepOfTraining) {
  constexpr int kLayers = 5;
  std::vector<Tensor> p, m;
  for (int i = 0; i < kLayers; ++i) {
    p.push_back(fresh());
    m.push_back((zeros({kSide, kSide}) * 1.0).eval());
  }
  const Tensor x = (ones({4, kSide}) * 0.5).eval();
  const auto step = [&] {
    Tensor y = x;
    for (const Tensor& w : p) y = tanh(matmul(y, w));
    const Tensor loss = sum(y);
    std::vector<Tensor> wanted{loss};
    for (int i = 0; i < kLayers; ++i) {
      m[i] = m[i] * 0.5 + p[i] * 0.25;
      p[i] = p[i] - m[i];
      wanted.push_back(m[i]);
      wanted.push_back(p[i]);
    }
    eval(wanted);
  };
  step();
  step();
  const std::set<const void*> before{p[3].device_data(), m[3].device_data()};
  const Counted third = count(step);
  EXPECT_EQ(third.plan_misses, 0u);
  EXPECT_EQ((std::set<const void*>{p[3].device_data(), m[3].device_data()}), before);
  float parameter = was(3, 4), momentum = 0;
  for (int i = 0; i < 3; ++i) {
    momentum = momentum * 0.5f + parameter * 0.25f;
    parameter -= momentum;
  }
  EXPECT_EQ(p[3](3, 4).item<float>(), parameter);
  EXPECT_EQ(m[3](3, 4).item<float>(), momentum);
}

/// On a CPU the product's gradient is never stored, and the new values lie where the old ones were, of
/// products that read operands where they lie, and of packed ones.
TEST_F(Reuse, MapsBehindAProduct) {
  for (const std::int64_t side : {std::int64_t{48}, kSide})
    for (const std::int64_t depth : {std::int64_t{3}, std::int64_t{100}}) {
      Tensor p = (arange(side * side).reshape({side, side}).astype(DType::Float32) * 0.5).eval();
      Tensor m = (ones({side, side}) * 8.0).eval();
      const Tensor x = ones({depth, side}).eval(),
                   g = (arange(side).astype(DType::Float32) * ones({depth, 1})).eval();
      const void *const p_before = p.device_data(), *const m_before = m.device_data();
      for (int step = 0; step < 3; ++step) {
        m = m * 0.5 + matmul(transpose(x), g);
        p = p - m * 0.25;
        eval({p, m});
      }
      if (config().device == "cpu") {
        EXPECT_EQ(p.device_data(), p_before);
        EXPECT_EQ(m.device_data(), m_before);
      }
      for (const auto [i, j] : {std::pair{std::int64_t{0}, std::int64_t{0}}, {side - 1, side - 2}, {7, 33}}) {
        double momentum = 8, parameter = 0.5 * static_cast<double>(i * side + j);
        for (int step = 0; step < 3; ++step) {
          momentum = momentum * 0.5 + static_cast<double>(depth * j);
          parameter -= momentum * 0.25;
        }
        EXPECT_EQ(m(i, j).item<float>(), momentum) << side << " " << depth;
        EXPECT_EQ(p(i, j).item<float>(), parameter) << side << " " << depth;
      }
    }
}

/// A product reads its operands at other points than its maps write.
TEST_F(Reuse, AnOperandOfTheProductKeepsItsMemory) {
  for (const bool turned : {false, true}) {
    const Tensor one =
        (arange(64).reshape({64, 1}) == arange(64).reshape({1, 64})).astype(DType::Float32).eval();
    Tensor w = (arange(64 * 64).reshape({64, 64}).astype(DType::Float32) * 1.0).eval();
    const void* const before = w.device_data();
    w = w + matmul(turned ? transpose(w) : w, one);
    w.eval();
    EXPECT_NE(w.device_data(), before);
    for (const auto [i, j] : {std::pair{0, 1}, {63, 2}, {5, 60}})
      EXPECT_EQ(w(i, j).item<float>(), 64 * i + j + (turned ? 64 * j + i : 64 * i + j));
  }
}

/// A result that others read in the same evaluation keeps its place in the order, and gets memory of its own.
TEST_F(Reuse, AResultThatOthersRead) {
  Tensor x = fresh();
  x = x * 2.0;
  const Tensor sorted = sort(x, 0), product = matmul(transpose(x), ones({kSide, 2}));
  eval({x, sorted, product});
  EXPECT_EQ(x(3, 4).item<float>(), 2 * was(3, 4));
  EXPECT_EQ(sorted(3, 4).item<float>(), 2 * was(3, 4));
  EXPECT_EQ(product(0, 1).item<float>(), 2.0f * 256 * (255 * 128));
}

TEST_F(Reuse, APartOfABufferDoesNotKeepTheRest) {
  Tensor all = concat({fresh(), fresh(), fresh()}, 0).eval();
  Tensor part = all(range(0, kSide)).eval();
  all = {};
  const void* const before = part.device_data();
  part = part + 1.0;
  part.eval();
  EXPECT_NE(part.device_data(), before);
  EXPECT_EQ(part(3, 4).item<float>(), was(3, 4) + 1);
}

}  // namespace
}  // namespace kiln
