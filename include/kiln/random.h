// Random numbers without state: each number is a function of a key and of its place in the result alone. The
// same key gives the same numbers in every mode, on every device and in every fused kernel; another key
// compiles nothing.
//
// Bits come from Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", 2011). A key is used once: draw from the keys that `split` gives, and keep one of them for what
// follows.
//
//     auto [now, later] = random::split<2>(key);
//     Tensor x = random::normal(now, {64, 128});
//
// Draws do not depend on the shape: uniform(key, {2, 3}) has the numbers of uniform(key, {6}) in row-major
// order, and a longer draw begins with the shorter one. Bits, and uniform in [0, 1), are equal to the bit
// everywhere; draws through a logarithm (normal, exponential) or a scaled range are as accurate as those
// functions.
#pragma once

#include <kiln/ops.h>

#include <array>
#include <cstdint>
#include <vector>

namespace kiln::random {

/// The 64 bits that determine a draw. All seeds are equally good. The bits are a C++ number or an element of
/// a tensor: a key made of a tensor draws inside while_loop and scan, where its bits change from one
/// iteration to the next.
class Key {
 public:
  explicit Key(std::uint64_t seed) : bits_(seed) {}
  /// UserError unless `bits` is one element of uint64.
  explicit Key(const Tensor& bits, SourceLocation loc = SourceLocation::current());
  /// The bits; evaluates if a tensor holds them.
  [[nodiscard]] std::uint64_t bits() const;
  /// The bits as a scalar tensor of uint64: what a loop carries.
  [[nodiscard]] Tensor tensor(SourceLocation loc = SourceLocation::current()) const;
  bool in_tensor() const { return tensor_.valid(); }
  friend bool operator==(const Key& a, const Key& b) { return a.bits() == b.bits(); }

 private:
  std::uint64_t bits_ = 0;
  Tensor tensor_;  // empty: bits_
};

/// The key for a number (a step, a worker, a layer): equal numbers give equal keys.
[[nodiscard]] Key fold_in(Key key, std::uint64_t number);
/// The same for an integer tensor of rank 0: the step of a loop. UserError for any other tensor.
[[nodiscard]] Key fold_in(Key key, const Tensor& number, SourceLocation loc = SourceLocation::current());
/// The first `count` child keys of a key; no child equals the key, or a number that the key draws.
[[nodiscard]] std::vector<Key> split(Key key, std::size_t count = 2);
template <std::size_t N>
[[nodiscard]] std::array<Key, N> split(Key key) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::vector<Key> keys = split(key, N);
    return std::array<Key, N>{keys[I]...};
  }(std::make_index_sequence<N>());
}

/// Random bits: uint32 (element i is Philox word i) or uint64. UserError for another dtype.
[[nodiscard]] Tensor bits(Key key, const Shape& shape, const TensorOptions& options = {},
                          SourceLocation loc = SourceLocation::current());
/// Uniform in [0, 1): multiples of 2^-24 (float64: 2^-53, float16: 2^-11, bfloat16: 2^-8), never 1. UserError
/// unless the dtype is a float.
[[nodiscard]] Tensor uniform(Key key, const Shape& shape, const TensorOptions& options = {},
                             SourceLocation loc = SourceLocation::current());
/// low + (high - low) u for such a u, and never high, for bounds rounded to the dtype. UserError unless they
/// are finite there and low < high.
[[nodiscard]] Tensor uniform(Key key, const Shape& shape, Scalar low, Scalar high,
                             const TensorOptions& options = {},
                             SourceLocation loc = SourceLocation::current());
/// The normal distribution, from 32 bits a number (float64: 64): tails reach 6.3 (9.2) standard deviations.
[[nodiscard]] Tensor normal(Key key, const Shape& shape, const TensorOptions& options = {},
                            SourceLocation loc = SourceLocation::current());
/// UserError for a negative deviation, or NaN.
[[nodiscard]] Tensor normal(Key key, const Shape& shape, Scalar mean, Scalar deviation,
                            const TensorOptions& options = {},
                            SourceLocation loc = SourceLocation::current());
/// bool, true with probability p rounded up to a multiple of 2^-24. p may be a tensor that broadcasts to the
/// shape. UserError for a number p outside [0, 1].
[[nodiscard]] Tensor bernoulli(Key key, const Shape& shape, const Operand& p = 0.5);
/// Whole numbers in [low, high). A value's probability is off by less than 2^-64 (2^-128 where high - low >
/// 2^32). UserError unless low < high, the dtype is an integer and holds both low and high - 1.
[[nodiscard]] Tensor randint(Key key, const Shape& shape, Whole low, Whole high,
                             const TensorOptions& options = {},
                             SourceLocation loc = SourceLocation::current());
/// The exponential distribution of rate 1, at most 22.2 (float64: 44.4).
[[nodiscard]] Tensor exponential(Key key, const Shape& shape, const TensorOptions& options = {},
                                 SourceLocation loc = SourceLocation::current());
/// 0 … count - 1 in random order, int64: the order of `count` random 64-bit numbers.
[[nodiscard]] Tensor permutation(Key key, Whole count, const TensorOptions& options = {},
                                 SourceLocation loc = SourceLocation::current());

/// x's slices along an axis in random order.
[[nodiscard]] Tensor permutation(Key key, const Tensor& x, Axis axis = 0,
                                 SourceLocation loc = SourceLocation::current());

}  // namespace kiln::random
