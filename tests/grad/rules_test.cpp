// Every operation has a derivative, forward and backward, that agrees with differences, or says why not. The
// tests walk the op table, so that a new operation fails here until it has one.
#include "grad/check.h"
#include "grad/step.h"
#include "modes.h"

#include <map>
#include <set>
#include <string>

namespace kiln {
namespace {

using namespace kiln::testing;
using ir::Op;

constexpr Engine kVm{"vm", Mode::Lazy, true};  // compiles nothing: these are many small programs

TEST(GradRules, EveryOperationHasADerivativeOrSaysWhyNot) {
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    const diff::Rule& rule = diff::rule_of(op);
    const bool both = rule.pull != nullptr && rule.push != nullptr;
    EXPECT_EQ(both + rule.flat + rule.by_call + !rule.why_not.empty(), 1) << ir::info(op).name;
  }
}

// ---- elementwise ----

/// Where an operation is differentiated: its interval of ops.def, not too wide, without its ends.
std::pair<double, double> interval(Op op) {
  if (op == Op::tan) return {-1.2, 1.2};
  if (op == Op::lgamma || op == Op::digamma) return {0.2, 9};
  const double low = std::max(ir::info(op).lo, -3.0),
               high = std::min(ir::info(op).hi, std::max(3.0, low + 3));
  return {low + 0.05 * (high - low), high - 0.05 * (high - low)};
}

Tensor apply(Op op, const Tensors& x) {
  if (op == Op::where) return where(x[0] > 0.0, x[1], x[2]);
  if (x.size() == 1) return api::elementwise(op, x[0]);
  if (x.size() == 2) return api::elementwise(op, x[0], x[1]);
  return api::elementwise(op, x[0], x[1], x[2]);
}

std::vector<Op> elementwise_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < ir::kOpCount; ++i)
    if (const auto op = static_cast<Op>(i);
        ir::info(op).kind == ir::OpKind::Elementwise && (ir::info(op).types & ir::FLOAT) != 0)
      ops.push_back(op);
  return ops;
}

Tensors operands(Op op, std::mt19937& random, const std::vector<Shape>& shapes) {
  const auto [low, high] = interval(op);
  Tensors x;
  for (int k = 0; k < ir::info(op).arity; ++k)
    x.push_back(random_tensor(shapes[static_cast<std::size_t>(k)], random, low, high));
  return x;
}

TEST(GradRules, OfElementwiseOperations) {
  const EngineScope scope(kVm);
  for (const Op op : elementwise_ops()) {
    SCOPED_TRACE(ir::info(op).name);
    const diff::Rule& rule = diff::rule_of(op);
    if (rule.pull == nullptr) continue;
    std::mt19937 random(static_cast<unsigned>(op));
    const Function f = [&](const Tensors& x) { return Tensors{apply(op, x)}; };
    expect_derivative(f, operands(op, random, {{3, 4}, {3, 4}, {3, 4}}));
    expect_derivative(f, operands(op, random, {{3, 1}, {2, 1, 4}, {4}}), 2);  // they broadcast
    expect_derivative(f, operands(op, random, {{0, 4}, {4}, {1, 4}}), 3, 0.02, false);
  }
}

TEST(GradRules, OfElementwiseOperationsTwice) {
  const EngineScope scope(kVm);
  const std::set<Op> piecewise_linear{Op::add,       Op::subtract, Op::negative, Op::abs,
                                      Op::remainder, Op::fmod,     Op::maximum,  Op::minimum,
                                      Op::relu,      Op::copysign, Op::where};
  for (const Op op : elementwise_ops()) {
    SCOPED_TRACE(ir::info(op).name);
    if (diff::rule_of(op).pull == nullptr) continue;
    std::mt19937 random(static_cast<unsigned>(op) + 1000);
    expect_second_derivative([&](const Tensors& x) { return Tensors{apply(op, x)}; },
                             operands(op, random, {{2, 3}, {3}, {3}}), 4, 0.02,
                             !piecewise_linear.contains(op));
  }
}

TEST(GradRules, FlatOperationsPassNothingOn) {
  const Tensor x = Tensor::from(std::vector<double>{-1.5, 0.25, 2.75});
  for (const Op op : elementwise_ops()) {
    if (!diff::rule_of(op).flat) continue;
    SCOPED_TRACE(ir::info(op).name);
    const auto loss = [&](const Tensor& at) {
      const Tensors in(ir::info(op).arity, at);
      const Tensor y = apply(op, in);
      return sum(y.astype(DType::Float64) * 2.0 + at);
    };
    EXPECT_TRUE(array_equal(grad(loss, x), ones_like(x)));
  }
}

// ---- everything else ----

struct Case {
  Function f;
  std::vector<Shape> shapes;
  bool linear = false;  // its second derivative is 0
};

Function one(const std::function<Tensor(const Tensor&)>& f) {
  return [f](const Tensors& x) { return Tensors{f(x[0])}; };
}

Tensor at(std::vector<std::int64_t> values, const Shape& shape) { return Tensor::from(values, shape); }

/// Programs of which each operation of structural.def with a rule is the first one.
std::multimap<Op, Case> cases() {
  using S = Shape;
  std::multimap<Op, Case> all;
  const auto add = [&](Op op, const Function& f, std::vector<Shape> shapes, bool linear = false) {
    all.emplace(op, Case{f, std::move(shapes), linear});
  };
  const auto add_one = [&](Op op, std::vector<Shape> shapes, bool linear,
                           const std::function<Tensor(const Tensor&)>& f) {
    all.emplace(op, Case{one(f), std::move(shapes), linear});
  };
  // views
  add_one(Op::cast, {S{3}}, true, [](const Tensor& x) { return x.astype(DType::Float64) + 0.0; });
  add_one(Op::alias, {S{3}}, false, [](const Tensor& x) {
    return jvp([](const Tensor& y) { return y * y * y; }, x, ones_like(x)).second;
  });
  add_one(Op::reshape, {S{3, 4}}, true, [](const Tensor& x) { return reshape(x, {2, 6}); });
  add_one(Op::permute, {S{2, 3, 4}}, true, [](const Tensor& x) { return permute_dims(x, {2, 0, 1}); });
  add_one(Op::broadcast, {S{3, 1}}, true, [](const Tensor& x) { return broadcast_to(x, {2, 3, 4}); });
  add_one(Op::slice, {S{7, 5}}, true,
          [](const Tensor& x) { return x(range(1, none, 2), range(none, none, -2)); });
  add_one(Op::slice, {S{7, 5}}, true, [](const Tensor& x) { return x(range(3, 3), 2); });
  add(
      Op::pad,
      [](const Tensors& x) {
        Tensor y = x[0];
        y(range(1, none, 3), range(0, 2)) = x[1];
        return Tensors{y};
      },
      {S{7, 3}, S{2, 2}}, true);
  add_one(Op::pad, {S{3, 2}}, true, [](const Tensor& x) { return pad(x, {{1, 2}, {-1, 3}}, 4.0); });
  add(
      Op::join,
      [](const Tensors& x) { return Tensors{concat({x[0], x[1], zeros({1, 3}, DType::Float64), x[0]}, 0)}; },
      {S{2, 3}, S{4, 3}}, true);
  const Tensor start = Tensor::from(std::vector<std::int64_t>{2}).reshape({});
  add_one(Op::slice_at, {S{6, 3}}, true,
          [=](const Tensor& x) { return dynamic_slice(x, {start, 1}, {3, 2}); });
  add(
      Op::update_at, [=](const Tensors& x) { return Tensors{dynamic_update_slice(x[0], x[1], {start, 0})}; },
      {S{6, 3}, S{3, 3}}, true);
  for (const auto& [size, stride, gap] :
       {std::tuple{2, 1, 1}, {3, 2, 1}, {2, 2, 1}, {2, 3, 1}, {3, 1, 2}, {1, 2, 3}, {66, 1, 1}})
    add_one(Op::sliding_window, {S{2, 70}}, true,
            [=](const Tensor& x) { return sliding_window(x, size, 1, stride, gap); });
  add_one(Op::sliding_window, {S{6, 7}}, true,
          [](const Tensor& x) { return sliding_window(x, {2, 3}, {0, 1}, {1, 2}); });
  // reductions and scans
  add_one(Op::reduce_sum, {S{2, 3, 4}}, true, [](const Tensor& x) { return sum(x, {0, 2}); });
  add_one(Op::reduce_prod, {S{2, 3, 2}}, false, [](const Tensor& x) { return prod(x, {0, 2}); });
  add_one(Op::reduce_prod, {S{2, 4}}, false, [](const Tensor& x) { return prod(x, 1) + prod(x); });
  add_one(Op::reduce_max, {S{3, 4}}, true, [](const Tensor& x) { return max(x, 1); });
  add_one(Op::reduce_min, {S{3, 4}}, true, [](const Tensor& x) { return min(x); });
  add_one(Op::reduce_logaddexp, {S{3, 4}}, false, [](const Tensor& x) { return logsumexp(x, 0); });
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      add_one(Op::scan_sum, {S{3, 5}}, true,
              [=](const Tensor& x) { return cumsum(x, 1, exclusive, reverse); });
      add_one(Op::scan_prod, {S{5, 2}}, false,
              [=](const Tensor& x) { return cumprod(x, 0, exclusive, reverse); });
      add_one(Op::scan_prod, {S{6}}, false,
              [=](const Tensor& x) { return cumprod(x, 0, exclusive, reverse); });
      const auto finite = [](const Tensor& y) { return where(isfinite(y), y, 0.0); };
      add_one(Op::scan_max, {S{3, 7}}, true,
              [=](const Tensor& x) { return finite(cummax(x, 1, exclusive, reverse)); });
      add_one(Op::scan_min, {S{7, 2}}, true,
              [=](const Tensor& x) { return finite(cummin(x, 0, exclusive, reverse)); });
      add_one(Op::scan_logaddexp, {S{2, 6}}, false,
              [=](const Tensor& x) { return finite(logcumsumexp(x * 3.0, 1, exclusive, reverse)); });
    }
  // indices
  const Tensor some = at({3, -1, 0, 3, 2, 0}, {2, 3});
  add_one(Op::gather, {S{4, 2}}, true, [=](const Tensor& x) { return take(x, some, 0); });
  add_one(Op::gather, {S{1, 4}}, true, [=](const Tensor& x) { return take_along_axis(x, some, 1); });
  add_one(Op::gather, {S{4, 4, 2}}, true, [=](const Tensor& x) { return gather(x, {some, some}); });
  for (const Combine how : {Combine::Set, Combine::Add, Combine::Max, Combine::Min})
    add(
        Op::scatter, [=](const Tensors& x) { return Tensors{scatter(x[0], some, x[1], 0, how)}; },
        {S{5, 2}, S{2, 3, 2}}, true);
  add_one(Op::scatter, {S{5, 2}}, true, [=](const Tensor& x) { return scatter_multiply(x, some, 3.0); });
  add_one(Op::sort, {S{3, 5}}, true, [](const Tensor& x) { return sort(x, 0, true); });
  add_one(Op::sort_with_positions, {S{3, 5}}, true, [](const Tensor& x) { return topk(x, 3, 1).values; });
  add_one(Op::sort_with_positions, {S{4}}, true, [](const Tensor& x) { return sort_with_indices(x).values; });
  // matrices
  add(Op::matmul, [](const Tensors& x) { return Tensors{matmul(x[0], x[1])}; }, {S{3, 4}, S{2, 4, 5}});
  add(Op::matmul, [](const Tensors& x) { return Tensors{einsum("bij,kj->bki", {x[0], x[1]})}; },
      {S{2, 3, 4}, S{5, 4}});
  const auto positive = [](const Tensor& x) {
    return matmul(x, matrix_transpose(x)) + 2.0 * eye(x.dim(-1), -1, 0, DType::Float64);
  };
  add_one(Op::cholesky, {S{2, 3, 3}}, false, [=](const Tensor& x) { return cholesky(positive(x)); });
  add_one(Op::cholesky, {S{3, 3}}, false,
          [](const Tensor& x) { return cholesky(tril(x) + 3.0 * eye(3, -1, 0, DType::Float64), true); });
  const auto lower = [](const Tensor& x) { return x + 2.0 * eye(x.dim(-1), -1, 0, DType::Float64); };
  add(Op::solve_triangular, [=](const Tensors& x) { return Tensors{solve_triangular(lower(x[0]), x[1])}; },
      {S{3, 3}, S{2, 3, 2}});
  add(Op::solve_triangular,
      [=](const Tensors& x) { return Tensors{solve_triangular(lower(x[0]), x[1], true, true)}; },
      {S{3, 3}, S{3}});
  return all;
}

TEST(GradRules, OfAllOtherOperations) {
  const EngineScope scope(kVm);
  const std::multimap<Op, Case> all = cases();
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    if (ir::info(op).kind == ir::OpKind::Elementwise || diff::rule_of(op).pull == nullptr) continue;
    EXPECT_TRUE(all.contains(op)) << "no case for " << ir::info(op).name;
  }
  int number = 0;
  for (const auto& [op, c] : all) {
    SCOPED_TRACE(::testing::Message() << ir::info(op).name << ", case " << ++number);
    std::mt19937 random(static_cast<unsigned>(number));
    Tensors x;
    for (const Shape& shape : c.shapes) {
      x.push_back(random_tensor(shape, random));
      const Tensor place = reshape(arange(shape.numel()), shape);
      if (op == Op::reduce_prod || op == Op::scan_prod) x[0] = where(place % 3.0 == 1.0, 0.0, x[0]);
    }
    bool empty = true;
    for (const Tensor& y : c.f(x)) empty &= y.numel() == 0;
    expect_derivative(c.f, x, 1, 0.01, !empty);
    expect_second_derivative(c.f, x, 1, 0.01, !c.linear);
  }
}

}  // namespace
}  // namespace kiln
