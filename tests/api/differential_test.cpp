// Every elementwise op on every dtype and on awkward shapes: fused, op by op, and the oracle give the same
// values within tests/tolerance.h. Cases come from ops.def; a new entry is tested without a line here.
#include "api/expect.h"
#include "api/record.h"
#include "ir/op.h"
#include "modes.h"
#include "tolerance.h"

#include <algorithm>
#include <cstring>

namespace kiln {
namespace {

using testing::Engine;
using testing::EngineScope;
using testing::kEngines;
using testing::ModeScope;
using testing::tolerance_ulp;
using testing::ulp_distance;

/// A small generator with fixed seeds: the same operands in every run and mode.
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 16;
  }
  double unit() { return static_cast<double>(next() % (1u << 24)) / (1u << 24); }
};

/// Operands of an op: its interval, small whole numbers (ties, zero divisors, shifts) and every special
/// value.
Tensor operands(DType dtype, const Shape& shape, double lo, double hi, std::uint64_t seed) {
  Random random{seed * 977 + 5};
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.numel() * size_of(dtype)) + 1);
  dispatch(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      const std::uint64_t kind = random.next() % 8;
      T value{};
      if constexpr (is_float(dtype_of<T>)) {
        const double least = dtype_of<T> == DType::Float64   ? 5e-324
                             : dtype_of<T> == DType::Float16 ? 6e-8
                                                             : 1e-40;
        const double special[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, NAN,    1,     -1,   0.5,   -0.5, 1.5,
                                  2.5, lo,   hi,       least,     -least, 65504, 3e38, -3e38, 1e-5, -3.0};
        double v = lo + (hi - lo) * random.unit();
        if (kind == 0) v = static_cast<double>(static_cast<int>(random.next() % 9) - 4);
        if (kind == 1) v = special[random.next() % std::size(special)];
        if constexpr (sizeof(T) == 8)
          value = v;
        else
          value = T(static_cast<float>(v));
      } else if constexpr (std::is_same_v<T, bool>) {
        value = random.next() & 1;
      } else {
        const std::uint64_t bits = random.next() * 0x9e3779b97f4a7c15ull;
        const T edges[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), static_cast<T>(-1),
                           T(0)};
        value = kind < 4   ? static_cast<T>(static_cast<int>(random.next() % 21) - 10)
                : kind < 6 ? edges[random.next() % 4]
                           : static_cast<T>(bits >> 17);
      }
      std::memcpy(bytes.data() + i * size_of(dtype), &value, sizeof(T));
    }
  });
  return Tensor::copy_of(bytes.data(), shape, dtype);
}

struct Case {
  std::string name;
  Tensor value;
};

/// The op over operands of every layout. Runs under the mode in force.
class Cases {
 public:
  Cases(ir::Op op, DType dtype) : op_(op), row_(ir::info(op)), dtype_(dtype) {}

  std::vector<Case> all() {
    const Shape odd{3, 37};
    add("contiguous", {at(odd, 1), at(odd, 2), at(odd, 3)});
    add("strided", {view(at({37, 7}, 4)), at(odd, 5), view(at({37, 7}, 6))});
    add("broadcast", {at({3, 1}, 7), at({37}, 8), at({1}, 9)});
    add("one element", {at({1}, 10), at({1}, 11), at({1}, 12)});
    add("rank 0", {at({}, 13), at({}, 14), at({}, 15)});
    add("empty", {at({0, 3}, 16), at({3}, 17), at({1, 3}, 18)});
    if (row_.arity >= 2) {
      add("repeated row", {at(odd, 19), broadcast_to(at({37}, 20), odd), at(odd, 21)});
      add("turned", {flip(at(odd, 22)), at(odd, 23), flip(at(odd, 24), 0)});
    }
    return std::move(cases_);
  }

 private:
  Tensor at(const Shape& shape, std::uint64_t seed) const {
    return operands(dtype_, shape, row_.lo, row_.hi, seed);
  }
  /// (37, 7) as (3, 37): every second column, backward, transposed.
  static Tensor view(const Tensor& x) { return x(all_of(), range(5, none, -2)).T(); }
  static Slice all_of() { return {}; }

  void add(const char* name, const Tensor (&in)[3]) {
    const SourceLocation loc = SourceLocation::current();
    Tensor out;
    if (row_.arity == 1) out = api::elementwise(op_, in[0], loc);
    if (row_.arity == 2) out = api::elementwise(op_, in[0], in[1], loc);
    if (row_.arity == 3) out = api::elementwise(op_, in[0] == in[1], in[1], in[2], loc);
    cases_.push_back({name, out});
    if (row_.arity == 2 && !is_bool(dtype_)) {
      cases_.push_back({std::string(name) + ", number right", api::elementwise(op_, in[0], Scalar(2), loc)});
      cases_.push_back({std::string(name) + ", number left", api::elementwise(op_, Scalar(3), in[1], loc)});
    }
  }

  ir::Op op_;
  const ir::OpInfo& row_;
  DType dtype_;
  std::vector<Case> cases_;
};

std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.numel() * size_of(t.dtype())));
  t.copy_to(out.data(), t.dtype());
  return out;
}

/// The values of every case under the mode in force: lazily all in one evaluation, so that kernels have
/// several outputs.
std::vector<std::vector<std::byte>> run(ir::Op op, DType dtype, std::vector<Case>* kept = nullptr) {
  std::vector<Case> cases = Cases(op, dtype).all();
  std::vector<Tensor> values;
  for (const Case& c : cases) values.push_back(c.value);
  eval(values);
  std::vector<std::vector<std::byte>> out;
  for (const Case& c : cases) out.push_back(bytes_of(c.value));
  if (kept) *kept = cases;
  return out;
}

void compare(const Case& c, ir::Op op, DType operand, const char* mode, const std::vector<std::byte>& have,
             const std::vector<std::byte>& want) {
  ASSERT_EQ(have.size(), want.size());
  const DType stored = c.value.dtype();
  const int allowed = tolerance_ulp(op, stored);
  int reported = 0;
  dispatch(stored, [&]<class T>() {
    for (std::size_t i = 0; i < have.size() / sizeof(T) && reported < 3; ++i) {
      T a, b;
      std::memcpy(&a, have.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&b, want.data() + i * sizeof(T), sizeof(T));
      const double x = static_cast<double>(a), y = static_cast<double>(b);
      const bool good = is_float(stored)
                            ? ulp_distance(x, y, stored) <= allowed || (x == y && testing::either_zero(op))
                            : a == b;
      if (good) continue;
      ++reported;
      ADD_FAILURE() << ir::info(op).name << " of " << name(operand) << ", " << c.name << ", " << mode
                    << ": element " << i << " of " << c.value.shape().str() << " is " << x
                    << ", the oracle has " << y << " (" << ulp_distance(x, y, stored) << " ulp, allowed "
                    << allowed << ")";
    }
  });
}

class EveryOp : public ::testing::TestWithParam<int> {};

TEST_P(EveryOp, AgreesWithTheOracle) {
  const ir::Op op = static_cast<ir::Op>(GetParam());
  const ir::OpInfo& row = ir::info(op);
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    const std::uint8_t bit = is_bool(dtype) ? ir::BOOL : is_float(dtype) ? ir::FLOAT : ir::INTEGER;
    const bool converts = row.rule == ir::TypeRule::Float || row.rule == ir::TypeRule::Logical;
    if (!converts && (row.types & bit) == 0) continue;
    std::vector<Case> cases;
    std::vector<std::vector<std::byte>> want;
    {
      const ModeScope scope(Mode::Interpret);
      want = run(op, dtype);
    }
    for (const Engine& e : kEngines) {
      const EngineScope scope(e);
      const auto have = run(op, dtype, &cases);
      for (std::size_t i = 0; i < cases.size(); ++i) compare(cases[i], op, dtype, e.name, have[i], want[i]);
    }
  }
}

std::vector<int> elementwise_ops() {
  std::vector<int> out;
  for (int i = 0; i < ir::kOpCount; ++i)
    if (ir::kOpInfo[i].kind == ir::OpKind::Elementwise) out.push_back(i);
  return out;
}
INSTANTIATE_TEST_SUITE_P(OpTable, EveryOp, ::testing::ValuesIn(elementwise_ops()),
                         [](const auto& param) { return std::string(ir::kOpInfo[param.param].name); });

TEST(Casts, AgreeBetweenAllDtypes) {
  const auto cast_all = [] {
    std::vector<Tensor> out;
    for (int from = 0; from < kDTypeCount; ++from)
      for (int to = 0; to < kDTypeCount; ++to)
        out.push_back(
            operands(static_cast<DType>(from), {211}, -300, 70000, 3).astype(static_cast<DType>(to)));
    for (const Tensor& t : out) t.eval();
    return out;
  };
  std::vector<Tensor> want;
  {
    const ModeScope scope(Mode::Interpret);
    want = cast_all();
  }
  for (const Engine& e : kEngines) {
    const EngineScope scope(e);
    const std::vector<Tensor> have = cast_all();
    for (std::size_t i = 0; i < want.size(); ++i) {
      const DType from = static_cast<DType>(i / kDTypeCount);
      compare({std::string("from ") + std::string(name(from)), have[i]}, ir::Op::cast, from, e.name,
              bytes_of(have[i]), bytes_of(want[i]));
    }
  }
}

/// Reductions over every axis set of a shape with odd, unit and zero extents.
TEST(Reductions, AgreeWithTheOracle) {
  using Reduce = Tensor (*)(const Tensor&, const Axes&, Flag, SourceLocation);
  struct Named {
    const char* name;
    Reduce f;
    bool needs_elements;
  };
  const Named reductions[] = {{"sum", &sum, false},      {"prod", &prod, false}, {"max", &kiln::max, true},
                              {"min", &kiln::min, true}, {"any", &any, false},   {"all", &all, false}};
  for (const Named& r : reductions)
    for (int d = 0; d < kDTypeCount; ++d)
      for (const Shape& shape : {Shape{5, 1, 33}, Shape{2, 70}, Shape{3, 0}, Shape{1}})
        for (int mask = 1; mask < (1 << shape.rank()); ++mask) {
          std::vector<int> axes;
          std::int64_t count = 1;
          for (int a = 0; a < shape.rank(); ++a)
            if ((mask >> a) & 1) {
              axes.push_back(a);
              count *= shape[a];
            }
          if (r.needs_elements && count == 0) continue;
          const DType dtype = static_cast<DType>(d);
          const auto values = [&] {
            // Sums of small numbers: the tolerance is for the order of addition, not for cancellation.
            const Tensor x =
                abs(operands(dtype, shape, 0.5, 1.5, 3).astype(is_bool(dtype) ? DType::UInt8 : dtype));
            const Tensor bounded = is_float(dtype) ? where((x < 2) && (x > 0.25), x, 1.0) : x;
            return r
                .f(is_bool(dtype) ? bounded.astype(DType::Bool) : bounded, Axes(axes), (mask & 1) != 0,
                   SourceLocation::current())
                .eval();
          };
          const Tensor want = [&] {
            const ModeScope scope(Mode::Interpret);
            return values();
          }();
          for (const Engine& e : kEngines) {
            const EngineScope scope(e);
            const Tensor have = values();
            ASSERT_EQ(have.shape().str(), want.shape().str());
            const std::vector<double> h = have.astype(DType::Float64).to_vector<double>();
            const std::vector<double> w = want.astype(DType::Float64).to_vector<double>();
            const double relative = !is_float(have.dtype())      ? 0
                                    : is_half(have.dtype())      ? 0.02
                                    : size_of(have.dtype()) == 8 ? 1e-13
                                                                 : 1e-5;
            for (std::size_t i = 0; i < h.size(); ++i)
              ASSERT_TRUE(h[i] == w[i] || (h[i] != h[i] && w[i] != w[i]) ||
                          std::fabs(h[i] - w[i]) <= relative * std::fabs(w[i]))
                  << r.name << " of " << name(dtype) << " " << shape.str() << " mask " << mask << ", "
                  << e.name << ": " << h[i] << ", the oracle has " << w[i];
          }
        }
}

}  // namespace
}  // namespace kiln
