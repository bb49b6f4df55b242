// The table of rules, one for each operation, made of the two lists elementwise.def and structural.def.
#include "grad/rules.h"
#include "ir/infer.h"
#include "support/check.h"

#include <array>
#include <cstring>

namespace kiln::diff {
namespace {

using ir::Op;

/// What a small change g of operand k makes of the result.
using By = Tensor (*)(const Step& s, std::size_t k, const Tensor& g);

template <By kBy>
void pull_elementwise(const Step& s, const Tensor& g, std::span<Tensor> to) {
  for (std::size_t k = 0; k < to.size(); ++k)
    if (s.wants(k))
      if (const Tensor by = kBy(s, k, g); by.valid()) to[k] = sum_to(by, s.dims(k));
}

template <By kBy>
Tensor push_elementwise(const Step& s, std::span<const Tensor> t) {
  Tensor all;
  for (std::size_t k = 0; k < t.size(); ++k)
    if (t[k].valid())
      if (const Tensor by = kBy(s, k, t[k]); by.valid()) add_to(all, broadcast_to(by, Shape(s.dims())));
  return all;
}

/// One of up to three expressions; each is made only when it is asked for.
template <class X, class Y, class Z>
Tensor chosen(std::size_t k, X by_x, Y by_y, Z by_z) {
  return k == 0 ? by_x() : k == 1 ? by_y() : by_z();
}

#define KILN_BY_1(X) [&] { return X; }, [&] { return none; }, [&] { return none; }
#define KILN_BY_2(X, Y) [&] { return X; }, [&] { return Y; }, [&] { return none; }
#define KILN_BY_3(X, Y, Z) [&] { return X; }, [&] { return Y; }, [&] { return Z; }
#define KILN_PICK(A, B, C, Name, ...) Name
#define KILN_BY(...) KILN_PICK(__VA_ARGS__, KILN_BY_3, KILN_BY_2, KILN_BY_1)(__VA_ARGS__)

#define KILN_DERIVATIVE(Name, ...)                                                        \
  Tensor by_##Name(const Step& s, std::size_t k, const Tensor& g) {                       \
    const std::size_t n = s.edge.in.size();                                               \
    [[maybe_unused]] const Tensor none, r = s.result(), x = s.in(0);                      \
    [[maybe_unused]] const Tensor y = n > 1 ? s.in(1) : none, z = n > 2 ? s.in(2) : none; \
    return chosen(k, KILN_BY(__VA_ARGS__));                                               \
  }
#define KILN_FLAT(Name)
#define KILN_NO_DERIVATIVE(...)
#include "grad/elementwise.def"
#undef KILN_DERIVATIVE
#undef KILN_FLAT
#undef KILN_NO_DERIVATIVE

struct Table {
  static constexpr std::size_t kOps = static_cast<std::size_t>(Op::where) + 1;
  std::array<Rule, kOps> rules;

  Rule& of(Op op) { return rules[static_cast<std::size_t>(op)]; }

  Table() {
#define KILN_DERIVATIVE(Name, ...) \
  of(Op::Name) = {pull_elementwise<by_##Name>, push_elementwise<by_##Name>, {}, false};
#define KILN_RULE(Name, By) of(Op::Name) = {pull_##By, push_##By, {}, false};
#define KILN_FLAT(Name) of(Op::Name).flat = true;
#define KILN_NO_DERIVATIVE(Name, Why) of(Op::Name).why_not = Why;
#define KILN_CALL(Name) of(Op::Name).by_call = true;
#define KILN_UNRECORDED(Name) of(Op::Name).why_not = "it is not recorded";
#include "grad/elementwise.def"
#include "grad/structural.def"
  }
};

}  // namespace

const Rule& rule_of(Op op) {
  static const Table table;
  return table.rules[static_cast<std::size_t>(op)];
}

std::span<const std::int64_t> Step::dims(std::size_t k) const {
  return edge.in[k] ? edge.in[k]->dims() : std::span<const std::int64_t>();
}

Tensor Step::in(std::size_t k) const {
  if (edge.in[k]) return shared(edge.in[k]);
  ir::NodeRef scalar = api::scalar_node(0, node->dtype);
  scalar->imm = edge.imm;
  return api::finish(std::move(scalar));
}

Tensor replay(const Step& s, std::span<const Tensor> in, std::uint64_t imm) {
  ir::NodeRef node = ir::NodeRef::adopt(ir::new_node(s.edge.op, s.dtype(), s.dims(), s.edge.loc));
  std::vector<ir::Node*> nodes;
  for (const Tensor& t : in) nodes.push_back(t.node());
  ir::set_inputs(node.get(), nodes);
  node->imm = imm;
  node->attr64 = s.edge.attr64;
  if (!s.edge.attrs.empty())
    std::memcpy(ir::new_attrs(node.get(), s.edge.attrs.size()), s.edge.attrs.data(),
                s.edge.attrs.size() * sizeof(std::int64_t));
  return api::finish(std::move(node));
}

Tensor sum_to(const Tensor& g, std::span<const std::int64_t> dims) {
  const ir::Node* const from = g.node();
  if (std::ranges::equal(from->dims(), dims)) return g;
  const std::size_t lead = from->rank - dims.size();
  std::uint64_t mask = 0;
  for (std::size_t a = 0; a < from->rank; ++a)
    if (a < lead || (dims[a - lead] == 1 && from->dims()[a] != 1)) mask |= std::uint64_t{1} << a;
  const ir::NodeRef total = api::reduce_node(Op::reduce_sum, g.node(), mask, g.dtype(), true);
  return api::finish(api::reshape_node(total.get(), dims));
}

Tensor zeros_of(std::span<const std::int64_t> dims, const ir::Node& like) {
  TensorOptions options(computed_as(like.dtype));
  if (like.device != ir::kAnyDevice) options.device = ir::device_of(like.device);
  return zeros(Shape(dims), options);
}

void add_to(Tensor& sum, const Tensor& term) { sum = sum.valid() ? sum + term : term; }

Tensor trigamma(const Tensor& x) {
  // Reflection below 1/2, recurrence to 8 and more, and the asymptotic series: Abramowitz and Stegun 6.4.7,
  // 6.4.6 and 6.4.12.
  constexpr double kPi = 3.141592653589793;
  const Tensor low = x < 0.5;
  const Tensor up = where(low, 1.0 - x, x);
  Tensor sum;
  for (int k = 0; k < 8; ++k) {
    const Tensor one = reciprocal(up + static_cast<double>(k));
    add_to(sum, one * one);
  }
  const Tensor w = reciprocal(up + 8.0), w2 = w * w;
  const Tensor series =
      ((((w2 * (5.0 / 66) - 1.0 / 30) * w2 + 1.0 / 42) * w2 - 1.0 / 30) * w2 + 1.0 / 6) * w2 * w;
  sum = sum + w + w2 * 0.5 + series;
  const Tensor sine = sin(where(low, x, 0.5) * kPi);
  return where(low, kPi * kPi / (sine * sine) - sum, sum);
}

Tensor gelu_tanh_slope(const Tensor& x) {
  constexpr double kRoot = 0.7978845608028654, kCubic = 0.044715;  // sqrt(2 / pi)
  const Tensor x2 = x * x;
  const Tensor t = tanh(x * (x2 * (kCubic * kRoot) + kRoot));
  return t * 0.5 + 0.5 + x * (1.0 - t * t) * (x2 * (1.5 * kCubic * kRoot) + 0.5 * kRoot);
}

Tensor silu_slope(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return s * (x * (1.0 - s) + 1.0);
}

Tensor mish_slope(const Tensor& x) {
  const Tensor t = tanh(softplus(x));
  return t + x * (1.0 - t * t) * sigmoid(x);
}

}  // namespace kiln::diff
