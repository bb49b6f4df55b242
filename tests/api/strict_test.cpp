// The strict and the deterministic mode: equal bits, not nearly equal values. What differs in sign or payload
// of a NaN alone counts as equal.
#include "api/expect.h"
#include "api/record.h"
#include "ir/op.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

namespace kiln {
namespace {

using Program = std::function<std::vector<Tensor>()>;
using Bits = std::vector<std::vector<std::byte>>;

/// Options for the life of a scope.
class Options {
 public:
  explicit Options(const std::function<void(Config&)>& change) : before_(config()) {
    Config c = before_;
    change(c);
    configure(c);
  }
  ~Options() { configure(before_); }

 private:
  Config before_;
};

std::vector<std::byte> bits_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  if (is_float(t.dtype()))
    dispatch(t.dtype(), [&]<class T>() {
      for (std::size_t at = 0; at < out.size(); at += sizeof(T)) {
        T x;
        std::memcpy(&x, out.data() + at, sizeof(T));
        if (x != x) std::memset(out.data() + at, 0xff, sizeof(T));
      }
    });
  return out;
}

Bits run(const Program& program) {
  const std::vector<Tensor> values = program();
  eval(values);
  Bits out;
  for (const Tensor& t : values) out.push_back(bits_of(t));
  return out;
}

struct Way {
  const char* name;
  Mode mode;
  Tier tier;
  int threads;
};
constexpr Way kWays[] = {{"fused", Mode::Lazy, Tier::Jit, 0},
                         {"op by op", Mode::Eager, Tier::Jit, 0},
                         {"fused by the vm", Mode::Lazy, Tier::Vm, 0},
                         {"op by op by the vm", Mode::Eager, Tier::Vm, 0},
                         {"fused on three threads", Mode::Lazy, Tier::Jit, 3}};

Bits strictly(const Way& way, const Program& program) {
  const Options scope([&](Config& c) {
    c.strict = true;
    c.mode = way.mode;
    if (c.tier != Tier::Vm) c.tier = way.tier;  // else there is no compiler, or shall be none
    c.num_threads = way.threads;
  });
  return run(program);
}

std::string difference(const Bits& a, const Bits& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < a[i].size(); ++k)
      if (a[i][k] != b[i][k]) return cat("result ", i, ", byte ", k, " of ", a[i].size());
  return {};
}

/// The program gives the same bits in whatever way the strict mode runs it (in the first `ways` of them).
/// Returns them.
Bits expect_alike(const std::string& what, const Program& program, std::size_t ways = std::size(kWays)) {
  const Bits first = strictly(kWays[0], program);
  for (const Way& way : std::span(kWays).first(ways).subspan(1))
    EXPECT_EQ(difference(first, strictly(way, program)), "") << what << ", " << way.name;
  return first;
}

/// Values all over [lo, hi], whole numbers, and special ones where `specials`.
Tensor values(DType dtype, const Shape& shape, double lo, double hi, std::uint64_t seed,
              bool specials = false) {
  std::uint64_t state = seed * 977 + 5;
  std::vector<double> v(static_cast<std::size_t>(shape.numel()));
  for (double& x : v) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t kind = (state >> 59);
    x = lo + (hi - lo) * static_cast<double>(state >> 11 & 0xffffffffffff) / 0x1p48;
    if (kind == 0) x = std::floor(x);
    if (specials && kind == 1) x = 0.0;
    if (specials && kind == 2) x = -0.0;
    if (specials && kind == 3 && (state >> 40) % 4 == 0) x = (state >> 50) % 2 ? INFINITY : -INFINITY;
    if (specials && kind == 4 && (state >> 40) % 4 == 0) x = NAN;
    if (specials && kind == 5) x *= 1e-40;
  }
  return Tensor::from(v, shape).astype(dtype).eval();
}

// ---- elementwise ----

class StrictOps : public ::testing::TestWithParam<int> {};

/// Whether results tell the sign of a NaN, which is anything.
bool shows_sign(ir::Op op) {
  return op == ir::Op::signbit || op == ir::Op::copysign || op == ir::Op::to_float8_e4m3fn ||
         op == ir::Op::to_float8_e5m2;
}

/// Between other operations, which would like to fuse with it, and over rows whose results are single values.
TEST_P(StrictOps, HaveTheBitsTheyHaveAlone) {
  const ir::Op op = static_cast<ir::Op>(GetParam());
  const ir::OpInfo& row = ir::info(op);
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    const std::uint8_t bit = is_bool(dtype) ? ir::BOOL : is_float(dtype) ? ir::FLOAT : ir::INTEGER;
    const bool converts = row.rule == ir::TypeRule::Float || row.rule == ir::TypeRule::Logical;
    if (!converts && (row.types & bit) == 0) continue;
    if (converts && is_int(dtype) && dtype != DType::Int32) continue;  // one conversion is like another
    expect_alike(
        cat(row.name, " of ", name(dtype)),
        [&] {
          const SourceLocation loc = SourceLocation::current();
          const auto apply = [&](const Tensor& x, const Tensor& y) {
            if (row.arity == 1) return api::elementwise(op, x, loc);
            if (row.arity == 2) return api::elementwise(op, x, y, loc);
            return api::elementwise(op, x == y, x, y, loc);
          };
          const bool counts = !is_bool(dtype);
          Tensor x = values(dtype, {5, 37}, row.lo, row.hi, 1, true),
                 y = values(dtype, {5, 37}, row.lo, row.hi, 2, true);
          if (counts) x = x * y + x;
          const Tensor made = apply(x, y);
          Tensor after = made;
          if (!is_bool(made.dtype())) after = made * made - x;
          Tensor rows = counts ? sum(x, 1, true) : x;  // one value a row, computed apart from the lanes
          if (shows_sign(op)) rows = where(rows == rows, rows, 1);
          return std::vector<Tensor>{made, after, sum(after, 1), apply(rows, rows)};
        },
        is_float(dtype) ? 3 : 2);
  }
}

std::vector<int> elementwise_ops() {
  std::vector<int> out;
  for (int i = 0; i < ir::kOpCount; ++i)
    if (ir::kOpInfo[i].kind == ir::OpKind::Elementwise) out.push_back(i);
  return out;
}
INSTANTIATE_TEST_SUITE_P(OpTable, StrictOps, ::testing::ValuesIn(elementwise_ops()),
                         [](const auto& param) { return std::string(ir::kOpInfo[param.param].name); });

constexpr DType kFloats[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};

TEST(Strict, HalvesRoundAfterEveryOperation) {
  for (DType dtype : {DType::Float16, DType::BFloat16}) {
    const Tensor x = values(dtype, {1000}, -3, 3, 1), y = values(dtype, {1000}, -3, 3, 2),
                 z = values(dtype, {1000}, -3, 3, 3);
    const Bits have = expect_alike("x * y + z", [&] { return std::vector<Tensor>{x * y + z}; });
    const auto f = [](const Tensor& t) { return t.astype(DType::Float32).to_vector<float>(); };
    const std::vector<float> a = f(x), b = f(y), c = f(z);
    dispatch(dtype, [&]<class T>() {
      if constexpr (is_half(dtype_of<T>))
        for (std::size_t i = 0; i < a.size(); ++i) {
          const T product(a[i] * b[i]), total(static_cast<float>(product) + c[i]);
          EXPECT_EQ(std::memcmp(&total, have[0].data() + i * sizeof(T), sizeof(T)), 0) << i;
        }
    });
  }
}

TEST(Strict, NothingIsContracted) {
  const Tensor x = values(DType::Float32, {4099}, -3, 3, 1), y = values(DType::Float32, {4099}, -3, 3, 2);
  const Bits have = expect_alike("x * y + x", [&] { return std::vector<Tensor>{x * y + x, x - x * y}; });
  const std::vector<float> a = x.to_vector<float>(), b = y.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const volatile float product = a[i] * b[i];
    const float sums[] = {product + a[i], a[i] - product};
    for (int k = 0; k < 2; ++k)
      EXPECT_EQ(std::memcmp(&sums[k], have[static_cast<std::size_t>(k)].data() + 4 * i, 4), 0) << i;
  }
}

// ---- reductions ----

std::vector<Tensor> all_reductions(const Tensor& x, const Axes& axes) {
  return {sum(x, axes), prod(x * 0.001 + 1.0, axes), mean(x, axes),
          var(x, axes), logsumexp(x, axes),          max(x, axes),
          min(x, axes)};
}

std::vector<int> axes_of(int mask, int rank) {
  std::vector<int> axes;
  for (int a = 0; a < rank; ++a)
    if ((mask >> a) & 1) axes.push_back(a);
  return axes;
}

TEST(Strict, ReductionsOverAnyAxesHaveOneOrder) {
  for (DType dtype : {DType::BFloat16, DType::Float32, DType::Float64})
    for (const Shape& shape : {Shape{2, 3, 5}, Shape{3, 1100}, Shape{1100, 3}, Shape{40, 7, 60},
                               Shape{2, 16400}, Shape{5, 4, 3, 6}})
      for (int mask = 1; mask < (1 << shape.rank()); ++mask)
        expect_alike(cat(name(dtype), " ", shape.str(), " mask ", mask), [&] {
          const Tensor x = values(dtype, shape, -2, 3, 7);
          return all_reductions(x, Axes(axes_of(mask, shape.rank())));
        });
}

TEST(Strict, ReductionsOfEveryExtent) {
  for (std::int64_t n :
       {1, 2, 3, 15, 16, 17, 31, 33, 63, 100, 1023, 1024, 1025, 4097, 16383, 16384, 16385, 40000, 140001})
    for (const Shape& shape : {Shape{n}, Shape{3, n}, Shape{n, 3}, Shape{n, 40}, Shape{2, n, 2}}) {
      if (shape.numel() > 600000) continue;
      for (int a = 0; a < shape.rank(); ++a)
        expect_alike(cat(shape.str(), " axis ", a), [&] {
          const Tensor x = values(DType::Float32, shape, -2, 3, 11);
          return std::vector<Tensor>{sum(x, a), sum(x * x + x, a), argmax(x, a), max(x, a),
                                     sum(x.astype(DType::Float64), a)};
        });
    }
}

TEST(Strict, ReductionsOfViewsAndBroadcastsHaveTheOrderOfTheirExtents) {
  for (DType dtype : {DType::Float16, DType::Float32, DType::Float64}) {
    const Tensor x = values(dtype, {12, 50, 30}, -2, 3, 1), row = values(dtype, {30}, -1, 1, 2),
                 column = values(dtype, {50, 1}, -1, 1, 3);
    expect_alike(cat(name(dtype)), [&] {
      const Tensor turned = permute_dims(x, {2, 0, 1}), flipped = flip(x),
                   every = x(range(none, none, 2), slice::all(), range(none, none, -3));
      std::vector<Tensor> out;
      for (const Tensor& t :
           {x + row, x * column, turned, flipped, every, turned + permute_dims(x, {2, 0, 1}) * 2.0})
        for (int mask = 1; mask < 8; ++mask) out.push_back(sum(t * t, Axes(axes_of(mask, 3))));
      out.push_back(sum(x.reshape({600, 30}), 0));
      out.push_back(sum(x.reshape({12, 1500}), 1));
      out.push_back(sum((x + row).reshape({12, 1500}), 1));
      out.push_back(sum(pad(x, {{1, 2}, {0, 0}, {3, 1}}, 1), Axes{0, 2}));
      return out;
    });
  }
}

bool on_gpu() { return config().device.starts_with("cuda"); }

/// As a plain loop says it: the order is documented.
TEST(Strict, TheOrderOfARowIsBlocksOfSixteenLanesCombinedByHalves) {
  const std::int64_t n = 1000;
  const Tensor x = values(DType::Float32, {3, n}, -2, 3, 5);
  const std::vector<float> v = x.to_vector<float>();
  const Bits have = expect_alike("sum", [&] {
    return std::vector<Tensor>{sum(x, 1), sum(x.T(), 0), sum(x(range(0, 3), range(0, 12)), 1)};
  });
  for (std::int64_t r = 0; r < 3; ++r) {
    double sum = 0;
    for (std::int64_t block = 0; block < n; block += 512) {
      float lanes[16] = {};
      for (std::int64_t i = block; i < std::min(n, block + 512); ++i)
        lanes[i % 16] += v[static_cast<std::size_t>(r * n + i)];
      for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      sum += lanes[0];
    }
    const float by_lanes = static_cast<float>(sum);
    if (!on_gpu()) {  // which has lanes of its own
      EXPECT_EQ(std::memcmp(&by_lanes, have[0].data() + 4 * r, 4), 0) << r;
    }
    sum = 0;
    for (std::int64_t block = 0; block < n; block += 32) {
      float one_by_one = 0;
      for (std::int64_t i = block; i < std::min(n, block + 32); ++i)
        one_by_one += v[static_cast<std::size_t>(r * n + i)];
      sum += one_by_one;
    }
    const float in_order = static_cast<float>(sum);
    EXPECT_EQ(std::memcmp(&in_order, have[1].data() + 4 * r, 4), 0) << r;
    float few = 0;
    for (std::int64_t i = 0; i < 12; ++i) few += v[static_cast<std::size_t>(r * n + i)];
    EXPECT_EQ(std::memcmp(&few, have[2].data() + 4 * r, 4), 0) << r;
  }
}

TEST(Strict, NormalisationsEqualTheirStepsOneByOne) {
  for (DType dtype : kFloats)
    for (const Shape& shape :
         {Shape{7, 5}, Shape{33, 65}, Shape{3, 1500}, Shape{2, 20000}, Shape{4, 6, 9, 8}})
      expect_alike(cat(name(dtype), " ", shape.str()), [&] {
        const Tensor x = values(dtype, shape, -4, 4, 3),
                     w = values(dtype, {shape[shape.rank() - 1]}, 0, 2, 4);
        std::vector<Tensor> out{nn::softmax(x),          nn::softmax(x, 0),  nn::log_softmax(x),
                                nn::layer_norm(x, w, w), nn::rms_norm(x, w), std(x, 0),
                                x / sum(x, -1, true)};
        if (shape.rank() == 4) out.push_back(nn::batch_norm_training(x, {}, {}, 1e-5, 1));
        return out;
      });
}

// ---- the rest ----

TEST(Strict, Scans) {
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{5}, Shape{40000}, Shape{3, 300}, Shape{300, 3}, Shape{4, 50, 6}})
      expect_alike(cat(name(dtype), " ", shape.str()), [&] {
        const Tensor x = values(dtype, shape, -1, 1, 3);
        std::vector<Tensor> out;
        for (int a = 0; a < shape.rank(); ++a) {
          const Tensor c = cumsum(x * 0.5, a);
          out.insert(out.end(), {c, cumprod(1.0 + x * 0.01, a) - c, sum(c, a), cummax(x, a) * c});
          const Tensor r = cumsum(x * 0.5, a, a == 1, true);
          out.insert(out.end(), {r, r * 3.0 + x, cumprod(1.0 + x * 0.01, a, false, true) - r, r + c,
                                 sum(r, a), cummin(r, a, false, true), logcumsumexp(x * 8.0, a),
                                 logcumsumexp(x * 8.0, a, a == 1, true)});
        }
        return out;
      });
}

/// Rows of whole cache lines of one type and not of the other: neither store may count on more than it has.
TEST(Strict, LargeResultsOfTwoWidths) {
  for (const bool reverse : {false, true})
    expect_alike(cat("reverse ", reverse), [&] {
      const Tensor x = values(DType::Float64, {1100, 1000}, -1, 1, 3), c = cumsum(x, 1, false, reverse);
      return std::vector<Tensor>{c, c.astype(DType::Float32), c.astype(DType::Float16)};
    });
}

TEST(Strict, ProductsAddOneByOneWithKAscending) {
  for (DType dtype : kFloats)
    for (const auto& [m, k, n] :
         {std::tuple{1, 700, 1}, {1, 33, 50}, {50, 33, 1}, {37, 1000, 29}, {3, 5, 2}, {70, 64, 70}}) {
      const Tensor a = values(dtype, {m, k}, -1, 1, 1), b = values(dtype, {k, n}, -1, 1, 2);
      const Tensor at = (a.T() * 1.0).eval(), bt = (b.T() * 1.0).eval();
      const Bits have = expect_alike(cat(name(dtype), " ", m, " ", k, " ", n), [&] {
        return std::vector<Tensor>{matmul(a, b), matmul(at.T(), bt.T()), matmul(a * 2.0, b) + 1.0,
                                   matmul(stack({a, a}), b)};
      });
      EXPECT_EQ(have[0], have[1]);
      if (on_gpu() && m == 1 && n == 1) continue;  // a row
      const auto check = [&]<class C>(C) {
        const std::vector<double> x = a.astype(DType::Float64).to_vector<double>(),
                                  y = b.astype(DType::Float64).to_vector<double>();
        std::vector<double> want;
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j) {
            double total = 0;  // of blocks, which a CPU's products have one of
            for (int first = 0, block = on_gpu() ? 32 : k; first < k; first += block) {
              C in_order = 0;
              for (int p = first; p < std::min(k, first + block); ++p) {
                const volatile C product = static_cast<C>(x[static_cast<std::size_t>(i * k + p)]) *
                                           static_cast<C>(y[static_cast<std::size_t>(p * n + j)]);
                in_order += product;
              }
              total += static_cast<double>(in_order);
            }
            want.push_back(static_cast<double>(static_cast<C>(total)));
          }
        EXPECT_EQ(bits_of(Tensor::from(want, {m, n}).astype(dtype)), have[0])
            << name(dtype) << " " << m << " " << k << " " << n;
      };
      dtype == DType::Float64 ? check(0.0) : check(0.0f);
    }
}

TEST(Strict, LoopsInsideAndOutsideOfKernels) {
  for (DType dtype : kFloats)
    expect_alike(cat(name(dtype)), [&] {
      const Tensor x = values(dtype, {500}, 0.1, 2, 3);
      const Tensors states =
          while_loop([](const Tensors& s) { return s[0] < 1000.0; },
                     [](const Tensors& s) { return Tensors{s[0] * s[0] * 0.75 + 1.0, s[1] + exp(-s[0])}; },
                     {x, x * 0.5});
      const Tensors whole =
          while_loop([](const Tensors& s) { return sum(s[0]) < 5000.0; },
                     [](const Tensors& s) { return Tensors{s[0] * 1.5 + mean(s[0])}; }, {x});
      return std::vector<Tensor>{states[0], states[1] * 2.0 + x, whole[0]};
    });
}

TEST(Strict, AFunctionOfTheNegativeIsNoOtherFunction) {
  for (DType dtype : kFloats)
    expect_alike(cat(name(dtype)), [&] {
      const Tensor x = values(dtype, {3000}, -30, 30, 3, true), y = values(dtype, {3000}, -30, 30, 4, true);
      std::vector<Tensor> out;
      for (auto f : {&sin, &tan, &asin, &atan, &sinh, &tanh, &asinh, &atanh, &erf, &cos, &cosh})
        out.push_back(f(-x, SourceLocation::current()) + f(x, SourceLocation::current()));
      out.insert(out.end(), {-x * y, x * -y, -x / y, x + -y, -x + y, x - -y});
      return out;
    });
}

TEST(Strict, RandomDraws) {
  expect_alike("draws", [&] {
    const random::Key key(7);
    std::vector<Tensor> out;
    for (DType dtype : kFloats)
      for (const Tensor& t : {random::normal(key, {300}, dtype), random::exponential(key, {301}, dtype),
                              random::uniform(key, {77}, dtype)})
        out.insert(out.end(), {t, sum(t * t)});
    return out;
  });
}

// ---- deterministic ----

TEST(Deterministic, BitsDoNotDependOnThreadsOrOnWhoRunsAKernel) {
  const Program program = [] {
    std::vector<Tensor> out;
    for (DType dtype : kFloats) {
      for (const Shape& shape :
           {Shape{100000}, Shape{3, 70000}, Shape{70000, 3}, Shape{60, 900}, Shape{2000, 40}}) {
        const Tensor x = values(dtype, shape, -2, 2, 5);
        for (int a = 0; a < shape.rank(); ++a)
          out.insert(out.end(), {sum(x * x + x, a), mean(tanh(x), a), nn::softmax(x, a), logsumexp(x, a),
                                 cumsum(x, a), logcumsumexp(x, a)});
        out.insert(out.end(), {sum(sin(x)), var(x), x / (1.0 + exp(-x)), pow(abs(x) + 0.5, x)});
      }
      const Tensor a = values(dtype, {90, 300}, -1, 1, 1), b = values(dtype, {300, 80}, -1, 1, 2);
      out.push_back(matmul(a, b));
      out.push_back(matmul(a, b(slice::all(), 0)));
    }
    return out;
  };
  Bits first;
  for (int threads : {1, 3, 8})
    for (Tier tier : {Tier::Jit, Tier::Vm, Tier::Auto}) {
      const Options scope([&](Config& c) {
        c.deterministic = true;
        c.num_threads = threads;
        if (c.tier != Tier::Vm) c.tier = tier;
      });
      const Bits have = run(program);
      if (first.empty()) first = have;
      EXPECT_EQ(difference(first, have), "") << threads << " threads, tier " << static_cast<int>(tier);
      wait_for_compiles();
    }
}

}  // namespace
}  // namespace kiln
