// vmap: a function of one example, computed for many at once.
//
//     auto norm = [](const Tensor& x) { return sqrt(sum(x * x)); };   // of a vector
//     Tensor n = vmap(norm)(rows);                                    // of each row
//     auto f = vmap(predict, {none, 0});                              // the same parameters for all examples
//     auto g = vmap(grad(loss), {none, 0, 0})(params, x, y);          // a gradient for each example
//
// The function is called once, with stand-ins for one example of its mapped arguments: they have shape and
// dtype, and no value. What it records is then recorded for all examples: each operation once, with an axis
// more. The result is that of a call for each example, stacked, but for the rounding of products and sums of
// floats, whose order may depend on the number of examples.
//
// Reading a stand-in, or what was made of one (item, print, a branch in C++, a shape that depends on values)
// is a UserError that names the operation and its line: use where, cond and while_loop. Values from outside
// are the same for all examples, and so are numbers drawn from a key that is: map the key's bits
// (random::Key(const Tensor&)) to draw others for each example. Mapped functions nest, and go with grad, vjp
// and jvp either way. docs/gradients.md has the rules.
#pragma once

#include <kiln/tree.h>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln {

/// Along which axis of its leaves each argument counts the examples, or `none`: all examples share it. Axes
/// count from the back if negative.
class MapAxes {
 public:
  /// One axis for all arguments.
  template <WholeNumber T>
  MapAxes(T axis) : every_(axis) {}
  MapAxes(std::initializer_list<std::optional<Axis>> axes) : axes_(axes) {}

  /// UserError unless it is for so many arguments.
  void check(std::size_t arguments, const SourceLocation& loc) const;
  std::optional<Axis> of(std::size_t argument) const { return every_ ? every_ : axes_[argument]; }

 private:
  std::optional<Axis> every_;
  std::vector<std::optional<Axis>> axes_;
};

namespace detail {

/// One call of a mapped function: see src/vmap/examples.h.
class Mapping {
 public:
  Mapping(const MapAxes& axes, std::size_t arguments, const SourceLocation& loc);
  ~Mapping();
  Mapping(const Mapping&) = delete;

  bool maps(std::size_t argument) const { return axes_.of(argument).has_value(); }
  /// The leaves of an argument, which are named in errors: looked at, and counted.
  void add(std::span<const Tensor> leaves, std::span<const std::string> names, std::size_t argument);
  [[noreturn]] void refuse_argument(std::size_t argument) const;
  /// Stand-ins for the leaves of an argument that was added; the function runs from here on.
  std::vector<Tensor> examples(std::size_t argument);
  /// The function's results for all examples, which `axis` counts.
  std::vector<Tensor> results(std::span<const Tensor> leaves, Axis axis);

 private:
  struct Call;
  const MapAxes& axes_;
  SourceLocation loc_;
  std::unique_ptr<Call> call_;
};

template <class A>
void add_argument(Mapping& mapping, const A& argument, std::size_t number) {
  if (!mapping.maps(number)) return;
  if constexpr (Tree<A>)
    mapping.add(tree_leaves(argument), tree_names(argument), number);
  else
    mapping.refuse_argument(number);
}
template <class A>
void take_example(Mapping& mapping, A& argument, std::size_t number) {
  if constexpr (Tree<A>)
    if (mapping.maps(number)) argument = tree_unflatten(argument, mapping.examples(number));
}

}  // namespace detail

/// What vmap returns: f for many examples.
template <class F>
class Mapped {
 public:
  Mapped(F f, MapAxes in, Axis out, const SourceLocation& loc)
      : f_(std::move(f)), in_(std::move(in)), out_(out), loc_(loc) {}

  template <class... A>
  auto operator()(const A&... args) const {
    detail::Mapping mapping(in_, sizeof...(A), loc_);
    std::tuple<A...> given(args...);
    const auto each = [&]<std::size_t... I>(std::index_sequence<I...>) {
      (detail::add_argument(mapping, std::get<I>(given), I), ...);
      (detail::take_example(mapping, std::get<I>(given), I), ...);
    };
    each(std::index_sequence_for<A...>());
    auto result = std::apply([&](const A&... a) { return f_(a...); }, given);
    static_assert(Tree<decltype(result)>, "a mapped function returns a tree of tensors");
    return tree_unflatten(result, mapping.results(tree_leaves(result), out_));
  }

 private:
  F f_;
  MapAxes in_;
  Axis out_;
  SourceLocation loc_;
};

/// f as a function of many examples. Arguments that are mapped are trees, whose leaves have the axis `in`
/// says and as many examples each; others may be anything, and f gets them as they are. f returns a tree,
/// whose leaves get the axis `out`. UserErrors: a leaf without that axis, numbers of examples that differ, no
/// mapped argument at all, and a value that is read inside f.
template <class F>
[[nodiscard]] Mapped<F> vmap(F f, MapAxes in = 0, Axis out = 0,
                             SourceLocation loc = SourceLocation::current()) {
  return Mapped<F>(std::move(f), std::move(in), out, loc);
}

}  // namespace kiln
