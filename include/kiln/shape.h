// Shape: a short vector of dimension extents, stored inline.
#pragma once

#include <kiln/arguments.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

namespace kiln {

inline constexpr int kMaxRank = 16;

/// Extents of a tensor, outermost first: {2, 3}, {v.size(), 4}, 3 (one dimension), or a range of integers.
/// Rank 0 is a scalar. UserError for more than kMaxRank dimensions.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Whole> dims, const SourceLocation& loc = SourceLocation::current()) {
    check_rank(dims.size(), loc);
    for (std::int64_t extent : dims) dims_[rank_++] = extent;
  }
  template <WholeNumber I>
  Shape(I extent) : rank_(1) {
    dims_[0] = detail::saturated(extent);
  }
  template <WholeNumbers R>
    requires(!std::same_as<R, Shape>)
  Shape(const R& dims, const SourceLocation& loc = SourceLocation::current()) {
    for (const auto extent : dims) {
      check_rank(static_cast<std::size_t>(rank_) + 1, loc);
      dims_[rank_++] = detail::saturated(extent);
    }
  }
  Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  int size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t operator[](int i) const { return dims_[i]; }
  std::int64_t& operator[](int i) { return dims_[i]; }
  const std::int64_t* begin() const { return dims_; }
  const std::int64_t* end() const { return dims_ + rank_; }
  std::int64_t* begin() { return dims_; }
  std::int64_t* end() { return dims_ + rank_; }
  std::int64_t back() const { return dims_[rank_ - 1]; }
  void push_back(std::int64_t extent);
  void resize(int rank, std::int64_t fill = 1);
  operator std::span<const std::int64_t>() const { return {dims_, static_cast<std::size_t>(rank_)}; }

  /// Product of the extents (1 for rank 0). Pre: it fits in 63 bits, as for the shape of every tensor.
  std::int64_t numel() const;
  /// "(2, 3)", "(5,)", "()".
  std::string str() const;
  friend bool operator==(const Shape& a, const Shape& b);
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);

 private:
  static void check_rank(std::size_t rank, const SourceLocation& loc);
  int rank_ = 0;
  std::int64_t dims_[kMaxRank];
};

std::string to_string(std::span<const std::int64_t> dims);

}  // namespace kiln
