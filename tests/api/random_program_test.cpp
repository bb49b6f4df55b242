// Random programs of views, elementwise operations, reductions and products, under every mode.
//
// Values are small whole numbers kept in [-8, 8], so that every result is exact in whatever order it is
// computed, and modes must agree bit for bit. A failure names the seed; the program is a function of it
// alone.
#include "api/expect.h"
#include "modes.h"

#include <algorithm>
#include <cstring>

namespace kiln {
namespace {

class Program {
 public:
  Program(std::uint64_t seed, DType dtype) : state_(seed * 0x9e3779b97f4a7c15ull + 99), dtype_(dtype) {}

  /// Runs the program under the mode in force; the values of some of its tensors.
  std::vector<Tensor> run() {
    for (int i = 0; i < 3; ++i) pool_.push_back(input());
    const int steps = 4 + static_cast<int>(next(14));
    for (int i = 0; i < steps; ++i) {
      Tensor made = step();
      if (made.numel() <= 4096) pool_.push_back(bounded(made));
    }
    std::vector<Tensor> out;
    for (std::size_t i = 0; i < pool_.size(); ++i)
      if (i + 1 == pool_.size() || next(4) == 0) out.push_back(pool_[i]);
    return out;
  }

 private:
  std::uint64_t next(std::uint64_t below) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return (state_ >> 33) % below;
  }
  const Tensor& any() { return pool_[pool_.size() - 1 - next(std::min<std::uint64_t>(pool_.size(), 5))]; }
  int axis(const Tensor& x) { return static_cast<int>(next(static_cast<std::uint64_t>(x.rank()))); }
  Tensor bounded(const Tensor& x) { return clip(x.astype(dtype_), -8, 8); }

  Tensor input() {
    Shape shape;
    const std::uint64_t rank = next(4);
    for (std::uint64_t i = 0; i < rank; ++i) {
      static constexpr std::int64_t kExtents[] = {1, 2, 3, 5, 8, 17, 33, 0};
      shape.push_back(kExtents[next(next(8) == 0 ? 8 : 7)]);
    }
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (double& v : values) v = static_cast<double>(next(17)) - 8;
    return Tensor::from(values, shape).astype(dtype_).eval();
  }

  /// A second operand that broadcasts with x.
  Tensor partner(const Tensor& x) {
    for (int tries = 0; tries < 3; ++tries) {
      const Tensor& y = any();
      bool fits = true;
      for (int i = 1; i <= std::min(x.rank(), y.rank()) && fits; ++i)
        fits = x.dim(-i) == y.dim(-i) || x.dim(-i) == 1 || y.dim(-i) == 1;
      if (fits) return y;
    }
    return x;
  }

  Tensor step() {
    const Tensor x = any();
    switch (next(22)) {
      case 0: return x + partner(x);
      case 1: return x - partner(x);
      case 2: return x * partner(x);
      case 3: return maximum(x, partner(x));
      case 4: return where(x > partner(x), x, static_cast<int>(next(9)));
      case 5: return static_cast<int>(next(5)) - x;
      case 6: return abs(x) * 2 + 1;
      case 7: return sign(x) + (x == partner(x)).astype(dtype_);
      case 8: return x.rank() ? flip(x, axis(x)) : -x;
      case 9: return transpose(x);
      case 10: return x.reshape({-1 + (x.numel() == 0 ? 1 : 0)});
      case 11: return expand_dims(x, static_cast<int>(next(static_cast<std::uint64_t>(x.rank() + 1))));
      case 12: {
        if (x.rank() == 0) return x;
        const int a = axis(x);
        std::vector<Slice> parts(static_cast<std::size_t>(x.rank()));
        const std::int64_t from = static_cast<std::int64_t>(next(4)),
                           step = static_cast<std::int64_t>(next(3)) + 1;
        parts[static_cast<std::size_t>(a)] = next(2) ? range(from, none, step) : range(none, from, -step);
        return x.index(parts);
      }
      case 13: {
        std::vector<std::pair<std::int64_t, std::int64_t>> widths;
        for (int i = 0; i < x.rank(); ++i)
          widths.push_back({static_cast<std::int64_t>(next(3)), static_cast<std::int64_t>(next(3))});
        return pad(x, widths, static_cast<int>(next(5)));
      }
      case 14: return x.rank() ? concat({x, x + 1}, axis(x)) : stack({x, x});
      case 15: return x.rank() ? roll(x, static_cast<std::int64_t>(next(7)), axis(x)) : x;
      case 16: return x.rank() ? sum(x, axis(x), next(2) != 0) : sum(x);
      case 17: return x.rank() && x.numel() != 0 ? max(x, axis(x), next(2) != 0) : x;
      case 18: return x.numel() != 0 ? argmax(x.reshape({-1})) : x;
      case 19: {
        if (x.rank() == 0) return x;
        Tensor y = x;
        std::vector<Slice> parts(static_cast<std::size_t>(x.rank()));
        parts[static_cast<std::size_t>(axis(x))] = range(none, none, next(2) ? 2 : -2);
        return slice_update(y, parts, static_cast<int>(next(9)));
      }
      case 20: return x.rank() >= 2 ? matmul(x, matrix_transpose(x)) : tile(x, Shape{2});
      default:
        return x.rank() >= 2 && next(2) ? tril(x, static_cast<std::int64_t>(next(3)) - 1)
                                        : repeat(x.reshape({1, x.numel()}), 2, 0);
    }
  }

  std::uint64_t state_;
  DType dtype_;
  std::vector<Tensor> pool_;
};

/// What a program computes under the mode in force.
std::vector<std::vector<std::byte>> values_of(std::uint64_t seed, DType dtype, std::vector<Shape>& shapes) {
  std::vector<std::vector<std::byte>> out;
  shapes.clear();
  try {
    const std::vector<Tensor> values = Program(seed, dtype).run();
    eval(values);
    for (const Tensor& t : values) {
      out.emplace_back(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
      t.copy_to(out.back().data(), t.dtype());
      shapes.push_back(t.shape());
    }
  } catch (const Error& e) {
    ADD_FAILURE() << "seed " << seed << ": " << e.what();
  }
  return out;
}

/// -0 and 0 are one value here: sums and products of whole numbers may give either.
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b, DType dtype) {
  if (a.size() != b.size()) return false;
  return dispatch(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < a.size() / sizeof(T); ++i) {
      T x, y;
      std::memcpy(&x, a.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&y, b.data() + i * sizeof(T), sizeof(T));
      if (!(x == y)) return false;
    }
    return true;
  });
}

class RandomPrograms : public ::testing::TestWithParam<DType> {};

TEST_P(RandomPrograms, AgreeUnderEveryMode) {
  constexpr std::uint64_t kPrograms = 150;
  std::size_t elements = 0, outputs = 0, varied = 0;
  for (std::uint64_t seed = 1; seed <= kPrograms; ++seed) {
    std::vector<Shape> shapes, lazy_shapes;
    const auto want = [&] {
      const testing::ModeScope scope(Mode::Interpret);
      return values_of(seed, GetParam(), shapes);
    }();
    for (const auto& v : want) {
      elements += v.size() / static_cast<std::size_t>(size_of(GetParam()));
      ++outputs;
      varied += std::any_of(v.begin(), v.end(), [&](std::byte b) { return b != v.back(); });
    }
    for (const testing::Engine& e : testing::kEngines) {
      const testing::EngineScope scope(e);
      const auto have = values_of(seed, GetParam(), lazy_shapes);
      ASSERT_EQ(have.size(), want.size()) << "seed " << seed;
      for (std::size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(lazy_shapes[i].str(), shapes[i].str()) << "seed " << seed;
        EXPECT_TRUE(same(have[i], want[i], GetParam()))
            << "seed " << seed << ", output " << i << " of shape " << shapes[i].str() << ", " << e.name;
      }
    }
  }
  EXPECT_GT(varied, outputs / 2) << "the programs should compute something";
  RecordProperty("elements", static_cast<int>(elements));
}

INSTANTIATE_TEST_SUITE_P(DTypes, RandomPrograms,
                         ::testing::Values(DType::Float32, DType::Int32, DType::BFloat16),
                         [](const auto& param) { return std::string(name(param.param)); });

}  // namespace
}  // namespace kiln
