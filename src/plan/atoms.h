// Atoms: the loops that the values of a region run over, and which loops of two regions are the same ones.
//
// A region has a list of atoms, outermost first. A value stands at a place, a set of these atoms: its
// elements in row-major order are the points of the set in the list's order. A reduction reads at one place
// and stands at a smaller one. How a tensor's axes are written does not matter: only reductions, scans and
// broadcasts cut the run of a tensor's elements into atoms, and a reshape that has other cuts than these is a
// matter of index maps alone.
//
// Unification puts two regions' atoms side by side. Each edge between them says that two sequences of atoms
// are the same sequence: atoms are split at the cuts of both, and it fails where cuts do not divide each
// other. Invariant: two atoms of one region never become one (sum(x, 0) + sum(x, 1) of a square x is no
// diagonal). It decides what a kernel could be, never whether the kernel is worth having.
#pragma once

#include <cstdint>
#include <span>

namespace kiln::plan {

using AtomSet = std::uint32_t;

struct Space {
  static constexpr int kMost = 16;
  int n = 0;
  std::int64_t extent[kMost];

  void add(std::int64_t e) { extent[n++] = e; }
  AtomSet all() const { return (AtomSet{1} << n) - 1; }
  std::int64_t points(AtomSet set) const {
    std::int64_t p = 1;
    for (int i = 0; i < n; ++i)
      if (set >> i & 1) p *= extent[i];
    return p;
  }
  /// Whether the last atom longer than 1 is one of these.
  bool ends_in(AtomSet set) const {
    for (int i = n; i-- > 0;)
      if (extent[i] != 1) return (set >> i & 1) != 0;
    return false;
  }
};

/// Adjacent axes of a broadcast that it keeps, or that it repeats.
struct Run {
  std::int64_t extent;
  bool repeated;
};

class Unifier {
 public:
  Unifier(const Space& a, const Space& b) {
    begin(side_[0], a);
    begin(side_[1], b);
  }
  /// a's values at `from` are, element by element, what b reads at `to`. False: they cannot be.
  bool same(AtomSet from, AtomSet to) { return walk(from, to, {}); }
  /// The same, where b repeats them: `runs` are those of `to`, and its elements are those of the kept runs.
  bool spread(AtomSet from, AtomSet to, std::span<const Run> runs) { return walk(from, to, runs); }
  /// Whether atoms were split since this was last asked. Then edges told before must be told again.
  bool changed() {
    const bool was = changed_;
    changed_ = false;
    return was;
  }
  /// Makes one list of both: atoms that no edge speaks of become one where they lie side by side and have the
  /// same extents, so that one loop serves both regions. False where the orders contradict each other, or
  /// there are too many.
  bool finish();

  const Space& space() const { return space_; }
  /// What atoms of a (side 0) or b (side 1) became.
  AtomSet of(int side, AtomSet set) const;
  /// Whether this is each atom's own place again.
  bool is_identity(int side, int atoms) const;

 private:
  struct Side {
    int n;
    std::int64_t extent[Space::kMost];
    std::int8_t atom[Space::kMost];  // whose part it is
    std::int8_t link[Space::kMost];  // the part of the other side that is the same, or -1
    std::int8_t out[Space::kMost];   // its place in the result
  };
  enum class Step : std::uint8_t { Done, Again, Fails };
  static void begin(Side& s, const Space& of);
  bool insert(int side, int at, std::int64_t extent, int atom);
  bool insert_one(int at, int side, int into, AtomSet within);
  bool split(int side, int at, std::int64_t outer);
  bool link(int a, int b);
  bool walk(AtomSet from, AtomSet to, std::span<const Run> runs);
  Step cut(AtomSet from, AtomSet to, std::span<const Run> runs, std::uint32_t& kept);
  Step meet(AtomSet from, AtomSet to, std::uint32_t b);
  bool next_pair(int& a, int& b) const;
  void join_gap(int a, int a_end, int b, int b_end);

  Side side_[2];
  Space space_;
  bool changed_ = false;
};

}  // namespace kiln::plan
