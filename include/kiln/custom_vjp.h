// Functions with derivatives of their own: custom_vjp says what a derivative is, checkpoint when it is
// computed.
#pragma once

#include <kiln/grad.h>

#include <functional>
#include <optional>

namespace kiln {

namespace detail {

/// How a call is differentiated: the operands' cotangents from the results', the results' tangents from the
/// operands'. Empty handles stand for 0. Without the second, forward mode is a UserError.
struct CustomRule {
  using Linear = std::function<std::vector<Tensor>(std::span<const Tensor> given)>;
  std::string_view name;
  Linear pull, push;
};
/// Whether a function is being differentiated now, by whatever thread.
bool differentiating();
/// The results of a call under identities of their own, with this derivative by `in`.
std::vector<Tensor> with_rule(CustomRule rule, std::span<const Tensor> in, std::span<const Tensor> out);
/// x, bit for bit, but computed after g: so that what is made of it is not taken for what was made of x
/// before.
Tensor after(const Tensor& x, const Tensor& g);

template <class... A>
std::vector<Tensor> leaves_of(const std::tuple<A...>& trees) {
  std::vector<Tensor> all;
  std::apply(
      [&](const A&... tree) { (tree_for_each([&](const Tensor& t) { all.push_back(t); }, tree), ...); },
      trees);
  return all;
}
template <class... A>
std::tuple<A...> with_leaves(const std::tuple<A...>& like, std::span<const Tensor> leaves) {
  std::tuple<A...> out = like;
  std::size_t i = 0;
  std::apply([&](A&... tree) { (tree_for_each([&](Tensor& t) { t = leaves[i++]; }, tree), ...); }, out);
  return out;
}
/// Results for which nothing was given have zeros.
std::vector<Tensor> with_zeros(std::span<const Tensor> given, std::span<const Tensor> like);

/// f's derivative where it is called again: forward or backward, by its float leaves.
template <class F, class... A>
class Again {
 public:
  Again(F& f, const std::tuple<A...>& args) : tape_("checkpoint"), leaves_(leaves_of(args)) {
    std::vector<Tensor> floats;
    for (const Tensor& x : leaves_)
      if (is_float(x.dtype())) floats.push_back(x);
    const std::vector<Tensor> primals = tape_.primals(floats, std::vector<std::string>(floats.size()), 0);
    std::vector<Tensor> now = leaves_;
    std::size_t i = 0;
    for (Tensor& x : now)
      if (is_float(x.dtype())) x = primals[i++];
    const auto result = call_with(f, with_leaves(args, now));
    results_ = tree_leaves(result);
    tape_.close(results_);
  }

  std::vector<Tensor> pull(std::span<const Tensor> g) const {
    const std::vector<Tensor> back = tape_.pull(with_zeros(g, results_));
    std::vector<Tensor> out;
    std::size_t i = 0;
    for (const Tensor& x : leaves_) out.push_back(is_float(x.dtype()) ? back[i++] : Tensor());
    return out;
  }
  std::vector<Tensor> push(std::span<const Tensor> t) const {
    std::vector<Tensor> given, like;
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      if (is_float(leaves_[i].dtype())) {
        given.push_back(t[i]);
        like.push_back(leaves_[i]);
      }
    return tape_.push(with_zeros(given, like));
  }

 private:
  TapeHandle tape_;
  std::vector<Tensor> leaves_, results_;
};

}  // namespace detail

/// f with a derivative of its own: h(args…) is f(args…), and its cotangents by the arguments are
/// backward(g, y, args…), where y is the result and g its cotangent, a tree like y; a tree like the argument,
/// or a tuple of trees for several. Arguments and result are trees; what f takes from elsewhere must not be
/// differentiated (UserError). Such a function has no tangents: jvp of it is a UserError.
template <class F, class B>
[[nodiscard]] auto custom_vjp(F f, B backward) {
  return [f = std::move(f), backward = std::move(backward)]<Tree... A>(const A&... args) {
    if (!detail::differentiating()) return f(args...);
    auto y = f(stop_gradient(args)...);
    using Y = decltype(y);
    const std::tuple<A...> given(args...);
    const std::tuple<Y> made(y);
    const std::vector<Tensor> in = detail::leaves_of(given), out = detail::leaves_of(made);
    detail::CustomRule rule;
    rule.name = "custom_vjp";
    rule.pull = [=](std::span<const Tensor> g) {
      const auto [cotangent] = detail::with_leaves(made, detail::with_zeros(g, out));
      const Y result = std::get<0>(made);
      auto back = std::apply([&](const A&... a) { return backward(cotangent, result, a...); }, given);
      if constexpr (sizeof...(A) == 1)
        return tree_leaves(back);
      else
        return detail::leaves_of(std::tuple<A...>(std::move(back)));
    };
    return tree_unflatten(y, detail::with_rule(std::move(rule), in, out));
  };
}

/// f without its inner values: h(args…) is f(args…), and a derivative keeps the arguments alone and runs f
/// once more when its cotangents arrive. That trades a second run of f for the memory of what it computes. f
/// takes and returns trees; what it takes from elsewhere must not be differentiated (UserError), and it must
/// compute the same each time: hand in the keys of its random numbers.
template <class F>
[[nodiscard]] auto checkpoint(F f) {
  return [f = std::move(f)]<Tree... A>(const A&... args) {
    if (!detail::differentiating()) return f(args...);
    auto y = f(stop_gradient(args)...);
    const std::tuple<A...> given(args...);
    const std::vector<Tensor> in = detail::leaves_of(given), out = tree_leaves(y);
    detail::CustomRule rule;
    rule.name = "checkpoint";
    rule.pull = [=](std::span<const Tensor> g) {
      const Tensor* first = nullptr;
      for (const Tensor& each : g)
        if (each.valid() && first == nullptr) first = &each;
      std::vector<Tensor> later;
      for (const Tensor& x : in) later.push_back(detail::after(x, *first));
      return detail::Again(f, detail::with_leaves(given, later)).pull(g);
    };
    rule.push = [=](std::span<const Tensor> t) { return detail::Again(f, given).push(t); };
    return tree_unflatten(y, detail::with_rule(std::move(rule), in, out));
  };
}

}  // namespace kiln
