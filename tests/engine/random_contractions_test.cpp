// Random contractions: products and convolutions of operands in any layout, with maps before and behind them,
// against the interpreter. Elements are small whole numbers, so that products are exact in every dtype and
// any order of their sums, and an element that is read or written at a wrong place shows.
//
// KILN_TEST_CONTRACTIONS=N draws so many programs, KILN_TEST_FUZZ_SEED begins elsewhere; with
// KILN_DEVICE=cuda they run on the device. A failure prints what was drawn.
#include "few_rows.h"
#include "modes.h"
#include "support/check.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kiln {
namespace {

/// A tensor, the greatest magnitude of its elements, and by how much they may be off.
struct Value {
  Tensor tensor;
  double bound = 0, error = 0;
};

/// Draws one program, and records it again each time it is asked: the tensors of memory stay the same.
class Contraction {
 public:
  explicit Contraction(std::uint64_t seed) : seed_(seed) {}

  std::vector<Value> record() {
    random_.seed(seed_);
    leaf_ = 0;
    text_.clear();
    dtype_ = pick({DType::Float32, DType::Float32, DType::Float32, DType::Float64, DType::Float16,
                   DType::BFloat16, DType::BFloat16, DType::Float8E4M3FN, DType::Float8E5M2, DType::Int32,
                   DType::Int8, DType::Int64});
    std::vector<Value> out;
    switch (below(10)) {
      case 0:
      case 1: out.push_back(convolution()); break;
      case 2: out.push_back(contracted()); break;
      case 3: out = two_of_one_input(); break;
      default: out.push_back(product()); break;
    }
    const std::size_t products = out.size();
    for (std::size_t i = 0; i < products; ++i) out[i] = behind(std::move(out[i]), out);
    return out;
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr std::int64_t kMostTerms = 1 << 21, kMostElements = 1 << 19, kLongest = 10000;

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + below(static_cast<std::int64_t>(from.size())));
  }
  void note(const std::string& what) { text_ += what + "; "; }

  /// 1 to `most`, as many of each power of two; every other a multiple of 8.
  std::int64_t extent(std::int64_t most) {
    most = std::max<std::int64_t>(1, std::min(most, kLongest));
    const double drawn = std::exp(static_cast<double>(below(1000)) / 1000 * std::log(most + 1.0));
    const auto n = std::min(most, static_cast<std::int64_t>(drawn));
    return n >= 8 && chance(50) ? n / 8 * 8 : n;
  }

  // -------------------------------------------------------------------------------------------------------
  // Memory.

  /// Whole numbers from -2 to 2.
  Tensor memory(const Shape& shape, DType dtype) {
    if (leaf_ == leaves_.size()) {
      std::vector<std::int8_t> v(static_cast<std::size_t>(shape.numel()));
      std::minstd_rand numbers(static_cast<unsigned>(seed_ * 31 + leaf_ + 1));
      for (std::int8_t& x : v) x = static_cast<std::int8_t>(numbers() / 7 % 5) - 2;
      leaves_.push_back(Tensor::from(v, shape).astype(dtype).eval());
    }
    return leaves_[leaf_++];
  }

  /// A view of `shape`, in memory some other way.
  Tensor laid_out(Shape shape, DType dtype) {
    const int rank = shape.rank();
    switch (rank == 0 ? 99 : below(12)) {
      case 0: {  // any order of the axes
        std::vector<int> order(static_cast<std::size_t>(rank));
        for (int i = 0; i < rank; ++i) order[static_cast<std::size_t>(i)] = i;
        std::shuffle(order.begin(), order.end(), random_);
        Shape there = shape;
        for (int i = 0; i < rank; ++i) there[order[static_cast<std::size_t>(i)]] = shape[i];
        note("permuted");
        return permute_dims(memory(there, dtype), order);
      }
      case 1:
      case 2: {  // the last two exchanged
        if (rank < 2) break;
        std::swap(shape[rank - 1], shape[rank - 2]);
        note("transposed");
        return matrix_transpose(memory(shape, dtype));
      }
      case 3: {  // a part, with steps
        const int axis = static_cast<int>(below(rank));
        const std::int64_t step = 1 + below(3), first = below(4);
        std::vector<Slice> at(static_cast<std::size_t>(rank));
        at[static_cast<std::size_t>(axis)] = range(first, first + (shape[axis] - 1) * step + 1, step);
        shape[axis] = first + shape[axis] * step + below(3);
        note(cat("a part of axis ", axis, " step ", step));
        return memory(shape, dtype).index(at);
      }
      case 4: {
        const int axis = static_cast<int>(below(rank));
        note(cat("flipped ", axis));
        return flip(memory(shape, dtype), axis);
      }
      case 5: {
        const int axis = static_cast<int>(below(rank));
        Shape there = shape;
        there[axis] = 1;
        note(cat("repeated along ", axis));
        return broadcast_to(memory(there, dtype), shape);
      }
      case 6: {
        const int axis = static_cast<int>(below(rank));
        if (shape[axis] < 2) break;
        const std::int64_t cut = 1 + below(shape[axis] - 1), rest = shape[axis] - cut;
        Shape first = shape, second = shape;
        first[axis] = cut, second[axis] = rest;
        note(cat("joined along ", axis, " at ", cut));
        const Tensor a = memory(first, dtype), b = memory(second, dtype);
        return concat({a, b}, axis);
      }
      case 7: {
        const int axis = static_cast<int>(below(rank));
        if (shape[axis] < 3) break;
        std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(rank));
        widths[static_cast<std::size_t>(axis)] = {1, 1};
        shape[axis] -= 2;
        note(cat("padded ", axis));
        return pad(memory(shape, dtype), widths);
      }
      case 8: {
        const int axis = static_cast<int>(below(rank));
        note(cat("rolled ", axis));
        return roll(memory(shape, dtype), 1, axis);
      }
      default: break;
    }
    return memory(shape, dtype);
  }

  // -------------------------------------------------------------------------------------------------------
  // Operands: memory, perhaps with a map before the product. Their elements stay small.

  Tensor operand(const Shape& shape) {
    note(cat(name(dtype_), " ", shape.str()));
    const Tensor x = laid_out(shape, dtype_);
    const bool real = is_float(dtype_);
    switch (below(12)) {
      case 0: return note("relu"), maximum(x, 0);
      case 1: return note("abs"), abs(x);
      case 2: return note("negative"), -x;
      case 3:
        if (!real) break;
        note("int8 times a scale a row");
        return memory(shape, DType::Int8).astype(dtype_) * exp2_of(memory(rows_of(shape), DType::Int8));
      case 4: return note("masked"), where(memory(shape, DType::Int8) > 0, x, 0);
      case 5: return note("a row added"), x + memory({shape[shape.rank() - 1]}, dtype_);
      case 6:
        if (!real) break;
        return note("cast"),
               memory(shape, pick({DType::Int8, DType::Float32, DType::Float16})).astype(dtype_);
      case 7:
        if (shape.rank() < 2) break;
        note("halves of the last axis exchanged");
        return roll(x, shape[shape.rank() - 1] / 2, -1) * memory({shape[shape.rank() - 1]}, dtype_);
      default: break;
    }
    return x;
  }
  static Shape rows_of(Shape shape) {
    shape[shape.rank() - 1] = 1;
    return shape;
  }
  /// 1 or 2, for a whole number.
  Tensor exp2_of(const Tensor& x) const { return (x > 0).astype(dtype_) + 1; }
  static constexpr double kOperand = 8;  // no element of one is greater

  Value made(const Tensor& x, std::int64_t terms) {
    return {x, static_cast<double>(terms) * kOperand * kOperand, 0};
  }

  // -------------------------------------------------------------------------------------------------------
  // Contractions.

  struct Sizes {
    std::int64_t batch, m, n, k;
  };
  Sizes sizes() {
    Sizes s = {1, 1, 1, 1};
    std::int64_t* axes[] = {&s.m, &s.n, &s.k};
    std::shuffle(std::begin(axes), std::end(axes), random_);
    *axes[0] = extent(kLongest);
    *axes[1] = extent(std::min(kMostElements / *axes[0], kLongest));
    *axes[2] =
        extent(std::min({kMostTerms / (*axes[0] * *axes[1]), kMostElements / std::max(*axes[0], *axes[1])}));
    if (chance(40)) s.batch = extent(std::min<std::int64_t>(kMostTerms / (s.m * s.n * s.k), 40));
    return s;
  }
  static Shape shape_of(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool batched) {
    return batched ? Shape{batch, rows, columns} : Shape{rows, columns};
  }

  Value product() {
    const Sizes s = sizes();
    const bool left = s.batch > 1 && chance(80), right = s.batch > 1 && (!left || chance(60));
    const Tensor a = operand(shape_of(s.batch, s.m, s.k, left)),
                 b = operand(shape_of(s.batch, s.k, s.n, right));
    if (computed_as(dtype_) == dtype_ && !is_half(dtype_) && chance(10) &&
        s.batch * s.m * s.n * s.k < 1 << 18) {
      note("sum of products");
      return made(sum(expand_dims(a, -1) * expand_dims(b, -3), -2), s.k);
    }
    note("matmul");
    return made(matmul(a, b), s.k);
  }

  Value contracted() {
    const Sizes s = sizes();
    note("einsum");
    switch (below(4)) {
      case 0:
        return made(einsum("bik,bjk->bij", {operand({s.batch, s.m, s.k}), operand({s.batch, s.n, s.k})}),
                    s.k);
      case 1:
        return made(einsum("kbi,bkj->jbi", {operand({s.k, s.batch, s.m}), operand({s.batch, s.k, s.n})}),
                    s.k);
      case 2: return made(einsum("bik,kj->ibj", {operand({s.batch, s.m, s.k}), operand({s.k, s.n})}), s.k);
      default:
        return made(einsum("bik,bkj->ij", {operand({s.batch, s.m, s.k}), operand({s.batch, s.k, s.n})}),
                    s.k * s.batch);
    }
  }

  /// Two products that share an operand, also as gate and up of one layer.
  std::vector<Value> two_of_one_input() {
    const Sizes s = sizes();
    const Tensor x = operand({s.m, s.k});
    const Value a = made(matmul(x, operand({s.k, s.n})), s.k);
    const Tensor w = operand({s.n, s.k});
    const Value b = made(matmul(x, matrix_transpose(w)), s.k);
    if (chance(50)) {
      note("both are wanted");
      return {a, b};
    }
    note("one with the other's sign");
    return {{where(a.tensor > 0, b.tensor, 0), b.bound, 0}};
  }

  Value convolution() {
    const int axes = static_cast<int>(1 + below(3));
    nn::ConvOptions o;
    o.groups = pick({1, 1, 2, 3});
    o.channels_last = chance(40);
    const bool transposed = chance(30);
    const std::int64_t in = o.groups * (chance(25) ? 1 : extent(o.groups > 1 ? 4 : 20)),
                       out = o.groups * extent(20);
    Shape points, kernel, behind;
    std::int64_t room = std::max<std::int64_t>(4, kMostTerms / (in * out / o.groups * 30));
    for (int i = 0; i < axes; ++i) {
      kernel.push_back(1 + below(axes > 2 ? 2 : 4));
      o.stride.push_back(1 + below(3));
      o.dilation.push_back(1 + below(2));
      o.padding.push_back(below(kernel[i]));
      behind.push_back(o.stride[i] > 1 ? below(2) : 0);
      const std::int64_t span = (kernel[i] - 1) * o.dilation[i] + 1;
      points.push_back(span + extent(std::max<std::int64_t>(room, 1)));
      room /= points[i];
    }
    const std::int64_t n = 1 + below(3);
    const auto laid = [&](std::int64_t first, std::int64_t channels, const Shape& others) {
      Shape s = {first};
      if (!o.channels_last) s.push_back(channels);
      for (const std::int64_t e : others) s.push_back(e);
      if (o.channels_last) s.push_back(channels);
      return s;
    };
    note(cat(transposed ? "conv_transpose" : "conv", " stride ", o.stride.str(), " padding ", o.padding.str(),
             " dilation ", o.dilation.str(), " groups ", o.groups, o.channels_last ? " channels last" : ""));
    const Tensor x = operand(laid(n, in, points));
    if (transposed)
      return made(nn::conv_transpose(x, operand(laid(in, out / o.groups, kernel)), {}, o, behind),
                  in / o.groups * kernel.numel());
    return made(nn::conv(x, operand(laid(out, in / o.groups, kernel)), {}, o),
                in / o.groups * kernel.numel());
  }

  // -------------------------------------------------------------------------------------------------------
  // What follows a product. Float sums stay exact while they are below 2^24: halves are widened first.

  Value behind(Value v, std::vector<Value>& others) {
    if (is_half(v.tensor.dtype()) && chance(90)) v.tensor = v.tensor.astype(DType::Float32), note("widened");
    if (v.tensor.numel() == 0 || is_half(v.tensor.dtype())) return v;
    for (auto steps = below(6); steps > 0; --steps) v = step(std::move(v));
    if (chance(15)) others.push_back(v), note("also a result");
    if (is_float(v.tensor.dtype()) && chance(50)) v = last(std::move(v));
    return v;
  }

  Value step(Value v) {
    const Tensor& x = v.tensor;
    const DType t = x.dtype();
    const int rank = x.rank();
    const std::int64_t n = x.dim(-1);
    switch (below(10)) {
      case 0: return note("+ row"), Value{x + memory({n}, t), v.bound + 2};
      case 1: return note("+ all"), Value{x + laid_out(x.shape(), t), v.bound + 2};
      case 2: return note("relu"), Value{maximum(x, 0), v.bound};
      case 3: return note("clip"), Value{clip(x, -7, 9), std::min(v.bound, 9.0)};
      case 4: return note("where"), Value{where(memory(x.shape(), DType::Int8) > 0, x, -x), v.bound};
      case 5: {
        if (rank < 2) return v;
        Shape column = {x.dim(-2), 1};
        return note("+ column"), Value{x - memory(column, t), v.bound + 2};
      }
      case 6: return note("abs"), Value{abs(x), v.bound};
      case 7: {
        if (v.bound > 1 << 18) return v;
        return note("* row"), Value{x * memory({n}, t), 2 * v.bound};
      }
      case 8: return note("+ itself"), Value{x + x * 2, 3 * v.bound};
      default: return note("a sign for odd columns"), Value{where(arange(n) % 2 == 0, x, -x), v.bound};
    }
  }

  /// Maps that round, reductions, and another product.
  Value last(Value v) {
    const Tensor x = v.tensor;
    const double eps = x.dtype() == DType::Float64 ? 1e-14 : 1e-6, n = static_cast<double>(x.dim(-1));
    const double scale = std::exp2(-std::ceil(std::log2(std::max(1.0, v.bound / 6))));
    const double exact = x.dtype() == DType::Float64 ? 0x1p53 : 0x1p24;
    const auto sum_error = [&](double terms) {
      return v.bound * terms < exact ? 0 : 4 * eps * v.bound * terms;
    };
    switch (below(10)) {
      case 0: return note("gelu"), Value{gelu(x * scale), 6, 8 * eps};
      case 1: return note("silu"), Value{silu(x * scale), 6, 8 * eps};
      case 2: return note("tanh"), Value{tanh(x * scale), 1, 8 * eps};
      case 3: return note("exp"), Value{exp(-abs(x) * scale), 1, 8 * eps};
      case 4: return note("narrowed"), Value{x.astype(DType::BFloat16), v.bound};
      case 5: return note("sum of rows"), Value{sum(x, -1), v.bound * n, sum_error(n)};
      case 6: return note("max of rows"), Value{max(x, -1), v.bound};
      case 7: return note("softmax"), Value{nn::softmax(x * scale), 1, 32 * eps};
      case 8: {
        note("sum of columns");
        if (x.rank() < 2) return v;
        const double m = static_cast<double>(x.dim(-2));
        return {sum(x, -2), v.bound * m, sum_error(m)};
      }
      default: {
        const std::int64_t columns =
            extent(std::max<std::int64_t>(1, kMostTerms / std::max<std::int64_t>(1, x.numel())));
        if (x.rank() < 2) return v;
        note(cat("a second product with ", columns, " columns"));
        return {matmul(clip(x, -2, 2), memory({x.dim(-1), std::min<std::int64_t>(columns, 200)}, x.dtype())),
                4 * n};
      }
    }
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  DType dtype_ = DType::Float32;
  std::vector<Tensor> leaves_;
  std::size_t leaf_ = 0;
  std::string text_;
};

/// Empty, or where `got` differs by more than `want` allows.
std::string difference(const Tensor& got, const Value& want) {
  if (got.dtype() != want.tensor.dtype() || !(got.shape() == want.tensor.shape()))
    return cat("is ", name(got.dtype()), " ", got.shape().str(), " instead of ", name(want.tensor.dtype()),
               " ", want.tensor.shape().str());
  const std::vector<double> a = got.astype(DType::Float64).to_vector<double>(),
                            b = want.tensor.astype(DType::Float64).to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(a[i] != a[i] && b[i] != b[i]) &&
        !(std::fabs(a[i] - b[i]) <= want.error * std::max(1.0, want.error < 1 ? 1.0 : std::fabs(b[i]))))
      return cat("element ", i, " of ", got.shape().str(), " is ", a[i], " instead of ", b[i]);
  return {};
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::vector<Tensor> evaluated(Contraction& program) {
  std::vector<Tensor> out;
  for (Value& v : program.record()) out.push_back(std::move(v.tensor));
  eval(out);
  return out;
}

TEST(RandomContractions, EqualTheInterpreter) {
  const std::uint64_t count = number("KILN_TEST_CONTRACTIONS", 60), first = number("KILN_TEST_FUZZ_SEED", 1);
  const std::uint64_t fallbacks = statistics().fallbacks;
  for (std::uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    Contraction program(seed);
    std::optional<test::MainLoopsForFewRows> main_loops;
    if (seed % 2 == 0) main_loops.emplace();
    Config options = config();
    options.tf32 = seed % 3 != 0;  // elements have less than 11 bits
    const ScopedConfig scope_of_options(options);
    std::vector<Value> want;
    {
      const testing::ModeScope scope(Mode::Interpret);
      want = program.record();
      for (Value& v : want) v.tensor.eval();
    }
    SCOPED_TRACE(cat("seed ", seed, ": ", program.text()));
    for (const testing::Engine& engine : testing::kEngines) {
      if (engine.mode == Mode::Eager && seed % 4 != 0) continue;
      if (engine.vm && seed % 4 != 1) continue;
      SCOPED_TRACE(engine.name);
      const testing::EngineScope scope(engine);
      const std::vector<Tensor> got = evaluated(program);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(difference(got[i], want[i]), "") << "result " << i;
    }
  }
  EXPECT_EQ(statistics().fallbacks, fallbacks);
}

}  // namespace
}  // namespace kiln
