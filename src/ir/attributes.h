// Attributes: what an op is told beside its operands. There is a struct for each kind, and each knows how a
// node stores it: as a word (attr64) and, for some, a list of words (attrs). Recording, plan keys, hashes and
// comparisons copy these words as they are; whoever wants to know what they say asks for
// `attributes<Scan>(node)`.
//
// A struct has: fits(op), whether the op has such attributes; from(stored); word(); if it stores a list,
// list_size() and write_list(to); and, if it belongs to an affine view, map(extents of the operand, of the
// result). AttributeKinds, at the end, lists the structs.
#pragma once

#include "ir/op.h"
#include "ir/view_map.h"

#include <kiln/combine.h>

#include <bit>
#include <cstdint>
#include <span>

namespace kiln::ir {

/// A node's attributes as they are stored.
struct Stored {
  std::uint64_t word = 0;
  Dims list;
};

/// Every element has these bits.
struct Constant {
  std::uint64_t bits;

  static bool fits(Op op) { return op == Op::constant; }
  static Constant from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return bits; }
};

/// The axis along which values count up.
struct Iota {
  std::size_t axis;

  static bool fits(Op op) { return op == Op::iota; }
  static Iota from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return axis; }
};

/// Whether derivatives stop here (record/tape.h).
struct Alias {
  bool stops = false;

  static ViewMap map(Dims from, Dims to) {
    if (from.size() != to.size()) return ViewMap::wrong("changes the rank");
    ViewMap map{std::vector<std::int64_t>(from.size()), {}};
    for (std::size_t a = 0; a < to.size(); ++a) map.terms.push_back({a, a, 1});
    return map;
  }

  static bool fits(Op op) { return op == Op::alias; }
  static Alias from(const Stored& s) { return {(s.word & 1) != 0}; }
  std::uint64_t word() const { return stops; }
};

/// For each axis of the result the operand's axis that it shows; 4 bits each.
struct Permute {
  std::uint64_t packed = 0;

  std::size_t operator[](std::size_t axis) const { return packed >> (4 * axis) & 15; }
  void show(std::size_t axis, std::size_t operand_axis) {
    packed |= std::uint64_t{operand_axis} << (4 * axis);
  }
  ViewMap map(Dims from, Dims to) const {
    ViewMap map{std::vector<std::int64_t>(from.size()), {}};
    for (std::size_t a = 0; a < to.size(); ++a) map.terms.push_back({(*this)[a], a, 1});
    return map;
  }

  static bool fits(Op op) { return op == Op::permute; }
  static Permute from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return packed; }
};

/// Where a box of elements begins along each axis, and how far apart they are: of a slice (the operand's
/// elements that it shows; steps may be negative) or of a pad (where the operand's elements go; steps are
/// positive). Shows words that others own: the list first0, step0, first1, step1, …, or two lists.
class Box {
 public:
  Box(Dims first, Dims step) : first_(first.data()), step_(step.data()), stride_(1), rank_(first.size()) {}

  std::size_t rank() const { return rank_; }
  std::int64_t first(std::size_t axis) const { return first_[axis * stride_]; }
  std::int64_t step(std::size_t axis) const { return step_[axis * stride_]; }
  /// Of a slice.
  ViewMap map(Dims from, Dims to) const {
    if (from.size() != to.size()) return ViewMap::wrong("changes the rank");
    if (rank() != to.size()) return ViewMap::wrong("has a wrong attribute count");
    ViewMap map;
    for (std::size_t a = 0; a < to.size(); ++a) {
      map.first.push_back(first(a));
      map.terms.push_back({a, a, step(a)});
    }
    return map;
  }

  static bool fits(Op op) { return op == Op::slice || op == Op::pad; }
  static Box from(const Stored& s) { return Box(s); }
  static std::uint64_t word() { return 0; }
  std::size_t list_size() const { return 2 * rank_; }
  void write_list(std::int64_t* to) const {
    for (std::size_t a = 0; a < rank_; ++a) {
      to[2 * a] = first(a);
      to[2 * a + 1] = step(a);
    }
  }

 private:
  explicit Box(const Stored& s) : stride_(2), rank_(s.list.size() / 2) {
    if (rank_ == 0) return;
    first_ = s.list.data();
    step_ = first_ + 1;
  }

  const std::int64_t *first_ = nullptr, *step_ = nullptr;
  std::size_t stride_, rank_;
};

/// Of sliding_window: windows over some axes of the operand. Shows words that others own, three for each:
/// the axis, the distance from one window to the next, the distance between the elements of a window. The
/// result's axis r + k, where r is the operand's rank, counts the elements of window k.
class Windows {
 public:
  explicit Windows(Dims words) : words_(words) {}

  std::size_t count() const { return words_.size() / 3; }
  std::size_t axis(std::size_t k) const { return static_cast<std::size_t>(words_[3 * k]); }
  std::int64_t stride(std::size_t k) const { return words_[3 * k + 1]; }
  std::int64_t dilation(std::size_t k) const { return words_[3 * k + 2]; }
  ViewMap map(Dims from, Dims to) const {
    if (words_.size() % 3 != 0) return ViewMap::wrong("has a wrong attribute count");
    if (from.size() + count() != to.size()) return ViewMap::wrong("has not one axis more for each window");
    ViewMap map{std::vector<std::int64_t>(from.size()), {}};
    for (std::size_t a = 0; a < from.size(); ++a) map.terms.push_back({a, a, 1});
    std::uint64_t seen = 0;
    for (std::size_t k = 0; k < count(); ++k) {
      if (axis(k) >= from.size() || (seen >> axis(k) & 1) != 0)
        return ViewMap::wrong("has a window over no axis, or two over one");
      seen |= std::uint64_t{1} << axis(k);
      if (stride(k) < 1 || dilation(k) < 1) return ViewMap::wrong("has a bad stride or dilation");
      map.terms[axis(k)].step = stride(k);
      map.terms.push_back({axis(k), from.size() + k, dilation(k)});
    }
    return map;
  }

  static bool fits(Op op) { return op == Op::sliding_window; }
  static Windows from(const Stored& s) { return Windows(s.list); }
  static std::uint64_t word() { return 0; }
  std::size_t list_size() const { return words_.size(); }
  void write_list(std::int64_t* to) const {
    for (const std::int64_t word : words_) *to++ = word;
  }

 private:
  Dims words_;
};

/// Of slice_at and update_at: the axis, a power of two that divides every start, and whether negative starts
/// count from the back.
struct Position {
  std::size_t axis;
  std::int64_t factor = 1;
  bool from_back = false;

  friend bool operator==(const Position&, const Position&) = default;
  static bool fits(Op op) { return op == Op::slice_at || op == Op::update_at; }
  static Position from(const Stored& s) {
    return {s.word & 255, std::int64_t{1} << (s.word >> 8 & 63), (s.word >> 16 & 1) != 0};
  }
  std::uint64_t word() const {
    const auto log2 = static_cast<std::uint64_t>(std::countr_zero(static_cast<std::uint64_t>(factor)));
    return axis | log2 << 8 | std::uint64_t{from_back} << 16;
  }
};

/// Whether the operand's rounding may be left out (a product of halves that only a sum of floats reads).
struct Cast {
  bool unrounded = false;

  static bool fits(Op op) { return op == Op::cast; }
  static Cast from(const Stored& s) { return {(s.word & 1) != 0}; }
  std::uint64_t word() const { return unrounded; }
};

/// The reduced axes, a bit each.
struct Reduce {
  std::uint64_t mask;

  bool over(std::size_t axis) const { return (mask >> axis & 1) != 0; }

  static bool fits(Op op) { return is_reduce(op); }
  static Reduce from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return mask; }
};

/// Exclusive: an element's own value does not count. Reverse: from the end of the axis to its start.
struct Scan {
  std::size_t axis;
  bool exclusive = false, reverse = false;

  static bool fits(Op op) { return is_scan(op); }
  static Scan from(const Stored& s) { return {s.word & 255, (s.word >> 8 & 1) != 0, (s.word >> 9 & 1) != 0}; }
  std::uint64_t word() const { return axis | std::uint64_t{exclusive} << 8 | std::uint64_t{reverse} << 9; }
};

/// How many iterations there are, or 0 where the condition alone says. If there are some, the last state
/// counts them from 0 and the condition compares it.
struct Loop {
  std::int64_t count = 0;

  static bool fits(Op op) { return op == Op::loop; }
  static Loop from(const Stored& s) { return {static_cast<std::int64_t>(s.word)}; }
  std::uint64_t word() const { return static_cast<std::uint64_t>(count); }
};

/// The state of the loop whose last value it is, or the yield whose values it stacks: counted from the last.
struct LoopResult {
  std::size_t index;

  static bool fits(Op op) { return op == Op::loop_result || op == Op::loop_stack; }
  static LoopResult from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return index; }
};

/// The axis along which indices say where. `joined`: the operand's extents before axes were joined to this
/// one (joined_index.h), for messages, or none.
struct Gather {
  std::size_t axis;
  Dims joined = {};

  static bool fits(Op op) { return op == Op::gather; }
  static Gather from(const Stored& s) { return {s.word, s.list}; }
  std::uint64_t word() const { return axis; }
  std::size_t list_size() const { return joined.size(); }
  void write_list(std::int64_t* to) const {
    for (std::int64_t extent : joined) *to++ = extent;
  }
};

/// The same of a scatter, and how a value meets the element at its place.
struct Scatter {
  std::size_t axis;
  Combine how = Combine::Set;
  Dims joined = {};

  static bool fits(Op op) { return op == Op::scatter; }
  static Scatter from(const Stored& s) { return {s.word & 255, static_cast<Combine>(s.word >> 8), s.list}; }
  std::uint64_t word() const { return axis | static_cast<std::uint64_t>(how) << 8; }
  std::size_t list_size() const { return joined.size(); }
  void write_list(std::int64_t* to) const {
    for (std::int64_t extent : joined) *to++ = extent;
  }
};

/// The axis along which arrays lie behind each other.
struct Join {
  std::size_t axis;

  static bool fits(Op op) { return op == Op::join; }
  static Join from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return axis; }
};

/// Which of an op's results it is, counted from 0.
struct Part {
  std::size_t index;

  static bool fits(Op op) { return op == Op::part; }
  static Part from(const Stored& s) { return {s.word}; }
  std::uint64_t word() const { return index; }
};

/// Of sort, argsort and sort_with_positions.
struct Sort {
  std::size_t axis;
  bool descending = false;

  static bool fits(Op op) { return op == Op::sort || op == Op::argsort || op == Op::sort_with_positions; }
  static Sort from(const Stored& s) { return {s.word & 255, (s.word >> 8 & 1) != 0}; }
  std::uint64_t word() const { return axis | std::uint64_t{descending} << 8; }
};

/// Whether a value's place is after the elements that equal it.
struct Search {
  bool right;

  static bool fits(Op op) { return op == Op::searchsorted; }
  static Search from(const Stored& s) { return {(s.word & 1) != 0}; }
  std::uint64_t word() const { return right; }
};

/// Of a kernel that the user gave: which (custom.h), how many results it has, and words that others own: the
/// count of its numbers, these numbers, and for each result after the first its dtype, its rank and its
/// extents.
struct Custom {
  std::uint32_t kernel = 0, results = 1;
  Dims words = {};

  Dims numbers() const { return words.subspan(1, static_cast<std::size_t>(words[0])); }
  /// Of result `index`, above 0. Pre: there is one.
  DType dtype(std::size_t index) const { return static_cast<DType>(words[at(index)]); }
  Dims dims(std::size_t index) const {
    const std::size_t first = at(index);
    return words.subspan(first + 2, static_cast<std::size_t>(words[first + 1]));
  }

  static bool fits(Op op) { return op == Op::custom; }
  static Custom from(const Stored& s) {
    return {static_cast<std::uint32_t>(s.word), static_cast<std::uint32_t>(s.word >> 32), s.list};
  }
  std::uint64_t word() const { return kernel | std::uint64_t{results} << 32; }
  std::size_t list_size() const { return words.size(); }
  void write_list(std::int64_t* to) const {
    for (const std::int64_t word : words) *to++ = word;
  }

 private:
  std::size_t at(std::size_t index) const {
    std::size_t i = 1 + static_cast<std::size_t>(words[0]);
    for (std::size_t result = 1; result < index; ++result) i += 2 + static_cast<std::size_t>(words[i + 1]);
    return i;
  }
};

/// The longest list of attributes that a node has: of a custom kernel.
inline constexpr std::size_t kMostAttributeWords = 128;

/// Of every other op.
struct Nothing {
  static bool fits(Op op);
  static Nothing from(const Stored&) { return {}; }
  static std::uint64_t word() { return 0; }
};

template <class... As>
struct Kinds {};
/// Every struct above but Nothing.
using AttributeKinds = Kinds<Constant, Iota, Alias, Permute, Box, Windows, Position, Cast, Reduce, Scan, Loop,
                             LoopResult, Gather, Scatter, Join, Part, Sort, Search, Custom>;

template <class A>
concept HasList = requires(const A& a) { a.list_size(); };

/// Whether these words are attributes of the op as they would be stored: no bit set that has no meaning.
bool well_stored(Op op, const Stored& stored);

[[noreturn]] void wrong_attributes(Op op);

/// A node's attributes: of a GraphNode or a Node. InternalError if its op has others. Lists are shown where
/// the node has them.
template <class A, class N>
A attributes(const N& node) {
  if (!A::fits(node.op)) [[unlikely]]
    wrong_attributes(node.op);
  return A::from(stored(node));
}

}  // namespace kiln::ir
