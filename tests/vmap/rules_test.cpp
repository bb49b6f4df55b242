// Every operation for many examples gives what a call for each gives. The tests walk the op table, so that a
// new operation fails here until it has a rule and a case.
#include "vmap/rules.h"

#include "modes.h"
#include "record/recorded.h"
#include "vmap/check.h"
#include "vmap/list_dependents.h"

#include <kiln/grad.h>
#include <kiln/random.h>

#include <random>
#include <set>

namespace kiln {
namespace {

using namespace kiln::testing;
using ir::Op;

constexpr Engine kVm{"vm", Mode::Lazy, true};  // compiles nothing: these are many small programs

TEST(VmapRules, EveryOperationHasARuleOrSaysWhyNot) {
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    const mapped::Rule& rule = mapped::rule_of(op);
    EXPECT_EQ((rule.map != nullptr) + rule.each + rule.loop_part + !rule.why_not.empty(), 1)
        << ir::info(op).name;
  }
}

// ---- elementwise ----

Tensor random_operand(const Shape& shape, Op op, DType dtype, std::mt19937& random) {
  const double low = std::max(ir::info(op).lo, -100.0), high = std::min(ir::info(op).hi, 100.0);
  std::uniform_real_distribution<double> some(low, high);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = some(random);
  return Tensor::from(values, shape).astype(dtype);
}

DType dtype_for(Op op) {
  const std::uint8_t types = ir::info(op).types;
  if (ir::is_random(op)) return DType::UInt64;
  return (types & ir::FLOAT) != 0 ? DType::Float32 : (types & ir::INTEGER) != 0 ? DType::Int32 : DType::Bool;
}

Tensors apply(Op op, const Tensors& x) {
  if (op == Op::where) return {where(x[0] > 0.0, x[1], x[2])};
  if (x.size() == 1) return {api::elementwise(op, x[0])};
  if (x.size() == 2) return {api::elementwise(op, x[0], x[1])};
  return {api::elementwise(op, x[0], x[1], x[2])};
}

TEST(VmapRules, OfElementwiseOperations) {
  const EngineScope scope(kVm);
  std::mt19937 random(1);
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    if (ir::info(op).kind != ir::OpKind::Elementwise) continue;
    SCOPED_TRACE(ir::info(op).name);
    const Shape shapes[] = {{3, 2}, {2, 3}, {5, 1, 3}};  // of one example: (2,), (2,) and (5, 1)
    Tensors x;
    Mapping axes;
    for (int k = 0; k < ir::info(op).arity; ++k) {
      x.push_back(random_operand(shapes[k], op, dtype_for(op), random));
      axes.emplace_back(k == 0 ? 0 : -1);
    }
    expect_mapped([&](const Tensors& at) { return apply(op, at); }, x, axes, 3);
  }
}

// ---- everything else ----

struct Case {
  const char* name;
  Function f;
  Tensors x;
  Mapping axes;
  double tolerance = 0;
};

constexpr std::int64_t kCount = 3;

Tensor counting(const Shape& shape, DType dtype = DType::Float32) {
  return (reshape(arange(shape.numel(), DType::Int64), shape) * 7 % 23).astype(dtype);
}
Function one(const std::function<Tensor(const Tensor&)>& f) {
  return [f](const Tensors& x) { return Tensors{f(x[0])}; };
}
Function two(const std::function<Tensor(const Tensor&, const Tensor&)>& f) {
  return [f](const Tensors& x) { return Tensors{f(x[0], x[1])}; };
}

std::vector<Case> view_cases() {
  using T = const Tensor&;
  const Tensor x = counting({kCount, 4, 5}), y = counting({4, kCount, 5});
  const Tensor at = Tensor::from(std::vector<std::int64_t>{1, -2, 7});
  return {
      {"cast", one([](T a) { return a.astype(DType::Int16); }), {x}, {0}},
      {"bitcast", one([](T a) { return bitcast(a, DType::Int32); }), {y}, {1}},
      {"reshape", one([](T a) { return reshape(a, {2, 10}); }), {y}, {1}},
      {"empty", one([](T a) { return reshape(a(range(0, 0)), {5, 0}); }), {x}, {0}},
      {"permute", one([](T a) { return permute_dims(a, {1, 0}); }), {y}, {-2}},
      {"broadcast", one([](T a) { return broadcast_to(a, {2, 4, 5}); }), {x}, {0}},
      {"slice", one([](T a) { return a(range(1, none, 2), range(none, none, -2)); }), {x}, {0}},
      {"pad", one([](T a) { return pad(a, {{1, 2}, {-1, 3}}, 4.0f); }), {y}, {1}},
      {"update",
       [](const Tensors& a) {
         Tensor z = a[0];
         z(range(1, none, 2), 2) = a[1](range(0, 2), 0);
         return Tensors{z};
       },
       {x, y},
       {0, 1}},
      {"join", two([](T a, T b) { return concat({a, b, zeros({1, 5}), a}, 0); }), {x, y}, {0, 1}},
      {"stack", two([](T a, T b) { return stack({a, b}, 1); }), {x, y}, {0, 1}},
      {"slice_at", two([](T a, T i) { return dynamic_slice(a, {i, 1}, {3, 2}); }), {x, at}, {0, 0}},
      {"slice_at of rows",
       two([](T a, T i) { return dynamic_slice(a, {i, i + 1}, {1, 3}); }),
       {y, at},
       {1, 0}},
      {"update_at",
       [](const Tensors& a) { return Tensors{dynamic_update_slice(a[0], a[1](range(0, 2)), {a[2], 0})}; },
       {x, y, at},
       {0, 1, 0}},
      {"sliding_window", one([](T a) { return sliding_window(a, {2, 3}, {0, 1}, {1, 2}); }), {y}, {1}},
      {"stop_gradient",
       one([](T a) { return jvp([](T b) { return b * b; }, a, ones_like(a)).second; }),
       {x},
       {0}},
  };
}

std::vector<Case> fold_cases() {
  using T = const Tensor&;
  const Tensor x = counting({kCount, 4, 5}), y = counting({4, kCount, 5});
  std::vector<Case> all;
  const auto add = [&](const char* name, const std::function<Tensor(T)>& f, double tolerance = 0) {
    all.push_back({name, one(f), {x}, {0}, tolerance});
    all.push_back({name, one(f), {y}, {1}, tolerance});
  };
  add("sum", [](T a) { return sum(a, 1); });
  add("prod", [](T a) { return prod(a * 0.1f, 0); }, 1e-6);
  add("max", [](T a) { return max(a); });
  add("min", [](T a) { return min(a, {0, 1}, true); });
  add("any", [](T a) { return any(a == 3.0f, 0); });
  add("argmax", [](T a) { return argmax(a); });
  add("argmin", [](T a) { return argmin(a, 0); });
  add("logsumexp", [](T a) { return logsumexp(a, 1); }, 1e-6);
  add("of none", [](T a) { return sum(a(range(0, 0)), 0); });
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      add("cumsum", [=](T a) { return cumsum(a, 1, exclusive, reverse); });
      add("cumprod", [=](T a) { return cumprod(a * 0.1f, 0, exclusive, reverse); }, 1e-6);
      add("cummax", [=](T a) { return cummax(a, 1, exclusive, reverse); });
      add("cummin", [=](T a) { return cummin(a, std::nullopt, exclusive, reverse); });
      add("logcumsumexp", [=](T a) { return logcumsumexp(a, 0, exclusive, reverse); }, 1e-6);
    }
  add("sort", [](T a) { return sort(a, 0, true); });
  add("argsort", [](T a) { return argsort(a, 1); });
  add("topk", [](T a) {
    const auto found = topk(a, 3, 1);
    return found.values + found.indices.astype(DType::Float32);
  });
  return all;
}

std::vector<Case> index_cases() {
  using T = const Tensor&;
  const Tensor x = counting({kCount, 4, 5}), y = counting({4, kCount, 5});
  const Tensor some = counting({kCount, 2, 3}, DType::Int64) % 4 - 1, values = counting({2, 3, 5, kCount});
  const Tensor whole = counting({kCount, 4, 5}, DType::Int64) % 5;
  std::vector<Case> all{
      {"take", two([](T a, T i) { return take(a, i, 0); }), {x, some}, {0, 0}},
      {"take the second", two([](T a, T i) { return take(a, i, 1); }), {y, some}, {1, 0}},
      {"take_along_axis", two([](T a, T i) { return take_along_axis(a, i, 1); }), {y, whole}, {1, 0}},
      {"gather", two([](T a, T i) { return gather(a, {i, i}); }), {x, some}, {0, 0}},
      {"put_along_axis",
       [](const Tensors& a) { return Tensors{put_along_axis(a[0], a[1], a[2], 1)}; },
       {x, whole, y},
       {0, 0, 1}},
      {"sum over indices", two([](T a, T i) { return sum(take(a, i, 0), {1, 2}); }), {x, some}, {0, 0}},
  };
  for (const Combine how : {Combine::Set, Combine::Add, Combine::Multiply, Combine::Max, Combine::Min})
    all.push_back({"scatter",
                   [=](const Tensors& a) { return Tensors{scatter(a[0], a[1], a[2], 0, how)}; },
                   {x, some, values},
                   {0, 0, 3}});
  const Tensor sorted = sort(counting({kCount, 6}), 1), wanted = counting({2, kCount, 2}) - 1.5f;
  const Tensor nans = where(counting({kCount, 6}) == 0.0f, NAN, sorted);
  for (const bool right : {false, true}) {
    const auto search = two([=](T a, T v) { return searchsorted(a, v, right); });
    all.push_back({"searchsorted", search, {sorted, wanted}, {0, 1}});
    all.push_back({"searchsorted ties", search, {sorted, sorted}, {0, 0}});
    all.push_back({"searchsorted NaN", search, {sort(nans, 1), nans}, {0, 0}});
    all.push_back({"searchsorted none", search, {zeros({kCount, 0}), wanted}, {0, 1}});
    all.push_back({"searchsorted whole", search, {sort(whole, 2)(slice::all(), 1), whole}, {0, 0}});
  }
  return all;
}

std::vector<Case> matrix_cases() {
  using T = const Tensor&;
  const Tensor x = counting({kCount, 4, 5}), y = counting({5, kCount, 6}), v = counting({5, kCount});
  const Tensor b = counting({kCount, 2, 5, 2});
  const auto positive = [](T a) { return matmul(a, matrix_transpose(a)) + 500.0f * eye(4); };
  const auto lower = [](T a) { return a(all(), range(0, 4)) + 40.0f * eye(4); };
  return {
      {"matmul", two([](T a, T c) { return matmul(a, c); }), {x, y}, {0, 1}, 1e-6},
      {"matmul of a stack", two([](T a, T c) { return matmul(a, c); }), {x, b}, {0, 0}, 1e-6},
      {"matmul on a stack", two([](T a, T c) { return matmul(c, a); }), {b, x}, {0, 0}, 1e-6},
      {"vector", two([](T a, T c) { return matmul(a, c); }), {x, v}, {0, 1}, 1e-6},
      {"vector first", two([](T c, T a) { return matmul(c, matrix_transpose(a)); }), {v, x}, {1, 0}, 1e-6},
      {"dot", two([](T a, T c) { return matmul(a, c); }), {v, v}, {1, 1}, 1e-6},
      {"einsum", two([](T a, T c) { return einsum("ij,jk->ki", {a, c}); }), {x, y}, {0, 1}, 1e-6},
      {"cholesky", one([=](T a) { return cholesky(positive(a)); }), {x}, {0}, 1e-5},
      {"solve_triangular",
       two([=](T a, T c) { return solve_triangular(lower(a), c(range(0, 4))); }),
       {x, y},
       {0, 1},
       1e-5},
  };
}

void expect_cases(const std::vector<Case>& all) {
  for (const Case& c : all) {
    SCOPED_TRACE(c.name);
    expect_mapped(c.f, c.x, c.axes, kCount, c.tolerance);
  }
}

TEST(VmapRules, OfViews) {
  const EngineScope scope(kVm);
  expect_cases(view_cases());
}
TEST(VmapRules, OfReductionsScansAndSorts) {
  const EngineScope scope(kVm);
  expect_cases(fold_cases());
}
TEST(VmapRules, OfReadingAndWritingAtIndices) {
  const EngineScope scope(kVm);
  expect_cases(index_cases());
}
TEST(VmapRules, OfMatrices) {
  const EngineScope scope(kVm);
  expect_cases(matrix_cases());
}

/// Operations that a case records, with operands that depend on an argument.
std::set<Op> recorded_by(const Case& c) {
  const api::Recording recording;
  const ir::UnnotedRecording unnoted;
  std::set<const ir::Node*> given;
  Tensors one;
  for (std::size_t k = 0; k < c.x.size(); ++k) {
    const Tensor first = example_of(c.x[k], c.axes[k], 0);
    one.push_back(Tensor::adopt(api::alias_node(first.node(), false).take()));
    given.insert(one.back().node());
  }
  std::vector<ir::Node*> results;
  const Tensors y = c.f(one);
  for (const Tensor& r : y) results.push_back(r.node());
  std::set<Op> out;
  const auto known = [&](const ir::Node* n) { return given.contains(n); };
  for (const ir::NodeRef& n : mapped::list_dependents(results, known).nodes) out.insert(n->op);
  return out;
}

TEST(VmapRules, EveryRuleHasACase) {
  std::set<Op> seen;
  for (const auto& cases : {view_cases(), fold_cases(), index_cases(), matrix_cases()})
    for (const Case& c : cases) seen.merge(recorded_by(c));
  for (int i = 0; i < ir::kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    if (ir::info(op).kind == ir::OpKind::Elementwise || mapped::rule_of(op).map == nullptr) continue;
    EXPECT_TRUE(seen.contains(op)) << "no case records " << ir::info(op).name;
  }
}

}  // namespace
}  // namespace kiln
