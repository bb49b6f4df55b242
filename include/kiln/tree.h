// Trees of tensors: the arguments of programs that have many tensors, such as the parameters of a model.
//
// A tree is a Tensor, a range (vector, array), a map ordered by its keys, a tuple or pair, an optional, or a
// struct that names its members once:
//
//     struct Linear {
//       Tensor weight, bias;
//       KILN_FIELDS(weight, bias)
//     };
//
// which is `auto fields() { return std::tie(weight, bias); }` and `static constexpr std::array names =
// {"weight", "bias"}`; a struct may write these out, and may leave `names` out. Trees nest. The leaves of a
// tree are its tensors, in the order of the members; an empty handle and an optional without a value are no
// leaves. C++ numbers among the members of a struct or tuple are copied with it and are no leaves either.
// A leaf's name is its path: "layers.0.weight"; a member of a struct without names, or of a tuple, has its
// number for a name.
#pragma once

#include <kiln/error.h>
#include <kiln/tensor.h>

#include <array>
#include <concepts>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Makes a tree of the struct it stands in: lists the members that hold tensors.
#define KILN_FIELDS(...)                          \
  auto fields() { return std::tie(__VA_ARGS__); } \
  static constexpr auto names =                   \
      ::kiln::detail::field_names<::kiln::detail::field_count(#__VA_ARGS__)>(#__VA_ARGS__);

namespace kiln {

namespace detail {

constexpr std::size_t field_count(std::string_view list) {
  std::size_t count = 1;
  for (const char c : list) count += c == ',';
  return count;
}
/// The names in "weight, bias".
template <std::size_t N>
constexpr std::array<std::string_view, N> field_names(std::string_view list) {
  std::array<std::string_view, N> out;
  for (std::string_view& name : out) {
    const std::size_t begin = list.find_first_not_of(' '), end = list.find(',');
    name = list.substr(begin, end == list.npos ? end : end - begin);
    while (name.ends_with(' ')) name.remove_suffix(1);
    list.remove_prefix(end == list.npos ? list.size() : end + 1);
  }
  return out;
}

template <class T>
concept HasFields = requires(T& t) { std::tuple_size<decltype(t.fields())>::value; };
template <class T>
concept OptionalValue = requires(T& t) {
  t.has_value();
  { *t } -> std::same_as<typename T::value_type&>;
};
template <class T>
concept OrderedMap = std::ranges::forward_range<T> && requires {
  typename T::mapped_type;
  typename T::key_compare;
};
template <class T>
concept PlainRange = std::ranges::forward_range<T> && !OrderedMap<T> &&
                     std::same_as<std::ranges::range_reference_t<T>, std::ranges::range_value_t<T>&>;
template <class T>
concept TupleLike = !PlainRange<T> && requires { std::tuple_size<T>::value; };
template <class K>
concept TreeKey = std::convertible_to<const K&, std::string_view> || WholeNumber<K>;

/// What a type is to a walk: no tree, a number that is carried along, or something with tensors in it.
enum class TreeKind : std::uint8_t { None, Number, Tensors };

template <class T>
constexpr TreeKind tree_kind();
/// Of the members of a tuple, or references to them.
template <class... M>
constexpr TreeKind kind_of_members(const std::type_identity<std::tuple<M...>>*) {
  const TreeKind kinds[] = {TreeKind::Number, tree_kind<std::remove_cvref_t<M>>()...};
  TreeKind out = TreeKind::Number;
  for (const TreeKind kind : kinds) {
    if (kind == TreeKind::None) return TreeKind::None;
    if (kind == TreeKind::Tensors) out = kind;
  }
  return out == TreeKind::Tensors ? out : TreeKind::None;
}
template <class A, class B>
constexpr TreeKind kind_of_members(const std::type_identity<std::pair<A, B>>*) {
  return kind_of_members(static_cast<const std::type_identity<std::tuple<A, B>>*>(nullptr));
}
constexpr TreeKind kind_of_members(const void*) { return TreeKind::None; }

template <class T>
constexpr TreeKind tree_kind() {
  const auto elements = [](TreeKind kind) { return kind == TreeKind::Tensors ? kind : TreeKind::None; };
  if constexpr (std::same_as<T, Tensor>) {
    return TreeKind::Tensors;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return TreeKind::Number;
  } else if constexpr (HasFields<T>) {
    using Fields = decltype(std::declval<T&>().fields());
    return kind_of_members(static_cast<const std::type_identity<Fields>*>(nullptr));
  } else if constexpr (OptionalValue<T>) {
    return elements(tree_kind<typename T::value_type>());
  } else if constexpr (OrderedMap<T>) {
    return TreeKey<typename T::key_type> ? elements(tree_kind<typename T::mapped_type>()) : TreeKind::None;
  } else if constexpr (PlainRange<T>) {
    return elements(tree_kind<std::ranges::range_value_t<T>>());
  } else if constexpr (TupleLike<T>) {
    return kind_of_members(static_cast<const std::type_identity<T>*>(nullptr));
  } else {
    return TreeKind::None;
  }
}

}  // namespace detail

/// A Tensor, or a range, ordered map, tuple, optional or struct with fields() that holds some.
template <class T>
concept Tree = detail::tree_kind<std::remove_cvref_t<T>>() == detail::TreeKind::Tensors;

/// Where in a tree: a list from a leaf to the root. str() is "layers.0.weight"; empty for the root.
struct TreePath {
  const TreePath* parent = nullptr;
  std::string_view name;   ///< of a member or a key; empty: `index`
  std::int64_t index = 0;  ///< of an element
  std::string str() const {
    if (!parent) return {};
    std::string out = parent->str();
    if (!out.empty()) out += '.';
    return name.empty() ? out + std::to_string(index) : out.append(name);
  }
};

namespace detail {

/// Walks trees of one type side by side. Ends in f(path, leaf…), and in f(path, number…) where f takes it.
template <class F>
class TreeWalk {
 public:
  TreeWalk(std::string_view op, F& f) : op_(op), f_(f) {}

  template <class X, class... Y>
  void walk(const TreePath& path, X& x, Y&... y) {
    using T = std::remove_const_t<X>;
    static_assert((std::same_as<T, std::remove_const_t<Y>> && ...), "the trees have different types");
    if constexpr (std::same_as<T, Tensor>) {
      if (((x.valid() != y.valid()) || ...)) differ(path, "one tensor is an empty handle");
      if (x.valid()) f_(path, x, y...);
    } else if constexpr (std::is_arithmetic_v<T>) {
      if constexpr (std::invocable<F&, const TreePath&, X&, Y&...>) f_(path, x, y...);
    } else if constexpr (HasFields<T>) {
      members(names_of<T>(), path, x_fields(x), x_fields(y)...);
    } else if constexpr (OptionalValue<T>) {
      if (((x.has_value() != y.has_value()) || ...)) differ(path, "one optional is empty");
      if (x.has_value()) walk(path, *x, *y...);
    } else if constexpr (OrderedMap<T>) {
      entries(path, x, std::pair(y.begin(), y.end())...);
    } else if constexpr (PlainRange<T>) {
      elements(path, x, std::pair(y.begin(), y.end())...);
    } else {
      members(std::span<const std::string_view>(), path, references(x), references(y)...);
    }
  }

 private:
  [[noreturn]] void differ(const TreePath& path, const std::string& how) const {
    const std::string at = path.str();
    throw UserError("[" + std::string(op_) + "] the trees differ" + (at.empty() ? "" : " at " + at) + ": " +
                    how);
  }

  template <class T>
  static auto names_of() {
    if constexpr (requires { std::size(T::names); }) {
      static_assert(std::size(T::names) == std::tuple_size_v<decltype(std::declval<T&>().fields())>,
                    "names and fields() differ in length");
      return std::span(T::names);
    } else {
      return std::span<const std::string_view>();
    }
  }
  /// The members of a struct; fields() changes nothing, so that it may be asked of a constant as well.
  template <class X>
  static auto x_fields(X& x) {
    auto fields = const_cast<std::remove_const_t<X>&>(x).fields();
    if constexpr (std::is_const_v<X>)
      return std::apply([](auto&... m) { return std::tie(std::as_const(m)...); }, fields);
    else
      return fields;
  }
  template <class X>
  static auto references(X& x) {
    return std::apply([](auto&... m) { return std::tie(m...); }, x);
  }

  template <class Names, class X, class... Y>
  void members(const Names& names, const TreePath& path, X x, Y... y) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (member<I>(TreePath{&path, names.empty() ? std::string_view() : std::string_view(names[I]),
                          static_cast<std::int64_t>(I)},
                 x, y...),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<X>>());
  }
  template <std::size_t I, class X, class... Y>
  void member(const TreePath& path, X& x, Y&... y) {
    walk(path, std::get<I>(x), std::get<I>(y)...);
  }

  template <class X, class... Y>
  void elements(const TreePath& path, X& x, Y... y) {
    std::int64_t i = 0;
    for (auto& element : x) {
      if (((y.first == y.second) || ...)) differ(path, "different numbers of elements");
      walk(TreePath{&path, {}, i++}, element, *y.first++...);
    }
    if (((y.first != y.second) || ...)) differ(path, "different numbers of elements");
  }
  template <class X, class... Y>
  void entries(const TreePath& path, X& x, Y... y) {
    for (auto& [key, value] : x) {
      if (((y.first == y.second || y.first->first != key) || ...)) differ(path, "different keys");
      if constexpr (WholeNumber<std::remove_cvref_t<decltype(key)>>)
        walk(TreePath{&path, {}, saturated(key)}, value, y.first++->second...);
      else
        walk(TreePath{&path, key, 0}, value, y.first++->second...);
    }
    if (((y.first != y.second) || ...)) differ(path, "different keys");
  }

  std::string_view op_;
  F& f_;
};

/// Calls f(path, leaf…) for trees of one type; `op` begins the error where their structures differ.
template <class F, class X, class... Y>
void walk_trees(std::string_view op, F f, X& x, Y&... y) {
  TreeWalk<F>(op, f).walk(TreePath{}, x, y...);
}

}  // namespace detail

/// Calls f(leaf…), or f(const TreePath&, leaf…), with the leaves of trees of one type and structure, side by
/// side. Leaves of trees that are not const may be assigned to. UserError that names the place where the
/// structures differ; leaves before it have been visited.
template <class F, Tree X, Tree... Y>
void tree_for_each(F&& f, X& x, Y&... y) {
  constexpr bool with_path = std::invocable<F&, const TreePath&, decltype((std::declval<Tensor&>())),
                                            std::conditional_t<false, Y, Tensor&>...>;
  const auto call = [&]<class... L>(const TreePath& path, L&... leaf)
    requires(std::same_as<std::remove_const_t<L>, Tensor> && ...)
  {
    if constexpr (with_path)
      f(path, leaf...);
    else
      f(leaf...);
  };
  detail::walk_trees("tree_for_each", call, x, y...);
}

/// The leaves of a tree, in order.
template <Tree X>
[[nodiscard]] std::vector<Tensor> tree_leaves(const X& x) {
  std::vector<Tensor> out;
  tree_for_each([&](const Tensor& leaf) { out.push_back(leaf); }, x);
  return out;
}

/// The names of the leaves, in the same order: "layers.0.weight". Of a Tensor: "".
template <Tree X>
[[nodiscard]] std::vector<std::string> tree_names(const X& x) {
  std::vector<std::string> out;
  tree_for_each([&](const TreePath& path, const Tensor&) { out.push_back(path.str()); }, x);
  return out;
}

/// How many leaves a tree has.
template <Tree X>
[[nodiscard]] std::size_t tree_size(const X& x) {
  std::size_t count = 0;
  tree_for_each([&](const Tensor&) { ++count; }, x);
  return count;
}

/// A tree like another one with these leaves. UserError unless there are as many as `like` has.
template <Tree X>
[[nodiscard]] X tree_unflatten(const X& like, std::span<const Tensor> leaves) {
  if (const std::size_t size = tree_size(like); size != leaves.size())
    throw UserError("[tree_unflatten] " + std::to_string(leaves.size()) + " leaves for a tree of " +
                    std::to_string(size));
  X out = like;
  std::size_t i = 0;
  tree_for_each([&](Tensor& leaf) { leaf = leaves[i++]; }, out);
  return out;
}

/// The tree of f(leaf…), or f(const TreePath&, leaf…), for trees of one type and structure; what is no leaf
/// is x's. UserError that names the place where the structures differ.
template <class F, Tree X, std::same_as<X>... Y>
[[nodiscard]] X tree_map(F&& f, const X& x, const Y&... y) {
  constexpr bool with_path =
      std::invocable<F&, const TreePath&, const Tensor&, std::conditional_t<false, Y, const Tensor&>...>;
  X out = x;
  const auto call = [&](const TreePath& path, Tensor& to,
                        const std::conditional_t<false, Y, Tensor>&... leaf) {
    if constexpr (with_path)
      to = f(path, std::as_const(to), leaf...);
    else
      to = f(std::as_const(to), leaf...);
  };
  detail::walk_trees("tree_map", call, out, y...);
  return out;
}

/// Evaluates the leaves of several trees together.
template <Tree... X>
void tree_eval(const X&... x) {
  std::vector<Tensor> leaves;
  (tree_for_each([&](const Tensor& leaf) { leaves.push_back(leaf); }, x), ...);
  eval(std::span<const Tensor>(leaves));
}

}  // namespace kiln
