// Random programs (tests/program.h) as functions of some of their leaves: mapped, against a run for each
// example. Programs that read a value, or whose shapes depend on values, count as refused.
//
// KILN_TEST_VMAP=N runs so many programs instead of the default number.
#include "program.h"

#include "grad/differentiable.h"
#include "modes.h"
#include "vmap/check.h"

#include <kiln/config.h>

namespace kiln {
namespace {

using namespace kiln::testing;

constexpr Engine kVm{"vm", Mode::Lazy, true};

/// A program whose leaves have several examples, some of them one for all.
struct Examples {
  test::Program program;
  std::int64_t count;
  std::vector<Tensors> leaves;  // of each example
  Mapping axes;

  explicit Examples(std::uint64_t seed) : program(without_reads(test::random_program(seed))) {
    std::mt19937 random(static_cast<unsigned>(seed));
    count = static_cast<std::int64_t>(random() % 3) + 1;
    leaves.resize(static_cast<std::size_t>(count));
    program.held.clear();
    for (const test::Instruction& i : program.instructions) {
      if (i.kind != test::Kind::Leaf) continue;
      const Shape shape(i.dims);
      const bool mapped = axes.empty() || random() % 10 < 6;
      axes.push_back(mapped ? std::optional<int>(static_cast<int>(random() % (i.dims.size() + 1)))
                            : std::nullopt);
      for (std::uint64_t e = 0; e < leaves.size(); ++e)  // seeds of one kind: with infinities or without
        leaves[e].push_back(mapped || e == 0 ? test::leaf(shape, i.dtype, i.seed + 32 * e)
                                             : leaves[0].back());
    }
  }

  /// No shapes beyond the rank that one axis more allows, and few elements.
  bool suits() const {
    std::int64_t elements = 0;
    for (const Tensor& x : leaves[0]) elements += x.numel();
    return elements < 20000 && leaves[0].size() <= 4;
  }
  Tensors stacked() const {
    Tensors out;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      Tensors each;
      for (const Tensors& one : leaves) each.push_back(one[k]);
      out.push_back(axes[k] ? stack(each, *axes[k]).eval() : each[0]);
    }
    return out;
  }
  Tensors operator()(const Tensors& x) const {
    test::Program p = program;
    p.leaves = x;
    const std::vector<test::Value> values = test::record(p);
    Tensors out;
    for (const int o : p.outputs) out.push_back(values[static_cast<std::size_t>(o)].tensor);
    return out;
  }
  test::Result run(std::size_t example) const {
    test::Program p = program;
    p.leaves = leaves[example];
    return test::run(p);
  }
};

/// The results of one example among those of all, beside what a run of it gives.
test::Result example_among(const Tensors& all, const test::Result& like, std::int64_t example) {
  test::Result out = like;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tensor t = all[i](example);
    out.shapes[i] = t.shape();
    out.dtypes[i] = t.dtype();
    out.bytes[i].resize(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
    t.copy_to(out.bytes[i].data(), t.dtype());
  }
  return out;
}

struct Counts {
  int compared = 0, refused = 0;
};

/// `exactly`: all bits.
void compare(std::uint64_t seed, bool exactly, Counts& counts) {
  const Examples f(seed);
  if (!f.suits()) return;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Tensors all;
  try {
    all = mapped_call([&](const Tensors& x) { return f(x); }, f.stacked(), f.axes);
    eval(all);
  } catch (const UserError& e) {
    ++counts.refused;
    EXPECT_EQ(std::string(e.what()).substr(0, 6), "[vmap]") << e.what();
    return;
  }
  ++counts.compared;
  for (std::int64_t e = 0; e < f.count; ++e) {
    const test::Result want = f.run(static_cast<std::size_t>(e));
    test::Result bits = want;
    if (exactly)
      for (test::Value& v : bits.values) v.exact = true;
    const std::string wrong = test::difference(bits, example_among(all, want, e));
    EXPECT_EQ(wrong, "") << "example " << e << "\n" << test::to_cpp(f.program);
  }
}

TEST(VmapPrograms, AreTheirExamplesOneByOne) {
  const EngineScope scope(kVm);
  const std::uint64_t count = programs("KILN_TEST_VMAP", 400);
  Counts counts;
  for (std::uint64_t seed = 1; seed <= count; ++seed) compare(seed, false, counts);
  RecordProperty("compared", counts.compared);
  RecordProperty("refused", counts.refused);
  EXPECT_GT(counts.compared * 10, static_cast<int>(count * 6)) << "refused " << counts.refused;
}

TEST(VmapPrograms, HaveTheBitsOfTheirExamplesInTheStrictMode) {
  Config strict = config();
  strict.strict = true;
  strict.tier = Tier::Vm;
  const ScopedConfig scope(strict);
  const std::uint64_t count = programs("KILN_TEST_VMAP", 200);
  Counts counts;
  for (std::uint64_t seed = 1; seed <= count; ++seed) compare(seed, true, counts);
  EXPECT_GT(counts.compared * 10, static_cast<int>(count * 6)) << "refused " << counts.refused;
}

// ---- with derivatives ----

/// The gradients of the sum of all outputs.
Tensors gradients(const Differentiable& f, const Tensors& x) {
  const auto [y, pull] = vjp([&](const Tensors& at) { return f(at); }, x);
  Tensors u;
  for (const Tensor& result : y) u.push_back(ones_like(result));
  return pull(u);
}

void compare_gradients(std::uint64_t seed, Counts& counts) {
  const Differentiable f(seed, true);
  if (!f.suits()) return;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Tensors x;
  std::vector<Tensors> each(2);
  std::mt19937 random(static_cast<unsigned>(seed) + 2);
  try {
    for (const Tensor& leaf : f.leaves)
      x.push_back(stack({leaf, random_like(leaf, random, -3, 3)}, 0).eval());
    for (std::int64_t e = 0; e < 2; ++e) {
      Tensors one;
      for (const Tensor& leaf : x) one.push_back(leaf(e));
      each[static_cast<std::size_t>(e)] = gradients(f, one);
    }
    const Tensors inside = vmap([&](const Tensors& at) { return gradients(f, at); })(x);
    const auto mapped = vmap([&](const Tensors& at) { return f(at); });
    const auto [y, pull] = vjp([&](const Tensors& at) { return mapped(at); }, x);
    Tensors u;
    for (const Tensor& result : y) u.push_back(ones_like(result));
    const Tensors outside = pull(u);
    ++counts.compared;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const Tensor want = stack({each[0][k], each[1][k]}, 0);
      const double most = want.numel() ? max(abs(want)).item<double>() : 0;
      const double least = 1e-11 * (1 + (std::isfinite(most) ? most : 0));
      EXPECT_TRUE(allclose(inside[k], want, 1e-9, least, true)) << inside[k] << want;
      EXPECT_TRUE(allclose(outside[k], want, 1e-9, least, true)) << outside[k] << want;
    }
  } catch (const UserError&) {
    ++counts.refused;
  }
}

TEST(VmapPrograms, OfGradientsAndGradientsOfThem) {
  const EngineScope scope(kVm);
  const std::uint64_t count = programs("KILN_TEST_VMAP", 200);
  Counts counts;
  for (std::uint64_t seed = 1; seed <= count; ++seed) compare_gradients(seed, counts);
  RecordProperty("compared", counts.compared);
  RecordProperty("refused", counts.refused);
  EXPECT_GT(counts.compared * 2, static_cast<int>(count)) << "refused " << counts.refused;
}

}  // namespace
}  // namespace kiln
