// Derivatives of C++ functions over tensors.
//
//     auto loss = [&](const Params& p, const Tensor& x, const Tensor& y) { return nn::mse_loss(model(p, x),
//     y); }; auto [value, gradient] = value_and_grad(loss, params, x, y);   // gradient: a Params
//
// The function runs once, on real values: it may print, branch on and read whatever it computes. What it
// records is differentiated operation by operation, and the derivative is recorded as ordinary operations,
// which fuse like any others and may be differentiated again. Arguments that are differentiated are trees of
// tensors (kiln/tree.h) whose leaves are floats; others may be anything.
//
// A value that the function does not depend on has the derivative 0. Values that the function takes from
// outside its arguments are constants. Comparisons, roundings and integers pass no derivative on. UserErrors
// name the operation and the line that recorded it: a loss of several elements, an argument that is no float,
// an operation without a derivative, a cotangent of another shape or dtype. docs/gradients.md has the rules.
#pragma once

#include <kiln/tree.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln {

namespace diff {
class Tape;
}

namespace detail {

/// A differentiated call: see src/grad/tape.h.
class TapeHandle {
 public:
  explicit TapeHandle(std::string_view op);
  /// Aliases of the leaves of one argument, which are named in errors.
  std::vector<Tensor> primals(std::span<const Tensor> leaves, std::span<const std::string> names,
                              std::size_t argument) const;
  void close(std::span<const Tensor> results) const;
  /// The same of a function whose result must have one element.
  void close_loss(const Tensor& loss) const;
  [[nodiscard]] std::vector<Tensor> pull(std::span<const Tensor> cotangents) const;
  [[nodiscard]] std::vector<Tensor> push(std::span<const Tensor> tangents) const;
  /// The cotangents of the loss's primals.
  [[nodiscard]] std::vector<Tensor> pull_loss() const;

 private:
  std::shared_ptr<diff::Tape> tape_;
};

template <Tree P>
P traced(const TapeHandle& tape, const P& p, std::size_t argument) {
  return tree_unflatten(p, tape.primals(tree_leaves(p), tree_names(p), argument));
}

/// The next leaves of `all` as a tree like `like`.
template <Tree P>
P next_tree(const P& like, std::span<const Tensor>& all) {
  const std::size_t size = tree_size(like);
  P out = tree_unflatten(like, all.first(size));
  all = all.subspan(size);
  return out;
}

/// One tree as it is, several as a tuple.
template <class... P>
auto one_or_tuple(P&&... p) {
  if constexpr (sizeof...(P) == 1)
    return (std::remove_cvref_t<P>(std::forward<P>(p)), ...);
  else
    return std::tuple<std::remove_cvref_t<P>...>(std::forward<P>(p)...);
}

/// What a function returns: a loss, or a pair or tuple of a loss and values that are handed on as they are.
template <class R>
concept WithAux = !std::convertible_to<const R&, const Tensor&> && requires { std::tuple_size<R>::value; };
template <class R>
Tensor loss_of(const R& result) {
  if constexpr (WithAux<R>)
    return std::get<0>(result);
  else
    return result;
}
template <class R, class G>
auto with_gradient(const R& result, G&& gradient) {
  using Gradient = std::remove_cvref_t<G>;
  if constexpr (WithAux<R>)
    return std::apply(
        [&]<class... Aux>(const Tensor& value, const Aux&... aux) {
          return std::tuple<Tensor, Aux..., Gradient>(value, aux..., std::forward<G>(gradient));
        },
        result);
  else
    return std::tuple<Tensor, Gradient>(result, std::forward<G>(gradient));
}

template <class F, class... A>
auto call_with(F& f, const std::tuple<A...>& args) {
  return std::apply([&](const A&... a) { return f(a...); }, args);
}

}  // namespace detail

/// Which arguments a function is differentiated by: value_and_grad(f, wrt<0, 2>, a, b, c).
template <std::size_t... I>
struct Wrt {};
template <std::size_t... I>
inline constexpr Wrt<I...> wrt{};

namespace detail {

template <class F, std::size_t... I, class... A>
auto value_and_grad_of(std::string_view op, F& f, Wrt<I...>, const A&... args) {
  static_assert(((I < sizeof...(A)) && ...), "wrt names an argument that is not there");
  const TapeHandle tape(op);
  std::tuple<A...> given(args...);
  ((std::get<I>(given) = traced(tape, std::get<I>(given), I)), ...);
  const auto result = call_with(f, given);
  tape.close_loss(loss_of(result));
  const std::vector<Tensor> all = tape.pull_loss();
  std::span<const Tensor> rest(all);
  // (Types by name: deduction takes a pair apart.)
  std::tuple<std::tuple_element_t<I, std::tuple<A...>>...> parts{next_tree(std::get<I>(given), rest)...};
  return with_gradient(result, std::apply([](auto&... p) { return one_or_tuple(p...); }, parts));
}

}  // namespace detail

/// f(args…) and its gradient by the arguments that wrt<…> names: {value, gradient}, where the gradient is a
/// tree like the argument, or a tuple of trees for several. f returns a Tensor of one element, or a pair or
/// tuple of it and other values, which come between: {value, aux…, gradient}. UserErrors as above.
template <class F, std::size_t... I, class... A>
[[nodiscard]] auto value_and_grad(F&& f, Wrt<I...> which, const A&... args) {
  return detail::value_and_grad_of("value_and_grad", f, which, args...);
}
/// The same by the first argument.
template <class F, Tree P, class... A>
[[nodiscard]] auto value_and_grad(F&& f, const P& p, const A&... args) {
  return detail::value_and_grad_of("value_and_grad", f, wrt<0>, p, args...);
}

/// The gradient alone.
template <class F, std::size_t... I, class... A>
[[nodiscard]] auto grad(F&& f, Wrt<I...> which, const A&... args) {
  auto all = detail::value_and_grad_of("grad", f, which, args...);
  return std::get<std::tuple_size_v<decltype(all)> - 1>(std::move(all));
}
template <class F, Tree P, class... A>
[[nodiscard]] auto grad(F&& f, const P& p, const A&... args) {
  auto all = detail::value_and_grad_of("grad", f, wrt<0>, p, args...);
  return std::get<std::tuple_size_v<decltype(all)> - 1>(std::move(all));
}
/// The gradient as a function of f's arguments, by the first one: grad(grad(f))(x).
template <class F>
[[nodiscard]] auto grad(F f) {
  return [f = std::move(f)]<Tree P, class... A>(const P& p, const A&... args) { return grad(f, p, args...); };
}

/// Takes cotangents of a function's result to cotangents of its arguments. May be called any number of times;
/// keeps what the function recorded as long as it lives.
template <class Y, class... P>
class Pullback {
 public:
  Pullback(detail::TapeHandle tape, Y result, P... arguments)
      : tape_(std::move(tape)), result_(std::move(result)), arguments_(std::move(arguments)...) {}

  /// A cotangent for each leaf of the result, with its shape and dtype (what stands for integers is not
  /// looked at); returns a tree like the argument, or a tuple of trees for several.
  [[nodiscard]] auto operator()(const Y& cotangent) const {
    std::vector<Tensor> leaves;
    detail::walk_trees(
        "vjp", [&](const TreePath&, const Tensor& g, const Tensor&) { leaves.push_back(g); }, cotangent,
        result_);
    const std::vector<Tensor> all = tape_.pull(leaves);
    std::span<const Tensor> rest(all);
    return std::apply(
        [&](const P&... p) {
          std::tuple<P...> parts{detail::next_tree(p, rest)...};
          return std::apply([](auto&... each) { return detail::one_or_tuple(each...); }, parts);
        },
        arguments_);
  }

 private:
  detail::TapeHandle tape_;
  Y result_;
  std::tuple<P...> arguments_;
};

/// f(args…), a tree, and the function that takes its cotangents back: {result, pullback}.
template <class F, Tree... P>
[[nodiscard]] auto vjp(F&& f, const P&... args) {
  detail::TapeHandle tape("vjp");
  std::tuple<P...> given(args...);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((std::get<I>(given) = detail::traced(tape, std::get<I>(given), I)), ...);
  }(std::index_sequence_for<P...>());
  auto result = detail::call_with(f, given);
  tape.close(tree_leaves(result));
  using Y = decltype(result);
  Pullback<Y, P...> pullback(std::move(tape), result, args...);
  return std::pair<Y, Pullback<Y, P...>>(std::move(result), std::move(pullback));
}

/// f(p) and its change along `tangent`, a tree like p: {result, change}, trees of one type.
template <class F, Tree P>
[[nodiscard]] auto jvp(F&& f, const P& p, const std::type_identity_t<P>& tangent) {
  const detail::TapeHandle tape("jvp");
  std::vector<Tensor> along;
  detail::walk_trees(
      "jvp", [&](const TreePath&, const Tensor&, const Tensor& t) { along.push_back(t); }, p, tangent);
  auto result = f(detail::traced(tape, p, 0));
  tape.close(tree_leaves(result));
  auto change = tree_unflatten(result, tape.push(along));
  return std::pair(std::move(result), std::move(change));
}

/// The derivative of f(x) by x, both tensors: of shape f(x).shape + x.shape. One pass for each element of the
/// smaller of both: for small ones.
template <class F>
[[nodiscard]] Tensor jacobian(F&& f, const Tensor& x);

/// The second derivative of f, which returns a tensor of one element, along `v`, a tree like p: (d/dp (df/dp
/// · v)). About as much work as two gradients.
template <class F, Tree P>
[[nodiscard]] P hessian_vector_product(F&& f, const P& p, const std::type_identity_t<P>& v) {
  return jvp([&](const P& at) { return grad(f, at); }, p, v).second;
}

/// x, but no derivative passes: a constant to every tape.
[[nodiscard]] Tensor stop_gradient(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// The same for all leaves of a tree.
template <Tree X>
  requires(!std::convertible_to<const X&, const Tensor&>)
[[nodiscard]] X stop_gradient(const X& x) {
  return tree_map([](const Tensor& leaf) { return stop_gradient(leaf); }, x);
}

/// At most so many iterations, counted from 0: of a loop that has a gradient.
struct MaxIterations {
  Whole count;
};
/// while_loop (kiln/ops.h) that ends after `most` iterations at the latest, and so has a gradient: backward
/// its body is made again for each of `most` iterations, at states that are kept for each. UserErrors as for
/// while_loop, and for a negative bound.
[[nodiscard]] std::vector<Tensor> while_loop(
    const std::function<Tensor(const std::vector<Tensor>&)>& condition,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body, std::vector<Tensor> state,
    MaxIterations most, SourceLocation loc = SourceLocation::current());

namespace detail {
/// The derivative's rows (or columns) one behind the other, in the shape of a jacobian.
Tensor jacobian_of(const TapeHandle& tape, const Tensor& y, const Tensor& x);
}  // namespace detail

template <class F>
Tensor jacobian(F&& f, const Tensor& x) {
  const detail::TapeHandle tape("jacobian");
  const Tensor y = f(detail::traced(tape, x, 0));
  tape.close({&y, 1});
  return detail::jacobian_of(tape, y, x);
}

}  // namespace kiln
