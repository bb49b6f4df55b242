// Tensor: a cheap handle to a lazily evaluated n-dimensional array, and the arguments operators take.
//
// Operations on tensors record nodes; nothing is computed until a value is needed (eval, item, data, printing).
// Copying a Tensor copies a handle. Assigning (b = a; b += 1) never changes other handles.
#pragma once

#include <kiln/device.h>
#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace kiln {

namespace ir {
struct Node;
void retain(Node* node) noexcept;
void release(Node* node) noexcept;
}  // namespace ir

using SourceLocation = std::source_location;

/// A C++ number met by a tensor: weakly typed (it takes the tensor's dtype when its class allows). UInt: a whole number
/// of 2^63 and more, whose bits `i` holds; every other whole number is an Int.
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

/// One dimension's part of an index: all(), an integer (drops the dimension), or range(start, stop, step) with
/// Python's meaning of negative and missing bounds. newaxis inserts a dimension of 1; ellipsis fills up.
struct Slice {
  enum class Kind : std::uint8_t { Range, Index, NewAxis, Ellipsis } kind = Kind::Range;
  std::optional<std::int64_t> start, stop;
  std::int64_t step = 1;
  Slice() = default;
  template <std::integral I>
  Slice(I index)  // an unsigned number too large for an index must not become one that counts from the back
      : kind(Kind::Index),
        start(std::in_range<std::int64_t>(+index) ? static_cast<std::int64_t>(index) : std::numeric_limits<std::int64_t>::max()) {}
  Slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop, std::int64_t step = 1)
      : start(start), stop(stop), step(step) {}
};
inline Slice all() { return {}; }
inline Slice range(std::optional<std::int64_t> start, std::optional<std::int64_t> stop = std::nullopt,
                   std::int64_t step = 1) {
  return {start, stop, step};
}
inline const Slice newaxis = [] { Slice s; s.kind = Slice::Kind::NewAxis; return s; }();
inline const Slice ellipsis = [] { Slice s; s.kind = Slice::Kind::Ellipsis; return s; }();
inline constexpr std::nullopt_t none = std::nullopt;

/// The first part of an index; its conversion notes the caller's source line.
struct FirstSlice {
  Slice slice;
  SourceLocation loc;
  template <class S>
    requires(std::is_convertible_v<S, Slice>)
  FirstSlice(S&& s, SourceLocation loc = SourceLocation::current()) : slice(std::forward<S>(s)), loc(loc) {}
};

/// Host data that lies in one piece: std::vector, std::span, std::array, a C array.
template <class R>
concept ContiguousElements =
    std::ranges::contiguous_range<const R> && std::ranges::sized_range<const R> && ElementType<std::ranges::range_value_t<R>>;
/// The same to write to.
template <class R>
concept WritableElements =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && ElementType<std::ranges::range_value_t<R>> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

class Tensor;
class SliceRef;

class Tensor {
 public:
  /// The empty handle: valid() is false and every operation on it is a UserError.
  Tensor() noexcept = default;
  Tensor(const Tensor& other) noexcept : node_(other.node_) {
    if (node_) ir::retain(node_);
  }
  Tensor(Tensor&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Tensor& operator=(const Tensor& other) noexcept {
    Tensor copy(other);
    std::swap(node_, copy.node_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor taken(std::move(other));
    std::swap(node_, taken.node_);
    return *this;
  }
  ~Tensor() {
    if (node_) ir::release(node_);
  }

  /// A rank-0 tensor holding one number of a strong dtype: Tensor(2.0f) is float32, Tensor(3) int32.
  template <ElementType T>
  explicit Tensor(T value) : Tensor(copy_of(&value, Shape{}, dtype_of<T>)) {}
  /// A rank-1 tensor from a list: Tensor({1.f, 2.f, 3.f}).
  template <ElementType T>
  explicit Tensor(std::initializer_list<T> values)
      : Tensor(copy_of(values.begin(), Shape{static_cast<std::int64_t>(values.size())}, dtype_of<T>)) {}
  /// Copies row-major host data: a vector, std::span, array or anything else contiguous. UserError when the element
  /// count does not match the shape. Without a shape: rank 1.
  template <ContiguousElements R>
  static Tensor from(const R& values, const Shape& shape) {
    check_count("from", std::ranges::size(values), shape);
    return copy_of(std::ranges::data(values), shape, dtype_of<std::ranges::range_value_t<R>>);
  }
  template <ContiguousElements R>
  static Tensor from(const R& values) {
    return from(values, Shape{static_cast<std::int64_t>(std::ranges::size(values))});
  }
  static Tensor from(const std::vector<bool>& values, const Shape& shape);
  static Tensor from(const std::vector<bool>& values);
  /// Takes a vector's memory over: no copy.
  template <ElementType T>
    requires(!std::is_same_v<T, bool>)
  static Tensor take(std::vector<T>&& values, const Shape& shape) {
    check_count("take", values.size(), shape);
    const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    return borrow(owner->data(), shape, std::shared_ptr<const void>(owner));
  }
  template <ElementType T>
  static Tensor take(std::vector<T>&& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    return take(std::move(values), Shape{count});
  }
  /// Copies `shape.numel()` row-major elements of `dtype`. UserError for null data (unless there are none).
  static Tensor copy_of(const void* data, const Shape& shape, DType dtype);

  /// Uses the caller's row-major memory without copying and never writes it; `owner` is kept until the last use.
  /// The memory must not change meanwhile: what is computed when is Kiln's choice. UserError (and nothing is kept)
  /// for null data, data not aligned to the element's size, or an empty owner (unless there are no elements).
  static Tensor borrow(const void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner);
  /// The same with a deleter, called once (with `data`) when the last use ends, on whichever thread that is. UserError
  /// for an empty one: memory that needs none takes one that does nothing.
  static Tensor borrow(const void* data, const Shape& shape, DType dtype, std::function<void(const void*)> deleter);
  /// Any strided layout: element (i, j, …) is `strides[0]*i + strides[1]*j + …` elements behind `data`. Strides may
  /// be 0 (repeated elements) or negative. UserError when their number is not the shape's.
  static Tensor borrow(const void* data, const Shape& shape, std::span<const std::int64_t> strides, DType dtype,
                       std::shared_ptr<const void> owner);
  static Tensor borrow(const void* data, const Shape& shape, std::span<const std::int64_t> strides, DType dtype,
                       std::function<void(const void*)> deleter);
  /// Typed forms of the first two; `keep` is an owner or a deleter.
  template <ElementType T, class Keep>
  static Tensor borrow(const T* data, const Shape& shape, Keep&& keep) {
    return borrow(static_cast<const void*>(data), shape, dtype_of<T>, std::forward<Keep>(keep));
  }
  template <ContiguousElements R, class Keep>
  static Tensor borrow(const R& values, const Shape& shape, Keep&& keep) {
    check_count("borrow", std::ranges::size(values), shape);
    return borrow(std::ranges::data(values), shape, std::forward<Keep>(keep));
  }

  bool valid() const noexcept { return node_ != nullptr; }
  /// Whether the single element is not 0: for `if (any(a != b))`. Evaluates. UserError for any other count, as in
  /// `if (a == b)` of whole tensors.
  explicit operator bool() const;
  Shape shape() const;
  int rank() const;
  std::int64_t dim(int axis) const;  ///< extent of an axis; negative counts from the back
  std::int64_t numel() const;
  DType dtype() const;
  Device device() const;
  /// The same value on another device: evaluates and copies. Itself when it is there.
  Tensor to(Device device) const;

  /// Computes this tensor now (with everything it needs, fused). Returns itself. Does nothing when done already.
  const Tensor& eval() const;
  /// True when the value is in memory already.
  bool evaluated() const;
  /// The single element of a one-element tensor, converted to T. Evaluates. UserError for any other count.
  template <ElementType T>
  T item() const {
    T out;
    read_item(&out, dtype_of<T>);
    return out;
  }
  /// Row-major copy of all elements; T must be the dtype's storage type (UserError otherwise). Evaluates.
  template <ElementType T>
  std::vector<T> to_vector() const {
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<std::uint8_t> raw(static_cast<std::size_t>(numel()));
      copy_to(raw.data(), DType::Bool);
      return std::vector<bool>(raw.begin(), raw.end());
    } else {
      std::vector<T> out(static_cast<std::size_t>(numel()));
      copy_to(out.data(), dtype_of<T>);
      return out;
    }
  }
  /// Writes all elements, row-major, to `out`, which has room for numel() elements of this tensor's dtype.
  void copy_to(void* out, DType expected) const;
  /// The same into a vector, span or array of numel() elements (UserError for any other size).
  template <WritableElements R>
  void copy_to(R&& out) const {
    check_room(std::ranges::size(out));
    copy_to(std::ranges::data(out), dtype_of<std::ranges::range_value_t<R>>);
  }
  /// Row-major host memory of this tensor's value, valid while a handle to it lives. Evaluates; copies when the value is
  /// a strided view, and once when it lives on a GPU.
  const void* data() const;
  /// The same on device(): a device address on a GPU, in the order of the calling thread's stream.
  const void* device_data() const;
  template <ElementType T>
  const T* data() const {
    return static_cast<const T*>(typed_data(dtype_of<T>));
  }
  /// The same as a span of numel() elements.
  template <ElementType T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<std::size_t>(numel())};
  }

  Tensor astype(DType dtype, SourceLocation loc = SourceLocation::current()) const;
  Tensor reshape(const Shape& shape, SourceLocation loc = SourceLocation::current()) const;  ///< one extent may be -1
  Tensor T(SourceLocation loc = SourceLocation::current()) const;  ///< last two axes swapped

  /// Basic indexing: x(0), x(all(), range(1, none, 2)), x(range(none, none, -1), newaxis). Assigning to the result
  /// of a non-const tensor's index updates that tensor: x(0) = y, x(range(1, 3)) += 1.
  template <class... S>
    requires(std::is_convertible_v<S, Slice> && ...)
  SliceRef operator()(FirstSlice first, S&&... rest);
  template <class... S>
    requires(std::is_convertible_v<S, Slice> && ...)
  Tensor operator()(FirstSlice first, S&&... rest) const {
    const Slice list[] = {first.slice, Slice(std::forward<S>(rest))...};
    return index(list, first.loc);
  }
  Tensor index(std::span<const Slice> slices, SourceLocation loc = SourceLocation::current()) const;

  /// Readable text: all elements of a small tensor, the corners of a large one. Evaluates.
  std::string str() const;

  ir::Node* node() const noexcept { return node_; }
  /// Takes over one reference.
  static Tensor adopt(ir::Node* node) noexcept {
    Tensor t;
    t.node_ = node;
    return t;
  }

 private:
  static void check_count(std::string_view op, std::size_t have, const Shape& shape);
  void check_room(std::size_t room) const;
  void read_item(void* out, DType type) const;
  const void* typed_data(DType type) const;
  void data_is_row_major(std::string_view op) const;
  Tensor contiguous_copy() const;
  ir::Node* node_ = nullptr;
};

std::ostream& operator<<(std::ostream& out, const Tensor& t);

/// The second argument of a binary operator: a tensor or a weak scalar, plus the caller's source line.
struct Operand {
  const Tensor* tensor = nullptr;
  Scalar scalar;
  SourceLocation loc;
  Operand(const Tensor& t, SourceLocation loc = SourceLocation::current()) : tensor(&t), loc(loc) {}
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
  Operand(T value, SourceLocation loc = SourceLocation::current()) : scalar(value), loc(loc) {}
};

/// A tensor operand that carries the caller's source line.
struct TensorArg {
  const Tensor* tensor;
  SourceLocation loc;
  TensorArg(const Tensor& t, SourceLocation loc = SourceLocation::current()) : tensor(&t), loc(loc) {}
};

/// What x(slice…) gives: a Tensor (a view, no copy) that can also be assigned to, which makes x a new value:
/// other handles keep the old one. Assignable only as a temporary, so `auto row = x(0); row = y;` does not compile.
class SliceRef : public Tensor {
 public:
  SliceRef(Tensor& target, std::span<const Slice> slices, SourceLocation loc)
      : Tensor(std::as_const(target).index(slices, loc)), target_(&target), slices_(slices.begin(), slices.end()) {}
  SliceRef(const SliceRef&) = default;
  SliceRef& operator=(const SliceRef& value) && { return assign(static_cast<const Tensor&>(value)); }
  SliceRef& operator=(const Operand& value) && { return assign(value); }
  SliceRef& operator+=(const Operand& value) &&;
  SliceRef& operator-=(const Operand& value) &&;
  SliceRef& operator*=(const Operand& value) &&;
  SliceRef& operator/=(const Operand& value) &&;

 private:
  SliceRef& assign(const Operand& value);
  Tensor* target_;
  std::vector<Slice> slices_;
};

template <class... S>
  requires(std::is_convertible_v<S, Slice> && ...)
SliceRef Tensor::operator()(FirstSlice first, S&&... rest) {
  const Slice list[] = {first.slice, Slice(std::forward<S>(rest))...};
  return SliceRef(*this, list, first.loc);
}

/// Evaluates several tensors together, sharing work. Returns when they are computed.
void eval(std::span<const Tensor> tensors);
void eval(std::initializer_list<Tensor> tensors);

}  // namespace kiln
