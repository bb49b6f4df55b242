// Derivatives of random programs (tests/program.h) by all their leaves: backward against differences and
// against forward, fused against one operation at a time (in the strict mode to the bit). Programs with a
// loop that has no gradient count as refused.
//
// KILN_TEST_GRADIENTS=N runs so many programs instead of the default number, from KILN_TEST_FUZZ_SEED on.
#include "program.h"

#include "grad/differentiable.h"
#include "modes.h"

#include <optional>

namespace kiln {
namespace {

using namespace kiln::testing;

constexpr Engine kVm{"vm", Mode::Lazy, true};

struct Counts {
  int refused = 0, checked = 0, skipped = 0, nonzero = 0;
};

double size_of_sum(const Tensors& a, const Tensors& b) {
  double total = 1;
  for (std::size_t i = 0; i < a.size(); ++i) total += sum(abs(a[i] * b[i])).item<double>();
  return total;
}

/// The derivative by differences, and how far it may be off. Nothing where two steps do not agree: a corner
/// or a jump is near; or where the values are so large that differences drown in their rounding. Where
/// `along` meets a shape that depends on values it throws.
template <class F>
std::optional<Difference> difference(F along, double scale, double values) try {
  constexpr double kSmallest = 32;  // of the steps of one extrapolation
  for (double step = 1e-3; step > 1e-8; step /= 16) {
    const Difference one = ridders(along, step), other = ridders(along, step / 16);
    const double noise = values * 4e-16 / step * 16 * kSmallest;
    const double error = 10 * (one.error + other.error) + 1e-8 * scale + noise;
    if (std::fabs(one.value - other.value) <= error && error < 1e-5 * scale)
      return Difference{one.value, error};
  }
  return std::nullopt;
} catch (const UserError&) {
  return std::nullopt;
}

void check(std::uint64_t seed, Counts& counts) {
  const Differentiable f(seed);
  if (!f.suits()) return;
  std::mt19937 random(static_cast<unsigned>(seed) + 1);
  Tensors u, v, back, forth;
  try {
    const auto [y, pull] = vjp([&](const Tensors& x) { return f(x); }, f.leaves);
    if (y.empty()) return;
    for (const Tensor& result : y) u.push_back(random_like(result, random).astype(result.dtype()));
    for (const Tensor& x : f.leaves) v.push_back(random_like(x, random));
    back = pull(u);
    forth = jvp([&](const Tensors& x) { return f(x); }, f.leaves, v).second;
  } catch (const UserError& e) {
    ++counts.refused;
    const std::string what = e.what();
    const bool known = what.find("no gradient: nobody") != what.npos ||

                       what.find("no derivative by the values") != what.npos ||
                       what.find("has no derivative: ") != what.npos;
    EXPECT_TRUE(known) << "seed " << seed << ": " << what;
    return;
  }
  const double reverse = dot(back, v), forward = dot(forth, u),
               scale = size_of_sum(back, v) + size_of_sum(forth, u);
  if (!std::isfinite(reverse) || !std::isfinite(forward)) {
    ++counts.skipped;
    return;
  }
  EXPECT_NEAR(forward, reverse, 1e-12 * scale) << "seed " << seed;
  const auto along = [&](double t) {
    Tensors moved;
    for (std::size_t i = 0; i < v.size(); ++i) moved.push_back(f.leaves[i] + t * v[i]);
    return dot(f(moved), u);
  };
  const std::optional<Difference> want = difference(along, scale, size_of_sum(f(f.leaves), u));
  if (!want) {
    ++counts.skipped;
    return;
  }
  ++counts.checked;
  counts.nonzero += reverse != 0;
  EXPECT_NEAR(reverse, want->value, want->error) << "seed " << seed;
}

TEST(GradPrograms, AgreeWithDifferences) {
  const EngineScope scope(kVm);
  const std::uint64_t count = programs("KILN_TEST_GRADIENTS", 700);
  Counts counts;
  check(3748, counts);  // a running maximum, stored, of a sum that is made again
  const std::uint64_t first = programs("KILN_TEST_FUZZ_SEED", 1);
  for (std::uint64_t seed = first; seed < first + count; ++seed) check(seed, counts);
  RecordProperty("checked", counts.checked);
  RecordProperty("refused", counts.refused);
  RecordProperty("skipped", counts.skipped);
  RecordProperty("nonzero", counts.nonzero);
  EXPECT_GT(counts.checked, static_cast<int>(count / 3));
  EXPECT_LE(counts.skipped * 20, counts.checked + counts.skipped) << "skipped of checked " << counts.checked;
  EXPECT_GE(counts.nonzero * 2, counts.checked);
}

/// The gradients of the sum of a program's results, or nothing where it has none.
std::optional<Tensors> gradients(const Differentiable& f) try {
  const auto [y, pull] = vjp([&](const Tensors& x) { return f(x); }, f.leaves);
  Tensors u;
  for (const Tensor& result : y) u.push_back(ones_like(result));
  Tensors g = pull(u);
  eval(g);
  return g;
} catch (const UserError&) {
  return std::nullopt;
}

TEST(GradPrograms, AreTheSameFusedAndOneByOne) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Differentiable f(seed);
    if (!f.suits()) continue;
    const auto by = [&](const Engine& engine) {
      const EngineScope scope(engine);
      return gradients(f);
    };
    const auto fused = by(kVm), eager = by(kEngines[1]);
    ASSERT_EQ(fused.has_value(), eager.has_value());
    for (std::size_t i = 0; fused && i < fused->size(); ++i) {
      const double most = (*eager)[i].numel() ? max(abs((*eager)[i])).item<double>() : 0;
      EXPECT_TRUE(
          allclose((*fused)[i], (*eager)[i], 1e-9, 1e-11 * (1 + (std::isfinite(most) ? most : 0)), true));
    }
  }
}

TEST(GradPrograms, HaveTheSameBitsFusedAndOneByOneInTheStrictMode) {
  Config strict = config();
  strict.strict = true;
  strict.tier = Tier::Vm;
  const ScopedConfig scope(strict);
  int compared = 0;
  const std::uint64_t count = programs("KILN_TEST_GRADIENTS", 300);
  // Terms that are pads unless they are evaluated at once; a condition that is made of a differentiated
  // value.
  constexpr std::uint64_t kFound[] = {1885, 3631};
  const std::uint64_t first = programs("KILN_TEST_FUZZ_SEED", 1);
  for (std::uint64_t i = 0; i < std::size(kFound) + count; ++i) {
    const std::uint64_t seed = i < std::size(kFound) ? kFound[i] : first + i - std::size(kFound);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Differentiable f(seed);
    if (!f.suits()) continue;
    const auto by = [&](Mode mode) {
      const ModeScope of(mode);
      return gradients(f);
    };
    const auto fused = by(Mode::Lazy), eager = by(Mode::Eager);
    ASSERT_EQ(fused.has_value(), eager.has_value());
    if (!fused) continue;
    ++compared;
    for (std::size_t i = 0; i < fused->size(); ++i)
      EXPECT_TRUE(array_equal((*fused)[i], (*eager)[i], true)) << (*fused)[i] << "not" << (*eager)[i];
  }
  EXPECT_GT(compared * 2, static_cast<int>(count));
}

}  // namespace
}  // namespace kiln
