// Shape: a short vector of dimension extents, stored inline up to kInlineDims.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace kiln {

inline constexpr int kMaxRank = 16;

/// Extents of a tensor, outermost first. Rank 0 is a scalar. At most kMaxRank dimensions.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  Shape(const std::vector<std::int64_t>& dims) : Shape(std::span(dims)) {}
  Shape(std::span<const std::int64_t> dims);  // UserError when longer than kMaxRank

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

  /// Product of the extents (1 for rank 0). Extents are trusted not to overflow: they were checked when made.
  std::int64_t numel() const;
  /// "(2, 3)", "(5,)", "()".
  std::string str() const;
  friend bool operator==(const Shape& a, const Shape& b);
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);

 private:
  int rank_ = 0;
  std::int64_t dims_[kMaxRank];
};

std::string to_string(std::span<const std::int64_t> dims);

}  // namespace kiln
