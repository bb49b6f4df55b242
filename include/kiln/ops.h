// The operations on tensors: elementwise (declared from ops.def, one line each there), operators, creation,
// movement, reductions and contractions. Names, broadcasting and promotion follow the Python array API
// standard.
//
// Every function records an operation and returns at once. Errors are UserErrors that begin with "[name]" and
// give shapes and dtypes. Negative axes count from the back. A view never copies: it is an index map inside
// the kernel that reads it.
#pragma once

#include <kiln/combine.h>
#include <kiln/tensor.h>

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

// ---------------------------------------------------------------------------------------------------------
// Elementwise. Operands broadcast; a C++ number takes the tensor's dtype when its class allows
// (docs/semantics.md).

#define KILN_DECLARE_1(Name) \
  [[nodiscard]] Tensor Name(const Tensor& x, SourceLocation loc = SourceLocation::current());
#define KILN_DECLARE_2(Name)                                    \
  [[nodiscard]] Tensor Name(const Tensor& x, const Operand& y); \
  [[nodiscard]] Tensor Name(Scalar x, const Tensor& y, SourceLocation loc = SourceLocation::current());
#define KILN_DECLARE_3(Name) [[nodiscard]] Tensor Name(const Tensor& x, const Operand& y, const Operand& z);
#define KILN_OP(Name, Arity, ...) KILN_DECLARE_##Arity(Name)
#include <kiln/ops.def>
#undef KILN_OP
#undef KILN_DECLARE_1
#undef KILN_DECLARE_2
#undef KILN_DECLARE_3

/// The slope defaults to 0.01, alpha to 1.
[[nodiscard]] Tensor leaky_relu(const Tensor& x, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor elu(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// x itself; UserError for bool.
[[nodiscard]] Tensor positive(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// x * x.
[[nodiscard]] Tensor square(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// minimum(maximum(x, low), high): NaN in x, low or high gives NaN; high wins where low > high.
[[nodiscard]] Tensor clip(const Tensor& x, const Operand& low, const Operand& high);
[[nodiscard]] Tensor astype(const Tensor& x, DType dtype, SourceLocation loc = SourceLocation::current());
/// The same bits as another dtype of the same size: bitcast(x, DType::Int32) of float32. A bool counts as a
/// byte of 0 or 1. UserError for another size, and for bool as the result (x != 0 makes one).
[[nodiscard]] Tensor bitcast(const Tensor& x, DType dtype, SourceLocation loc = SourceLocation::current());

/// bool: |x - y| <= atol + rtol * |y|, in float32, or float64 where an operand is float64 or an integer.
/// Infinities equal themselves; NaN equals nothing, or NaN with equal_nan.
[[nodiscard]] Tensor isclose(const Tensor& x, const Operand& y, double rtol = 1e-5, double atol = 1e-8,
                             Flag equal_nan = false);
/// Whether isclose holds everywhere. Evaluates.
[[nodiscard]] bool allclose(const Tensor& x, const Operand& y, double rtol = 1e-5, double atol = 1e-8,
                            Flag equal_nan = false);
/// Whether x and y have one shape and equal elements, whatever their dtypes. Evaluates, unless the shapes
/// differ.
[[nodiscard]] bool array_equal(const Tensor& x, const Tensor& y, Flag equal_nan = false,
                               SourceLocation loc = SourceLocation::current());

// Operators. `/` divides in floating point, `%` is remainder (sign of the divisor); && and || are elementwise
// and evaluate both sides. `x += y` is `x = x + y`: other handles of x's old value keep it.
#define KILN_BINARY(Symbol, Name)                                                                       \
  [[nodiscard]] inline Tensor operator Symbol(const Tensor& x, const Operand& y) { return Name(x, y); } \
  [[nodiscard]] inline Tensor operator Symbol(Scalar x, TensorArg y) { return Name(x, *y.tensor, y.loc); }
#define KILN_COMPOUND(Symbol, Name) \
  inline Tensor& operator Symbol(Tensor & x, const Operand & y) { return x = Name(x, y); }
// == takes TensorArg so that C++20's reversed candidate is no better than the plain one.
#define KILN_EQUALITY(Symbol, Name)                                                                         \
  [[nodiscard]] inline Tensor operator Symbol(TensorArg x, const Operand& y) { return Name(*x.tensor, y); } \
  [[nodiscard]] inline Tensor operator Symbol(Scalar x, TensorArg y) { return Name(x, *y.tensor, y.loc); }
KILN_BINARY(+, add)
KILN_BINARY(-, subtract)
KILN_BINARY(*, multiply)
KILN_BINARY(/, divide)
KILN_BINARY(%, remainder)
KILN_BINARY(&, bitwise_and)
KILN_BINARY(|, bitwise_or)
KILN_BINARY(^, bitwise_xor)
KILN_BINARY(<<, bitwise_left_shift)
KILN_BINARY(>>, bitwise_right_shift)
KILN_BINARY(<, less)
KILN_BINARY(<=, less_equal)
KILN_BINARY(>, greater)
KILN_BINARY(>=, greater_equal)
KILN_BINARY(&&, logical_and)
KILN_BINARY(||, logical_or)
KILN_EQUALITY(==, equal)
KILN_EQUALITY(!=, not_equal)
KILN_COMPOUND(+=, add)
KILN_COMPOUND(-=, subtract)
KILN_COMPOUND(*=, multiply)
KILN_COMPOUND(/=, divide)
KILN_COMPOUND(%=, remainder)
KILN_COMPOUND(&=, bitwise_and)
KILN_COMPOUND(|=, bitwise_or)
KILN_COMPOUND(^=, bitwise_xor)
KILN_COMPOUND(<<=, bitwise_left_shift)
KILN_COMPOUND(>>=, bitwise_right_shift)
#undef KILN_BINARY
#undef KILN_COMPOUND
#undef KILN_EQUALITY
[[nodiscard]] inline Tensor operator-(TensorArg x) { return negative(*x.tensor, x.loc); }
[[nodiscard]] inline Tensor operator+(TensorArg x) { return positive(*x.tensor, x.loc); }
[[nodiscard]] inline Tensor operator~(TensorArg x) { return bitwise_invert(*x.tensor, x.loc); }
// A tensor converts to bool where C++ asks for one. These take tensors exactly, so that !x, true && x stay
// elementwise; having no place for the caller's line, they are recorded without one.
[[nodiscard]] inline Tensor operator!(const Tensor& x) { return logical_not(x, SourceLocation()); }
[[nodiscard]] inline Tensor operator&&(bool x, const Tensor& y) {
  return logical_and(x, y, SourceLocation());
}
[[nodiscard]] inline Tensor operator&&(const Tensor& x, bool y) {
  return logical_and(x, {y, SourceLocation()});
}
[[nodiscard]] inline Tensor operator||(bool x, const Tensor& y) { return logical_or(x, y, SourceLocation()); }
[[nodiscard]] inline Tensor operator||(const Tensor& x, bool y) {
  return logical_or(x, {y, SourceLocation()});
}

// ---------------------------------------------------------------------------------------------------------
// Creation. These functions write no memory: they are expressions of the index and fuse with their readers.
// Their numbers are arguments of the kernel: another value compiles nothing.

/// The dtype and the device of a new tensor: zeros(3, DType::Int32), zeros(3, Device::cuda()),
/// zeros(3, {DType::Int32, Device::cuda(1)}). Without a dtype the function's own, without a device that of
/// the process.
struct TensorOptions {
  std::optional<DType> dtype;
  std::optional<Device> device;
  TensorOptions(std::optional<DType> type = std::nullopt, std::optional<Device> place = std::nullopt)
      : dtype(type), device(place) {}
  TensorOptions(std::nullopt_t) {}
  TensorOptions(DType type) : dtype(type) {}
  TensorOptions(Device place) : device(place) {}
};

/// All elements 0 or 1; float32 unless a dtype is given.
[[nodiscard]] Tensor zeros(const Shape& shape, const TensorOptions& options = {},
                           SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor ones(const Shape& shape, const TensorOptions& options = {},
                          SourceLocation loc = SourceLocation::current());
/// dtype defaults to bool, int64 (uint64 from 2^63) or float32 by the class of the value.
[[nodiscard]] Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {},
                          SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor zeros_like(const Tensor& x, const TensorOptions& options = {},
                                SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor ones_like(const Tensor& x, const TensorOptions& options = {},
                               SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor full_like(const Tensor& x, Scalar value, const TensorOptions& options = {},
                               SourceLocation loc = SourceLocation::current());
/// 0, 1, …, stop - 1 (int64, or float32 when stop is a float). UserError for 2^63 numbers and more.
[[nodiscard]] Tensor arange(Scalar stop, const TensorOptions& options = {},
                            SourceLocation loc = SourceLocation::current());
/// start, start + step, … before stop. UserError when step is 0.
[[nodiscard]] Tensor arange(Scalar start, Scalar stop, Scalar step = 1, const TensorOptions& options = {},
                            SourceLocation loc = SourceLocation::current());
/// `count` numbers from start to stop; the last is exactly stop, or one step before it without endpoint.
[[nodiscard]] Tensor linspace(Scalar start, Scalar stop, Whole count, Flag endpoint = true,
                              const TensorOptions& options = {},
                              SourceLocation loc = SourceLocation::current());
/// (rows, columns), 1 where column - row == k. columns < 0: as many as rows.
[[nodiscard]] Tensor eye(Whole rows, Whole columns = -1, Whole k = 0, const TensorOptions& options = {},
                         SourceLocation loc = SourceLocation::current());
/// The lower (upper) triangle of the last two axes: elements with column - row <= k (>= k), else 0.
[[nodiscard]] Tensor tril(const Tensor& x, Whole k = 0, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor triu(const Tensor& x, Whole k = 0, SourceLocation loc = SourceLocation::current());
/// (…, classes) with 1 where the last index equals the element of `indices`; an index out of range gives a
/// row of 0.
[[nodiscard]] Tensor one_hot(const Tensor& indices, Whole classes, DType dtype = DType::Float32,
                             SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Movement: index maps, never copies.

/// A list of axes: 1, {0, -1}, a range of integers, or all_axes. {} is the empty list. UserError for more
/// than kMaxRank.
class Axes {
 public:
  Axes() = default;
  template <WholeNumber I>
  Axes(I axis) : count_(1) {
    axes_[0] = detail::saturated(axis);
  }
  Axes(Axis axis) : Axes(axis.value()) {}
  Axes(std::initializer_list<Axis> axes, const SourceLocation& loc = SourceLocation::current()) {
    for (Axis axis : axes) append(axis, loc);
  }
  template <WholeNumbers R>
  Axes(const R& axes, const SourceLocation& loc = SourceLocation::current()) {
    for (const auto axis : axes) append(axis, loc);
  }
  static Axes everything() {
    Axes a;
    a.all_ = true;
    return a;
  }
  bool all() const { return all_; }
  std::span<const std::int64_t> list() const { return {axes_, static_cast<std::size_t>(count_)}; }

 private:
  void append(Axis axis, const SourceLocation& loc);
  std::int64_t axes_[kMaxRank] = {};
  int count_ = 0;
  bool all_ = false;
};
inline const Axes all_axes = Axes::everything();

/// The same elements in row-major order with another shape. One extent may be -1: it is computed.
[[nodiscard]] Tensor reshape(const Tensor& x, const Shape& shape,
                             SourceLocation loc = SourceLocation::current());
/// Axes start..end (inclusive) become one.
[[nodiscard]] Tensor flatten(const Tensor& x, Axis start = 0, Axis end = -1,
                             SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor permute_dims(const Tensor& x, const Axes& axes,
                                  SourceLocation loc = SourceLocation::current());
/// All axes reversed.
[[nodiscard]] Tensor transpose(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// The last two axes swapped.
[[nodiscard]] Tensor matrix_transpose(const Tensor& x, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor swapaxes(const Tensor& x, Axis a, Axis b,
                              SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor moveaxis(const Tensor& x, const Axes& source, const Axes& destination,
                              SourceLocation loc = SourceLocation::current());
/// New axes of extent 1 at these positions of the result.
[[nodiscard]] Tensor expand_dims(const Tensor& x, const Axes& axes,
                                 SourceLocation loc = SourceLocation::current());
/// Drops axes of extent 1; all_axes drops every one of them.
[[nodiscard]] Tensor squeeze(const Tensor& x, const Axes& axes = all_axes,
                             SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor broadcast_to(const Tensor& x, const Shape& shape,
                                  SourceLocation loc = SourceLocation::current());
[[nodiscard]] std::vector<Tensor> broadcast_arrays(std::span<const Tensor> tensors,
                                                   SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor flip(const Tensor& x, const Axes& axes = all_axes,
                          SourceLocation loc = SourceLocation::current());
/// Elements move `shift` places toward higher indices and wrap; all_axes rolls the flattened tensor.
[[nodiscard]] Tensor roll(const Tensor& x, Whole shift, const Axes& axes = all_axes,
                          SourceLocation loc = SourceLocation::current());
/// widths: {before, after} per axis; negative widths crop.
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
                         Scalar value = 0, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor concat(std::span<const Tensor> tensors, Axis axis = 0,
                            SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor concat(std::initializer_list<Tensor> tensors, Axis axis = 0,
                            SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor stack(std::span<const Tensor> tensors, Axis axis = 0,
                           SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor stack(std::initializer_list<Tensor> tensors, Axis axis = 0,
                           SourceLocation loc = SourceLocation::current());
/// All windows of `size` elements over the given axes: a view with the axes of x, which count windows, and
/// behind them an axis for each entry of `size`, which counts the elements of a window. `size`, `stride` and
/// `dilation` have an entry for each axis, in the order of `axes`; without entries, strides and dilations are
/// 1. Windows begin `stride` elements after each other, and their elements are `dilation` apart. An axis of n
/// elements has (n - span) / stride + 1 windows, rounded down, where span is (size - 1) * dilation + 1;
/// elements behind the last window are left out. max(sliding_window(x, {2, 2}, {-2, -1}, {2, 2}), {-2, -1})
/// is a max-pooling. UserError for a size, stride or dilation below 1, a span greater than the extent, an
/// axis named twice, or more than kMaxRank axes in all.
[[nodiscard]] Tensor sliding_window(const Tensor& x, const Shape& size, const Axes& axes = all_axes,
                                    const Shape& stride = {}, const Shape& dilation = {},
                                    SourceLocation loc = SourceLocation::current());
/// The whole tensor repeated along each axis (numpy.tile).
[[nodiscard]] Tensor tile(const Tensor& x, const Shape& repetitions,
                          SourceLocation loc = SourceLocation::current());
/// Each element repeated `count` times along an axis.
[[nodiscard]] Tensor repeat(const Tensor& x, Whole count, Axis axis,
                            SourceLocation loc = SourceLocation::current());
namespace detail {
std::vector<Tensor> split_equally(const Tensor& x, std::int64_t sections, Axis axis, SourceLocation loc);
std::vector<Tensor> split_at(const Tensor& x, std::span<const std::int64_t> positions, Axis axis,
                             SourceLocation loc);
}  // namespace detail
/// `sections` equal parts; UserError when the extent does not divide.
template <WholeNumber I>  // a template, so that a list is never a number
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, I sections, Axis axis = 0,
                                        SourceLocation loc = SourceLocation::current()) {
  return detail::split_equally(x, detail::saturated(sections), axis, loc);
}
/// Parts between the given positions: {3}, {n / 2, n - 1}, or a range of integers.
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, std::initializer_list<Whole> positions,
                                        Axis axis = 0, SourceLocation loc = SourceLocation::current());
template <WholeNumbers R>
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, const R& positions, Axis axis = 0,
                                        SourceLocation loc = SourceLocation::current()) {
  std::vector<std::int64_t> list;
  for (const auto position : positions) list.push_back(Whole(position));
  return detail::split_at(x, list, axis, loc);
}
[[nodiscard]] std::vector<Tensor> unstack(const Tensor& x, Axis axis = 0,
                                          SourceLocation loc = SourceLocation::current());
/// x with the elements that `slices` selects replaced by `value` (broadcast, cast to x's dtype); x is
/// unchanged. `x(slices…) = value` is x = slice_update(x, {slices…}, value).
[[nodiscard]] Tensor slice_update(const Tensor& x, std::span<const Slice> slices, const Operand& value);
[[nodiscard]] Tensor slice_update(const Tensor& x, std::initializer_list<Slice> slices, const Operand& value);

// ---------------------------------------------------------------------------------------------------------
// Reductions. An empty axis: sum 0, prod 1, any false, all true; max, min, argmax, argmin are UserErrors.

/// Integers add up in int64 or uint64 and wrap, bool counts in int64; floats keep their dtype.
[[nodiscard]] Tensor sum(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor prod(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                          SourceLocation loc = SourceLocation::current());
/// NaN when any element is NaN. Of bool: any, all.
[[nodiscard]] Tensor max(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor min(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         SourceLocation loc = SourceLocation::current());
/// Floating point (integers become float32). NaN over an empty axis.
[[nodiscard]] Tensor mean(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                          SourceLocation loc = SourceLocation::current());
/// Mean squared distance from the mean, the sum divided by (count - correction).
[[nodiscard]] Tensor var(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         double correction = 0, SourceLocation loc = SourceLocation::current());
/// The square root of var. `using namespace kiln` makes `std(x)` ambiguous with the namespace std: write
/// stddev(x), or kiln::std(x).
[[nodiscard]] Tensor stddev(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                            double correction = 0, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor std(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         double correction = 0, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor any(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor all(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                         SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor count_nonzero(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                                   SourceLocation loc = SourceLocation::current());
/// log(sum(exp(x))) without overflow; rows of -inf give -inf.
[[nodiscard]] Tensor logsumexp(const Tensor& x, const Axes& axes = all_axes, Flag keepdims = false,
                               SourceLocation loc = SourceLocation::current());
/// int64 position of the first greatest (least) element along one axis, or in the flattened tensor. NaN wins.
[[nodiscard]] Tensor argmax(const Tensor& x, std::optional<Axis> axis = std::nullopt, Flag keepdims = false,
                            SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor argmin(const Tensor& x, std::optional<Axis> axis = std::nullopt, Flag keepdims = false,
                            SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Scans: running values along an axis, of the same shape. Without an axis x is flattened first. exclusive: an
// element's own value does not count, so the first is 0, 1, or the least (greatest) value of the dtype.
// reverse: from the end.

/// Integers add up in int64 or uint64 and wrap, bool counts in int64; floats keep their dtype.
[[nodiscard]] Tensor cumsum(const Tensor& x, std::optional<Axis> axis = std::nullopt, Flag exclusive = false,
                            Flag reverse = false, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor cumprod(const Tensor& x, std::optional<Axis> axis = std::nullopt, Flag exclusive = false,
                             Flag reverse = false, SourceLocation loc = SourceLocation::current());
/// NaN from the first NaN on.
[[nodiscard]] Tensor cummax(const Tensor& x, std::optional<Axis> axis = std::nullopt, Flag exclusive = false,
                            Flag reverse = false, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor cummin(const Tensor& x, std::optional<Axis> axis = std::nullopt, Flag exclusive = false,
                            Flag reverse = false, SourceLocation loc = SourceLocation::current());

/// log(cumsum(exp(x))) without overflow: -inf before the first number, NaN from the first NaN on. Integers
/// give float32.
[[nodiscard]] Tensor logcumsumexp(const Tensor& x, std::optional<Axis> axis = std::nullopt,
                                  Flag exclusive = false, Flag reverse = false,
                                  SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Loops. The functions are called once (a few times where shapes have to broadcast) to record what is
// repeated; they may use any tensor from outside. Reading a value inside them is a UserError. Where every
// operation is elementwise the loop runs inside one kernel, each element to its own end; else it runs over
// whole tensors, compiled once.

using Tensors = std::vector<Tensor>;
/// Repeats state = body(state) while condition(state) holds and returns the last state. The condition is bool
/// and broadcasts to the states, which broadcast to it first: where it is false an element keeps its states,
/// and the loop ends when it is false everywhere. The body returns as many tensors as there are states, of
/// their dtypes; their shapes broadcast too. In the loop's kernel nothing is contracted to fused
/// multiply-adds.
[[nodiscard]] Tensors while_loop(const std::function<Tensor(const Tensors&)>& condition,
                                 const std::function<Tensors(const Tensors&)>& body, Tensors state,
                                 SourceLocation loc = SourceLocation::current());
struct Scanned {
  Tensors carry, ys;
};
/// Iterates over an axis of `xs`, which have equal extents there: body(carry, x) takes the carry and a slice
/// of each tensor, and returns the next carry and the values to keep. Returns the last carry and the kept
/// values, stacked along the same axis. The carry keeps its dtypes, and broadcasts to the shapes that the
/// body returns. reverse: from the end. UserError if extents, dtypes or numbers of tensors differ. An axis
/// of no elements gives `init` and stacks of no elements.
[[nodiscard]] Scanned scan(const std::function<Scanned(const Tensors& carry, const Tensors& x)>& body,
                           Tensors init, const Tensors& xs, Axis axis = 0, Flag reverse = false,
                           SourceLocation loc = SourceLocation::current());
/// The results of then(operands) where the condition holds, and of otherwise(operands) elsewhere: pairs of
/// tensors of one shape and dtype (they broadcast with the condition). The results of a branch are computed
/// only where the condition selects the branch: not at all if it is selected nowhere, and element by element
/// if the branch is elementwise.
[[nodiscard]] Tensors cond(const Tensor& condition, const std::function<Tensors(const Tensors&)>& then,
                           const std::function<Tensors(const Tensors&)>& otherwise, Tensors operands,
                           SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Indexing by tensors. Indices have an integer dtype (UserError otherwise); a negative one counts from the
// back. An index out of range gives 0, and with KILN_CHECK=bounds an error that names it. A gather fuses with
// what makes its indices and with what reads its result.

/// x's slices along an axis at `indices`: the axis is replaced by the extents of `indices`. Without an axis x
/// is flattened first. UserError when there is nothing to take from.
[[nodiscard]] Tensor take(const Tensor& x, const Tensor& indices, std::optional<Axis> axis = std::nullopt,
                          SourceLocation loc = SourceLocation::current());
/// One element of x for each of `indices`: out[i, j, k] = x[i, indices[i, j, k], k] for axis 1. x and
/// `indices` have the same rank, and broadcast against each other along the other axes.
[[nodiscard]] Tensor take_along_axis(const Tensor& x, const Tensor& indices, Axis axis = -1,
                                     SourceLocation loc = SourceLocation::current());
/// numpy's x[i, j, …]: index tensors for the leading axes, broadcast against each other; x's other axes
/// follow.
[[nodiscard]] Tensor gather(const Tensor& x, std::span<const Tensor> indices,
                            SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor gather(const Tensor& x, std::initializer_list<Tensor> indices,
                            SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Slices at positions that tensors hold, for positions that a loop or another value decides (docs/when.md).
// `starts` has one integer for each of x's axes: scalars and C++ numbers in a list, or one tensor of shape
// (rank,). Sizes are C++ numbers. A negative start counts from the back; then the start is moved to the
// nearest place where the whole slice is inside x, which is what JAX does. UserError unless starts are
// integers and 0 <= sizes <= x's extents.

/// x's box of extents `sizes` that begins at `starts`.
[[nodiscard]] Tensor dynamic_slice(const Tensor& x, std::span<const Operand> starts, const Shape& sizes,
                                   SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor dynamic_slice(const Tensor& x, std::initializer_list<Operand> starts, const Shape& sizes,
                                   SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor dynamic_slice(const Tensor& x, const Tensor& starts, const Shape& sizes,
                                   SourceLocation loc = SourceLocation::current());
/// x with `update`, which has x's rank and is converted to x's dtype, in place of the box that begins at
/// `starts`. x itself is unchanged; where nobody else has x any more, only the box is written.
[[nodiscard]] Tensor dynamic_update_slice(const Tensor& x, const Tensor& update,
                                          std::span<const Operand> starts,
                                          SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor dynamic_update_slice(const Tensor& x, const Tensor& update,
                                          std::initializer_list<Operand> starts,
                                          SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor dynamic_update_slice(const Tensor& x, const Tensor& update, const Tensor& starts,
                                          SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Writing at indices: x, and what takes its place where values are written; x itself is unchanged. Values
// broadcast to the elements that the indices select and are converted to x's dtype. They are written in
// row-major order: of several written to one place the last one stays (Set), or all are added to what stood
// there, multiplied with it, or the greatest (least) of all stays, NaN being greater and less than
// everything. A value whose index is out of range is left out, and with KILN_CHECK=bounds an error names it.
// Adding and multiplying bool is a UserError. float16 and bfloat16 are added in float32.

/// `values` written to x's slices along an axis, the ones that take(x, indices, axis) gives: numpy's
/// x[indices] = values.
[[nodiscard]] Tensor scatter(const Tensor& x, const Tensor& indices, const Operand& values, Axis axis = 0,
                             Combine how = Combine::Set);
/// The same for the elements that gather(x, indices) gives: numpy's x[i, j, …] = values.
[[nodiscard]] Tensor scatter(const Tensor& x, std::span<const Tensor> indices, const Operand& values,
                             Combine how = Combine::Set);
[[nodiscard]] Tensor scatter(const Tensor& x, std::initializer_list<Tensor> indices, const Operand& values,
                             Combine how = Combine::Set);
[[nodiscard]] inline Tensor scatter_add(const Tensor& x, const Tensor& indices, const Operand& values,
                                        Axis axis = 0) {
  return scatter(x, indices, values, axis, Combine::Add);
}
[[nodiscard]] inline Tensor scatter_multiply(const Tensor& x, const Tensor& indices, const Operand& values,
                                             Axis axis = 0) {
  return scatter(x, indices, values, axis, Combine::Multiply);
}
[[nodiscard]] inline Tensor scatter_max(const Tensor& x, const Tensor& indices, const Operand& values,
                                        Axis axis = 0) {
  return scatter(x, indices, values, axis, Combine::Max);
}
[[nodiscard]] inline Tensor scatter_min(const Tensor& x, const Tensor& indices, const Operand& values,
                                        Axis axis = 0) {
  return scatter(x, indices, values, axis, Combine::Min);
}
/// One element of x for each of `indices`: out[i, indices[i, j, k], k] = values[i, j, k] for axis 1. x and
/// `indices` have the same rank; along the other axes `indices` broadcast to x.
[[nodiscard]] Tensor put_along_axis(const Tensor& x, const Tensor& indices, const Operand& values,
                                    Axis axis = -1, Combine how = Combine::Set);

// ---------------------------------------------------------------------------------------------------------
// Sorting. NaN is the greatest value: last in ascending order, first in descending order. -0 and +0 are
// equal. Each function runs as a library call when its value is needed; kernels fuse up to it.

/// x in order along an axis. Equal elements cannot be told apart but for zeros: -0 stands before +0.
[[nodiscard]] Tensor sort(const Tensor& x, Axis axis = -1, Flag descending = false,
                          SourceLocation loc = SourceLocation::current());
/// int64 positions that put x in order along an axis; equal elements in the order of x. UserError for an axis
/// of more than 2^32 elements.
[[nodiscard]] Tensor argsort(const Tensor& x, Axis axis = -1, Flag descending = false,
                             SourceLocation loc = SourceLocation::current());
struct Sorted {
  Tensor values, indices;
};
/// x in order along an axis, equal elements in the order of x, and the int64 positions that they had: what
/// argsort gives. UserError for an axis of more than 2^32 elements.
[[nodiscard]] Sorted sort_with_indices(const Tensor& x, Axis axis = -1, Flag descending = false,
                                       SourceLocation loc = SourceLocation::current());
struct TopK {
  Tensor values, indices;
};
/// The k greatest (or least) elements along an axis, the first of them first, and their int64 positions.
/// UserError unless 0 <= k <= extent.
[[nodiscard]] TopK topk(const Tensor& x, Whole k, Axis axis = -1, Flag largest = true,
                        SourceLocation loc = SourceLocation::current());
/// For each value, how many elements of `sorted` (one axis, ascending) are less than it, or with `right` not
/// greater: int64, shaped like `values`.
[[nodiscard]] Tensor searchsorted(const Tensor& sorted, const Tensor& values, Flag right = false,
                                  SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Results whose shape depends on values. These evaluate their operand when called.

/// One int64 tensor (count,) per axis: the coordinates of the elements that are not 0, in row-major order.
/// UserError for rank 0.
[[nodiscard]] std::vector<Tensor> nonzero(const Tensor& x, SourceLocation loc = SourceLocation::current());
/// numpy's x[mask]: the parts of x where the bool tensor `mask`, which has the extents of x's leading axes,
/// is true: (count, the other axes…). Only the mask is evaluated.
[[nodiscard]] Tensor compress(const Tensor& x, const Tensor& mask,
                              SourceLocation loc = SourceLocation::current());
struct Unique {
  Tensor values;   ///< in ascending order; every NaN stands for itself, -0 and +0 are one
  Tensor indices;  ///< int64: where each value is first met in the flattened x
  Tensor inverse;  ///< int64, shaped like x: which value each element is
  Tensor counts;   ///< int64: how many elements each value is
};
/// The distinct values of x. Each field is computed when it is used.
[[nodiscard]] Unique unique_all(const Tensor& x, SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor unique(const Tensor& x, SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Contractions.

/// (…, m, k) @ (…, k, n) -> (…, m, n), leading axes broadcast; a vector operand loses its axis as in numpy.
[[nodiscard]] Tensor matmul(const Tensor& x, const Tensor& y, SourceLocation loc = SourceLocation::current());
/// numpy's einsum: letters, "...", implicit and explicit output. UserError when an extent differs.
[[nodiscard]] Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
                            SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands,
                            SourceLocation loc = SourceLocation::current());
/// Sums over the last `axes` axes of x and the first `axes` axes of y, or over the listed pairs.
[[nodiscard]] Tensor tensordot(const Tensor& x, const Tensor& y, Whole axes = 2,
                               SourceLocation loc = SourceLocation::current());
[[nodiscard]] Tensor tensordot(const Tensor& x, const Tensor& y, const Axes& x_axes, const Axes& y_axes,
                               SourceLocation loc = SourceLocation::current());
/// (m,) and (n,) -> (m, n).
[[nodiscard]] Tensor outer(const Tensor& x, const Tensor& y, SourceLocation loc = SourceLocation::current());
/// Sum of products along one axis, other axes broadcast.
[[nodiscard]] Tensor vecdot(const Tensor& x, const Tensor& y, Axis axis = -1,
                            SourceLocation loc = SourceLocation::current());

// ---------------------------------------------------------------------------------------------------------
// Systems of linear equations. Matrices are the last two axes, the axes before them a batch. Integers become
// float32; float16 and bfloat16 are computed in float32 and rounded once. Library calls, as sorts are.

/// The lower-triangular l of (…, n, n) with matmul(l, matrix_transpose(l)) = x, or with `upper` its
/// transpose, for symmetric positive definite x. x's elements above the diagonal are not read. A matrix that
/// is not positive definite (a pivot is not above 0) gives NaN on and below the diagonal from the column of
/// that pivot on. UserError unless the last two extents are equal.
[[nodiscard]] Tensor cholesky(const Tensor& x, Flag upper = false,
                              SourceLocation loc = SourceLocation::current());
/// The x with matmul(a, x) = b, for a triangular a of (…, n, n) and a b of (…, n, m), or (n,) for a vector.
/// Batches broadcast. a's elements on the other side of the diagonal are not read, with `unit_diagonal` those
/// on the diagonal neither: they count as 1. Else a 0 on the diagonal gives what dividing by 0 gives. For a
/// lower-triangular l, solve_triangular(matrix_transpose(l), solve_triangular(l, b), true) solves l lᵀ x = b.
/// UserError for other shapes, and for bool.
[[nodiscard]] Tensor solve_triangular(const Tensor& a, const Tensor& b, Flag upper = false,
                                      Flag unit_diagonal = false,
                                      SourceLocation loc = SourceLocation::current());

}  // namespace kiln
