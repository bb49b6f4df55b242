// Random draws as compositions: Philox words of the element's position, then arithmetic. Nothing here has a
// kernel of its own; keys and numbers are scalar slots.
#include <kiln/random.h>

#include "api/record.h"
#include "ir/infer.h"
#include "oracle/reference.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace kiln::random {
namespace {

using api::elementwise;
using ir::Op;

/// What derives keys stands in the counter's third word, which is 0 where numbers are drawn.
enum Purpose : std::uint32_t { Split = 1, FoldIn = 2 };

Key derived(const Key& key, std::uint64_t number, Purpose purpose) {
  if (key.in_tensor()) {
    const Tensor of =
        Tensor::adopt(api::scalar_node(static_cast<std::int64_t>(number), DType::UInt64).take());
    return Key(elementwise(Op::philox_child, of, key.tensor(), Scalar(static_cast<std::int64_t>(purpose))));
  }
  const auto block = ir::ref::philox(
      {{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), purpose, 0}},
      key.bits());
  return Key(block.word[0] | std::uint64_t{block.word[1]} << 32);
}

Scalar number(std::uint64_t bits) { return static_cast<std::int64_t>(bits); }

/// 0, 1, 2, … in row-major order.
Tensor positions(std::string_view op, const Shape& shape, std::optional<Device> device) {
  for (std::int64_t extent : shape)
    if (extent < 0) throw UserError(cat("[", op, "] negative extent in shape ", shape.str()));
  std::int64_t count = 8;
  for (std::int64_t extent : shape)
    if (extent != 0 && __builtin_mul_overflow(count, extent, &count))
      throw UserError(cat("[", op, "] shape ", shape.str(), " has more than 2^60 elements"));
  const ir::NodeRef flat = api::iota_node(Shape{shape.numel()}, 0, DType::UInt64, device);
  return Tensor::adopt(api::reshape_node(flat.get(), shape).take());
}

/// The Philox words at positions in a key's sequence.
Tensor words_at(Op op, const Tensor& at, const Key& key) {
  return key.in_tensor() ? elementwise(op, at, key.tensor()) : elementwise(op, at, number(key.bits()));
}
Tensor words32(std::string_view op, const Key& key, const Shape& shape, std::optional<Device> device) {
  return words_at(Op::philox, positions(op, shape, device), key);
}
Tensor words64(std::string_view op, const Key& key, const Shape& shape, std::optional<Device> device) {
  return words_at(Op::philox64, positions(op, shape, device), key);
}

void require_float(std::string_view op, DType dtype) {
  if (!is_float(dtype) || is_only_stored(dtype))
    throw UserError(cat("[", op, "] draws floating-point numbers, not ", name(dtype),
                        is_only_stored(dtype) ? ": astype makes them of bfloat16" : ""));
}

/// Half types are drawn in float32.
DType wide(DType dtype) { return is_half(dtype) ? DType::Float32 : dtype; }

/// The low `digits` bits as a float of the dtype (float32 or float64). They go through a signed integer,
/// which every vector unit converts.
Tensor whole(const Tensor& bits, int digits, DType dtype) {
  const Tensor low = elementwise(Op::bitwise_and, bits, number((std::uint64_t{1} << digits) - 1));
  return astype(astype(low, size_of(bits.dtype()) == 8 ? DType::Int64 : DType::Int32), dtype);
}

struct Draw {
  Tensor bits;
  int digits;  // bits of a word that are drawn from: all but the top one
};
Draw draw(std::string_view op, const Key& key, const Shape& shape, DType dtype,
          std::optional<Device> device) {
  if (dtype == DType::Float64) return {words64(op, key, shape, device), 63};
  return {words32(op, key, shape, device), 31};
}

/// (m + 1/2) 2^-scale for the draw's bits m: never 0.
Tensor fraction(const Draw& d, int scale, DType dtype) {
  const Tensor m = whole(d.bits, d.digits, dtype);
  return elementwise(Op::multiply, elementwise(Op::add, m, Scalar(0.5)), Scalar(std::ldexp(1.0, -scale)));
}

/// The greatest value of the dtype below `high`, which is one.
double below(double high, DType dtype) {
  return dispatch(dtype, [&]<class T>() -> double {
    if constexpr (is_float(dtype_of<T>)) {
      return ir::ref::nextafter<T>(high, -HUGE_VAL);
    } else {
      return high;
    }
  });
}

double rounded(double value, DType dtype) {
  return dispatch(dtype, [&]<class T>() { return ir::ref::cast<double>(ir::ref::cast<T>(value)); });
}

}  // namespace

Key::Key(const Tensor& bits, SourceLocation loc) : tensor_(bits) {
  const CallScope scope("random::Key", loc);
  const ir::Node* const node = api::checked("random::Key", bits);
  if (node->dtype != DType::UInt64 || node->numel != 1)
    throw UserError(cat("[random::Key] a key is one uint64, not ", api::describe(node)));
  if (node->rank != 0) tensor_ = reshape(bits, {});
}

std::uint64_t Key::bits() const { return tensor_.valid() ? tensor_.item<std::uint64_t>() : bits_; }

Tensor Key::tensor(SourceLocation loc) const {
  if (tensor_.valid()) return tensor_;
  const CallScope scope("random::Key", loc);
  return api::finish(api::scalar_node(number(bits_), DType::UInt64));
}

Key fold_in(Key key, std::uint64_t number) { return derived(key, number, FoldIn); }

Key fold_in(Key key, const Tensor& number, SourceLocation loc) {
  const CallScope scope("fold_in", loc);
  const ir::Node* const node = api::checked("fold_in", number);
  if (!is_int(node->dtype) || node->numel != 1)
    throw UserError(cat("[fold_in] a number is one integer, not ", api::describe(node)));
  const Tensor word = astype(reshape(number, {}), DType::UInt64);
  return Key(elementwise(Op::philox_child, word, key.tensor(), Scalar(std::int64_t{FoldIn})));
}

std::vector<Key> split(Key key, std::size_t count) {
  std::vector<Key> keys;
  keys.reserve(count);
  for (std::size_t i = 0; i < count; ++i) keys.push_back(derived(key, i, Split));
  return keys;
}

Tensor bits(Key key, const Shape& shape, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("bits", loc);
  const DType dtype = options.dtype.value_or(DType::UInt32);
  if (dtype == DType::UInt32) return words32("bits", key, shape, options.device);
  if (dtype == DType::UInt64) return words64("bits", key, shape, options.device);
  throw UserError(cat("[bits] gives uint32 or uint64, not ", name(dtype)));
}

Tensor uniform(Key key, const Shape& shape, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("uniform", loc);
  const DType dtype = options.dtype.value_or(DType::Float32);
  require_float("uniform", dtype);
  const int digits = dtype == DType::Float64    ? 53
                     : dtype == DType::Float32  ? 24
                     : dtype == DType::BFloat16 ? 8
                                                : 11;
  const Draw d = draw("uniform", key, shape, dtype, options.device);
  const Tensor m = whole(d.bits, digits, wide(dtype));
  return astype(elementwise(Op::multiply, m, Scalar(std::ldexp(1.0, -digits))), dtype);
}

Tensor uniform(Key key, const Shape& shape, Scalar low, Scalar high, const TensorOptions& options,
               SourceLocation loc) {
  const CallScope scope("uniform", loc);
  const DType dtype = options.dtype.value_or(DType::Float32);
  require_float("uniform", dtype);
  const double from = rounded(low.to_double(), dtype), to = rounded(high.to_double(), dtype);
  if (!(from < to) || !std::isfinite(from) || !std::isfinite(to))
    throw UserError(cat("[uniform] ", name(dtype), " has no numbers from ", api::describe(low), " to below ",
                        api::describe(high)));
  const Tensor u = uniform(key, shape, {wide(dtype), options.device});
  // Where high - low overflows, half of the number is drawn.
  const double part = std::isfinite(rounded(to - from, wide(dtype))) ? 1.0 : 0.5;
  const Tensor scaled = elementwise(Op::multiply, u, Scalar(to * part - from * part));
  Tensor moved = elementwise(Op::add, scaled, Scalar(from * part));
  if (part != 1.0) moved = elementwise(Op::multiply, moved, Scalar(1 / part));
  return elementwise(Op::minimum, astype(moved, dtype), Scalar(below(to, dtype)));
}

Tensor normal(Key key, const Shape& shape, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("normal", loc);
  const DType dtype = options.dtype.value_or(DType::Float32);
  require_float("normal", dtype);
  const Draw d = draw("normal", key, shape, dtype, options.device);
  // The quantile of a probability below one half, which has its full precision there; the top bit is the
  // sign.
  const Tensor lower = elementwise(Op::ndtri, fraction(d, d.digits + 1, wide(dtype)));
  const Tensor sign = elementwise(Op::bitwise_and, d.bits, number(std::uint64_t{1} << d.digits));
  const Tensor left = elementwise(Op::equal, sign, Scalar(0));
  return astype(elementwise(Op::where, left, lower, elementwise(Op::negative, lower)), dtype);
}

Tensor normal(Key key, const Shape& shape, Scalar mean, Scalar deviation, const TensorOptions& options,
              SourceLocation loc) {
  const CallScope scope("normal", loc);
  const DType dtype = options.dtype.value_or(DType::Float32);
  require_float("normal", dtype);
  if (!(deviation.to_double() >= 0))
    throw UserError(cat("[normal] a deviation of ", api::describe(deviation)));
  const Tensor z = normal(key, shape, {wide(dtype), options.device});
  const Tensor scaled = elementwise(Op::multiply, z, Scalar(deviation.to_double()));
  return astype(elementwise(Op::add, scaled, Scalar(mean.to_double())), dtype);
}

Tensor bernoulli(Key key, const Shape& shape, const Operand& p) {
  const CallScope scope("bernoulli", p.loc);
  if (p.tensor) {
    const ir::Node* node = api::checked("bernoulli", *p.tensor);
    if (const auto wide = ir::broadcast_dims(shape, node->dims()); !wide || !(*wide == shape))
      throw UserError(
          cat("[bernoulli] probabilities ", api::describe(node), " do not broadcast to ", shape.str()));
  } else if (const double value = p.scalar.to_double(); !(value >= 0 && value <= 1)) {
    throw UserError(cat("[bernoulli] a probability of ", api::describe(p.scalar)));
  }
  return elementwise(Op::less, uniform(key, shape, DType::Float32), p);
}

Tensor randint(Key key, const Shape& shape, Whole least, Whole end, const TensorOptions& options,
               SourceLocation loc) {
  const CallScope scope("randint", loc);
  const std::int64_t low = least, high = end;
  const DType dtype = options.dtype.value_or(DType::Int64);
  if (!is_int(dtype)) throw UserError(cat("[randint] draws integers, not ", name(dtype)));
  const bool holds = dispatch(dtype, [&]<class T>() {
    if constexpr (is_int(dtype_of<T>))
      return std::in_range<T>(low) && std::in_range<T>(high - (high > low));
    else
      return false;
  });
  if (low >= high || !holds)
    throw UserError(cat("[randint] ", name(dtype), " has no numbers from ", low, " to below ", high));
  // The upper half of bits * span is uniform below span but for the 2^64 mod span products too many.
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  Tensor drawn;
  if (span <= std::uint64_t{1} << 32) {
    drawn = elementwise(Op::multiply_high, words64("randint", key, shape, options.device), number(span));
  } else {  // of 128 bits: the lower 64 decide a carry
    const Tensor twice = elementwise(Op::multiply, positions("randint", shape, options.device), Scalar(2));
    const Tensor lower = words_at(Op::philox64, twice, key);
    const Tensor upper = words_at(Op::philox64, elementwise(Op::add, twice, Scalar(1)), key);
    const Tensor product = elementwise(Op::multiply, upper, number(span));
    const Tensor total = elementwise(Op::add, product, elementwise(Op::multiply_high, lower, number(span)));
    const Tensor carry = astype(elementwise(Op::less, total, product), DType::UInt64);
    drawn = elementwise(Op::add, elementwise(Op::multiply_high, upper, number(span)), carry);
  }
  return astype(elementwise(Op::add, drawn, Scalar(low)), dtype);
}

Tensor exponential(Key key, const Shape& shape, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("exponential", loc);
  const DType dtype = options.dtype.value_or(DType::Float32);
  require_float("exponential", dtype);
  const Draw d = draw("exponential", key, shape, dtype, options.device);
  const Tensor p = fraction(d, d.digits, wide(dtype));
  return astype(elementwise(Op::subtract, Scalar(0.0), elementwise(Op::log, p)), dtype);
}

Tensor permutation(Key key, Whole count, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("permutation", loc);
  if (count < 0) throw UserError(cat("[permutation] of ", count, " elements"));
  const Tensor order = argsort(words64("permutation", key, Shape{count}, options.device), 0, false);
  return astype(order, options.dtype.value_or(DType::Int64));
}

Tensor permutation(Key key, const Tensor& x, Axis axis, SourceLocation loc) {
  const CallScope scope("permutation", loc);
  const ir::Node* const node = api::checked("permutation", x);
  const int a = api::checked_axis("permutation", axis, node);
  return take(x, permutation(key, node->dims()[static_cast<std::size_t>(a)], {}), a);
}

}  // namespace kiln::random
