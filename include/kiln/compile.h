// Functions that are recorded once.
//
//     auto step = kiln::compile([](const Model& m, const State& s, const Tensor& x, const Tensor& y) {
//       auto [loss, gradient] = value_and_grad(cross_entropy_of, m, x, y);
//       …
//       return std::tuple(new_m, new_s, loss);
//     });
//     for (auto [x, y] : data) std::tie(m, s, loss) = step(std::move(m), std::move(s), x, y);
//
// The first call runs the function and evaluates its results, as one evaluation. Later calls with arguments
// like the first's (the same structure, shapes, dtypes, devices and numbers) record nothing: they run what
// the first call planned on the new arguments, which costs little more than the kernels. Other arguments are
// recorded in their turn, and kept beside the first.
//
// So a call must be all that the function does: what it prints is printed while it is recorded, and a tensor
// that it takes from outside its arguments keeps the value of that time. Where the calls of a function cannot
// be told by its arguments it runs as it is, each time, and `recorded_because` says why: it reads a value
// while it runs, or keeps a tensor beside its results. A call inside another compiled function, or inside a
// function that is mapped by vmap or repeated by a loop, becomes a part of that: its operations are recorded
// there. The operations of every call are recorded, too, while a function is being differentiated on any
// thread of the process, since its derivative may go through values of other threads; and in the modes eager
// and interpret.
#pragma once

#include <kiln/tree.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln {

namespace detail {

/// The arguments of one call, taken apart: their tensors, and all else that tells calls apart.
class CallArguments {
 public:
  /// `types`: one address for each list of types.
  explicit CallArguments(const void* types) { words_.push_back(std::bit_cast<std::uintptr_t>(types)); }

  template <class A>
  void add(A&& a) {
    constexpr bool moved = !std::is_lvalue_reference_v<A> && !std::is_const_v<A>;
    take(a, moved);
  }

  struct Leaf {
    ir::Node* node;
    bool moved;
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  template <class X>
  void take(const X& x, bool moved) {
    if constexpr (std::same_as<X, Tensor>) {
      words_.push_back(x.valid());
      if (x.valid()) leaves_.push_back({x.node(), moved});
    } else if constexpr (std::is_floating_point_v<X>) {
      words_.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(x)));
    } else if constexpr (std::is_arithmetic_v<X>) {
      words_.push_back(static_cast<std::uint64_t>(x));
    } else if constexpr (HasFields<X>) {
      members(const_cast<X&>(x).fields(), moved);  // which changes nothing
    } else if constexpr (OptionalValue<X>) {
      words_.push_back(x.has_value());
      if (x.has_value()) take(*x, moved);
    } else if constexpr (OrderedMap<X>) {
      words_.push_back(x.size());
      for (const auto& [key, value] : x) {
        words_.push_back(std::hash<std::remove_cvref_t<decltype(key)>>{}(key));
        take(value, moved);
      }
    } else if constexpr (PlainRange<X>) {
      words_.push_back(static_cast<std::uint64_t>(std::ranges::distance(x)));
      for (const auto& element : x) take(element, moved);
    } else {
      members(x, moved);
    }
  }
  template <class M>
  void members(const M& m, bool moved) {
    std::apply([&](const auto&... each) { (take(each, moved), ...); }, m);
  }

  std::vector<Leaf> leaves_;
  std::vector<std::uint64_t> words_;
};

/// What a compiled function has kept of its calls; copies share it.
class KeptCalls {
 public:
  KeptCalls();
  /// Whether a call is a part of what its thread is recording, or evaluates as it records.
  static bool is_part();

  /// A tree like the result of the kept call, and the leaves of this one's. Null: it must be recorded.
  std::shared_ptr<const void> replay(const CallArguments& call, std::vector<Tensor>& results) const;

  /// While one lives, a call is recorded.
  class Recording {
   public:
    Recording(const KeptCalls& calls, CallArguments call);
    ~Recording();
    Recording(const Recording&) = delete;
    /// Evaluates the results and keeps what was recorded if it can be. `release` drops the function's
    /// arguments. `like`: a tree like the result.
    void end(std::span<const Tensor> results, std::shared_ptr<const void> like,
             const std::function<void()>& release);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

  /// Why the latest call was recorded; empty: it was not, or nothing like it had been before.
  std::string why() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A tensor of one element, which stands for those of a result's structure.
const Tensor& stand_in();

template <class... T>
inline constexpr char call_types = 0;

}  // namespace detail

/// See above. Copies share what they have kept. Calls may come from any threads; the function itself may then
/// run on several at once.
template <class F>
class Compiled {
 public:
  explicit Compiled(F f) : f_(std::make_shared<F>(std::move(f))) {}

  /// Arguments are trees of tensors (kiln/tree.h) and C++ numbers, the result is a tree, whose leaves are
  /// evaluated (on a GPU: enqueued). Trees that are given away, `step(std::move(model))`, are empty after the
  /// call; their memory may be that of results.
  template <class... A>
    requires((Tree<A> || std::is_arithmetic_v<std::remove_cvref_t<A>>) && ...)
  auto operator()(A&&... args) const {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, const std::remove_cvref_t<A>&...>>;
    static_assert(Tree<R>, "a compiled function returns a tree of tensors");
    if (detail::KeptCalls::is_part()) {
      R out = (*f_)(std::as_const(args)...);
      (empty(std::forward<A>(args)), ...);
      return out;
    }
    detail::CallArguments call(&detail::call_types<R, std::remove_cvref_t<A>...>);
    (call.add(std::forward<A>(args)), ...);
    std::vector<Tensor> leaves;
    if (const auto like = calls_.replay(call, leaves)) {
      R out = *static_cast<const R*>(like.get());
      std::size_t next = 0;
      tree_for_each([&](Tensor& leaf) { leaf = std::move(leaves[next++]); }, out);
      (empty(std::forward<A>(args)), ...);
      return out;
    }
    detail::KeptCalls::Recording recording(calls_, std::move(call));
    auto given = std::make_unique<std::tuple<std::remove_cvref_t<A>...>>(std::forward<A>(args)...);
    (empty(std::forward<A>(args)), ...);
    R out = std::apply([&](const auto&... a) { return (*f_)(a...); }, *given);
    recording.end(tree_leaves(out),
                  std::make_shared<R>(tree_map([](const Tensor&) { return detail::stand_in(); }, out)),
                  [&] { given.reset(); });
    return out;
  }

  /// Why the latest call ran the function: "the function needs a value while it runs, at step.cpp:17". Empty
  /// where it did not, or nothing like the call had been before.
  [[nodiscard]] std::string recorded_because() const { return calls_.why(); }

 private:
  template <class A>
  static void empty(A&& a) {
    if constexpr (!std::is_lvalue_reference_v<A> && !std::is_const_v<A> && Tree<A>)
      tree_for_each([](Tensor& leaf) { leaf = Tensor(); }, a);
  }

  std::shared_ptr<F> f_;
  detail::KeptCalls calls_;
};

/// f as a function that is recorded once for each kind of arguments.
template <class F>
[[nodiscard]] Compiled<std::decay_t<F>> compile(F&& f) {
  return Compiled<std::decay_t<F>>(std::forward<F>(f));
}

}  // namespace kiln
