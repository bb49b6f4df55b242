// Index maps: integer expressions of a region's axes with concrete sizes, kept affine as long as possible.
//
// An Index is c + Σ coef·atom. An atom is an axis of the region's domain, or floor(Index / d), or Index mod
// d, or a value computed in the region (a gather's index, or the position of a slice, which is the same at
// every point), each with a known range [0, extent). Views map a vector of Indices to another one; known
// ranges let most reshapes stay affine. Sizes become kernel parameters only afterwards (to_expr in
// region_values.cpp).
#pragma once

#include <kiln/shape.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace kiln::lower {

using AtomId = std::int32_t;

struct Term {
  AtomId atom;
  std::int64_t coef;
  friend bool operator==(const Term&, const Term&) = default;
};

struct Index {
  static constexpr int kMaxTerms = 8;
  std::int64_t c = 0;
  int n = 0;
  Term terms[kMaxTerms];  // ascending atoms, no zero coefficient

  bool is_const() const { return n == 0; }
  std::int64_t coef(AtomId atom) const {
    for (int i = 0; i < n; ++i)
      if (terms[i].atom == atom) return terms[i].coef;
    return 0;
  }
  friend bool operator==(const Index& a, const Index& b) {
    if (a.c != b.c || a.n != b.n) return false;
    for (int i = 0; i < a.n; ++i)
      if (!(a.terms[i] == b.terms[i])) return false;
    return true;
  }
};

struct Atom {
  enum class Kind : std::uint8_t { Axis, Div, Mod, Sum, Value, Position } kind;
  std::int64_t extent;  // value in [0, extent)   (Sum: any range, see lo)
  std::int64_t divisor = 1;
  std::int64_t lo = 0;
  Index of;
  std::uint32_t entry = 0;  // Value: whose value it is, an index made valid (see pull.h). Position: the
                            // value, to which of.c is added where it is negative, over `divisor`, a power of
                            // two, and moved into range
  std::uint64_t axes = 0;   // mask of the axes that it is made of
  bool of_entries = false;  // it is a value or a position, or made of one
  bool jumps = false;       // it is a value, or made of one
};

using Coords = std::vector<Index>;

/// The atoms of one region and the arithmetic on its indices.
class IndexSpace {
 public:
  explicit IndexSpace(std::span<const std::int64_t> axes);
  const Atom& atom(AtomId id) const { return atoms_[static_cast<std::size_t>(id)]; }
  int atom_count() const { return static_cast<int>(atoms_.size()); }
  int axis_count() const { return axes_; }

  Index constant(std::int64_t c) const {
    Index i;
    i.c = c;
    return i;
  }
  Index axis(int a) const;
  Index add(const Index& a, const Index& b);
  Index mul(const Index& a, std::int64_t k);
  Index add(const Index& a, std::int64_t k) const {
    Index r = a;
    r.c += k;
    return r;
  }
  /// Whether a divisor divides an index at every point or at none, as far as its coefficients tell.
  enum class Divides : std::uint8_t { Always, Never, Perhaps };
  static Divides divides(std::int64_t d, const Index& a);
  Index floor_div(const Index& a, std::int64_t d);  // d > 0, a >= 0 wherever it is used
  Index mod(const Index& a, std::int64_t d);
  /// The value of an entry of the region, an index into an axis of this extent. It may be out of range at
  /// points whose predicates do not hold.
  Index value(std::uint32_t entry, std::int64_t extent);
  /// Where a slice begins, at most `last`: the value of an entry that is a multiple of `factor`, and to which
  /// `from_back` is added where it is negative. It is in range everywhere.
  Index position(std::uint32_t entry, std::int64_t last, std::int64_t factor, std::int64_t from_back);
  bool has_values() const { return has_values_; }
  /// Whether an index may lead anywhere from one point to the next.
  bool jumps(const Index& a) const {
    return has_values_ &&
           std::any_of(a.terms, a.terms + a.n, [&](const Term& t) { return atom(t.atom).jumps; });
  }
  /// Calls f on the entry of every Value and Position atom that an index is made of.
  template <class F>
  void each_value(const Index& a, const F& f) const {
    if (!has_values_) return;
    std::vector<AtomId> seen;
    each_value_once(a, f, seen);
  }
  /// Least and greatest value.
  std::pair<std::int64_t, std::int64_t> range(const Index& a) const;

  /// Row-major position of coords in a tensor of these extents.
  Index linearize(std::span<const Index> coords, std::span<const std::int64_t> dims);
  /// Coordinates of position `linear` in a tensor of these extents.
  void delinearize(const Index& linear, std::span<const std::int64_t> dims, Coords& out);
  /// The same point in other extents. Axes whose extents multiply to the same number are taken together, and
  /// no more: what a guard keeps inside an axis stays affine, although its range is not known to.
  Coords reshaped(std::span<const Index> coords, std::span<const std::int64_t> from,
                  std::span<const std::int64_t> to);

 private:
  /// Atoms share what they are made of: each is looked into once.
  template <class F>
  void each_value_once(const Index& a, const F& f, std::vector<AtomId>& seen) const {
    for (int i = 0; i < a.n; ++i) {
      const Atom& t = atom(a.terms[i].atom);
      if (!t.of_entries || std::find(seen.begin(), seen.end(), a.terms[i].atom) != seen.end()) continue;
      seen.push_back(a.terms[i].atom);
      if (t.kind == Atom::Kind::Value || t.kind == Atom::Kind::Position)
        f(t.entry);
      else
        each_value_once(t.of, f, seen);
    }
  }
  AtomId intern(Atom atom);
  Index fold(const Index& a);
  std::vector<Atom> atoms_;
  int axes_;
  bool has_values_ = false;
};

}  // namespace kiln::lower
