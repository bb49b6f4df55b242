// Tensor: a cheap handle to a lazily evaluated n-dimensional array, and the arguments operators take.
//
// Operations on tensors record nodes; nothing is computed until a value is needed (eval, item, data,
// printing). Copying a Tensor copies a handle. Assigning (b = a; b += 1) never changes other handles.
#pragma once

#include <kiln/arguments.h>
#include <kiln/device.h>
#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln {

namespace detail {
/// What an empty list holds.
struct Nothing {
  Nothing() = delete;
};
/// The caller's line, where `{}` is to stay a shape.
struct Caller {
  SourceLocation loc;
  explicit constexpr Caller(SourceLocation at) : loc(at) {}
};
}  // namespace detail

namespace ir {
struct Node;
void retain(Node* node) noexcept;
void release(Node* node) noexcept;
}  // namespace ir

/// A C++ number as an operand. It is weakly typed: it takes the tensor's dtype if its class allows. UInt is a
/// whole number of 2^63 or more, whose bits `i` holds; every other whole number is an Int.
struct Scalar {
  enum class Kind : std::uint8_t { Bool, Int, UInt, Float } kind = Kind::Float;
  union {
    double f;
    std::int64_t i;
  };
  Scalar() : f(0) {}
  template <class T>
    requires(std::is_arithmetic_v<T>)
  Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind = Kind::Bool;
      i = value;
    } else if constexpr (std::is_integral_v<T>) {
      kind = std::in_range<std::int64_t>(+value) ? Kind::Int : Kind::UInt;
      i = static_cast<std::int64_t>(value);
    } else {
      kind = Kind::Float;
      f = static_cast<double>(value);
    }
  }
  Scalar(float16 value) : kind(Kind::Float), f(static_cast<float>(value)) {}
  Scalar(bfloat16 value) : kind(Kind::Float), f(static_cast<float>(value)) {}
  double to_double() const {
    if (kind == Kind::UInt) return static_cast<double>(static_cast<std::uint64_t>(i));
    return kind == Kind::Float ? f : static_cast<double>(i);
  }
};

/// One dimension's part of an index: slice::all(), an integer (drops the dimension), slice::range(start,
/// stop, step) with Python's meaning of negative and missing bounds, slice::newaxis or slice::ellipsis.
struct Slice {
  enum class Kind : std::uint8_t { Range, Index, NewAxis, Ellipsis } kind = Kind::Range;
  std::optional<std::int64_t> start, stop;
  std::int64_t step = 1;
  Slice() = default;
  template <WholeNumber I>
  Slice(I index) : kind(Kind::Index), start(detail::saturated(index)) {}
  Slice(std::optional<Whole> from, std::optional<Whole> to, Whole by = 1) : start(from), stop(to), step(by) {}
};
/// The parts of an index that are no number: x(slice::all(), slice::range(1, 5), slice::newaxis).
namespace slice {
/// The whole dimension.
inline Slice all() { return {}; }
/// From start to stop, stop not included, every step-th element; as Python's start:stop:step.
inline Slice range(std::optional<Whole> start, std::optional<Whole> stop = std::nullopt, Whole step = 1) {
  return {start, stop, step};
}
/// A new dimension of 1.
inline const Slice newaxis = [] {
  Slice s;
  s.kind = Slice::Kind::NewAxis;
  return s;
}();
/// As many whole dimensions as the index has not named.
inline const Slice ellipsis = [] {
  Slice s;
  s.kind = Slice::Kind::Ellipsis;
  return s;
}();
}  // namespace slice
// Short names. all() without an argument is slice::all(); kiln::all(x) is a reduction.
using slice::all;
using slice::ellipsis;
using slice::newaxis;
using slice::range;
inline constexpr std::nullopt_t none = std::nullopt;

/// The first part of an index; its conversion notes the caller's source line.
struct FirstSlice {
  Slice slice;
  SourceLocation loc;
  template <class S>
    requires(std::is_convertible_v<S, Slice>)
  FirstSlice(S&& s, SourceLocation at = SourceLocation::current()) : slice(std::forward<S>(s)), loc(at) {}
};

/// Host data that lies in one piece: std::vector, std::span, std::array, a C array.
template <class R>
concept ContiguousElements = std::ranges::contiguous_range<const R> && std::ranges::sized_range<const R> &&
                             ElementType<std::ranges::range_value_t<R>>;
/// The same to write to.
template <class R>
concept WritableElements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                           ElementType<std::ranges::range_value_t<R>> &&
                           !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

class Tensor;
class SliceRef;
class SelectRef;
class RowIterator;

/// Host data as the argument of a constructor; excludes tensors.
template <class R>
concept HostArray = !std::is_base_of_v<Tensor, R> && ContiguousElements<R>;

/// A tensor operand that carries the caller's source line.
struct TensorArg {
  const Tensor* tensor;
  SourceLocation loc;
  TensorArg(const Tensor& t, SourceLocation at = SourceLocation::current()) : tensor(&t), loc(at) {}
  TensorArg(const SelectRef& t, SourceLocation at = SourceLocation::current());
};

class Tensor {
 public:
  /// The empty handle: valid() is false and every operation on it is a UserError.
  Tensor() noexcept = default;
  Tensor(const Tensor& other) noexcept : node_(other.node_) {
    if (node_) ir::retain(node_);
  }
  Tensor(Tensor&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  /// Assigns to variables only: f(x) = y does not compile.
  Tensor& operator=(const Tensor& other) & noexcept {
    Tensor copy(other);
    std::swap(node_, copy.node_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    Tensor taken(std::move(other));
    std::swap(node_, taken.node_);
    return *this;
  }
  ~Tensor() {
    if (node_) ir::release(node_);
  }

  /// A rank-0 tensor holding one number of a strong dtype: Tensor(2.0f) is float32, Tensor(3) int32.
  template <ElementType T>
  explicit Tensor(T value, SourceLocation loc = SourceLocation::current())
      : Tensor(copy_of(&value, Shape(), dtype_of<T>, loc)) {}
  /// From a list, row-major: Tensor({1.f, 2.f, 3.f}), Tensor({1, 2, 3, 4}, {2, 2}). The C++ type of the
  /// elements decides the dtype: {0, 1} is int32, {true, false} bool. Without a shape: rank 1.
  template <ElementType T>
  explicit Tensor(std::initializer_list<T> values,
                  detail::Caller at = detail::Caller(SourceLocation::current()))
      : Tensor(from(values, at)) {}
  template <ElementType T>
  explicit Tensor(std::initializer_list<T> values, const Shape& shape,
                  SourceLocation loc = SourceLocation::current())
      : Tensor(from(values, shape, loc)) {}
  /// Tensor({}): no elements, float32 (0,).
  explicit Tensor(std::initializer_list<detail::Nothing>,
                  detail::Caller at = detail::Caller(SourceLocation::current()))
      : Tensor(copy_of(nullptr, Shape(0), DType::Float32, at.loc)) {}
  /// Copies host data, as `from` does.
  template <HostArray R>
  explicit Tensor(const R& values, detail::Caller at = detail::Caller(SourceLocation::current()))
      : Tensor(from(values, at)) {}
  template <HostArray R>
  explicit Tensor(const R& values, const Shape& shape, SourceLocation loc = SourceLocation::current())
      : Tensor(from(values, shape, loc)) {}
  template <std::same_as<std::vector<bool>> V>
  explicit Tensor(const V& values, detail::Caller at = detail::Caller(SourceLocation::current()))
      : Tensor(from(values, at)) {}
  template <std::same_as<std::vector<bool>> V>
  explicit Tensor(const V& values, const Shape& shape, SourceLocation loc = SourceLocation::current())
      : Tensor(from(values, shape, loc)) {}

  /// Copies row-major host data: a vector, std::span, array, list or anything else contiguous. UserError when
  /// the element count does not match the shape. Without a shape: rank 1. from({0, 1, 1}) is int32, as
  /// Tensor({0, 1, 1}).
  template <HostArray R>
  [[nodiscard]] static Tensor from(const R& values, const Shape& shape,
                                   SourceLocation loc = SourceLocation::current()) {
    check_count("from", std::ranges::size(values), shape, loc);
    return copy_of(std::ranges::data(values), shape, dtype_of<std::ranges::range_value_t<R>>, loc);
  }
  template <HostArray R>
  [[nodiscard]] static Tensor from(const R& values,
                                   detail::Caller at = detail::Caller(SourceLocation::current())) {
    return from(values, Shape(std::ranges::size(values)), at.loc);
  }
  template <ElementType T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values, const Shape& shape,
                                   SourceLocation loc = SourceLocation::current()) {
    return from(std::span<const T>(values.begin(), values.size()), shape, loc);
  }
  template <ElementType T>
  [[nodiscard]] static Tensor from(std::initializer_list<T> values,
                                   detail::Caller at = detail::Caller(SourceLocation::current())) {
    return from(values, Shape(values.size()), at.loc);
  }
  template <std::same_as<std::vector<bool>> V>  // a template, so that no list of numbers becomes one
  [[nodiscard]] static Tensor from(const V& values, const Shape& shape,
                                   SourceLocation loc = SourceLocation::current()) {
    check_count("from", values.size(), shape, loc);
    const std::vector<std::uint8_t> bytes(values.begin(), values.end());
    return copy_of(bytes.data(), shape, DType::Bool, loc);
  }
  template <std::same_as<std::vector<bool>> V>
  [[nodiscard]] static Tensor from(const V& values,
                                   detail::Caller at = detail::Caller(SourceLocation::current())) {
    return from(values, Shape(values.size()), at.loc);
  }
  /// Takes over the memory of a vector without a copy. Without a shape: rank 1.
  template <ElementType T>
    requires(!std::is_same_v<T, bool>)
  [[nodiscard]] static Tensor take(std::vector<T>&& values, const Shape& shape,
                                   SourceLocation loc = SourceLocation::current()) {
    check_count("take", values.size(), shape, loc);
    const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    return borrow(owner->data(), shape, dtype_of<T>, std::shared_ptr<const void>(owner), loc);
  }
  template <ElementType T>
  [[nodiscard]] static Tensor take(std::vector<T>&& values,
                                   detail::Caller at = detail::Caller(SourceLocation::current())) {
    const Shape shape(values.size());
    return take(std::move(values), shape, at.loc);
  }
  /// Copies `shape.numel()` row-major elements of `dtype`. UserError for null data (unless there are none).
  [[nodiscard]] static Tensor copy_of(const void* data, const Shape& shape, DType dtype,
                                      SourceLocation loc = SourceLocation::current());

  /// Uses the caller's row-major memory without copying and never writes it; `owner` is kept until the last
  /// use. The memory must not change until then, because a tensor may be evaluated at any time. UserError
  /// (and `owner` is not kept) for null data, data not aligned to the element's size, or an empty owner
  /// (unless there are no elements).
  [[nodiscard]] static Tensor borrow(const void* data, const Shape& shape, DType dtype,
                                     std::shared_ptr<const void> owner,
                                     SourceLocation loc = SourceLocation::current());
  /// The same with a deleter, which is called once (with `data`) when the last use ends, on any thread.
  /// UserError for an empty deleter: for memory that needs no deleter, pass one that does nothing.
  [[nodiscard]] static Tensor borrow(const void* data, const Shape& shape, DType dtype,
                                     std::function<void(const void*)> deleter,
                                     SourceLocation loc = SourceLocation::current());
  /// Any strided layout: element (i, j, …) is `strides[0]*i + strides[1]*j + …` elements behind `data`.
  /// Strides may be 0 (repeated elements) or negative. UserError when their number is not the shape's.
  [[nodiscard]] static Tensor borrow(const void* data, const Shape& shape,
                                     std::span<const std::int64_t> strides, DType dtype,
                                     std::shared_ptr<const void> owner,
                                     SourceLocation loc = SourceLocation::current());
  [[nodiscard]] static Tensor borrow(const void* data, const Shape& shape,
                                     std::span<const std::int64_t> strides, DType dtype,
                                     std::function<void(const void*)> deleter,
                                     SourceLocation loc = SourceLocation::current());
  /// Typed forms of the first two; `keep` is an owner or a deleter.
  template <ElementType T, class Keep>
  [[nodiscard]] static Tensor borrow(const T* data, const Shape& shape, Keep&& keep,
                                     SourceLocation loc = SourceLocation::current()) {
    return borrow(static_cast<const void*>(data), shape, dtype_of<T>, std::forward<Keep>(keep), loc);
  }
  template <ContiguousElements R, class Keep>
  [[nodiscard]] static Tensor borrow(const R& values, const Shape& shape, Keep&& keep,
                                     SourceLocation loc = SourceLocation::current()) {
    check_count("borrow", std::ranges::size(values), shape, loc);
    return borrow(std::ranges::data(values), shape, std::forward<Keep>(keep), loc);
  }

  [[nodiscard]] bool valid() const noexcept { return node_ != nullptr; }
  /// Whether the single element is not 0: for `if (any(a != b))`. Evaluates. UserError unless there is one
  /// element, as in `if (a == b)` of whole tensors.
  explicit operator bool() const;
  [[nodiscard]] Shape shape(SourceLocation loc = SourceLocation::current()) const;
  [[nodiscard]] int rank(SourceLocation loc = SourceLocation::current()) const;
  /// Extent of an axis; negative counts from the back.
  [[nodiscard]] std::int64_t dim(Axis axis, SourceLocation loc = SourceLocation::current()) const;
  [[nodiscard]] std::int64_t numel(SourceLocation loc = SourceLocation::current()) const;
  [[nodiscard]] DType dtype(SourceLocation loc = SourceLocation::current()) const;
  [[nodiscard]] Device device(SourceLocation loc = SourceLocation::current()) const;
  /// The same value on another device: evaluates and copies. Returns this tensor if it is on that device.
  [[nodiscard]] Tensor to(Device device, SourceLocation loc = SourceLocation::current()) const;

  /// Computes this tensor now, with all operations that it needs, fused. Returns itself. Does nothing if the
  /// value is in memory.
  const Tensor& eval(SourceLocation loc = SourceLocation::current()) const;
  /// Whether the value is in memory.
  [[nodiscard]] bool evaluated(SourceLocation loc = SourceLocation::current()) const;
  /// The single element of a one-element tensor, converted to T. Evaluates. UserError for any other count.
  template <ElementType T>
  [[nodiscard]] T item(SourceLocation loc = SourceLocation::current()) const {
    T out;
    read_item(&out, dtype_of<T>, loc);
    return out;
  }
  /// Row-major copy of all elements; T must be the dtype's storage type (UserError otherwise). Evaluates.
  template <ElementType T>
  [[nodiscard]] std::vector<T> to_vector(SourceLocation loc = SourceLocation::current()) const {
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<std::uint8_t> raw(static_cast<std::size_t>(numel(loc)));
      copy_to(raw.data(), DType::Bool, loc);
      return std::vector<bool>(raw.begin(), raw.end());
    } else {
      std::vector<T> out(static_cast<std::size_t>(numel(loc)));
      copy_to(out.data(), dtype_of<T>, loc);
      return out;
    }
  }
  /// Writes all elements, row-major, to `out`, which has room for numel() elements of this tensor's dtype.
  void copy_to(void* out, DType expected, SourceLocation loc = SourceLocation::current()) const;
  /// The same into a vector, span or array of numel() elements (UserError for any other size).
  template <WritableElements R>
  void copy_to(R&& out, SourceLocation loc = SourceLocation::current()) const {
    check_room(std::ranges::size(out), loc);
    copy_to(std::ranges::data(out), dtype_of<std::ranges::range_value_t<R>>, loc);
  }
  /// Row-major host memory of this tensor's value, valid while any copy of this handle lives. Evaluates;
  /// copies once if the value is a strided view, and once if it lives on a GPU. Thread-safe, like every
  /// const function.
  [[nodiscard]] const void* data() const;
  /// The same on device(): a device address on a GPU, in the order of the calling thread's stream.
  [[nodiscard]] const void* device_data() const;
  template <ElementType T>
  [[nodiscard]] const T* data(SourceLocation loc = SourceLocation::current()) const {
    return static_cast<const T*>(typed_data(dtype_of<T>, loc));
  }
  /// The same as a span of numel() elements.
  template <ElementType T>
  [[nodiscard]] std::span<const T> span(SourceLocation loc = SourceLocation::current()) const {
    return {data<T>(loc), static_cast<std::size_t>(numel(loc))};
  }

  [[nodiscard]] Tensor astype(DType dtype, SourceLocation loc = SourceLocation::current()) const;
  /// One extent may be -1.
  [[nodiscard]] Tensor reshape(const Shape& shape, SourceLocation loc = SourceLocation::current()) const;
  /// The last two axes swapped.
  [[nodiscard]] Tensor T(SourceLocation loc = SourceLocation::current()) const;

  /// Basic indexing: x(0), x(all(), range(1, none, 2)), x(range(none, none, -1), newaxis). Assigning to the
  /// result of a variable's index updates that variable: x(0) = y, x(range(1, 3)) += 1. (So x(0)(1) = y does
  /// not compile: x(0) is no variable. Write x(0, 1) = y.)
  template <class... S>
    requires(std::is_convertible_v<S, Slice> && ...)
  SliceRef operator()(FirstSlice first, S&&... rest) &;
  template <class... S>
    requires(std::is_convertible_v<S, Slice> && ...)
  [[nodiscard]] Tensor operator()(FirstSlice first, S&&... rest) const& {
    const Slice list[] = {first.slice, Slice(std::forward<S>(rest))...};
    return index(list, first.loc);
  }
  /// x(mask): the parts of x where a bool tensor over its leading axes is true (compress). x(indices): x's
  /// slices along axis 0 at integer indices (take). Assigning to the result updates a variable: x(x < 0) = 0.
  SelectRef operator()(TensorArg selector) &;
  [[nodiscard]] Tensor operator()(TensorArg selector) const&;
  /// The same with one part: x[0], x[range(1, 3)], x[mask], x[indices].
  SliceRef operator[](FirstSlice first) &;
  [[nodiscard]] Tensor operator[](FirstSlice first) const& { return index({&first.slice, 1}, first.loc); }
  SelectRef operator[](TensorArg selector) &;
  [[nodiscard]] Tensor operator[](TensorArg selector) const& { return (*this)(selector); }
  [[nodiscard]] Tensor index(std::span<const Slice> slices,
                             SourceLocation loc = SourceLocation::current()) const;

  /// The slices along axis 0, for reading: for (Tensor row : x). UserError for rank 0.
  [[nodiscard]] RowIterator begin(SourceLocation loc = SourceLocation::current()) const;
  [[nodiscard]] RowIterator end(SourceLocation loc = SourceLocation::current()) const;

  /// Readable text: all elements of a small tensor, the corners of a large one. Evaluates.
  [[nodiscard]] std::string str() const;

  [[nodiscard]] ir::Node* node() const noexcept { return node_; }
  /// Takes over one reference.
  [[nodiscard]] static Tensor adopt(ir::Node* node) noexcept {
    Tensor t;
    t.node_ = node;
    return t;
  }

 private:
  static void check_count(std::string_view op, std::size_t have, const Shape& shape, SourceLocation loc);
  void check_room(std::size_t room, SourceLocation loc) const;
  void read_item(void* out, DType type, SourceLocation loc) const;
  const void* typed_data(DType type, SourceLocation loc) const;
  ir::Node* node_ = nullptr;
};

std::ostream& operator<<(std::ostream& out, const Tensor& t);

/// The second argument of a binary operator: a tensor or a weak scalar, plus the caller's source line.
struct Operand {
  const Tensor* tensor = nullptr;
  Scalar scalar;
  SourceLocation loc;
  Operand(const Tensor& t, SourceLocation at = SourceLocation::current()) : tensor(&t), loc(at) {}
  Operand(const SelectRef& t, SourceLocation at = SourceLocation::current());
  Operand(const Scalar& value, SourceLocation at = SourceLocation::current()) : scalar(value), loc(at) {}
  template <class T>
    requires(std::is_arithmetic_v<T> || is_storage_float<T>)
  Operand(T value, SourceLocation at = SourceLocation::current()) : scalar(value), loc(at) {}
};

/// Compound assignments to a part of a tensor: to the temporary that an index gives, and to no variable.
#define KILN_PART_ASSIGNMENTS(Class, X) \
  X(Class, +=)                          \
  X(Class, -=)                          \
  X(Class, *=) X(Class, /=) X(Class, %=) X(Class, &=) X(Class, |=) X(Class, ^=) X(Class, <<=) X(Class, >>=)
#define KILN_DECLARE_PART_ASSIGNMENT(Class, Symbol) \
  Class& operator Symbol(const Operand & value)&&;  \
  Class& operator Symbol(const Operand & value)& = delete;

/// What x(slice…) gives: a Tensor (a view, no copy) that can also be assigned to, which makes x a new value:
/// other handles keep the old one. Assignable as a temporary only: `auto row = x(0); row += 1;` does not
/// compile, since row is a value of its own and x would not change. `Tensor row = x(0);` names the value.
class [[nodiscard]] SliceRef : public Tensor {
 public:
  SliceRef(Tensor& target, std::span<const Slice> slices, SourceLocation loc)
      : Tensor(std::as_const(target).index(slices, loc)),
        target_(&target),
        slices_(slices.begin(), slices.end()) {}
  SliceRef(const SliceRef&) = default;
  SliceRef& operator=(const SliceRef& value) && { return assign(static_cast<const Tensor&>(value)); }
  SliceRef& operator=(const Operand& value) && { return assign(value); }
  KILN_PART_ASSIGNMENTS(SliceRef, KILN_DECLARE_PART_ASSIGNMENT)
  /// A part of the part, for reading.
  template <class... S>
    requires(std::is_convertible_v<S, Slice> && ...)
  [[nodiscard]] Tensor operator()(FirstSlice first, S&&... rest) const {
    return static_cast<const Tensor&>(*this)(first, std::forward<S>(rest)...);
  }
  [[nodiscard]] Tensor operator()(TensorArg selector) const {
    return static_cast<const Tensor&>(*this)(selector);
  }
  [[nodiscard]] Tensor operator[](FirstSlice first) const { return index({&first.slice, 1}, first.loc); }
  [[nodiscard]] Tensor operator[](TensorArg selector) const {
    return static_cast<const Tensor&>(*this)(selector);
  }

 private:
  SliceRef& assign(const Operand& value);
  Tensor* target_;
  std::vector<Slice> slices_;
};

/// What x(mask) and x(indices) give: converts to the Tensor that is selected, and can be assigned to, which
/// makes x a new value (as a temporary only, like SliceRef). Numbers, and tensors that broadcast to x's axes
/// behind the mask, are written without evaluating the mask; other values belong to the elements that are
/// true, in order. Of several values for one index the last one stays, also for `x(indices) += y`:
/// scatter_add adds up.
class [[nodiscard]] SelectRef {
 public:
  SelectRef(Tensor& target, const TensorArg& selector)
      : target_(&target), x_(target), selector_(*selector.tensor), loc_(selector.loc) {}
  SelectRef& operator=(const SelectRef& value) && { return assign({value.value(), value.loc_}); }
  SelectRef& operator=(const Operand& value) && { return assign(value); }
  KILN_PART_ASSIGNMENTS(SelectRef, KILN_DECLARE_PART_ASSIGNMENT)
  SelectRef(const SelectRef&) = default;

  operator const Tensor&() const { return value(); }
  /// The selected elements. Evaluates a mask.
  [[nodiscard]] const Tensor& value() const;
  [[nodiscard]] Shape shape(SourceLocation loc = SourceLocation::current()) const {
    return value().shape(loc);
  }
  [[nodiscard]] int rank(SourceLocation loc = SourceLocation::current()) const { return value().rank(loc); }
  [[nodiscard]] std::int64_t dim(Axis axis, SourceLocation loc = SourceLocation::current()) const {
    return value().dim(axis, loc);
  }
  [[nodiscard]] std::int64_t numel(SourceLocation loc = SourceLocation::current()) const {
    return value().numel(loc);
  }
  [[nodiscard]] DType dtype() const { return x_.dtype(); }
  const Tensor& eval(SourceLocation loc = SourceLocation::current()) const { return value().eval(loc); }
  template <ElementType T>
  [[nodiscard]] T item(SourceLocation loc = SourceLocation::current()) const {
    return value().item<T>(loc);
  }
  template <ElementType T>
  [[nodiscard]] std::vector<T> to_vector(SourceLocation loc = SourceLocation::current()) const {
    return value().to_vector<T>(loc);
  }
  [[nodiscard]] Tensor astype(DType dtype, SourceLocation loc = SourceLocation::current()) const {
    return value().astype(dtype, loc);
  }
  [[nodiscard]] Tensor reshape(const Shape& shape, SourceLocation loc = SourceLocation::current()) const {
    return value().reshape(shape, loc);
  }
  [[nodiscard]] std::string str() const { return value().str(); }
  template <class... S>
    requires(std::is_convertible_v<S, Slice> && ...)
  [[nodiscard]] Tensor operator()(FirstSlice first, S&&... rest) const {
    return value()(first, std::forward<S>(rest)...);
  }
  [[nodiscard]] Tensor operator[](FirstSlice first) const {
    return value().index({&first.slice, 1}, first.loc);
  }

 private:
  using Function = Tensor (*)(const Tensor&, const Operand&);
  bool whole(const Operand& value) const;  // is written through where(): the mask need not be evaluated
  SelectRef& assign(const Operand& value);
  SelectRef& combine(Function f, const Operand& value);
  Tensor* target_;
  Tensor x_, selector_;
  SourceLocation loc_;
  mutable Tensor value_;
};
#undef KILN_DECLARE_PART_ASSIGNMENT
#undef KILN_PART_ASSIGNMENTS

inline TensorArg::TensorArg(const SelectRef& t, SourceLocation at) : TensorArg(t.value(), at) {}
inline Operand::Operand(const SelectRef& t, SourceLocation at) : Operand(t.value(), at) {}

template <class... S>
  requires(std::is_convertible_v<S, Slice> && ...)
SliceRef Tensor::operator()(FirstSlice first, S&&... rest) & {
  const Slice list[] = {first.slice, Slice(std::forward<S>(rest))...};
  return SliceRef(*this, list, first.loc);
}
inline SliceRef Tensor::operator[](FirstSlice first) & {
  return SliceRef(*this, {&first.slice, 1}, first.loc);
}
inline SelectRef Tensor::operator()(TensorArg selector) & { return SelectRef(*this, selector); }
inline SelectRef Tensor::operator[](TensorArg selector) & { return SelectRef(*this, selector); }

/// Iterates over the slices along the first axis of a tensor.
class RowIterator {
 public:
  using value_type = Tensor;
  using reference = Tensor;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::input_iterator_tag;  // rows are made when they are asked for
  using iterator_concept = std::forward_iterator_tag;
  RowIterator() = default;
  RowIterator(const Tensor& x, std::int64_t row, SourceLocation loc) : x_(x), row_(row), loc_(loc) {}
  [[nodiscard]] Tensor operator*() const {
    const Slice row(row_);
    return x_.index({&row, 1}, loc_);
  }
  RowIterator& operator++() { return ++row_, *this; }
  RowIterator operator++(int) {
    RowIterator before = *this;
    ++row_;
    return before;
  }
  friend bool operator==(const RowIterator& a, const RowIterator& b) { return a.row_ == b.row_; }

 private:
  Tensor x_;
  std::int64_t row_ = 0;
  SourceLocation loc_;
};

/// Evaluates several tensors together, sharing work: eval(x, y), eval({x, y}), eval(vector). On the CPU it
/// returns when they are computed; on a GPU when their kernels are enqueued.
void eval(std::span<const Tensor> tensors, SourceLocation loc = SourceLocation::current());
void eval(std::initializer_list<Tensor> tensors, SourceLocation loc = SourceLocation::current());
inline void eval(TensorArg x) { eval(std::span(x.tensor, 1), x.loc); }
template <std::convertible_to<const Tensor&>... Rest>
void eval(TensorArg x, TensorArg y, const Rest&... rest) {
  const Tensor all[] = {*x.tensor, *y.tensor, rest...};
  eval(std::span(all), x.loc);
}

}  // namespace kiln
